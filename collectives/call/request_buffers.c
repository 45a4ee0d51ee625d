/* Checks what may change between two calls of one key: buffers, factors, the user's function. */
#include "collectives/call/request.h"

#include <math.h>

#include "worker/base/status.h"

/* Whether the results of such a reduction can be scaled. */
static bool scales(const struct muster_request *request)
{
    bool logical = request->op >= MUSTER_BITWISE_AND && request->op <= MUSTER_LOGICAL_OR;
    return request->type != MUSTER_BOOL && !logical;
}

/* 1 means no scaling; other factors must be finite, and the operation must allow scaling. */
static muster_status check_factor(const struct muster_request *request, bool reduces,
                                  const char *name, double factor)
{
    if (factor == 1) {
        return MUSTER_OK;
    }
    if (!isfinite(factor)) {
        return muster_error_set(MUSTER_INVALID, "%s %g: must be finite", name, factor);
    }
    if (!reduces) {
        return muster_error_set(MUSTER_INVALID, "%s %g: nothing is reduced here", name, factor);
    }
    if (!scales(request)) {
        return muster_error_set(
            MUSTER_INVALID,
            "%s %g: not for %s of %s; only sum, average, prod, min, max and user of numbers are "
            "scaled",
            name, factor, muster_op_name(request->op), muster_type_name(request->type));
    }
    return MUSTER_OK;
}

static muster_status check_reduction(const struct muster_request *request)
{
    bool reduces = muster_collective_reduces(request->collective);
    if (reduces && request->op == MUSTER_USER && request->user_function == NULL) {
        return muster_error_set(MUSTER_INVALID, "operation user without a user_function");
    }
    if (request->factors_set > (MUSTER_PRESCALE_SET | MUSTER_POSTSCALE_SET)) {
        return muster_error_set(MUSTER_INVALID, "factors_set %u: there are two factors, 1 and 2",
                                request->factors_set);
    }
    if (request->no_buffers && reduces && request->op == MUSTER_USER) {
        return muster_error_set(MUSTER_INVALID,
                                "operation user: no buffers, and a user_function has no value that "
                                "changes nothing");
    }
    TRY(check_factor(request, reduces, "prescale", muster_request_prescale(request)));
    return check_factor(request, reduces, "postscale", muster_request_postscale(request));
}

bool muster_buffers_overlap(const void *one, uint64_t one_bytes, const void *other,
                            uint64_t other_bytes)
{
    uintptr_t a = (uintptr_t)one;
    uintptr_t b = (uintptr_t)other;
    return a < b + other_bytes && b < a + one_bytes;
}

/* Checks `in` and `out`: not missing, and one in place of the other or disjoint. Those in ranges
 * have been checked when the ranges were bound. */
static muster_status check_one(const struct muster_request *request,
                               const struct muster_buffer_sizes *sizes)
{
    bool broadcast = request->collective == MUSTER_BROADCAST;
    if (request->in_ranges != NULL || request->out_ranges != NULL || request->no_buffers) {
        return MUSTER_OK;
    }
    if (broadcast && request->in != NULL && request->in != request->out) {
        return muster_error_set(MUSTER_INVALID, "a broadcast has one buffer");
    }
    if (sizes->out_bytes > 0 && request->out == NULL) {
        return muster_error_set(MUSTER_INVALID, "the output buffer is NULL with %llu bytes to come",
                                (unsigned long long)sizes->out_bytes);
    }
    if (broadcast) {
        return MUSTER_OK;
    }
    if (sizes->in_bytes > 0 && request->in == NULL) {
        return muster_error_set(MUSTER_INVALID, "the input buffer is NULL with %llu bytes to go",
                                (unsigned long long)sizes->in_bytes);
    }
    bool in_place =
        (uintptr_t)request->in == (uintptr_t)request->out + (uintptr_t)sizes->in_place_bytes;
    if (!in_place && sizes->in_bytes > 0 && sizes->out_bytes > 0 &&
        muster_buffers_overlap(request->in, sizes->in_bytes, request->out, sizes->out_bytes)) {
        return muster_error_set(MUSTER_INVALID, "the input and output buffers overlap");
    }
    return MUSTER_OK;
}

/* Several buffers ----------------------------------------------------------------------------- */

/* The output of this index is the input, or the place in it that an in-place call takes. */
static bool is_in_place(const struct muster_request *request, uint32_t index,
                        const struct muster_buffer_sizes *sizes)
{
    return request->inputs != NULL &&
           (uintptr_t)request->inputs[index] ==
               (uintptr_t)request->outputs[index] + (uintptr_t)sizes->in_place_bytes;
}

/* An output may be the input of the same index, if all are; it touches nothing else. */
static muster_status check_output(const struct muster_request *request, uint32_t index,
                                  const struct muster_buffer_sizes *sizes, bool in_place)
{
    const void *output = request->outputs[index];
    uint64_t bytes = sizes->out_bytes;
    for (uint32_t i = 0; i < request->buffer_count; i++) {
        const void *input = request->inputs != NULL ? request->inputs[i] : NULL;
        bool meets_output =
            i != index && muster_buffers_overlap(output, bytes, request->outputs[i], bytes);
        bool meets_input = input != NULL && !(in_place && i == index) &&
                           muster_buffers_overlap(output, bytes, input, sizes->in_bytes);
        if (meets_output || meets_input) {
            return muster_error_set(MUSTER_INVALID, "output buffer %u overlaps %s buffer %u", index,
                                    meets_output ? "output" : "input", i);
        }
    }
    return MUSTER_OK;
}

static muster_status check_missing(const struct muster_request *request, uint32_t index,
                                   const struct muster_buffer_sizes *sizes)
{
    bool no_input =
        request->inputs != NULL && request->inputs[index] == NULL && sizes->in_bytes > 0;
    bool no_output = request->outputs[index] == NULL && sizes->out_bytes > 0;
    return no_input || no_output ? muster_error_set(MUSTER_INVALID, "%s buffer %u is NULL",
                                                    no_input ? "input" : "output", index)
                                 : MUSTER_OK;
}

static muster_status check_several(const struct muster_request *request,
                                   const struct muster_buffer_sizes *sizes)
{
    for (uint32_t i = 0; i < request->buffer_count; i++) {
        TRY(check_missing(request, i, sizes));
    }
    if (sizes->out_bytes == 0) {
        return MUSTER_OK;
    }
    bool in_place = is_in_place(request, 0, sizes);
    for (uint32_t i = 0; i < request->buffer_count; i++) {
        if (in_place && !is_in_place(request, i, sizes)) {
            return muster_error_set(MUSTER_INVALID, "buffer 0 is in place, and buffer %u is not",
                                    i);
        }
        TRY(check_output(request, i, sizes, in_place));
    }
    return MUSTER_OK;
}

muster_status muster_request_check_buffers(const struct muster_request *request,
                                           const struct muster_buffer_sizes *sizes)
{
    if (request->collective == MUSTER_BARRIER) {
        return MUSTER_OK;
    }
    muster_status status = check_reduction(request);
    if (status == MUSTER_OK) {
        status = check_one(request, sizes);
    }
    if (status == MUSTER_OK && request->buffer_count > 0) {
        status = check_several(request, sizes);
    }
    return status == MUSTER_OK
               ? MUSTER_OK
               : muster_error_prefix(status, "%s", muster_collective_name(request->collective));
}
