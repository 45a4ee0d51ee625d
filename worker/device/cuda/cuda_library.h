/*
 * The functions of libcuda that are used, if the process has loaded it. Their types are written out
 * here, so that no header of CUDA is needed.
 *
 * Private to this folder.
 */
#ifndef MUSTER_WORKER_DEVICE_CUDA_CUDA_LIBRARY_H
#define MUSTER_WORKER_DEVICE_CUDA_CUDA_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values of cuda.h. */
enum {
    MUSTER_CUDA_CONTEXT = 1, /* CUpointer_attribute */
    MUSTER_CUDA_MEMORY_TYPE = 2,
    MUSTER_CUDA_DEVICE_POINTER = 3,
    MUSTER_CUDA_BUFFER_ID = 7,
    MUSTER_CUDA_IS_MANAGED = 8,
    MUSTER_CUDA_DEVICE_ORDINAL = 9,
    MUSTER_CUDA_RANGE_START = 11,
    MUSTER_CUDA_RANGE_SIZE = 12,
    MUSTER_CUDA_TYPE_HOST = 1, /* CUmemorytype */
    MUSTER_CUDA_TYPE_DEVICE = 2,
    MUSTER_CUDA_HANDLE_DMABUF = 1, /* CUmemRangeHandleType */
    MUSTER_CUDA_LEGACY = 1,        /* CUstream: the default stream */
    MUSTER_CUDA_PER_THREAD = 2,
    MUSTER_CUDA_NON_BLOCKING = 1, /* of streams: they do not wait for the default stream */
    MUSTER_CUDA_NO_TIMING = 2,    /* of events */
    MUSTER_CUDA_NOT_READY = 600,  /* CUresult */
    MUSTER_CUDA_HOST_PORTABLE = 1,
    MUSTER_CUDA_HOST_MAPPED = 2,
    MUSTER_CUDA_WAIT_GEQ = 0, /* CUstreamWaitValue_flags */
};

/* Pinned memory, and what else queues need: all of them, or none. */
struct muster_cuda_queue_functions {
    int (*mem_host_register)(void *memory, size_t size_bytes, unsigned flags);
    int (*mem_host_unregister)(void *memory);
    int (*mem_host_get_device_pointer)(uint64_t *ret_address, void *memory, unsigned flags);
    int (*ctx_get_stream_priority_range)(int *ret_least, int *ret_greatest);
    int (*stream_create_with_priority)(void **ret_stream, unsigned flags, int priority);
    int (*event_synchronize)(void *event);
    /* From CUDA 8 on, else NULL. */
    int (*stream_wait_value)(uintptr_t stream, uint64_t address, uint32_t value, unsigned flags);
};

/* Each returns a CUresult; 0 is success. */
struct muster_cuda {
    int (*pointer_get_attributes)(unsigned count, const int *attributes, void **ret_values,
                                  uint64_t address);
    int (*pointer_get_attribute)(void *ret_value, int attribute, uint64_t address);
    int (*device_get)(int *ret_device, int ordinal);
    int (*device_primary_ctx_retain)(void **ret_context, int device);
    int (*ctx_push_current)(void *context);
    int (*ctx_pop_current)(void **ret_context);
    int (*memcpy_async)(uint64_t to, uint64_t from, size_t size_bytes, uintptr_t stream);
    int (*stream_synchronize)(uintptr_t stream);
    int (*get_error_name)(int error, const char **ret_name);
    /* From CUDA 11.7 on, else NULL. */
    int (*mem_get_handle_for_address_range)(void *ret_handle, uint64_t address, size_t size_bytes,
                                            int type, unsigned long long flags);
    /* For groups and queues; all of them are there, or none is (has_streams). */
    bool has_streams;
    int (*stream_create)(void **ret_stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_query)(uintptr_t stream);
    int (*stream_wait_event)(uintptr_t stream, void *event, unsigned flags);
    int (*event_create)(void **ret_event, unsigned flags);
    int (*event_record)(void *event, uintptr_t stream);
    int (*event_query)(void *event);
    int (*event_destroy)(void *event);
    int (*mem_alloc)(uint64_t *ret_address, size_t size_bytes);
    int (*mem_free)(uint64_t address);
    bool has_queues;
    struct muster_cuda_queue_functions queues;
    /* For kernels (cuda_kernels.c), likewise. */
    bool has_kernels;
    int (*ctx_get_device)(int *ret_device);
    int (*module_load_data)(void **ret_module, const void *image);
    int (*module_get_function)(void **ret_function, void *module, const char *name);
    int (*launch_kernel)(void *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                         unsigned threads_x, unsigned threads_y, unsigned threads_z,
                         unsigned shared_bytes, uintptr_t stream, void **parameters, void **extra);
};

/* The name of an error. */
const char *muster_cuda_error_name(const struct muster_cuda *cuda, int error);

/* NULL: libcuda is not loaded, or too old. Any thread. */
const struct muster_cuda *muster_cuda_library(void);

/* NULL: the library has no queues. Borrowed for the life of the process. */
const struct muster_cuda_queue_functions *
muster_cuda_queue_functions(const struct muster_cuda *cuda);

#endif
