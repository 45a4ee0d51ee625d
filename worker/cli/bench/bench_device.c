/* muster bench: buffers in memory of a GPU. */
#include "worker/cli/bench/bench_device.h"

#include <dlfcn.h>
#include <string.h>

#include "worker/base/thread.h"

enum { NON_BLOCKING = 1 }; /* CU_STREAM_NON_BLOCKING */

/* Functions of libcuda; each returns 0 on success. */
static struct {
    pthread_mutex_t mutex;
    void *library;
    int (*init)(unsigned flags);
    int (*device_get_count)(int *ret_count);
    int (*device_get)(int *ret_device, int ordinal);
    int (*primary_ctx_retain)(void **ret_context, int device);
    int (*ctx_set_current)(void *context);
    int (*mem_alloc)(uint64_t *ret_address, size_t size_bytes);
    int (*stream_create)(uintptr_t *ret_stream, unsigned flags);
    int (*stream_synchronize)(uintptr_t stream);
} cuda = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool find(const char *name, void *ret_function)
{
    void *symbol = dlsym(cuda.library, name);
    memcpy(ret_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Ranks may be threads. */
static muster_status load(void)
{
    AUTO_LOCK(&cuda.mutex);
    if (cuda.library != NULL) {
        return MUSTER_OK;
    }
    cuda.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (cuda.library == NULL) {
        return muster_error_set(MUSTER_INVALID, "--device cuda: %s", dlerror());
    }
    if (find("cuInit", &cuda.init) && find("cuDeviceGetCount", &cuda.device_get_count) &&
        find("cuDeviceGet", &cuda.device_get) &&
        find("cuDevicePrimaryCtxRetain", &cuda.primary_ctx_retain) &&
        find("cuCtxSetCurrent", &cuda.ctx_set_current) && find("cuMemAlloc_v2", &cuda.mem_alloc) &&
        find("cuStreamCreate", &cuda.stream_create) &&
        find("cuStreamSynchronize", &cuda.stream_synchronize)) {
        return MUSTER_OK;
    }
    return muster_error_set(MUSTER_INVALID, "--device cuda: libcuda.so.1 is too old");
}

muster_status muster_bench_device_open(uint32_t rank)
{
    int count = 0;
    int device = 0;
    void *context = NULL;
    TRY(load());
    int error = cuda.init(0);
    error = error != 0 ? error : cuda.device_get_count(&count);
    if (error != 0 || count == 0) {
        return muster_error_set(MUSTER_INVALID, "--device cuda: there is no GPU (CUDA's error %d)",
                                error);
    }
    error = cuda.device_get(&device, (int)(rank % (uint32_t)count));
    error = error != 0 ? error : cuda.primary_ctx_retain(&context, device);
    error = error != 0 ? error : cuda.ctx_set_current(context);
    return error == 0
               ? MUSTER_OK
               : muster_error_set(MUSTER_FATAL,
                                  "--device cuda: the GPU cannot be used (CUDA's error %d)", error);
}

muster_status muster_bench_device_allocate(size_t size_bytes, void **ret_memory)
{
    uint64_t address = 0;
    int error = cuda.mem_alloc(&address, size_bytes);
    memcpy(ret_memory, &address, sizeof *ret_memory);
    return error == 0 ? MUSTER_OK
                      : muster_error_set(MUSTER_FATAL,
                                         "--device cuda: no memory for %zu bytes (CUDA's error %d)",
                                         size_bytes, error);
}

muster_status muster_bench_device_make_stream(uintptr_t *ret_stream)
{
    int error = cuda.stream_create(ret_stream, NON_BLOCKING);
    return error == 0
               ? MUSTER_OK
               : muster_error_set(MUSTER_FATAL, "--stream: no stream (CUDA's error %d)", error);
}

muster_status muster_bench_device_wait(uintptr_t stream)
{
    int error = cuda.stream_synchronize(stream);
    return error == 0
               ? MUSTER_OK
               : muster_error_set(MUSTER_FATAL, "--stream: waiting for it failed (CUDA's error %d)",
                                  error);
}
