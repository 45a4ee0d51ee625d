/* Plans which tensors go together: each joins the youngest operation that it fits in. */
#include "worker/engine/agree/fusion.h"

#include <stdlib.h>
#include <string.h>

#include "worker/base/array.h"
#include "worker/base/cleanup.h"

/* An operation that is being filled. */
struct bucket {
    const struct muster_description *first;
    uint64_t bytes;
    uint32_t count;
};

enum { OPEN_MAX = 16 }; /* operations that may still grow; the oldest is closed */

void muster_fusion_plan_finish(struct muster_fusion_plan *plan)
{
    free(plan->tensors);
    free(plan->starts);
    *plan = (struct muster_fusion_plan){.count = 0};
}

bool muster_description_fuses(const struct muster_description *description)
{
    return description->kind == MUSTER_TENSOR_ALLREDUCE ||
           description->kind == MUSTER_TENSOR_BROADCAST;
}

static bool fit(const struct muster_description *one, const struct muster_description *other)
{
    struct muster_description same = *other;
    if (((one->flags | other->flags) & MUSTER_TENSOR_ALONE) == 0) {
        same.group = one->group;
    }
    same.count = one->count;
    return muster_description_fuses(one) && muster_descriptions_match(one, &same);
}

static bool add_room(struct muster_fusion_plan *plan, uint32_t count)
{
    if (plan->room >= count && plan->starts != NULL) {
        return true;
    }
    if (!muster_array_resize(&plan->tensors, (size_t)count + 1, sizeof *plan->tensors) ||
        !muster_array_resize(&plan->starts, (size_t)count + 1, sizeof *plan->starts)) {
        return false;
    }
    plan->room = count;
    return true;
}

/* The bucket of each tensor; returns how many buckets there are. */
static uint32_t fill(const struct muster_description *const *descriptions, uint32_t count,
                     uint64_t limit_bytes, struct bucket *buckets, uint32_t *ret_places)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = muster_description_bytes(descriptions[i]);
        uint32_t oldest = used > OPEN_MAX ? used - OPEN_MAX : 0;
        uint32_t place = used;
        for (uint32_t b = used; b > oldest && place == used; b--) {
            const struct bucket *bucket = &buckets[b - 1];
            if (fit(bucket->first, descriptions[i]) && bytes <= limit_bytes &&
                bucket->bytes <= limit_bytes - bytes) {
                place = b - 1;
            }
        }
        if (place == used) {
            buckets[used++] = (struct bucket){.first = descriptions[i]};
        }
        buckets[place].bytes += bytes;
        buckets[place].count++;
        ret_places[i] = place;
    }
    return used;
}

muster_status muster_fusion_plan_make(struct muster_fusion_plan *plan, const uint32_t *numbers,
                                      const struct muster_description *const *descriptions,
                                      uint32_t count, uint64_t limit_bytes)
{
    AUTO_FREE struct bucket *buckets = calloc((size_t)count + 1, sizeof *buckets);
    AUTO_FREE uint32_t *places = calloc((size_t)count + 1, sizeof *places);
    if (buckets == NULL || places == NULL || !add_room(plan, count)) {
        return muster_error_set(MUSTER_FATAL, "no memory to fuse %u tensors", count);
    }
    uint32_t used = fill(descriptions, count, limit_bytes, buckets, places);
    plan->starts[0] = 0;
    for (uint32_t b = 0; b < used; b++) {
        plan->starts[b + 1] = plan->starts[b] + buckets[b].count;
        buckets[b].count = 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        plan->tensors[plan->starts[places[i]] + buckets[places[i]].count++] = numbers[i];
    }
    plan->count = count;
    plan->operations = used;
    return MUSTER_OK;
}
