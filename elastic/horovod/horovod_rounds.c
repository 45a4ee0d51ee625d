/* Rounds: who is where in the next plan, and when it forms. horovod_rounds.h has the table. */
#include "elastic/horovod/horovod_rounds.h"

#include "worker/base/cleanup.h"

#include <string.h>

static void finish_round(struct muster_horovod_round *round)
{
    muster_horovod_plan_finish(&round->plan);
    free(round->slots);
    *round = (struct muster_horovod_round){0};
}

void muster_horovod_rounds_finish(struct muster_horovod_rounds *rounds)
{
    finish_round(&rounds->running);
    finish_round(&rounds->next);
}

/* The rank of a slot; MUSTER_HOROVOD_NONE: the round has no such slot. */
static uint32_t find_slot(const struct muster_horovod_round *round, const char *host,
                          uint32_t local_rank)
{
    uint32_t index = muster_horovod_plan_find(&round->plan, host);
    if (index == MUSTER_HOROVOD_NONE || local_rank >= round->plan.hosts[index].slot_count) {
        return MUSTER_HOROVOD_NONE;
    }
    return muster_horovod_plan_ranks(&round->plan, index, local_rank).rank;
}

/* The rank in the round of the worker that has this rank in the round before. */
static uint32_t find_before(const struct muster_horovod_round *round, uint32_t before)
{
    for (uint32_t rank = 0; rank < round->plan.size; rank++) {
        if (round->slots[rank].before == before) {
            return rank;
        }
    }
    return MUSTER_HOROVOD_NONE;
}

static bool has_newcomers(const struct muster_horovod_round *round)
{
    return find_before(round, MUSTER_HOROVOD_NONE) != MUSTER_HOROVOD_NONE;
}

/* It was seen, so it may have a state to send. */
static bool has_state(const struct muster_horovod_slot *slot)
{
    return slot->state == MUSTER_HOROVOD_LIVING || slot->state == MUSTER_HOROVOD_ASKED;
}

/* A plan becomes a round ---------------------------------------------------------------------- */

/* Who may be rank 0, the best first. */
enum { STATE_IN_SLOT_0, STATE_IN_ANY_SLOT, UNSEEN_IN_ANY_SLOT, RANK_0_CHOICES };

static bool is_choice(const struct muster_horovod_slot *slot, int choice)
{
    return choice == UNSEEN_IN_ANY_SLOT
               ? slot->state != MUSTER_HOROVOD_EXITED
               : has_state(slot) && (slot->local_rank == 0 || choice == STATE_IN_ANY_SLOT);
}

static bool host_has_choice(const struct muster_horovod_round *running, const char *host,
                            int choice)
{
    uint32_t index = muster_horovod_plan_find(&running->plan, host);
    for (uint32_t rank = 0; index != MUSTER_HOROVOD_NONE && rank < running->plan.size; rank++) {
        if (running->slots[rank].host == index && is_choice(&running->slots[rank], choice)) {
            return true;
        }
    }
    return false;
}

/* The host that goes first; MUSTER_HOROVOD_NONE: no worker of the running round is on the plan. */
static uint32_t choose_first_host(const struct muster_horovod_round *running,
                                  const struct muster_horovod_plan *plan, int choices)
{
    for (int choice = 0; choice < choices; choice++) {
        for (uint32_t i = 0; i < plan->host_count; i++) {
            if (host_has_choice(running, plan->hosts[i].name, choice)) {
                return i;
            }
        }
    }
    return MUSTER_HOROVOD_NONE;
}

static void move_to_front(struct muster_horovod_plan *plan, uint32_t index)
{
    struct muster_horovod_host first = plan->hosts[index];
    memmove(plan->hosts + 1, plan->hosts, index * sizeof first);
    plan->hosts[0] = first;
}

/* The slot that a worker gets among those of its host; MUSTER_HOROVOD_NONE: none. moves: the lowest
 * that is free, unless it has one already; else the one that it had. */
static uint32_t choose_slot(const struct muster_horovod_slot *slots, uint32_t slot_count,
                            uint32_t worker, uint32_t local_rank, bool moves)
{
    uint32_t lowest = MUSTER_HOROVOD_NONE;
    for (uint32_t i = slot_count; i-- > 0;) {
        if (slots[i].before == worker) {
            return MUSTER_HOROVOD_NONE;
        }
        lowest = slots[i].before == MUSTER_HOROVOD_NONE ? i : lowest;
    }
    bool kept = local_rank < slot_count && slots[local_rank].before == MUSTER_HOROVOD_NONE;
    return moves ? lowest : kept ? local_rank : MUSTER_HOROVOD_NONE;
}

/* Gives the living workers of one host their slots, as far as there are any: first those that have
 * a state, and of these first those that keep their local rank. */
static void place_host(const struct muster_horovod_round *running,
                       struct muster_horovod_slot *slots, const struct muster_horovod_host *host)
{
    uint32_t index = muster_horovod_plan_find(&running->plan, host->name);
    for (unsigned pass = 0; pass < 4 && index != MUSTER_HOROVOD_NONE; pass++) {
        bool with_state = pass < 2;
        bool moves = pass % 2 == 1;
        for (uint32_t rank = 0; rank < running->plan.size; rank++) {
            const struct muster_horovod_slot *worker = &running->slots[rank];
            if (worker->host != index || worker->state == MUSTER_HOROVOD_EXITED ||
                has_state(worker) != with_state) {
                continue;
            }
            uint32_t slot = choose_slot(slots, host->slot_count, rank, worker->local_rank, moves);
            if (slot != MUSTER_HOROVOD_NONE) {
                slots[slot].before = rank;
            }
        }
    }
}

/* If rank 0 would have no state, it changes places with a worker of its host that has, or that may
 * have. */
static void give_rank_0_a_state(const struct muster_horovod_round *running,
                                struct muster_horovod_slot *slots, uint32_t slot_count)
{
    for (int choice = STATE_IN_ANY_SLOT; choice < RANK_0_CHOICES; choice++) {
        for (uint32_t i = 0; i < slot_count; i++) {
            uint32_t before = slots[i].before;
            if (before != MUSTER_HOROVOD_NONE && is_choice(&running->slots[before], choice)) {
                slots[i].before = slots[0].before;
                slots[0].before = before;
                return;
            }
        }
    }
}

/* Takes the plan, also if it fails. */
static muster_status build_round(struct muster_horovod_rounds *rounds,
                                 struct muster_horovod_plan *plan,
                                 struct muster_horovod_round *ret_round)
{
    const struct muster_horovod_round *running = &rounds->running;
    if (plan->size == 0) {
        muster_horovod_plan_finish(plan);
        return muster_error_set(MUSTER_INVALID, "plan: no worker is left");
    }
    struct muster_horovod_slot *slots = calloc(plan->size, sizeof *slots);
    if (slots == NULL) {
        muster_horovod_plan_finish(plan);
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    uint32_t first = choose_first_host(running, plan, RANK_0_CHOICES);
    if (first != MUSTER_HOROVOD_NONE) {
        move_to_front(plan, first);
    }
    struct muster_horovod_slot *of_host = slots;
    for (uint32_t i = 0; i < plan->host_count; i++) {
        for (uint32_t k = 0; k < plan->hosts[i].slot_count; k++) {
            of_host[k] = (struct muster_horovod_slot){
                .host = i, .local_rank = k, .before = MUSTER_HOROVOD_NONE};
        }
        place_host(running, of_host, &plan->hosts[i]);
        of_host += plan->hosts[i].slot_count;
    }
    give_rank_0_a_state(running, slots, plan->hosts[0].slot_count);
    for (uint32_t rank = 0; rank < plan->size; rank++) {
        slots[rank].state =
            slots[rank].before == MUSTER_HOROVOD_NONE ? MUSTER_HOROVOD_NEW : MUSTER_HOROVOD_LIVING;
    }
    *ret_round = (struct muster_horovod_round){
        .number = ++rounds->last_number, .plan = *plan, .slots = slots};
    *plan = (struct muster_horovod_plan){0};
    return MUSTER_OK;
}

/* Events -------------------------------------------------------------------------------------- */

muster_status muster_horovod_rounds_plan(struct muster_horovod_rounds *rounds,
                                         struct muster_horovod_plan *plan)
{
    struct muster_horovod_round next;
    bool anybody = false;
    for (uint32_t rank = 0; rank < rounds->running.plan.size; rank++) {
        anybody = anybody || has_state(&rounds->running.slots[rank]);
    }
    if (anybody &&
        choose_first_host(&rounds->running, plan, UNSEEN_IN_ANY_SLOT) == MUSTER_HOROVOD_NONE) {
        muster_horovod_plan_finish(plan);
        return muster_error_set(MUSTER_INVALID,
                                "plan: no living worker is on its hosts, so nobody could send the "
                                "state to the others");
    }
    TRY(build_round(rounds, plan, &next));
    finish_round(&rounds->next);
    rounds->next = next;
    rounds->next_void = false;
    return MUSTER_OK;
}

enum muster_horovod_answer muster_horovod_rounds_ask(struct muster_horovod_rounds *rounds,
                                                     const char *host, uint32_t local_rank,
                                                     uint32_t *ret_rank)
{
    uint32_t rank = find_slot(&rounds->running, host, local_rank);
    struct muster_horovod_slot *slot =
        rank != MUSTER_HOROVOD_NONE ? &rounds->running.slots[rank] : NULL;
    *ret_rank = MUSTER_HOROVOD_NONE;
    if (slot == NULL || slot->state == MUSTER_HOROVOD_EXITED) {
        uint32_t next = find_slot(&rounds->next, host, local_rank);
        bool newcomer =
            next != MUSTER_HOROVOD_NONE && rounds->next.slots[next].before == MUSTER_HOROVOD_NONE;
        return newcomer || rounds->running.number == 0 ? MUSTER_HOROVOD_WAIT
                                                       : MUSTER_HOROVOD_REMOVED;
    }
    *ret_rank = rank;
    if (slot->state == MUSTER_HOROVOD_NEW && rounds->next.number == 0) {
        slot->state = MUSTER_HOROVOD_LIVING;
        return MUSTER_HOROVOD_PLACED;
    }
    if (rounds->next.number != 0 && !rounds->next_void &&
        find_before(&rounds->next, rank) == MUSTER_HOROVOD_NONE) {
        slot->state = MUSTER_HOROVOD_EXITED;
        return MUSTER_HOROVOD_REMOVED;
    }
    slot->state = MUSTER_HOROVOD_ASKED;
    return MUSTER_HOROVOD_WAIT;
}

void muster_horovod_rounds_unask(struct muster_horovod_rounds *rounds, uint32_t rank)
{
    if (rank < rounds->running.plan.size &&
        rounds->running.slots[rank].state == MUSTER_HOROVOD_ASKED) {
        rounds->running.slots[rank].state = MUSTER_HOROVOD_LIVING;
    }
}

void muster_horovod_rounds_seen(struct muster_horovod_rounds *rounds, uint32_t rank)
{
    if (rank < rounds->running.plan.size &&
        rounds->running.slots[rank].state == MUSTER_HOROVOD_NEW) {
        rounds->running.slots[rank].state = MUSTER_HOROVOD_LIVING;
    }
}

/* A plan of the same hosts with the slots that `keeps` accepts; hosts without any are left out. */
static muster_status plan_without(const struct muster_horovod_round *round,
                                  bool (*keeps)(const struct muster_horovod_slot *slot,
                                                const struct muster_horovod_round *running),
                                  const struct muster_horovod_round *running,
                                  struct muster_horovod_plan *ret_plan)
{
    struct muster_horovod_plan plan;
    TRY(muster_horovod_plan_copy(&round->plan, &plan));
    for (uint32_t rank = 0; rank < round->plan.size; rank++) {
        if (!keeps(&round->slots[rank], running)) {
            plan.hosts[round->slots[rank].host].slot_count--;
            plan.size--;
        }
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < plan.host_count; i++) {
        if (plan.hosts[i].slot_count > 0) {
            plan.hosts[kept++] = plan.hosts[i];
        }
    }
    plan.host_count = kept;
    *ret_plan = plan;
    return MUSTER_OK;
}

static bool lives(const struct muster_horovod_slot *slot,
                  const struct muster_horovod_round *running)
{
    (void)running;
    return slot->state != MUSTER_HOROVOD_EXITED;
}

static bool still_lives(const struct muster_horovod_slot *slot,
                        const struct muster_horovod_round *running)
{
    return slot->before != MUSTER_HOROVOD_NONE &&
           running->slots[slot->before].state != MUSTER_HOROVOD_EXITED;
}

/* The next round has lost a worker. Without newcomers nobody knows its ranks yet: it is planned
 * anew without that worker. */
static void shrink_next(struct muster_horovod_rounds *rounds)
{
    struct muster_horovod_plan plan = {0};
    struct muster_horovod_round next;
    if (has_newcomers(&rounds->next) ||
        plan_without(&rounds->next, still_lives, &rounds->running, &plan) != MUSTER_OK ||
        build_round(rounds, &plan, &next) != MUSTER_OK) {
        rounds->next_void = true;
        return;
    }
    finish_round(&rounds->next);
    rounds->next = next;
}

bool muster_horovod_rounds_exit(struct muster_horovod_rounds *rounds, const char *host,
                                uint32_t local_rank)
{
    uint32_t rank = find_slot(&rounds->running, host, local_rank);
    if (rank != MUSTER_HOROVOD_NONE && rounds->running.slots[rank].state != MUSTER_HOROVOD_EXITED) {
        rounds->running.slots[rank].state = MUSTER_HOROVOD_EXITED;
        if (rounds->next.number != 0 && find_before(&rounds->next, rank) != MUSTER_HOROVOD_NONE) {
            shrink_next(rounds);
        }
        return true;
    }
    uint32_t next = find_slot(&rounds->next, host, local_rank);
    if (next != MUSTER_HOROVOD_NONE && rounds->next.slots[next].before == MUSTER_HOROVOD_NONE) {
        rounds->next_void = true;
        return true;
    }
    return false;
}

/* Forming ------------------------------------------------------------------------------------- */

static bool all_asked(const struct muster_horovod_rounds *rounds)
{
    for (uint32_t rank = 0; rank < rounds->next.plan.size; rank++) {
        uint32_t before = rounds->next.slots[rank].before;
        if (before != MUSTER_HOROVOD_NONE &&
            rounds->running.slots[before].state != MUSTER_HOROVOD_ASKED) {
            return false;
        }
    }
    return true;
}

/* Every worker that lives has asked, and there is one: the same workers go on. */
static bool plan_the_same(struct muster_horovod_rounds *rounds)
{
    struct muster_horovod_plan plan = {0};
    uint32_t asked_count = 0;
    for (uint32_t rank = 0; rank < rounds->running.plan.size; rank++) {
        enum muster_horovod_slot_state state = rounds->running.slots[rank].state;
        if (state != MUSTER_HOROVOD_ASKED && state != MUSTER_HOROVOD_EXITED) {
            return false;
        }
        asked_count += state == MUSTER_HOROVOD_ASKED ? 1 : 0;
    }
    return asked_count > 0 &&
           plan_without(&rounds->running, lives, &rounds->running, &plan) == MUSTER_OK &&
           build_round(rounds, &plan, &rounds->next) == MUSTER_OK;
}

bool muster_horovod_rounds_form(struct muster_horovod_rounds *rounds)
{
    if (rounds->next.number == 0 && !plan_the_same(rounds)) {
        return false;
    }
    if (rounds->next_void || !all_asked(rounds)) {
        return false;
    }
    finish_round(&rounds->running);
    rounds->running = rounds->next;
    rounds->next = (struct muster_horovod_round){0};
    return true;
}

struct muster_horovod_ranks muster_horovod_round_ranks(const struct muster_horovod_round *round,
                                                       const struct muster_horovod_slot *slot)
{
    return muster_horovod_plan_ranks(&round->plan, slot->host, slot->local_rank);
}

struct muster_horovod_ranks muster_horovod_rounds_answer(const struct muster_horovod_rounds *rounds,
                                                         uint32_t rank_before, const char *host,
                                                         uint32_t local_rank)
{
    uint32_t rank = rank_before != MUSTER_HOROVOD_NONE
                        ? find_before(&rounds->running, rank_before)
                        : find_slot(&rounds->running, host, local_rank);
    if (rank == MUSTER_HOROVOD_NONE ||
        (rank_before == MUSTER_HOROVOD_NONE &&
         rounds->running.slots[rank].before != MUSTER_HOROVOD_NONE)) {
        return (struct muster_horovod_ranks){.rank = MUSTER_HOROVOD_NONE};
    }
    return muster_horovod_round_ranks(&rounds->running, &rounds->running.slots[rank]);
}
