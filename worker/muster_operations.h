/*
 * Muster: operations in flight. muster.h includes this header; programs include muster.h.
 *
 * What muster.h says of errors, threads, blocking and buffers holds here, too.
 */
#ifndef MUSTER_OPERATIONS_H
#define MUSTER_OPERATIONS_H

#ifndef MUSTER_H
#error "include muster.h, which includes this header"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A collective that was started: a number, never 0. The wait or test that reports the operation
 * done consumes it; later uses are MUSTER_INVALID. */
typedef uint64_t muster_operation;

/* Each collective has a second form, muster_..._start(), which starts it and returns at once. A
 * thread of the library makes it progress while the caller computes. Any number may be in flight,
 * and they may be waited for in any order and from any thread.
 *
 * All members start the same collectives of a scope in the same order. A started collective and a
 * blocking one are no match for each other; blocking ones may be called while others are in flight.
 *
 * The buffers, and what user_function needs, are the operation's until a wait or test reports it
 * done, or for a detached one until muster_rejoin() or muster_close() has returned; arrays of
 * counts and lists of buffers or ranges only until the start returns. User functions are called by
 * the library's thread. Where a buffer or a range is memory of a GPU, the start waits for CUDA's
 * default stream, and where the call is staged (SETTINGS.md) until the input is copied to the host;
 * the output is copied back before a wait or test reports the operation done.
 *
 * A start has the errors of a bad argument, and those of a collective if one in flight has failed
 * before in this generation. All other errors are those of the wait: the ones of the blocking form.
 */
MUSTER_STATUS muster_allreduce_start(muster_session *session, muster_scope scope, const void *in,
                                     void *out, size_t count, muster_type type, muster_op op,
                                     const muster_call_options *options,
                                     muster_operation *ret_operation);
MUSTER_STATUS muster_allreduce_buffers_start(muster_session *session, muster_scope scope,
                                             const void *const *ins, void *const *outs,
                                             size_t buffer_count, size_t count, muster_type type,
                                             muster_op op, const muster_call_options *options,
                                             muster_operation *ret_operation);
MUSTER_STATUS muster_reduce_scatter_buffers_start(muster_session *session, muster_scope scope,
                                                  const void *const *ins, void *const *outs,
                                                  size_t buffer_count, size_t count,
                                                  muster_type type, muster_op op,
                                                  const muster_call_options *options,
                                                  muster_operation *ret_operation);
MUSTER_STATUS muster_reduce_scatterv_buffers_start(muster_session *session, muster_scope scope,
                                                   const void *const *ins, void *const *outs,
                                                   size_t buffer_count, const size_t *counts,
                                                   muster_type type, muster_op op,
                                                   const muster_call_options *options,
                                                   muster_operation *ret_operation);
MUSTER_STATUS muster_broadcast_buffers_start(muster_session *session, muster_scope scope,
                                             void *const *buffers, size_t buffer_count,
                                             size_t count, muster_type type, uint32_t root,
                                             const muster_call_options *options,
                                             muster_operation *ret_operation);
MUSTER_STATUS muster_allreduce_ranges_start(muster_session *session, muster_scope scope,
                                            const muster_range *ins, const muster_range *outs,
                                            size_t range_count, muster_type type, muster_op op,
                                            const muster_call_options *options,
                                            muster_operation *ret_operation);
MUSTER_STATUS muster_broadcast_ranges_start(muster_session *session, muster_scope scope,
                                            const muster_range *ranges, size_t range_count,
                                            muster_type type, uint32_t root,
                                            const muster_call_options *options,
                                            muster_operation *ret_operation);
MUSTER_STATUS muster_reduce_start(muster_session *session, muster_scope scope, const void *in,
                                  void *out, size_t count, muster_type type, muster_op op,
                                  uint32_t root, const muster_call_options *options,
                                  muster_operation *ret_operation);
MUSTER_STATUS muster_reduce_scatter_start(muster_session *session, muster_scope scope,
                                          const void *in, void *out, size_t count, muster_type type,
                                          muster_op op, const muster_call_options *options,
                                          muster_operation *ret_operation);
MUSTER_STATUS muster_reduce_scatterv_start(muster_session *session, muster_scope scope,
                                           const void *in, void *out, const size_t *counts,
                                           muster_type type, muster_op op,
                                           const muster_call_options *options,
                                           muster_operation *ret_operation);
MUSTER_STATUS muster_allgather_start(muster_session *session, muster_scope scope, const void *in,
                                     void *out, size_t count, muster_type type,
                                     const muster_call_options *options,
                                     muster_operation *ret_operation);
MUSTER_STATUS muster_allgatherv_start(muster_session *session, muster_scope scope, const void *in,
                                      void *out, const size_t *counts, muster_type type,
                                      const muster_call_options *options,
                                      muster_operation *ret_operation);
MUSTER_STATUS muster_gather_start(muster_session *session, muster_scope scope, const void *in,
                                  void *out, size_t count, muster_type type, uint32_t root,
                                  const muster_call_options *options,
                                  muster_operation *ret_operation);
MUSTER_STATUS muster_gatherv_start(muster_session *session, muster_scope scope, const void *in,
                                   void *out, const size_t *counts, muster_type type, uint32_t root,
                                   const muster_call_options *options,
                                   muster_operation *ret_operation);
MUSTER_STATUS muster_scatter_start(muster_session *session, muster_scope scope, const void *in,
                                   void *out, size_t count, muster_type type, uint32_t root,
                                   const muster_call_options *options,
                                   muster_operation *ret_operation);
MUSTER_STATUS muster_broadcast_start(muster_session *session, muster_scope scope, void *data,
                                     size_t count, muster_type type, uint32_t root,
                                     const muster_call_options *options,
                                     muster_operation *ret_operation);
MUSTER_STATUS muster_alltoall_start(muster_session *session, muster_scope scope, const void *in,
                                    void *out, size_t count, muster_type type,
                                    const muster_call_options *options,
                                    muster_operation *ret_operation);
MUSTER_STATUS muster_alltoallv_start(muster_session *session, muster_scope scope, const void *in,
                                     const size_t *in_counts, void *out, const size_t *out_counts,
                                     muster_type type, const muster_call_options *options,
                                     muster_operation *ret_operation);
MUSTER_STATUS muster_barrier_start(muster_session *session, muster_scope scope,
                                   const muster_call_options *options,
                                   muster_operation *ret_operation);

/* Persistent operations: the third form, muster_..._init(), makes an operation that muster_start()
 * starts again and again with the same buffers, as a training loop needs it. The buffers have to
 * stay until the operation is freed; their contents are the caller's between the end of one start
 * and the next one. All members start the operations of a scope in the same order; they may make
 * them in any order.
 *
 * The wait or test that reports the end leaves the handle to be started again; muster_detach()
 * frees it. A generation ends its persistent operations, too: their handles can be waited for once
 * more (MUSTER_REJOIN) or freed, and a new generation needs new operations. The errors are those of
 * a start. */
MUSTER_STATUS muster_allreduce_init(muster_session *session, muster_scope scope, const void *in,
                                    void *out, size_t count, muster_type type, muster_op op,
                                    const muster_call_options *options,
                                    muster_operation *ret_operation);
MUSTER_STATUS muster_allreduce_buffers_init(muster_session *session, muster_scope scope,
                                            const void *const *ins, void *const *outs,
                                            size_t buffer_count, size_t count, muster_type type,
                                            muster_op op, const muster_call_options *options,
                                            muster_operation *ret_operation);
MUSTER_STATUS muster_reduce_scatter_buffers_init(muster_session *session, muster_scope scope,
                                                 const void *const *ins, void *const *outs,
                                                 size_t buffer_count, size_t count,
                                                 muster_type type, muster_op op,
                                                 const muster_call_options *options,
                                                 muster_operation *ret_operation);
MUSTER_STATUS muster_reduce_scatterv_buffers_init(muster_session *session, muster_scope scope,
                                                  const void *const *ins, void *const *outs,
                                                  size_t buffer_count, const size_t *counts,
                                                  muster_type type, muster_op op,
                                                  const muster_call_options *options,
                                                  muster_operation *ret_operation);
MUSTER_STATUS muster_broadcast_buffers_init(muster_session *session, muster_scope scope,
                                            void *const *buffers, size_t buffer_count, size_t count,
                                            muster_type type, uint32_t root,
                                            const muster_call_options *options,
                                            muster_operation *ret_operation);
MUSTER_STATUS muster_allreduce_ranges_init(muster_session *session, muster_scope scope,
                                           const muster_range *ins, const muster_range *outs,
                                           size_t range_count, muster_type type, muster_op op,
                                           const muster_call_options *options,
                                           muster_operation *ret_operation);
MUSTER_STATUS muster_broadcast_ranges_init(muster_session *session, muster_scope scope,
                                           const muster_range *ranges, size_t range_count,
                                           muster_type type, uint32_t root,
                                           const muster_call_options *options,
                                           muster_operation *ret_operation);
MUSTER_STATUS muster_reduce_init(muster_session *session, muster_scope scope, const void *in,
                                 void *out, size_t count, muster_type type, muster_op op,
                                 uint32_t root, const muster_call_options *options,
                                 muster_operation *ret_operation);
MUSTER_STATUS muster_reduce_scatter_init(muster_session *session, muster_scope scope,
                                         const void *in, void *out, size_t count, muster_type type,
                                         muster_op op, const muster_call_options *options,
                                         muster_operation *ret_operation);
MUSTER_STATUS muster_reduce_scatterv_init(muster_session *session, muster_scope scope,
                                          const void *in, void *out, const size_t *counts,
                                          muster_type type, muster_op op,
                                          const muster_call_options *options,
                                          muster_operation *ret_operation);
MUSTER_STATUS muster_allgather_init(muster_session *session, muster_scope scope, const void *in,
                                    void *out, size_t count, muster_type type,
                                    const muster_call_options *options,
                                    muster_operation *ret_operation);
MUSTER_STATUS muster_allgatherv_init(muster_session *session, muster_scope scope, const void *in,
                                     void *out, const size_t *counts, muster_type type,
                                     const muster_call_options *options,
                                     muster_operation *ret_operation);
MUSTER_STATUS muster_gather_init(muster_session *session, muster_scope scope, const void *in,
                                 void *out, size_t count, muster_type type, uint32_t root,
                                 const muster_call_options *options,
                                 muster_operation *ret_operation);
MUSTER_STATUS muster_gatherv_init(muster_session *session, muster_scope scope, const void *in,
                                  void *out, const size_t *counts, muster_type type, uint32_t root,
                                  const muster_call_options *options,
                                  muster_operation *ret_operation);
MUSTER_STATUS muster_scatter_init(muster_session *session, muster_scope scope, const void *in,
                                  void *out, size_t count, muster_type type, uint32_t root,
                                  const muster_call_options *options,
                                  muster_operation *ret_operation);
MUSTER_STATUS muster_broadcast_init(muster_session *session, muster_scope scope, void *data,
                                    size_t count, muster_type type, uint32_t root,
                                    const muster_call_options *options,
                                    muster_operation *ret_operation);
MUSTER_STATUS muster_alltoall_init(muster_session *session, muster_scope scope, const void *in,
                                   void *out, size_t count, muster_type type,
                                   const muster_call_options *options,
                                   muster_operation *ret_operation);
MUSTER_STATUS muster_alltoallv_init(muster_session *session, muster_scope scope, const void *in,
                                    const size_t *in_counts, void *out, const size_t *out_counts,
                                    muster_type type, const muster_call_options *options,
                                    muster_operation *ret_operation);
MUSTER_STATUS muster_barrier_init(muster_session *session, muster_scope scope,
                                  const muster_call_options *options,
                                  muster_operation *ret_operation);

/* Starts a persistent operation. Does not block. MUSTER_INVALID: it is in flight already, is not
 * persistent, or its generation has ended. Otherwise as the start of a collective. */
MUSTER_STATUS muster_start(muster_operation operation);

/* Blocks until the operation is done, and returns its status. The limit is the operation's timeout,
 * which counts the time that threads wait for it: a caller may compute for as long as it likes.
 * When its generation ends, an operation in flight ends with MUSTER_REJOIN; its handle stays valid
 * until it is consumed or the session is closed. MUSTER_INVALID: no operation in flight has this
 * handle, or another thread waits for it. */
MUSTER_STATUS muster_wait(muster_operation operation);

/* The same for at most this time. MUSTER_RETRY: it is still in flight, and can be waited for again.
 */
MUSTER_STATUS muster_wait_for(muster_operation operation, uint32_t timeout_ms);

/* Does not block. *ret_done: 1 if the operation is done; then the status is the operation's, and
 * the handle is consumed. Else 0 and MUSTER_OK. */
MUSTER_STATUS muster_test(muster_operation operation, int *ret_done);

/* Blocks until one of the operations, all of one session, is done; *ret_index says which. Its
 * handle is consumed, and the status is its own. MUSTER_INVALID, and none is consumed: an operation
 * is not in flight or stands in the list twice, or the list is empty; *ret_index is unchanged. */
MUSTER_STATUS muster_wait_any(const muster_operation *operations, size_t count, size_t *ret_index);

/* Gives the handle up: an operation in flight finishes by itself, and a persistent one that is not
 * in flight is freed. */
MUSTER_STATUS muster_detach(muster_operation operation);

#ifdef __cplusplus
}
#endif

#endif
