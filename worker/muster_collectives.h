/*
 * Muster: the collectives. muster.h includes this header; programs include muster.h.
 *
 * What muster.h says of errors, threads, blocking and buffers holds here, too.
 */
#ifndef MUSTER_COLLECTIVES_H
#define MUSTER_COLLECTIVES_H

#ifndef MUSTER_H
#error "include muster.h, which includes this header"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Bits of muster_call_options.factors_set. */
typedef enum muster_factor {
    MUSTER_PRESCALE_SET = 1,
    MUSTER_POSTSCALE_SET = 2,
} muster_factor;

/* Options of one call; NULL means all defaults. All members must give the same values, except for
 * timeout_ms, user_function, user_data and priority. `size` is as in muster_options; a call whose
 * options lack it is MUSTER_INVALID. */
typedef struct muster_call_options {
    /* sizeof(muster_call_options); muster_call_options_init() sets it. */
    size_t size;
    /* A name that `muster plan --list` prints. NULL: the session's option `algorithm`, or chosen.
     */
    const char *algorithm;
    /* 0: the session's call_timeout_ms. */
    uint32_t timeout_ms;
    /* 1: floats are added in the order of the members' `order` options; of their ranks, where those
     * are equal. The same members' data then give the same bits, whatever their ranks and hosts and
     * whatever the algorithm. A named algorithm that cannot do that is MUSTER_INVALID. 0: as the
     * session's option says. */
    int reproducible;
    /* Scale factors of reductions: out = postscale x op(prescale x in). 0 means none, unless
     * factors_set says otherwise. */
    double prescale;
    double postscale;
    /* For MUSTER_USER; must compute the same on all members. user_data is passed to it. */
    muster_user_function user_function;
    void *user_data;
    /* MUSTER_PRESCALE_SET, MUSTER_POSTSCALE_SET or both: the factor counts as it stands, 0
     * included. Default: 0. */
    uint32_t factors_set;
    /* Where several operations are in flight, the bytes of one with a higher priority go before
     * those of others: an urgent one passes a long one at the next segment of 256 KiB at most. May
     * differ between members. What members of one host perform in shared memory keeps its order,
     * unless an algorithm of messages is named. Default: 0. */
    int32_t priority;
    /* 1: a call in place overwrites an element of its input only with the result, and none before
     * all members have made the call. So if it fails on MUSTER_REJOIN, each element is either what
     * it was or the result, on each member independently; in a reduction no element is lost, as
     * either a remaining member has its result or all of them have their inputs. (The result is
     * that before the quotient of AVERAGE and postscale.) Which elements are which is not told: who
     * wants to repeat the call on the remaining members copies the input before. It takes scratch
     * memory of up to the call's size. Out of place the input is unchanged anyway, and nothing is
     * promised about the output. 0: a call in place that fails leaves its buffer undefined. */
    int keep_input;
    /* 1: the call returns MUSTER_OK on no member before all members have made it. That is so anyway
     * in allreduce, reduce_scatter, allgather(v), alltoall(v) and barrier; broadcast, reduce,
     * gather(v) and scatter get a few empty messages more. 0: some members may finish earlier. */
    int finish_together;
    /* Compresses this call, which must be one that can be compressed; see below. */
    muster_compression compression;
    uint32_t reserved; /* 0 */
    /* A stream of CUDA (a CUstream or cudaStream_t; CU_STREAM_LEGACY for CUDA's default stream), of
     * the GPU that has the buffers. The call takes its input when the stream has produced it,
     * returns when it is enqueued, and work that the program puts on the stream later comes after
     * the result. See "Streams" below. NULL: no stream. May differ between members. */
    void *stream;
} muster_call_options;

/* muster_call_options_init(muster_call_options *options) fills in the size and all defaults, which
 * are 0 or NULL: `muster_call_options options = {.size = sizeof options}` does the same. */
MUSTER_API void muster_call_options_init_sized(muster_call_options *options, size_t size);
#define muster_call_options_init(options) \
    muster_call_options_init_sized((options), sizeof(muster_call_options))

/* Scale factors are for SUM, AVERAGE, PROD, MIN, MAX and USER of numbers, and must be finite. The
 * result is that of these steps, each of which rounds to the element type:
 *   1. this member's input times prescale; if it has several buffers, their reduction;
 *   2. the reduction of all members' results;
 *   3. for AVERAGE, the quotient by the number of inputs; then times postscale.
 * 16-bit floats are float32 within a step and rounded at its end. Floats are multiplied by the
 * factor rounded to float32 (float64: by the factor itself). Integers are multiplied in float64 and
 * truncated toward zero (64-bit integers beyond 2^53 are rounded to float64 first); a result
 * outside the type becomes its nearest end. AVERAGE of integers truncates the quotient before
 * postscale. A SUM of 16-bit floats may overflow where the average would not: use a prescale of
 * 1/size then. */

/* Compression is for allreduce, reduce_scatter and allgather of float32, with SUM, AVERAGE, MIN or
 * MAX, that are not reproducible. Elements are encoded before they are sent and decoded when they
 * arrive; what is sent on is the same bytes. All members get the same bits. A call is compressed
 * only where the cost model says that it is faster so, or where the call names its algorithm; never
 * in memory that members share. The same inputs, algorithm and members give the same result.
 * Calls on several ranges, with a kept input, in any order of ranks, in flight and persistent are
 * compressed just the same; memory of a device is copied to the host first.
 *
 * Error bound of an element of P members: A x ((1 + u)^P - 1), about A x u x P.
 *   bfloat16  u = 2^-8, A the sum of the magnitudes of the members' inputs
 *   float16   u = 2^-11, the same, for values up to 65,504; and P x 2^-25 besides
 *   int8      u = 1/253, A the sum over members of the largest magnitude of their inputs among the
 *             240 elements that share the scale
 * In an allgather P is 1 and A of the one member. AVERAGE and postscale come after decoding and
 * scale the bound, too. A NaN or an infinity makes all elements with the same int8 scale NaN;
 * magnitudes that are all below 2^-110 become 0 there. */

/* The following holds for all collectives.
 *
 * Blocking: a call blocks until this member's part is done.
 *
 * Buffers belong to the caller and need only the alignment of their type. Each function says where
 * input and output may be the same memory (in place); other overlaps are MUSTER_INVALID. A buffer
 * without elements on this member may be NULL. On failure the output is undefined, and the input is
 * unchanged unless the call was in place without keep_input.
 *
 * GPU memory: each buffer may be memory of the host or of a CUDA device, on each member
 * independently; but where NCCL performs the call (worker/SETTINGS.md), the buffers of all members
 * are on GPUs, or the call is MUSTER_INVALID on all of them. User functions get memory of the host.
 * The input must be complete when the call is made: the call waits for CUDA's default stream; the
 * caller waits for other streams. The output is complete when the call returns. MUSTER_FATAL: a
 * copy failed; the error is CUDA's.
 *
 * Streams: with a stream a call does not block, but for a short time to enqueue it, and where it
 * scales its input, takes several buffers, or is compressed: then until the stream has produced the
 * input. It is then an operation in flight without a handle, in the order of the members' calls in
 * flight (muster_operations.h); with a _start form there is a handle, too. All members make such
 * calls in the same order; streams of two members that are threads of one process and use one GPU
 * may block each other there. The buffers are the
 * caller's again when the stream has come past the call. If it fails later, the stream goes on, the
 * output is undefined, and every later call of the scope returns the error, until
 * muster_rejoin(). timeout_ms counts from the call. MUSTER_INVALID: a buffer that is not memory of
 * the stream's GPU, a list of ranges, or a stream that does not exist.
 *
 * Counts are elements, may be 0, and must be the same on all members. An array of counts has
 * muster_size() entries, in the order of ranks, and must be the same on all members, too, except in
 * muster_alltoallv(). The blocks that it describes follow each other without gaps and have at most
 * 2^60 elements together.
 *
 * Errors: MUSTER_INVALID (a bad argument; or the members disagree on collective, counts, type,
 * operation, root or algorithm. The error names the rank and both values, or the checksums of both
 * arrays of counts; every member that takes part gets it), MUSTER_REJOIN (a member died, left, or
 * stalled for longer than the timeout), MUSTER_ENDED, MUSTER_FATAL.
 *
 * Roots: with a root, data flows in one direction. A member that only sends (the root of a
 * broadcast or scatter, the others in a reduce or gather) may return MUSTER_OK before another
 * member notices that the calls disagree. Two members that each name themselves, or each other, as
 * the root of little data may not notice it at all. */

/* out[0..count) = op over all members of in[0..count). The result has the same bits on all members.
 * In place: out == in. */
MUSTER_STATUS muster_allreduce(muster_session *session, muster_scope scope, const void *in,
                               void *out, size_t count, muster_type type, muster_op op,
                               const muster_call_options *options);

/* An allreduce whose result only the root gets; the others' `out` is not used. In place: out == in,
 * at the root. */
MUSTER_STATUS muster_reduce(muster_session *session, muster_scope scope, const void *in, void *out,
                            size_t count, muster_type type, muster_op op, uint32_t root,
                            const muster_call_options *options);

/* `in` has size x count elements; out[0..count) = op over all members of block `rank` of their
 * `in`, `rank` being that of the receiver. In place: out == in + rank x count. */
MUSTER_STATUS muster_reduce_scatter(muster_session *session, muster_scope scope, const void *in,
                                    void *out, size_t count, muster_type type, muster_op op,
                                    const muster_call_options *options);

/* A reduce_scatter with blocks of different sizes: block i has counts[i] elements, and `out` has
 * counts[rank]. In place: out == this rank's block of `in`. */
MUSTER_STATUS muster_reduce_scatterv(muster_session *session, muster_scope scope, const void *in,
                                     void *out, const size_t *counts, muster_type type,
                                     muster_op op, const muster_call_options *options);

/* `out` has size x count elements; its block i = member i's in[0..count). In place: in == out +
 * rank x count. */
MUSTER_STATUS muster_allgather(muster_session *session, muster_scope scope, const void *in,
                               void *out, size_t count, muster_type type,
                               const muster_call_options *options);

/* An allgather with blocks of different sizes: block i has counts[i] elements, and `in` has
 * counts[rank]. In place: in == this rank's block of `out`. */
MUSTER_STATUS muster_allgatherv(muster_session *session, muster_scope scope, const void *in,
                                void *out, const size_t *counts, muster_type type,
                                const muster_call_options *options);

/* An allgather whose result only the root gets; the others' `out` is not used. In place: in == the
 * root's block of `out`, at the root. */
MUSTER_STATUS muster_gather(muster_session *session, muster_scope scope, const void *in, void *out,
                            size_t count, muster_type type, uint32_t root,
                            const muster_call_options *options);

/* A gather with blocks of different sizes: block i has counts[i] elements, and `in` has
 * counts[rank]. All members pass all counts. In place: as muster_gather(). */
MUSTER_STATUS muster_gatherv(muster_session *session, muster_scope scope, const void *in, void *out,
                             const size_t *counts, muster_type type, uint32_t root,
                             const muster_call_options *options);

/* The root's `in` has size x count elements; member i's out[0..count) = its block i. The others'
 * `in` is not used. In place: out == the root's block of `in`, at the root. */
MUSTER_STATUS muster_scatter(muster_session *session, muster_scope scope, const void *in, void *out,
                             size_t count, muster_type type, uint32_t root,
                             const muster_call_options *options);

/* Copies data[0..count) of the root to all members. */
MUSTER_STATUS muster_broadcast(muster_session *session, muster_scope scope, void *data,
                               size_t count, muster_type type, uint32_t root,
                               const muster_call_options *options);

/* `in` and `out` have size x count elements; block i of `out` = block `rank` of member i's `in`. In
 * place: out == in; the library then makes a copy of the input. */
MUSTER_STATUS muster_alltoall(muster_session *session, muster_scope scope, const void *in,
                              void *out, size_t count, muster_type type,
                              const muster_call_options *options);

/* An alltoall with blocks of different sizes: block i of `in` has in_counts[i] elements and goes to
 * member i; block i of `out` has out_counts[i] elements and comes from member i. A block must have
 * the same count at its sender and its receiver. Otherwise the call is MUSTER_INVALID, and the
 * error names both sizes in bytes; members that were done by then return MUSTER_OK. In place: out
 * == in, in memory for the larger of both; the library then makes a copy. */
MUSTER_STATUS muster_alltoallv(muster_session *session, muster_scope scope, const void *in,
                               const size_t *in_counts, void *out, const size_t *out_counts,
                               muster_type type, const muster_call_options *options);

/* An allreduce for members with several buffers each, for example one for each device: outs[i] = op
 * over all buffers of all members, for each i < buffer_count. buffer_count is 0 to 64 and may
 * differ between members. AVERAGE divides by the number of all buffers of all members, which they
 * add up for it in one small exchange more: all members have to call this function for that, also
 * those with one buffer. A member's buffers are reduced to one first, in their order; then the
 * members' results are reduced, and the result is copied to all of `outs`.
 *
 * A member with no buffers (`ins` and `outs` may then be NULL) adds nothing and gets nothing, but
 * takes part, with the same count, type, op and options: it needs memory for one buffer. With
 * MUSTER_USER each member needs a buffer.
 *
 * All of these buffers have `count` elements, as they are added element by element. Tensors of
 * different lengths, one behind the other as if they were one buffer, are for
 * muster_allreduce_ranges().
 *
 * In place: outs[i] == ins[i] for every i. Otherwise no output may overlap another buffer. The same
 * input may be given several times. */
MUSTER_STATUS muster_allreduce_buffers(muster_session *session, muster_scope scope,
                                       const void *const *ins, void *const *outs,
                                       size_t buffer_count, size_t count, muster_type type,
                                       muster_op op, const muster_call_options *options);

/* A reduce_scatter for members with several buffers each: outs[i][0..count) = op over block `rank`
 * of all buffers of all members, for each i < buffer_count. Each of `ins` has size x count
 * elements. buffer_count is as in muster_allreduce_buffers(). A member's buffers are reduced to one
 * first, likewise; the library needs memory for a copy of one input for that.
 *
 * In place: outs[i] == ins[i] + rank x count for every i. Otherwise no output may overlap another
 * buffer. The same input may be given several times. */
MUSTER_STATUS muster_reduce_scatter_buffers(muster_session *session, muster_scope scope,
                                            const void *const *ins, void *const *outs,
                                            size_t buffer_count, size_t count, muster_type type,
                                            muster_op op, const muster_call_options *options);

/* The same with blocks of different sizes: block i of each of `ins` has counts[i] elements, and
 * each of `outs` has counts[rank]. In place: outs[i] == this rank's block of ins[i], for every i.
 */
MUSTER_STATUS muster_reduce_scatterv_buffers(muster_session *session, muster_scope scope,
                                             const void *const *ins, void *const *outs,
                                             size_t buffer_count, const size_t *counts,
                                             muster_type type, muster_op op,
                                             const muster_call_options *options);

/* A broadcast for members with several buffers each: buffers[0] of the root is copied to all
 * buffers of all members, the root's own included. buffer_count is 1 to 64 and may differ between
 * members. The buffers must not overlap. */
MUSTER_STATUS muster_broadcast_buffers(muster_session *session, muster_scope scope,
                                       void *const *buffers, size_t buffer_count, size_t count,
                                       muster_type type, uint32_t root,
                                       const muster_call_options *options);

/* Returns when every member has called it. */
MUSTER_STATUS muster_barrier(muster_session *session, muster_scope scope,
                             const muster_call_options *options);

/* Several ranges as one buffer ---------------------------------------------------------------- */

/* So many elements of memory. */
typedef struct muster_range {
    void *address; /* aligned for the type; may be NULL if count is 0 */
    size_t count;
} muster_range;

#define MUSTER_RANGES_MAX 65536 /* in one list */

/* An allreduce of several ranges as if they were one buffer: element n of the concatenated `outs` =
 * op over all members' element n of the concatenated `ins`. Nothing is copied together first.
 *
 * The number of ranges and their counts may differ between members, and between `ins` and `outs`;
 * only the total number of elements must be the same. A member may also call muster_allreduce()
 * with one buffer of so many elements. Empty ranges have no effect.
 *
 * The ranges of a list must not overlap, except those of `ins`, or of `outs`, that are the same
 * list: in place is when both lists have the same ranges. Otherwise no range of `ins` may overlap
 * one of `outs`. The lists are memory of the host, borrowed until the call returns. Each range may
 * be memory of the host or lie within one allocation of a device; those of devices are copied to
 * the host before the call and back after it, one by one.
 *
 * Blocks and fails as muster_allreduce() does. MUSTER_INVALID also names a wrong range by its
 * number. */
MUSTER_STATUS muster_allreduce_ranges(muster_session *session, muster_scope scope,
                                      const muster_range *ins, const muster_range *outs,
                                      size_t range_count, muster_type type, muster_op op,
                                      const muster_call_options *options);

/* Copies the ranges of the root, as if they were one buffer, to the ranges of all members. */
MUSTER_STATUS muster_broadcast_ranges(muster_session *session, muster_scope scope,
                                      const muster_range *ranges, size_t range_count,
                                      muster_type type, uint32_t root,
                                      const muster_call_options *options);

#ifdef __cplusplus
}
#endif

#endif
