/* muster bench step: the buffers of a rank, their contents, and the orders of submission. The
 * values are small whole numbers that repeat, so that every order of addition gives the same sum.
 * Tensors are 64 bytes apart, in the same memory as the one buffer of the side `plain`. */
#include "worker/cli/bench/step/step_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PERIOD = 32, PHASE = 5, GAP = 16 };

/* Orders -------------------------------------------------------------------------------------- */

static const char *const orders[] = {[MUSTER_BENCH_STEP_RANDOM] = "random",
                                     [MUSTER_BENCH_STEP_SHUFFLED] = "shuffled",
                                     [MUSTER_BENCH_STEP_READY] = "ready"};

const char *muster_bench_step_order_name(enum muster_bench_step_order order)
{
    return orders[order];
}

muster_status muster_bench_step_parse_order(const char *text,
                                            enum muster_bench_step_order *ret_order)
{
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        if (strcmp(text, orders[i]) == 0) {
            *ret_order = (enum muster_bench_step_order)i;
            return MUSTER_OK;
        }
    }
    return muster_error_set(MUSTER_INVALID,
                            "--order: \"%.32s\" is none of random, shuffled and ready", text);
}

static void shuffle(struct muster_bench_step_rank *rank)
{
    for (size_t i = rank->shared->model->count; i > 1; i--) {
        size_t other = (size_t)nrand48(rank->random) % i;
        size_t kept = rank->order[i - 1];
        rank->order[i - 1] = rank->order[other];
        rank->order[other] = kept;
    }
}

void muster_bench_step_data_next_order(struct muster_bench_step_rank *rank)
{
    if (rank->shared->options.order == MUSTER_BENCH_STEP_SHUFFLED) {
        shuffle(rank);
    }
}

/* Buffers ------------------------------------------------------------------------------------- */

static size_t room_of(const struct muster_model *model)
{
    return model->elements + model->count * GAP;
}

double muster_bench_step_data_bytes(const struct muster_bench_step_options *options,
                                    const struct muster_model *model)
{
    return (double)room_of(model) * sizeof(float) * (options->in_place ? 1 : 2);
}

static float value_of(uint64_t index, uint32_t rank)
{
    return (float)((index + (uint64_t)PHASE * rank) % PERIOD);
}

muster_status muster_bench_step_data_init(struct muster_bench_step_rank *rank)
{
    const struct muster_bench_step_options *options = &rank->shared->options;
    const struct muster_model *model = rank->shared->model;
    rank->room = room_of(model);
    rank->in = malloc(rank->room * sizeof *rank->in);
    rank->out = options->in_place ? rank->in : malloc(rank->room * sizeof *rank->out);
    rank->offsets = calloc(model->count, sizeof *rank->offsets);
    rank->order = calloc(model->count, sizeof *rank->order);
    rank->operations = calloc(model->count, sizeof *rank->operations);
    if (rank->in == NULL || rank->out == NULL || rank->offsets == NULL || rank->order == NULL ||
        rank->operations == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the tensors of %s", options->model);
    }
    size_t offset = 0;
    for (size_t i = 0; i < model->count; i++) {
        rank->offsets[i] = offset;
        rank->order[i] = i;
        offset += model->tensors[i].elements + GAP;
    }
    rank->random[0] = (unsigned short)rank->rank;
    rank->random[1] = (unsigned short)options->seed;
    rank->random[2] = (unsigned short)(options->seed >> 16);
    if (options->order == MUSTER_BENCH_STEP_RANDOM) {
        shuffle(rank);
    }
    return MUSTER_OK;
}

void muster_bench_step_data_finish(struct muster_bench_step_rank *rank)
{
    if (rank->out != rank->in) {
        free(rank->out);
    }
    free(rank->in);
    free(rank->offsets);
    free(rank->order);
    free(rank->operations);
}

void muster_bench_step_data_fill(struct muster_bench_step_rank *rank)
{
    if (rank->out != rank->in) {
        memset(rank->out, 0xFF, rank->room * sizeof *rank->out); /* NaN */
    }
    for (size_t i = 0; i < rank->room; i++) {
        rank->in[i] = value_of(i, rank->rank);
    }
}

void muster_bench_step_data_settle(struct muster_bench_step_rank *rank)
{
    if (rank->out == rank->in) {
        memset(rank->in, 0, rank->room * sizeof *rank->in);
    }
}

/* The sums repeat as the values do. */
static void expected_sums(uint32_t ranks, float sums[PERIOD])
{
    for (uint64_t i = 0; i < PERIOD; i++) {
        sums[i] = 0;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            sums[i] += value_of(i, rank);
        }
    }
}

/* The gaps between tensors hold nothing that a side promises. The side `plain` sums the first
 * elements of the memory, as many as the model has: all but the last tensors. */
muster_status muster_bench_step_data_check(const struct muster_bench_step_rank *rank,
                                           const char *side)
{
    const struct muster_model *model = rank->shared->model;
    bool whole = strcmp(side, "plain") == 0;
    float sums[PERIOD];
    expected_sums(rank->shared->options.ranks, sums);
    for (size_t tensor = 0; tensor < model->count; tensor++) {
        size_t offset = rank->offsets[tensor];
        for (size_t i = offset; i < offset + model->tensors[tensor].elements; i++) {
            if (rank->out[i] != sums[i % PERIOD] && (!whole || i < model->elements)) {
                return muster_error_set(MUSTER_FATAL,
                                        "wrong result of side %s: element %zu of %s is %g, not %g",
                                        side, i - offset, model->tensors[tensor].name,
                                        (double)rank->out[i], (double)sums[i % PERIOD]);
            }
        }
    }
    return MUSTER_OK;
}
