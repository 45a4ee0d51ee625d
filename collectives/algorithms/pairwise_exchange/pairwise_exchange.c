/*
 * Pairwise exchange: the buffer is cut into C parts, and in step k every rank swaps part k with the
 * rank whose number differs in bit k. For measuring links: all ranks send and receive at the same
 * time, near pairs first. C is the parameter `steps`, from 1 to log2 P rounded down, which is the
 * default.
 *
 * Source: Gloo's pairwise_exchange, where C is called destinations. With P not a power of two, some
 * ranks have no partner in some steps: Gloo fails there, here they keep that part.
 *
 * Four ranks, two steps:
 *
 *   part 0    0 <-> 1, 2 <-> 3
 *   part 1    0 <-> 2, 1 <-> 3
 *
 * In place, a part is sent from where it is received, so all parts that are sent are copied to
 * scratch first.
 */
#include "collectives/algorithms/generators.h"

#include <inttypes.h>
#include <stdio.h>

static struct muster_span part_of(const struct muster_shape *shape, uint32_t part)
{
    return muster_span_part((struct muster_span){.count = shape->count}, muster_shape_steps(shape),
                            part);
}

/* Copies the parts that are sent to the same places in scratch. */
static void save(const struct muster_shape *shape, struct muster_builder *builder)
{
    (void)muster_builder_reserve(builder, shape->count); /* the only scratch, so it begins at 0 */
    for (uint32_t part = 0; part < muster_shape_steps(shape); part++) {
        struct muster_span span = part_of(shape, part);
        if (muster_shape_partner(shape, part) != shape->rank) {
            muster_builder_copy(builder, MUSTER_INPUT, span, MUSTER_SCRATCH, span.offset);
        }
    }
    muster_builder_next_round(builder);
}

static void keep(const struct muster_shape *shape, struct muster_builder *builder)
{
    for (uint32_t part = 0; part < muster_shape_steps(shape); part++) {
        struct muster_span span = part_of(shape, part);
        if (muster_shape_partner(shape, part) == shape->rank) {
            muster_builder_copy(builder, MUSTER_INPUT, span, MUSTER_OUTPUT, span.offset);
        }
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    if (plan->in_place && shape.ranks > 1) {
        save(&shape, builder);
    } else if (!plan->in_place) {
        keep(&shape, builder);
    }
    for (uint32_t part = 0; part < muster_shape_steps(&shape); part++) {
        uint32_t partner = muster_shape_partner(&shape, part);
        struct muster_span span = part_of(&shape, part);
        if (partner != plan->rank) {
            muster_builder_send(builder, partner, plan->in_place ? MUSTER_SCRATCH : MUSTER_INPUT,
                                span);
            muster_builder_recv(builder, partner, MUSTER_OUTPUT, span);
            muster_builder_next_round(builder);
        }
    }
    return MUSTER_OK;
}

/* Rank 0 has a partner in every step. */
static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    bool copies = plan->count > 0 && (shape.ranks == 1) != plan->in_place;
    if (shape.ranks == 1) {
        *ret_formula = (struct muster_formula){.rounds = copies ? 1 : 0};
        return;
    }
    uint32_t steps = muster_shape_steps(&shape);
    *ret_formula =
        (struct muster_formula){.rounds = steps + (copies ? 1 : 0), .elements = plan->count};
    for (uint32_t part = 0; part < steps; part++) {
        muster_formula_add(ret_formula, plan->topology, UINT64_C(2) << part, 1,
                           part_of(&shape, part).count);
    }
}

bool muster_pairwise_exchange_fits(const struct muster_plan *plan, char *ret_why, size_t size)
{
    uint32_t most = muster_pairwise_steps_max(plan->topology->ranks);
    if (plan->variant <= most) {
        return true;
    }
    (void)snprintf(ret_why, size, "on %" PRIu32 " ranks its steps must be from 1 to %" PRIu32,
                   plan->topology->ranks, most);
    return false;
}

/* Variants: the number of "steps=2" is 2. */

enum { STEPS_MAX = 31 };

static muster_status parse(const char *text, uint32_t *ret_variant)
{
    return muster_variant_parse(text, "steps", 1, STEPS_MAX, ret_variant);
}

static void print(uint32_t variant, char *ret_text, size_t size)
{
    (void)snprintf(ret_text, size, "steps=%" PRIu32, variant);
}

const struct muster_variants muster_pairwise_exchange_variants = {.parse = parse, .print = print};

const struct muster_generator muster_pairwise_exchange_generator = {
    .rounds_text = "C; in place C + 1",
    .elements_text = "n",
    .generate = generate,
    .formula = find_formula,
};
