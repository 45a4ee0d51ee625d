/*
 * Muster: each member's part of the data. muster.h includes this header; programs include muster.h.
 *
 * A sampler says which samples of a data set this member uses in the next step, so that after any
 * change of the membership no sample of an epoch is skipped or used twice. It is plain data: how
 * far the job is. Register it with muster_register(), and it goes back to the last commit together
 * with the weights. These functions do not communicate, do not block, and need no session.
 *
 *     muster_sampler_part(&sampler, batch, muster_rank(session, MUSTER_GLOBAL),
 *                         muster_size(session, MUSTER_GLOBAL), &first, &count);
 *     for (uint64_t i = 0; i < count; i++) {
 *         use(data[muster_sampler_index(&sampler, first + i)]);
 *     }
 *     status = muster_allreduce(...);            all members have used their parts
 *     muster_sampler_advance(&sampler, batch);
 *     status = muster_commit(session);           now and then
 */
#ifndef MUSTER_DATA_H
#define MUSTER_DATA_H

#ifndef MUSTER_H
#error "include muster.h, which includes this header"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The same on all members. */
typedef struct muster_sampler {
    uint64_t samples;  /* of the data set, 1 to 2^62 */
    uint64_t seed;     /* of the orders of the epochs */
    uint64_t epoch;    /* from 0 */
    uint64_t position; /* how many samples of this epoch the job has used */
    uint64_t shuffled; /* 1: each epoch has an order of its own; 0: all have that of the data set */
} muster_sampler;

/* The beginning of epoch 0. MUSTER_INVALID: samples is 0 or more than 2^62. */
MUSTER_STATUS muster_sampler_init(muster_sampler *sampler, uint64_t samples, int shuffled,
                                  uint64_t seed);

/* The positions that the member of this rank uses in the next step: *ret_count from *ret_first on.
 * A step is of the next `batch` samples of all members together, or of those that are left in the
 * epoch. Parts differ by one sample at most; at the end of an epoch a member's part may be empty:
 * it then takes part in the step with nothing.
 *
 * Errors: MUSTER_INVALID (batch or size is 0, rank is not below size, or the sampler is not one
 * that muster_sampler_init() has made). */
MUSTER_STATUS muster_sampler_part(const muster_sampler *sampler, uint64_t batch, uint32_t rank,
                                  uint32_t size, uint64_t *ret_first, uint64_t *ret_count);

/* The sample at a position of this epoch, below `samples`. In an epoch each sample has one
 * position; which one follows from seed, epoch and position alone, on every machine. A position
 * that is not below `samples` is its own sample. */
MUSTER_API uint64_t muster_sampler_index(const muster_sampler *sampler, uint64_t position);

/* The step is done. At the end of the epoch the next one begins; a step is of one epoch only. */
MUSTER_API void muster_sampler_advance(muster_sampler *sampler, uint64_t batch);

#ifdef __cplusplus
}
#endif

#endif
