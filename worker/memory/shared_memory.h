/*
 * The floor: memory that processes share. It is a memfd that is sealed against growing and
 * shrinking, so that no process can cut it under the mapping of another. It has no name in a file
 * system, and nothing is left of it after the last process that maps it.
 */
#ifndef MUSTER_WORKER_MEMORY_SHARED_MEMORY_H
#define MUSTER_WORKER_MEMORY_SHARED_MEMORY_H

#include "worker/base/status.h"

/* Sizes are rounded up to it. */
enum { MUSTER_SHARED_PAGE_BYTES = 4096 };

/* Makes memory of zeros. `name` appears in /proc. MUSTER_FATAL: no memory or descriptors. */
MUSTER_CHECKED muster_status muster_shared_memory_create(const char *name, size_t size_bytes,
                                                         int *ret_fd);

/* Checks a descriptor that a peer has passed. MUSTER_INVALID unless it is such memory of this size.
 */
MUSTER_CHECKED muster_status muster_shared_memory_check(int fd, size_t size_bytes);

/* Maps all of it, readable and writable. The caller unmaps it with munmap(). */
MUSTER_CHECKED muster_status muster_shared_memory_map(int fd, size_t size_bytes, void **ret_base);

#endif
