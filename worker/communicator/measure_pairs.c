/* Which pairs of ranks measure links: computed from the topology alone. */
#include "worker/communicator/measure_pairs.h"

#include <stdlib.h>

#include "worker/base/status.h"

enum {
    PAIRS_MAX = 4,  /* of hosts, at each level */
    ACTIVE_MAX = 8, /* ranks at once where they share fewer cores; but always two for each core */
    NONE = UINT32_MAX,
};

unsigned muster_measure_levels(const struct muster_topology *topology)
{
    unsigned levels = topology->racks > 1 ? 1U << MUSTER_LEVEL_WORLD : 0;
    levels |= topology->hosts > topology->racks ? 1U << MUSTER_LEVEL_RACK : 0;
    levels |= topology->ranks > topology->hosts ? 1U << MUSTER_LEVEL_HOST : 0;
    return levels;
}

static uint32_t smaller(uint32_t one, uint32_t other)
{
    return one < other ? one : other;
}

static uint32_t at_least_one(uint32_t count)
{
    return count > 0 ? count : 1;
}

/* The neighbours are 0 and 1, 2 and 3, ... Of an odd count the last is its own neighbour. */
static uint32_t neighbour(uint32_t index, uint32_t count)
{
    uint32_t other = index ^ 1;
    return other < count ? other : index;
}

/* Partners ------------------------------------------------------------------------------------- */

/* The host that this one could measure with at a level, or NONE. Hosts of neighbouring racks are
 * paired by their place in the rack. */
static uint32_t possible_partner(const struct muster_topology *topology, uint32_t host,
                                 uint32_t rack, enum muster_link_level level)
{
    uint32_t index = host - topology->rack_first[rack];
    uint32_t other = NONE;
    switch (level) {
    case MUSTER_LEVEL_HOST:
        return topology->host_sizes[host] > 1 ? host : NONE;
    case MUSTER_LEVEL_RACK:
        other = topology->rack_first[rack] + neighbour(index, topology->rack_sizes[rack]);
        return other != host ? other : NONE;
    case MUSTER_LEVEL_WORLD:
        other = neighbour(rack, topology->racks);
        return other != rack && index < topology->rack_sizes[other]
                   ? topology->rack_first[other] + index
                   : NONE;
    }
    return NONE;
}

/* A group is a pair of hosts, or all pairs between two racks. True for one host of each group. */
static bool begins_group(const struct muster_topology *topology, uint32_t host, uint32_t rack,
                         uint32_t partner, enum muster_link_level level)
{
    return partner != NONE && host <= partner &&
           (level != MUSTER_LEVEL_WORLD || host == topology->rack_first[rack]);
}

/* Selects `wanted` of the groups, spread evenly, the first one among them. */
static bool is_selected(uint32_t group, uint32_t groups, uint32_t wanted)
{
    return groups > 0 && (uint64_t)group * wanted % groups < wanted;
}

static uint32_t count_groups(const struct muster_topology *topology, enum muster_link_level level)
{
    uint32_t groups = 0;
    for (uint32_t host = 0; host < topology->hosts; host++) {
        uint32_t rack = muster_topology_rack(topology, host);
        uint32_t partner = possible_partner(topology, host, rack, level);
        groups += begins_group(topology, host, rack, partner, level) ? 1 : 0;
    }
    return groups;
}

/* Fills in each host's partner: of `wanted` groups, and of at most `pairs_max` pairs in a group
 * between racks. */
static void choose(const struct muster_topology *topology, enum muster_link_level level,
                   uint32_t wanted, uint32_t pairs_max, uint32_t *partners)
{
    uint32_t groups = count_groups(topology, level);
    uint32_t group = 0;
    bool selected = false;
    for (uint32_t host = 0; host < topology->hosts; host++) {
        partners[host] = NONE;
    }
    for (uint32_t host = 0; host < topology->hosts; host++) {
        uint32_t rack = muster_topology_rack(topology, host);
        uint32_t partner = possible_partner(topology, host, rack, level);
        if (partner == NONE || host > partner) {
            continue;
        }
        if (begins_group(topology, host, rack, partner, level)) {
            selected = is_selected(group, groups, wanted < groups ? wanted : groups);
            group++;
        }
        if (selected &&
            (level != MUSTER_LEVEL_WORLD || host - topology->rack_first[rack] < pairs_max)) {
            partners[host] = partner;
            partners[partner] = host;
        }
    }
}

/* The most streams that could share a resource (measure.h): within a host one for each pair of its
 * ranks, between hosts one for each rank of a host, between racks one for each host of a rack. */
static uint32_t most_streams(const struct muster_topology *topology, enum muster_link_level level)
{
    uint32_t most = 1;
    const uint32_t *sizes =
        level == MUSTER_LEVEL_WORLD ? topology->rack_sizes : topology->host_sizes;
    uint32_t count = level == MUSTER_LEVEL_WORLD ? topology->racks : topology->hosts;
    for (uint32_t i = 0; i < count; i++) {
        most = sizes[i] > most ? sizes[i] : most;
    }
    return level == MUSTER_LEVEL_HOST ? (most + 1) / 2 : most;
}

/* How many groups measure in each stage, and with how many streams. */
static void set_limits(struct muster_measure_pairs *pairs, const struct muster_core_figures *core,
                       enum muster_link_level level, uint32_t wanted[MUSTER_MEASURE_STAGES])
{
    uint32_t streams = most_streams(pairs->topology, level);
    wanted[MUSTER_MEASURE_ALONE] = PAIRS_MAX;
    wanted[MUSTER_MEASURE_SHARED] = PAIRS_MAX;
    if (core->cores > 0) {
        uint32_t active = 2 * core->cores > ACTIVE_MAX ? 2 * core->cores : ACTIVE_MAX;
        uint32_t moving = level == MUSTER_LEVEL_HOST ? (core->cores + 1) / 2 : core->cores;
        streams = smaller(streams, moving); /* no more can make progress at once */
        if (core->one_machine != 0) {
            wanted[MUSTER_MEASURE_ALONE] = 1;
            wanted[MUSTER_MEASURE_SHARED] = smaller(PAIRS_MAX, active / 2 / at_least_one(streams));
        }
    }
    pairs->streams_max[level] = streams;
}

muster_status muster_measure_pairs_init(const struct muster_topology *topology,
                                        const struct muster_core_figures *core,
                                        struct muster_measure_pairs *ret_pairs)
{
    struct muster_measure_pairs pairs = {.topology = topology};
    for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        uint32_t wanted[MUSTER_MEASURE_STAGES];
        if ((muster_measure_levels(topology) & 1U << level) == 0) {
            continue;
        }
        set_limits(&pairs, core, level, wanted);
        for (unsigned stage = 0; stage < MUSTER_MEASURE_STAGES; stage++) {
            uint32_t *partners = calloc((size_t)topology->hosts + 1, sizeof *partners);
            pairs.partners[level][stage] = partners;
            if (partners == NULL) {
                muster_measure_pairs_finish(&pairs);
                return muster_error_set(MUSTER_FATAL, "no memory to measure %u hosts with",
                                        topology->hosts);
            }
            uint32_t pairs_max = stage == MUSTER_MEASURE_ALONE ? 1 : pairs.streams_max[level];
            choose(topology, level, wanted[stage], pairs_max, partners);
        }
    }
    *ret_pairs = pairs;
    return MUSTER_OK;
}

void muster_measure_pairs_finish(struct muster_measure_pairs *pairs)
{
    for (int level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        for (unsigned stage = 0; stage < MUSTER_MEASURE_STAGES; stage++) {
            free(pairs->partners[level][stage]);
            pairs->partners[level][stage] = NULL;
        }
    }
}

/* Ranks ---------------------------------------------------------------------------------------- */

static struct muster_measure_role role_within(const struct muster_measure_pairs *pairs,
                                              const struct muster_position *here, uint32_t most)
{
    uint32_t streams = smaller(here->local_size / 2, most);
    uint32_t other = neighbour(here->local_rank, here->local_size);
    return (struct muster_measure_role){
        .active = other != here->local_rank && here->local_rank < 2 * streams,
        .peer = muster_topology_rank(pairs->topology, here->host, other),
        .streams = 2 * streams,
    };
}

static struct muster_measure_role role_between(const struct muster_measure_pairs *pairs,
                                               const struct muster_position *here, uint32_t partner,
                                               uint32_t most)
{
    uint32_t streams =
        smaller(smaller(here->local_size, pairs->topology->host_sizes[partner]), most);
    struct muster_measure_role role = {.active = here->local_rank < streams, .streams = streams};
    if (role.active) {
        role.peer = muster_topology_rank(pairs->topology, partner, here->local_rank);
    }
    return role;
}

/* Between racks the first rank of each host measures with that of the partner. */
static struct muster_measure_role role_beyond(const struct muster_measure_pairs *pairs,
                                              const struct muster_position *here, uint32_t partner,
                                              uint32_t most)
{
    const struct muster_topology *topology = pairs->topology;
    uint32_t there = muster_topology_rack(topology, partner);
    uint32_t hosts = smaller(topology->rack_sizes[here->rack], topology->rack_sizes[there]);
    return (struct muster_measure_role){
        .active = here->local_rank == 0,
        .peer = muster_topology_rank(topology, partner, 0),
        .streams = smaller(hosts, most),
    };
}

struct muster_measure_role muster_measure_role(const struct muster_measure_pairs *pairs,
                                               uint32_t rank, enum muster_link_level level,
                                               enum muster_measure_stage stage)
{
    struct muster_position here = muster_topology_locate(pairs->topology, rank);
    const uint32_t *partners = pairs->partners[level][stage];
    if (partners == NULL || partners[here.host] == NONE) {
        return (struct muster_measure_role){.active = false};
    }
    uint32_t most = stage == MUSTER_MEASURE_ALONE ? 1 : pairs->streams_max[level];
    switch (level) {
    case MUSTER_LEVEL_HOST:
        return role_within(pairs, &here, most);
    case MUSTER_LEVEL_RACK:
        return role_between(pairs, &here, partners[here.host], most);
    case MUSTER_LEVEL_WORLD:
        break;
    }
    return role_beyond(pairs, &here, partners[here.host], most);
}

uint32_t muster_measure_count_active(const struct muster_measure_pairs *pairs,
                                     enum muster_link_level level, enum muster_measure_stage stage)
{
    uint32_t active = 0;
    for (uint32_t rank = 0; rank < pairs->topology->ranks; rank++) {
        active += muster_measure_role(pairs, rank, level, stage).active ? 1 : 0;
    }
    return active;
}

bool muster_measure_has_role(const struct muster_measure_pairs *pairs, uint32_t rank)
{
    bool active = rank == 0;
    for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        for (unsigned stage = 0; stage < MUSTER_MEASURE_STAGES; stage++) {
            active |= muster_measure_role(pairs, rank, level, stage).active;
        }
    }
    return active;
}

bool muster_measure_measures_core(const struct muster_measure_pairs *pairs, uint32_t rank)
{
    bool active = rank == 0;
    for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        struct muster_measure_role role =
            muster_measure_role(pairs, rank, level, MUSTER_MEASURE_ALONE);
        active |= role.active && rank < role.peer;
    }
    return active;
}
