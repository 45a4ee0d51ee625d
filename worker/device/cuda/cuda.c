/*
 * Memory of a GPU (CUDA): queries CUDA about addresses, and copies on a stream that it waits for.
 *
 * Muster neither links nor loads libcuda. A process that has memory of a GPU has loaded it, at any
 * time, so it is searched among the loaded libraries. Without it there is no memory of a GPU, and
 * to find that out takes some tens of nanoseconds.
 *
 * Memory that CUDA manages (cudaMallocManaged), and memory of the host that CUDA has pinned, counts
 * as memory of the host: the CPU may use it.
 *
 * No thread needs a CUDA context of its own.
 */
#include <stdatomic.h>

#include "worker/base/status.h"
#include "worker/device/cuda/cuda_kernels.h"
#include "worker/device/cuda/cuda_library.h"
#include "worker/device/cuda/cuda_queue.h"
#include "worker/device/cuda/nccl_groups.h"
#include "worker/device/device.h"

enum { DEVICES_MAX = 64 };

extern const struct muster_device muster_cuda_device;

/* Finding ------------------------------------------------------------------------------------- */

/* CUDA answers for any address, and leaves the values as they are for addresses that it does not
 * know. */
static bool is_of_gpu(const struct muster_cuda *cuda, uint64_t address)
{
    static const int attributes[] = {MUSTER_CUDA_MEMORY_TYPE, MUSTER_CUDA_IS_MANAGED};
    unsigned type = 0;
    unsigned managed = 0;
    void *values[] = {&type, &managed};
    return cuda->pointer_get_attributes(2, attributes, values, address) == 0 &&
           type == MUSTER_CUDA_TYPE_DEVICE && managed == 0;
}

/* The primary context of the device, for memory without a context (of a pool, or mapped). Retained
 * for good. */
static void *primary_context(const struct muster_cuda *cuda, uint64_t address)
{
    static _Atomic(void *) held[DEVICES_MAX];
    int ordinal = -1;
    int device = 0;
    void *context = NULL;
    if (cuda->pointer_get_attribute(&ordinal, MUSTER_CUDA_DEVICE_ORDINAL, address) != 0 ||
        ordinal < 0 || ordinal >= DEVICES_MAX) {
        return NULL;
    }
    context = atomic_load(&held[ordinal]);
    if (context == NULL && cuda->device_get(&device, ordinal) == 0 &&
        cuda->device_primary_ctx_retain(&context, device) == 0) {
        atomic_store(&held[ordinal], context);
    }
    return context;
}

static bool is_active(void)
{
    return muster_cuda_library() != NULL;
}

/* Only the first attributes decide whether it is memory of a GPU. The others may be missing: then
 * the range is empty, there is no id, and the context is the primary one. */
static bool find(const void *data, struct muster_device_memory *ret_memory)
{
    const struct muster_cuda *cuda = muster_cuda_library();
    uint64_t address = (uintptr_t)data;
    uint64_t start = 0;
    size_t size = 0;
    if (cuda == NULL || data == NULL || !is_of_gpu(cuda, address)) {
        return false;
    }
    struct muster_device_memory memory = {
        .device = &muster_cuda_device, .begin = address, .end = address};
    if (cuda->pointer_get_attribute(&start, MUSTER_CUDA_RANGE_START, address) == 0 &&
        cuda->pointer_get_attribute(&size, MUSTER_CUDA_RANGE_SIZE, address) == 0) {
        memory.begin = start;
        memory.end = start + size;
    }
    if (cuda->pointer_get_attribute(&memory.id, MUSTER_CUDA_BUFFER_ID, address) != 0) {
        memory.id = 0;
    }
    if (cuda->pointer_get_attribute(&memory.context, MUSTER_CUDA_CONTEXT, address) != 0 ||
        memory.context == NULL) {
        memory.context = primary_context(cuda, address);
    }
    *ret_memory = memory;
    return true;
}

/* Using --------------------------------------------------------------------------------------- */

/* The per-thread stream is a blocking one, so the work on the default stream comes first.
 * cuMemcpy() may return before the data has reached the device; waiting for a stream does not. */
static int copy_and_wait(const struct muster_cuda *cuda, uint64_t to, uint64_t from,
                         size_t size_bytes)
{
    int error = cuda->memcpy_async(to, from, size_bytes, MUSTER_CUDA_PER_THREAD);
    return error != 0 ? error : cuda->stream_synchronize(MUSTER_CUDA_PER_THREAD);
}

static muster_status copy(const struct muster_device_memory *memory, void *to, const void *from,
                          size_t size_bytes)
{
    const struct muster_cuda *cuda = muster_cuda_library();
    void *unused = NULL;
    int error = size_bytes == 0 ? 0 : cuda->ctx_push_current(memory->context);
    if (error == 0 && size_bytes > 0) {
        error = copy_and_wait(cuda, (uintptr_t)to, (uintptr_t)from, size_bytes);
        (void)cuda->ctx_pop_current(&unused);
    }
    return error == 0 ? MUSTER_OK
                      : muster_error_set(MUSTER_FATAL, "copying %zu bytes of a GPU: %s", size_bytes,
                                         muster_cuda_error_name(cuda, error));
}

/* Waits for the default stream of the memory's context. */
static muster_status wait_for_work(const struct muster_device_memory *memory)
{
    const struct muster_cuda *cuda = muster_cuda_library();
    void *unused = NULL;
    int error = cuda->ctx_push_current(memory->context);
    if (error == 0) {
        error = cuda->stream_synchronize(MUSTER_CUDA_LEGACY);
        (void)cuda->ctx_pop_current(&unused);
    }
    return error == 0 ? MUSTER_OK
                      : muster_error_set(MUSTER_FATAL, "waiting for a GPU: %s",
                                         muster_cuda_error_name(cuda, error));
}

static muster_status export_pages(const struct muster_device_memory *memory, const void *base,
                                  size_t size_bytes, int *ret_fd)
{
    const struct muster_cuda *cuda = muster_cuda_library();
    void *unused = NULL;
    int fd = -1;
    if (cuda->mem_get_handle_for_address_range == NULL) {
        return muster_error_set(MUSTER_INVALID,
                                "libcuda has no cuMemGetHandleForAddressRange: CUDA 11.7 or newer "
                                "is needed");
    }
    int error = cuda->ctx_push_current(memory->context);
    if (error == 0) {
        error = cuda->mem_get_handle_for_address_range(&fd, (uintptr_t)base, size_bytes,
                                                       MUSTER_CUDA_HANDLE_DMABUF, 0);
        (void)cuda->ctx_pop_current(&unused);
    }
    if (error != 0) {
        return muster_error_set(MUSTER_INVALID, "CUDA makes no dma-buf: %s",
                                muster_cuda_error_name(cuda, error));
    }
    *ret_fd = fd;
    return MUSTER_OK;
}

const struct muster_device muster_cuda_device = {
    .name = "cuda",
    .is_active = is_active,
    .find = find,
    .copy = copy,
    .combine = muster_cuda_combine,
    .reduces = muster_cuda_reduces,
    .finish = muster_cuda_finish,
    .wait = wait_for_work,
    .export_pages = export_pages,
    .queues = muster_cuda_queues,
    .groups = &muster_nccl_groups,
    .rdma_advice =
        "Load nvidia-peermem (modprobe nvidia-peermem), or use Linux 5.12 or newer and "
        "an NVIDIA driver from 515 on with open kernel modules",
};
