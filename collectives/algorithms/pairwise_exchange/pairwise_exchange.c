/*
 * Pairwise exchange: the buffer is cut into P parts, and in step p partners swap part p: rank r
 * with rank p - r modulo P. Every rank exchanges with every other one once, one at a time, and with
 * itself. It is for measuring the links between all pairs.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c), section 4.3: the pairs of an
 * all-to-all; those of a round-robin tournament, so that P may be any number.
 *
 * Four ranks; in brackets the ranks whose own part it is:
 *
 *   part 0    1 <-> 3, (0), (2)
 *   part 1    0 <-> 1, 2 <-> 3
 *   part 2    0 <-> 2, (1), (3)
 *   part 3    0 <-> 3, 1 <-> 2
 *
 * In place, a part is sent from where it is received, so all parts are copied to scratch first.
 */
#include "collectives/algorithms/generators.h"

/* The part that a rank exchanges with itself. With an even number of ranks, two ranks have the same
 * one. */
static uint64_t own_part(const struct muster_plan *plan, uint32_t rank)
{
    return 2 * (uint64_t)rank % plan->topology->ranks;
}

static struct muster_span part_of(const struct muster_plan *plan, uint64_t part)
{
    return muster_span_part((struct muster_span){.count = plan->count}, plan->topology->ranks,
                            part);
}

/* Copies all parts but the rank's own to the same places in scratch. */
static void save(const struct muster_plan *plan, struct muster_builder *builder)
{
    struct muster_span own = part_of(plan, own_part(plan, plan->rank));
    uint64_t end = own.offset + own.count;
    struct muster_span before = {.count = own.offset};
    struct muster_span after = {.offset = end, .count = plan->count - end};
    (void)muster_builder_reserve(builder, plan->count); /* the only scratch, so it begins at 0 */
    muster_builder_copy(builder, MUSTER_INPUT, before, MUSTER_SCRATCH, before.offset);
    muster_builder_copy(builder, MUSTER_INPUT, after, MUSTER_SCRATCH, after.offset);
    muster_builder_next_round(builder);
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    struct muster_span own = part_of(plan, own_part(plan, plan->rank));
    if (plan->in_place) {
        save(plan, builder);
    } else {
        muster_builder_copy(builder, MUSTER_INPUT, own, MUSTER_OUTPUT, own.offset);
    }
    for (uint32_t part = 0; part < shape.ranks; part++) {
        uint32_t partner = muster_shape_partner(&shape, part);
        struct muster_span span = part_of(plan, part);
        if (partner != plan->rank) {
            muster_builder_send(builder, partner, plan->in_place ? MUSTER_SCRATCH : MUSTER_INPUT,
                                span);
            muster_builder_recv(builder, partner, MUSTER_OUTPUT, span);
            muster_builder_next_round(builder);
        }
    }
    return MUSTER_OK;
}

/* The busiest rank is the last of those with the smallest own part. */
static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint64_t last = own_part(plan, ranks % 2 == 0 ? ranks / 2 - 1 : ranks / 2);
    uint64_t elements = plan->count - part_of(plan, last).count;
    uint32_t saves = plan->in_place && elements > 0 ? 1 : 0;
    uint32_t copies = !plan->in_place && ranks == 1 && plan->count > 0 ? 1 : 0;
    *ret_formula =
        (struct muster_formula){.rounds = ranks - 1 + saves + copies, .elements = elements};
    muster_formula_exchange(plan->topology, elements, ret_formula);
}

const struct muster_generator muster_pairwise_exchange_generator = {
    .rounds_text = "P-1; in place P",
    .elements_text = "n(P-1)/P",
    .generate = generate,
    .formula = find_formula,
};
