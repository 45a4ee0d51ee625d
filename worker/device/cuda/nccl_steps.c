/* One group step by NCCL: its call, its order among other work of the GPU, and its end. */
#include <string.h>

#include "collectives/reduce/reduce.h"
#include "worker/base/clock.h"
#include "worker/base/status.h"
#include "worker/device/cuda/nccl_parts.h"

enum { SPIN_NS = 50 * 1000 }; /* before the caller's check is asked for the first time */

bool muster_nccl_type_of(muster_type type, int *ret_type)
{
    static const int types[MUSTER_TYPE_COUNT] = {
        [MUSTER_FLOAT32] = MUSTER_NCCL_FLOAT32,
        [MUSTER_FLOAT64] = MUSTER_NCCL_FLOAT64,
        [MUSTER_INT32] = MUSTER_NCCL_INT32,
        [MUSTER_INT64] = MUSTER_NCCL_INT64,
        [MUSTER_UINT8] = MUSTER_NCCL_UINT8,
        [MUSTER_INT8] = MUSTER_NCCL_INT8,
        [MUSTER_INT16] = -1,
        [MUSTER_UINT16] = -1,
        [MUSTER_UINT32] = MUSTER_NCCL_UINT32,
        [MUSTER_UINT64] = MUSTER_NCCL_UINT64,
        [MUSTER_FLOAT16] = MUSTER_NCCL_FLOAT16,
        [MUSTER_BFLOAT16] = MUSTER_NCCL_BFLOAT16,
        [MUSTER_BOOL] = -1,
    };
    *ret_type = (unsigned)type < MUSTER_TYPE_COUNT ? types[type] : -1;
    return *ret_type >= 0;
}

/* An average is a sum, which is divided at the end: NCCL's own divides each input first. */
bool muster_nccl_op_of(muster_op op, int *ret_op)
{
    switch (op) {
    case MUSTER_SUM:
    case MUSTER_AVERAGE:
        *ret_op = MUSTER_NCCL_SUM;
        return true;
    case MUSTER_PROD:
        *ret_op = MUSTER_NCCL_PROD;
        return true;
    case MUSTER_MIN:
        *ret_op = MUSTER_NCCL_MIN;
        return true;
    case MUSTER_MAX:
        *ret_op = MUSTER_NCCL_MAX;
        return true;
    default:
        return false;
    }
}

muster_status muster_nccl_failed(struct muster_nccl_group *group, muster_status status, int error,
                                 const char *what)
{
    group->failed_itself = true;
    const char *detail = group->comm != NULL ? group->nccl->get_last_error(group->comm) : "";
    return muster_error_set(status, "NCCL, %s: %s%s%.160s", what,
                            group->nccl->get_error_string(error), detail[0] != '\0' ? ": " : "",
                            detail);
}

static muster_status cuda_failed(const struct muster_nccl_group *group, int error)
{
    return muster_error_set(MUSTER_FATAL, "rank %u's GPU: %s", group->names[group->rank],
                            muster_cuda_error_name(group->cuda, error));
}

/* Waiting -------------------------------------------------------------------------------------- */

static muster_status check_alive(struct muster_nccl_group *group)
{
    int error = 0;
    if (atomic_load(&group->aborted)) {
        return muster_error_set(MUSTER_REJOIN, "the group was aborted");
    }
    int answer = group->nccl->comm_get_async_error(group->comm, &error);
    error = answer != 0 ? answer : error;
    return error == 0 ? MUSTER_OK
           : error == MUSTER_NCCL_IN_PROGRESS
               ? MUSTER_RETRY
               : muster_nccl_failed(group, MUSTER_REJOIN, error, "in a collective");
}

/* From time to time while a wait goes on. */
static muster_status pause_in(const struct muster_nccl_wait *wait, int64_t since_ns,
                              uint32_t *ret_suspect)
{
    int64_t now_ns = muster_clock_ns();
    if (now_ns >= wait->deadline_ns) {
        return muster_error_set(MUSTER_RETRY, "the deadline passed while NCCL was at work");
    }
    return wait->check != NULL && now_ns - since_ns > SPIN_NS ? wait->check(wait->user, ret_suspect)
                                                              : MUSTER_OK;
}

muster_status muster_nccl_settle(struct muster_nccl_group *group,
                                 const struct muster_nccl_wait *wait, uint32_t *ret_suspect)
{
    int64_t since_ns = muster_clock_ns();
    muster_status status = MUSTER_OK;
    while ((status = check_alive(group)) == MUSTER_RETRY) {
        TRY(pause_in(wait, since_ns, ret_suspect));
    }
    return status;
}

muster_status muster_nccl_poll(struct muster_nccl_group *group)
{
    void *unused = NULL;
    int error = group->cuda->ctx_push_current(group->context);
    if (error == 0) {
        error = group->cuda->event_query(group->done);
        (void)group->cuda->ctx_pop_current(&unused);
    }
    if (error == MUSTER_CUDA_NOT_READY) {
        muster_status status = check_alive(group);
        return status == MUSTER_OK ? MUSTER_RETRY : status;
    }
    return error == 0 ? MUSTER_OK : cuda_failed(group, error);
}

/* Starting ------------------------------------------------------------------------------------- */

static bool are_equal(const uint64_t *bounds, uint32_t ranks)
{
    for (uint32_t i = 1; bounds != NULL && i < ranks; i++) {
        if (bounds[i + 1] - bounds[i] != bounds[1] - bounds[0]) {
            return false;
        }
    }
    return true;
}

/* NCCL's own collectives have shares of one size: others are as many collectives as there are
 * shares. */
static int reduce_shares(struct muster_nccl_group *group, const struct muster_launch *launch,
                         int type, int op)
{
    const struct muster_nccl *nccl = group->nccl;
    size_t element = muster_type_size_bytes((muster_type)launch->call.type);
    int error = nccl->group_start();
    for (uint32_t i = 0; i < group->ranks && error == 0; i++) {
        const struct muster_span share = muster_shape_input_block(&launch->shape, i);
        const char *in = (const char *)launch->in + share.offset * element;
        void *out = i == group->rank ? launch->out : (void *)in; /* written at the root only */
        error = share.count == 0 ? 0
                                 : nccl->reduce(in, out, share.count, type, op, (int)i, group->comm,
                                                group->stream);
        error = error == MUSTER_NCCL_IN_PROGRESS ? 0 : error;
    }
    int ended = nccl->group_end();
    return error != 0 ? error : ended;
}

static int broadcast_shares(struct muster_nccl_group *group, const struct muster_launch *launch)
{
    const struct muster_nccl *nccl = group->nccl;
    size_t element = muster_type_size_bytes((muster_type)launch->call.type);
    int error = nccl->group_start();
    for (uint32_t i = 0; i < group->ranks && error == 0; i++) {
        const struct muster_span share = muster_shape_output_block(&launch->shape, i);
        char *out = (char *)launch->out + share.offset * element;
        error = share.count == 0 ? 0
                                 : nccl->broadcast(i == group->rank ? launch->in : out, out,
                                                   share.count * element, MUSTER_NCCL_UINT8, (int)i,
                                                   group->comm, group->stream);
        error = error == MUSTER_NCCL_IN_PROGRESS ? 0 : error;
    }
    int ended = nccl->group_end();
    return error != 0 ? error : ended;
}

static int enqueue(struct muster_nccl_group *group, const struct muster_launch *launch)
{
    const struct muster_nccl *nccl = group->nccl;
    const struct muster_shape *shape = &launch->shape;
    size_t element = muster_type_size_bytes((muster_type)launch->call.type);
    void *spare = (void *)(uintptr_t)group->spare; /* NOLINT(performance-no-int-to-ptr) */
    int root = (int)shape->root;
    int type = MUSTER_NCCL_UINT8;
    int op = MUSTER_NCCL_SUM;
    (void)muster_nccl_type_of((muster_type)launch->call.type, &type);
    (void)muster_nccl_op_of((muster_op)launch->call.op, &op);
    switch (shape->collective) {
    case MUSTER_ALLREDUCE:
        return nccl->all_reduce(launch->in, launch->out, launch->sizes.in_count, type, op,
                                group->comm, group->stream);
    case MUSTER_REDUCE_SCATTER:
        return are_equal(shape->input_bounds, group->ranks)
                   ? nccl->reduce_scatter(launch->in, launch->out, launch->sizes.out_count, type,
                                          op, group->comm, group->stream)
                   : reduce_shares(group, launch, type, op);
    case MUSTER_ALLGATHER:
    case MUSTER_ALLGATHERV:
        return are_equal(shape->output_bounds, group->ranks)
                   ? nccl->all_gather(launch->in, launch->out, launch->sizes.in_count * element,
                                      MUSTER_NCCL_UINT8, group->comm, group->stream)
                   : broadcast_shares(group, launch);
    case MUSTER_REDUCE:
        return nccl->reduce(launch->in, launch->out != NULL ? launch->out : (void *)launch->in,
                            launch->sizes.in_count, type, op, root, group->comm, group->stream);
    case MUSTER_BROADCAST:
        return nccl->broadcast(launch->out, launch->out, launch->shape.count * element,
                               MUSTER_NCCL_UINT8, root, group->comm, group->stream);
    default: /* a barrier */
        return nccl->all_reduce(spare, spare, 1, MUSTER_NCCL_UINT8, MUSTER_NCCL_SUM, group->comm,
                                group->stream);
    }
}

/* The program's work that a step must not overtake: what it has put on the default stream, and on
 * all streams that wait for that one. The only place where this is decided. */
static uintptr_t stream_before(const struct muster_launch *launch)
{
    (void)launch;
    return MUSTER_CUDA_LEGACY;
}

/* With the GPU's context. */
static muster_status start(struct muster_nccl_group *group, const struct muster_launch *launch,
                           const struct muster_nccl_wait *wait, uint32_t *ret_suspect)
{
    const struct muster_cuda *cuda = group->cuda;
    int error = cuda->event_record(group->before, stream_before(launch));
    if (error == 0) {
        error = cuda->stream_wait_event((uintptr_t)group->stream, group->before, 0);
    }
    if (error != 0) {
        return cuda_failed(group, error);
    }
    error = enqueue(group, launch);
    if (error != 0 && error != MUSTER_NCCL_IN_PROGRESS) {
        return muster_nccl_failed(group, MUSTER_REJOIN, error, "to start a collective");
    }
    TRY(muster_nccl_settle(group, wait, ret_suspect));
    error = cuda->event_record(group->done, (uintptr_t)group->stream);
    return error == 0 ? MUSTER_OK : cuda_failed(group, error);
}

muster_status muster_nccl_begin(struct muster_nccl_group *group, const struct muster_launch *launch,
                                const struct muster_nccl_wait *wait, uint32_t *ret_suspect)
{
    void *unused = NULL;
    if (atomic_load(&group->aborted) || group->comm == NULL) {
        return muster_error_set(MUSTER_REJOIN, "the group was aborted");
    }
    int error = group->cuda->ctx_push_current(group->context);
    if (error != 0) {
        return cuda_failed(group, error);
    }
    muster_status status = start(group, launch, wait, ret_suspect);
    (void)group->cuda->ctx_pop_current(&unused);
    return status;
}

muster_status muster_nccl_perform(struct muster_nccl_group *group,
                                  const struct muster_launch *launch,
                                  const struct muster_nccl_wait *wait, uint32_t *ret_suspect)
{
    TRY(muster_nccl_begin(group, launch, wait, ret_suspect));
    int64_t since_ns = muster_clock_ns();
    muster_status status = MUSTER_OK;
    while ((status = muster_nccl_poll(group)) == MUSTER_RETRY) {
        TRY(pause_in(wait, since_ns, ret_suspect));
    }
    return status;
}
