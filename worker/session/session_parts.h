/*
 * The session: one process's place in a job. Private to the files that make it up:
 *
 *   session.c   opening and closing, moving over to the next generation
 *   generation_guard.c      the gate that collectives pass;   failure_handling.c: what their
 * failures lead to join.c      Join until a generation has formed, and what is built from its
 * answer tune.c      link figures for a generation that has formed lease_thread.c    the session
 * thread: Watch, which is the lease, and reports of dead peers sigterm.c   SIGTERM as a wish to
 * leave commit.c    muster_register, muster_commit, muster_restore;   sync.c: muster_sync
 *   public_collectives.c       the public collectives;   run_loop.c: muster_run
 *
 * Locks, outermost first: moving (one rejoin or close at a time), state.mutex (one state call),
 * calling (the callers' client), mutex (the rest). Collectives hold none of them while they run:
 * they are counted in `users`, and contexts go away only when nobody is inside.
 *
 * May use: options, rendezvous_client, context, fabric, collectives, elastic/messages, base.
 */
#ifndef MUSTER_WORKER_SESSION_SESSION_PARTS_H
#define MUSTER_WORKER_SESSION_SESSION_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "collectives/call/topology.h"
#include "elastic/messages/messages.h"
#include "worker/context/context.h"
#include "worker/session/options.h"
#include "worker/session/rendezvous_client.h"
#include "worker/session/state.h"
#include "worker/session/stored_figures.h"

enum {
    MUSTER_SCOPE_COUNT = 3,
    MUSTER_CONTEXT_FIRST_FREE = MUSTER_SCOPE_COUNT, /* context numbers below are the scopes' */
};

enum muster_stage {
    MUSTER_STAGE_JOINING = 0, /* there are no contexts */
    MUSTER_STAGE_RUNNING = 1, /* a generation formed here; perhaps it has been revoked since */
    MUSTER_STAGE_LEFT = 2,    /* out of the job for good; why says why */
    MUSTER_STAGE_TUNING =
        3, /* a generation formed; nobody may enter before its figures are agreed */
};

/* What the session knows of a generation; belongs to whoever moves, and does not change while
 * anybody is inside the gate. */
struct muster_generation {
    uint64_t number; /* 0: never was in one (as this member) */
    uint32_t rank;
    struct muster_topology topology;
    struct muster_context *contexts[MUSTER_SCOPE_COUNT];
    uint64_t state_version; /* the newest committed state; 0: none was ever committed */
    uint32_t state_source;  /* the rank that gives it */
    uint32_t stale_count;
    uint32_t *orders;       /* owned: what the members are ordered by, by rank */
    uint32_t *stale;        /* owned: the ranks that must get it, rising */
    uint32_t hosts;         /* a number for its hosts and racks */
    uint32_t shape;         /* a number for how many members each host has */
    bool tunes;             /* its contexts find out what is fast; alike on all members */
    bool keeps;             /* and rank 0 lets the job keep it: it has not failed to */
    bool tune_later;        /* the figures are those of other hosts; alike on all members */
    uint32_t contexts_made; /* numbers given to contexts, alike on all members */
};

struct muster_session {
    struct muster_settings settings; /* fixed at opening */
    struct muster_client *caller;    /* under `calling` */
    struct muster_client *follower;  /* the session thread's */
    pthread_t thread;
    bool thread_begun;
    bool sigterm_held;
    unsigned sigterm_seen; /* at opening: earlier ones were not meant for this session */

    pthread_mutex_t moving;
    uint32_t fruitless;            /* generations in a row without a collective; under `moving` */
    uint32_t reached;              /* members, in a generation that follows several of these */
    struct muster_figures figures; /* by which algorithms are chosen; belongs to whoever moves, or
                                      who commits, inside the gate */
    bool tuned;                    /* some generation has formed here; under `moving` */
    pthread_mutex_t calling;
    struct muster_state state;

    pthread_mutex_t mutex;
    pthread_cond_t changed; /* any of the following */
    enum muster_stage stage;
    uint32_t users; /* callers inside the gate */
    bool closing;
    bool rejoin_due; /* a call returned MUSTER_REJOIN in this generation, or it was revoked */
    bool lost;       /* the service says that this member is dead: come back as another one */
    bool ended;      /* the service says that it is over for this member; why says why */
    bool finished;   /* Leave was sent with the work done: nobody follows any more */
    bool known;      /* the service has answered a Join of this member */
    char why[MUSTER_WHY_SIZE];
    char member[MUSTER_UUID_SIZE];
    struct muster_timeline *timeline; /* or NULL; outlives the fabrics */
    struct muster_fabric *fabric;
    struct muster_generation generation;
    uint64_t reported; /* the generation in which a suspect was last reported */
    uint32_t hold_ms, lease_ms;

    /* Read at any time from any thread. */
    _Atomic uint64_t number;
    _Atomic uint32_t ranks[MUSTER_SCOPE_COUNT];
    _Atomic uint32_t sizes[MUSTER_SCOPE_COUNT];
    atomic_bool pending;      /* newcomers wait for the next commit */
    atomic_bool planned;      /* the generation ended by a commit, and not by a death */
    atomic_bool leave_asked;  /* by the service */
    atomic_bool leave_wished; /* by muster_leave() */
    atomic_int last_status;   /* of the last collective: says how to leave when closing */
};

/* generation_guard.c */

/* True if this member is to leave, whoever wants it. */
bool muster_session_leaving(struct muster_session *session);

/* Passes the gate: the generation stays as it is until muster_session_exit(). MUSTER_REJOIN,
 * MUSTER_ENDED: there is none. */
MUSTER_CHECKED muster_status muster_session_enter(struct muster_session *session);
void muster_session_exit(struct muster_session *session);

/* Says that the session is over for good, and why. */
MUSTER_CHECKED muster_status muster_session_out_of_job_locked(const struct muster_session *session);

/* Marks that the present generation is over, and wakes everyone who waits in it. */
void muster_session_revoke_locked(struct muster_session *session, const char *why);

/* failure_handling.c */

/* After the gate: what the outcome of a collective of that generation leads to (a report, a wish
 * to rejoin). Returns the status for the caller, and keeps the error text. */
MUSTER_CHECKED muster_status muster_session_settle(struct muster_session *session,
                                                   uint64_t generation, muster_status status,
                                                   uint32_t suspect);

/* One collective through the gate. */
MUSTER_CHECKED muster_status muster_session_run(struct muster_session *session, muster_scope scope,
                                                const struct muster_request *request);

/* session.c */

/* muster_rejoin(); with force also when nothing calls for it. */
MUSTER_CHECKED muster_status muster_session_rejoin(struct muster_session *session, bool force);

/* Tells the service that this member goes. Bounded by timeout_ms; failures are logged only. */
void muster_session_send_leave(struct muster_session *session, enum muster_leave_reason reason,
                               const char *why, uint32_t timeout_ms);

/* All work is done, on every member: the session stays usable, but the job is over. */
void muster_session_finish(struct muster_session *session);

/* failed_generations.c. Call with `moving` held. */

/* A generation ends: counts it if none of its collectives came through. MUSTER_FATAL after too many
 * of these in a row; why: how the last one failed. */
MUSTER_CHECKED muster_status muster_session_count_fruitless(struct muster_session *session,
                                                            const char *why);

/* Waits before the next one, longer after each; up to a second. */
void muster_session_pause_if_fruitless(const struct muster_session *session);

/* A generation has formed: after several such ones finds out how many of its members can be
 * reached, which takes up to five seconds. */
void muster_session_look_around(struct muster_session *session);

/* join.c. Call with `moving` held and nobody in the gate. */

/* Joins with the member's fabric, made if there is none, until a generation has formed, and builds
 * its contexts. The statuses of muster_open(); when the service has given this member up, `lost` is
 * set and the caller tries again under another name. */
MUSTER_CHECKED muster_status muster_session_join(struct muster_session *session,
                                                 int64_t deadline_ns);

/* Waits until nobody is in the gate and takes the generation down: contexts, topology, lists. Its
 * number stays. */
void muster_session_take_down(struct muster_session *session);

/* tune.c */

/* Agrees on link figures, in the stage TUNING, and gives them to the contexts. When a member dies
 * meanwhile the generation is revoked, and that is MUSTER_OK: the next collective says it. */
MUSTER_CHECKED muster_status muster_session_tune(struct muster_session *session);

/* Once the members have agreed on a commit: measures what could not be measured when the generation
 * formed, after a death, if there is anything; rank 0 puts with the job what has been found out.
 * Blocks; with state.mutex held. Statuses are those of a collective. */
MUSTER_CHECKED muster_status muster_session_tune_late(struct muster_session *session);

/* What the global context (NULL: there is none) has found out stays with the session. */
void muster_session_note_tuned(struct muster_session *session, struct muster_context *global);

/* A number for the hosts and racks of an answer, and one for how many members each host has. */
void muster_tune_place(const struct muster_join_response *response, uint32_t *ret_hosts,
                       uint32_t *ret_shape);

/* lease_thread.c */

MUSTER_CHECKED muster_status muster_session_follow(struct muster_session *session);
void muster_session_unfollow(struct muster_session *session);

/* Reports a dead peer: once a generation, from the caller's thread, bounded to about a second. */
void muster_session_report(struct muster_session *session, uint64_t generation, uint32_t suspect,
                           const char *why);

/* What the service's refusal of this member's request means for the session. */
void muster_session_heed(struct muster_session *session, uint64_t generation,
                         enum muster_rpc_code code, const char *why);

/* sigterm.c: counts SIGTERMs while held, if the signal had its default action. */
bool muster_sigterm_hold(void);
void muster_sigterm_release(void);
unsigned muster_sigterm_count(void);

#endif
