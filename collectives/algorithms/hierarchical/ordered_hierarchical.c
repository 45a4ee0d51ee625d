/*
 * Reproducible hierarchical allreduce. Within each host the owner of a share (see hierarchical.c:
 * every host has as many owners as the smallest host has ranks) collects it from all ranks of the
 * host, and reduces as far as the tree of the reduction order allows: to sums that are whole nodes
 * of the tree. If the ranks of a host are neighbours in the reduction order, that is one sum or a
 * few; if they are scattered, it is more, up to one a rank. Between hosts these sums go to the
 * owners of parts of the share, which reduce them to the end. The results go back the same way.
 *
 * Source: as ordered.h and hierarchical.c.
 *
 * Four ranks in the reduction order on two hosts, {0, 1} and {2, 3}; the data are halves ab, each
 * of which is cut in two between the hosts: a'a" b'b":
 *
 *   local    0 -- b --> 1    0 <-- a -- 1        2 -- b --> 3    2 <-- a -- 3
 *   reduce   0: a0+a1        1: b0+b1            2: a2+a3        3: b2+b3
 *   cross    0 -- a"01 --> 2    0 <-- a'23 -- 2    1 and 3 likewise
 *   reduce   0: a'01+a'23    2: a"01+a"23        1 and 3 likewise
 *   back     a' and a" between 0 and 2, b' and b" between 1 and 3, then a and b within the hosts
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/level.h"
#include "collectives/algorithms/ordered.h"

#include <inttypes.h>
#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* What all ranks know: the sums that are left of each host. */
struct forest {
    const struct muster_topology *topology;
    uint32_t *places;                 /* [ranks] each rank's place in the reduction order */
    struct muster_partial_sum *nodes; /* [ranks] the sums; those of host h from host_first[h] on */
    uint32_t *counts;                 /* [hosts] the number of sums that are left */
    uint32_t *passes;                 /* [hosts] the passes that reduce them */
    uint32_t owners;                  /* of shares, on each host */
};

static void finish(struct forest *forest)
{
    free(forest->places);
    free(forest->nodes);
    free(forest->counts);
    free(forest->passes);
}

static int compare_nodes(const void *left_node, const void *right_node)
{
    const struct muster_partial_sum *left = left_node;
    const struct muster_partial_sum *right = right_node;
    return left->first < right->first ? -1 : left->first > right->first;
}

/* The inputs of a host, sorted by place; `at` is the local rank. */
static void list_host(const struct forest *forest, uint32_t host, struct muster_partial_sum *nodes)
{
    uint32_t size = forest->topology->host_sizes[host];
    for (uint32_t i = 0; i < size; i++) {
        nodes[i] = (struct muster_partial_sum){
            .first = forest->places[muster_topology_rank(forest->topology, host, i)],
            .buffer = MUSTER_SCRATCH,
            .at = i};
    }
    qsort(nodes, size, sizeof *nodes, compare_nodes);
}

/* Computes the partial sums that each host is left with after reducing what it can of its own
 * inputs. It depends only on the topology and the reduction order, so all ranks get the same. */
static muster_status make_forest(const struct muster_plan *plan, struct forest *forest)
{
    const struct muster_topology *topology = plan->topology;
    const struct muster_group all = muster_group_all(plan);
    *forest = (struct forest){.topology = topology,
                              .places = calloc(topology->ranks, sizeof *forest->places),
                              .nodes = calloc(topology->ranks, sizeof *forest->nodes),
                              .counts = calloc(topology->hosts, sizeof *forest->counts),
                              .passes = calloc(topology->hosts, sizeof *forest->passes),
                              .owners = muster_topology_smallest_host(topology)};
    if (forest->places == NULL || forest->nodes == NULL || forest->counts == NULL ||
        forest->passes == NULL) {
        finish(forest);
        return muster_error_set(MUSTER_FATAL, "schedule: no memory for %" PRIu32 " ranks",
                                topology->ranks);
    }
    for (uint32_t place = 0; place < topology->ranks; place++) {
        forest->places[muster_group_rank(&all, place)] = place;
    }
    for (uint32_t host = 0; host < topology->hosts; host++) {
        struct muster_partial_sum *nodes = &forest->nodes[topology->host_first[host]];
        forest->counts[host] = topology->host_sizes[host];
        list_host(forest, host, nodes);
        forest->passes[host] =
            muster_ordered_merge(NULL, topology->ranks, 1, nodes, &forest->counts[host]);
    }
    return MUSTER_OK;
}

/* Levels as in hierarchical.c: within a host; and between the hosts, for the owners of a share. */
static struct muster_level local_level(const struct forest *forest, uint32_t host,
                                       uint32_t local_rank, uint64_t count)
{
    return (struct muster_level){
        .group = {.size = forest->topology->host_sizes[host], .index = local_rank},
        .span = {.count = count},
        .owners = forest->owners};
}

static struct muster_level cross_level(const struct forest *forest, uint32_t host,
                                       struct muster_span share)
{
    return (struct muster_level){.group = {.size = forest->topology->hosts, .index = host},
                                 .span = share,
                                 .owners = forest->topology->hosts};
}

/* Sends all shares to their owners within the host. An owner reduces what it received, and leaves
 * the sums in `nodes`. */
static void collect_local(struct muster_builder *builder, const struct forest *forest,
                          const struct muster_level *level, uint32_t host,
                          struct muster_partial_sum *nodes)
{
    const struct muster_group *group = &level->group;
    bool owns = muster_level_owns(level, group->index);
    const struct muster_span share =
        owns ? muster_level_share(level, group->index) : (struct muster_span){0};
    uint64_t slots = owns ? muster_builder_reserve(builder, group->size * share.count) : 0;
    muster_builder_copy(builder, MUSTER_INPUT, share, MUSTER_SCRATCH,
                        slots + group->index * share.count);
    for (uint32_t distance = 1; distance < group->size; distance++) {
        uint32_t to = (group->index + distance) % group->size;
        uint32_t from = (group->index + group->size - distance) % group->size;
        if (muster_level_owns(level, to)) {
            muster_builder_send(builder, muster_group_rank(group, to), MUSTER_INPUT,
                                muster_level_share(level, to));
        }
        if (owns) {
            muster_builder_recv(
                builder, muster_group_rank(group, from), MUSTER_SCRATCH,
                (struct muster_span){.offset = slots + from * share.count, .count = share.count});
        }
        muster_builder_next_round(builder);
    }
    muster_builder_next_round(builder);
    if (owns) {
        uint32_t count = group->size;
        list_host(forest, host, nodes);
        for (uint32_t i = 0; i < count; i++) {
            nodes[i].at = slots + nodes[i].at * share.count;
        }
        (void)muster_ordered_merge(builder, forest->topology->ranks, share.count, nodes, &count);
    }
}

/* Sends the host's sums to the owners of the parts on the other hosts, and receives theirs. `nodes`
 * begins with this host's sums and has room for those of all others. Returns their number. */
static uint32_t exchange_sums(struct muster_builder *builder, const struct forest *forest,
                              const struct muster_level *level, struct muster_partial_sum *nodes)
{
    const struct muster_topology *topology = forest->topology;
    const struct muster_group *group = &level->group;
    uint32_t mine = forest->counts[group->index];
    uint32_t all = mine;
    const struct muster_span own = muster_level_share(level, group->index);
    for (uint32_t distance = 1; distance < group->size; distance++) {
        uint32_t to = (group->index + distance) % group->size;
        uint32_t from = (group->index + group->size - distance) % group->size;
        const struct muster_span part = muster_level_share(level, to);
        for (uint32_t i = 0; i < mine; i++) {
            muster_builder_send(
                builder, muster_group_rank(group, to), MUSTER_SCRATCH,
                (struct muster_span){.offset = nodes[i].at + part.offset - level->span.offset,
                                     .count = part.count});
        }
        for (uint32_t i = 0; i < forest->counts[from]; i++) {
            struct muster_partial_sum node = forest->nodes[topology->host_first[from] + i];
            node.at = muster_builder_reserve(builder, own.count);
            muster_builder_recv(builder, muster_group_rank(group, from), MUSTER_SCRATCH,
                                (struct muster_span){.offset = node.at, .count = own.count});
            nodes[all++] = node;
        }
        muster_builder_next_round(builder);
    }
    for (uint32_t i = 0; i < mine; i++) {
        nodes[i].at += own.offset - level->span.offset;
    }
    qsort(nodes, all, sizeof *nodes, compare_nodes);
    return all;
}

/* Between hosts: collects the sums of this rank's part, reduces them, and spreads the result. */
static void cross(struct muster_builder *builder, const struct forest *forest,
                  const struct muster_level *level, struct muster_partial_sum *nodes)
{
    const struct muster_span own = muster_level_share(level, level->group.index);
    uint32_t count = exchange_sums(builder, forest, level, nodes);
    (void)muster_ordered_merge(builder, forest->topology->ranks, own.count, nodes, &count);
    muster_builder_copy(builder, nodes[0].buffer,
                        (struct muster_span){.offset = nodes[0].at, .count = own.count},
                        MUSTER_OUTPUT, own.offset);
    muster_builder_next_round(builder);
    muster_pairwise_allgather(builder, level);
    muster_builder_next_round(builder);
}

/* Adds the three phases: within the host, between hosts if the rank owns a share, and within the
 * host again. */
static muster_status generate_from(const struct muster_plan *plan, const struct forest *forest,
                                   struct muster_builder *builder)
{
    const struct muster_topology *topology = plan->topology;
    const struct muster_position here = muster_topology_locate(topology, plan->rank);
    AUTO_FREE uint32_t *host_ranks = calloc(here.local_size, sizeof *host_ranks);
    AUTO_FREE uint32_t *owner_ranks = calloc(topology->hosts, sizeof *owner_ranks);
    AUTO_FREE struct muster_partial_sum *nodes = calloc(topology->ranks, sizeof *nodes);
    if (host_ranks == NULL || owner_ranks == NULL || nodes == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory for %" PRIu32 " ranks",
                                topology->ranks);
    }
    struct muster_level local = local_level(forest, here.host, here.local_rank, plan->count);
    for (uint32_t i = 0; i < here.local_size; i++) {
        host_ranks[i] = muster_topology_rank(topology, here.host, i);
    }
    local.group.ranks = host_ranks;
    collect_local(builder, forest, &local, here.host, nodes);
    if (muster_level_owns(&local, here.local_rank)) {
        struct muster_level level =
            cross_level(forest, here.host, muster_level_share(&local, here.local_rank));
        for (uint32_t host = 0; host < topology->hosts; host++) {
            owner_ranks[host] = muster_topology_rank(topology, host, here.local_rank);
        }
        level.group.ranks = owner_ranks;
        cross(builder, forest, &level, nodes);
    }
    muster_pairwise_allgather(builder, &local);
    return MUSTER_OK;
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    struct forest forest;
    TRY(make_forest(plan, &forest));
    muster_status status = generate_from(plan, &forest, builder);
    finish(&forest);
    return status;
}

/* The passes that reduce the sums of all hosts to one. Changes the forest. */
static uint32_t count_last_passes(struct forest *forest)
{
    const struct muster_topology *topology = forest->topology;
    uint32_t all = 0;
    for (uint32_t host = 0; host < topology->hosts; host++) {
        for (uint32_t i = 0; i < forest->counts[host]; i++) {
            forest->nodes[all++] = forest->nodes[topology->host_first[host] + i];
        }
    }
    qsort(forest->nodes, all, sizeof *forest->nodes, compare_nodes);
    return muster_ordered_merge(NULL, topology->ranks, 1, forest->nodes, &all);
}

/* Between hosts: the totals of a share's owner. */
static struct muster_step_totals
totals_across(const struct forest *forest, const struct muster_level *level, uint32_t last_passes)
{
    uint64_t own = muster_level_share(level, level->group.index).count;
    uint64_t sums = forest->counts[level->group.index];
    uint32_t others = level->group.size - 1;
    return (struct muster_step_totals){.rounds = 2 * others + (own > 0 ? last_passes + 1 : 0),
                                       .elements = sums * (level->span.count - own) + others * own,
                                       .reduced = others * own};
}

/* Within the host: the totals of a rank. */
static struct muster_step_totals totals_within(const struct forest *forest,
                                               const struct muster_level *level, uint32_t host)
{
    if (!muster_level_owns(level, level->group.index)) {
        return (struct muster_step_totals){.rounds = 2 * level->owners,
                                           .elements = level->span.count};
    }
    uint64_t share = muster_level_share(level, level->group.index).count;
    uint32_t others = level->group.size - 1;
    uint32_t copies = others == 0 && share > 0 ? 1 : 0;
    return (struct muster_step_totals){.rounds = 2 * others + copies +
                                                 (share > 0 ? forest->passes[host] : 0),
                                       .elements = level->span.count - share + others * share,
                                       .reduced = others * share};
}

/* The maxima over all ranks, and the critical path: that of the first rank of the largest host. */
static void fill_formula(const struct muster_plan *plan, struct forest *forest,
                         struct muster_formula *formula)
{
    const struct muster_topology *topology = plan->topology;
    uint32_t last_passes = count_last_passes(forest);
    uint32_t largest = 0;
    struct muster_path between = {0};
    for (uint32_t host = 0; host < topology->hosts; host++) {
        for (uint32_t rank = 0; rank < topology->host_sizes[host]; rank++) {
            const struct muster_level local = local_level(forest, host, rank, plan->count);
            const struct muster_step_totals within = totals_within(forest, &local, host);
            struct muster_step_totals across = {0};
            if (muster_level_owns(&local, rank)) {
                const struct muster_level level =
                    cross_level(forest, host, muster_level_share(&local, rank));
                across = totals_across(forest, &level, last_passes);
            }
            uint32_t rounds = within.rounds + across.rounds;
            uint64_t elements = within.elements + across.elements;
            formula->rounds = rounds > formula->rounds ? rounds : formula->rounds;
            formula->elements = elements > formula->elements ? elements : formula->elements;
            if (rank == 0 && topology->host_sizes[host] > largest) {
                largest = topology->host_sizes[host];
                formula->local =
                    (struct muster_path){.messages = within.rounds, .elements = within.elements};
                between = (struct muster_path){.messages = across.rounds,
                                               .elements = across.elements * forest->owners};
                formula->reduced = within.reduced + across.reduced;
            }
        }
    }
    muster_formula_between(formula, topology, between, topology->hosts / topology->racks);
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    struct forest forest;
    *ret_formula = (struct muster_formula){0};
    if (make_forest(plan, &forest) == MUSTER_OK) {
        fill_formula(plan, &forest, ret_formula);
        finish(&forest);
    } else {
        /* Without memory no schedule could be generated either: it must not be selected. */
        ret_formula->cross.elements = UINT64_MAX;
    }
}

const struct muster_generator muster_ordered_hierarchical_generator = {
    .rounds_text = "2(L-1) + 2(H-1) + ceil(log2 P) + 1 or more",
    .elements_text = "2n(L-1)/L + 2(n/L)(H-1)/H; more if the reduction order mixes hosts",
    .generate = generate,
    .formula = find_formula,
};
