/*
 * A pretended GPU: a library named libcuda.so.1 that a test loads. Its memory cannot be touched at
 * the addresses that the program sees: an access is a SIGSEGV. A second mapping, the alias, is for
 * copies and for pretended RDMA devices. Freed memory keeps its bytes in the alias: a device that
 * has registered it goes on reading them.
 *
 * A copy happens when its stream is waited for, and fails without a context.
 *
 * Threads: any.
 */
#ifndef MUSTER_TESTS_SUPPORT_GPU_PRETEND_H
#define MUSTER_TESTS_SUPPORT_GPU_PRETEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kinds of memory. */
enum {
    GPU_PRETEND_NO_ID = 1,      /* its allocations have no ids */
    GPU_PRETEND_NO_CONTEXT = 2, /* and belong to no context, as mapped memory */
    GPU_PRETEND_MANAGED = 4,    /* the CPU may touch it */
    GPU_PRETEND_HOST = 8,       /* memory of the host that CUDA has pinned */
};

enum gpu_pretend_call { GPU_PRETEND_COPY, GPU_PRETEND_EXPORT, GPU_PRETEND_CALLS };

struct gpu_pretend {
    void *(*allocate)(size_t size_bytes, unsigned kind);
    void (*release)(void *memory);
    /* Releases it, and allocates as much at the same address. */
    void (*replace)(void *memory);
    /* The alias of an address; NULL: it is not memory of the GPU. */
    void *(*alias)(const void *memory);
    /* The address of an alias; NULL likewise. */
    void *(*of_alias)(const void *memory);
    /* Writes the bytes when the default stream of the memory's context is waited for. */
    void (*write_later)(void *memory, const void *bytes, size_t size_bytes);
    /* After so many more of such calls the next ones fail; UINT32_MAX: none fails. */
    void (*fail_after)(enum gpu_pretend_call call, uint32_t after);
    uint64_t (*count)(enum gpu_pretend_call call); /* those that succeeded */
};

/* The path of the library. It is complete enough to be loaded by programs that use a GPU. */
const char *gpu_pretend_path(void);

/* Loads the library; aborts the program on failure. before_11_7: as old as before CUDA 11.7,
 * without dma-buf. */
const struct gpu_pretend *gpu_pretend_load(bool before_11_7);

#endif
