/*
 * All-to-all barrier: every rank sends an empty message to every other one. One round, P - 1
 * messages a rank: for few ranks.
 *
 * Source: T. Hoefler, T. Mehlan, F. Mietke, W. Rehm: A survey of barrier algorithms for coarse
 * grained supercomputers. Chemnitzer Informatik-Berichte 04-03 (2004), which compares the others.
 *
 * Four ranks:
 *
 *   round 0    0 <-> 1    0 <-> 2    0 <-> 3    1 <-> 2    1 <-> 3    2 <-> 3
 */
#include "collectives/algorithms/generators.h"

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    uint32_t ranks = plan->topology->ranks;
    const struct muster_span nothing = {.count = 0};
    for (uint32_t i = 1; i < ranks; i++) {
        muster_builder_send(builder, (plan->rank + i) % ranks, MUSTER_INPUT, nothing);
        muster_builder_recv(builder, (plan->rank + ranks - i) % ranks, MUSTER_OUTPUT, nothing);
    }
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t rounds = plan->topology->ranks > 1 ? 1 : 0;
    *ret_formula = (struct muster_formula){.rounds = rounds};
    muster_formula_flat(plan->topology, (struct muster_path){.messages = plan->topology->ranks - 1},
                        ret_formula);
}

const struct muster_generator muster_barrier_all_to_all_generator = {
    .rounds_text = "1",
    .elements_text = "0",
    .generate = generate,
    .formula = find_formula,
};
