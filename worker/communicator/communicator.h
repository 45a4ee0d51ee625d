/*
 * A communicator: links, contexts, shared memory and link figures for a given list of members. The
 * session has one in each generation, with the members that the service names; a program that finds
 * its peers elsewhere can have one without a service.
 *
 *   create          opens a generation of the fabric and creates the contexts; no message is sent
 *   agree_figures   \  exchanges of all members, in this order, before the first collective; each
 *   share_memory     > may be left out by all members alike
 *   apply_figures   /
 *
 * Threads: its contexts have their own rules (context.h); everything else is called by one thread
 * at a time.
 *
 * May use: context, fabric, collectives, base. May not know: the session, the service.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_COMMUNICATOR_H
#define MUSTER_WORKER_COMMUNICATOR_COMMUNICATOR_H

#include <pthread.h>

#include "worker/communicator/figures_agreement.h"
#include "worker/context/context.h"
#include "worker/fabric/fabric.h"

enum { MUSTER_SCOPE_COUNT = 3 };

struct muster_communicator_options {
    struct muster_fabric *fabric; /* borrowed; has its token */
    uint64_t generation;
    const struct muster_topology *topology; /* of all members; copied */
    const uint32_t *callers; /* [topology->ranks] the rank by which callers know each rank of the
                                topology; these are the members' global ranks; NULL: the same;
                                copied */
    const struct muster_peer *peers; /* [topology->ranks] by global rank; copied */
    /* Where not all members are known, which needs callers NULL: */
    const uint32_t *peer_ranks; /* [peer_count] the global ranks of peers; NULL: all are known */
    uint32_t peer_count;
    const char *host;                     /* the name of this member's host */
    struct muster_peer_finder *finder;    /* of the others; borrowed: see fabric.h */
    uint32_t rank;                        /* this member's global rank */
    const uint32_t *contribution_numbers; /* [topology->ranks] by global rank: each member's `order`
                                             (muster.h); NULL: its rank; copied */
    uint32_t hosts_digest, shape_digest;  /* of these members: see struct muster_figures */
    const char *algorithm;                /* for all contexts, as context.h has it; or NULL */
    uint32_t timeout_ms;                  /* for each exchange of agree_figures and share_memory */
    bool keeps_watch; /* there is no service: the progress thread runs from the start, so that
                         members in the caller's code pass on what they are told */
};

/* Read by its users, written by the functions below. */
struct muster_communicator {
    struct muster_fabric *fabric;
    struct muster_progress_engine *engine; /* of its calls in flight */
    uint64_t generation;
    struct muster_topology topology;
    uint32_t *callers;        /* [topology.ranks] the global rank of each rank of the topology */
    uint32_t *topology_ranks; /* [topology.ranks] the inverse */
    uint32_t rank;            /* this member's global rank */
    uint32_t hosts_digest, shape_digest;
    uint32_t timeout_ms;
    char *algorithm;                /* of its contexts; or NULL */
    uint32_t *contribution_numbers; /* [topology.ranks] in the order of the topology */
    struct muster_context *contexts[MUSTER_SCOPE_COUNT];
    uint32_t next_context;         /* the next free context number; the same on all members */
    pthread_mutex_t figures_mutex; /* `figures` and `autotunes` are written with it held */
    struct muster_figures figures; /* the default ones until all members have agreed on others */
    bool autotunes;                /* its contexts autotune; the same on all members */
    struct muster_dial_requests *dial_requests; /* NULL: all members are known */
    struct muster_set_lists *set_lists;         /* of process sets that this member creates */
    bool figures_outdated; /* the figures were measured on other hosts; the same on all members */
};

/* MUSTER_INVALID: an algorithm that does not exist. MUSTER_FATAL: no memory, no descriptors. */
MUSTER_CHECKED muster_status
muster_communicator_create(const struct muster_communicator_options *options,
                           struct muster_communicator **ret_communicator);
/* Blocks until no call is in flight, or until that time of muster_clock_ns(). Returns whether none
 * is. */
bool muster_communicator_wait_all(const struct muster_communicator *communicator, int64_t until_ns);

/* Waits for calls in flight, until their deadlines at most. The links stay: they are the fabric's.
 * Accepts NULL. */
void muster_communicator_destroy(struct muster_communicator *communicator);

/* All members adopt rank 0's choice of link figures, or measure them together if that is the
 * choice; the other members' *choice is replaced. A single member adopts the figures. Blocks.
 * MUSTER_REJOIN: a member died, or was missing at the deadline; ret_suspect as in
 * muster_context_run(). */
MUSTER_CHECKED muster_status
muster_communicator_agree_figures(struct muster_communicator *communicator,
                                  struct muster_figures_choice *choice, uint32_t *ret_suspect);

/* The members of each host set up memory that they share, where that is possible. Blocks; statuses
 * as above. */
MUSTER_CHECKED muster_status
muster_communicator_share_memory(struct muster_communicator *communicator, uint32_t *ret_suspect);

/* From now on the contexts, or the one of a scope, choose algorithms by the figures, and autotune
 * if that was agreed on. All members call it between the same collectives. */
void muster_communicator_apply_figures(struct muster_communicator *communicator);
void muster_communicator_apply_figures_to(struct muster_communicator *communicator,
                                          muster_scope scope);

/* The model by which its contexts choose algorithms now, and whether they autotune. Any thread. */
void muster_communicator_copy_model(struct muster_communicator *communicator,
                                    struct muster_cost_model *ret_model, bool *ret_autotunes);

/* A context of some members: ranks[i], a global rank, is known as rank i in it; this member is
 * among them. All of them create it with the same number. The caller's; to be destroyed before the
 * communicator. MUSTER_INVALID: a rank that does not exist or stands there twice. */
MUSTER_CHECKED muster_status muster_communicator_create_context(
    struct muster_communicator *communicator, const char *name, uint32_t number,
    const uint32_t *ranks, uint32_t count, struct muster_context **ret_context);

/* Operations that have finished in the contexts of the scopes. Any thread. */
uint64_t muster_communicator_progress(const struct muster_communicator *communicator);

/* Removes the addresses that reach a member from its own host only: for members that are to count
 * as members of different hosts. */
void muster_peer_remove_local_addresses(struct muster_peer *peer);

#endif
