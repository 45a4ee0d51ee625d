/* The lanes between hosts: runs, carriers, and the blocks of a lane. */
#include "collectives/algorithms/hierarchical/lanes.h"

#include "collectives/algorithms/generators.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

static struct muster_span run_of(const struct muster_lanes *lanes, uint32_t lane, uint32_t host)
{
    const struct muster_span all = {.offset = lanes->topology->host_first[host],
                                    .count = lanes->topology->host_sizes[host]};
    return lanes->parts ? (struct muster_span){.offset = all.offset + lane, .count = 1}
                        : muster_span_part(all, lanes->lanes, lane);
}

struct muster_span muster_lanes_host(const struct muster_lanes *lanes, uint32_t host)
{
    uint64_t first = lanes->topology->host_first[host];
    return muster_blocks_range(&lanes->blocks, first, first + lanes->topology->host_sizes[host]);
}

static struct muster_span blocks_of(const struct muster_lanes *lanes, uint32_t lane, uint32_t host)
{
    if (lanes->parts) {
        return muster_span_part(muster_lanes_host(lanes, host), lanes->lanes, lane);
    }
    const struct muster_span run = run_of(lanes, lane, host);
    return muster_blocks_range(&lanes->blocks, run.offset, run.offset + run.count);
}

struct muster_lanes muster_lanes_of(const struct muster_topology *topology,
                                    const struct muster_blocks *blocks)
{
    return (struct muster_lanes){
        .topology = topology, .blocks = *blocks, .lanes = muster_topology_smallest_host(topology)};
}

struct muster_lanes muster_lanes_of_parts(const struct muster_topology *topology,
                                          const struct muster_blocks *blocks)
{
    struct muster_lanes lanes = muster_lanes_of(topology, blocks);
    lanes.parts = true;
    return lanes;
}

/* The lane, or run, of a local rank: the larger runs come first. */
static uint32_t lane_of(uint32_t local_rank, uint32_t local_size, uint32_t lanes)
{
    uint32_t small = local_size / lanes;
    uint32_t in_large = local_size % lanes * (small + 1);
    return local_rank < in_large ? local_rank / (small + 1)
                                 : local_size % lanes + (local_rank - in_large) / small;
}

struct muster_lane muster_lane_at(const struct muster_lanes *lanes, uint32_t host,
                                  uint32_t local_rank)
{
    uint32_t size = lanes->topology->host_sizes[host];
    uint32_t lane =
        lanes->parts ? local_rank % lanes->lanes : lane_of(local_rank, size, lanes->lanes);
    const struct muster_span run = run_of(lanes, lane, host);
    return (struct muster_lane){.all = lanes,
                                .lane = lane,
                                .host = host,
                                .local_rank = local_rank,
                                .local_size = size,
                                .run = run,
                                .carries =
                                    run.offset == lanes->topology->host_first[host] + local_rank};
}

void muster_lanes_measure(const struct muster_lanes *lanes, uint32_t lane, uint64_t *starts)
{
    starts[0] = 0;
    for (uint32_t host = 0; host < lanes->topology->hosts; host++) {
        starts[host + 1] = starts[host] + blocks_of(lanes, lane, host).count;
    }
}

muster_status muster_lane_init(const struct muster_lanes *lanes, uint32_t rank,
                               struct muster_lane *ret_lane, uint64_t **ret_starts)
{
    const struct muster_position here = muster_topology_locate(lanes->topology, rank);
    uint64_t *starts = calloc((size_t)lanes->topology->hosts + 1, sizeof *starts);
    if (starts == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory for %" PRIu32 " hosts",
                                lanes->topology->hosts);
    }
    *ret_lane = muster_lane_at(lanes, here.host, here.local_rank);
    muster_lanes_measure(lanes, ret_lane->lane, starts);
    ret_lane->starts = starts;
    *ret_starts = starts;
    return MUSTER_OK;
}

static uint32_t carried_by(const struct muster_lane *own, uint32_t local_rank)
{
    const struct muster_lane other = muster_lane_at(own->all, own->host, local_rank);
    return other.carries ? other.lane : own->all->lanes;
}

static uint32_t local_after(const struct muster_lane *own, uint32_t distance)
{
    return (uint32_t)(((uint64_t)own->local_rank + distance) % own->local_size);
}

uint32_t muster_lane_after(const struct muster_lane *own, uint32_t distance)
{
    return carried_by(own, local_after(own, distance));
}

uint32_t muster_lane_before(const struct muster_lane *own, uint32_t distance)
{
    return carried_by(own, local_after(own, own->local_size - distance));
}

uint32_t muster_lane_rank_after(const struct muster_lane *own, uint32_t distance)
{
    return own->all->topology->host_first[own->host] + local_after(own, distance);
}

uint32_t muster_lane_rank_before(const struct muster_lane *own, uint32_t distance)
{
    return muster_lane_rank_after(own, own->local_size - distance);
}

uint32_t muster_lane_carrier(const struct muster_lane *own, uint64_t distance)
{
    uint32_t host = (uint32_t)((own->host + distance) % own->all->topology->hosts);
    return (uint32_t)run_of(own->all, own->lane, host).offset;
}

struct muster_span muster_lane_blocks(const struct muster_lane *own, uint64_t distance)
{
    uint64_t hosts = own->all->topology->hosts;
    return blocks_of(own->all, own->lane,
                     (uint32_t)((own->host + hosts - distance % hosts) % hosts));
}

uint64_t muster_lane_place(const struct muster_lane *own, uint64_t distance)
{
    uint64_t hosts = own->all->topology->hosts;
    return own->starts[(own->host + hosts - distance % hosts) % hosts];
}

bool muster_lanes_next(const struct muster_lanes *lanes, uint32_t lane, uint32_t *host,
                       struct muster_span *ret_span)
{
    if (*host >= lanes->topology->hosts) {
        return false;
    }
    struct muster_span span = blocks_of(lanes, lane, (*host)++);
    while (*host < lanes->topology->hosts) {
        const struct muster_span next = blocks_of(lanes, lane, *host);
        if (next.offset != span.offset + span.count) {
            break;
        }
        span.count += next.count;
        (*host)++;
    }
    *ret_span = span;
    return true;
}

uint64_t muster_lane_elements(const struct muster_lane *own)
{
    return own->starts[own->all->topology->hosts];
}

uint64_t muster_lane_elements_of(const struct muster_lane *own, uint64_t distance, uint64_t hosts)
{
    uint64_t all = own->all->topology->hosts;
    uint64_t end = (own->host + all - distance) % all + 1;
    if (hosts <= end) {
        return own->starts[end] - own->starts[end - hosts];
    }
    return own->starts[end] + own->starts[all] - own->starts[all + end - hosts];
}

uint32_t muster_lanes_rounds(const struct muster_lanes *lanes)
{
    return muster_log2_up(lanes->topology->hosts);
}

uint32_t muster_lanes_round_hosts(const struct muster_lanes *lanes, uint32_t round)
{
    uint32_t present = UINT32_C(1) << round;
    uint32_t missing = lanes->topology->hosts - present;
    return present < missing ? present : missing;
}

/* Between carriers ----------------------------------------------------------------------------- */

void muster_lane_allgather(const struct muster_lane *own, bool fresh,
                           struct muster_builder *builder)
{
    uint64_t hosts = own->all->topology->hosts;
    for (uint32_t round = 0; round < muster_lanes_rounds(own->all); round++) {
        uint64_t distance = UINT64_C(1) << round;
        bool first = round == 0 && fresh;
        for (uint32_t i = 0; i < muster_lanes_round_hosts(own->all, round); i++) {
            struct muster_span span = muster_lane_blocks(own, i);
            span.offset = first ? 0 : span.offset;
            muster_builder_send(builder, muster_lane_carrier(own, distance),
                                first ? MUSTER_INPUT : MUSTER_OUTPUT, span);
            muster_builder_recv(builder, muster_lane_carrier(own, hosts - distance), MUSTER_OUTPUT,
                                muster_lane_blocks(own, distance + i));
        }
        muster_builder_next_round(builder);
    }
}

uint64_t muster_lane_allgather_elements(const struct muster_lane *own)
{
    uint64_t elements = 0;
    for (uint32_t round = 0; round < muster_lanes_rounds(own->all); round++) {
        elements += muster_lane_elements_of(own, 0, muster_lanes_round_hosts(own->all, round));
    }
    return elements;
}

/* True if the blocks of this distance were reduced in an earlier round; rounds count down. */
static bool is_reduced(const struct muster_lanes *lanes, uint64_t distance, uint32_t round)
{
    bool reduced = false;
    for (uint32_t before = round + 1; before < muster_lanes_rounds(lanes); before++) {
        reduced = reduced || distance < muster_lanes_round_hosts(lanes, before);
    }
    return reduced;
}

/* Where the carrier has the blocks of this distance: in SCRATCH if they are reduced, else in INPUT.
 */
static struct muster_span held(const struct muster_lane *own, uint64_t distance, bool reduced)
{
    struct muster_span span = muster_lane_blocks(own, distance);
    span.offset = reduced ? muster_lane_place(own, distance) : span.offset;
    return span;
}

void muster_lane_reduce_scatter(const struct muster_lane *own, bool reduced, bool done,
                                struct muster_builder *builder)
{
    uint64_t hosts = own->all->topology->hosts;
    for (uint32_t round = muster_lanes_rounds(own->all); round-- > 0;) {
        uint64_t distance = UINT64_C(1) << round;
        for (uint32_t i = 0; i < muster_lanes_round_hosts(own->all, round); i++) {
            bool sent_reduced = reduced || is_reduced(own->all, distance + i, round);
            bool own_reduced = reduced || is_reduced(own->all, i, round);
            bool last = round == 0 && done;
            muster_builder_send(builder, muster_lane_carrier(own, hosts - distance),
                                sent_reduced ? MUSTER_SCRATCH : MUSTER_INPUT,
                                held(own, distance + i, sent_reduced));
            muster_builder_recv_reduce(
                builder, muster_lane_carrier(own, distance),
                own_reduced ? MUSTER_SCRATCH : MUSTER_INPUT, held(own, i, own_reduced),
                last ? MUSTER_OUTPUT : MUSTER_SCRATCH, last ? 0 : muster_lane_place(own, i));
        }
        muster_builder_next_round(builder);
    }
}

uint64_t muster_lane_reduce_scatter_elements(const struct muster_lane *own)
{
    uint64_t elements = 0;
    for (uint32_t round = 0; round < muster_lanes_rounds(own->all); round++) {
        elements += muster_lane_elements_of(own, UINT64_C(1) << round,
                                            muster_lanes_round_hosts(own->all, round));
    }
    return elements;
}

/* Formulas ------------------------------------------------------------------------------------- */

/* The critical path: the shares of the largest host, and all lanes through one uplink. Each further
 * message in a round counts as half a latency. */
static void estimate(const struct muster_lanes *lanes, struct muster_formula *formula)
{
    assert(lanes->lanes > 0 && lanes->topology->hosts > 0 && lanes->topology->racks > 0);
    uint64_t total = muster_blocks_total(&lanes->blocks);
    uint64_t largest = muster_topology_largest_host(lanes->topology);
    uint64_t hosts = lanes->topology->hosts;
    uint64_t messages = lanes->lanes > 1 ? hosts : 1; /* in which a lane's blocks go */
    formula->local =
        (struct muster_path){.messages = (largest - 1) * (messages + 1) / 2 + largest - 1,
                             .elements = (largest - 1) * (total / lanes->lanes)};
    const struct muster_path between = {.messages = muster_lanes_rounds(lanes) +
                                                    (lanes->lanes > 1 ? hosts / 2 : 0),
                                        .elements = total / hosts * (hosts - 1)};
    muster_formula_between(formula, lanes->topology, between, hosts / lanes->topology->racks);
}

/* Raises the formula's rounds and elements to those of the ranks of one run. */
static void add_host(const struct muster_lanes *lanes, uint32_t lane, uint32_t host,
                     const uint64_t *starts, muster_lane_totals totals_of,
                     struct muster_formula *formula)
{
    const struct muster_span run = run_of(lanes, lane, host);
    for (uint64_t rank = run.offset; rank < run.offset + run.count; rank++) {
        uint64_t local = rank - lanes->topology->host_first[host];
        struct muster_lane own = muster_lane_at(lanes, host, (uint32_t)local);
        own.starts = starts;
        const struct muster_step_totals totals = totals_of(&own);
        formula->rounds = totals.rounds > formula->rounds ? totals.rounds : formula->rounds;
        formula->elements =
            totals.elements > formula->elements ? totals.elements : formula->elements;
    }
}

void muster_lanes_formula(const struct muster_lanes *lanes, muster_lane_totals totals_of,
                          struct muster_formula *ret_formula)
{
    *ret_formula = (struct muster_formula){0};
    uint32_t hosts = lanes->topology->hosts;
    AUTO_FREE uint64_t *starts = calloc((size_t)hosts + 1, sizeof *starts);
    if (starts == NULL) {
        ret_formula->cross.messages = UINT32_MAX;
        return;
    }
    for (uint32_t lane = 0; lane < lanes->lanes; lane++) {
        muster_lanes_measure(lanes, lane, starts);
        for (uint32_t host = 0; host < hosts; host++) {
            add_host(lanes, lane, host, starts, totals_of, ret_formula);
        }
    }
    estimate(lanes, ret_formula);
}
