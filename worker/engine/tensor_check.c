/* Checks tensors, and describes them. */
#include "worker/engine/tensor_check.h"

#include <string.h>

#include "collectives/call/request.h"

enum { SHOWN_NAME = 40 }; /* bytes of a bad name in an error */

/* Of all kinds of buffers together, so that no sum over ranks overflows. */
#define TENSOR_BYTES_MAX (UINT64_C(1) << 48)

static muster_status check_name(const char *name)
{
    size_t length = name != NULL ? strnlen(name, MUSTER_TENSOR_NAME_MAX + 1) : 0;
    if (length == 0 || length > MUSTER_TENSOR_NAME_MAX) {
        return muster_error_set(MUSTER_INVALID, "tensor %.*s%s: names have 1 to %d bytes",
                                SHOWN_NAME, name != NULL ? name : "(no name)",
                                length > SHOWN_NAME ? "..." : "", MUSTER_TENSOR_NAME_MAX);
    }
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7f) {
            return muster_error_set(MUSTER_INVALID,
                                    "a tensor's name has a control character (byte %zu is %d)", i,
                                    (unsigned char)name[i]);
        }
    }
    return MUSTER_OK;
}

static bool reduces(muster_tensor_kind kind)
{
    return kind == MUSTER_TENSOR_ALLREDUCE || kind == MUSTER_TENSOR_REDUCE_SCATTER;
}

static bool has_buffers(muster_tensor_kind kind)
{
    return kind != MUSTER_TENSOR_BARRIER;
}

/* Elements of the input and the output, as far as this rank knows them. */
static muster_status count_elements(const muster_tensor *tensor, uint32_t ranks, uint64_t *ret_in,
                                    uint64_t *ret_out)
{
    uint64_t whole = 0;
    bool overflows = __builtin_mul_overflow((uint64_t)tensor->count, (uint64_t)ranks, &whole);
    *ret_in = tensor->kind == MUSTER_TENSOR_REDUCE_SCATTER ? whole : tensor->count;
    *ret_out = tensor->kind == MUSTER_TENSOR_ALLGATHER ? 0 : tensor->count;
    if (tensor->kind == MUSTER_TENSOR_BROADCAST) {
        *ret_in = 0;
    }
    if (tensor->kind == MUSTER_TENSOR_ALLTOALL) {
        if (tensor->splits == NULL) {
            return muster_error_set(MUSTER_INVALID, "tensor %s: splits is NULL", tensor->name);
        }
        *ret_in = *ret_out = 0;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            overflows = __builtin_add_overflow(*ret_in, tensor->splits[rank], ret_in) || overflows;
        }
    }
    uint64_t most = TENSOR_BYTES_MAX / muster_type_size_bytes(tensor->type);
    if (overflows || whole > most || *ret_in > most) {
        return muster_error_set(MUSTER_INVALID, "tensor %s: %zu elements are too many",
                                tensor->name, tensor->count);
    }
    return MUSTER_OK;
}

static muster_status check_buffers(const muster_tensor *tensor, uint32_t ranks)
{
    uint64_t in = 0;
    uint64_t out = 0;
    TRY(count_elements(tensor, ranks, &in, &out));
    bool gives_output =
        tensor->kind == MUSTER_TENSOR_ALLGATHER || tensor->kind == MUSTER_TENSOR_ALLTOALL;
    size_t size_bytes = muster_type_size_bytes(tensor->type);
    uint64_t in_bytes = in * size_bytes;
    uint64_t out_bytes = out * size_bytes;
    if (in > 0 && tensor->in == NULL) {
        return muster_error_set(MUSTER_INVALID, "tensor %s: in is NULL, for %llu elements",
                                tensor->name, (unsigned long long)in);
    }
    if ((out > 0 && tensor->out == NULL) ||
        (gives_output && tensor->out == NULL && tensor->output == NULL)) {
        return muster_error_set(MUSTER_INVALID, "tensor %s: out is NULL", tensor->name);
    }
    bool in_place = tensor->in == tensor->out && tensor->kind == MUSTER_TENSOR_ALLREDUCE;
    if (in > 0 && out > 0 && !in_place &&
        muster_buffers_overlap(tensor->in, in_bytes, tensor->out, out_bytes)) {
        return muster_error_set(MUSTER_INVALID, "tensor %s: in and out overlap", tensor->name);
    }
    return MUSTER_OK;
}

static muster_status check_fields(const muster_tensor *tensor, uint32_t ranks)
{
    if (tensor->kind < MUSTER_TENSOR_ALLREDUCE || tensor->kind > MUSTER_TENSOR_BARRIER) {
        return muster_error_set(MUSTER_INVALID, "tensor %s: there is no kind %d", tensor->name,
                                (int)tensor->kind);
    }
    if (has_buffers(tensor->kind) && muster_type_size_bytes(tensor->type) == 0) {
        return muster_error_set(MUSTER_INVALID, "tensor %s: there is no element type %d",
                                tensor->name, (int)tensor->type);
    }
    if (reduces(tensor->kind) && tensor->op == MUSTER_USER) {
        return muster_error_set(MUSTER_INVALID, "tensor %s: operation user is not for tensors",
                                tensor->name);
    }
    if (reduces(tensor->kind)) {
        muster_status status = muster_op_check(tensor->type, tensor->op);
        if (status != MUSTER_OK) {
            return muster_error_prefix(status, "tensor %s", tensor->name);
        }
    }
    if (tensor->kind == MUSTER_TENSOR_BROADCAST && tensor->root >= ranks) {
        return muster_error_set(MUSTER_INVALID, "tensor %s: root %u of %u ranks", tensor->name,
                                tensor->root, ranks);
    }
    return MUSTER_OK;
}

muster_status muster_tensor_check(const muster_tensor *tensor, uint32_t ranks)
{
    TRY(check_name(tensor->name));
    TRY(check_fields(tensor, ranks));
    return has_buffers(tensor->kind) ? check_buffers(tensor, ranks) : MUSTER_OK;
}

static double factor(double value, uint32_t factors_set, uint32_t bit)
{
    return value != 0 || (factors_set & bit) != 0 ? value : 1;
}

struct muster_description muster_tensor_describe(const muster_tensor *tensor, bool reproducible)
{
    bool scaled = reduces(tensor->kind);
    bool counted = tensor->kind != MUSTER_TENSOR_ALLGATHER &&
                   tensor->kind != MUSTER_TENSOR_ALLTOALL && has_buffers(tensor->kind);
    uint32_t set = tensor->factors_set;
    return (struct muster_description){
        .count = counted ? tensor->count : 0,
        .prescale = scaled ? factor(tensor->prescale, set, MUSTER_PRESCALE_SET) : 1,
        .postscale = scaled ? factor(tensor->postscale, set, MUSTER_POSTSCALE_SET) : 1,
        .root = tensor->kind == MUSTER_TENSOR_BROADCAST ? tensor->root : 0,
        .priority = tensor->priority,
        .kind = (uint8_t)tensor->kind,
        .type = has_buffers(tensor->kind) ? (uint8_t)tensor->type : 0,
        .op = scaled ? (uint8_t)tensor->op : 0,
        .flags =
            scaled && (reproducible || tensor->reproducible != 0) ? MUSTER_TENSOR_REPRODUCIBLE : 0,
    };
}

/* FNV-1a, 64 bits. */
static uint64_t add_bytes(uint64_t sum, const void *bytes, size_t size)
{
    const unsigned char *each = bytes;
    for (size_t i = 0; i < size; i++) {
        sum = (sum ^ each[i]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

uint64_t muster_tensor_group_number(const muster_tensor *tensors, size_t count, uint32_t flags)
{
    uint64_t sum = add_bytes(UINT64_C(0xcbf29ce484222325), &flags, sizeof flags);
    for (size_t i = 0; i < count; i++) {
        sum = add_bytes(sum, tensors[i].name, strlen(tensors[i].name) + 1);
    }
    return sum != 0 ? sum : 1;
}
