/*
 * A pretended GPU: a library named libcuda.so.1 that a test loads. Its memory cannot be touched at
 * the addresses that the program sees: an access is a SIGSEGV. A second mapping, the alias, is for
 * copies and for pretended RDMA devices. Freed memory keeps its bytes in the alias: a device that
 * has registered it goes on reading them.
 *
 * Streams are queues that run late, as tests/libcuda/pretended_queues.c says: a task runs when
 * somebody waits for it or asks whether it is done, or in a thread of the library's after a random
 * delay. A copy runs late whatever memory it reads and writes, also where CUDA would take pageable
 * memory before it returns. A task that fails makes the next wait for its stream fail, and the
 * events after it.
 *
 * Threads: any. All controls may be used while others use the library.
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

#define GPU_PRETEND_NEVER UINT32_MAX

/* What can be made to fail, with what error: */
enum gpu_pretend_call {
    GPU_PRETEND_COPY,     /* when it runs: CUDA_ERROR_ILLEGAL_ADDRESS */
    GPU_PRETEND_EXPORT,   /* as a dma-buf: CUDA_ERROR_NOT_SUPPORTED */
    GPU_PRETEND_ALLOCATE, /* memory of the GPU by cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY */
    GPU_PRETEND_PIN,      /* memory of the host, allocated or registered: likewise */
    GPU_PRETEND_STREAM,   /* making one: likewise */
    GPU_PRETEND_EVENT,    /* likewise */
    GPU_PRETEND_MODULE,   /* loading one: CUDA_ERROR_UNSUPPORTED_PTX_VERSION */
    GPU_PRETEND_LAUNCH,   /* of a kernel, when it runs: CUDA_ERROR_LAUNCH_FAILED */
    GPU_PRETEND_CALLS
};

struct gpu_pretend {
    void *(*allocate)(size_t size_bytes, unsigned kind);
    void (*release)(void *memory);
    /* Releases it, and allocates as much at the same address. */
    void (*replace)(void *memory);
    /* The alias of an address; NULL: it is not memory of the GPU. */
    void *(*alias)(const void *memory);
    /* The address of an alias; NULL likewise. */
    void *(*of_alias)(const void *memory);
    /* Writes the bytes when the default stream of the memory's context is waited for, and not
     * before. */
    void (*write_later)(void *memory, const void *bytes, size_t size_bytes);
    /* After so many more of such calls the next ones fail; UINT32_MAX: none fails. */
    void (*fail_after)(enum gpu_pretend_call call, uint32_t after);
    uint64_t (*count)(enum gpu_pretend_call call); /* those that succeeded */
    /* The device falls off the bus: what is enqueued never runs, and every call returns this error,
     * such as 999 (CUDA_ERROR_UNKNOWN) or 719 (CUDA_ERROR_LAUNCH_FAILED), until it is 0 again. Only
     * memory stays what it was. */
    void (*lose)(int error);
    /* The order across streams, and how many microseconds at most pass before a task runs for which
     * nobody waits (200), or GPU_PRETEND_NEVER: then the same calls of one thread run in the same
     * order with the same seed. */
    void (*seed)(uint64_t seed, uint32_t delay_us);
    /* Nothing of a stream (a CUstream, in the calling thread's context) runs until it is resumed,
     * and who waits for it waits. */
    void (*pause)(uintptr_t stream);
    void (*resume)(uintptr_t stream);
    uint64_t (*pending)(uintptr_t stream); /* tasks that have not run yet */
};

/* The path of the library. It is complete enough to be loaded by programs that use a GPU. */
const char *gpu_pretend_path(void);

/* Loads the library; aborts the program on failure. before_11_7: as old as before CUDA 11.7,
 * without dma-buf. */
const struct gpu_pretend *gpu_pretend_load(bool before_11_7);

#endif
