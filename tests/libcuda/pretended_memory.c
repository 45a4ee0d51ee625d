/*
 * Memory of the pretended GPU, and memory of the host that it may read. Addresses that programs see
 * come from a range that is used once only, so that an address which is no longer memory is known.
 */
#include "tests/libcuda/pretended_parts.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

enum { PAGE = 4096 };
#define RANGE_BYTES ((size_t)64 << 30)

/* CUpointer_attribute, CUmemorytype, flags of cuMemHostAlloc and cuMemHostRegister. */
enum {
    CONTEXT = 1,
    TYPE = 2,
    DEVICE_POINTER = 3,
    HOST_POINTER = 4,
    ID = 7,
    MANAGED = 8,
    ORDINAL = 9,
    START = 11,
    SIZE = 12,
};
enum { TYPE_HOST = 1, TYPE_DEVICE = 2, FLAGS_MAX = 7 };

struct allocation {
    char *user, *alias; /* the same, where the CPU may touch it */
    size_t size;
    unsigned kind;
    bool registered; /* memory of the program's */
    uint64_t id;
    int fd, ordinal; /* fd: or -1 */
    struct allocation *prev, *next;
};

static struct allocation *all;
static uint64_t last_id;
static char *range;
static size_t range_used;

static void fail(const char *what)
{
    perror(what);
    abort();
}

static struct allocation *find(uint64_t address)
{
    struct allocation *each = NULL;
    DL_FOREACH(all, each)
    {
        if (address - (uintptr_t)each->user < each->size) {
            return each;
        }
    }
    return NULL;
}

/* Allocating ----------------------------------------------------------------------------------- */

static char *take_addresses(size_t size)
{
    if (range == NULL) {
        range =
            mmap(NULL, RANGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (range == MAP_FAILED || size > RANGE_BYTES - range_used) {
        fail("addresses of the pretended GPU");
    }
    range_used += size;
    return range + range_used - size;
}

static struct allocation *add(char *user, char *alias, size_t size, unsigned kind)
{
    struct allocation *made = calloc(1, sizeof *made);
    made->user = user;
    made->alias = alias;
    made->size = size;
    made->kind = kind;
    made->fd = -1;
    made->id = ++last_id;
    DL_APPEND(all, made);
    return made;
}

/* ordinal < 0: of alternating devices. */
static void *allocate_at(char *at, size_t size_bytes, unsigned kind, int ordinal)
{
    bool touchable = (kind & (GPU_PRETEND_MANAGED | GPU_PRETEND_HOST)) != 0;
    size_t size = (size_bytes + PAGE - 1) / PAGE * PAGE;
    int fd = memfd_create("gpu", MFD_CLOEXEC);
    at = at != NULL ? at : take_addresses(size);
    char *user = mmap(at, size, touchable ? PROT_READ | PROT_WRITE : PROT_NONE,
                      MAP_SHARED | MAP_FIXED, fd, 0);
    if (ftruncate(fd, (off_t)size) != 0 || user == MAP_FAILED) {
        fail("memory of the pretended GPU");
    }
    char *alias = touchable ? user : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (alias == MAP_FAILED) {
        fail("the alias of memory of the pretended GPU");
    }
    struct allocation *made = add(user, alias, size, kind);
    made->fd = fd;
    made->ordinal = ordinal >= 0 ? ordinal : (int)(made->id % ORDINALS);
    return user;
}

static struct allocation take_out(struct allocation *gone)
{
    struct allocation copy = *gone;
    DL_DELETE(all, gone);
    free(gone);
    if (copy.fd >= 0) {
        (void)close(copy.fd);
    }
    return copy;
}

/* The alias of memory of the GPU stays until the process ends: devices may still read it. */
static void free_allocation(struct allocation *of)
{
    struct allocation gone = take_out(of);
    if (!gone.registered &&
        mmap(gone.user, gone.size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
        fail("memory of the pretended GPU");
    }
}

bool pretended_has(uint64_t address)
{
    return find(address) != NULL;
}

char *pretended_touchable(uint64_t address)
{
    const struct allocation *of = find(address);
    if (of != NULL) {
        return of->alias + (address - (uintptr_t)of->user);
    }
    bool was_of_gpu = range != NULL && address - (uintptr_t)range < RANGE_BYTES;
    return was_of_gpu ? NULL : (char *)(uintptr_t)address; /* NOLINT(performance-no-int-to-ptr) */
}

char *pretended_of_gpu(uint64_t address)
{
    return pretended_has(address) ? pretended_touchable(address) : NULL;
}

/* Controls ------------------------------------------------------------------------------------- */

static void *allocate(size_t size_bytes, unsigned kind)
{
    LOCKED_SCOPE();
    return allocate_at(NULL, size_bytes, kind, -1);
}

static void release(void *memory)
{
    LOCKED_SCOPE();
    free_allocation(find((uintptr_t)memory));
}

static void replace(void *memory)
{
    LOCKED_SCOPE();
    struct allocation gone = take_out(find((uintptr_t)memory));
    (void)allocate_at(gone.user, gone.size, gone.kind, -1);
}

static void *alias(const void *memory)
{
    LOCKED_SCOPE();
    return pretended_has((uintptr_t)memory) ? pretended_touchable((uintptr_t)memory) : NULL;
}

static void *of_alias(const void *memory)
{
    LOCKED_SCOPE();
    struct allocation *each = NULL;
    DL_FOREACH(all, each)
    {
        uint64_t at = (uintptr_t)memory - (uintptr_t)each->alias;
        if (at < each->size) {
            return each->user + at;
        }
    }
    return NULL;
}

static int run_write_later(struct pretended_task *task)
{
    pretended_lock();
    char *to = pretended_touchable(task->to);
    pretended_unlock();
    if (to != NULL) {
        memcpy(to, task->bytes, task->size_bytes);
    }
    return 0;
}

static void write_later(void *memory, const void *bytes, size_t size_bytes)
{
    LOCKED_SCOPE();
    const struct allocation *of = find((uintptr_t)memory);
    const struct pretended_task task = {.run = run_write_later,
                                        .to = (uintptr_t)memory,
                                        .size_bytes = size_bytes,
                                        .bytes = malloc(size_bytes),
                                        .held = true};
    memcpy(task.bytes, bytes, size_bytes);
    pretended_queue_add(pretended_queue_legacy(of->ordinal), &task);
}

void pretended_memory_controls(struct gpu_pretend *controls)
{
    controls->allocate = allocate;
    controls->release = release;
    controls->replace = replace;
    controls->alias = alias;
    controls->of_alias = of_alias;
    controls->write_later = write_later;
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
    bool is_host = (of->kind & GPU_PRETEND_HOST) != 0;
    void *context =
        (of->kind & GPU_PRETEND_NO_CONTEXT) != 0 ? NULL : &pretended.contexts[of->ordinal];
    unsigned type = is_host ? TYPE_HOST : TYPE_DEVICE;
    unsigned managed = (of->kind & GPU_PRETEND_MANAGED) != 0;
    uint64_t start = (uintptr_t)of->user;
    switch (attribute) {
    case CONTEXT:
        memcpy(ret_value, &context, sizeof context);
        return 0;
    case TYPE:
        memcpy(ret_value, &type, sizeof type);
        return 0;
    case DEVICE_POINTER:
        memcpy(ret_value, &address, sizeof address);
        return 0;
    case HOST_POINTER:
        memcpy(ret_value, &address, sizeof address);
        return is_host || managed != 0 ? 0 : INVALID_VALUE;
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

int cuPointerGetAttribute(void *ret_value, int attribute, uint64_t address)
{
    LOCKED_SCOPE();
    int error = pretended_refusal();
    return error != 0 ? error : get_attribute(ret_value, attribute, address);
}

/* For other memory the values stay as they are. */
int cuPointerGetAttributes(unsigned count, const int *attributes, void **ret_values,
                           uint64_t address)
{
    LOCKED_SCOPE();
    int error = pretended_refusal();
    for (unsigned i = 0; i < count && error == 0; i++) {
        (void)get_attribute(ret_values[i], attributes[i], address);
    }
    return error;
}

/* For programs --------------------------------------------------------------------------------- */

/* What calls that allocate have in common: 0, or why it is refused. */
static int begin(enum gpu_pretend_call call, size_t size_bytes)
{
    int error = pretended_refusal();
    if (error != 0 || pretended_current() < 0 || size_bytes == 0) {
        return error != 0 ? error : size_bytes == 0 ? INVALID_VALUE : INVALID_CONTEXT;
    }
    return pretended_succeeds(call) ? 0 : OUT_OF_MEMORY;
}

int cuMemAlloc_v2(uint64_t *ret_address, size_t size_bytes)
{
    LOCKED_SCOPE();
    int error = begin(GPU_PRETEND_ALLOCATE, size_bytes);
    if (error == 0) {
        *ret_address = (uintptr_t)allocate_at(NULL, size_bytes, 0, pretended_current());
    }
    return error;
}

/* Frees the allocation, after all work of its device: 0, or INVALID_VALUE if there is none of this
 * sort. */
static int free_memory(uint64_t address, bool of_host)
{
    struct allocation *of = find(address);
    int error = pretended_refusal();
    bool fits = of != NULL && (uintptr_t)of->user == address && !of->registered &&
                ((of->kind & GPU_PRETEND_HOST) != 0) == of_host;
    if (error != 0 || !fits) {
        return error != 0 ? error : INVALID_VALUE;
    }
    error = pretended_queue_drain_all(of->ordinal);
    of = find(address);
    if (error == 0 && of != NULL) {
        free_allocation(of);
    }
    return error;
}

int cuMemFree_v2(uint64_t address)
{
    LOCKED_SCOPE();
    return address == 0 ? 0 : free_memory(address, false);
}

int cuMemHostAlloc(void **ret_memory, size_t size_bytes, unsigned flags)
{
    LOCKED_SCOPE();
    int error = flags > FLAGS_MAX ? INVALID_VALUE : begin(GPU_PRETEND_PIN, size_bytes);
    if (error == 0) {
        *ret_memory = allocate_at(NULL, size_bytes, GPU_PRETEND_HOST, pretended_current());
    }
    return error;
}

int cuMemFreeHost(void *memory)
{
    LOCKED_SCOPE();
    return free_memory((uintptr_t)memory, true);
}

static bool overlaps(const char *memory, size_t size_bytes)
{
    const struct allocation *each = NULL;
    DL_FOREACH(all, each)
    {
        if (memory < each->user + each->size && each->user < memory + size_bytes) {
            return true;
        }
    }
    return false;
}

int cuMemHostRegister_v2(void *memory, size_t size_bytes, unsigned flags)
{
    LOCKED_SCOPE();
    if (flags > FLAGS_MAX || memory == NULL) {
        return INVALID_VALUE;
    }
    if (overlaps(memory, size_bytes)) {
        return ALREADY_REGISTERED;
    }
    int error = begin(GPU_PRETEND_PIN, size_bytes);
    if (error == 0) {
        struct allocation *made = add(memory, memory, size_bytes, GPU_PRETEND_HOST);
        made->registered = true;
        made->ordinal = pretended_current();
    }
    return error;
}

int cuMemHostUnregister(void *memory)
{
    LOCKED_SCOPE();
    struct allocation *of = find((uintptr_t)memory);
    int error = pretended_refusal();
    if (error != 0 || of == NULL || !of->registered || of->user != memory) {
        return error != 0 ? error : NOT_REGISTERED;
    }
    error = pretended_queue_drain_all(of->ordinal);
    of = find((uintptr_t)memory);
    if (of != NULL) {
        free_allocation(of);
    }
    return error;
}

int cuMemHostGetDevicePointer_v2(uint64_t *ret_address, void *memory, unsigned flags)
{
    LOCKED_SCOPE();
    const struct allocation *of = find((uintptr_t)memory);
    int error = pretended_refusal();
    if (error != 0 || of == NULL || (of->kind & GPU_PRETEND_HOST) == 0 || flags != 0) {
        return error != 0 ? error : INVALID_VALUE;
    }
    *ret_address = (uintptr_t)memory;
    return 0;
}

#ifndef BEFORE_11_7
/* The descriptor is a separate one; its position is the start of the range. */
int cuMemGetHandleForAddressRange(void *ret_handle, uint64_t address, size_t size_bytes, int type,
                                  unsigned long long flags)
{
    LOCKED_SCOPE();
    char path[64];
    const struct allocation *of = find(address);
    bool fits = of != NULL && of->fd >= 0 &&
                address + size_bytes <= (uintptr_t)of->user + of->size && address % PAGE == 0 &&
                size_bytes % PAGE == 0 && size_bytes > 0 && type == 1 && flags == 0;
    bool exported = pretended_refusal() == 0 && fits && pretended_current() >= 0 &&
                    pretended_succeeds(GPU_PRETEND_EXPORT);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fits ? of->fd : -1);
    int fd = exported ? open(path, O_RDWR | O_CLOEXEC) : -1;
    off_t at = fd >= 0 ? lseek(fd, (off_t)(address - (uintptr_t)of->user), SEEK_SET) : -1;
    memcpy(ret_handle, &fd, sizeof fd);
    return at >= 0               ? 0
           : pretended.lost != 0 ? pretended.lost
           : fits                ? NOT_SUPPORTED
                                 : INVALID_VALUE;
}
#endif
