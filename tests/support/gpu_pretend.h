/*
 * A GPU that there is not: stands in for libcuda.so.1, as a library of this name that is loaded
 * when a test says so. Its memory cannot be touched where the program sees it: who tries gets
 * SIGSEGV. A second mapping is for those who copy, and for pretended RDMA devices. What is freed
 * keeps its bytes there: a device that was told of it before goes on reading them.
 *
 * A copy happens when its stream is waited for, and needs a context: else it fails.
 *
 * Any thread.
 */
#ifndef MUSTER_TESTS_SUPPORT_GPU_PRETEND_H
#define MUSTER_TESTS_SUPPORT_GPU_PRETEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What kind of memory. */
enum {
    GPU_PRETEND_NO_ID = 1,      /* its allocations have no ids */
    GPU_PRETEND_NO_CONTEXT = 2, /* nor belong to a context, as mapped memory does */
    GPU_PRETEND_MANAGED = 4,    /* the CPU may touch it */
    GPU_PRETEND_HOST = 8,       /* memory of the host that CUDA knows */
};

enum gpu_pretend_call { GPU_PRETEND_COPY, GPU_PRETEND_EXPORT, GPU_PRETEND_CALLS };

struct gpu_pretend {
    void *(*allocate)(size_t size_bytes, unsigned kind);
    void (*release)(void *memory);
    /* Releases it, and allocates as much at the same address. */
    void (*replace)(void *memory);
    /* Where an address of it can be touched; NULL: it is none of the GPU's. */
    void *(*alias)(const void *memory);
    /* And back. */
    void *(*of_alias)(const void *memory);
    /* Writes so many bytes when the default stream of its context is waited for. */
    void (*write_later)(void *memory, const void *bytes, size_t size_bytes);
    /* After so many more, such calls fail with CUDA_ERROR_ILLEGAL_ADDRESS; UINT32_MAX: none does.
     */
    void (*fail_after)(enum gpu_pretend_call call, uint32_t after);
    uint64_t (*count)(enum gpu_pretend_call call); /* that went well */
};

/* Where it is: a libcuda.so.1 with a GPU for programs, too. */
const char *gpu_pretend_path(void);

/* Loads it; fails the program if it cannot be. Before CUDA 11.7: without dma-buf. */
const struct gpu_pretend *gpu_pretend_load(bool before_11_7);

#endif
