/* Proves that no rank leaves a barrier before all have entered, by following what each lane can
 * know. */
#include "collectives/check/check_parts.h"

#include <inttypes.h>
#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* For each lane of each rank: the set of ranks that it knows to have entered. */
struct knowledge {
    const struct muster_walk *walk;
    size_t words;         /* of 64 bits, in one set */
    uint64_t *known;      /* before the lane's current round */
    uint64_t *with_round; /* so far, with what the current round received */
};

static void join(uint64_t *into, const uint64_t *from, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        into[i] |= from[i];
    }
}

static muster_status visit_local(void *user, const struct muster_walk_step *local)
{
    (void)user;
    (void)local;
    return MUSTER_OK;
}

/* A message carries what its sender knew when it was posted, and no more. */
static muster_status visit_message(void *user, const struct muster_walk_step *send,
                                   const struct muster_walk_step *receive)
{
    struct knowledge *knowledge = user;
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
        for (uint32_t j = 0; j < count; j++) {
            bool learns = step->kind == MUSTER_STEP_GROUP_REDUCE ? members[i].rank == step->peer
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
            uint64_t word = knowledge->known[lane * knowledge->words + other / 64];
            known = known || (word >> (other % 64) & 1) != 0;
        }
        if (!known) {
            return muster_error_set(MUSTER_INVALID,
                                    "rank %" PRIu32 " leaves the barrier before rank %" PRIu32
                                    " has entered",
                                    rank, other);
        }
    }
    return MUSTER_OK;
}

muster_status muster_check_barrier(const struct muster_walk *walk)
{
    size_t lanes = walk->first_lane[walk->ranks];
    size_t words = (walk->ranks + 63) / 64;
    AUTO_FREE uint64_t *known = calloc(lanes * words + 1, sizeof *known);
    AUTO_FREE uint64_t *with_round = calloc(lanes * words + 1, sizeof *with_round);
    if (known == NULL || with_round == NULL) {
        return muster_error_set(MUSTER_FATAL, "check: no memory for %" PRIu32 " ranks",
                                walk->ranks);
    }
    struct knowledge knowledge = {
        .walk = walk, .words = words, .known = known, .with_round = with_round};
    for (uint32_t rank = 0; rank < walk->ranks; rank++) {
        for (size_t lane = walk->first_lane[rank]; lane < walk->first_lane[rank + 1]; lane++) {
            known[lane * words + rank / 64] |= UINT64_C(1) << (rank % 64);
        }
    }
    const struct muster_walk_visitor visitor = {.user = &knowledge,
                                                .visit_local = visit_local,
                                                .visit_message = visit_message,
                                                .visit_group = visit_group,
                                                .visit_round_end = visit_round_end};
    TRY(muster_walk_run(walk, &visitor));
    for (uint32_t rank = 0; rank < walk->ranks; rank++) {
        TRY(check_knows_all(&knowledge, rank));
    }
    return MUSTER_OK;
}
