/* The public functions of named tensors. */
#include <string.h>

#include "worker/base/cleanup.h"
#include "worker/base/option_parse.h"
#include "worker/engine/tensor_check.h"
#include "worker/session/engines.h"

void muster_tensor_init_sized(muster_tensor *tensor, size_t size)
{
    memset(tensor, 0, size);
    tensor->size = size;
}

static muster_status copy_tensor(const muster_tensor *given, uint32_t ranks,
                                 muster_tensor *ret_tensor)
{
    *ret_tensor = (muster_tensor){.size = sizeof *ret_tensor};
    TRY(muster_option_copy_struct("muster_tensor", given, ret_tensor, sizeof *ret_tensor));
    return muster_tensor_check(ret_tensor, ranks);
}

/* tensors[] are of this library's size and checked. */
static muster_status submit(struct muster_session *session, muster_scope scope,
                            const muster_tensor *tensors, size_t count, uint32_t flags,
                            muster_operation *ret_operations)
{
    struct muster_engine *engine = NULL;
    for (size_t i = 0; i < count && ret_operations == NULL; i++) {
        if (tensors[i].done == NULL) {
            return muster_error_set(MUSTER_INVALID,
                                    "tensor %s: there is neither a handle nor a function for its "
                                    "end",
                                    tensors[i].name);
        }
    }
    TRY(muster_session_find_engine(session, scope, true, &engine));
    return muster_engine_submit(engine, tensors, count, flags, ret_operations);
}

static muster_status size_of_scope(const struct muster_session *session, muster_scope scope,
                                   uint32_t *ret_ranks)
{
    *ret_ranks = muster_size(session, scope);
    return *ret_ranks != 0
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID, "scope %d: there is no such scope", (int)scope);
}

muster_status muster_submit(muster_session *session, muster_scope scope,
                            const muster_tensor *tensor, muster_operation *ret_operation)
{
    muster_tensor complete;
    uint32_t ranks = 0;
    if (tensor == NULL) {
        return muster_error_set(MUSTER_INVALID, "submit: the tensor is NULL");
    }
    TRY(size_of_scope(session, scope, &ranks));
    TRY(copy_tensor(tensor, ranks, &complete));
    return submit(session, scope, &complete, 1, 0, ret_operation);
}

/* The parameters are as many as such functions have in the field.
 * NOLINTNEXTLINE(readability-function-size) */
muster_status muster_submit_allreduce(muster_session *session, muster_scope scope, const char *name,
                                      const void *in, void *out, size_t count, muster_type type,
                                      muster_op op, muster_operation *ret_operation)
{
    const muster_tensor tensor = {.size = sizeof tensor,
                                  .name = name,
                                  .in = in,
                                  .out = out,
                                  .count = count,
                                  .type = type,
                                  .op = op};
    return muster_submit(session, scope, &tensor, ret_operation);
}

/* NOLINTNEXTLINE(readability-function-size): as above */
muster_status muster_submit_group(muster_session *session, muster_scope scope,
                                  const muster_tensor *tensors, size_t count, uint32_t flags,
                                  muster_operation *ret_operations)
{
    uint32_t ranks = 0;
    if (tensors == NULL || count == 0 || count > MUSTER_RANGES_MAX) {
        return muster_error_set(MUSTER_INVALID, "submit_group: groups have 1 to %d tensors",
                                MUSTER_RANGES_MAX);
    }
    if ((flags & ~(uint32_t)MUSTER_GROUP_ALONE) != 0) {
        return muster_error_set(MUSTER_INVALID, "submit_group: there are no flags %x",
                                flags & ~(uint32_t)MUSTER_GROUP_ALONE);
    }
    TRY(size_of_scope(session, scope, &ranks));
    AUTO_FREE muster_tensor *complete = calloc(count, sizeof *complete);
    if (complete == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a group of %zu tensors", count);
    }
    const unsigned char *given = (const unsigned char *)tensors;
    for (size_t i = 0; i < count; i++) { /* in steps of the caller's size */
        TRY(copy_tensor((const muster_tensor *)(const void *)(given + i * tensors->size), ranks,
                        &complete[i]));
    }
    return submit(session, scope, complete, count, flags, ret_operations);
}

muster_status muster_engine_count(muster_session *session, muster_scope scope,
                                  muster_engine_counters *counters)
{
    struct muster_engine *engine = NULL;
    muster_engine_counters all = {.size = sizeof all};
    size_t size = counters != NULL ? counters->size : 0;
    if (size < sizeof counters->size) {
        return muster_error_set(MUSTER_INVALID, "engine_count: counters->size is not set");
    }
    TRY(muster_session_find_engine(session, scope, false, &engine));
    if (engine != NULL) {
        muster_engine_read_counters(engine, &all);
    }
    memset(counters, 0, size);
    memcpy(counters, &all, size < sizeof all ? size : sizeof all);
    counters->size = size;
    return MUSTER_OK;
}
