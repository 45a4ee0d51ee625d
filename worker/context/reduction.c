/* How a request reduces, and the several buffers that a member may have in place of one. */
#include <math.h>

#include "worker/base/status.h"
#include "worker/context/request.h"

uint8_t muster_request_buffers(const struct muster_request *request)
{
    return request->buffer_count > 0 ? (uint8_t)request->buffer_count : 1;
}

static double given_factor(double factor)
{
    return factor == 0 ? 1 : factor;
}

struct muster_reduction muster_request_reduction(const struct muster_request *request)
{
    return (struct muster_reduction){
        .type = request->type,
        .op = request->op,
        .user_function = request->user_function,
        .user_data = request->user_data,
        .prescale = given_factor(request->prescale),
        .postscale = given_factor(request->postscale),
    };
}

static muster_status check_factor(const struct muster_request *request, const char *name,
                                  double factor)
{
    if (factor == 0 || factor == 1) {
        return MUSTER_OK;
    }
    if (!isfinite(factor)) {
        return muster_error_set(MUSTER_INVALID, "%s %g: must be finite", name, factor);
    }
    if (!muster_collective_reduces(request->collective)) {
        return muster_error_set(MUSTER_INVALID, "%s %g: nothing is reduced here", name, factor);
    }
    if (request->type == MUSTER_BOOL ||
        (request->op >= MUSTER_BITWISE_AND && request->op <= MUSTER_LOGICAL_OR)) {
        return muster_error_set(
            MUSTER_INVALID,
            "%s %g: not for %s of %s; only sum, average, prod, min, max and user of numbers are "
            "scaled",
            name, factor, muster_op_name(request->op), muster_type_name(request->type));
    }
    return MUSTER_OK;
}

muster_status muster_request_check_reduction(const struct muster_request *request)
{
    if (muster_collective_reduces(request->collective) && request->op == MUSTER_USER &&
        request->user_function == NULL) {
        return muster_error_set(MUSTER_INVALID, "operation user without a user_function");
    }
    TRY(check_factor(request, "prescale", request->prescale));
    return check_factor(request, "postscale", request->postscale);
}

static bool overlap(const void *one, uint64_t one_bytes, const void *other, uint64_t other_bytes)
{
    uintptr_t a = (uintptr_t)one;
    uintptr_t b = (uintptr_t)other;
    return a < b + other_bytes && b < a + one_bytes;
}

/* The output of this index is the input, or the place in it that an in-place call takes. */
static bool is_in_place(const struct muster_request *request, uint32_t index,
                        const struct muster_extents *extents)
{
    return request->inputs != NULL &&
           (uintptr_t)request->inputs[index] ==
               (uintptr_t)request->outputs[index] + (uintptr_t)extents->in_place_bytes;
}

/* An output may be the input of the same index, if all are; it touches nothing else. */
static muster_status check_output(const struct muster_request *request, uint32_t index,
                                  const struct muster_extents *extents, bool in_place)
{
    const void *output = request->outputs[index];
    uint64_t bytes = extents->out_bytes;
    for (uint32_t i = 0; i < request->buffer_count; i++) {
        const void *input = request->inputs != NULL ? request->inputs[i] : NULL;
        bool meets_output = i != index && overlap(output, bytes, request->outputs[i], bytes);
        bool meets_input = input != NULL && !(in_place && i == index) &&
                           overlap(output, bytes, input, extents->in_bytes);
        if (meets_output || meets_input) {
            return muster_error_set(MUSTER_INVALID, "output buffer %u overlaps %s buffer %u", index,
                                    meets_output ? "output" : "input", i);
        }
    }
    return MUSTER_OK;
}

static muster_status check_missing(const struct muster_request *request, uint32_t index,
                                   const struct muster_extents *extents)
{
    bool no_input =
        request->inputs != NULL && request->inputs[index] == NULL && extents->in_bytes > 0;
    bool no_output = request->outputs[index] == NULL && extents->out_bytes > 0;
    return no_input || no_output ? muster_error_set(MUSTER_INVALID, "%s buffer %u is NULL",
                                                    no_input ? "input" : "output", index)
                                 : MUSTER_OK;
}

muster_status muster_request_check_several(const struct muster_request *request,
                                           const struct muster_extents *extents)
{
    if (request->buffer_count > MUSTER_BUFFERS_MAX) {
        return muster_error_set(MUSTER_INVALID, "%u buffers: %d are the most",
                                request->buffer_count, MUSTER_BUFFERS_MAX);
    }
    for (uint32_t i = 0; i < request->buffer_count; i++) {
        TRY(check_missing(request, i, extents));
    }
    if (extents->out_bytes == 0) {
        return MUSTER_OK;
    }
    bool in_place = request->buffer_count > 0 && is_in_place(request, 0, extents);
    for (uint32_t i = 0; i < request->buffer_count; i++) {
        if (in_place && !is_in_place(request, i, extents)) {
            return muster_error_set(MUSTER_INVALID, "buffer 0 is in place, and buffer %u is not",
                                    i);
        }
        TRY(check_output(request, i, extents, in_place));
    }
    return MUSTER_OK;
}
