/*
 * Muster: named tensors. muster.h includes this header; programs include muster.h.
 *
 * Programs whose threads produce tensors in an order that differs between the members, as the
 * backward pass of a training step does, submit each tensor by its name. The engine finds out which
 * tensors all members have submitted, fuses those that fit together, and performs them in one order
 * on all members. After some steps with the same names the members keep that order and exchange no
 * message about it any more, until one of them deviates.
 *
 * What muster.h says of errors, threads, blocking and buffers holds here, too.
 */
#ifndef MUSTER_ENGINE_H
#define MUSTER_ENGINE_H

#ifndef MUSTER_H
#error "include muster.h, which includes this header"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What is done with a tensor. Buffers are as in the collective of the same name
 * (muster_collectives.h). */
typedef enum muster_tensor_kind {
    MUSTER_TENSOR_ALLREDUCE = 0,
    MUSTER_TENSOR_BROADCAST = 1,
    MUSTER_TENSOR_REDUCE_SCATTER = 2, /* count: of this member's block, the same on all members */
    MUSTER_TENSOR_ALLGATHER = 3,      /* count: this member's own, may differ between members */
    MUSTER_TENSOR_ALLTOALL = 4,       /* splits: this member's own, may differ between members */
    MUSTER_TENSOR_BARRIER = 5,        /* no buffers */
} muster_tensor_kind;

/* Gives the memory for the output of an allgather or alltoall whose size the member learns from the
 * others: `counts[i]` elements come from rank i, `size` ranks, `total` elements altogether. Returns
 * memory that stays valid until the operation is done, or NULL, which ends the tensor with
 * MUSTER_FATAL on all members. Called by a thread that is in a call of Muster or by the engine's;
 * must not call Muster. */
typedef void *(*muster_output_function)(const size_t *counts, uint32_t size, size_t total,
                                        void *user_data);

/* Called once when a tensor is done, by the thread that found it done, without a lock: it may
 * submit further tensors, but not wait for any. `text` is the error, "" for MUSTER_OK. */
typedef void (*muster_tensor_done_function)(muster_status status, const char *text,
                                            void *user_data);

/* A tensor to submit. All members give the same name, kind, type, op, root, factors and, where the
 * kind does not say otherwise, count. Unused fields are 0. Fields are appended only. */
typedef struct muster_tensor {
    /* sizeof(muster_tensor); muster_tensor_init() sets it. */
    size_t size;
    /* 1 to 255 bytes without control characters; copied. */
    const char *name;
    muster_tensor_kind kind;
    muster_type type;
    muster_op op; /* any but MUSTER_USER */
    uint32_t root;
    /* The caller's until the tensor is done, and unchanged until then. In place: in == out. A
     * broadcast uses `out` only. On failure a buffer in place is undefined if the tensor's
     * operation had begun, unless it was ended by an error of the tensor itself. */
    const void *in;
    void *out;
    size_t count; /* elements */
    /* Scale factors, as in muster_call_options. */
    double prescale;
    double postscale;
    uint32_t factors_set;
    /* Of several tensors that are ready on all members, higher ones go first. May differ between
     * members; rank 0's counts. */
    int32_t priority;
    /* 1: see `reproducible` in muster_call_options. Does not depend on how tensors were fused. */
    int reproducible;
    /* ALLTOALL: elements for each member, [muster_size()]; copied. */
    const size_t *splits;
    /* ALLGATHER, ALLTOALL: gives the output, instead of `out`; or NULL: `out` is large enough. */
    muster_output_function output;
    void *output_data;
    /* ALLGATHER, ALLTOALL: [muster_size()], filled with the elements that came from each member
     * when the tensor is done; or NULL. The caller's memory until then. */
    size_t *received_counts;
    /* Called when the tensor is done; then ret_operation of the submission may be NULL. Or NULL. */
    muster_tensor_done_function done;
    void *done_data;
} muster_tensor;

/* muster_tensor_init(muster_tensor *tensor) fills in the size and zeroes for all others:
 * `muster_tensor tensor = {.size = sizeof tensor}` does the same. */
MUSTER_API void muster_tensor_init_sized(muster_tensor *tensor, size_t size);
#define muster_tensor_init(tensor) muster_tensor_init_sized((tensor), sizeof(muster_tensor))

/* Submits a tensor to the engine of a scope. Any thread, in any order; does not block. The handle
 * is for muster_wait(), muster_wait_for(), muster_test(), muster_wait_any() (among handles of
 * tensors of one scope) and muster_detach(). It is consumed by the one that reports the tensor
 * done. With `done` given and ret_operation NULL there is no handle.
 *
 * A scope's tensors and its other collectives do not disturb each other: they may be in flight at
 * the same time, in any order.
 *
 * Errors of the submission: MUSTER_INVALID (a bad argument; a name that is in flight in this scope
 * already), MUSTER_REJOIN, MUSTER_ENDED (the membership has changed, or the job is over),
 * MUSTER_FATAL.
 *
 * Errors of the wait: MUSTER_INVALID (the members' descriptions of the tensor differ: the error
 * names the tensor, two ranks and both values; all members that submit it get it, and no other
 * tensor is affected), MUSTER_REJOIN (a member died or left: every tensor pending ends at once),
 * MUSTER_ENDED, MUSTER_FATAL. */
MUSTER_STATUS muster_submit(muster_session *session, muster_scope scope,
                            const muster_tensor *tensor, muster_operation *ret_operation);

/* The commonest case: muster_submit() of an allreduce. */
MUSTER_STATUS muster_submit_allreduce(muster_session *session, muster_scope scope, const char *name,
                                      const void *in, void *out, size_t count, muster_type type,
                                      muster_op op, muster_operation *ret_operation);

/* How a group is treated. */
typedef enum muster_group_flag {
    MUSTER_GROUP_ALONE = 1, /* fused with no tensor outside the group */
} muster_group_flag;

/* Submits several tensors that are performed as one or not at all: none starts before all members
 * have submitted all of them, and an error of one ends all. The members give the same tensors in
 * the same order, at most 65,536. tensors[i] has handle ret_operations[i]. */
MUSTER_STATUS muster_submit_group(muster_session *session, muster_scope scope,
                                  const muster_tensor *tensors, size_t count, uint32_t flags,
                                  muster_operation *ret_operations);

/* What the engine of a scope has done in this generation, on this member. Fields are appended only.
 */
typedef struct muster_engine_counters {
    size_t size;           /* sizeof(muster_engine_counters); set by the caller */
    uint64_t submitted;    /* tensors */
    uint64_t finished;     /* tensors, with any status */
    uint64_t operations;   /* collectives that carried tensors */
    uint64_t agreements;   /* collectives by which members agreed on what is ready, and described
                              tensors to each other: none in the steady state */
    uint64_t descriptions; /* of names that were new or had changed, sent by this member */
    uint64_t ordered;      /* of `operations`: those in the agreed order, without an agreement */
    uint64_t deviations;   /* how often a member deviated from the agreed order */
    uint64_t orders;       /* how often an agreed order was learned */
    uint64_t
        driven_by_waiters; /* of `operations`: run by a thread that waited, without a hand-over */
    uint64_t wake_ups;     /* of the engine's thread */
} muster_engine_counters;

/* Fills `size` bytes. A scope without submissions has zeroes. Any thread; does not block. */
MUSTER_STATUS muster_engine_count(muster_session *session, muster_scope scope,
                                  muster_engine_counters *counters);

#ifdef __cplusplus
}
#endif

#endif
