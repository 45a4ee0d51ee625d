/* Devices and contexts. A context is the primary one of its device; each thread has a stack. */
#include "tests/libcuda/pretended_parts.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 8, VERSION = 12000 };

/* CUdevice_attribute */
enum {
    WARP_SIZE = 10,
    MULTIPROCESSORS = 16,
    CAN_MAP_HOST_MEMORY = 19,
    COMPUTE_MODE = 20,
    UNIFIED_ADDRESSING = 41,
    MAJOR = 75,
    MINOR = 76,
    SAME_POINTER_FOR_REGISTERED = 91,
    STREAM_MEM_OPS_V1 = 92,
    WAIT_VALUE_NOR_V1 = 94,
    CAN_FLUSH_REMOTE_WRITES = 98,
    HOST_REGISTER = 99,
    WAIT_VALUE_NOR = 123,
};

static __thread void *stack[DEPTH_MAX];
static __thread int depth;

static bool is_context(const void *context)
{
    return (uintptr_t)context - (uintptr_t)pretended.contexts < ORDINALS;
}

int pretended_current(void)
{
    return depth > 0 ? (int)((char *)stack[depth - 1] - pretended.contexts) : -1;
}

/* Devices -------------------------------------------------------------------------------------- */

int cuInit(unsigned flags)
{
    LOCKED_SCOPE();
    return flags != 0 ? INVALID_VALUE : pretended_refusal();
}

int cuDriverGetVersion(int *ret_version)
{
    *ret_version = VERSION;
    return 0;
}

int cuDeviceGet(int *ret_device, int ordinal)
{
    LOCKED_SCOPE();
    int error = pretended_refusal();
    if (error != 0 || ordinal < 0 || ordinal >= ORDINALS) {
        return error != 0 ? error : INVALID_DEVICE;
    }
    *ret_device = ordinal;
    return 0;
}

int cuDeviceGetCount(int *ret_count)
{
    LOCKED_SCOPE();
    *ret_count = ORDINALS;
    return pretended_refusal();
}

int cuDeviceGetName(char *ret_name, int size, int device)
{
    LOCKED_SCOPE();
    (void)snprintf(ret_name, (size_t)size, "a pretended GPU (device %d)", device);
    return pretended_refusal();
}

static int attribute_of(int attribute)
{
    switch (attribute) {
    case WARP_SIZE:
        return 32;
    case MULTIPROCESSORS:
        return 4;
    case MAJOR:
        return 7;
    case COMPUTE_MODE:
    case MINOR:
    case CAN_FLUSH_REMOTE_WRITES:
        return 0;
    case CAN_MAP_HOST_MEMORY:
    case UNIFIED_ADDRESSING:
    case SAME_POINTER_FOR_REGISTERED:
    case STREAM_MEM_OPS_V1:
    case WAIT_VALUE_NOR_V1:
    case HOST_REGISTER:
    case WAIT_VALUE_NOR:
        return 1;
    default:
        return -1;
    }
}

int cuDeviceGetAttribute(int *ret_value, int attribute, int device)
{
    LOCKED_SCOPE();
    int error = pretended_refusal();
    int value = attribute_of(attribute);
    if (error != 0 || value < 0 || device < 0 || device >= ORDINALS) {
        return error != 0 ? error : value < 0 ? INVALID_VALUE : INVALID_DEVICE;
    }
    *ret_value = value;
    return 0;
}

/* Contexts ------------------------------------------------------------------------------------- */

int cuDevicePrimaryCtxRetain(void **ret_context, int device)
{
    LOCKED_SCOPE();
    int error = pretended_refusal();
    if (error != 0 || device < 0 || device >= ORDINALS) {
        return error != 0 ? error : INVALID_DEVICE;
    }
    *ret_context = &pretended.contexts[device];
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    LOCKED_SCOPE();
    return device >= 0 && device < ORDINALS ? pretended_refusal() : INVALID_DEVICE;
}

int cuCtxPushCurrent_v2(void *context)
{
    LOCKED_SCOPE();
    int error = pretended_refusal();
    if (error != 0 || !is_context(context) || depth == DEPTH_MAX) {
        return error != 0 ? error : INVALID_CONTEXT;
    }
    stack[depth++] = context;
    return 0;
}

/* Not refused: a thread can leave the context of a lost device. */
int cuCtxPopCurrent_v2(void **ret_context)
{
    if (depth == 0) {
        return INVALID_CONTEXT;
    }
    *ret_context = stack[--depth];
    return 0;
}

int cuCtxGetCurrent(void **ret_context)
{
    *ret_context = depth > 0 ? stack[depth - 1] : NULL;
    return 0;
}

int cuCtxSetCurrent(void *context)
{
    LOCKED_SCOPE();
    if (context != NULL && !is_context(context)) {
        return INVALID_CONTEXT;
    }
    depth -= depth > 0;
    if (context != NULL) {
        stack[depth++] = context;
    }
    return pretended_refusal();
}

int cuCtxGetDevice(int *ret_device)
{
    LOCKED_SCOPE();
    int ordinal = pretended_current();
    if (ordinal < 0) {
        return INVALID_CONTEXT;
    }
    *ret_device = ordinal;
    return pretended_refusal();
}

int cuCtxSynchronize(void)
{
    LOCKED_SCOPE();
    int error = pretended_refusal();
    int ordinal = pretended_current();
    return error != 0 ? error : ordinal < 0 ? INVALID_CONTEXT : pretended_queue_drain_all(ordinal);
}

/* Errors --------------------------------------------------------------------------------------- */

int cuGetErrorName(int error, const char **ret_name)
{
    static const struct {
        int error;
        const char *name;
    } names[] = {
        {0, "CUDA_SUCCESS"},
        {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
        {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {INVALID_PTX, "CUDA_ERROR_INVALID_PTX"},
        {UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
        {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
        {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {NOT_READY, "CUDA_ERROR_NOT_READY"},
        {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
        {NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
        {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
        {NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED"},
        {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
        {UNKNOWN, "CUDA_ERROR_UNKNOWN"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].error == error) {
            *ret_name = names[i].name;
            return 0;
        }
    }
    return INVALID_VALUE;
}
