/*
 * A request: one collective as its caller asks for it; the key by which its operation is cached;
 * and the checks, made before anything is sent: ranges, sizes that overflow, missing buffers,
 * buffers that overlap other than in place. Pure.
 *
 *   request --key--> cached operation     found: only the buffers are checked
 *      |                    ^
 *      +-------check--------+             not found: everything is checked, the operation is made
 */
#ifndef MUSTER_COLLECTIVES_CALL_REQUEST_H
#define MUSTER_COLLECTIVES_CALL_REQUEST_H

#include "collectives/call/compression.h"
#include "collectives/call/launch.h"

struct muster_given_ranges; /* request_ranges.h */

/* Unused fields are 0; a broadcast's data is `out`. Root and count are those of struct
 * muster_shape. */
struct muster_request {
    enum muster_collective collective;
    const void *in;
    void *out;
    uint64_t count;
    /* Instead of in, out and count: several ranges (request_ranges.h), which are to be bound first;
     * or NULL. */
    const struct muster_given_ranges *ranges;
    /* Bound ones: what lies where in and out begin; see struct muster_launch. */
    const struct muster_range_list *in_ranges, *out_ranges;
    /* Instead of count: the elements of each block of a buffer, [ranks], borrowed until the call
     * returns; or NULL. */
    const size_t *in_counts;
    const size_t *out_counts;
    muster_type type;
    muster_op op;
    uint32_t root;
    muster_user_function user_function; /* of op USER */
    void *user_data;
    double prescale, postscale; /* 1: none; 0: none, unless factors_set names it */
    uint32_t factors_set;       /* enum muster_factor */
    /* Several buffers of this rank; `in` and `out` are then the first of them. */
    uint32_t buffer_count;     /* 0: `in` and `out` are all there are */
    const void *const *inputs; /* [buffer_count]; NULL where the collective has no `in` */
    void *const *outputs;      /* [buffer_count] */
    uint64_t contributions;    /* of an average over lists: the buffers of all ranks; else 0 */
    const char *algorithm;     /* by name; NULL: chosen */
    muster_compression compression;
    bool untuned;      /* choose by predicted cost, whatever autotuning has found */
    bool reproducible; /* the result depends on the members' `order` only */
    bool keep_input;   /* promises: see muster_plan */
    bool finish_together;
    uintptr_t stream; /* of the device that has the buffers; 0: none */
    int64_t deadline_ns;
    int32_t priority; /* of its messages on a link: a higher one goes first */
    /* A list of no buffers: a reduction to which this rank adds nothing, and whose result it does
     * not get. `in` and `out` are NULL, and buffer_count is 0. */
    bool no_buffers;
    bool counts_alone; /* the exchange in which the numbers of buffers are added up */
};

/* Whether a call is the one before once more, on the same buffers; only the deadline may differ. */
bool muster_request_repeats(const struct muster_request *request,
                            const struct muster_request *before);

/* Whether its average is over lists of buffers, which may differ in length between the ranks. */
static inline bool muster_request_counts_buffers(const struct muster_request *request)
{
    return (request->buffer_count > 0 || request->no_buffers) && request->op == MUSTER_AVERAGE &&
           muster_collective_reduces(request->collective);
}

/* The factors of the request; 1 where there is none. */
static inline double muster_request_prescale(const struct muster_request *request)
{
    bool set = request->prescale != 0 || (request->factors_set & MUSTER_PRESCALE_SET) != 0;
    return set ? request->prescale : 1;
}
static inline double muster_request_postscale(const struct muster_request *request)
{
    bool set = request->postscale != 0 || (request->factors_set & MUSTER_POSTSCALE_SET) != 0;
    return set ? request->postscale : 1;
}

enum muster_key_flag {
    MUSTER_KEY_IN_PLACE = 1, /* and the schedule depends on it: see muster_plan.in_place */
    MUSTER_KEY_ORDERED = 2,  /* reproducible, and the order of additions matters */
    MUSTER_KEY_UNTUNED = 4,
    MUSTER_KEY_INPUT_BOUNDS = 8,
    MUSTER_KEY_OUTPUT_BOUNDS = 16,
    MUSTER_KEY_NAMED = 32, /* the algorithm is named, not selected */
    MUSTER_KEY_KEEP_INPUT = 64,
    MUSTER_KEY_FINISH_TOGETHER = 128, /* and it needs a closing round */
    MUSTER_KEY_COUNTING_SHIFT = 8,    /* two bits: enum muster_counting */
    MUSTER_KEY_COUNTING = 3 << MUSTER_KEY_COUNTING_SHIFT,
    MUSTER_KEY_COMPRESSION_SHIFT = 10, /* three bits: muster_compression, 0 for none */
    MUSTER_KEY_COMPRESSION = 7 << MUSTER_KEY_COMPRESSION_SHIFT,
    /* Two bits: enum muster_call_memory, which the context fills in. */
    MUSTER_KEY_MEMORY_SHIFT = 13,
    MUSTER_KEY_MEMORY = 3 << MUSTER_KEY_MEMORY_SHIFT,
};

/* Everything of a request that its check and its schedule depend on; buffers, factors, the user's
 * function and the deadline may change from call to call. Without padding, because it is hashed and
 * compared as bytes. */
struct muster_request_key {
    uint64_t count;
    uint32_t collective;
    uint32_t root;
    uint32_t type;
    uint32_t op;
    uint32_t algorithm; /* if MUSTER_KEY_NAMED; else 0 */
    uint32_t buffer_count;
    uint32_t flags; /* enum muster_key_flag */
    uint32_t bound_count;
    uint64_t bounds[]; /* [bound_count] those of the input, then those of the output */
};

/* How many bounds a call of so many ranks has at most. */
#define MUSTER_BOUNDS_MAX(ranks) (2 * ((size_t)(ranks) + 1))

/* ret_key has room for MUSTER_BOUNDS_MAX(ranks) bounds. MUSTER_INVALID: counts that overflow, an
 * algorithm that does not exist. */
MUSTER_CHECKED muster_status muster_request_key(const struct muster_request *request,
                                                uint32_t ranks, struct muster_request_key *ret_key);

/* What the buffers hold on this rank; the bounds are borrowed from the key. */
struct muster_shape muster_request_key_shape(const struct muster_request_key *key, uint32_t rank,
                                             uint32_t ranks);
/* The same of a request, without bounds. */
struct muster_shape muster_request_shape(const struct muster_request *request, uint32_t rank,
                                         uint32_t ranks);

/* How the calls of this key are compressed. */
muster_compression muster_request_key_compression(const struct muster_request_key *key);

/* Checks all that the key holds, and fills the first part of ret_launch and its call, but for
 * algorithm and factors. MUSTER_INVALID names the argument. */
MUSTER_CHECKED muster_status muster_request_check(const struct muster_request_key *key,
                                                  uint32_t rank, uint32_t ranks,
                                                  struct muster_launch *ret_launch);

/* request_buffers.c: checks what the key does not hold: the buffers, the factors, the user's
 * function. MUSTER_INVALID names the argument. */
MUSTER_CHECKED muster_status muster_request_check_buffers(const struct muster_request *request,
                                                          const struct muster_buffer_sizes *sizes);

/* Whether two buffers have a byte in common. */
bool muster_buffers_overlap(const void *one, uint64_t one_bytes, const void *other,
                            uint64_t other_bytes);

#endif
