/* muster bench step: the ways to do a step, a row each in the table at the end. */
#include "worker/cli/bench/step/step_parts.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"

/* Time ---------------------------------------------------------------------------------------- */

static double us_since(int64_t start_ns)
{
    return (double)(muster_clock_ns() - start_ns) / 1000;
}

static void sleep_until(int64_t at_ns)
{
    const struct timespec until = muster_clock_timespec(at_ns);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

/* Waits until the backward pass has this many of the model's gradients ready. */
static void wait_until_ready(const struct muster_bench_step_rank *rank, size_t count)
{
    int64_t backward_ns = (int64_t)rank->shared->options.backward_ms * MUSTER_NS_PER_MS;
    if (backward_ns > 0) {
        sleep_until(rank->begin_ns +
                    backward_ns * (int64_t)count / (int64_t)rank->shared->model->count);
    }
}

/* Sides without the engine -------------------------------------------------------------------- */

static muster_status run_plain(struct muster_bench_step_rank *rank,
                               struct muster_bench_step_times *ret_times)
{
    const struct muster_model *model = rank->shared->model;
    wait_until_ready(rank, model->count);
    int64_t submitted_ns = muster_clock_ns();
    TRY(muster_allreduce(rank->session, MUSTER_GLOBAL, rank->in, rank->out, model->elements,
                         MUSTER_FLOAT32, MUSTER_SUM, NULL));
    ret_times->exposed_us = us_since(submitted_ns);
    ret_times->first_needed_us = us_since(rank->begin_ns);
    return MUSTER_OK;
}

/* A call that is late because of those before it counts as made when its tensor was ready. */
static muster_status run_each(struct muster_bench_step_rank *rank,
                              struct muster_bench_step_times *ret_times)
{
    const struct muster_model *model = rank->shared->model;
    int64_t backward_ns = (int64_t)rank->shared->options.backward_ms * MUSTER_NS_PER_MS;
    for (size_t i = 0; i < model->count; i++) {
        size_t offset = rank->offsets[i];
        wait_until_ready(rank, i + 1);
        TRY(muster_allreduce(rank->session, MUSTER_GLOBAL, rank->in + offset, rank->out + offset,
                             model->tensors[i].elements, MUSTER_FLOAT32, MUSTER_SUM, NULL));
    }
    ret_times->exposed_us = us_since(rank->begin_ns + backward_ns);
    ret_times->first_needed_us = us_since(rank->begin_ns);
    return MUSTER_OK;
}

/* Waits for all operations, first for that of the tensor that is needed first. */
static muster_status wait_for_all(const struct muster_bench_step_rank *rank,
                                  struct muster_bench_step_times *ret_times)
{
    size_t count = rank->shared->model->count;
    int64_t submitted_ns = muster_clock_ns();
    TRY(muster_wait(rank->operations[count - 1]));
    ret_times->first_needed_us = us_since(rank->begin_ns);
    for (size_t i = 0; i + 1 < count; i++) {
        TRY(muster_wait(rank->operations[i]));
    }
    ret_times->exposed_us = us_since(submitted_ns);
    return MUSTER_OK;
}

static muster_status run_started(struct muster_bench_step_rank *rank,
                                 struct muster_bench_step_times *ret_times)
{
    const struct muster_model *model = rank->shared->model;
    for (size_t i = 0; i < model->count; i++) {
        size_t offset = rank->offsets[i];
        wait_until_ready(rank, i + 1);
        TRY(muster_allreduce_start(rank->session, MUSTER_GLOBAL, rank->in + offset,
                                   rank->out + offset, model->tensors[i].elements, MUSTER_FLOAT32,
                                   MUSTER_SUM, NULL, &rank->operations[i]));
    }
    return wait_for_all(rank, ret_times);
}

/* Sides with the engine ----------------------------------------------------------------------- */

/* Submits in this rank's order. */
static muster_status run_submitted(struct muster_bench_step_rank *rank, bool urgent,
                                   struct muster_bench_step_times *ret_times)
{
    const struct muster_model *model = rank->shared->model;
    for (size_t i = 0; i < model->count; i++) {
        size_t which = rank->order[i];
        size_t offset = rank->offsets[which];
        muster_tensor tensor;
        muster_tensor_init(&tensor);
        tensor.name = model->tensors[which].name;
        tensor.in = rank->in + offset;
        tensor.out = rank->out + offset;
        tensor.count = model->tensors[which].elements;
        tensor.priority = urgent ? (int32_t)which : 0;
        wait_until_ready(rank, i + 1);
        TRY(muster_submit(rank->session, MUSTER_GLOBAL, &tensor, &rank->operations[which]));
    }
    return wait_for_all(rank, ret_times);
}

static muster_status run_engine(struct muster_bench_step_rank *rank,
                                struct muster_bench_step_times *ret_times)
{
    return run_submitted(rank, false, ret_times);
}

static muster_status run_urgent(struct muster_bench_step_rank *rank,
                                struct muster_bench_step_times *ret_times)
{
    return run_submitted(rank, true, ret_times);
}

/* The table ----------------------------------------------------------------------------------- */

const struct muster_bench_step_side muster_bench_step_sides[] = {
    {"plain", false, run_plain},  {"each", false, run_each},    {"started", false, run_started},
    {"engine", true, run_engine}, {"urgent", true, run_urgent},
};
const size_t muster_bench_step_side_count =
    sizeof muster_bench_step_sides / sizeof muster_bench_step_sides[0];

static muster_status add_side(struct muster_bench_step_options *options, const char *name,
                              size_t length)
{
    size_t row = 0;
    while (row < muster_bench_step_side_count &&
           (strlen(muster_bench_step_sides[row].name) != length ||
            strncmp(muster_bench_step_sides[row].name, name, length) != 0)) {
        row++;
    }
    if (row == muster_bench_step_side_count) {
        return muster_error_set(MUSTER_INVALID, "--sides: \"%.*s\" is no side", (int)length, name);
    }
    for (size_t i = 0; i < options->side_count; i++) {
        if (options->sides[i] == row) {
            return muster_error_set(MUSTER_INVALID, "--sides: %s is named twice",
                                    muster_bench_step_sides[row].name);
        }
    }
    options->sides[options->side_count++] = row;
    return MUSTER_OK;
}

muster_status muster_bench_step_parse_sides(const char *text,
                                            struct muster_bench_step_options *options)
{
    options->side_count = 0;
    for (const char *name = text;; name++) {
        size_t length = strcspn(name, ",");
        TRY(add_side(options, name, length < 32 ? length : 32));
        name += length;
        if (*name == '\0') {
            return MUSTER_OK;
        }
    }
}

size_t muster_bench_step_engine_sides(const struct muster_bench_step_options *options)
{
    size_t count = 0;
    for (size_t i = 0; i < options->side_count; i++) {
        count += muster_bench_step_sides[options->sides[i]].engine;
    }
    return count;
}
