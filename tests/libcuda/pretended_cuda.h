/*
 * The functions of libcuda that the pretended one has, as programs find them by name. Their types
 * are written out: streams, events, modules and functions are numbers or pointers of the library's
 * own. Each returns a CUresult; 0 is success.
 */
#ifndef MUSTER_TESTS_LIBCUDA_PRETENDED_CUDA_H
#define MUSTER_TESTS_LIBCUDA_PRETENDED_CUDA_H

#include <stddef.h>
#include <stdint.h>

/* Values of cuda.h: CUresult, */
enum pretended_result {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_PTX = 218,
    UNSUPPORTED_PTX_VERSION = 222,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    LAUNCH_FAILED = 719,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    UNKNOWN = 999,
};

/* and CUstream: the default streams. NULL is the first of them. */
#define LEGACY ((uintptr_t)1)
#define PER_THREAD ((uintptr_t)2)

#pragma GCC visibility push(default)

/* Devices and contexts */
int cuInit(unsigned flags);
int cuDriverGetVersion(int *ret_version);
int cuGetErrorName(int error, const char **ret_name);
int cuDeviceGet(int *ret_device, int ordinal);
int cuDeviceGetCount(int *ret_count);
int cuDeviceGetName(char *ret_name, int size, int device);
int cuDeviceGetAttribute(int *ret_value, int attribute, int device);
int cuDevicePrimaryCtxRetain(void **ret_context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **ret_context);
int cuCtxGetCurrent(void **ret_context);
int cuCtxSetCurrent(void *context);
int cuCtxGetDevice(int *ret_device);
int cuCtxSynchronize(void);

/* Memory */
int cuPointerGetAttribute(void *ret_value, int attribute, uint64_t address);
int cuPointerGetAttributes(unsigned count, const int *attributes, void **ret_values,
                           uint64_t address);
int cuMemAlloc_v2(uint64_t *ret_address, size_t size_bytes);
int cuMemFree_v2(uint64_t address);
int cuMemHostAlloc(void **ret_memory, size_t size_bytes, unsigned flags);
int cuMemFreeHost(void *memory);
int cuMemHostRegister_v2(void *memory, size_t size_bytes, unsigned flags);
int cuMemHostUnregister(void *memory);
int cuMemHostGetDevicePointer_v2(uint64_t *ret_address, void *memory, unsigned flags);
int cuMemGetHandleForAddressRange(void *ret_handle, uint64_t address, size_t size_bytes, int type,
                                  unsigned long long flags);

/* Work */
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t size_bytes, uintptr_t stream);
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size_bytes);
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size_bytes);
int cuStreamWaitValue32(uintptr_t stream, uint64_t address, uint32_t value, unsigned flags);
int cuStreamWaitValue32_v2(uintptr_t stream, uint64_t address, uint32_t value, unsigned flags);
int cuStreamWriteValue32(uintptr_t stream, uint64_t address, uint32_t value, unsigned flags);
int cuStreamWriteValue32_v2(uintptr_t stream, uint64_t address, uint32_t value, unsigned flags);
int cuLaunchHostFunc(uintptr_t stream, void (*function)(void *user), void *user);

/* Modules */
int cuModuleLoadData(void **ret_module, const void *image);
int cuModuleLoadDataEx(void **ret_module, const void *image, unsigned option_count,
                       const int *options, void **values);
int cuModuleGetFunction(void **ret_function, void *module, const char *name);
int cuModuleUnload(void *module);
int cuLaunchKernel(void *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                   unsigned threads_x, unsigned threads_y, unsigned threads_z,
                   unsigned shared_bytes, uintptr_t stream, void **parameters, void **extra);

/* Streams and events */
int cuStreamCreate(uintptr_t *ret_stream, unsigned flags);
int cuStreamCreateWithPriority(uintptr_t *ret_stream, unsigned flags, int priority);
int cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest);
int cuStreamDestroy_v2(uintptr_t stream);
int cuStreamGetCtx(uintptr_t stream, void **ret_context);
int cuStreamQuery(uintptr_t stream);
int cuStreamSynchronize(uintptr_t stream);
int cuStreamWaitEvent(uintptr_t stream, void *event, unsigned flags);
int cuEventCreate(void **ret_event, unsigned flags);
int cuEventRecord(void *event, uintptr_t stream);
int cuEventQuery(void *event);
int cuEventSynchronize(void *event);
int cuEventElapsedTime(float *ret_ms, void *start, void *end);
int cuEventDestroy_v2(void *event);

#pragma GCC visibility pop

#endif
