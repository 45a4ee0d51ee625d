/*
 * Hierarchical scatter: the gather backward. The root sends the blocks of each other host in one
 * message to the first rank of that host, which sends them to their ranks; on its own host the root
 * does so itself. Two rounds; every element crosses a host's uplink once.
 *
 * Source: as in gather_hierarchical.c.
 *
 * Five ranks with blocks a to e on hosts {0, 1} and {2, 3, 4}, root 0:
 *
 *   round 0    0 -- b --> 1    0 -- cde --> 2
 *   round 1                    2 -- d --> 3    2 -- e --> 4
 */
#include "collectives/algorithms/generators.h"

#include "collectives/algorithms/blocks.h"

static void send_from_root(const struct muster_plan *plan, const struct muster_blocks *blocks,
                           uint32_t own_host, struct muster_builder *builder)
{
    const struct muster_topology *topology = plan->topology;
    uint32_t first = topology->host_first[own_host];
    uint32_t size = topology->host_sizes[own_host];
    muster_builder_copy(builder, MUSTER_INPUT, muster_blocks_at(blocks, plan->root), MUSTER_OUTPUT,
                        0);
    /* Messages to other hosts come first, as they take longer. */
    for (uint32_t i = 1; i < topology->hosts; i++) {
        uint32_t host = (own_host + i) % topology->hosts;
        uint64_t there = topology->host_first[host];
        muster_builder_send(builder, (uint32_t)there, MUSTER_INPUT,
                            muster_blocks_range(blocks, there, there + topology->host_sizes[host]));
    }
    for (uint32_t i = 1; i < size; i++) {
        uint32_t to = first + (plan->root - first + i) % size;
        muster_builder_send(builder, to, MUSTER_INPUT, muster_blocks_at(blocks, to));
    }
}

/* The first of several ranks of another host. */
static void receive_and_send(const struct muster_plan *plan, uint32_t size,
                             struct muster_builder *builder)
{
    uint64_t place = muster_builder_reserve(builder, size * plan->count);
    muster_builder_recv(builder, plan->root, MUSTER_SCRATCH,
                        (struct muster_span){.offset = place, .count = size * plan->count});
    muster_builder_next_round(builder);
    for (uint32_t i = 0; i < size; i++) {
        struct muster_span block = {.offset = place + i * plan->count, .count = plan->count};
        if (i == 0) {
            muster_builder_copy(builder, MUSTER_SCRATCH, block, MUSTER_OUTPUT, 0);
        } else {
            muster_builder_send(builder, plan->rank + i, MUSTER_SCRATCH, block);
        }
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_topology *topology = plan->topology;
    const struct muster_blocks blocks = muster_blocks_of_input(plan);
    uint32_t host = muster_topology_locate(topology, plan->rank).host;
    uint32_t first = topology->host_first[host];
    bool with_root = host == muster_topology_locate(topology, plan->root).host;
    if (plan->rank == plan->root) {
        send_from_root(plan, &blocks, host, builder);
    } else if (!with_root && plan->rank == first && topology->host_sizes[host] > 1) {
        receive_and_send(plan, topology->host_sizes[host], builder);
    } else {
        bool from_root = with_root || plan->rank == first;
        muster_builder_recv(builder, from_root ? plan->root : first, MUSTER_OUTPUT,
                            (struct muster_span){.count = plan->count});
    }
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_topology *topology = plan->topology;
    uint32_t root_host = muster_topology_locate(topology, plan->root).host;
    struct muster_formula formula = {.rounds = 1, .elements = (topology->ranks - 1) * plan->count};
    for (uint32_t host = 0; host < topology->hosts; host++) {
        uint32_t others = topology->host_sizes[host] - 1;
        if (host != root_host && others > 0) {
            formula.rounds = 2;
        }
        if (others > formula.local.messages) {
            formula.local =
                (struct muster_path){.messages = others, .elements = others * plan->count};
        }
    }
    uint64_t away = topology->ranks - topology->host_sizes[root_host];
    muster_formula_between(
        &formula, topology,
        (struct muster_path){.messages = topology->hosts - 1, .elements = away * plan->count}, 1);
    *ret_formula = formula;
}

const struct muster_generator muster_scatter_hierarchical_generator = {
    .rounds_text = "2",
    .elements_text = "n(P-1)",
    .generate = generate,
    .formula = find_formula,
};
