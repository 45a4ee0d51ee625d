#include "collectives/algorithms/generators.h"

static uint32_t largest_host(const struct muster_topology *topology)
{
    uint32_t largest = 1;
    for (uint32_t host = 0; host < topology->hosts; host++) {
        largest = topology->host_sizes[host] > largest ? topology->host_sizes[host] : largest;
    }
    return largest;
}

void muster_formula_flat(const struct muster_topology *topology, struct muster_path path,
                         struct muster_formula *ret_formula)
{
    if (topology->hosts == 1) {
        ret_formula->local = path;
    } else {
        ret_formula->cross = path;
    }
}

uint32_t muster_formula_near_rounds(const struct muster_topology *topology)
{
    return muster_log2_down(largest_host(topology));
}

void muster_formula_add(struct muster_formula *formula, const struct muster_topology *topology,
                        bool near, uint64_t messages, uint64_t elements)
{
    bool local = near || topology->hosts == 1;
    struct muster_path *path = local ? &formula->local : &formula->cross;
    path->messages += messages;
    path->elements += local ? elements : elements * largest_host(topology);
}

void muster_formula_exchange(const struct muster_topology *topology, uint64_t elements,
                             struct muster_formula *ret_formula)
{
    uint64_t near = largest_host(topology) - 1;
    uint64_t far = topology->ranks - 1 - near;
    uint64_t each = topology->ranks > 1 ? elements / (topology->ranks - 1) : 0;
    muster_formula_add(ret_formula, topology, true, near, near * each);
    muster_formula_add(ret_formula, topology, false, far, far * each);
}
