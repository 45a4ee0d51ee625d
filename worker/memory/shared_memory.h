/*
 * The floor: memory that processes share. A memfd, sealed against growing and shrinking, so that a
 * mapping of it cannot be pulled from under whoever maps it. It has no name in a file system;
 * nothing is left of it when the last process that maps it is gone.
 */
#ifndef MUSTER_WORKER_MEMORY_SHARED_MEMORY_H
#define MUSTER_WORKER_MEMORY_SHARED_MEMORY_H

#include "worker/base/status.h"

/* Users round their sizes up to it. */
enum { MUSTER_SHARED_PAGE_BYTES = 4096 };

/* Of zeros. `name` is for people who look into /proc. MUSTER_FATAL: no memory or descriptors. */
MUSTER_CHECKED muster_status muster_shared_memory_create(const char *name, size_t size_bytes,
                                                         int *ret_fd);

/* A descriptor that a peer has passed: MUSTER_INVALID unless it is such memory, of this size. */
MUSTER_CHECKED muster_status muster_shared_memory_check(int fd, size_t size_bytes);

/* All of it, readable and writable; munmap() it. */
MUSTER_CHECKED muster_status muster_shared_memory_map(int fd, size_t size_bytes, void **ret_base);

#endif
