/* The parts of an engine. Private to this folder. */
#ifndef MUSTER_WORKER_ENGINE_ENGINE_PARTS_H
#define MUSTER_WORKER_ENGINE_ENGINE_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "worker/engine/agree/agreement.h"
#include "worker/engine/engine.h"

enum muster_entry_state {
    MUSTER_ENTRY_FREE = 0,
    MUSTER_ENTRY_PENDING = 1,
    MUSTER_ENTRY_DONE = 2,
};

/* A submitted tensor, until its handle is consumed. */
struct muster_engine_entry {
    _Atomic uint32_t state; /* enum muster_entry_state; written with the mutex */
    uint32_t serial;        /* of its present or next use */
    uint32_t next_free;
    bool detached; /* freed when it is done: there is no handle */
    bool taken;    /* a thread waits for its handle */
    bool running;  /* in the operation that is under way: only the driving thread may end it */
    uint32_t trace_name;  /* in the timeline */
    int64_t submitted_ns; /* 0: it is not recorded */
    muster_tensor tensor; /* without name and splits */
    size_t *splits;       /* owned, or NULL */
    muster_status status;
    char *text; /* owned, or NULL */
};

/* Entries that were done in a step and have a function to call. */
struct muster_engine_calls {
    struct muster_engine_call {
        muster_tensor_done_function done;
        void *data;
        muster_status status;
        char *text; /* owned, or NULL */
    } * calls;      /* owned [count] */
    size_t count, room;
};

struct muster_engine {
    struct muster_engine_options options;
    uint32_t slot; /* in the table of engines */

    pthread_mutex_t mutex;     /* all of the following */
    pthread_cond_t changed;    /* tensors are done, nobody drives any more, or a step is due */
    pthread_cond_t thread_due; /* for the engine's thread */
    pthread_t thread;
    struct muster_agreement *agreement;
    struct muster_engine_entry **blocks; /* owned [block_count] of ENTRIES_IN_BLOCK: entries stay
                                            where they are */
    uint32_t block_count, free_entry, used;
    bool driving; /* a thread makes a step */
    bool prepared, stopping;
    bool thread_sleeps; /* in a wait without a limit */
    bool thread_wanted; /* somebody waits who does not drive */
    bool lazy;          /* waiters have come soon after the last steps of the order were due:
                           the thread gives them a while */
    bool due;           /* a step of the order has been due since due_ns */
    int64_t due_ns;
    uint32_t waiters;    /* threads in a wait for `changed` */
    uint64_t active;     /* submissions that the thread has seen */
    muster_status ended; /* not MUSTER_OK: every further submission gets it */
    char ended_text[MUSTER_ERROR_MAX];
    struct muster_engine_calls calls; /* to be made */
    muster_engine_counters counters;

    /* The driving thread's. */
    muster_range *ins, *outs; /* owned [range_room] */
    size_t range_room;
    uint64_t *tokens; /* owned [token_room] of the present step; 0: not pending here */
    struct muster_engine_entry **entries; /* owned [token_room] likewise */
    size_t token_room;
    int64_t started_ns;  /* of the present operation; 0: nothing is recorded */
    bool failed_alike;   /* the operation has ended with MUSTER_INVALID for its tensor's sake */
    unsigned char *pack; /* owned [2 * MUSTER_ENGINE_PACK_BYTES] */
};

enum {
    MUSTER_ENGINE_BLOB_BYTES = 1 << 20,
    MUSTER_ENGINE_PACK_BYTES = 64 << 10,
    MUSTER_ENGINE_BLOCK_ENTRIES = 256
};

/* engine_entries.c ------------------------------------------------------------------------------
 */

/* Its index is the token of the agreement, which is not 0, less one. */
struct muster_engine_entry *muster_engine_entry(const struct muster_engine *engine, uint32_t index);
MUSTER_CHECKED muster_status muster_engine_take_entry_locked(struct muster_engine *engine,
                                                             uint32_t *ret_index);
void muster_engine_free_entry_locked(struct muster_engine *engine, uint32_t index);
/* The tensor is done. */
void muster_engine_finish_entry_locked(struct muster_engine *engine, uint64_t token,
                                       muster_status status, const char *text);
/* Makes the calls of functions that are due; the mutex is released meanwhile. */
void muster_engine_make_calls_locked(struct muster_engine *engine);

/* engine_table.c --------------------------------------------------------------------------------
 */

/* Handles name the engine by its place in a table of the process. */
MUSTER_CHECKED muster_status muster_engine_table_add(struct muster_engine *engine);
void muster_engine_table_remove(struct muster_engine *engine);
muster_operation muster_engine_handle(const struct muster_engine *engine, uint32_t index);

/* engine_drive.c --------------------------------------------------------------------------------
 */

/* Makes the step that is due, if there is one and nobody drives; the mutex is released meanwhile.
 * False: there is nothing to do for this thread. */
bool muster_engine_drive_locked(struct muster_engine *engine, bool as_waiter);
/* A submission may have made a step due: wakes who is to make it. */
void muster_engine_wake_locked(struct muster_engine *engine);
/* The time until which nothing is due, if nothing is submitted. */
int64_t muster_engine_due_ns_locked(struct muster_engine *engine);
void *muster_engine_thread(void *user);
/* Ends all pending tensors; every further submission gets this status. */
void muster_engine_end_locked(struct muster_engine *engine, muster_status status, const char *text);

/* engine_gather.c -------------------------------------------------------------------------------
 */

MUSTER_CHECKED muster_status muster_engine_run_allgather(
    struct muster_engine *engine, const struct muster_description *description);
MUSTER_CHECKED muster_status muster_engine_run_alltoall(
    struct muster_engine *engine, const struct muster_description *description);

/* engine_run.c ----------------------------------------------------------------------------------
 */

/* Carry a step out, without the mutex. Statuses of muster_context_run(). */
MUSTER_CHECKED muster_status muster_engine_run_round(struct muster_engine *engine,
                                                     const struct muster_agreement_step *step);
MUSTER_CHECKED muster_status muster_engine_run_describe(struct muster_engine *engine,
                                                        const struct muster_agreement_step *step);
/* engine->entries are those of the step's tensors. */
MUSTER_CHECKED muster_status muster_engine_run_tensors(struct muster_engine *engine,
                                                       const struct muster_description *description,
                                                       size_t count);

#endif
