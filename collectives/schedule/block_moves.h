/*
 * Blocks in another order: a schedule counts ranks so that those of a host follow each other, while
 * its caller may number them otherwise, and lays out the blocks of a buffer in that other order.
 * Where no message holds blocks that are apart at the caller's, the schedule is rewritten, and
 * nothing is copied. Pure.
 *
 * May use: call, base.
 */
#ifndef MUSTER_COLLECTIVES_SCHEDULE_BLOCK_MOVES_H
#define MUSTER_COLLECTIVES_SCHEDULE_BLOCK_MOVES_H

#include "collectives/schedule/schedule.h"

/* Where the blocks of one buffer lie. Block i of the schedule is [from[i], from[i + 1]), and begins
 * at to[i] in the caller's buffer. */
struct muster_block_moves {
    uint32_t blocks; /* 0: the buffer has none, or all are where the schedule has them */
    uint64_t *from;  /* owned [blocks + 1] */
    uint64_t *to;    /* owned [blocks] */
};

/* from, to: room for these blocks, zeroed. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_block_moves_init(uint32_t blocks,
                                                     struct muster_block_moves *ret_moves);

/* Accepts zeroed storage. */
void muster_block_moves_finish(struct muster_block_moves *moves);

/* A piece of the schedule's buffer that is one piece at the caller's, too. */
struct muster_moved_piece {
    uint64_t at;    /* where it begins in the caller's buffer */
    uint64_t count; /* elements until the next one lies elsewhere, at most those asked for */
};

/* The piece at the beginning of the span. */
struct muster_moved_piece muster_block_moves_piece(const struct muster_block_moves *moves,
                                                   struct muster_span span);

/* Whether each message of the schedule is one piece of this buffer: then the schedule can be
 * rewritten. True where moves->blocks is 0. */
bool muster_block_moves_fit(const struct muster_block_moves *moves,
                            const struct muster_schedule *schedule, enum muster_buffer buffer);

/* Rewrites the schedule for the caller's INPUT and OUTPUT; the moves of each fit, or have no
 * blocks. Messages stay what they are, so each rank may decide for itself. A local step is cut into
 * pieces where it must be. MUSTER_FATAL: no memory; the schedule is unchanged then. */
MUSTER_CHECKED muster_status muster_block_moves_apply(const struct muster_block_moves *input,
                                                      const struct muster_block_moves *output,
                                                      struct muster_schedule *schedule);

#endif
