/* Compares descriptions of tensors, and encodes them:
 *
 *   version 1 byte, length of the name 1, kind 1, type 1, op 1, flags 1, zero 2, root 4, priority
 * 4, count 8, prescale 8, postscale 8, group 8, zero 8, then the name; little-endian
 */
#include "worker/engine/agree/description.h"

#include <stdio.h>
#include <string.h>

#include "worker/base/bytes.h"

static const char *const kind_names[] = {
    [MUSTER_TENSOR_ALLREDUCE] = "allreduce",
    [MUSTER_TENSOR_BROADCAST] = "broadcast",
    [MUSTER_TENSOR_REDUCE_SCATTER] = "reduce_scatter",
    [MUSTER_TENSOR_ALLGATHER] = "allgather",
    [MUSTER_TENSOR_ALLTOALL] = "alltoall",
    [MUSTER_TENSOR_BARRIER] = "barrier",
};

enum { KIND_COUNT = sizeof kind_names / sizeof kind_names[0] };

const char *muster_tensor_kind_name(uint32_t kind)
{
    return kind < KIND_COUNT ? kind_names[kind] : "unknown";
}

/* Also of NaNs, and -0 is not 0. */
static bool same_bits(double one, double other)
{
    uint64_t bits[2];
    memcpy(&bits[0], &one, sizeof one);
    memcpy(&bits[1], &other, sizeof other);
    return bits[0] == bits[1];
}

bool muster_descriptions_match(const struct muster_description *one,
                               const struct muster_description *other)
{
    return one->count == other->count && same_bits(one->prescale, other->prescale) &&
           same_bits(one->postscale, other->postscale) && one->group == other->group &&
           one->root == other->root && one->kind == other->kind && one->type == other->type &&
           one->op == other->op && one->flags == other->flags;
}

void muster_descriptions_differ(const struct muster_description *one,
                                const struct muster_description *other, char ret_one[64],
                                char ret_other[64])
{
    const struct muster_description *both[2] = {one, other};
    char *texts[2] = {ret_one, ret_other};
    for (int i = 0; i < 2; i++) {
        const struct muster_description *it = both[i];
        char *text = texts[i];
        if (one->kind != other->kind) {
            (void)snprintf(text, 64, "%s", muster_tensor_kind_name(it->kind));
        } else if (one->type != other->type) {
            (void)snprintf(text, 64, "type %s", muster_type_name(it->type));
        } else if (one->count != other->count) {
            (void)snprintf(text, 64, "count %llu", (unsigned long long)it->count);
        } else if (one->op != other->op) {
            (void)snprintf(text, 64, "operation %s", muster_op_name(it->op));
        } else if (one->root != other->root) {
            (void)snprintf(text, 64, "root %u", it->root);
        } else if (!same_bits(one->prescale, other->prescale)) {
            (void)snprintf(text, 64, "prescale %.17g", it->prescale);
        } else if (!same_bits(one->postscale, other->postscale)) {
            (void)snprintf(text, 64, "postscale %.17g", it->postscale);
        } else if (((one->flags ^ other->flags) & MUSTER_TENSOR_REPRODUCIBLE) != 0) {
            (void)snprintf(text, 64, "reproducible %d",
                           (it->flags & MUSTER_TENSOR_REPRODUCIBLE) != 0);
        } else if (it->group == 0) {
            (void)snprintf(text, 64, "no group");
        } else {
            (void)snprintf(text, 64, "a group with checksum %016llx",
                           (unsigned long long)it->group);
        }
    }
}

uint64_t muster_description_bytes(const struct muster_description *description)
{
    uint64_t bytes = 0;
    return __builtin_mul_overflow(description->count, muster_type_size_bytes(description->type),
                                  &bytes)
               ? UINT64_MAX
               : bytes;
}

size_t muster_description_encode(const char *name, const struct muster_description *description,
                                 unsigned char *bytes)
{
    size_t length = strlen(name);
    const unsigned char head[8] = {
        MUSTER_DESCRIPTION_VERSION, (unsigned char)length, description->kind,
        description->type,          description->op,       description->flags};
    memcpy(bytes, head, sizeof head);
    muster_bytes_put(bytes + 8, description->root, 4);
    muster_bytes_put(bytes + 12, (uint32_t)description->priority, 4);
    muster_bytes_put(bytes + 16, description->count, 8);
    muster_bytes_put_double(bytes + 24, description->prescale);
    muster_bytes_put_double(bytes + 32, description->postscale);
    muster_bytes_put(bytes + 40, description->group, 8);
    muster_bytes_put(bytes + 48, 0, 8);
    for (size_t i = 0; i < length; i++) {
        bytes[MUSTER_DESCRIPTION_HEAD_SIZE + i] = (unsigned char)name[i];
    }
    return MUSTER_DESCRIPTION_HEAD_SIZE + length;
}

static bool is_sound(const unsigned char *bytes, size_t size)
{
    return size > MUSTER_DESCRIPTION_HEAD_SIZE && bytes[0] == MUSTER_DESCRIPTION_VERSION &&
           bytes[1] > 0 && bytes[1] <= size - MUSTER_DESCRIPTION_HEAD_SIZE &&
           bytes[2] < KIND_COUNT && bytes[3] < MUSTER_TYPE_COUNT && bytes[4] < MUSTER_OP_COUNT &&
           memchr(bytes + MUSTER_DESCRIPTION_HEAD_SIZE, 0, bytes[1]) == NULL;
}

muster_status muster_description_decode(const unsigned char *bytes, size_t size,
                                        char ret_name[MUSTER_TENSOR_NAME_MAX + 1],
                                        struct muster_description *ret_description,
                                        size_t *ret_used)
{
    if (!is_sound(bytes, size)) {
        return muster_error_set(MUSTER_FATAL, "%zu bytes that are no description of a tensor",
                                size);
    }
    size_t length = bytes[1];
    *ret_description = (struct muster_description){
        .count = muster_bytes_get(bytes + 16, 8),
        .prescale = muster_bytes_get_double(bytes + 24),
        .postscale = muster_bytes_get_double(bytes + 32),
        .group = muster_bytes_get(bytes + 40, 8),
        .root = (uint32_t)muster_bytes_get(bytes + 8, 4),
        .priority = (int32_t)muster_bytes_get(bytes + 12, 4),
        .kind = bytes[2],
        .type = bytes[3],
        .op = bytes[4],
        .flags = bytes[5],
    };
    memcpy(ret_name, bytes + MUSTER_DESCRIPTION_HEAD_SIZE, length);
    ret_name[length] = '\0';
    *ret_used = MUSTER_DESCRIPTION_HEAD_SIZE + length;
    return MUSTER_OK;
}
