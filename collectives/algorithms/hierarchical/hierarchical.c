/*
 * Hierarchical allreduce: reduce to shares within each host, an allreduce between the hosts for
 * each share by those who own it, and the results back within each host. Between hosts goes only
 * what must, over as many ranks at once as every host has; or over fewer, the leaders.
 *
 * The data is cut into as many shares as the smallest host has ranks, or as there are leaders. On
 * each host, share i belongs to local rank i; ranks beyond own nothing, give their data and take
 * the result. Where hosts are in racks there is a level more: the hosts of a rack cut each share
 * among them in the same way, and the racks reduce those parts.
 *
 * The data may be cut into pieces, which then follow each other through the levels in four lanes:
 * while one is on its way between hosts, others are reduced and spread within them, so that links
 * between hosts have something to carry from the first piece's local reduction on to the last
 * piece's last message. Pieces near either end are smaller, down to an eighth, as nothing hides the
 * local work of the first and the last.
 *
 * At each level the members may exchange as any of those does that level.h names: all pairs of them
 * make an algorithm. What is not said in brackets is pairwise below the last level, and
 * halving_doubling there. hierarchy.h has the words.
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
 * Each share is reduced in one order on its host and then by one allreduce, which gives the same
 * bits everywhere.
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
    DOUBLINGS_MAX = 3, /* of the size of pieces, from either end on */
};

bool muster_hierarchical_fits(const struct muster_plan *plan, char *ret_why, size_t size)
{
    const struct muster_hierarchy hierarchy = muster_hierarchy_of(plan->variant);
    if (hierarchy.local >= MUSTER_EXCHANGE_END || hierarchy.cross >= MUSTER_EXCHANGE_END ||
        hierarchy.world >= MUSTER_EXCHANGE_END) {
        (void)snprintf(ret_why, size, "an exchange of this number does not exist");
        return false;
    }
    if (plan->topology->hosts >= 2) {
        return true;
    }
    (void)snprintf(ret_why, size, "it needs at least 2 hosts, and all %" PRIu32 " ranks are on one",
                   plan->topology->ranks);
    return false;
}

/* What is the same for all ranks. */
struct frame {
    const struct muster_topology *topology;
    uint32_t levels;
    uint32_t owners[LEVELS_MAX]; /* of each level but the last, where all own */
    const struct muster_exchange *exchanges[LEVELS_MAX];
    uint32_t pieces, lanes, turns; /* in each turn every lane has a piece */
    uint64_t weights;              /* of all pieces: see weight_of() */
};

static const struct muster_exchange *exchange_or(unsigned kind, enum muster_exchange_kind other)
{
    return muster_exchange_of(kind != MUSTER_EXCHANGE_DEFAULT ? kind : other);
}

/* How many times as large as the smallest pieces those of this turn are. */
static uint32_t weight_of(const struct frame *frame, uint32_t turn)
{
    uint32_t last = frame->turns - 1;
    uint32_t edge = turn < last - turn ? turn : last - turn;
    return UINT32_C(1) << (edge < DOUBLINGS_MAX ? edge : DOUBLINGS_MAX);
}

static void cut(struct frame *frame, unsigned pieces)
{
    frame->pieces = pieces == 0 ? 1 : pieces;
    frame->lanes = frame->pieces < PIECE_LANES ? frame->pieces : PIECE_LANES;
    frame->turns = frame->pieces / frame->lanes;
    for (uint32_t turn = 0; turn < frame->turns; turn++) {
        frame->weights += (uint64_t)weight_of(frame, turn) * frame->lanes;
    }
}

static struct frame frame_of(const struct muster_plan *plan)
{
    const struct muster_topology *topology = plan->topology;
    const struct muster_hierarchy hierarchy = muster_hierarchy_of(plan->variant);
    struct frame frame = {.topology = topology,
                          .levels = topology->racks > 1 && hierarchy.levels != 2 ? 3 : 2};
    cut(&frame, hierarchy.pieces);
    frame.owners[0] = muster_topology_smallest_host(topology);
    if (hierarchy.leaders != 0 && hierarchy.leaders < frame.owners[0]) {
        frame.owners[0] = hierarchy.leaders;
    }
    frame.exchanges[0] = exchange_or(hierarchy.local, MUSTER_EXCHANGE_PAIRWISE);
    if (frame.levels == 3) {
        frame.owners[1] = muster_topology_smallest_rack(topology);
        frame.exchanges[1] = exchange_or(hierarchy.cross, MUSTER_EXCHANGE_PAIRWISE);
    }
    frame.exchanges[frame.levels - 1] = exchange_or(
        frame.levels == 3 ? hierarchy.world : hierarchy.cross, MUSTER_EXCHANGE_HALVING_DOUBLING);
    return frame;
}

/* The pieces one after the other; all zero in the beginning, but for the whole. */
struct cutter {
    struct muster_span whole;
    uint32_t piece;   /* the next one */
    uint64_t weights; /* of all pieces before */
};

static struct muster_span next_piece(const struct frame *frame, struct cutter *cutter)
{
    const struct muster_span begin =
        muster_span_part(cutter->whole, frame->weights, cutter->weights);
    cutter->weights += weight_of(frame, cutter->piece++ / frame->lanes);
    const struct muster_span end =
        muster_span_part(cutter->whole, frame->weights, cutter->weights - 1);
    return (struct muster_span){.offset = begin.offset,
                                .count = end.offset + end.count - begin.offset};
}

/* The levels that one rank takes part in. */
struct tower {
    uint32_t height;
    struct muster_level levels[LEVELS_MAX];
};

/* Places of ranks in lists that are there already: those of one host, of one local rank on the
 * hosts of a rack or of all, and of one place in all racks. The last of three levels gets its list
 * from enlist(). */
static struct tower tower_of(const struct frame *frame, uint32_t host, uint32_t local_rank,
                             struct muster_span span)
{
    const struct muster_topology *topology = frame->topology;
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
         .size = frame->levels == 3 ? topology->racks : topology->hosts,
         .index = frame->levels == 3 ? rack : host},
    };
    struct tower tower = {0};
    for (uint32_t i = 0; i < frame->levels; i++) {
        bool last = i == frame->levels - 1;
        struct muster_level *level = &tower.levels[tower.height++];
        level->group = groups[last ? 2 : i];
        level->span = span;
        level->owners = last ? level->group.size : frame->owners[i];
        if (!muster_level_owns(level, level->group.index)) {
            break;
        }
        span = muster_level_share(level, level->group.index);
    }
    return tower;
}

/* Which ranks have this place in their racks; ranks has room for one of each rack. */
static void enlist(const struct frame *frame, struct tower *tower, uint32_t *ranks)
{
    const struct muster_topology *topology = frame->topology;
    if (tower->height < 3) {
        return;
    }
    uint32_t place = tower->levels[1].group.index;
    for (uint32_t rack = 0; rack < topology->racks; rack++) {
        ranks[rack] = topology->host_first[topology->rack_first[rack] + place];
    }
    tower->levels[2].group.ranks = ranks;
}

/* Up to where the rank owns something, and back. */
static void climb(struct muster_builder *builder, const struct frame *frame,
                  const struct tower *tower)
{
    enum muster_buffer held = MUSTER_INPUT;
    uint32_t below = tower->height < frame->levels ? tower->height : frame->levels - 1;
    for (uint32_t i = 0; i < below; i++) {
        held = muster_exchange_begin(builder, frame->exchanges[i], &tower->levels[i], held);
    }
    if (tower->height == frame->levels) {
        muster_exchange_allreduce(builder, frame->exchanges[below], &tower->levels[below], held);
    }
    for (uint32_t i = below; i-- > 0;) {
        muster_exchange_end(builder, frame->exchanges[i], &tower->levels[i]);
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_topology *topology = plan->topology;
    const struct muster_position here = muster_topology_locate(topology, plan->rank);
    const struct frame frame = frame_of(plan);
    struct cutter cutter = {.whole = {.count = plan->count}};
    AUTO_FREE uint32_t *ranks = calloc(topology->racks, sizeof *ranks);
    if (ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory for %" PRIu32 " racks",
                                topology->racks);
    }
    for (uint32_t piece = 0; piece < frame.pieces; piece++) {
        struct tower tower =
            tower_of(&frame, here.host, here.local_rank, next_piece(&frame, &cutter));
        enlist(&frame, &tower, ranks);
        muster_builder_set_lane(builder, (uint16_t)(piece % frame.lanes));
        climb(builder, &frame, &tower);
    }
    return MUSTER_OK;
}

/* What a rank does at its levels: within its host, and above. */
static struct muster_step_totals totals_of(const struct frame *frame, const struct tower *tower,
                                           uint32_t first, uint32_t height)
{
    struct muster_step_totals sum = {0};
    for (uint32_t i = first; i < height && i < tower->height; i++) {
        const struct muster_level *level = &tower->levels[i];
        const struct muster_exchange *exchange = frame->exchanges[i];
        const struct muster_step_totals totals =
            i == frame->levels - 1 ? muster_exchange_allreduce_totals(exchange, level)
                                   : muster_exchange_totals(exchange, level);
        sum.rounds += totals.rounds;
        sum.elements += totals.elements;
        sum.reduced += totals.reduced;
    }
    return sum;
}

/* What a rank does with all pieces: elements of all lanes, and the rounds of the longest. */
static struct muster_step_totals totals_of_pieces(const struct frame *frame, uint32_t host,
                                                  uint32_t rank, uint64_t count)
{
    struct cutter cutter = {.whole = {.count = count}};
    uint32_t rounds[PIECE_LANES] = {0};
    struct muster_step_totals sum = {0};
    struct muster_step_totals totals = {0};
    uint64_t size = UINT64_MAX;
    for (uint32_t piece = 0; piece < frame->pieces; piece++) {
        const struct muster_span span = next_piece(frame, &cutter);
        if (span.count != size) { /* few are: pieces of one size take the same */
            const struct tower tower = tower_of(frame, host, rank, span);
            totals = totals_of(frame, &tower, 0, LEVELS_MAX);
            size = span.count;
        }
        sum.elements += totals.elements;
        uint32_t *lane = &rounds[piece % frame->lanes];
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

/* The way through the job: that of the first rank of the largest host. With pieces, what is within
 * hosts hides behind what is between them, but for the first and the last piece. */
static void estimate(const struct frame *frame, uint64_t count, struct muster_formula *ret_formula)
{
    const struct muster_topology *topology = frame->topology;
    uint32_t turns = frame->turns;
    struct cutter cutter = {.whole = {.count = count}};
    const struct muster_span first = next_piece(frame, &cutter);
    const struct tower edge = tower_of(frame, index_of_largest_host(topology), 0, first);
    const struct tower tower = tower_of(frame, index_of_largest_host(topology), 0, cutter.whole);
    const struct muster_step_totals local = totals_of(frame, &edge, 0, 1);
    ret_formula->local = (struct muster_path){.messages = (uint64_t)local.rounds * turns,
                                              .elements = local.elements};
    ret_formula->reduced = local.reduced;
    uint64_t hosts = muster_topology_largest_rack(topology); /* of a rack, that go */
    for (uint32_t i = 1; i < frame->levels; i++) {
        const struct muster_step_totals totals = totals_of(frame, &tower, i, i + 1);
        const struct muster_path path = {.messages = (uint64_t)totals.rounds * turns,
                                         .elements = totals.elements * frame->owners[0]};
        if (frame->levels == LEVELS_MAX && i == 1) {
            ret_formula->cross = path;
            hosts = frame->owners[1];
        } else {
            muster_formula_between(ret_formula, topology, path, hosts);
        }
        ret_formula->reduced += totals.reduced;
    }
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct frame frame = frame_of(plan);
    *ret_formula = (struct muster_formula){0};
    for (uint32_t host = 0; host < plan->topology->hosts; host++) {
        for (uint32_t rank = 0; rank < plan->topology->host_sizes[host]; rank++) {
            const struct muster_step_totals totals =
                totals_of_pieces(&frame, host, rank, plan->count);
            ret_formula->rounds =
                totals.rounds > ret_formula->rounds ? totals.rounds : ret_formula->rounds;
            ret_formula->elements =
                totals.elements > ret_formula->elements ? totals.elements : ret_formula->elements;
        }
    }
    estimate(&frame, plan->count, ret_formula);
}

const struct muster_generator muster_hierarchical_generator = {
    .rounds_text = "2(L-1) + those of halving_doubling on H",
    .elements_text = "2n(L-1)/L + its on n/L",
    .generate = generate,
    .formula = find_formula,
};
