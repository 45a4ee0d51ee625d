/* Proves that no rank finishes, or writes its output, before all ranks have started, by following
 * what each lane can know. */
#include "collectives/check/check_parts.h"

#include <inttypes.h>
#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* For each lane of each rank: the set of ranks that it knows to have started. */
struct knowledge {
    const struct muster_walk *walk;
    size_t words;         /* of 64 bits, in one set */
    uint64_t *known;      /* before the lane's current round */
    uint64_t *with_round; /* so far, with what the current round received */
    bool late_output;     /* OUTPUT is written only by lanes that know of all ranks */
};

static void join(uint64_t *into, const uint64_t *from, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        into[i] |= from[i];
    }
}

static bool knows(const struct knowledge *knowledge, size_t lane_number, uint32_t rank)
{
    return (knowledge->known[lane_number * knowledge->words + rank / 64] >> (rank % 64) & 1) != 0;
}

static muster_status check_writer(const struct knowledge *knowledge,
                                  const struct muster_walk_step *where)
{
    const struct muster_step *step = where->step;
    if (!knowledge->late_output || step->target != MUSTER_OUTPUT || step->span.count == 0) {
        return MUSTER_OK;
    }
    for (uint32_t other = 0; other < knowledge->walk->ranks; other++) {
        if (!knows(knowledge, where->lane_number, other)) {
            return muster_error_set(MUSTER_INVALID,
                                    "rank %" PRIu32 " lane %u round %" PRIu32
                                    ": writes output[%" PRIu64 "] before rank %" PRIu32
                                    " has started",
                                    where->rank, step->lane, step->round, step->at, other);
        }
    }
    return MUSTER_OK;
}

static muster_status visit_local(void *user, const struct muster_walk_step *local)
{
    return check_writer(user, local);
}

/* A message carries what its sender knew when it was posted, and no more. */
static muster_status visit_message(void *user, const struct muster_walk_step *send,
                                   const struct muster_walk_step *receive)
{
    struct knowledge *knowledge = user;
    TRY(check_writer(knowledge, receive));
    join(&knowledge->with_round[receive->lane_number * knowledge->words],
         &knowledge->known[send->lane_number * knowledge->words], knowledge->words);
    return MUSTER_OK;
}

/* After it every member that gets something of another one knows what that one knew. */
static muster_status visit_group(void *user, const struct muster_walk_step *members, uint32_t count)
{
    struct knowledge *knowledge = user;
    for (uint32_t i = 0; i < count; i++) {
        const struct muster_step *step = members[i].step;
        TRY(check_writer(knowledge, &members[i]));
        for (uint32_t j = 0; j < count; j++) {
            bool learns = step->together == 1                      ? true
                          : step->kind == MUSTER_STEP_GROUP_REDUCE ? members[i].rank == step->peer
                          : step->kind == MUSTER_STEP_GROUP_BROADCAST
                              ? members[j].rank == step->peer
                              : true;
            if (learns) {
                join(&knowledge->with_round[members[i].lane_number * knowledge->words],
                     &knowledge->known[members[j].lane_number * knowledge->words],
                     knowledge->words);
            }
        }
    }
    return MUSTER_OK;
}

static muster_status visit_round_end(void *user, uint32_t rank, size_t lane_number)
{
    (void)rank;
    struct knowledge *knowledge = user;
    size_t at = lane_number * knowledge->words;
    join(&knowledge->known[at], &knowledge->with_round[at], knowledge->words);
    return MUSTER_OK;
}

static muster_status check_knows_all(const struct knowledge *knowledge, uint32_t rank)
{
    const struct muster_walk *walk = knowledge->walk;
    for (uint32_t other = 0; other < walk->ranks; other++) {
        bool known = other == rank;
        for (size_t lane = walk->first_lane[rank]; lane < walk->first_lane[rank + 1]; lane++) {
            known = known || knows(knowledge, lane, other);
        }
        if (!known) {
            return muster_error_set(MUSTER_INVALID,
                                    "rank %" PRIu32 " finishes before rank %" PRIu32 " has started",
                                    rank, other);
        }
    }
    return MUSTER_OK;
}

static void know_oneself(const struct knowledge *knowledge)
{
    const struct muster_walk *walk = knowledge->walk;
    for (uint32_t rank = 0; rank < walk->ranks; rank++) {
        for (size_t lane = walk->first_lane[rank]; lane < walk->first_lane[rank + 1]; lane++) {
            knowledge->known[lane * knowledge->words + rank / 64] |= UINT64_C(1) << (rank % 64);
        }
    }
}

static muster_status follow(const struct muster_walk *walk, bool late_output)
{
    size_t lanes = walk->first_lane[walk->ranks];
    size_t words = (walk->ranks + 63) / 64;
    AUTO_FREE uint64_t *known = calloc(lanes * words + 1, sizeof *known);
    AUTO_FREE uint64_t *with_round = calloc(lanes * words + 1, sizeof *with_round);
    if (known == NULL || with_round == NULL) {
        return muster_error_set(MUSTER_FATAL, "check: no memory for %" PRIu32 " ranks",
                                walk->ranks);
    }
    struct knowledge knowledge = {.walk = walk,
                                  .words = words,
                                  .known = known,
                                  .with_round = with_round,
                                  .late_output = late_output};
    know_oneself(&knowledge);
    const struct muster_walk_visitor visitor = {.user = &knowledge,
                                                .visit_local = visit_local,
                                                .visit_message = visit_message,
                                                .visit_group = visit_group,
                                                .visit_round_end = visit_round_end};
    TRY(muster_walk_run(walk, &visitor));
    for (uint32_t rank = 0; !late_output && rank < walk->ranks; rank++) {
        TRY(check_knows_all(&knowledge, rank));
    }
    return MUSTER_OK;
}

muster_status muster_check_barrier(const struct muster_walk *walk)
{
    return follow(walk, false);
}

muster_status muster_check_late_output(const struct muster_walk *walk)
{
    return follow(walk, true);
}
