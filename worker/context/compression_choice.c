/* Compares the predicted times of calls with and without compression. */
#include "worker/context/compression_choice.h"

#include "worker/base/status.h"

/* How many times as long as reducing a byte of float32 it takes to reduce a byte of packs: both
 * operands are decoded, and the result is encoded. From tests/bench/FIGURES_compression.md. */
static double reduction_slowdown(muster_compression compression)
{
    return compression == MUSTER_COMPRESSION_INT8 ? 20 : 4;
}

/* A byte of elements is copied once where it is encoded, and once where it is decoded. */
static double conversion_us(const struct muster_plan *plan, const struct muster_cost_model *model)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    uint64_t elements = muster_shape_input_count(&shape) + muster_shape_output_count(&shape);
    return muster_cost_bytes_us(elements, sizeof(float), model->core.copy_GBps);
}

static muster_status predict(const struct muster_choices *choices, size_t algorithm,
                             const struct muster_plan *plain, const struct muster_plan *packed,
                             muster_compression compression, double *ret_us)
{
    struct muster_cost_model model = choices->model;
    model.core.reduce_GBps /= reduction_slowdown(compression);
    TRY(muster_select_cost_us(algorithm, packed, muster_pack_bytes(compression), &model, ret_us));
    *ret_us += conversion_us(plain, &model);
    return MUSTER_OK;
}

struct muster_plan muster_compression_plan(const struct muster_plan *plan,
                                           const struct muster_packing *packing)
{
    struct muster_plan packed = *plan;
    packed.count = packing->block_packs;
    packed.memory = NULL;
    packed.keep_input = false;
    return packed;
}

muster_status muster_compression_choose(struct muster_choices *choices,
                                        const struct muster_request_key *key,
                                        const struct muster_plan *plan,
                                        struct muster_packing *ret_packing, size_t *ret_algorithm)
{
    muster_compression compression = muster_request_key_compression(key);
    const struct muster_packing packing = muster_packing_of(compression, plan->count);
    const struct muster_packing none = {.block_packs = 0};
    const struct muster_plan packed = muster_compression_plan(plan, &packing);
    bool alone = plan->topology->ranks == 1 || plan->count == 0;
    if ((key->flags & MUSTER_KEY_NAMED) != 0) {
        *ret_algorithm = key->algorithm;
        *ret_packing = alone || muster_algorithm_uses_memory(key->algorithm) ? none : packing;
        return MUSTER_OK;
    }
    size_t algorithm = 0;
    size_t packed_algorithm = 0;
    double us = 0;
    double packed_us = 0;
    TRY(muster_choices_make(choices, plan, sizeof(float), &algorithm));
    TRY(muster_choices_make(choices, &packed, muster_pack_bytes(compression), &packed_algorithm));
    if (!alone) {
        TRY(muster_select_cost_us(algorithm, plan, sizeof(float), &choices->model, &us));
        TRY(predict(choices, packed_algorithm, plan, &packed, compression, &packed_us));
    }
    bool compresses = !alone && packed_us < us && !muster_algorithm_uses_memory(packed_algorithm);
    *ret_algorithm = compresses ? packed_algorithm : algorithm;
    *ret_packing = compresses ? packing : none;
    return MUSTER_OK;
}
