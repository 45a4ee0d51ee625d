/*
 * Hierarchical allreduce: the ranks of each host reduce the data to shares, the owners of each
 * share allreduce it between the hosts, and spread the results within their hosts. Between hosts
 * only the necessary data is sent, by as many ranks of each host at once as the smallest host has,
 * or by fewer: the leaders.
 *
 * The data is cut into as many shares as the smallest host has ranks, or as there are leaders. On
 * each host share i belongs to local rank i. The other ranks own nothing: they send their data and
 * receive the result. Where hosts are in racks there is one more level: the hosts of a rack cut
 * each share among them in the same way, and the racks reduce those parts.
 *
 * The data may be cut into pieces, which follow each other through the levels in four lanes. While
 * one piece is sent between hosts, others are reduced and spread within them, so that the links
 * between hosts are busy from the end of the first piece's local reduction to the last message of
 * the last piece. Nothing hides the local work of the first piece and of the last, so pieces near
 * either end are smaller, down to an eighth.
 *
 * With local=group the ranks of a host reduce and spread their data by group steps of the host, in
 * the memory that they share, and only the hosts exchange messages; where ranks share no memory,
 * the default is used in its place.
 *
 * At each level the members use one of the exchanges of exchange.h, and any combination is an
 * algorithm. The defaults are halving_doubling at the last level, and pairwise below it.
 * hierarchy.h has the words for it.
 *
 * Source: the levels as in NCCL's and Horovod's hierarchical allreduce; leaders as in A. Mamidala,
 * R. Kumar, D. De, D. K. Panda: MPI collectives on modern multicore clusters. CCGRID 2008; pieces
 * as the segments in X. Luo et al.: HAN: a hierarchical autotuned collective communication
 * framework. CLUSTER 2020.
 *
 * Four ranks on two hosts, {0, 1} and {2, 3}; the data are halves ab:
 *
 *   local    0 -- b --> 1    0 <-- a -- 1        2 -- b --> 3    2 <-- a -- 3
 *   cross    0 <-- a --> 2                       1 <-- b --> 3
 *   local    0 -- a --> 1    0 <-- b -- 1        2 -- a --> 3    2 <-- b -- 3
 *
 * Each share is reduced in one order on its host, and then by one allreduce, which gives the same
 * bits on all ranks.
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/hierarchy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

enum {
    LEVELS_MAX = 3,
    PIECE_LANES = 4,   /* a power of two, so that it divides the number of pieces */
    DOUBLINGS_MAX = 3, /* of the size of pieces, from either end towards the middle */
};

bool muster_hierarchical_fits(const struct muster_plan *plan, char *ret_why, size_t size)
{
    const struct muster_hierarchy hierarchy = muster_hierarchy_of(plan->variant);
    if (hierarchy.local >= MUSTER_EXCHANGE_END || hierarchy.cross >= MUSTER_EXCHANGE_END ||
        hierarchy.world >= MUSTER_EXCHANGE_END) {
        (void)snprintf(ret_why, size, "it names an exchange that does not exist");
        return false;
    }
    if (hierarchy.cross == MUSTER_EXCHANGE_GROUP || hierarchy.world == MUSTER_EXCHANGE_GROUP) {
        (void)snprintf(ret_why, size, "group is an exchange within hosts: local=group");
        return false;
    }
    if (plan->topology->hosts >= 2) {
        return true;
    }
    (void)snprintf(ret_why, size, "it needs at least 2 hosts, and all %" PRIu32 " ranks are on one",
                   plan->topology->ranks);
    return false;
}

/* Or the default. */
static bool is_steady(unsigned kind)
{
    return kind == MUSTER_EXCHANGE_DEFAULT || muster_exchange_of(kind)->steady;
}

bool muster_hierarchy_shares(const struct muster_plan *plan)
{
    const struct muster_hierarchy hierarchy = muster_hierarchy_of(plan->variant);
    bool steady = is_steady(hierarchy.cross) && is_steady(hierarchy.world);
    return plan->memory != NULL && plan->topology->hosts > 1 && (hierarchy.pieces == 0 || steady);
}

/* The parameters, which are the same for all ranks. */
struct parameters {
    const struct muster_topology *topology;
    uint32_t levels;
    uint32_t owners[LEVELS_MAX]; /* of each level except the last, where all members own a share */
    const struct muster_exchange *exchanges[LEVELS_MAX];
    uint32_t pieces, lanes, turns; /* in each turn every lane has one piece */
    uint64_t weights;              /* of all pieces together: see weight_of() */
};

static const struct muster_exchange *exchange_or(unsigned kind, enum muster_exchange_kind other)
{
    return muster_exchange_of(kind != MUSTER_EXCHANGE_DEFAULT ? kind : other);
}

/* The size of this turn's pieces, as a multiple of the smallest ones. */
static uint32_t weight_of(const struct parameters *parameters, uint32_t turn)
{
    uint32_t last = parameters->turns - 1;
    uint32_t edge = turn < last - turn ? turn : last - turn;
    return UINT32_C(1) << (edge < DOUBLINGS_MAX ? edge : DOUBLINGS_MAX);
}

static void cut(struct parameters *parameters, unsigned pieces)
{
    parameters->pieces = pieces == 0 ? 1 : pieces;
    parameters->lanes = parameters->pieces < PIECE_LANES ? parameters->pieces : PIECE_LANES;
    parameters->turns = parameters->pieces / parameters->lanes;
    for (uint32_t turn = 0; turn < parameters->turns; turn++) {
        parameters->weights += (uint64_t)weight_of(parameters, turn) * parameters->lanes;
    }
}

/* Replaces parameters that are 0 by their defaults, and limits those that the topology limits. */
static struct parameters parameters_of(const struct muster_plan *plan)
{
    const struct muster_topology *topology = plan->topology;
    const struct muster_hierarchy hierarchy = muster_hierarchy_of(plan->variant);
    struct parameters parameters = {.topology = topology,
                                    .levels = topology->racks > 1 && hierarchy.levels != 2 ? 3 : 2};
    cut(&parameters, hierarchy.pieces);
    parameters.owners[0] = muster_topology_smallest_host(topology);
    if (hierarchy.leaders != 0 && hierarchy.leaders < parameters.owners[0]) {
        parameters.owners[0] = hierarchy.leaders;
    }
    bool by_messages = hierarchy.local == MUSTER_EXCHANGE_GROUP && !muster_hierarchy_shares(plan);
    parameters.exchanges[0] = exchange_or(by_messages ? MUSTER_EXCHANGE_DEFAULT : hierarchy.local,
                                          MUSTER_EXCHANGE_PAIRWISE);
    if (parameters.levels == 3) {
        parameters.owners[1] = muster_topology_smallest_rack(topology);
        parameters.exchanges[1] = exchange_or(hierarchy.cross, MUSTER_EXCHANGE_PAIRWISE);
    }
    parameters.exchanges[parameters.levels - 1] =
        exchange_or(parameters.levels == 3 ? hierarchy.world : hierarchy.cross,
                    MUSTER_EXCHANGE_HALVING_DOUBLING);
    return parameters;
}

/* Iterates over the pieces; zero at first, except `whole`. */
struct cursor {
    struct muster_span whole;
    uint32_t piece;   /* the next one */
    uint64_t weights; /* of all pieces before */
};

static struct muster_span next_piece(const struct parameters *parameters, struct cursor *cursor)
{
    const struct muster_span begin =
        muster_span_part(cursor->whole, parameters->weights, cursor->weights);
    cursor->weights += weight_of(parameters, cursor->piece++ / parameters->lanes);
    const struct muster_span end =
        muster_span_part(cursor->whole, parameters->weights, cursor->weights - 1);
    return (struct muster_span){.offset = begin.offset,
                                .count = end.offset + end.count - begin.offset};
}

/* The levels that one rank takes part in, from its host up. */
struct own_levels {
    uint32_t count;
    struct muster_level levels[LEVELS_MAX];
};

/* The groups are: the ranks of one host; those of one local rank on the hosts of a rack, or on all
 * hosts; and those of one place in all racks. Their lists of ranks exist in the topology, except
 * for the last of three levels, which gets its list from list_racks(). */
static struct own_levels own_levels_of(const struct parameters *parameters, uint32_t host,
                                       uint32_t local_rank, struct muster_span span)
{
    const struct muster_topology *topology = parameters->topology;
    uint32_t rack = muster_topology_rack(topology, host);
    uint32_t first = topology->rack_first[rack];
    const struct muster_group groups[] = {
        {.offset = topology->host_first[host],
         .size = topology->host_sizes[host],
         .index = local_rank},
        {.ranks = &topology->host_first[first],
         .offset = local_rank,
         .size = topology->rack_sizes[rack],
         .index = host - first},
        {.ranks = topology->host_first,
         .offset = local_rank,
         .size = parameters->levels == 3 ? topology->racks : topology->hosts,
         .index = parameters->levels == 3 ? rack : host},
    };
    struct own_levels own_levels = {0};
    for (uint32_t i = 0; i < parameters->levels; i++) {
        bool last = i == parameters->levels - 1;
        struct muster_level *level = &own_levels.levels[own_levels.count++];
        level->group = groups[last ? 2 : i];
        level->span = span;
        level->owners = last ? level->group.size : parameters->owners[i];
        if (!muster_level_owns(level, level->group.index)) {
            break;
        }
        span = muster_level_share(level, level->group.index);
    }
    return own_levels;
}

/* Lists the ranks that have this place in their racks; `ranks` has room for one a rack. */
static void list_racks(const struct parameters *parameters, struct own_levels *own_levels,
                       uint32_t *ranks)
{
    const struct muster_topology *topology = parameters->topology;
    if (own_levels->count < 3) {
        return;
    }
    uint32_t place = own_levels->levels[1].group.index;
    for (uint32_t rack = 0; rack < topology->racks; rack++) {
        ranks[rack] = topology->host_first[topology->rack_first[rack] + place];
    }
    own_levels->levels[2].group.ranks = ranks;
}

/* Adds the steps of one piece: the exchanges up to the highest level where the rank takes part, the
 * allreduce at the last level, and the way back. */
static void add_levels(struct muster_builder *builder, const struct parameters *parameters,
                       const struct own_levels *own_levels)
{
    enum muster_buffer held = MUSTER_INPUT;
    uint32_t below =
        own_levels->count < parameters->levels ? own_levels->count : parameters->levels - 1;
    for (uint32_t i = 0; i < below; i++) {
        held =
            muster_exchange_begin(builder, parameters->exchanges[i], &own_levels->levels[i], held);
    }
    if (own_levels->count == parameters->levels) {
        muster_exchange_allreduce(builder, parameters->exchanges[below], &own_levels->levels[below],
                                  held);
    }
    for (uint32_t i = below; i-- > 0;) {
        muster_exchange_end(builder, parameters->exchanges[i], &own_levels->levels[i]);
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_topology *topology = plan->topology;
    const struct muster_position here = muster_topology_locate(topology, plan->rank);
    const struct parameters parameters = parameters_of(plan);
    struct cursor cursor = {.whole = {.count = plan->count}};
    AUTO_FREE uint32_t *ranks = calloc(topology->racks, sizeof *ranks);
    if (ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory for %" PRIu32 " racks",
                                topology->racks);
    }
    for (uint32_t piece = 0; piece < parameters.pieces; piece++) {
        struct own_levels own_levels = own_levels_of(&parameters, here.host, here.local_rank,
                                                     next_piece(&parameters, &cursor));
        list_racks(&parameters, &own_levels, ranks);
        muster_builder_set_lane(builder, (uint16_t)(piece % parameters.lanes));
        add_levels(builder, &parameters, &own_levels);
    }
    return MUSTER_OK;
}

/* A rank's totals at the levels [first, count). */
static struct muster_step_totals totals_of(const struct parameters *parameters,
                                           const struct own_levels *own_levels, uint32_t first,
                                           uint32_t count)
{
    struct muster_step_totals sum = {0};
    for (uint32_t i = first; i < count && i < own_levels->count; i++) {
        const struct muster_level *level = &own_levels->levels[i];
        const struct muster_exchange *exchange = parameters->exchanges[i];
        const struct muster_step_totals totals =
            i == parameters->levels - 1 ? muster_exchange_allreduce_totals(exchange, level)
                                        : muster_exchange_totals(exchange, level);
        sum.rounds += totals.rounds;
        sum.elements += totals.elements;
        sum.reduced += totals.reduced;
    }
    return sum;
}

/* A rank's totals of all pieces: the elements of all lanes, the rounds of the longest. */
static struct muster_step_totals totals_of_pieces(const struct parameters *parameters,
                                                  uint32_t host, uint32_t rank, uint64_t count)
{
    struct cursor cursor = {.whole = {.count = count}};
    uint32_t rounds[PIECE_LANES] = {0};
    struct muster_step_totals sum = {0};
    struct muster_step_totals totals = {0};
    uint64_t size = UINT64_MAX;
    for (uint32_t piece = 0; piece < parameters->pieces; piece++) {
        const struct muster_span span = next_piece(parameters, &cursor);
        if (span.count != size) { /* few sizes differ, and equal ones have the same totals */
            const struct own_levels own_levels = own_levels_of(parameters, host, rank, span);
            totals = totals_of(parameters, &own_levels, 0, LEVELS_MAX);
            size = span.count;
        }
        sum.elements += totals.elements;
        uint32_t *lane = &rounds[piece % parameters->lanes];
        *lane += totals.rounds;
        sum.rounds = *lane > sum.rounds ? *lane : sum.rounds;
    }
    return sum;
}

static uint32_t index_of_largest_host(const struct muster_topology *topology)
{
    uint32_t largest = 0;
    for (uint32_t host = 1; host < topology->hosts; host++) {
        largest = topology->host_sizes[host] > topology->host_sizes[largest] ? host : largest;
    }
    return largest;
}

/* The critical path: that of the first rank of the largest host. With pieces, the work within hosts
 * is hidden behind that between them, except for the first and the last piece. */
static void estimate(const struct parameters *parameters, uint64_t count,
                     struct muster_formula *ret_formula)
{
    const struct muster_topology *topology = parameters->topology;
    uint32_t turns = parameters->turns;
    struct cursor cursor = {.whole = {.count = count}};
    const struct muster_span first = next_piece(parameters, &cursor);
    const struct own_levels edge =
        own_levels_of(parameters, index_of_largest_host(topology), 0, first);
    const struct own_levels own_levels =
        own_levels_of(parameters, index_of_largest_host(topology), 0, cursor.whole);
    const struct muster_step_totals local = totals_of(parameters, &edge, 0, 1);
    ret_formula->local = (struct muster_path){.messages = (uint64_t)local.rounds * turns,
                                              .elements = local.elements};
    ret_formula->reduced = local.reduced;
    uint64_t hosts =
        muster_topology_largest_rack(topology); /* of a rack that send at the same time */
    for (uint32_t i = 1; i < parameters->levels; i++) {
        const struct muster_step_totals totals = totals_of(parameters, &own_levels, i, i + 1);
        const struct muster_path path = {.messages = (uint64_t)totals.rounds * turns,
                                         .elements = totals.elements * parameters->owners[0]};
        if (parameters->levels == LEVELS_MAX && i == 1) {
            ret_formula->cross = path;
            hosts = parameters->owners[1];
        } else {
            muster_formula_between(ret_formula, topology, path, hosts);
        }
        ret_formula->reduced += totals.reduced;
    }
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct parameters parameters = parameters_of(plan);
    *ret_formula = (struct muster_formula){0};
    for (uint32_t host = 0; host < plan->topology->hosts; host++) {
        for (uint32_t rank = 0; rank < plan->topology->host_sizes[host]; rank++) {
            const struct muster_step_totals totals =
                totals_of_pieces(&parameters, host, rank, plan->count);
            ret_formula->rounds =
                totals.rounds > ret_formula->rounds ? totals.rounds : ret_formula->rounds;
            ret_formula->elements =
                totals.elements > ret_formula->elements ? totals.elements : ret_formula->elements;
        }
    }
    estimate(&parameters, plan->count, ret_formula);
}

const struct muster_generator muster_hierarchical_generator = {
    .rounds_text = "2(L-1) + those of halving_doubling on H",
    .elements_text = "2n(L-1)/L + its on n/L",
    .generate = generate,
    .formula = find_formula,
};
