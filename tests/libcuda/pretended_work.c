/* What programs put into streams: copies, waits for values, functions of the host. */
#include "tests/libcuda/pretended_parts.h"

#include <stdlib.h>
#include <string.h>

enum { WAIT_GEQ, WAIT_EQ, WAIT_AND, WAIT_NOR, WAIT_FLUSH = 1 << 30 };

static __thread bool in_host_function;

int pretended_refusal(void)
{
    return pretended.lost != 0 ? pretended.lost : in_host_function ? NOT_PERMITTED : 0;
}

/* Adds a task, which needs a current context. */
static int add(uintptr_t stream, const struct pretended_task *task)
{
    struct pretended_queue *queue = NULL;
    int error = pretended_refusal();
    error = error != 0 ? error : pretended_current() < 0 ? INVALID_CONTEXT : 0;
    error = error != 0 ? error : pretended_queue_find(stream, &queue);
    if (error == 0) {
        pretended_queue_add(queue, task);
    }
    return error;
}

/* Copies --------------------------------------------------------------------------------------- */

static int run_copy(struct pretended_task *task)
{
    pretended_lock();
    char *to = pretended_touchable(task->to);
    const char *from = pretended_touchable(task->from);
    bool copies = to != NULL && from != NULL && pretended_succeeds(GPU_PRETEND_COPY);
    pretended_unlock();
    if (!copies) {
        return ILLEGAL_ADDRESS;
    }
    memmove(to, from, task->size_bytes);
    return 0;
}

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t size_bytes, uintptr_t stream)
{
    LOCKED_SCOPE();
    const struct pretended_task task = {
        .run = run_copy, .to = to, .from = from, .size_bytes = size_bytes};
    bool gone = pretended_touchable(to) == NULL || pretended_touchable(from) == NULL;
    return gone ? INVALID_VALUE : add(stream, &task);
}

/* Of pageable memory: takes the bytes, and returns before the GPU has them. */
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size_bytes)
{
    LOCKED_SCOPE();
    char *taken = malloc(size_bytes + 1);
    memcpy(taken, from, size_bytes);
    const struct pretended_task task = {.run = run_copy,
                                        .to = to,
                                        .from = (uintptr_t)taken,
                                        .size_bytes = size_bytes,
                                        .bytes = taken};
    int error = pretended_has(to) ? add(LEGACY, &task) : INVALID_VALUE;
    if (error != 0) {
        free(taken);
    }
    return error;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size_bytes)
{
    int error = cuMemcpyAsync((uintptr_t)to, from, size_bytes, LEGACY);
    return error != 0 ? error : cuStreamSynchronize(LEGACY);
}

/* Values --------------------------------------------------------------------------------------- */

static bool has_value(const struct pretended_task *task)
{
    const char *at = pretended_touchable(task->to);
    if (at == NULL) {
        return true; /* and fails when it runs */
    }
    uint32_t found = __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_ACQUIRE);
    switch (task->flags & ~(unsigned)WAIT_FLUSH) {
    case WAIT_GEQ:
        return (int32_t)(found - task->value) >= 0;
    case WAIT_EQ:
        return found == task->value;
    case WAIT_AND:
        return (found & task->value) != 0;
    default:
        return ~(found | task->value) != 0;
    }
}

static int run_wait(struct pretended_task *task)
{
    LOCKED_SCOPE();
    return pretended_touchable(task->to) != NULL ? 0 : ILLEGAL_ADDRESS;
}

int cuStreamWaitValue32_v2(uintptr_t stream, uint64_t address, uint32_t value, unsigned flags)
{
    LOCKED_SCOPE();
    const struct pretended_task task = {
        .run = run_wait, .is_ready = has_value, .to = address, .value = value, .flags = flags};
    bool known = pretended_has(address) && address % sizeof value == 0 &&
                 (flags & ~(unsigned)WAIT_FLUSH) <= WAIT_NOR;
    return (flags & WAIT_FLUSH) != 0 ? NOT_SUPPORTED : known ? add(stream, &task) : INVALID_VALUE;
}

static int run_write(struct pretended_task *task)
{
    pretended_lock();
    char *at = pretended_touchable(task->to);
    pretended_unlock();
    if (at == NULL) {
        return ILLEGAL_ADDRESS;
    }
    __atomic_store_n((uint32_t *)(void *)at, task->value, __ATOMIC_RELEASE);
    return 0;
}

int cuStreamWriteValue32_v2(uintptr_t stream, uint64_t address, uint32_t value, unsigned flags)
{
    LOCKED_SCOPE();
    const struct pretended_task task = {.run = run_write, .to = address, .value = value};
    bool known = pretended_has(address) && address % sizeof value == 0 && flags <= 1;
    return known ? add(stream, &task) : INVALID_VALUE;
}

int cuStreamWaitValue32(uintptr_t stream, uint64_t address, uint32_t value, unsigned flags)
{
    return cuStreamWaitValue32_v2(stream, address, value, flags);
}

int cuStreamWriteValue32(uintptr_t stream, uint64_t address, uint32_t value, unsigned flags)
{
    return cuStreamWriteValue32_v2(stream, address, value, flags);
}

/* Functions of the host ------------------------------------------------------------------------ */

static int run_host_function(struct pretended_task *task)
{
    in_host_function = true;
    task->function(task->user);
    in_host_function = false;
    return 0;
}

int cuLaunchHostFunc(uintptr_t stream, void (*function)(void *user), void *user)
{
    LOCKED_SCOPE();
    const struct pretended_task task = {
        .run = run_host_function, .function = function, .user = user};
    return function != NULL ? add(stream, &task) : INVALID_VALUE;
}
