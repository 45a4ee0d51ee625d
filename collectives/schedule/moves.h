/*
 * Moves: what has to be moved between memory of a device, where the caller's buffers are, and
 * memory of the host, where the steps of a schedule are carried out, and when. INPUT is fetched to
 * the host piece by piece, in the order in which the steps read it; OUTPUT is stored on the device
 * piece by piece, as soon as it is final. So moving overlaps the messages, and what no step reads
 * or writes is not moved.
 *
 * Where the host finishes the results (averages or scales them) before they are stored, an element
 * is stored only when no step reads it any more, since others get what is not finished.
 *
 * In place, too: a schedule never reads INPUT after writing the same elements of OUTPUT, and only
 * elements that a step reads are fetched, so a fetch never comes after a write there.
 */
#ifndef MUSTER_COLLECTIVES_SCHEDULE_MOVES_H
#define MUSTER_COLLECTIVES_SCHEDULE_MOVES_H

#include "collectives/schedule/schedule.h"

/* Zeroed: there are none. */
struct muster_schedule_moves {
    struct muster_span *fetches; /* [fetch_count] of INPUT, in the order in which they are needed */
    size_t fetch_count;
    size_t *needs; /* [step_count] step i may begin when the first needs[i] fetches are complete */
    struct muster_span *stores; /* of OUTPUT, in the order of the steps */
    size_t *stored_by;          /* [step_count + 1] when step i is done, the elements of stores
                                   [stored_by[i], stored_by[i + 1]) are final */
};

/* The moves of one rank's schedule of the shape's call; finishes: as above. Fetches are of at most
 * first_count elements at the beginning, so that the first message leaves early; each may be twice
 * as long as the one before, up to most_count. Pure. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_schedule_moves_plan(const struct muster_shape *shape,
                                                        const struct muster_schedule *schedule,
                                                        bool finishes, uint64_t first_count,
                                                        uint64_t most_count,
                                                        struct muster_schedule_moves *ret_moves);

/* Accepts zeroed storage. */
void muster_schedule_moves_finish(struct muster_schedule_moves *moves);

#endif
