#include "collectives/walk.h"

#include <inttypes.h>
#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

static bool is_message(const struct muster_step *step)
{
    return step->kind == MUSTER_STEP_SEND || step->kind == MUSTER_STEP_RECV ||
           step->kind == MUSTER_STEP_RECV_REDUCE;
}

/* Matching ------------------------------------------------------------------------------------ */

/* One end of a message. */
struct end {
    uint32_t sender, receiver;
    uint16_t lane;
    uint64_t count;
    size_t step; /* its number among the steps of all ranks */
};

static int compare_channels(const struct end *left, const struct end *right)
{
    if (left->sender != right->sender) {
        return left->sender < right->sender ? -1 : 1;
    }
    if (left->receiver != right->receiver) {
        return left->receiver < right->receiver ? -1 : 1;
    }
    return left->lane == right->lane ? 0 : left->lane < right->lane ? -1 : 1;
}

/* By sender, receiver and lane; then as listed. */
static int compare_ends(const void *left_end, const void *right_end)
{
    const struct end *left = left_end;
    const struct end *right = right_end;
    int channel = compare_channels(left, right);
    if (channel != 0) {
        return channel;
    }
    return left->step == right->step ? 0 : left->step < right->step ? -1 : 1;
}

struct ends {
    struct end *sends, *receives;
    size_t send_count, receive_count;
};

static void collect(const struct muster_walk *walk, struct ends *ret_ends)
{
    for (uint32_t rank = 0; rank < walk->ranks; rank++) {
        const struct muster_schedule *schedule = &walk->schedules[rank];
        for (size_t i = 0; i < schedule->step_count; i++) {
            const struct muster_step *step = &schedule->steps[i];
            struct end end = {
                .lane = step->lane, .count = step->span.count, .step = walk->first_step[rank] + i};
            if (step->kind == MUSTER_STEP_SEND) {
                end.sender = rank;
                end.receiver = step->peer;
                ret_ends->sends[ret_ends->send_count++] = end;
            } else if (is_message(step)) {
                end.sender = step->peer;
                end.receiver = rank;
                ret_ends->receives[ret_ends->receive_count++] = end;
            }
        }
    }
}

static muster_status odd_end(const struct end *end, bool sent)
{
    return muster_error_set(
        MUSTER_INVALID, "rank %" PRIu32 " lane %u: %s rank %" PRIu32 " more often than that one %s",
        sent ? end->sender : end->receiver, end->lane, sent ? "sends to" : "receives from",
        sent ? end->receiver : end->sender, sent ? "receives" : "sends");
}

static muster_status zip(const struct ends *ends, size_t *ret_matches)
{
    for (size_t i = 0; i < ends->send_count || i < ends->receive_count; i++) {
        if (i >= ends->receive_count) {
            return odd_end(&ends->sends[i], true);
        }
        if (i >= ends->send_count) {
            return odd_end(&ends->receives[i], false);
        }
        const struct end *send = &ends->sends[i];
        const struct end *receive = &ends->receives[i];
        int order = compare_channels(send, receive);
        if (order != 0) {
            return order < 0 ? odd_end(send, true) : odd_end(receive, false);
        }
        if (send->count != receive->count) {
            return muster_error_set(MUSTER_INVALID,
                                    "rank %" PRIu32 " lane %u: sends %" PRIu64
                                    " elements to rank %" PRIu32 ", which receives %" PRIu64,
                                    send->sender, send->lane, send->count, send->receiver,
                                    receive->count);
        }
        ret_matches[send->step] = receive->step;
        ret_matches[receive->step] = send->step;
    }
    return MUSTER_OK;
}

static muster_status match(struct muster_walk *walk)
{
    size_t steps = walk->first_step[walk->ranks];
    AUTO_FREE struct end *sends = calloc(steps + 1, sizeof *sends);
    AUTO_FREE struct end *receives = calloc(steps + 1, sizeof *receives);
    walk->matches = calloc(steps + 1, sizeof *walk->matches);
    if (sends == NULL || receives == NULL || walk->matches == NULL) {
        return muster_error_set(MUSTER_FATAL, "walk: no memory for %zu steps", steps);
    }
    for (size_t i = 0; i < steps; i++) {
        walk->matches[i] = SIZE_MAX;
    }
    struct ends ends = {.sends = sends, .receives = receives};
    collect(walk, &ends);
    qsort(sends, ends.send_count, sizeof *sends, compare_ends);
    qsort(receives, ends.receive_count, sizeof *receives, compare_ends);
    return zip(&ends, walk->matches);
}

muster_status muster_walk_init(const struct muster_schedule *schedules, uint32_t ranks,
                               struct muster_walk *ret_walk)
{
    struct muster_walk walk = {.schedules = schedules, .ranks = ranks};
    walk.first_step = calloc((size_t)ranks + 1, sizeof *walk.first_step);
    walk.first_lane = calloc((size_t)ranks + 1, sizeof *walk.first_lane);
    muster_status status = MUSTER_OK;
    if (walk.first_step == NULL || walk.first_lane == NULL) {
        status = muster_error_set(MUSTER_FATAL, "walk: no memory for %" PRIu32 " ranks", ranks);
    } else {
        for (uint32_t rank = 0; rank < ranks; rank++) {
            walk.first_step[rank + 1] = walk.first_step[rank] + schedules[rank].step_count;
            walk.first_lane[rank + 1] = walk.first_lane[rank] + schedules[rank].lanes;
        }
        status = match(&walk);
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
        free(walk->matches);
        *walk = (struct muster_walk){0};
    }
}

/* Running ------------------------------------------------------------------------------------- */

/* Where one lane of one rank is. Step numbers count all ranks' steps. */
struct lane {
    uint32_t rank;
    size_t next;    /* first step of the round to come */
    size_t end;     /* after the lane's last step */
    size_t pending; /* steps of the current round that are not done */
};

struct run {
    const struct muster_walk *walk;
    const struct muster_walk_visitor *visitor;
    struct lane *lanes;
    size_t lane_count;
    bool *posted;  /* [steps] */
    size_t *queue; /* [lane_count] lanes whose round has ended; a ring */
    size_t queue_head, queue_used;
};

static const struct muster_step *step_at(const struct run *run, uint32_t rank, size_t number)
{
    return &run->walk->schedules[rank].steps[number - run->walk->first_step[rank]];
}

static struct muster_walk_step look(const struct run *run, uint32_t rank, size_t number)
{
    const struct muster_step *step = step_at(run, rank, number);
    return (struct muster_walk_step){
        .rank = rank, .lane_number = run->walk->first_lane[rank] + step->lane, .step = step};
}

static void step_done(struct run *run, size_t lane_number)
{
    if (--run->lanes[lane_number].pending == 0) {
        size_t at = run->queue_head + run->queue_used++;
        run->queue[at < run->lane_count ? at : at - run->lane_count] = lane_number;
    }
}

static muster_status post(struct run *run, uint32_t rank, size_t number)
{
    struct muster_walk_step here = look(run, rank, number);
    if (!is_message(here.step)) {
        TRY(run->visitor->visit_local(run->visitor->user, &here));
        step_done(run, here.lane_number);
        return MUSTER_OK;
    }
    size_t other = run->walk->matches[number];
    run->posted[number] = true;
    if (!run->posted[other]) {
        return MUSTER_OK;
    }
    struct muster_walk_step there = look(run, here.step->peer, other);
    bool sends = here.step->kind == MUSTER_STEP_SEND;
    TRY(run->visitor->visit_message(run->visitor->user, sends ? &here : &there,
                                    sends ? &there : &here));
    step_done(run, here.lane_number);
    step_done(run, there.lane_number);
    return MUSTER_OK;
}

/* Posts the next round of a lane, if there is one. */
static muster_status enter_round(struct run *run, size_t lane_number)
{
    struct lane *lane = &run->lanes[lane_number];
    size_t first = lane->next;
    if (first == lane->end) {
        return MUSTER_OK;
    }
    uint32_t round = step_at(run, lane->rank, first)->round;
    while (lane->next < lane->end && step_at(run, lane->rank, lane->next)->round == round) {
        lane->next++;
    }
    lane->pending = lane->next - first;
    for (size_t number = first, last = lane->next; number < last; number++) {
        TRY(post(run, lane->rank, number));
    }
    return MUSTER_OK;
}

static void find_lanes(struct run *run)
{
    for (uint32_t rank = 0; rank < run->walk->ranks; rank++) {
        size_t number = run->walk->first_step[rank];
        for (size_t lane = run->walk->first_lane[rank]; lane < run->walk->first_lane[rank + 1];
             lane++) {
            uint16_t lane_of_rank = (uint16_t)(lane - run->walk->first_lane[rank]);
            run->lanes[lane] = (struct lane){.rank = rank, .next = number};
            while (number < run->walk->first_step[rank + 1] &&
                   step_at(run, rank, number)->lane == lane_of_rank) {
                number++;
            }
            run->lanes[lane].end = number;
        }
    }
}

static bool waits(const struct run *run, uint32_t rank, size_t number)
{
    return is_message(step_at(run, rank, number)) && !run->posted[run->walk->matches[number]];
}

static muster_status say_if_stuck(const struct run *run)
{
    for (size_t i = 0; i < run->lane_count; i++) {
        const struct lane *lane = &run->lanes[i];
        if (lane->pending == 0) {
            continue;
        }
        size_t number = lane->next - 1;
        while (!waits(run, lane->rank, number)) {
            number--; /* a step of this round is pending, so there is one */
        }
        const struct muster_step *step = step_at(run, lane->rank, number);
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
    return say_if_stuck(run);
}

muster_status muster_walk_run(const struct muster_walk *walk,
                              const struct muster_walk_visitor *visitor)
{
    size_t lane_count = walk->first_lane[walk->ranks];
    size_t steps = walk->first_step[walk->ranks];
    AUTO_FREE struct lane *lanes = calloc(lane_count + 1, sizeof *lanes);
    AUTO_FREE bool *posted = calloc(steps + 1, sizeof *posted);
    AUTO_FREE size_t *queue = calloc(lane_count + 1, sizeof *queue);
    if (lanes == NULL || posted == NULL || queue == NULL) {
        return muster_error_set(MUSTER_FATAL, "walk: no memory for %zu steps", steps);
    }
    struct run run = {.walk = walk,
                      .visitor = visitor,
                      .lanes = lanes,
                      .lane_count = lane_count,
                      .posted = posted,
                      .queue = queue};
    find_lanes(&run);
    return run_all(&run);
}
