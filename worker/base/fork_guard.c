/* The registry of the descriptors that a child of fork() closes, and the handlers of fork(). */
#include "worker/base/fork_guard.h"

#include "worker/base/thread.h"

#include <assert.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { WORD_BITS = 64, WORDS = MUSTER_GUARDED_MAX / WORD_BITS };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool installed;
static _Atomic uint32_t forks;

static struct {
    pthread_mutex_t mutex;
    uint64_t open[WORDS]; /* one bit for each number; pages that no number needs take no memory */
    uint32_t word_count;  /* words that may have bits */
    void (*functions[MUSTER_FORK_FUNCTIONS_MAX])(void);
    uint32_t function_count;
    sigset_t signals; /* that were blocked before fork() */
} registry = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Handlers ------------------------------------------------------------------------------------ */

/* Signals wait until the functions have run: one that arrives as soon as there is a child must not
 * find a handler of the parent's that a function replaces. */
static void before_fork(void)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    muster_mutex_lock(&registry.mutex);
    registry.signals = before;
}

/* Also the handler of the parent. */
static void end_fork(void)
{
    const sigset_t signals = registry.signals;
    muster_mutex_unlock(&registry.mutex);
    (void)pthread_sigmask(SIG_SETMASK, &signals, NULL);
}

static void close_all(void)
{
    for (uint32_t i = 0; i < registry.word_count; i++) {
        while (registry.open[i] != 0) {
            int bit = __builtin_ctzll(registry.open[i]);
            (void)close((int)i * WORD_BITS + bit);
            registry.open[i] &= registry.open[i] - 1;
        }
    }
    registry.word_count = 0;
}

/* The thread that forks has locked the mutex, and it is the one that unlocks it here. */
static void after_fork_in_child(void)
{
    close_all();
    for (uint32_t i = 0; i < registry.function_count; i++) {
        registry.functions[i]();
    }
    atomic_fetch_add(&forks, 1);
    end_fork();
}

/* It fails only if there is no memory; then children keep what they inherit. */
static void install(void)
{
    installed = pthread_atfork(before_fork, end_fork, after_fork_in_child) == 0;
}

/* Descriptors --------------------------------------------------------------------------------- */

void muster_fork_guard_begin(void)
{
    (void)pthread_once(&once, install);
    muster_mutex_lock(&registry.mutex);
}

int muster_fork_guard_end(int fd)
{
    if (fd >= 0 && fd < MUSTER_GUARDED_MAX) {
        uint32_t word = (uint32_t)fd / WORD_BITS;
        registry.open[word] |= UINT64_C(1) << (fd % WORD_BITS);
        registry.word_count = word < registry.word_count ? registry.word_count : word + 1;
    }
    muster_mutex_unlock(&registry.mutex);
    return fd;
}

void muster_fork_guard_close(int fd)
{
    AUTO_LOCK(&registry.mutex);
    if (fd >= 0 && fd < MUSTER_GUARDED_MAX) {
        registry.open[fd / WORD_BITS] &= ~(UINT64_C(1) << (fd % WORD_BITS));
    }
    (void)close(fd);
}

/* Functions ----------------------------------------------------------------------------------- */

bool muster_fork_guard_call_in_child(void (*function)(void))
{
    (void)pthread_once(&once, install);
    AUTO_LOCK(&registry.mutex);
    for (uint32_t i = 0; i < registry.function_count; i++) {
        if (registry.functions[i] == function) {
            return installed;
        }
    }
    assert(registry.function_count < MUSTER_FORK_FUNCTIONS_MAX);
    registry.functions[registry.function_count++] = function;
    return installed;
}

uint32_t muster_fork_guard_forks(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}
