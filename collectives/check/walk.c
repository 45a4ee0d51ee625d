/* The walk: matches sends with receives, then runs the rounds of all lanes. */
#include "collectives/check/walk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/schedule/group_step.h"
#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* Matching ------------------------------------------------------------------------------------ */

/* The receiving end of a message. */
struct end {
    size_t number; /* of the step, among those of all ranks */
    const struct muster_step *step;
    uint32_t receiver;
};

struct ends {
    struct end *receives;  /* of all ranks: by sender, then by receiver, then in schedule order */
    size_t *first;         /* [ranks + 1] the first one of each sender */
    size_t *next, *behind; /* [ranks] while a sender is matched: its next receive at each rank, and
                              the one behind its last */
};

static bool is_receive(const struct muster_step *step)
{
    return muster_step_is_message(step) && step->kind != MUSTER_STEP_SEND;
}

static void count_receives(const struct muster_walk *walk, struct ends *ends)
{
    for (uint32_t rank = 0; rank < walk->ranks; rank++) {
        const struct muster_schedule *schedule = &walk->schedules[rank];
        for (size_t i = 0; i < schedule->step_count; i++) {
            if (is_receive(&schedule->steps[i])) {
                ends->first[schedule->steps[i].peer + 1]++;
            }
        }
    }
    for (uint32_t rank = 0; rank < walk->ranks; rank++) {
        ends->first[rank + 1] += ends->first[rank];
    }
}

/* Receivers are listed in the order of ranks, so each sender's list has that order. */
static void collect_receives(const struct muster_walk *walk, struct ends *ends)
{
    memcpy(ends->next, ends->first, walk->ranks * sizeof *ends->next);
    for (uint32_t rank = 0; rank < walk->ranks; rank++) {
        const struct muster_schedule *schedule = &walk->schedules[rank];
        for (size_t i = 0; i < schedule->step_count; i++) {
            const struct muster_step *step = &schedule->steps[i];
            if (is_receive(step)) {
                ends->receives[ends->next[step->peer]++] = (struct end){
                    .number = walk->first_step[rank] + i, .step = step, .receiver = rank};
            }
        }
    }
}

static muster_status unmatched_send(uint32_t sender, const struct muster_step *step)
{
    return muster_error_set(MUSTER_INVALID,
                            "rank %" PRIu32 " lane %u: sends to rank %" PRIu32
                            " more often than it receives",
                            sender, step->lane, step->peer);
}

static muster_status unmatched_receive(const struct end *end)
{
    return muster_error_set(MUSTER_INVALID,
                            "rank %" PRIu32 " lane %u: receives from rank %" PRIu32
                            " more often than it sends",
                            end->receiver, end->step->lane, end->step->peer);
}

/* Matches a send with the sender's next receive at that peer. Both sides are in the order of lanes,
 * so a different lane means that one of the two has no partner. */
static muster_status match_send(uint32_t sender, const struct muster_step *step, size_t number,
                                struct ends *ends, size_t *ret_matches)
{
    if (ends->next[step->peer] == ends->behind[step->peer]) {
        return unmatched_send(sender, step);
    }
    const struct end *end = &ends->receives[ends->next[step->peer]++];
    if (end->step->lane != step->lane) { /* one of the two has no partner in its lane */
        return step->lane < end->step->lane ? unmatched_send(sender, step) : unmatched_receive(end);
    }
    if (end->step->span.count != step->span.count) {
        return muster_error_set(MUSTER_INVALID,
                                "rank %" PRIu32 " lane %u: sends %" PRIu64
                                " elements to rank %" PRIu32 ", which receives %" PRIu64,
                                sender, step->lane, step->span.count, step->peer,
                                end->step->span.count);
    }
    ret_matches[number] = end->number;
    ret_matches[end->number] = number;
    return MUSTER_OK;
}

/* Finds the range of the sender's receives at each rank, for match_send(). */
static void index_receives(uint32_t sender, struct ends *ends)
{
    for (size_t i = ends->first[sender]; i < ends->first[sender + 1]; i++) {
        uint32_t receiver = ends->receives[i].receiver;
        ends->next[receiver] = ends->behind[receiver] == 0 ? i : ends->next[receiver];
        ends->behind[receiver] = i + 1;
    }
}

/* Resets the ranges; all receives must have been matched. */
static muster_status clear_receives(uint32_t sender, struct ends *ends)
{
    for (size_t i = ends->first[sender]; i < ends->first[sender + 1]; i++) {
        uint32_t receiver = ends->receives[i].receiver;
        if (ends->next[receiver] < ends->behind[receiver]) {
            return unmatched_receive(&ends->receives[ends->next[receiver]]);
        }
        ends->next[receiver] = ends->behind[receiver] = 0;
    }
    return MUSTER_OK;
}

/* A rank's sends to one receiver are ordered by lane, like the receiver's list. */
static muster_status match_sends(const struct muster_walk *walk, uint32_t rank, struct ends *ends)
{
    const struct muster_schedule *schedule = &walk->schedules[rank];
    index_receives(rank, ends);
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        if (step->kind == MUSTER_STEP_SEND) {
            TRY(match_send(rank, step, walk->first_step[rank] + i, ends, walk->matches));
        }
    }
    return clear_receives(rank, ends);
}

/* Fills walk->matches: for each message the number of the step at its other end. Lists all receives
 * by sender and receiver, and takes them from the lists in the order of the sends. */
static muster_status match(struct muster_walk *walk)
{
    size_t steps = walk->first_step[walk->ranks];
    AUTO_FREE size_t *first = calloc((size_t)walk->ranks + 1, sizeof *first);
    AUTO_FREE size_t *next = calloc((size_t)walk->ranks + 1, sizeof *next);
    AUTO_FREE size_t *behind = calloc((size_t)walk->ranks + 1, sizeof *behind);
    walk->matches = malloc((steps + 1) * sizeof *walk->matches);
    if (first == NULL || next == NULL || behind == NULL || walk->matches == NULL) {
        return muster_error_set(MUSTER_FATAL, "walk: no memory for %zu steps", steps);
    }
    memset(walk->matches, 0xff, steps * sizeof *walk->matches); /* SIZE_MAX */
    struct ends ends = {.first = first, .next = next, .behind = behind};
    count_receives(walk, &ends);
    AUTO_FREE struct end *receives = calloc(first[walk->ranks] + 1, sizeof *receives);
    if (receives == NULL) {
        return muster_error_set(MUSTER_FATAL, "walk: no memory for %zu messages",
                                first[walk->ranks]);
    }
    ends.receives = receives;
    collect_receives(walk, &ends);
    memset(next, 0, walk->ranks * sizeof *next);
    for (uint32_t rank = 0; rank < walk->ranks; rank++) {
        TRY(match_sends(walk, rank, &ends));
    }
    return MUSTER_OK;
}

/* Group steps --------------------------------------------------------------------------------- */

static bool comes_before(const struct muster_step *one, const struct muster_step *other)
{
    return one->round != other->round ? one->round < other->round : one->lane < other->lane;
}

/* Sorts a rank's group steps by round, then by lane; those of a lane are in order already. */
static void sort_group_steps(const struct muster_schedule *schedule, size_t *steps, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        size_t moved = steps[i];
        size_t at = i;
        while (at > 0 && comes_before(&schedule->steps[moved], &schedule->steps[steps[at - 1]])) {
            steps[at] = steps[at - 1];
            at--;
        }
        steps[at] = moved;
    }
}

static muster_status list_group_steps(struct muster_walk *walk)
{
    size_t count = 0;
    for (uint32_t rank = 0; rank < walk->ranks; rank++) {
        for (size_t i = 0; i < walk->schedules[rank].step_count; i++) {
            count += muster_step_is_group(&walk->schedules[rank].steps[i]) ? 1 : 0;
        }
        walk->first_group[rank + 1] = count;
    }
    walk->group_steps = calloc(count + 1, sizeof *walk->group_steps);
    if (walk->group_steps == NULL) {
        return muster_error_set(MUSTER_FATAL, "walk: no memory for %zu group steps", count);
    }
    count = 0;
    for (uint32_t rank = 0; rank < walk->ranks; rank++) {
        for (size_t i = 0; i < walk->schedules[rank].step_count; i++) {
            if (muster_step_is_group(&walk->schedules[rank].steps[i])) {
                walk->group_steps[count++] = i;
            }
        }
        size_t first = walk->first_group[rank];
        sort_group_steps(&walk->schedules[rank], &walk->group_steps[first], count - first);
    }
    return MUSTER_OK;
}

muster_status muster_walk_init(const struct muster_schedule *schedules, uint32_t ranks,
                               struct muster_walk *ret_walk)
{
    struct muster_walk walk = {.schedules = schedules, .ranks = ranks};
    walk.first_step = calloc((size_t)ranks + 1, sizeof *walk.first_step);
    walk.first_lane = calloc((size_t)ranks + 1, sizeof *walk.first_lane);
    walk.first_group = calloc((size_t)ranks + 1, sizeof *walk.first_group);
    muster_status status = MUSTER_OK;
    if (walk.first_step == NULL || walk.first_lane == NULL || walk.first_group == NULL) {
        status = muster_error_set(MUSTER_FATAL, "walk: no memory for %" PRIu32 " ranks", ranks);
    } else {
        for (uint32_t rank = 0; rank < ranks; rank++) {
            walk.first_step[rank + 1] = walk.first_step[rank] + schedules[rank].step_count;
            walk.first_lane[rank + 1] = walk.first_lane[rank] + schedules[rank].lanes;
        }
        status = match(&walk);
        status = status == MUSTER_OK ? list_group_steps(&walk) : status;
    }
    if (status != MUSTER_OK) {
        muster_walk_finish(&walk);
        return status;
    }
    *ret_walk = walk;
    return MUSTER_OK;
}

void muster_walk_finish(struct muster_walk *walk)
{
    if (walk != NULL) {
        free(walk->first_step);
        free(walk->first_lane);
        free(walk->first_group);
        free(walk->group_steps);
        free(walk->matches);
        *walk = (struct muster_walk){0};
    }
}

/* Running ------------------------------------------------------------------------------------- */

/* The progress of one lane of one rank. */
struct lane {
    const struct muster_step *next; /* first step of the next round: those before are posted */
    const struct muster_step *end;  /* behind the lane's last step */
    size_t number;                  /* of `next` among the steps of all ranks */
    size_t pending;                 /* steps of the current round that are not done */
    uint32_t rank;
};

struct run {
    const struct muster_walk *walk;
    const struct muster_walk_visitor *visitor;
    struct lane *lanes;
    size_t lane_count;
    size_t *queue; /* [lane_count] lanes whose round has ended; a ring */
    size_t queue_head, queue_used;
    size_t *group_next;               /* [ranks] entry of walk->group_steps */
    struct muster_walk_step *members; /* [ranks] of the group step that is tried */
};

static struct muster_walk_step locate(const struct run *run, uint32_t rank,
                                      const struct muster_step *step)
{
    return (struct muster_walk_step){
        .rank = rank, .lane_number = run->walk->first_lane[rank] + step->lane, .step = step};
}

/* The other end of the message. */
static struct muster_walk_step locate_peer(const struct run *run, const struct muster_step *step,
                                           size_t number)
{
    size_t index = run->walk->matches[number] - run->walk->first_step[step->peer];
    return locate(run, step->peer, &run->walk->schedules[step->peer].steps[index]);
}

static bool is_posted(const struct run *run, const struct muster_walk_step *where)
{
    return where->step < run->lanes[where->lane_number].next;
}

static void step_done(struct run *run, size_t lane_number)
{
    if (--run->lanes[lane_number].pending == 0) {
        size_t at = run->queue_head + run->queue_used++;
        run->queue[at < run->lane_count ? at : at - run->lane_count] = lane_number;
    }
}

/* A message passes when the later one of its ends is posted. */
static muster_status post(struct run *run, uint32_t rank, const struct muster_step *step,
                          size_t number)
{
    struct muster_walk_step here = locate(run, rank, step);
    if (muster_step_is_group(step)) {
        return MUSTER_OK; /* when the whole round is posted */
    }
    if (!muster_step_is_message(step)) {
        TRY(run->visitor->visit_local(run->visitor->user, &here));
        step_done(run, here.lane_number);
        return MUSTER_OK;
    }
    struct muster_walk_step there = locate_peer(run, step, number);
    if (!is_posted(run, &there)) {
        return MUSTER_OK;
    }
    bool sends = step->kind == MUSTER_STEP_SEND;
    TRY(run->visitor->visit_message(run->visitor->user, sends ? &here : &there,
                                    sends ? &there : &here));
    step_done(run, here.lane_number);
    step_done(run, there.lane_number);
    return MUSTER_OK;
}

/* The group step that the rank performs next, if it has come to it. */
static bool find_group_step(const struct run *run, uint32_t rank,
                            struct muster_walk_step *ret_where)
{
    size_t next = run->group_next[rank];
    if (next == run->walk->first_group[rank + 1]) {
        return false;
    }
    *ret_where = locate(run, rank, &run->walk->schedules[rank].steps[run->walk->group_steps[next]]);
    return is_posted(run, ret_where);
}

static const struct muster_step_group *group_of(const struct run *run,
                                                const struct muster_walk_step *where)
{
    return &run->walk->schedules[where->rank].groups[where->step->scope];
}

static bool is_same_group(const struct muster_step_group *one,
                          const struct muster_step_group *other)
{
    return one->first == other->first && one->count == other->count &&
           (one->stride == other->stride || one->count == 1);
}

/* All members call as this one does, and name the same root. */
static muster_status check_members(const struct muster_walk_step *own,
                                   const struct muster_walk_step *members, uint32_t count)
{
    const struct muster_step *first = own->step;
    for (uint32_t i = 0; i < count; i++) {
        const struct muster_step *step = members[i].step;
        if (step->kind != first->kind || step->span.count != first->span.count ||
            step->blocks != first->blocks || step->together != first->together ||
            (muster_step_has_root(step) && step->peer != first->peer)) {
            return muster_error_set(MUSTER_INVALID,
                                    "rank %" PRIu32 " lane %u round %" PRIu32
                                    ": another group step than that of rank %" PRIu32,
                                    members[i].rank, step->lane, step->round, own->rank);
        }
    }
    return MUSTER_OK;
}

/* Performs the next group step of this rank if all its members have come to it; and then those
 * that only waited for this one. */
static muster_status try_group_step(struct run *run, uint32_t rank)
{
    struct muster_walk_step own;
    if (!find_group_step(run, rank, &own)) {
        return MUSTER_OK;
    }
    const struct muster_step_group *group = group_of(run, &own);
    for (uint32_t i = 0; i < group->count; i++) {
        struct muster_walk_step *member = &run->members[i];
        if (!find_group_step(run, muster_step_group_rank(group, i), member) ||
            !is_same_group(group, group_of(run, member))) {
            return MUSTER_OK;
        }
    }
    TRY(check_members(&own, run->members, group->count));
    TRY(run->visitor->visit_group(run->visitor->user, run->members, group->count));
    for (uint32_t i = 0; i < group->count; i++) {
        run->group_next[run->members[i].rank]++;
        step_done(run, run->members[i].lane_number);
    }
    for (uint32_t i = 0; i < group->count; i++) {
        TRY(try_group_step(run, muster_step_group_rank(group, i)));
    }
    return MUSTER_OK;
}

/* Posts the next round of a lane, if there is one. */
static muster_status enter_round(struct run *run, size_t lane_number)
{
    struct lane *lane = &run->lanes[lane_number];
    const struct muster_step *first = lane->next;
    if (first == lane->end) {
        return MUSTER_OK;
    }
    while (lane->next < lane->end && lane->next->round == first->round) {
        lane->next++;
    }
    lane->pending = (size_t)(lane->next - first);
    for (const struct muster_step *step = first; step < lane->next; step++) {
        TRY(post(run, lane->rank, step, lane->number++));
    }
    return try_group_step(run, lane->rank);
}

static void find_lanes(struct run *run)
{
    for (uint32_t rank = 0; rank < run->walk->ranks; rank++) {
        const struct muster_schedule *schedule = &run->walk->schedules[rank];
        size_t index = 0;
        for (uint32_t i = 0; i < schedule->lanes; i++) {
            struct lane *lane = &run->lanes[run->walk->first_lane[rank] + i];
            *lane = (struct lane){.next = &schedule->steps[index],
                                  .number = run->walk->first_step[rank] + index,
                                  .rank = rank};
            while (index < schedule->step_count && schedule->steps[index].lane == i) {
                index++;
            }
            lane->end = &schedule->steps[index];
        }
    }
}

/* Whether the group step, which its rank has come to, is not performed. */
static bool waits_for_group(const struct run *run, uint32_t rank, const struct muster_step *step)
{
    const struct muster_walk *walk = run->walk;
    for (size_t i = run->group_next[rank]; i < walk->first_group[rank + 1]; i++) {
        if (&walk->schedules[rank].steps[walk->group_steps[i]] == step) {
            return true;
        }
    }
    return false;
}

static bool waits(const struct run *run, uint32_t rank, const struct muster_step *step,
                  size_t number)
{
    if (!muster_step_is_message(step)) {
        return muster_step_is_group(step) && waits_for_group(run, rank, step);
    }
    struct muster_walk_step there = locate_peer(run, step, number);
    return !is_posted(run, &there);
}

/* MUSTER_INVALID if a lane has not finished: names one of its steps whose other end is not posted.
 */
static muster_status check_finished(const struct run *run)
{
    for (size_t i = 0; i < run->lane_count; i++) {
        const struct lane *lane = &run->lanes[i];
        if (lane->pending == 0) {
            continue;
        }
        const struct muster_step *step = lane->next - 1;
        size_t number = lane->number - 1;
        while (!waits(run, lane->rank, step, number)) {
            step--; /* a step of this round is pending, so one of them waits */
            number--;
        }
        if (muster_step_is_group(step)) {
            return muster_error_set(MUSTER_INVALID,
                                    "rank %" PRIu32 " lane %u round %" PRIu32
                                    ": deadlock: waits for its group for ever",
                                    lane->rank, step->lane, step->round);
        }
        return muster_error_set(
            MUSTER_INVALID,
            "rank %" PRIu32 " lane %u round %" PRIu32 ": deadlock: %s rank %" PRIu32 " for ever",
            lane->rank, step->lane, step->round,
            step->kind == MUSTER_STEP_SEND ? "sends to" : "receives from", step->peer);
    }
    return MUSTER_OK;
}

static muster_status run_all(struct run *run)
{
    for (size_t lane = 0; lane < run->lane_count; lane++) {
        TRY(enter_round(run, lane));
    }
    while (run->queue_used > 0) {
        size_t lane = run->queue[run->queue_head];
        run->queue_head = run->queue_head + 1 < run->lane_count ? run->queue_head + 1 : 0;
        run->queue_used--;
        TRY(run->visitor->visit_round_end(run->visitor->user, run->lanes[lane].rank, lane));
        TRY(enter_round(run, lane));
    }
    return check_finished(run);
}

muster_status muster_walk_run(const struct muster_walk *walk,
                              const struct muster_walk_visitor *visitor)
{
    size_t lane_count = walk->first_lane[walk->ranks];
    AUTO_FREE struct lane *lanes = calloc(lane_count + 1, sizeof *lanes);
    AUTO_FREE size_t *queue = calloc(lane_count + 1, sizeof *queue);
    AUTO_FREE size_t *group_next = malloc(walk->ranks * sizeof *group_next);
    AUTO_FREE struct muster_walk_step *members = calloc(walk->ranks, sizeof *members);
    if (lanes == NULL || queue == NULL || group_next == NULL || members == NULL) {
        return muster_error_set(MUSTER_FATAL, "walk: no memory for %zu lanes", lane_count);
    }
    struct run run = {.walk = walk,
                      .visitor = visitor,
                      .lanes = lanes,
                      .lane_count = lane_count,
                      .queue = queue,
                      .group_next = group_next,
                      .members = members};
    memcpy(group_next, walk->first_group, walk->ranks * sizeof *group_next);
    find_lanes(&run);
    return run_all(&run);
}
