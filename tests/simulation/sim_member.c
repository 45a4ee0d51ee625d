/*
 * A member's work in a generation. All members meet in one barrier after another: the first two are
 * the preparation and the sync of the state, each later one is a commit, which makes a copy before
 * it meets the others. A member whose process ends resets the links of its peers; a stopped one
 * keeps them waiting.
 */
#include "tests/simulation/sim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { PREPARED = 1, SYNCED = 2, LINK_MAX_MS = 20 };

static void compute(struct sim *sim, struct sim_worker *worker);

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = (a ^ (b + UINT64_C(0x9e3779b97f4a7c15) + (a << 6))) * UINT64_C(0xbf58476d1ce4e5b9);
    return (z ^ (z >> 29)) | 1;
}

static struct sim_worker *member_of(struct sim *sim, struct sim_event *event)
{
    struct sim_worker *worker = &sim->workers[event->a];
    bool same = worker->alive && worker->in != NULL && worker->in->number == event->b &&
                worker->stage == SIM_RUNNING;
    return !same || sim_worker_postpones(sim, worker, event) ? NULL : worker;
}

static void push_for(struct sim *sim, const struct sim_worker *worker, int64_t after_ns,
                     void (*run)(struct sim *sim, struct sim_event *event), uint64_t c)
{
    sim_push(sim, sim->now_ns + after_ns,
             (struct sim_event){.run = run, .a = worker->index, .b = worker->in->number, .c = c});
}

/* Ends of the work ------------------------------------------------------------------------------
 */

/* A collective has returned MUSTER_REJOIN: the suspect is reported first, once in a generation. */
static void fail_collective(struct sim *sim, struct sim_worker *worker)
{
    bool reports = worker->suspect != UINT32_MAX && !worker->rejoin_due &&
                   worker->reported_generation != worker->generation &&
                   worker->calls[SIM_CALLER].request == NULL;
    uint32_t suspect = worker->suspect;
    worker->waits = false;
    worker->rejoin_due = true;
    worker->suspect = UINT32_MAX;
    if (reports) {
        worker->reported_generation = worker->generation;
        sim_worker_report(sim, worker, suspect, MUSTER_REPORT_RESET);
    } else {
        sim_worker_rejoin(sim, worker);
    }
}

void sim_member_revoked(struct sim *sim, struct sim_worker *worker)
{
    bool waited = worker->waits;
    worker->rejoin_due = true;
    if (waited) {
        fail_collective(sim, worker);
    }
}

static void lose_link(struct sim *sim, struct sim_event *event)
{
    struct sim_worker *worker = member_of(sim, event);
    if (worker == NULL) {
        return;
    }
    worker->suspect = (uint32_t)event->c;
    if (worker->waits) {
        fail_collective(sim, worker);
    }
}

void sim_member_end(struct sim *sim, struct sim_worker *worker, bool died)
{
    struct sim_generation *generation = worker->in;
    worker->in = NULL;
    worker->waits = false;
    if (generation != NULL) {
        generation->broken = true; /* its links carry nothing more: no barrier completes */
    }
    for (uint32_t rank = 0; died && generation != NULL && rank < generation->size; rank++) {
        struct sim_worker *peer = &sim->workers[generation->workers[rank]];
        if (peer != worker && peer->alive && peer->in == generation) {
            push_for(sim, peer, sim_between(0, (int64_t)LINK_MAX_MS * SIM_MS), lose_link,
                     worker->rank);
        }
    }
}

/* The sync --------------------------------------------------------------------------------------
 */

static bool alike(struct sim *sim, const struct sim_generation *generation)
{
    const struct sim_worker *first = NULL;
    for (uint32_t rank = 0; rank < generation->size; rank++) {
        const struct sim_worker *holder = &sim->workers[generation->workers[rank]];
        if (!generation->stale[rank]) {
            first = first == NULL ? holder : first;
            if (holder->version != first->version ||
                holder->committed_generation != first->committed_generation) {
                return false;
            }
        }
    }
    return true;
}

/* All are in the sync: the source's state goes to those that are stale, or, if those that are not
 * differ, to all. */
static void decide_sync(struct sim *sim, struct sim_generation *generation)
{
    const struct sim_worker *source = &sim->workers[generation->workers[generation->source]];
    bool first = source->version == 0;
    generation->new_version = first ? 1 : source->version;
    generation->new_committed = first ? generation->number : source->committed_generation;
    generation->new_content = first ? mix(generation->number, 1) : source->content;
    if (!alike(sim, generation)) {
        memset(generation->stale, true, generation->size * sizeof *generation->stale);
    }
    generation->synced = true;
    sim_check_sync(sim, generation);
}

static void finish_sync(struct sim_worker *worker)
{
    const struct sim_generation *generation = worker->in;
    if (generation->stale[worker->rank] || worker->version == 0) {
        worker->version = generation->new_version;
        worker->content = generation->new_content;
        worker->committed_generation = generation->new_committed;
    }
}

/* Barriers --------------------------------------------------------------------------------------
 */

static bool is_done(const struct sim *sim, const struct sim_worker *worker)
{
    return sim->plan.work > 0 && worker->version >= sim->plan.work;
}

static void leave_barrier(struct sim *sim, struct sim_event *event)
{
    struct sim_worker *worker = member_of(sim, event);
    if (worker == NULL || !worker->waits || worker->barrier != event->c >> 1) {
        return;
    }
    bool change = (event->c & 1) != 0;
    worker->waits = false;
    worker->progress++;
    if (worker->barrier == SYNCED) {
        finish_sync(worker);
    } else if (worker->barrier > SYNCED) {
        sim_check_committed(sim, worker);
        if (worker->at_end) {
            sim_worker_leave(sim, worker, MUSTER_LEAVE_FINISHED);
            return;
        }
        if (change) {
            sim_worker_rejoin(sim, worker);
            return;
        }
    }
    compute(sim, worker);
}

static void complete(struct sim *sim, struct sim_generation *generation)
{
    if (generation->barrier == SYNCED) {
        decide_sync(sim, generation);
    }
    for (uint32_t rank = 0; rank < generation->size; rank++) {
        struct sim_worker *member = &sim->workers[generation->workers[rank]];
        if (member->in == generation) {
            push_for(sim, member, sim_between(0, 5 * SIM_MS), leave_barrier,
                     ((uint64_t)generation->barrier << 1) | generation->change);
        }
    }
    generation->barrier++;
    generation->entered = 0;
    generation->change = false;
}

static void enter_barrier(struct sim *sim, struct sim_event *event)
{
    struct sim_worker *worker = member_of(sim, event);
    if (worker == NULL) {
        return;
    }
    struct sim_generation *generation = worker->in;
    worker->barrier++;
    worker->at_end = false;
    if (worker->barrier > SYNCED && !is_done(sim, worker) && !worker->rejoin_due) {
        worker->content = mix(worker->content, generation->number);
        worker->version++;
        worker->committed_generation = generation->number;
    } else if (worker->barrier > SYNCED && is_done(sim, worker)) {
        worker->at_end = true;
    }
    worker->waits = true;
    if (worker->rejoin_due || worker->suspect != UINT32_MAX) {
        fail_collective(sim, worker);
        return;
    }
    assert(worker->barrier == generation->barrier);
    generation->change =
        generation->change || worker->pending || worker->leave_requested || worker->leave_called;
    if (++generation->entered == generation->size && !generation->broken) {
        complete(sim, generation);
    }
}

static void compute(struct sim *sim, struct sim_worker *worker)
{
    int64_t most_ns = worker->barrier < SYNCED ? SIM_MS : sim->plan.step_ns;
    push_for(sim, worker, sim_between(SIM_MS / 10, most_ns), enter_barrier, 0);
}

void sim_member_begin(struct sim *sim, struct sim_worker *worker,
                      const struct muster_join_response *formed)
{
    struct sim_generation *generation = sim->generations;
    while (generation->number != formed->generation) {
        generation = generation->next;
    }
    generation->begun[formed->rank] = true;
    worker->in = generation;
    worker->generation = formed->generation;
    worker->rank = formed->rank;
    worker->progress = 0;
    worker->barrier = 0;
    worker->suspect = UINT32_MAX;
    /* Peers that died before this member heard of the generation cannot be reached. */
    for (uint32_t rank = 0; rank < generation->size; rank++) {
        const struct sim_worker *peer = &sim->workers[generation->workers[rank]];
        bool is_there = peer->alive &&
                        memcmp(peer->member, generation->members[rank], sizeof peer->member) == 0;
        if (!is_there) {
            push_for(sim, worker, sim_between(0, (int64_t)LINK_MAX_MS * SIM_MS), lose_link, rank);
        }
    }
    compute(sim, worker);
}
