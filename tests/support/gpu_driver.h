/* The functions of a libcuda, the pretended one or that of a real GPU, as a test calls them. */
#ifndef MUSTER_TESTS_SUPPORT_GPU_DRIVER_H
#define MUSTER_TESTS_SUPPORT_GPU_DRIVER_H

#include "tests/libcuda/pretended_cuda.h"

#include <stdbool.h>

#define GPU_DRIVER_FUNCTIONS(X)     \
    X(cuInit)                       \
    X(cuDriverGetVersion)           \
    X(cuGetErrorName)               \
    X(cuDeviceGet)                  \
    X(cuDeviceGetName)              \
    X(cuDeviceGetAttribute)         \
    X(cuDevicePrimaryCtxRetain)     \
    X(cuCtxGetCurrent)              \
    X(cuCtxSetCurrent)              \
    X(cuCtxSynchronize)             \
    X(cuPointerGetAttribute)        \
    X(cuMemAlloc_v2)                \
    X(cuMemFree_v2)                 \
    X(cuMemHostAlloc)               \
    X(cuMemFreeHost)                \
    X(cuMemHostRegister_v2)         \
    X(cuMemHostUnregister)          \
    X(cuMemHostGetDevicePointer_v2) \
    X(cuMemcpyAsync)                \
    X(cuMemcpyHtoD_v2)              \
    X(cuMemcpyDtoH_v2)              \
    X(cuStreamWaitValue32)          \
    X(cuStreamWriteValue32)         \
    X(cuLaunchHostFunc)             \
    X(cuModuleLoadDataEx)           \
    X(cuModuleGetFunction)          \
    X(cuModuleUnload)               \
    X(cuLaunchKernel)               \
    X(cuStreamCreate)               \
    X(cuStreamDestroy_v2)           \
    X(cuStreamGetCtx)               \
    X(cuStreamQuery)                \
    X(cuStreamSynchronize)          \
    X(cuStreamWaitEvent)            \
    X(cuEventCreate)                \
    X(cuEventRecord)                \
    X(cuEventQuery)                 \
    X(cuEventSynchronize)           \
    X(cuEventElapsedTime)           \
    X(cuEventDestroy_v2)

struct gpu_driver {
#define FIELD(name) __typeof__(&(name)) name;
    GPU_DRIVER_FUNCTIONS(FIELD)
#undef FIELD
};

/* Loads this libcuda, and makes the primary context of its first GPU current. False: there is no
 * such library, or it has no GPU; *ret_why says what is missing. */
bool gpu_driver_load(const char *path, struct gpu_driver *ret_driver, const char **ret_why);

/* Loads the libcuda of this machine, and prints its GPU. Without one: a pretended one, or false
 * with a line on standard error if MUSTER_TEST_GPU is set. */
bool gpu_driver_start(struct gpu_driver *ret_driver, bool *ret_pretended);

/* The address of memory of a GPU as a pointer. */
void *gpu_driver_pointer(uint64_t address);

#endif
