/* What tests control, and what fails. */
#include "tests/libcuda/pretended_parts.h"

#include <stdlib.h>
#include <string.h>

enum { DELAY_US = 200 };

struct pretended_state pretended = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                                    .changed = PTHREAD_COND_INITIALIZER,
                                    .left = {[0 ... GPU_PRETEND_CALLS - 1] = UINT32_MAX},
                                    .random = 1,
                                    .delay_us = DELAY_US};

void pretended_lock(void)
{
    (void)pthread_mutex_lock(&pretended.mutex);
}

void pretended_unlock(void)
{
    (void)pthread_mutex_unlock(&pretended.mutex);
}

/* xorshift64 */
uint32_t pretended_random(uint32_t below)
{
    pretended.random ^= pretended.random << 13;
    pretended.random ^= pretended.random >> 7;
    pretended.random ^= pretended.random << 17;
    return (uint32_t)(pretended.random >> 32) % below;
}

/* Failures ------------------------------------------------------------------------------------- */

bool pretended_succeeds(enum gpu_pretend_call call)
{
    if (pretended.left[call] == 0) {
        return false;
    }
    pretended.left[call] -= pretended.left[call] != UINT32_MAX;
    pretended.counts[call]++;
    return true;
}

static void fail_after(enum gpu_pretend_call call, uint32_t after)
{
    LOCKED_SCOPE();
    pretended.left[call] = after;
}

static uint64_t count(enum gpu_pretend_call call)
{
    LOCKED_SCOPE();
    return pretended.counts[call];
}

static void lose(int error)
{
    LOCKED_SCOPE();
    if (error != 0) {
        pretended_queue_drop_all(error);
    }
    pretended.lost = error;
}

/* Order ---------------------------------------------------------------------------------------- */

static void seed(uint64_t start, uint32_t delay_us)
{
    LOCKED_SCOPE();
    pretended.random = start * UINT64_C(0x9e3779b97f4a7c15) | 1;
    pretended.delay_us = delay_us;
    (void)pthread_cond_broadcast(&pretended.changed);
}

/* Of a program's mistake: that the test names a stream which is none. */
static struct pretended_queue *queue_of(uintptr_t stream)
{
    struct pretended_queue *queue = NULL;
    if (pretended_queue_find(stream, &queue) != 0) {
        abort();
    }
    return queue;
}

static void pause_stream(uintptr_t stream)
{
    LOCKED_SCOPE();
    queue_of(stream)->paused = true;
}

static void resume_stream(uintptr_t stream)
{
    LOCKED_SCOPE();
    queue_of(stream)->paused = false;
    (void)pthread_cond_broadcast(&pretended.changed);
}

static uint64_t pending(uintptr_t stream)
{
    LOCKED_SCOPE();
    return pretended_queue_length(queue_of(stream));
}

/* The table ------------------------------------------------------------------------------------ */

__attribute__((visibility("default"))) const struct gpu_pretend *gpu_pretend_controls(void);
const struct gpu_pretend *gpu_pretend_controls(void)
{
    static struct gpu_pretend controls;
    LOCKED_SCOPE();
    controls = (struct gpu_pretend){.fail_after = fail_after,
                                    .count = count,
                                    .lose = lose,
                                    .seed = seed,
                                    .pause = pause_stream,
                                    .resume = resume_stream,
                                    .pending = pending};
    pretended_memory_controls(&controls);
    return &controls;
}
