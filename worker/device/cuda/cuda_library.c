/* Finds libcuda among the libraries that the process has loaded, and its functions. */
#include "worker/device/cuda/cuda_library.h"

#include "worker/base/log.h"
#include "worker/base/thread.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

static struct {
    pthread_mutex_t mutex;
    _Atomic(const struct muster_cuda *) found;
    atomic_ullong searched; /* the count of loaded objects at the last search, plus one */
    bool too_old;
    struct muster_cuda cuda;
} library = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Called for the first object only; it gets the number of objects that were ever loaded. */
static int read_load_count(struct dl_phdr_info *info, size_t size, void *ret_count)
{
    (void)size;
    *(unsigned long long *)ret_count = info->dlpi_adds;
    return 1;
}

static bool find(void *handle, const char *name, void *ret_function)
{
    void *symbol = dlsym(handle, name);
    memcpy(ret_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool find_streams(void *handle, struct muster_cuda *ret_cuda)
{
    return find(handle, "cuStreamCreate", &ret_cuda->stream_create) &&
           find(handle, "cuStreamDestroy_v2", &ret_cuda->stream_destroy) &&
           find(handle, "cuStreamQuery", &ret_cuda->stream_query) &&
           find(handle, "cuStreamWaitEvent", &ret_cuda->stream_wait_event) &&
           find(handle, "cuEventCreate", &ret_cuda->event_create) &&
           find(handle, "cuEventRecord", &ret_cuda->event_record) &&
           find(handle, "cuEventQuery", &ret_cuda->event_query) &&
           find(handle, "cuEventDestroy_v2", &ret_cuda->event_destroy) &&
           find(handle, "cuMemAlloc_v2", &ret_cuda->mem_alloc) &&
           find(handle, "cuMemFree_v2", &ret_cuda->mem_free);
}

/* Pairs of a name and where its function goes. */
static bool find_queues(void *handle, struct muster_cuda_queue_functions *ret_queues)
{
    struct muster_cuda_queue_functions *to = ret_queues;
    const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"cuMemHostRegister_v2", &to->mem_host_register},
        {"cuMemHostUnregister", &to->mem_host_unregister},
        {"cuMemHostGetDevicePointer_v2", &to->mem_host_get_device_pointer},
        {"cuCtxGetStreamPriorityRange", &to->ctx_get_stream_priority_range},
        {"cuStreamCreateWithPriority", &to->stream_create_with_priority},
        {"cuEventSynchronize", &to->event_synchronize},
    };
    (void)(find(handle, "cuStreamWaitValue32_v2", &to->stream_wait_value) ||
           find(handle, "cuStreamWaitValue32", &to->stream_wait_value));
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        if (!find(handle, wanted[i].name, wanted[i].function)) {
            return false;
        }
    }
    return true;
}

static bool find_kernels(void *handle, struct muster_cuda *ret_cuda)
{
    return find(handle, "cuCtxGetDevice", &ret_cuda->ctx_get_device) &&
           find(handle, "cuModuleLoadData", &ret_cuda->module_load_data) &&
           find(handle, "cuModuleGetFunction", &ret_cuda->module_get_function) &&
           find(handle, "cuLaunchKernel", &ret_cuda->launch_kernel);
}

static bool find_all(void *handle, struct muster_cuda *ret_cuda)
{
    (void)find(handle, "cuMemGetHandleForAddressRange",
               &ret_cuda->mem_get_handle_for_address_range);
    ret_cuda->has_streams = find_streams(handle, ret_cuda);
    ret_cuda->has_queues = ret_cuda->has_streams && find_queues(handle, &ret_cuda->queues);
    ret_cuda->has_kernels = find_kernels(handle, ret_cuda);
    return find(handle, "cuPointerGetAttributes", &ret_cuda->pointer_get_attributes) &&
           find(handle, "cuPointerGetAttribute", &ret_cuda->pointer_get_attribute) &&
           find(handle, "cuDeviceGet", &ret_cuda->device_get) &&
           find(handle, "cuDevicePrimaryCtxRetain", &ret_cuda->device_primary_ctx_retain) &&
           find(handle, "cuCtxPushCurrent_v2", &ret_cuda->ctx_push_current) &&
           find(handle, "cuCtxPopCurrent_v2", &ret_cuda->ctx_pop_current) &&
           find(handle, "cuMemcpyAsync", &ret_cuda->memcpy_async) &&
           find(handle, "cuStreamSynchronize", &ret_cuda->stream_synchronize) &&
           find(handle, "cuGetErrorName", &ret_cuda->get_error_name);
}

/* The handle is kept, so the library stays loaded. */
static const struct muster_cuda *search(unsigned long long load_count)
{
    AUTO_LOCK(&library.mutex);
    if (atomic_load(&library.found) == NULL && !library.too_old) {
        void *handle = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL);
        if (handle != NULL && find_all(handle, &library.cuda)) {
            atomic_store(&library.found, &library.cuda);
        } else if (handle != NULL) {
            library.too_old = true;
            muster_log(MUSTER_LOG_WARN,
                       "libcuda.so.1 is too old (before CUDA 7): memory of a GPU cannot be "
                       "distinguished from memory of the host");
        }
        atomic_store(&library.searched, load_count + 1);
    }
    return atomic_load(&library.found);
}

const struct muster_cuda *muster_cuda_library(void)
{
    const struct muster_cuda *found = atomic_load_explicit(&library.found, memory_order_acquire);
    if (found != NULL) {
        return found;
    }
    unsigned long long load_count = 0;
    (void)dl_iterate_phdr(read_load_count, &load_count);
    /* Found is read again: another thread may have found the library in the meantime. */
    return atomic_load(&library.searched) == load_count + 1 ? atomic_load(&library.found)
                                                            : search(load_count);
}

const struct muster_cuda_queue_functions *
muster_cuda_queue_functions(const struct muster_cuda *cuda)
{
    return cuda != NULL && cuda->has_queues ? &cuda->queues : NULL;
}

const char *muster_cuda_error_name(const struct muster_cuda *cuda, int error)
{
    const char *name = NULL;
    return cuda->get_error_name(error, &name) == 0 && name != NULL ? name : "an unknown error";
}
