/*
 * Hierarchical gather and gatherv: on each host the first rank collects the blocks of all ranks,
 * and sends them to the root in one message, as they are adjacent there; on its own host the root
 * receives them itself. Two rounds; every element crosses a host's uplink once, and the root
 * handles one message a host instead of one a rank.
 *
 * Source: J. L. Traeff: Hierarchical gather/scatter algorithms with graceful degradation. IPDPS
 * 2004.
 *
 * Five ranks with blocks a to e on hosts {0, 1} and {2, 3, 4}, root 0:
 *
 *   round 0    0 <-- b -- 1    2 <-- d -- 3    2 <-- e -- 4
 *   round 1    0 <-------- cde -- 2
 */
#include "collectives/algorithms/generators.h"

#include "collectives/algorithms/blocks.h"

/* The blocks of a host's ranks, which are adjacent. */
static struct muster_span host_blocks(const struct muster_topology *topology,
                                      const struct muster_blocks *blocks, uint32_t host)
{
    uint64_t first = topology->host_first[host];
    return muster_blocks_range(blocks, first, first + topology->host_sizes[host]);
}

static void collect_at_root(const struct muster_plan *plan, const struct muster_blocks *blocks,
                            uint32_t own_host, struct muster_builder *builder)
{
    const struct muster_topology *topology = plan->topology;
    struct muster_span own = muster_blocks_at(blocks, plan->root);
    muster_builder_copy(builder, MUSTER_INPUT, (struct muster_span){.count = own.count},
                        MUSTER_OUTPUT, own.offset);
    for (uint32_t i = 1; i < topology->host_sizes[own_host]; i++) {
        uint32_t first = topology->host_first[own_host];
        uint32_t from = first + (plan->root - first + i) % topology->host_sizes[own_host];
        muster_builder_recv(builder, from, MUSTER_OUTPUT, muster_blocks_at(blocks, from));
    }
    for (uint32_t i = 1; i < topology->hosts; i++) {
        uint32_t host = (own_host + i) % topology->hosts;
        muster_builder_recv(builder, topology->host_first[host], MUSTER_OUTPUT,
                            host_blocks(topology, blocks, host));
    }
}

/* The first rank of another host collects its host's blocks in SCRATCH and sends them. */
static void collect_and_send(const struct muster_plan *plan, const struct muster_blocks *blocks,
                             uint32_t host, struct muster_builder *builder)
{
    uint32_t first = plan->rank;
    uint32_t size = plan->topology->host_sizes[host];
    struct muster_span all = host_blocks(plan->topology, blocks, host);
    struct muster_span own = {.count = muster_blocks_at(blocks, first).count};
    if (size == 1) {
        muster_builder_send(builder, plan->root, MUSTER_INPUT, own);
        return;
    }
    uint64_t place = muster_builder_reserve(builder, all.count);
    muster_builder_copy(builder, MUSTER_INPUT, own, MUSTER_SCRATCH, place);
    for (uint32_t from = first + 1; from < first + size; from++) {
        struct muster_span block = muster_blocks_at(blocks, from);
        block.offset = place + block.offset - all.offset;
        muster_builder_recv(builder, from, MUSTER_SCRATCH, block);
    }
    muster_builder_next_round(builder);
    muster_builder_send(builder, plan->root, MUSTER_SCRATCH,
                        (struct muster_span){.offset = place, .count = all.count});
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_topology *topology = plan->topology;
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    uint32_t host = muster_topology_locate(topology, plan->rank).host;
    bool with_root = host == muster_topology_locate(topology, plan->root).host;
    if (plan->rank == plan->root) {
        collect_at_root(plan, &blocks, host, builder);
    } else if (!with_root && plan->rank == topology->host_first[host]) {
        collect_and_send(plan, &blocks, host, builder);
    } else {
        struct muster_span own = {.count = muster_blocks_at(&blocks, plan->rank).count};
        uint32_t to = with_root ? plan->root : topology->host_first[host];
        muster_builder_send(builder, to, MUSTER_INPUT, own);
    }
    return MUSTER_OK;
}

/* The largest block that the root receives from a rank of its own host. */
static uint64_t largest_beside_root(const struct muster_plan *plan,
                                    const struct muster_blocks *blocks, uint32_t root_host)
{
    uint32_t first = plan->topology->host_first[root_host];
    uint64_t largest = 0;
    for (uint32_t i = 0; i < plan->topology->host_sizes[root_host]; i++) {
        uint64_t count = first + i == plan->root ? 0 : muster_blocks_at(blocks, first + i).count;
        largest = count > largest ? count : largest;
    }
    return largest;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_topology *topology = plan->topology;
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    uint32_t root_host = muster_topology_locate(topology, plan->root).host;
    struct muster_formula formula = {.rounds = 1};
    for (uint32_t host = 0; host < topology->hosts; host++) {
        uint32_t size = topology->host_sizes[host];
        struct muster_span all = host_blocks(topology, &blocks, host);
        uint64_t sent =
            host == root_host ? largest_beside_root(plan, &blocks, root_host) : all.count;
        formula.rounds = host != root_host && size > 1 ? 2 : formula.rounds;
        formula.elements = sent > formula.elements ? sent : formula.elements;
        formula.local.messages =
            size - 1 > formula.local.messages ? size - 1 : formula.local.messages;
        formula.local.elements =
            all.count > formula.local.elements ? all.count : formula.local.elements;
    }
    uint64_t here = host_blocks(topology, &blocks, root_host).count;
    muster_formula_between(&formula, topology,
                           (struct muster_path){.messages = topology->hosts - 1,
                                                .elements = muster_blocks_total(&blocks) - here},
                           1);
    *ret_formula = formula;
}

const struct muster_generator muster_gather_hierarchical_generator = {
    .rounds_text = "2",
    .elements_text = "nL",
    .generate = generate,
    .formula = find_formula,
};
