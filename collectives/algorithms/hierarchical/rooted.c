/* Leaders of hosts and racks, and the formulas of collectives with leaders. */
#include "collectives/algorithms/hierarchical/rooted.h"

#include "collectives/algorithms/generators.h"

/* The host whose leader leads the rack, and the rank that leads the host. */
static uint32_t rack_leader(const struct muster_topology *topology, uint32_t rack,
                            uint32_t root_host)
{
    uint32_t first = topology->rack_first[rack];
    bool of_root = root_host >= first && root_host < first + topology->rack_sizes[rack];
    return of_root ? root_host : first;
}

static uint32_t host_leader(const struct muster_topology *topology, uint32_t host, uint32_t root)
{
    uint32_t first = topology->host_first[host];
    bool of_root = root >= first && root < first + topology->host_sizes[host];
    return of_root ? root : first;
}

struct muster_rooted muster_rooted_at(const struct muster_topology *topology, uint32_t root,
                                      uint32_t host, uint32_t local_rank)
{
    uint32_t rack = muster_topology_rack(topology, host);
    uint32_t root_host = muster_topology_host(topology, root);
    uint32_t leading = rack_leader(topology, rack, root_host);
    uint32_t leader = host_leader(topology, host, root) - topology->host_first[host];
    struct muster_rooted rooted = {
        .topology = topology,
        .root = root,
        .levels = {{.group = {.size = topology->racks, .index = rack},
                    .root = muster_topology_rack(topology, root_host)},
                   {.group = {.size = topology->rack_sizes[rack],
                              .index = host - topology->rack_first[rack]},
                    .root = leading - topology->rack_first[rack]},
                   {.group = {.offset = topology->host_first[host],
                              .size = topology->host_sizes[host],
                              .index = local_rank},
                    .root = leader}},
        .first = local_rank != leader ? 2
                 : host != leading    ? 1
                                      : 0,
    };
    return rooted;
}

struct muster_rooted muster_rooted_of(const struct muster_plan *plan, uint32_t *ranks)
{
    const struct muster_topology *topology = plan->topology;
    uint32_t host = muster_topology_host(topology, plan->rank);
    uint32_t root_host = muster_topology_host(topology, plan->root);
    struct muster_rooted rooted =
        muster_rooted_at(topology, plan->root, host, plan->rank - topology->host_first[host]);
    uint32_t *racks = ranks + topology->hosts;
    for (uint32_t i = 0; i < topology->hosts; i++) {
        ranks[i] = host_leader(topology, i, plan->root);
    }
    for (uint32_t i = 0; i < topology->racks; i++) {
        racks[i] = ranks[rack_leader(topology, i, root_host)];
    }
    uint32_t rack = rooted.levels[0].group.index;
    rooted.levels[0].group.ranks = racks;
    rooted.levels[1].group.ranks = &ranks[topology->rack_first[rack]];
    return rooted;
}

size_t muster_rooted_room(const struct muster_topology *topology)
{
    return (size_t)topology->hosts + topology->racks;
}

uint32_t muster_rooted_place(const struct muster_rooted_level *level)
{
    return (level->group.index + level->group.size - level->root) % level->group.size;
}

static struct muster_step_totals
totals_of_rank(const struct muster_rooted *rooted, uint64_t count,
               const muster_rooted_totals level_totals[MUSTER_ROOTED_LEVELS])
{
    struct muster_step_totals sum = {0};
    for (uint32_t i = rooted->first; i < MUSTER_ROOTED_LEVELS; i++) {
        const struct muster_rooted_level *level = &rooted->levels[i];
        const struct muster_step_totals totals =
            level_totals[i](count, level->group.size, muster_rooted_place(level));
        sum.rounds += totals.rounds;
        sum.elements += totals.elements;
    }
    return sum;
}

/* A leader's messages, one after the other: sent or received, whichever is more. */
static struct muster_path path_of(const struct muster_step_totals *totals)
{
    return (struct muster_path){.messages = totals->rounds,
                                .elements = totals->elements > totals->reduced ? totals->elements
                                                                               : totals->reduced};
}

static void estimate(const struct muster_plan *plan,
                     const muster_rooted_totals level_totals[MUSTER_ROOTED_LEVELS],
                     struct muster_formula *formula)
{
    const struct muster_topology *topology = plan->topology;
    const struct muster_step_totals world = level_totals[0](plan->count, topology->racks, 0);
    const struct muster_step_totals cross =
        level_totals[1](plan->count, muster_topology_largest_rack(topology), 0);
    const struct muster_step_totals local =
        level_totals[2](plan->count, muster_topology_largest_host(topology), 0);
    muster_formula_between(formula, topology, path_of(&world), 1);
    formula->cross.messages += path_of(&cross).messages;
    formula->cross.elements += path_of(&cross).elements;
    formula->local = path_of(&local);
    formula->reduced = world.reduced + cross.reduced + local.reduced;
}

void muster_rooted_formula(const struct muster_plan *plan,
                           const muster_rooted_totals level_totals[MUSTER_ROOTED_LEVELS],
                           struct muster_formula *ret_formula)
{
    const struct muster_topology *topology = plan->topology;
    struct muster_formula formula = {0};
    for (uint32_t host = 0; host < topology->hosts; host++) {
        for (uint32_t rank = 0; rank < topology->host_sizes[host]; rank++) {
            const struct muster_rooted rooted = muster_rooted_at(topology, plan->root, host, rank);
            const struct muster_step_totals totals =
                totals_of_rank(&rooted, plan->count, level_totals);
            formula.rounds = totals.rounds > formula.rounds ? totals.rounds : formula.rounds;
            formula.elements =
                totals.elements > formula.elements ? totals.elements : formula.elements;
        }
    }
    estimate(plan, level_totals, &formula);
    *ret_formula = formula;
}
