/*
 * Hierarchical allreduce: reduce-scatter within each host, an allreduce between the hosts for each
 * share by those who own it, allgather within each host. Between hosts goes only what must, over as
 * many ranks at once as every host has.
 *
 * The data is cut into as many shares as the smallest host has ranks. On each host, share i belongs
 * to local rank i; ranks beyond (on larger hosts) own nothing, give their data and take the result.
 * Within the host every pair exchanges directly.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c), sections 4.2 and 4.1, for
 * the exchanges in pairs; the three levels as in NCCL's and Horovod's hierarchical allreduce.
 *
 * Four ranks on two hosts, {0, 1} and {2, 3}; the data are halves ab:
 *
 *   local    0 -- b --> 1    0 <-- a -- 1        2 -- b --> 3    2 <-- a -- 3
 *   cross    0 <-- a --> 2                       1 <-- b --> 3
 *   local    0 -- a --> 1    0 <-- b -- 1        2 -- a --> 3    2 <-- b -- 3
 *
 * Each share is reduced in one order on its host and then by one cross allreduce, which gives the
 * same bits everywhere.
 */
#include "collectives/algorithms/generators.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* How the owners of a share reduce it between the hosts. */
struct cross {
    void (*generate)(struct muster_builder *builder, const struct muster_group *group,
                     enum muster_buffer source, struct muster_span span);
    uint64_t (*elements)(uint64_t count, uint32_t size, uint32_t index);
    uint32_t (*rounds)(uint64_t count, uint32_t size, uint32_t index);
};

static const struct cross cross_halving = {.generate = muster_halving_doubling_part,
                                           .elements = muster_halving_doubling_part_elements,
                                           .rounds = muster_halving_doubling_part_rounds};
static const struct cross cross_ring = {.generate = muster_ring_two_phase_part,
                                        .elements = muster_ring_two_phase_part_elements,
                                        .rounds = muster_ring_two_phase_part_rounds};

/* Ranks of a host that own a share. */
static uint32_t owners_of(const struct muster_topology *topology)
{
    uint32_t owners = topology->host_sizes[0];
    for (uint32_t host = 1; host < topology->hosts; host++) {
        owners = topology->host_sizes[host] < owners ? topology->host_sizes[host] : owners;
    }
    return owners;
}

bool muster_hierarchical_fits(const struct muster_plan *plan, char *ret_why, size_t size)
{
    if (plan->topology->hosts >= 2) {
        return true;
    }
    (void)snprintf(ret_why, size, "it needs at least 2 hosts, and all %" PRIu32 " ranks are on one",
                   plan->topology->ranks);
    return false;
}

/* What one rank's generator knows. */
struct place {
    struct muster_position position;
    uint32_t first; /* rank of the host's local rank 0 */
    uint32_t owners;
    struct muster_span whole;
};

static bool owns(const struct place *place, uint32_t local_rank)
{
    return local_rank < place->owners;
}

static struct muster_span share_of(const struct place *place, uint32_t local_rank)
{
    return muster_span_part(place->whole, place->owners, local_rank);
}

/* Every owner gets its share from all ranks of the host. Returns where this rank's sum stands. */
static enum muster_buffer reduce_scatter(struct muster_builder *builder, const struct place *place)
{
    uint32_t mine = place->position.local_rank;
    uint32_t size = place->position.local_size;
    enum muster_buffer held = MUSTER_INPUT;
    for (uint32_t distance = 1; distance < size; distance++) {
        uint32_t to = (mine + distance) % size;
        uint32_t from = (mine + size - distance) % size;
        if (owns(place, to)) {
            muster_builder_send(builder, place->first + to, MUSTER_INPUT, share_of(place, to));
        }
        if (owns(place, mine)) {
            struct muster_span share = share_of(place, mine);
            muster_builder_recv_reduce(builder, place->first + from, held, share, MUSTER_OUTPUT,
                                       share.offset);
            held = MUSTER_OUTPUT;
        }
        muster_builder_next_round(builder);
    }
    return held;
}

static void allgather(struct muster_builder *builder, const struct place *place)
{
    uint32_t mine = place->position.local_rank;
    uint32_t size = place->position.local_size;
    for (uint32_t distance = 1; distance < size; distance++) {
        uint32_t to = (mine + distance) % size;
        uint32_t from = (mine + size - distance) % size;
        if (owns(place, mine)) {
            muster_builder_send(builder, place->first + to, MUSTER_OUTPUT, share_of(place, mine));
        }
        if (owns(place, from)) {
            muster_builder_recv(builder, place->first + from, MUSTER_OUTPUT, share_of(place, from));
        }
        muster_builder_next_round(builder);
    }
}

static muster_status generate(const struct muster_plan *plan, const struct cross *cross,
                              struct muster_builder *builder)
{
    const struct muster_topology *topology = plan->topology;
    struct place place = {.position = muster_topology_locate(topology, plan->rank),
                          .owners = owners_of(topology),
                          .whole = {.count = plan->count}};
    place.first = topology->host_first[place.position.host];
    enum muster_buffer held = reduce_scatter(builder, &place);
    if (owns(&place, place.position.local_rank)) {
        AUTO_FREE uint32_t *ranks = calloc(topology->hosts, sizeof *ranks);
        if (ranks == NULL) {
            return muster_error_set(MUSTER_FATAL, "schedule: no memory for %" PRIu32 " hosts",
                                    topology->hosts);
        }
        for (uint32_t host = 0; host < topology->hosts; host++) {
            ranks[host] = muster_topology_rank(topology, host, place.position.local_rank);
        }
        struct muster_group owners = {
            .ranks = ranks, .size = topology->hosts, .index = place.position.host};
        cross->generate(builder, &owners, held, share_of(&place, place.position.local_rank));
        muster_builder_next_round(builder);
    }
    allgather(builder, &place);
    return MUSTER_OK;
}

/* Rounds and elements of one rank. */
static void formula_of(const struct place *place, const struct cross *cross, uint32_t hosts,
                       struct muster_formula *formula)
{
    uint32_t mine = place->position.local_rank;
    uint32_t others = place->position.local_size - 1;
    /* One that owns nothing only gives to the owners and takes from them. */
    uint32_t rounds = 2 * place->owners;
    uint64_t elements = place->whole.count;
    if (owns(place, mine)) {
        uint64_t share = share_of(place, mine).count;
        rounds = 2 * others + cross->rounds(share, hosts, place->position.host);
        elements += others * share - share + cross->elements(share, hosts, place->position.host);
    }
    formula->rounds = rounds > formula->rounds ? rounds : formula->rounds;
    formula->elements = elements > formula->elements ? elements : formula->elements;
}

static void formula(const struct muster_plan *plan, const struct cross *cross,
                    struct muster_formula *ret_formula)
{
    const struct muster_topology *topology = plan->topology;
    struct place place = {.owners = owners_of(topology), .whole = {.count = plan->count}};
    uint32_t largest = 0;
    *ret_formula = (struct muster_formula){0};
    for (uint32_t host = 0; host < topology->hosts; host++) {
        uint32_t size = topology->host_sizes[host];
        /* Shares come in two sizes, larger first: the first and the last owner, and an extra. */
        const uint32_t kinds[] = {0, place.owners - 1, size - 1};
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            place.position =
                (struct muster_position){.host = host, .local_rank = kinds[i], .local_size = size};
            formula_of(&place, cross, topology->hosts, ret_formula);
        }
        largest = size > largest ? size : largest;
    }
    uint64_t share = muster_span_part(place.whole, place.owners, 0).count;
    uint64_t elements = cross->elements(share, topology->hosts, 0);
    ret_formula->local =
        (struct muster_path){.messages = 2 * ((uint64_t)largest - 1),
                             .elements = plan->count - share + (uint64_t)(largest - 1) * share};
    ret_formula->cross =
        (struct muster_path){.messages = cross->rounds(share, topology->hosts, 0),
                             .elements = elements * place.owners}; /* all through one uplink */
    ret_formula->reduced = (uint64_t)(largest - 1) * share + elements / 2;
}

muster_status muster_hierarchical_generate(const struct muster_plan *plan,
                                           struct muster_builder *builder)
{
    return generate(plan, &cross_halving, builder);
}

void muster_hierarchical_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    formula(plan, &cross_halving, ret_formula);
}

muster_status muster_hierarchical_ring_generate(const struct muster_plan *plan,
                                                struct muster_builder *builder)
{
    return generate(plan, &cross_ring, builder);
}

void muster_hierarchical_ring_formula(const struct muster_plan *plan,
                                      struct muster_formula *ret_formula)
{
    formula(plan, &cross_ring, ret_formula);
}
