/* Measures the links and cores of a generation, by all its members together. */
#include "worker/communicator/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/bytes.h"
#include "worker/base/cleanup.h"
#include "worker/base/statistics.h"
#include "worker/base/status.h"
#include "worker/communicator/figures_wire.h"
#include "worker/communicator/measure_core.h"
#include "worker/communicator/measure_link.h"

/* The figures that one rank has measured, by index; NAN: not measured. Those of a level follow each
 * other. */
enum sample {
    SAMPLE_REDUCE,
    SAMPLE_COPY,
    SAMPLE_LEVELS,
    SAMPLE_LATENCY = 0,
    SAMPLE_POSTING,
    SAMPLE_BANDWIDTH,
    SAMPLE_SHARED,
    SAMPLES_PER_LEVEL,
    SAMPLE_COUNT = SAMPLE_LEVELS + SAMPLES_PER_LEVEL * MUSTER_LEVEL_COUNT,
};
enum { SAMPLES_SIZE = 8 * SAMPLE_COUNT }; /* as bytes: a little-endian float64 each */

/* Context numbers, counted from the options' first one. */
enum { CONTEXT_ALL, CONTEXT_MEASURING, CONTEXT_PAIRS };

struct measuring {
    const struct muster_measure_options *options;
    struct muster_context *all;
    struct muster_context *active; /* of the ranks that measure; NULL: this one does not */
    struct muster_measure_pairs pairs;
    struct muster_core_figures core; /* the number of cores, and how many ranks share them */
    char *in;                        /* [MUSTER_MEASURE_SOURCE_BYTES]; borrowed */
    char *out;                       /* [MUSTER_MEASURE_TARGET_BYTES]; borrowed */
    double samples[SAMPLE_COUNT];
    uint32_t *suspect;
};

/* Contexts ------------------------------------------------------------------------------------- */

/* A context of these ranks of the topology, ascending; `index` is the place of this rank among
 * them. */
static muster_status create_context(const struct muster_measure_options *options, uint32_t number,
                                    const uint32_t *ranks, uint32_t count, uint32_t index,
                                    struct muster_context **ret_context)
{
    struct muster_topology topology;
    AUTO_FREE uint32_t *peers = calloc(options->topology->ranks, sizeof *peers);
    if (peers == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to measure with");
    }
    for (uint32_t i = 0; i < count; i++) {
        peers[i] = options->peers[ranks[i]];
    }
    TRY(muster_topology_init_some(options->topology, ranks, count, &topology));
    const struct muster_context_options context = {
        .fabric = options->fabric,
        .generation = options->generation,
        .number = options->context + number,
        .name = "measure",
        .topology = &topology,
        .ranks = peers,
        .rank = index,
        .model = &muster_cost_model_default,
    };
    muster_status status = muster_context_create(&context, ret_context);
    muster_topology_finish(&topology);
    return status;
}

static muster_status create_context_of_all(struct measuring *measuring)
{
    const struct muster_measure_options *options = measuring->options;
    uint32_t count = options->topology->ranks;
    AUTO_FREE uint32_t *ranks = calloc(count, sizeof *ranks);
    if (ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to measure with");
    }
    for (uint32_t i = 0; i < count; i++) {
        ranks[i] = i;
    }
    return create_context(options, CONTEXT_ALL, ranks, count, options->rank, &measuring->all);
}

static muster_status create_context_of_some(struct measuring *measuring)
{
    const struct muster_measure_options *options = measuring->options;
    AUTO_FREE uint32_t *ranks = calloc(options->topology->ranks, sizeof *ranks);
    uint32_t count = 0;
    uint32_t index = 0;
    if (ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to measure with");
    }
    for (uint32_t rank = 0; rank < options->topology->ranks; rank++) {
        if (muster_measure_has_role(&measuring->pairs, rank)) {
            index = rank == options->rank ? count : index;
            ranks[count++] = rank;
        }
    }
    return create_context(options, CONTEXT_MEASURING, ranks, count, index, &measuring->active);
}

/* Algorithms are named: choosing one by cost would take longer than the collective. */
static muster_status run(struct measuring *measuring, struct muster_context *context,
                         const char *algorithm, struct muster_request request)
{
    request.algorithm = algorithm;
    request.deadline_ns = measuring->options->deadline_ns;
    return muster_context_run(context, &request, measuring->suspect);
}

/* Measuring ------------------------------------------------------------------------------------ */

static double *samples_of(struct measuring *measuring, enum muster_link_level level)
{
    return &measuring->samples[SAMPLE_LEVELS + SAMPLES_PER_LEVEL * level];
}

/* Replaces the latency where more ranks than cores share a machine. Ranks that wait sleep there. On
 * an otherwise idle machine one pair would measure how long a sleeping core takes to wake up. In a
 * collective all cores are busy: what counts is how long an exchange keeps a core busy when all
 * ranks exchange at once. */
static muster_status measure_oversubscribed(struct measuring *measuring,
                                            enum muster_link_level level,
                                            struct muster_measure_pair *pair,
                                            double *ret_latency_us)
{
    uint32_t active = muster_measure_count_active(&measuring->pairs, level, MUSTER_MEASURE_SHARED);
    if (measuring->core.one_machine == 0 || active <= measuring->core.cores) {
        return MUSTER_OK;
    }
    double exchange_us;
    double posting_us;
    TRY(muster_measure_latency(pair, &exchange_us, &posting_us, measuring->suspect));
    *ret_latency_us = exchange_us * measuring->core.cores / active;
    return MUSTER_OK;
}

static muster_status measure_pair(struct measuring *measuring, enum muster_link_level level,
                                  enum muster_measure_stage stage,
                                  const struct muster_measure_role *role)
{
    const struct muster_measure_options *options = measuring->options;
    bool lower = options->rank < role->peer;
    double *samples = samples_of(measuring, level);
    struct muster_measure_pair pair = {
        .fabric = options->fabric,
        .generation = options->generation,
        .context = options->context + CONTEXT_PAIRS,
        .ranks = {options->peers[lower ? options->rank : role->peer],
                  options->peers[lower ? role->peer : options->rank]},
        .index = lower ? 0 : 1,
        .sequence = (uint64_t)(2 * level + stage) << 32, /* both stages may have this pair */
        .in = measuring->in,
        .out = measuring->out,
        .deadline_ns = options->deadline_ns,
    };
    if (stage == MUSTER_MEASURE_ALONE) {
        TRY(muster_measure_latency(&pair, &samples[SAMPLE_LATENCY], &samples[SAMPLE_POSTING],
                                   measuring->suspect));
        return muster_measure_rate(&pair, false, &samples[SAMPLE_BANDWIDTH], measuring->suspect);
    }
    /* The rate first: all pairs have just left the same barrier. */
    TRY(muster_measure_rate(&pair, true, &samples[SAMPLE_SHARED], measuring->suspect));
    return measure_oversubscribed(measuring, level, &pair, &samples[SAMPLE_LATENCY]);
}

/* The barrier makes sure that no pair begins a stage before all pairs have finished the previous
 * one. */
static muster_status run_stages(struct measuring *measuring, enum muster_link_level level)
{
    for (unsigned stage = 0; stage < MUSTER_MEASURE_STAGES; stage++) {
        struct muster_measure_role role =
            muster_measure_role(&measuring->pairs, measuring->options->rank, level, stage);
        TRY(run(measuring, measuring->active, "dissemination",
                (struct muster_request){.collective = MUSTER_BARRIER}));
        if (role.active) {
            TRY(measure_pair(measuring, level, stage, &role));
        }
    }
    return MUSTER_OK;
}

/* Combining ------------------------------------------------------------------------------------ */

/* The median of the values that are not NAN; NAN if all are. Overwrites the values. */
static double median_of_measured(double *values, size_t count)
{
    size_t measured = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isnan(values[i])) {
            values[measured++] = values[i];
        }
    }
    return measured > 0 ? muster_statistics_median_high(values, measured) : NAN;
}

static bool is_shared(size_t sample)
{
    return sample >= SAMPLE_LEVELS && (sample - SAMPLE_LEVELS) % SAMPLES_PER_LEVEL == SAMPLE_SHARED;
}

static enum muster_link_level level_of(size_t sample)
{
    return (enum muster_link_level)((sample - SAMPLE_LEVELS) / SAMPLES_PER_LEVEL);
}

/* Streams may share unevenly, so what is shared is the sum over the streams that share it. Their
 * ranks follow each other. Writes one sum for each such group; returns the number of groups. */
static size_t sum_streams(const struct measuring *measuring, enum muster_link_level level,
                          const double *column, double *ret_sums)
{
    size_t count = 0;
    uint32_t summed = 0;
    double sum = 0;
    for (uint32_t rank = 0, index = 0; rank < measuring->options->topology->ranks; rank++) {
        if (!muster_measure_has_role(&measuring->pairs, rank)) {
            continue;
        }
        const struct muster_measure_role role =
            muster_measure_role(&measuring->pairs, rank, level, MUSTER_MEASURE_SHARED);
        sum += role.active ? column[index] : 0;
        summed += role.active ? 1 : 0;
        index++;
        if (role.active && summed == role.streams) {
            ret_sums[count++] = sum;
            sum = 0;
            summed = 0;
        }
    }
    return count;
}

/* A time or rate that is not positive, or not measured, does not replace the figure. */
static void set_figure(const double *medians, size_t index, double *figure)
{
    if (isfinite(medians[index]) && medians[index] > 0) {
        *figure = medians[index];
    }
}

static void set_figures(const double *medians, struct muster_cost_model *model)
{
    set_figure(medians, SAMPLE_REDUCE, &model->core.reduce_GBps);
    set_figure(medians, SAMPLE_COPY, &model->core.copy_GBps);
    for (size_t level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        const double *figures = medians + SAMPLE_LEVELS + level * SAMPLES_PER_LEVEL;
        struct muster_link_figures *link = &model->links[level];
        set_figure(figures, SAMPLE_LATENCY, &link->latency_us);
        set_figure(figures, SAMPLE_POSTING, &link->posting_us);
        set_figure(figures, SAMPLE_BANDWIDTH, &link->bandwidth_GBps);
        set_figure(figures, SAMPLE_SHARED, &link->shared_GBps);
        link->posting_us = fmin(link->posting_us, link->latency_us);
    }
}

/* The samples of all ranks that measured, [ranks] of SAMPLES_SIZE. */
static muster_status exchange_samples(struct measuring *measuring, unsigned char *ret_all)
{
    unsigned char mine[SAMPLES_SIZE];
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        muster_bytes_put_double(mine + 8 * i, measuring->samples[i]);
    }
    return run(measuring, measuring->active, "bruck",
               (struct muster_request){.collective = MUSTER_ALLGATHER,
                                       .in = mine,
                                       .out = ret_all,
                                       .count = sizeof mine,
                                       .type = MUSTER_UINT8});
}

/* The ranks that measured exchange what they found and take the medians. */
static muster_status combine(struct measuring *measuring, struct muster_cost_model *model)
{
    uint32_t ranks = muster_context_size(measuring->active);
    AUTO_FREE unsigned char *all = calloc(ranks, SAMPLES_SIZE);
    AUTO_FREE double *column = calloc(ranks, sizeof *column);
    AUTO_FREE double *sums = calloc(ranks, sizeof *sums);
    if (all == NULL || column == NULL || sums == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the figures of %u ranks", ranks);
    }
    TRY(exchange_samples(measuring, all));
    double medians[SAMPLE_COUNT];
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        size_t count = ranks;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            column[rank] = muster_bytes_get_double(all + rank * (size_t)SAMPLES_SIZE + 8 * i);
        }
        if (is_shared(i)) {
            count = sum_streams(measuring, level_of(i), column, sums);
            memcpy(column, sums, count * sizeof *column);
        }
        medians[i] = median_of_measured(column, count);
    }
    set_figures(medians, model);
    return MUSTER_OK;
}

/* All steps ------------------------------------------------------------------------------------ */

static muster_status exchange_cores(struct measuring *measuring, struct muster_core_figures *core)
{
    const struct muster_topology *topology = measuring->options->topology;
    const struct muster_core_description own = muster_core_describe();
    unsigned char mine[MUSTER_CORE_DESCRIPTION_SIZE];
    AUTO_FREE unsigned char *all = calloc(topology->ranks, sizeof mine);
    AUTO_FREE struct muster_core_description *descriptions =
        calloc(topology->ranks, sizeof *descriptions);
    if (all == NULL || descriptions == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the cores of %u ranks",
                                topology->ranks);
    }
    muster_core_description_encode(&own, mine);
    TRY(run(measuring, measuring->all, "bruck",
            (struct muster_request){.collective = MUSTER_ALLGATHER,
                                    .in = mine,
                                    .out = all,
                                    .count = sizeof mine,
                                    .type = MUSTER_UINT8}));
    for (uint32_t rank = 0; rank < topology->ranks; rank++) {
        descriptions[rank] = muster_core_description_decode(all + rank * sizeof mine);
    }
    return muster_core_count_shared(topology, descriptions, core);
}

static muster_status measure_some(struct measuring *measuring, struct muster_cost_model *model)
{
    unsigned levels = muster_measure_levels(measuring->options->topology);
    AUTO_FREE char *in = malloc(MUSTER_MEASURE_SOURCE_BYTES);
    AUTO_FREE char *out = malloc(MUSTER_MEASURE_TARGET_BYTES);
    if (in == NULL || out == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to measure with");
    }
    memset(
        in, 0,
        MUSTER_MEASURE_SOURCE_BYTES); /* untouched, it would be one zero page mapped many times */
    measuring->in = in;
    measuring->out = out;
    TRY(create_context_of_some(measuring));
    if (muster_measure_measures_core(&measuring->pairs, measuring->options->rank)) {
        muster_core_measure(measuring->in, measuring->out, &measuring->samples[SAMPLE_REDUCE],
                            &measuring->samples[SAMPLE_COPY]);
    }
    for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        if ((levels & 1U << level) != 0) {
            TRY(run_stages(measuring, level));
        }
    }
    return combine(measuring, model);
}

/* Rank 0's model, to all members. */
static muster_status broadcast_model(struct measuring *measuring, struct muster_cost_model *model)
{
    unsigned char bytes[MUSTER_COST_MODEL_SIZE];
    muster_cost_model_encode(model, bytes);
    TRY(run(measuring, measuring->all, "binomial",
            (struct muster_request){.collective = MUSTER_BROADCAST,
                                    .in = bytes,
                                    .out = bytes,
                                    .count = sizeof bytes,
                                    .type = MUSTER_UINT8}));
    return muster_cost_model_decode(bytes, sizeof bytes, model);
}

static muster_status measure_all(struct measuring *measuring, struct muster_cost_model *model)
{
    const struct muster_measure_options *options = measuring->options;
    TRY(create_context_of_all(measuring));
    TRY(exchange_cores(measuring, &model->core));
    measuring->core = model->core;
    TRY(muster_measure_pairs_init(options->topology, &model->core, &measuring->pairs));
    if (muster_measure_has_role(&measuring->pairs, options->rank)) {
        TRY(measure_some(measuring, model));
    }
    return broadcast_model(measuring, model);
}

muster_status muster_measure(const struct muster_measure_options *options,
                             struct muster_cost_model *ret_model, uint32_t *ret_suspect)
{
    struct measuring measuring = {.options = options, .suspect = ret_suspect};
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        measuring.samples[i] = NAN;
    }
    *ret_suspect = UINT32_MAX;
    struct muster_cost_model model = *ret_model;
    muster_status status = measure_all(&measuring, &model);
    muster_context_destroy(measuring.active);
    muster_context_destroy(measuring.all);
    muster_measure_pairs_finish(&measuring.pairs);
    if (status != MUSTER_OK) {
        status = status == MUSTER_RETRY ? MUSTER_REJOIN : status;
        return muster_error_prefix(status, "measuring links");
    }
    *ret_model = model;
    return MUSTER_OK;
}
