/*
 * The session: one process's place in a job. Private to this folder; README.md has a table of the
 * files.
 *
 * Locks, outermost first:
 *   rejoin_mutex  one join, rejoin or finish at a time
 *   state.mutex   one call for the registered state at a time
 *   client_mutex  the client that callers' threads use for the service
 *   mutex         the other fields
 *   engines.mutex engines of named tensors
 *   sets.mutex    process sets
 *   state.reader_mutex  which copies of the state are written and read
 *   spill.mutex   when the spill thread stops
 * A collective holds none of them while it runs. It is counted in `active_calls` instead, and the
 * contexts are destroyed only when that is 0 (generation_guard.h).
 */
#ifndef MUSTER_WORKER_SESSION_SESSION_PARTS_H
#define MUSTER_WORKER_SESSION_SESSION_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "elastic/messages/messages.h"
#include "worker/communicator/communicator.h"
#include "worker/session/figures_exchange.h"
#include "worker/session/options.h"
#include "worker/session/process_sets.h"
#include "worker/session/rendezvous_client.h"
#include "worker/session/session_clients.h"
#include "worker/session/stall_report.h"
#include "worker/session/state.h"

enum muster_session_stage {
    MUSTER_STAGE_JOINING = 0,   /* there are no contexts */
    MUSTER_STAGE_RUNNING = 1,   /* a generation has formed; it may have been revoked since */
    MUSTER_STAGE_LEFT = 2,      /* out of the job for good; `why` has the reason */
    MUSTER_STAGE_PREPARING = 3, /* a generation has formed; its link figures are being agreed, and
                                   no collective may begin before that */
};

/* A generation as this member sees it. Written with rejoin_mutex held and no active calls, so it
 * does not change while a call holds the generation. */
struct muster_generation {
    uint64_t number;                          /* 0: this member was never in one */
    struct muster_communicator *communicator; /* NULL: there is no generation now */
    struct muster_session_finder *finder;     /* of its members; NULL: all are known */
    uint64_t state_version; /* the newest committed state; 0: none was ever committed */
    uint32_t state_source;  /* the rank that sends it */
    uint32_t stale_count;
    uint32_t *stale_ranks; /* owned: the ranks that lack the newest state, ascending */
};

struct muster_session_finder;

/* A member's UUID as members send it to each other. */
struct muster_short_id {
    unsigned char bytes[16];
};

/* The process sets of this process. Contexts are destroyed when no call can be using them: a call
 * that holds the generation may have looked one up just before the set was freed. */
struct muster_session_sets {
    pthread_mutex_t mutex; /* the following */
    struct muster_process_sets table;
    struct muster_context **retired; /* owned [retired_room] of sets that were freed */
    size_t retired_count, retired_room;
    uint64_t former_progress; /* operations that finished in contexts that were destroyed */
    /* Of the generation of whose ranks the table speaks: */
    struct muster_short_id *member_ids; /* owned [members]; zero: not known, and in no set */
    uint32_t members, own;
    uint64_t generation;
};

/* Engines of named tensors (engines.h). */
struct muster_session_engine;
struct muster_session_engines {
    pthread_mutex_t mutex; /* the following, but reading of by_scope */
    struct muster_session_engine *list;
    _Atomic(struct muster_session_engine *) by_scope[MUSTER_SCOPE_COUNT];
};

/* The thread that writes committed states to files. */
struct muster_spill {
    bool started;
    pthread_t thread;
    bool failed; /* the last file could not be written; the thread's */
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* `stop` */
    atomic_bool stop;
    _Atomic uint64_t generation, version; /* of the file that the job went on from; 0: none */
};

struct muster_session {
    struct muster_settings settings; /* fixed by muster_open() */
    uint32_t forks;                  /* muster_fork_guard_forks() of the process that opened it */
    struct muster_client *caller_client;   /* under client_mutex */
    struct muster_client *lease_client;    /* the lease thread's */
    struct muster_session_clients clients; /* for values; a lock of its own, a leaf */
    pthread_t lease_thread;
    bool lease_thread_started;
    bool without_service; /* opened by muster_open_with(): no client, no lease thread */
    bool sigterm_held;
    int slot_fd;                    /* the lock of its slot; -1: none. Under rejoin_mutex */
    unsigned sigterm_count_at_open; /* signals before muster_open() do not concern this session */

    pthread_mutex_t rejoin_mutex;
    uint32_t failed_generations; /* in a row, without one finished collective; under rejoin_mutex */
    uint32_t reachable_members;  /* counted after several failed generations; under rejoin_mutex */
    struct muster_figures figures; /* algorithms are chosen by these; written with rejoin_mutex
                                      held, or by a commit that holds the generation */
    bool has_formed;               /* some generation has formed; under rejoin_mutex */
    bool mentioned_devices;        /* those that are not used; under rejoin_mutex */
    pthread_mutex_t client_mutex;
    struct muster_state state;
    struct muster_spill spill;
    struct muster_session_sets sets;
    struct muster_session_engines engines;

    pthread_mutex_t mutex;
    pthread_cond_t changed;          /* any of the following */
    enum muster_session_stage stage; /* set by muster_session_set_stage_locked() */
    bool closing;
    bool rejoin_due;       /* the generation was revoked, or a call in it returned MUSTER_REJOIN */
    bool declared_dead;    /* by the service: the process joins again as a new member */
    bool ended;            /* by the service, for this member; `why` has the reason */
    bool finished;         /* Leave was sent after the work was done: Watch is over */
    bool known_to_service; /* it has answered a Join of this member */
    char why[MUSTER_WHY_SIZE];
    char member[MUSTER_UUID_SIZE];
    struct muster_timeline *timeline; /* or NULL; outlives the fabrics */
    struct muster_fabric *fabric;
    struct muster_generation generation;
    uint64_t reported_generation; /* the last one in which this member sent a Report */
    uint32_t hold_ms, lease_ms;
    struct muster_stall_watch stall; /* the lease thread's */
    struct muster_figures_exchange exchange;

    /* Read at any time by any thread. */
    atomic_uint active_calls; /* that hold the generation, and a bit: see generation_guard.c */
    _Atomic uint64_t generation_number;
    _Atomic uint32_t slot;
    _Atomic uint32_t ranks[MUSTER_SCOPE_COUNT];
    _Atomic uint32_t sizes[MUSTER_SCOPE_COUNT];
    atomic_bool newcomers_pending; /* they wait for the next commit */
    atomic_bool leave_requested;   /* by the service */
    atomic_bool leave_called;      /* muster_leave() */
    atomic_bool done;              /* the function of muster_run() has returned MUSTER_OK */
    atomic_int last_status;        /* of the last collective; decides how a close leaves the job */
};

#endif
