/* Faults: drawing them, their effect, and which ranks wait for which when nothing more happens. */
#include "collectives/simulate/simulate_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/base/status.h"

enum { LISTED_RANKS_MAX = 4 /* in a verdict */ };

/* Drawing ------------------------------------------------------------------------------------- */

/* SplitMix64: G. Steele, D. Lea, C. Flood: Fast splittable pseudorandom number generators. OOPSLA
 * 2014. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t value = *state += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

/* In [0, 1). */
static double random_fraction(uint64_t *state)
{
    return (double)(next_random(state) >> 11) * 0x1p-53;
}

static uint32_t random_below(uint64_t *state, uint32_t bound)
{
    return (uint32_t)(next_random(state) % bound);
}

static struct muster_fault draw(uint64_t *state, enum muster_fault_kind kind, uint32_t ranks,
                                const struct muster_fault_mix *mix)
{
    struct muster_fault fault = {.kind = kind, .rank = random_below(state, ranks)};
    uint32_t distance = ranks > 1 ? 1 + random_below(state, ranks - 1) : 0;
    double fraction = random_fraction(state);
    if (kind == MUSTER_FAULT_SLOW_LINK || kind == MUSTER_FAULT_DEAD_LINK) {
        fault.peer = (uint32_t)(((uint64_t)fault.rank + distance) % ranks);
    }
    if (kind == MUSTER_FAULT_SLOW_LINK || kind == MUSTER_FAULT_SLOW_RANK) {
        fault.factor = 1 + fraction * (mix->factor_max - 1);
    } else {
        fault.at_us = fraction * mix->at_us_max;
    }
    return fault;
}

size_t muster_faults_draw(uint64_t seed, uint32_t ranks, const struct muster_fault_mix *mix,
                          struct muster_fault *ret_faults, size_t size)
{
    const struct {
        enum muster_fault_kind kind;
        uint32_t count;
    } kinds[] = {
        {MUSTER_FAULT_LATE_RANK, mix->late_ranks},
        {MUSTER_FAULT_SLOW_RANK, mix->slow_ranks},
        {MUSTER_FAULT_SLOW_LINK, ranks > 1 ? mix->slow_links : 0},
        {MUSTER_FAULT_DEAD_RANK, mix->dead_ranks},
        {MUSTER_FAULT_DEAD_LINK, ranks > 1 ? mix->dead_links : 0},
    };
    uint64_t state = seed;
    size_t drawn = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (uint32_t j = 0; j < kinds[i].count && drawn < size; j++) {
            ret_faults[drawn++] = draw(&state, kinds[i].kind, ranks, mix);
        }
    }
    return drawn;
}

/* Options ------------------------------------------------------------------------------------- */

static bool is_link(const struct muster_fault *fault)
{
    return fault->kind == MUSTER_FAULT_SLOW_LINK || fault->kind == MUSTER_FAULT_DEAD_LINK;
}

static bool is_slow(const struct muster_fault *fault)
{
    return fault->kind == MUSTER_FAULT_SLOW_LINK || fault->kind == MUSTER_FAULT_SLOW_RANK;
}

/* A fault must be of a known kind, name ranks of the job, and have a valid factor or time. */
static muster_status check_fault(const struct muster_fault *fault, uint32_t ranks)
{
    if (fault->kind < MUSTER_FAULT_LATE_RANK || fault->kind > MUSTER_FAULT_DEAD_LINK) {
        return muster_error_set(MUSTER_INVALID, "fault: there is no kind %d", (int)fault->kind);
    }
    if (fault->rank >= ranks || (is_link(fault) && fault->peer >= ranks)) {
        return muster_error_set(MUSTER_INVALID, "fault: rank %" PRIu32 " of %" PRIu32,
                                fault->rank >= ranks ? fault->rank : fault->peer, ranks);
    }
    if (is_link(fault) && fault->rank == fault->peer) {
        return muster_error_set(MUSTER_INVALID, "fault: a link from rank %" PRIu32 " to itself",
                                fault->rank);
    }
    if (is_slow(fault) && !(isfinite(fault->factor) && fault->factor >= 1)) {
        return muster_error_set(MUSTER_INVALID, "fault: slower by a factor of %g", fault->factor);
    }
    if (!is_slow(fault) && !(isfinite(fault->at_us) && fault->at_us >= 0)) {
        return muster_error_set(MUSTER_INVALID, "fault: at %g us", fault->at_us);
    }
    return MUSTER_OK;
}

/* Applies a fault of a rank. */
static void apply_to_rank(struct muster_sim_rank *rank, const struct muster_fault *fault)
{
    switch (fault->kind) {
    case MUSTER_FAULT_LATE_RANK:
        rank->begins_us = fault->at_us > rank->begins_us ? fault->at_us : rank->begins_us;
        break;
    case MUSTER_FAULT_SLOW_RANK:
        rank->core_factor *= fault->factor;
        break;
    case MUSTER_FAULT_DEAD_RANK:
        rank->dead_us = fault->at_us < rank->dead_us ? fault->at_us : rank->dead_us;
        break;
    default: /* a link's */
        break;
    }
}

/* By the lower rank, then the higher one. */
static int compare_links(const struct muster_fault *left, const struct muster_fault *right)
{
    if (left->rank != right->rank) {
        return left->rank < right->rank ? -1 : 1;
    }
    return left->peer == right->peer ? 0 : left->peer < right->peer ? -1 : 1;
}

static int compare_faults(const void *left_fault, const void *right_fault)
{
    const struct muster_fault *left = left_fault;
    const struct muster_fault *right = right_fault;
    int order = compare_links(left, right);
    if (order != 0 || left->kind != right->kind) {
        return order != 0 ? order : left->kind < right->kind ? -1 : 1;
    }
    double difference = left->at_us + left->factor - right->at_us - right->factor;
    return difference == 0 ? 0 : difference < 0 ? -1 : 1;
}

muster_status muster_sim_faults_init(struct muster_simulation *sim,
                                     const struct muster_fault *faults, size_t count)
{
    if (count > MUSTER_FAULTS_MAX) {
        return muster_error_set(MUSTER_INVALID, "simulation: %zu faults, at most %d", count,
                                MUSTER_FAULTS_MAX);
    }
    sim->faults = calloc(count + 1, sizeof *sim->faults);
    if (sim->faults == NULL) {
        return muster_error_set(MUSTER_FATAL, "simulation: no memory for %zu faults", count);
    }
    for (size_t i = 0; i < count; i++) {
        struct muster_fault fault = faults[i];
        TRY(check_fault(&fault, sim->topology->ranks));
        apply_to_rank(&sim->ranks[fault.rank], &fault);
        if (is_link(&fault)) {
            sim->faults[sim->fault_count] = fault;
            if (fault.rank > fault.peer) {
                sim->faults[sim->fault_count].rank = fault.peer;
                sim->faults[sim->fault_count].peer = fault.rank;
            }
            sim->fault_count++;
        }
    }
    qsort(sim->faults, sim->fault_count, sizeof *sim->faults, compare_faults);
    return MUSTER_OK;
}

/* Links --------------------------------------------------------------------------------------- */

/* The first fault of this link, whose faults are consecutive; or sim->fault_count, or another
 * link's. */
static size_t first_of_link(const struct muster_simulation *sim, const struct muster_fault *link)
{
    size_t low = 0;
    size_t high = sim->fault_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_links(&sim->faults[middle], link) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct muster_fault link_between(uint32_t rank, uint32_t peer)
{
    return (struct muster_fault){.rank = rank < peer ? rank : peer,
                                 .peer = rank < peer ? peer : rank};
}

double muster_sim_link_factor(const struct muster_simulation *sim, uint32_t rank, uint32_t peer)
{
    double factor = 1;
    struct muster_fault link = link_between(rank, peer);
    for (size_t i = first_of_link(sim, &link);
         i < sim->fault_count && compare_links(&sim->faults[i], &link) == 0; i++) {
        factor *= sim->faults[i].kind == MUSTER_FAULT_SLOW_LINK ? sim->faults[i].factor : 1;
    }
    return factor;
}

/* When the link itself dies, regardless of the ranks at its ends. */
static double link_death_us(const struct muster_simulation *sim, uint32_t rank, uint32_t peer)
{
    double dead_us = INFINITY;
    struct muster_fault link = link_between(rank, peer);
    for (size_t i = first_of_link(sim, &link);
         i < sim->fault_count && compare_links(&sim->faults[i], &link) == 0; i++) {
        const struct muster_fault *fault = &sim->faults[i];
        if (fault->kind == MUSTER_FAULT_DEAD_LINK && fault->at_us < dead_us) {
            dead_us = fault->at_us;
        }
    }
    return dead_us;
}

double muster_sim_link_dead_us(const struct muster_simulation *sim, uint32_t rank, uint32_t peer)
{
    double dead_us = link_death_us(sim, rank, peer);
    dead_us = sim->ranks[rank].dead_us < dead_us ? sim->ranks[rank].dead_us : dead_us;
    return sim->ranks[peer].dead_us < dead_us ? sim->ranks[peer].dead_us : dead_us;
}

void muster_sim_stop_dead_flows(struct muster_simulation *sim)
{
    for (uint32_t i = 0; i < sim->node_count; i++) {
        const struct muster_sim_node *message = &sim->nodes[i];
        if (message->use_count > 0 &&
            muster_sim_link_dead_us(sim, message->rank, message->peer) <= sim->now_us) {
            muster_sim_cancel(sim, i);
            muster_sim_flow_end(sim, i);
        }
    }
}

/* Verdicts ------------------------------------------------------------------------------------ */

struct wait {
    uint32_t rank;
    const struct muster_sim_step *step; /* NULL: it waits for no rank */
    uint32_t peer;                      /* the rank that it waits for */
    uint32_t round;
};

/* What a rank waits for: a message over a dead link, if there is one, else a message that has not
 * arrived, else one that was not received. */
static struct wait wait_of(const struct muster_simulation *sim, uint32_t rank)
{
    const struct muster_sim_rank *waiting = &sim->ranks[rank];
    struct wait wait = {.rank = rank};
    int best = 0;
    for (uint32_t i = 0; i < waiting->lane_count; i++) {
        const struct muster_sim_lane *lane = &waiting->lanes[i];
        for (uint32_t j = lane->start; j < lane->next; j++) {
            const struct muster_sim_step *step = &waiting->steps[j];
            bool group = muster_sim_is_group(step);
            if (step->done || (step->kind > MUSTER_STEP_RECV_REDUCE && !group)) {
                continue;
            }
            uint32_t peer = group ? muster_sim_group_missing(sim, rank) : step->peer;
            if (peer == MUSTER_NOTHING) {
                continue;
            }
            bool dead = muster_sim_link_dead_us(sim, rank, peer) <= sim->now_us;
            int weight = dead ? 3 : step->kind == MUSTER_STEP_SEND ? 1 : 2;
            if (weight > best) {
                best = weight;
                wait.step = step;
                wait.peer = peer;
                wait.round = lane->round;
            }
        }
    }
    return wait;
}

static bool is_dead(const struct muster_simulation *sim, uint32_t rank)
{
    return sim->ranks[rank].dead_us <= sim->now_us;
}

/* The first living rank that waits for a dead link or rank; else the first one that waits at all.
 */
static struct wait find_cause(const struct muster_simulation *sim)
{
    struct wait first = {.rank = MUSTER_NOTHING};
    for (uint32_t rank = 0; rank < sim->topology->ranks; rank++) {
        if (sim->ranks[rank].finish_us >= 0 || is_dead(sim, rank)) {
            continue;
        }
        struct wait wait = wait_of(sim, rank);
        if (wait.step == NULL) {
            continue;
        }
        if (muster_sim_link_dead_us(sim, rank, wait.peer) <= sim->now_us) {
            return wait;
        }
        first = first.step == NULL ? wait : first;
    }
    return first;
}

/* The position behind what snprintf() wrote or cut off. */
static size_t advance(size_t size, size_t used, int printed)
{
    return printed < 0 || used + (size_t)printed >= size ? size - 1 : used + (size_t)printed;
}

/* "link 2-3 is dead", "rank 2 is dead" or "deadlock". */
static size_t name_cause(const struct muster_simulation *sim, const struct wait *cause, char *text,
                         size_t size)
{
    if (cause->step == NULL) {
        for (uint32_t rank = 0; rank < sim->topology->ranks; rank++) {
            if (is_dead(sim, rank)) {
                return advance(
                    size, 0,
                    snprintf(text, size, "rank %" PRIu32 " is dead, and no rank waits", rank));
            }
        }
        return 0;
    }
    uint32_t peer = cause->peer;
    if (is_dead(sim, peer)) {
        return advance(size, 0, snprintf(text, size, "rank %" PRIu32 " is dead", peer));
    }
    if (link_death_us(sim, cause->rank, peer) <= sim->now_us) {
        struct muster_fault link = link_between(cause->rank, peer);
        return advance(
            size, 0,
            snprintf(text, size, "link %" PRIu32 "-%" PRIu32 " is dead", link.rank, link.peer));
    }
    return advance(size, 0, snprintf(text, size, "deadlock"));
}

/* "; rank 0 for 3, rank 1 for 0 and 5 more" */
static void list_others(const struct muster_simulation *sim, uint32_t except, char *text,
                        size_t size)
{
    size_t used = 0;
    uint32_t listed = 0;
    uint32_t more = 0;
    for (uint32_t rank = 0; rank < sim->topology->ranks; rank++) {
        if (rank == except || sim->ranks[rank].finish_us >= 0 || is_dead(sim, rank)) {
            continue;
        }
        struct wait wait = wait_of(sim, rank);
        if (wait.step == NULL || listed == LISTED_RANKS_MAX) {
            more++;
            continue;
        }
        used = advance(size, used,
                       snprintf(text + used, size - used, "%s rank %" PRIu32 " for %" PRIu32,
                                listed == 0 ? ";" : ",", rank, wait.peer));
        listed++;
    }
    if (more > 0) {
        (void)snprintf(text + used, size - used, " and %" PRIu32 " more", more);
    }
}

void muster_sim_explain(const struct muster_simulation *sim, char *ret_text, size_t size)
{
    ret_text[0] = '\0';
    struct wait cause = find_cause(sim);
    size_t used = name_cause(sim, &cause, ret_text, size);
    if (cause.step == NULL) {
        return;
    }
    used = advance(size, used,
                   snprintf(ret_text + used, size - used,
                            ": rank %" PRIu32 " waits for rank %" PRIu32 " (lane %u, round %" PRIu32
                            ": %s)",
                            cause.rank, cause.peer, cause.step->lane, cause.round,
                            muster_sim_is_group(cause.step)        ? "group step"
                            : cause.step->kind == MUSTER_STEP_SEND ? "send"
                                                                   : "receive"));
    list_others(sim, cause.rank, ret_text + used, size - used);
}
