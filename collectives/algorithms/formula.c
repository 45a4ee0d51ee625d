/* Estimates of critical paths through a job, for the formulas of large jobs (generators.h). */
#include "collectives/algorithms/generators.h"

/* The most ranks of one rack. */
static uint32_t ranks_of_largest_rack(const struct muster_topology *topology)
{
    uint32_t most = 0;
    for (uint32_t rack = 0; rack < topology->racks; rack++) {
        uint32_t end = rack + 1 < topology->racks
                           ? topology->host_first[topology->rack_first[rack + 1]]
                           : topology->ranks;
        uint32_t size = end - topology->host_first[topology->rack_first[rack]];
        most = size > most ? size : most;
    }
    return most;
}

static void add_path(struct muster_path *sum, struct muster_path path)
{
    sum->messages += path.messages;
    sum->elements += path.elements;
}

void muster_formula_between(struct muster_formula *formula, const struct muster_topology *topology,
                            struct muster_path path, uint64_t hosts)
{
    if (topology->racks == 1) {
        add_path(&formula->cross, path);
        return;
    }
    add_path(&formula->world, path);
    formula->rack_elements += path.elements * hosts;
}

void muster_formula_flat(const struct muster_topology *topology, struct muster_path path,
                         struct muster_formula *ret_formula)
{
    if (topology->hosts == 1) {
        ret_formula->local = path;
    } else {
        muster_formula_between(ret_formula, topology, path, 1);
    }
}

void muster_formula_ring(const struct muster_topology *topology, struct muster_path path,
                         struct muster_formula *ret_formula)
{
    muster_formula_flat(topology, path, ret_formula);
    if (topology->hosts == 1) {
        return;
    }
    uint64_t ranks = topology->ranks;
    uint64_t slowest = topology->racks > 1 ? topology->racks : topology->hosts;
    struct muster_path *far = topology->racks > 1 ? &ret_formula->world : &ret_formula->cross;
    far->messages = (path.messages * slowest + ranks - 1) / ranks;
    ret_formula->local.messages = path.messages * (ranks - topology->hosts) / ranks;
    if (topology->racks > 1) {
        ret_formula->cross.messages = path.messages * (topology->hosts - slowest) / ranks;
    }
}

/* Partners lie at distances that are powers of two: true if all of them are among so many ranks. */
static bool stays_within(uint64_t reach, uint32_t ranks)
{
    return reach <= UINT64_C(1) << muster_log2_down(ranks);
}

void muster_formula_add(struct muster_formula *formula, const struct muster_topology *topology,
                        uint64_t reach, uint64_t messages, uint64_t elements)
{
    struct muster_path path = {.messages = messages, .elements = elements};
    if (topology->hosts == 1 || stays_within(reach, muster_topology_largest_host(topology))) {
        add_path(&formula->local, path);
        return;
    }
    path.elements *= muster_topology_largest_host(topology);
    if (stays_within(reach, ranks_of_largest_rack(topology))) {
        add_path(&formula->cross, path);
    } else {
        muster_formula_between(formula, topology, path, muster_topology_largest_rack(topology));
    }
}

void muster_formula_exchange(const struct muster_topology *topology, uint64_t elements,
                             struct muster_formula *ret_formula)
{
    uint64_t local = muster_topology_largest_host(topology);
    uint64_t rack = ranks_of_largest_rack(topology);
    uint64_t each = topology->ranks > 1 ? elements / (topology->ranks - 1) : 0;
    muster_formula_add(ret_formula, topology, 1, local - 1, (local - 1) * each);
    muster_formula_add(ret_formula, topology, topology->racks > 1 ? local + 1 : UINT64_MAX,
                       rack - local, (rack - local) * each);
    muster_formula_add(ret_formula, topology, UINT64_MAX, topology->ranks - rack,
                       (topology->ranks - rack) * each);
}
