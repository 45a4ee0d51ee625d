/*
 * The rounds of a Horovod job: which workers it has, who has asked for its ranks (`rank_and_size`),
 * and what each is to be answered. A round is a plan, and who has which of its slots. Pure.
 *
 *   event                          | the running round                 | the next round
 *   -------------------------------+-----------------------------------+------------------------------
 *   plan (from the launcher)       |                                   | is that plan, with the
 * living |                                   | workers on it; forms when all | | of those have
 * asked a living worker asks           | the worker has left it and waits  | may form all its
 * living workers asked,  |                                   | is the same hosts, less the and
 * there is no plan         |                                   | workers that exited; forms a
 * slot's worker exited         | the slot is empty                 | is planned anew from its
 * hosts, (from the launcher)          |                                   | or void if it has
 * newcomers the slot is unknown            | answered "removed", not counted   |
 *
 * The first plan forms at once, because no worker is known. A worker that has never been seen and
 * asks (after a restart of the server, or because it was started without ranks) is told its place
 * in the running round.
 *
 * A living worker keeps its local rank where the plan has it; else it gets the lowest one that is
 * free. Rank 0 is never a newcomer where a worker lives, because rank 0 sends the state to all: the
 * first host whose slot 0 is a living worker's goes first; where there is none, the first host with
 * a living worker does, and that worker takes slot 0.
 */
#ifndef MUSTER_ELASTIC_HOROVOD_HOROVOD_ROUNDS_H
#define MUSTER_ELASTIC_HOROVOD_HOROVOD_ROUNDS_H

#include "elastic/horovod/horovod_plan.h"

enum muster_horovod_slot_state {
    MUSTER_HOROVOD_NEW,    /* a worker that the launcher starts; it has not been seen */
    MUSTER_HOROVOD_LIVING, /* a worker that was seen, or that comes from the round before */
    MUSTER_HOROVOD_ASKED,  /* the same, and it waits for its ranks in the next round */
    MUSTER_HOROVOD_EXITED,
};

struct muster_horovod_slot {
    enum muster_horovod_slot_state state;
    uint32_t host, local_rank;
    uint32_t before; /* the rank of its worker in the round before; MUSTER_HOROVOD_NONE: new */
};

struct muster_horovod_round {
    uint64_t number; /* 0: there is none */
    struct muster_horovod_plan plan;
    struct muster_horovod_slot *slots; /* by rank; owned */
};

/* Zeroed storage has no round. */
struct muster_horovod_rounds {
    struct muster_horovod_round running; /* the last that formed */
    struct muster_horovod_round next;    /* planned and not formed */
    uint64_t last_number;                /* of all rounds that were planned */
    bool next_void; /* it has lost a worker after newcomers were told their ranks: plan again */
};

void muster_horovod_rounds_finish(struct muster_horovod_rounds *rounds);

/* A plan from the launcher, which is taken. It replaces one that has not formed. MUSTER_INVALID: no
 * living worker is on it, so nobody could send the state; MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_horovod_rounds_plan(struct muster_horovod_rounds *rounds,
                                                        struct muster_horovod_plan *plan);

enum muster_horovod_answer {
    MUSTER_HOROVOD_WAIT,    /* until a round forms */
    MUSTER_HOROVOD_REMOVED, /* the slot is in no round */
    MUSTER_HOROVOD_PLACED,  /* in the running round, without waiting */
};

/* A worker asks, under the name that it has in the running round, or in the next one if it is new.
 * *ret_rank: its rank in the running round, which names it until the next one has formed;
 * MUSTER_HOROVOD_NONE: it has none there. */
enum muster_horovod_answer muster_horovod_rounds_ask(struct muster_horovod_rounds *rounds,
                                                     const char *host, uint32_t local_rank,
                                                     uint32_t *ret_rank);
/* The request of a worker that waits has closed: it no longer waits. */
void muster_horovod_rounds_unask(struct muster_horovod_rounds *rounds, uint32_t rank);
/* A worker of the running round was seen under this rank. */
void muster_horovod_rounds_seen(struct muster_horovod_rounds *rounds, uint32_t rank);
/* The worker of this slot has exited. False: there was none. */
bool muster_horovod_rounds_exit(struct muster_horovod_rounds *rounds, const char *host,
                                uint32_t local_rank);

/* To be called after every event: forms the next round if it can. True: there is a new running
 * round, and whoever waits is to be answered. A lack of memory is a "no" until the next event. */
bool muster_horovod_rounds_form(struct muster_horovod_rounds *rounds);

/* In the round that has just formed: the ranks of the worker that had this rank in the one before,
 * and for a worker without one those of its name. */
struct muster_horovod_ranks muster_horovod_rounds_answer(const struct muster_horovod_rounds *rounds,
                                                         uint32_t rank_before, const char *host,
                                                         uint32_t local_rank);
/* The place of a slot. */
struct muster_horovod_ranks muster_horovod_round_ranks(const struct muster_horovod_round *round,
                                                       const struct muster_horovod_slot *slot);

#endif
