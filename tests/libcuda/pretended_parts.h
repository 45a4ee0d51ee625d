/*
 * What the files of the pretended libcuda share: one state under one lock, allocations, and streams
 * as queues of tasks.
 *
 *   pretended_controls.c   what tests control (tests/support/gpu_pretend.h), and failures
 *   pretended_memory.c     allocations, pinned memory, attributes of addresses
 *   pretended_contexts.c   devices and contexts
 *   pretended_queues.c     who runs which task when
 *   pretended_streams.c    streams and events as programs see them
 *   pretended_work.c       copies, waits for values, functions of the host
 *   pretended_modules.c    modules and launches
 *   pretended_kernels.c    the kernels that they can have
 *
 * A thread's first lock is the lock of all; tasks run without it.
 */
#ifndef MUSTER_TESTS_LIBCUDA_PRETENDED_PARTS_H
#define MUSTER_TESTS_LIBCUDA_PRETENDED_PARTS_H

#include "tests/libcuda/pretended_cuda.h"
#include "tests/support/gpu_pretend.h"

#include <pthread.h>
#include <stdbool.h>

enum { ORDINALS = 2 };

/* State ---------------------------------------------------------------------------------------- */

struct pretended_state {
    pthread_mutex_t mutex;
    pthread_cond_t changed;  /* a task ended, or may now run */
    char contexts[ORDINALS]; /* their addresses are the contexts */
    uint32_t left[GPU_PRETEND_CALLS];
    uint64_t counts[GPU_PRETEND_CALLS];
    int lost; /* what every call returns; or 0 */
    uint64_t random;
    uint32_t delay_us; /* at most, before a task that nobody waits for */
};

extern struct pretended_state pretended;

void pretended_lock(void);
void pretended_unlock(void);

static inline void pretended_end_scope(const int *unused)
{
    (void)unused;
    pretended_unlock();
}

/* Holds the lock until the scope ends. */
#define LOCKED_SCOPE() \
    pretended_lock();  \
    __attribute__((cleanup(pretended_end_scope), unused)) const int locked_ = 0

/* All of the following are called under the lock, unless they say otherwise. */

/* What a call returns at once: the device is lost, or the thread is in a function of the host,
 * which may call nothing of CUDA; else 0. */
int pretended_refusal(void);
/* Whether this call, of a kind that a test may let fail, succeeds. */
bool pretended_succeeds(enum gpu_pretend_call call);
uint32_t pretended_random(uint32_t below);

/* The number of the current context; -1: the thread has none. */
int pretended_current(void);

/* Memory --------------------------------------------------------------------------------------- */

/* Where the CPU finds the byte: in an alias, or, for other memory, at the address itself. NULL: it
 * was memory of the GPU and is no longer. */
char *pretended_touchable(uint64_t address);
/* The same, where the GPU can read it: of its memory, and of memory of the host that is pinned. */
char *pretended_of_gpu(uint64_t address);
/* Whether it is memory of the GPU, or memory of the host that is pinned. */
bool pretended_has(uint64_t address);
/* Fills in those of memory. */
void pretended_memory_controls(struct gpu_pretend *controls);

/* Queues --------------------------------------------------------------------------------------- */

/* One recording of an event: done when its task has run. */
struct pretended_record {
    unsigned holders;
    bool done;
    int error;                     /* of a task before it in its stream */
    int64_t done_ns;               /* a time */
    struct pretended_queue *queue; /* while it is not done */
};

struct pretended_task {
    /* Runs without the lock; may sleep. Returns 0, or the error of the stream. NULL: nothing. */
    int (*run)(struct pretended_task *task);
    /* Whether it may run now, beside what its place in the queue says; or NULL. */
    bool (*is_ready)(const struct pretended_task *task);
    uint64_t to, from;
    size_t size_bytes;
    uint32_t value;
    unsigned flags;
    void (*function)(void *user);
    void *user;                                     /* of function, or the task's own */
    void *bytes;                                    /* freed with the task */
    struct pretended_record *waits_for, *completes; /* held; or NULL */
    bool held;                                      /* runs only when somebody waits for it */
    /* Of the queues: */
    uint64_t order;
    struct pretended_task *prev, *next;
};

enum pretended_kind { QUEUE_LEGACY, QUEUE_PER_THREAD, QUEUE_MADE };

struct pretended_queue {
    int ordinal; /* of its context */
    enum pretended_kind kind;
    bool blocking; /* waits for the legacy stream, and that one for it */
    bool paused, busy;
    bool closed;      /* nobody has its handle; it is freed when it is empty */
    unsigned waiters; /* threads that wait for a task of it */
    int error;        /* what the next wait for it returns */
    uint64_t last_order;
    struct pretended_task *tasks;
    struct pretended_queue *prev, *next;
};

struct pretended_queue *pretended_queue_make(int ordinal, enum pretended_kind kind, bool blocking);
/* The queue of a handle, in the current context for the default streams. Returns 0, INVALID_CONTEXT
 * or INVALID_HANDLE. */
int pretended_queue_find(uintptr_t stream, struct pretended_queue **ret_queue);
/* The legacy queue of a context. */
struct pretended_queue *pretended_queue_legacy(int ordinal);
/* Copies the task to the end of the queue. */
void pretended_queue_add(struct pretended_queue *queue, const struct pretended_task *task);
bool pretended_queue_is_empty(const struct pretended_queue *queue);
uint64_t pretended_queue_length(const struct pretended_queue *queue);
/* Runs tasks, and waits, until all that is in the queue has run; returns the queue's error, which
 * is then forgotten, or that of a lost device. */
int pretended_queue_drain(struct pretended_queue *queue);
/* Of all queues of this context. */
int pretended_queue_drain_all(int ordinal);
/* Runs at most one task that the queue needs. */
void pretended_queue_nudge(struct pretended_queue *queue);
void pretended_queue_close(struct pretended_queue *queue);
/* Ends all that is enqueued with this error, and runs none of it. */
void pretended_queue_drop_all(int error);

/* Likewise until the record is done. */
int pretended_record_wait(struct pretended_record *record);
struct pretended_record *pretended_record_hold(struct pretended_record *record);
void pretended_record_release(struct pretended_record *record);

/* Kernels -------------------------------------------------------------------------------------- */

/* One of the two. */
struct pretended_kernel {
    void (*reduce)(void *target, const void *left, const void *right, size_t count);
    void (*finish)(void *target, const void *source, size_t count, uint64_t divisor, double factor);
};

struct pretended_parameters {
    void *target, *left, *right; /* left: also the source */
    size_t count;
    uint64_t divisor;
    double factor;
};

/* By its name. */
bool pretended_kernel_find(const char *name, struct pretended_kernel *ret_kernel);
/* Runs all threads, one after the other. Not under the lock. */
void pretended_kernel_run(const struct pretended_kernel *kernel,
                          const struct pretended_parameters *parameters, size_t threads);

#endif
