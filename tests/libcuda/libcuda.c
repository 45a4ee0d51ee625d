/* The pretended libcuda.so.1 of tests/support/gpu_pretend.h: the functions that Muster uses, those
 * that programs use, and the controls of the tests. */
#include "tests/support/gpu_pretend.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

#define EXPORTED __attribute__((visibility("default")))

/* Values of cuda.h. */
enum { INVALID_VALUE = 1, INVALID_CONTEXT = 201, ILLEGAL_ADDRESS = 700, NOT_SUPPORTED = 801 };
enum { CONTEXT = 1, TYPE = 2, ID = 7, MANAGED = 8, ORDINAL = 9, START = 11, SIZE = 12 };
enum { TYPE_HOST = 1, TYPE_DEVICE = 2, ORDINALS = 2, COPIES_MAX = 8, DEPTH_MAX = 8 };
#define LEGACY ((uintptr_t)1)
#define PER_THREAD ((uintptr_t)2)

struct allocation {
    char *user, *alias;
    size_t size;
    unsigned kind;
    uint64_t id;
    int fd, ordinal;
    void *later; /* written when the default stream is waited for; or NULL */
    size_t later_size;
    struct allocation *prev, *next;
};

static struct {
    pthread_mutex_t mutex;
    struct allocation *all;
    uint64_t last_id;
    uint32_t left[GPU_PRETEND_CALLS];
    uint64_t counts[GPU_PRETEND_CALLS];
    char contexts[ORDINALS];
} gpu = {.mutex = PTHREAD_MUTEX_INITIALIZER, .left = {UINT32_MAX, UINT32_MAX}};

/* The copies that a thread has enqueued, and its stack of contexts. */
static __thread struct {
    uint64_t to, from;
    size_t size;
} copies[COPIES_MAX];
static __thread int copy_count;
static __thread void *contexts[DEPTH_MAX];
static __thread int depth;

static void lock(void)
{
    (void)pthread_mutex_lock(&gpu.mutex);
}

static void unlock(void)
{
    (void)pthread_mutex_unlock(&gpu.mutex);
}

static struct allocation *find(uint64_t address)
{
    struct allocation *each = NULL;
    DL_FOREACH(gpu.all, each)
    {
        if (address - (uintptr_t)each->user < each->size) {
            return each;
        }
    }
    return NULL;
}

/* Under the lock. */
static bool succeeds(enum gpu_pretend_call call)
{
    if (gpu.left[call] == 0) {
        return false;
    }
    gpu.left[call] -= gpu.left[call] != UINT32_MAX;
    gpu.counts[call]++;
    return true;
}

/* Controls of the tests ------------------------------------------------------------------------ */

static void *allocate_at(void *at, size_t size_bytes, unsigned kind)
{
    struct allocation *made = calloc(1, sizeof *made);
    bool touchable = (kind & (GPU_PRETEND_MANAGED | GPU_PRETEND_HOST)) != 0;
    made->size = (size_bytes + 4095) / 4096 * 4096;
    made->kind = kind;
    made->fd = memfd_create("gpu", MFD_CLOEXEC);
    int failed = ftruncate(made->fd, (off_t)made->size);
    made->alias = mmap(NULL, made->size, PROT_READ | PROT_WRITE, MAP_SHARED, made->fd, 0);
    made->user = mmap(at, made->size, touchable ? PROT_READ | PROT_WRITE : PROT_NONE,
                      MAP_SHARED | (at != NULL ? MAP_FIXED : 0), made->fd, 0);
    if (failed != 0 || made->alias == MAP_FAILED || made->user == MAP_FAILED) {
        perror("memory of the pretended GPU");
        abort();
    }
    lock();
    made->id = ++gpu.last_id;
    made->ordinal = (int)(made->id % ORDINALS);
    DL_APPEND(gpu.all, made);
    unlock();
    return made->user;
}

static void *allocate(size_t size_bytes, unsigned kind)
{
    return allocate_at(NULL, size_bytes, kind);
}

/* The alias stays until the process ends: devices may still read it. */
static struct allocation remove_allocation(const void *memory)
{
    lock();
    struct allocation *gone = find((uintptr_t)memory);
    struct allocation copy = *gone;
    DL_DELETE(gpu.all, gone);
    unlock();
    (void)close(copy.fd);
    free(gone);
    return copy;
}

static void release(void *memory)
{
    struct allocation gone = remove_allocation(memory);
    (void)munmap(gone.user, gone.size);
}

static void replace(void *memory)
{
    struct allocation gone = remove_allocation(memory);
    (void)allocate_at(gone.user, gone.size, gone.kind);
}

/* Under the lock. */
static char *alias_of(uint64_t address)
{
    const struct allocation *of = find(address);
    return of != NULL ? of->alias + (address - (uintptr_t)of->user) : NULL;
}

static void *alias(const void *memory)
{
    lock();
    char *found = alias_of((uintptr_t)memory);
    unlock();
    return found;
}

static void *of_alias(const void *memory)
{
    struct allocation *each = NULL;
    void *found = NULL;
    lock();
    DL_FOREACH(gpu.all, each)
    {
        uint64_t at = (uintptr_t)memory - (uintptr_t)each->alias;
        found = at < each->size ? each->user + at : found;
    }
    unlock();
    return found;
}

static void write_later(void *memory, const void *bytes, size_t size_bytes)
{
    lock();
    struct allocation *of = find((uintptr_t)memory);
    of->later = malloc(size_bytes);
    memcpy(of->later, bytes, size_bytes);
    of->later_size = size_bytes;
    unlock();
}

/* Does what was enqueued on the default stream of this thread's context. */
static void end_writes(void)
{
    struct allocation *each = NULL;
    lock();
    DL_FOREACH(gpu.all, each)
    {
        if (each->later != NULL && depth > 0 &&
            contexts[depth - 1] == &gpu.contexts[each->ordinal]) {
            memcpy(each->alias, each->later, each->later_size);
            free(each->later);
            each->later = NULL;
        }
    }
    unlock();
}

static void fail_after(enum gpu_pretend_call call, uint32_t after)
{
    lock();
    gpu.left[call] = after;
    unlock();
}

static uint64_t count(enum gpu_pretend_call call)
{
    lock();
    uint64_t counted = gpu.counts[call];
    unlock();
    return counted;
}

EXPORTED const struct gpu_pretend *gpu_pretend_controls(void);
const struct gpu_pretend *gpu_pretend_controls(void)
{
    static const struct gpu_pretend controls = {.allocate = allocate,
                                                .release = release,
                                                .replace = replace,
                                                .alias = alias,
                                                .of_alias = of_alias,
                                                .write_later = write_later,
                                                .fail_after = fail_after,
                                                .count = count};
    return &controls;
}

/* Attributes ----------------------------------------------------------------------------------- */

/* Writes one attribute of the allocation that has this address; INVALID_VALUE for other memory and
 * for unknown attributes. */
static int get_attribute(void *ret_value, int attribute, uint64_t address)
{
    const struct allocation *of = find(address);
    if (of == NULL) {
        return INVALID_VALUE;
    }
    void *context = (of->kind & GPU_PRETEND_NO_CONTEXT) != 0 ? NULL : &gpu.contexts[of->ordinal];
    unsigned type = (of->kind & GPU_PRETEND_HOST) != 0 ? TYPE_HOST : TYPE_DEVICE;
    unsigned managed = (of->kind & GPU_PRETEND_MANAGED) != 0;
    uint64_t start = (uintptr_t)of->user;
    switch (attribute) {
    case CONTEXT:
        memcpy(ret_value, &context, sizeof context);
        return 0;
    case TYPE:
        memcpy(ret_value, &type, sizeof type);
        return 0;
    case ID:
        memcpy(ret_value, &of->id, sizeof of->id);
        return (of->kind & GPU_PRETEND_NO_ID) != 0 ? NOT_SUPPORTED : 0;
    case MANAGED:
        memcpy(ret_value, &managed, 1); /* a bool */
        return 0;
    case ORDINAL:
        memcpy(ret_value, &of->ordinal, sizeof of->ordinal);
        return 0;
    case START:
        memcpy(ret_value, &start, sizeof start);
        return 0;
    case SIZE:
        memcpy(ret_value, &of->size, sizeof of->size);
        return 0;
    default:
        return INVALID_VALUE;
    }
}

EXPORTED int cuPointerGetAttribute(void *ret_value, int attribute, uint64_t address);
int cuPointerGetAttribute(void *ret_value, int attribute, uint64_t address)
{
    lock();
    int error = get_attribute(ret_value, attribute, address);
    unlock();
    return error;
}

/* For other memory the values stay as they are. */
EXPORTED int cuPointerGetAttributes(unsigned count, const int *attributes, void **ret_values,
                                    uint64_t address);
int cuPointerGetAttributes(unsigned attribute_count, const int *attributes, void **ret_values,
                           uint64_t address)
{
    lock();
    for (unsigned i = 0; i < attribute_count; i++) {
        (void)get_attribute(ret_values[i], attributes[i], address);
    }
    unlock();
    return 0;
}

/* Contexts ------------------------------------------------------------------------------------- */

EXPORTED int cuDeviceGet(int *ret_device, int ordinal);
int cuDeviceGet(int *ret_device, int ordinal)
{
    *ret_device = ordinal;
    return ordinal < ORDINALS ? 0 : INVALID_VALUE;
}

EXPORTED int cuDevicePrimaryCtxRetain(void **ret_context, int device);
int cuDevicePrimaryCtxRetain(void **ret_context, int device)
{
    *ret_context = &gpu.contexts[device];
    return 0;
}

EXPORTED int cuCtxPushCurrent_v2(void *context);
int cuCtxPushCurrent_v2(void *context)
{
    if (context == NULL || depth == DEPTH_MAX) {
        return INVALID_CONTEXT;
    }
    contexts[depth++] = context;
    return 0;
}

EXPORTED int cuCtxPopCurrent_v2(void **ret_context);
int cuCtxPopCurrent_v2(void **ret_context)
{
    if (depth == 0) {
        return INVALID_CONTEXT;
    }
    *ret_context = contexts[--depth];
    return 0;
}

EXPORTED int cuGetErrorName(int error, const char **ret_name);
int cuGetErrorName(int error, const char **ret_name)
{
    *ret_name = error == ILLEGAL_ADDRESS   ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                : error == NOT_SUPPORTED   ? "CUDA_ERROR_NOT_SUPPORTED"
                : error == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
                                           : "CUDA_ERROR_INVALID_VALUE";
    return 0;
}

/* Copies --------------------------------------------------------------------------------------- */

EXPORTED int cuMemcpyAsync(uint64_t to, uint64_t from, size_t size, uintptr_t stream);
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t size, uintptr_t stream)
{
    if (depth == 0) {
        return INVALID_CONTEXT;
    }
    if (stream != PER_THREAD || copy_count == COPIES_MAX) {
        return INVALID_VALUE;
    }
    copies[copy_count].to = to;
    copies[copy_count].from = from;
    copies[copy_count++].size = size;
    return 0;
}

static char *touchable(uint64_t address)
{
    char *found = alias((const void *)(uintptr_t)address); /* NOLINT(performance-no-int-to-ptr) */
    return found != NULL ? found
                         : (char *)(uintptr_t)address; /* NOLINT(performance-no-int-to-ptr) */
}

EXPORTED int cuStreamSynchronize(uintptr_t stream);
int cuStreamSynchronize(uintptr_t stream)
{
    if (stream == LEGACY || copy_count > 0) {
        end_writes();
    }
    for (int i = 0; i < copy_count; i++) {
        lock();
        bool copies_now = succeeds(GPU_PRETEND_COPY);
        unlock();
        if (!copies_now) {
            copy_count = 0;
            return ILLEGAL_ADDRESS;
        }
        memmove(touchable(copies[i].to), touchable(copies[i].from), copies[i].size);
    }
    copy_count = 0;
    return stream == PER_THREAD || stream == LEGACY ? 0 : INVALID_VALUE;
}

#ifndef BEFORE_11_7
/* The descriptor is a separate one; its position is the start of the range. */
EXPORTED int cuMemGetHandleForAddressRange(void *ret_handle, uint64_t address, size_t size,
                                           int type, unsigned long long flags);
int cuMemGetHandleForAddressRange(void *ret_handle, uint64_t address, size_t size, int type,
                                  unsigned long long flags)
{
    char path[64];
    lock();
    const struct allocation *of = find(address);
    bool fits = of != NULL && address + size <= (uintptr_t)of->user + of->size &&
                address % 4096 == 0 && size % 4096 == 0 && size > 0 && type == 1 && flags == 0;
    bool exported = fits && depth > 0 && succeeds(GPU_PRETEND_EXPORT);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fits ? of->fd : -1);
    int fd = exported ? open(path, O_RDWR | O_CLOEXEC) : -1;
    off_t at = fd >= 0 ? lseek(fd, (off_t)(address - (uintptr_t)of->user), SEEK_SET) : -1;
    unlock();
    memcpy(ret_handle, &fd, sizeof fd);
    return at >= 0 ? 0 : fits ? NOT_SUPPORTED : INVALID_VALUE;
}
#endif

/* For programs --------------------------------------------------------------------------------- */

EXPORTED int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    return flags == 0 ? 0 : INVALID_VALUE;
}

EXPORTED int cuDriverGetVersion(int *ret_version);
int cuDriverGetVersion(int *ret_version)
{
    *ret_version = 12000;
    return 0;
}

EXPORTED int cuDeviceGetName(char *ret_name, int size, int device);
int cuDeviceGetName(char *ret_name, int size, int device)
{
    (void)snprintf(ret_name, (size_t)size, "a pretended GPU (device %d)", device);
    return 0;
}

EXPORTED int cuCtxSetCurrent(void *context);
int cuCtxSetCurrent(void *context)
{
    depth = 1;
    contexts[0] = context;
    return 0;
}

EXPORTED int cuMemAlloc_v2(uint64_t *ret_address, size_t size);
int cuMemAlloc_v2(uint64_t *ret_address, size_t size)
{
    if (depth == 0) {
        return INVALID_CONTEXT;
    }
    *ret_address = (uintptr_t)allocate(size, 0);
    return 0;
}

EXPORTED int cuMemFree_v2(uint64_t address);
int cuMemFree_v2(uint64_t address)
{
    release((void *)(uintptr_t)address); /* NOLINT(performance-no-int-to-ptr) */
    return 0;
}

static int copy_now(uint64_t to, uint64_t from, size_t size)
{
    int error = cuMemcpyAsync(to, from, size, PER_THREAD);
    return error != 0 ? error : cuStreamSynchronize(PER_THREAD);
}

EXPORTED int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size);
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size)
{
    return copy_now(to, (uintptr_t)from, size);
}

EXPORTED int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size);
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size)
{
    return copy_now((uintptr_t)to, from, size);
}
