/* The floor: randomness from the kernel. Only shells draw it; the pure cores get seeds. */
#ifndef MUSTER_WORKER_BASE_RANDOM_H
#define MUSTER_WORKER_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* "xxxxxxxx-xxxx-4xxx-xxxx-xxxxxxxxxxxx" and its terminator. */
enum { MUSTER_UUID_SIZE = 37 };

void muster_random_bytes(void *ret_bytes, size_t size_bytes);

/* Uniform in [0, bound); 0 if bound is 0. */
uint32_t muster_random_below(uint32_t bound);

void muster_random_uuid(char ret_uuid[MUSTER_UUID_SIZE]);

/* Lower-case hex of random bytes: 2 x size_bytes characters and a terminator. */
void muster_random_hex(size_t size_bytes, char *ret_hex);

#endif
