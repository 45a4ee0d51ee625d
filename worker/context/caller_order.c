/* From a caller's order of ranks to that of the topology. */
#include "worker/context/caller_order.h"

#include <stdlib.h>

#include "collectives/call/host_order.h"
#include "worker/base/status.h"

/* Of a context --------------------------------------------------------------------------------- */

static muster_status fill(struct muster_caller_order *order, const uint32_t *callers,
                          const uint32_t *peers)
{
    for (uint32_t i = 0; i < order->ranks; i++) {
        order->topology_ranks[i] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < order->ranks; i++) {
        if (callers[i] >= order->ranks || order->topology_ranks[callers[i]] != UINT32_MAX) {
            return muster_error_set(MUSTER_INVALID,
                                    "rank %u of %u is given twice or does not exist", callers[i],
                                    order->ranks);
        }
        order->callers[i] = callers[i];
        order->topology_ranks[callers[i]] = i;
        order->peers[callers[i]] = peers[i];
    }
    return MUSTER_OK;
}

muster_status muster_caller_order_init(uint32_t ranks, const uint32_t *callers,
                                       const uint32_t *peers, struct muster_caller_order *ret_order)
{
    struct muster_caller_order order = {.ranks = ranks};
    muster_status status = MUSTER_FATAL;
    if (callers == NULL || muster_ranks_are_in_order(callers, ranks)) {
        *ret_order = order;
        return MUSTER_OK;
    }
    order.callers = calloc(ranks, sizeof *order.callers);
    order.topology_ranks = calloc(ranks, sizeof *order.topology_ranks);
    order.peers = calloc(ranks, sizeof *order.peers);
    if (order.callers == NULL || order.topology_ranks == NULL || order.peers == NULL) {
        status = muster_error_set(MUSTER_FATAL, "no memory for the order of %u ranks", ranks);
    } else {
        status = fill(&order, callers, peers);
    }
    if (status != MUSTER_OK) {
        muster_caller_order_finish(&order);
        return status;
    }
    *ret_order = order;
    return MUSTER_OK;
}

void muster_caller_order_finish(struct muster_caller_order *order)
{
    free(order->callers);
    free(order->topology_ranks);
    free(order->peers);
    *order = (struct muster_caller_order){0};
}

uint32_t muster_caller_order_rank(const struct muster_caller_order *order, uint32_t topology_rank)
{
    return order->callers != NULL ? order->callers[topology_rank] : topology_rank;
}

/* Of an operation ------------------------------------------------------------------------------ */

/* The calls that are defined by numbers of ranks, and not by blocks, stay in the caller's order. */
static bool is_translated(const struct muster_caller_order *order,
                          enum muster_collective collective)
{
    return order->callers != NULL && collective != MUSTER_PAIRWISE_EXCHANGE;
}

static bool has_input_blocks(const struct muster_shape *shape)
{
    switch (shape->collective) {
    case MUSTER_REDUCE_SCATTER:
    case MUSTER_ALLTOALL:
    case MUSTER_ALLTOALLV:
        return true;
    case MUSTER_SCATTER:
        return shape->rank == shape->root;
    default:
        return false;
    }
}

static bool has_output_blocks(const struct muster_shape *shape)
{
    switch (shape->collective) {
    case MUSTER_ALLGATHER:
    case MUSTER_ALLGATHERV:
    case MUSTER_ALLTOALL:
    case MUSTER_ALLTOALLV:
        return true;
    case MUSTER_GATHER:
    case MUSTER_GATHERV:
        return shape->rank == shape->root;
    default:
        return false;
    }
}

/* block: of the caller's buffer. */
static muster_status init_moves(const struct muster_caller_order *order,
                                const struct muster_shape *shape,
                                struct muster_span (*block)(const struct muster_shape *, uint32_t),
                                struct muster_block_moves *ret_moves)
{
    struct muster_block_moves moves;
    TRY(muster_block_moves_init(order->ranks, &moves));
    for (uint32_t i = 0; i < order->ranks; i++) {
        const struct muster_span span = block(shape, order->callers[i]);
        moves.from[i + 1] = moves.from[i] + span.count;
        moves.to[i] = span.offset;
    }
    *ret_moves = moves;
    return MUSTER_OK;
}

/* The plan has bounds on all ranks, also on those that lack the buffer. */
static muster_status init_bounds(const struct muster_caller_order *order, const uint64_t *bounds,
                                 uint64_t **ret_bounds)
{
    if (bounds == NULL) {
        return MUSTER_OK;
    }
    uint64_t *moved = calloc((size_t)order->ranks + 1, sizeof *moved);
    if (moved == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the counts of %u ranks", order->ranks);
    }
    for (uint32_t i = 0; i < order->ranks; i++) {
        uint32_t caller = order->callers[i];
        moved[i + 1] = moved[i] + (bounds[caller + 1] - bounds[caller]);
    }
    *ret_bounds = moved;
    return MUSTER_OK;
}

static muster_status fill_operation(const struct muster_caller_order *order,
                                    const struct muster_shape *shape,
                                    struct muster_operation_order *operation)
{
    TRY(init_bounds(order, shape->input_bounds, &operation->input_bounds));
    TRY(init_bounds(order, shape->output_bounds, &operation->output_bounds));
    if (has_input_blocks(shape)) {
        TRY(init_moves(order, shape, muster_shape_input_block, &operation->input));
    }
    if (has_output_blocks(shape)) {
        TRY(init_moves(order, shape, muster_shape_output_block, &operation->output));
    }
    return MUSTER_OK;
}

muster_status muster_operation_order_init(const struct muster_caller_order *order,
                                          const struct muster_shape *shape,
                                          struct muster_operation_order *ret_order)
{
    struct muster_operation_order operation = {0};
    if (is_translated(order, shape->collective)) {
        muster_status status = fill_operation(order, shape, &operation);
        if (status != MUSTER_OK) {
            muster_operation_order_finish(&operation);
            return status;
        }
    }
    *ret_order = operation;
    return MUSTER_OK;
}

void muster_operation_order_finish(struct muster_operation_order *order)
{
    free(order->input_bounds);
    free(order->output_bounds);
    muster_block_moves_finish(&order->input);
    muster_block_moves_finish(&order->output);
    *order = (struct muster_operation_order){0};
}

bool muster_operation_order_copies(const struct muster_operation_order *order)
{
    return order->input.blocks > 0 || order->output.blocks > 0;
}

/* Plans and schedules -------------------------------------------------------------------------- */

void muster_caller_order_plan(const struct muster_caller_order *order,
                              const struct muster_operation_order *operation,
                              struct muster_plan *plan)
{
    if (!is_translated(order, plan->collective)) {
        return;
    }
    plan->rank = order->topology_ranks[plan->rank];
    if (muster_collective_has_root(plan->collective)) {
        plan->root = order->topology_ranks[plan->root];
    }
    plan->input_bounds = operation->input_bounds;
    plan->output_bounds = operation->output_bounds;
}

const uint32_t *muster_caller_order_peers(const struct muster_caller_order *order,
                                          const struct muster_plan *plan, const uint32_t *in_order)
{
    bool by_caller = order->callers != NULL && !is_translated(order, plan->collective);
    return by_caller ? order->peers : in_order;
}

/* An in-place schedule is for an input and an output whose elements lie in the same places, which
 * the caller's do not. So the input is copied, as most in-place schedules do by themselves. One
 * that keeps the input does not write there before the end, with a copy or without. */
muster_status muster_caller_order_schedule(size_t algorithm, const struct muster_plan *plan,
                                           struct muster_operation_order *order,
                                           struct muster_schedule *ret_schedule)
{
    struct muster_schedule schedule;
    struct muster_plan used = *plan;
    bool copies_input = plan->in_place && order->input.blocks > 0;
    used.in_place = plan->in_place && (!copies_input || plan->keep_input);
    TRY(muster_schedule_generate(algorithm, &used, &schedule));
    bool input_fits =
        !copies_input && muster_block_moves_fit(&order->input, &schedule, MUSTER_INPUT);
    bool output_fits = muster_block_moves_fit(&order->output, &schedule, MUSTER_OUTPUT);
    const struct muster_block_moves none = {0};
    muster_status status = muster_block_moves_apply(
        input_fits ? &order->input : &none, output_fits ? &order->output : &none, &schedule);
    if (status != MUSTER_OK) {
        muster_schedule_finish(&schedule);
        return status;
    }
    if (input_fits) {
        muster_block_moves_finish(&order->input);
    }
    if (output_fits) {
        muster_block_moves_finish(&order->output);
    }
    *ret_schedule = schedule;
    return MUSTER_OK;
}
