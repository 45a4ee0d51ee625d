#include "worker/measure.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/reduce/reduce.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/status.h"
#include "worker/executor.h"

enum {
    LATENCY_REPEATS = 24,
    RATE_MESSAGES = 4,
    FIRST_REPEATS = 2, /* here and below the first one warms up */
    REPEATS = 4,
    CORE_REPEATS = 3,
    FIRST_BYTES = 64 << 10, /* of a message, before the rate is known */
    MESSAGE_BYTES_MAX = 1 << 20,
    RATE_US = 3000, /* what the messages of one repeat are to take together */
    BUFFER_BYTES = RATE_MESSAGES * MESSAGE_BYTES_MAX,
};

/* What one rank has measured; NAN: nothing. The figures of a level follow each other. */
enum sample {
    SAMPLE_REDUCE,
    SAMPLE_COPY,
    SAMPLE_CORES,
    SAMPLE_MACHINE, /* a number that is another one on another machine */
    SAMPLE_LEVELS,
    SAMPLE_LATENCY = 0,
    SAMPLE_POSTING,
    SAMPLE_BANDWIDTH,
    SAMPLE_SHARED,
    SAMPLES_PER_LEVEL,
    SAMPLE_COUNT = SAMPLE_LEVELS + SAMPLES_PER_LEVEL * MUSTER_LEVEL_COUNT,
};

struct measuring {
    const struct muster_measure_options *options;
    struct muster_context *all;
    char *in, *out;
    double samples[SAMPLE_COUNT];
    uint32_t *suspect;
};

/* Two ranks that measure what is between them. */
struct pair {
    struct measuring *measuring;
    uint32_t ranks[2]; /* rising */
    uint32_t index;    /* of this rank */
    uint64_t sequence;
};

/* Who sends. */
enum direction {
    LOWER = 1,
    UPPER = 2,
    BOTH = LOWER | UPPER,
};

/* What is sent in one go. */
struct load {
    uint32_t messages;
    uint64_t size_bytes; /* of each */
    enum direction direction;
    uint32_t repeats;
};

/* Pairs ---------------------------------------------------------------------------------------- */

static muster_status make_schedule(const struct pair *pair, const struct load *load,
                                   struct muster_schedule *ret_schedule)
{
    struct muster_step *steps = calloc(2 * (size_t)load->messages, sizeof *steps);
    if (steps == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to measure with");
    }
    size_t count = 0;
    uint64_t total = load->messages * load->size_bytes;
    for (uint32_t i = 0; i < 2 * load->messages; i++) {
        bool sends = i < load->messages;
        enum direction needed = sends == (pair->index == 0) ? LOWER : UPPER;
        uint64_t offset = i % load->messages * load->size_bytes;
        if ((load->direction & needed) != 0) {
            steps[count] = (struct muster_step){
                .kind = sends ? MUSTER_STEP_SEND : MUSTER_STEP_RECV,
                .source = MUSTER_INPUT,
                .target = MUSTER_OUTPUT,
                .peer = 1 - pair->index,
                .span = {.offset = offset, .count = load->size_bytes},
                .at = offset,
            };
            count++;
        }
    }
    *ret_schedule = (struct muster_schedule){.rank = pair->index,
                                             .ranks = 2,
                                             .input_count = total,
                                             .output_count = total,
                                             .lanes = 1,
                                             .step_count = count,
                                             .steps = steps};
    return MUSTER_OK;
}

static muster_status run_once(struct pair *pair, struct muster_operation *operation, uint64_t total,
                              double *ret_us)
{
    const struct muster_measure_options *options = pair->measuring->options;
    const struct muster_binding binding = {
        .fabric = options->fabric,
        .generation = options->generation,
        .context = options->context + 1,
        .sequence = ++pair->sequence,
        .call = {.collective = MUSTER_PAIRWISE_EXCHANGE, .type = MUSTER_UINT8, .count = total},
        .in = pair->measuring->in,
        .out = pair->measuring->out,
        .deadline_ns = options->deadline_ns,
    };
    int64_t start_ns = muster_clock_ns();
    TRY(muster_operation_run(operation, &binding, pair->measuring->suspect));
    *ret_us = (double)(muster_clock_ns() - start_ns) / 1e3;
    return MUSTER_OK;
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Of those that are there; NAN if none is. Sorts them. */
static double quantile(double *values, size_t count, double share)
{
    size_t there = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isnan(values[i])) {
            values[there++] = values[i];
        }
    }
    qsort(values, there, sizeof *values, compare);
    return there > 0 ? values[(size_t)((double)there * share)] : NAN;
}

static double median(double *values, size_t count)
{
    return quantile(values, count, 0.5);
}

/* The time of one repeat. An end that only sends may run ahead. */
static muster_status exchange(struct pair *pair, const struct load *load, double *ret_us)
{
    double times_us[LATENCY_REPEATS];
    struct muster_schedule schedule;
    struct muster_operation *operation;
    TRY(make_schedule(pair, load, &schedule));
    TRY(muster_operation_create(&schedule, pair->ranks, &operation));
    muster_status status = MUSTER_OK;
    for (uint32_t i = 0; status == MUSTER_OK && i < load->repeats; i++) {
        status = run_once(pair, operation, load->messages * load->size_bytes, &times_us[i]);
    }
    muster_operation_destroy(operation);
    TRY(status);
    *ret_us = load->repeats == 1 ? times_us[0] : median(times_us + 1, load->repeats - 1);
    return MUSTER_OK;
}

/* How large the messages are to be: the upper rank, which receives in any case, says it. */
static muster_status agree_on_size(struct pair *pair, double first_us, uint64_t *ret_size_bytes)
{
    double bytes = (double)RATE_MESSAGES * FIRST_BYTES * RATE_US / (first_us + 1) / RATE_MESSAGES;
    uint64_t size_bytes = bytes > MESSAGE_BYTES_MAX ? MESSAGE_BYTES_MAX
                          : bytes < FIRST_BYTES     ? FIRST_BYTES
                                                    : (uint64_t)bytes;
    const struct load word = {1, sizeof size_bytes, UPPER, 1};
    double us;
    memcpy(pair->measuring->in, &size_bytes, sizeof size_bytes);
    TRY(exchange(pair, &word, &us));
    memset(pair->measuring->in, 0, sizeof size_bytes);
    if (pair->index == 0) {
        memcpy(&size_bytes, pair->measuring->out, sizeof size_bytes);
    }
    if (size_bytes > MESSAGE_BYTES_MAX) {
        return muster_error_set(MUSTER_FATAL, "rank %u asks for messages of %llu bytes",
                                pair->ranks[1], (unsigned long long)size_bytes);
    }
    *ret_size_bytes = size_bytes;
    return MUSTER_OK;
}

/* The rate each way. The first messages also use up what an idle link lets through at once. */
static muster_status measure_rate(struct pair *pair, enum direction direction, double *ret_GBps)
{
    struct load load = {RATE_MESSAGES, FIRST_BYTES, direction, FIRST_REPEATS};
    double us;
    TRY(exchange(pair, &load, &us));
    TRY(agree_on_size(pair, us, &load.size_bytes));
    load.repeats = REPEATS;
    TRY(exchange(pair, &load, &us));
    *ret_GBps = (double)load.messages * (double)load.size_bytes / (us + 1e-3) / 1e3;
    return MUSTER_OK;
}

static double *samples_of(struct measuring *measuring, enum muster_link_level level)
{
    return &measuring->samples[SAMPLE_LEVELS + SAMPLES_PER_LEVEL * level];
}

/* What this thread has used of a core so far. */
static double thread_us(void)
{
    struct timespec used = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec * 1e6 + (double)used.tv_nsec / 1e3;
}

/* What two ranks find alone. */
static muster_status measure_link(struct pair *pair, enum muster_link_level level)
{
    static const struct load word = {1, 0, BOTH, LATENCY_REPEATS};
    double *samples = samples_of(pair->measuring, level);
    double rate_GBps;
    double busy_us = thread_us();
    TRY(exchange(pair, &word, &samples[SAMPLE_LATENCY]));
    busy_us = thread_us() - busy_us;
    samples[SAMPLE_POSTING] = busy_us / LATENCY_REPEATS / 2; /* it sends one and receives one */
    TRY(measure_rate(pair, LOWER, &rate_GBps));
    if (pair->index == 1) {
        samples[SAMPLE_BANDWIDTH] = rate_GBps;
    }
    return MUSTER_OK;
}

/* What they find while others of theirs measure as well: `streams` go through what is shared. */
static muster_status measure_shared(struct pair *pair, enum muster_link_level level,
                                    uint32_t streams)
{
    double rate_GBps;
    TRY(measure_rate(pair, BOTH, &rate_GBps));
    samples_of(pair->measuring, level)[SAMPLE_SHARED] = rate_GBps * streams;
    return MUSTER_OK;
}

/* Who with whom
 * ------------------------------------------------------------------------------------ */

/* This rank's part in one stage. */
struct part {
    bool present;
    uint32_t peer;
    uint32_t streams; /* that share what the level shares, each way; host: both ways together */
};

/* The neighbour of an index among so many: 0 and 1, 2 and 3, ...; itself if it has none. */
static uint32_t neighbour(uint32_t index, uint32_t count)
{
    uint32_t other = index ^ 1;
    return other < count ? other : index;
}

static struct part host_part(const struct muster_topology *topology, uint32_t rank, bool alone)
{
    struct muster_position here = muster_topology_locate(topology, rank);
    uint32_t other = neighbour(here.local_rank, here.local_size);
    return (struct part){
        .present = other != here.local_rank && (!alone || here.local_rank < 2),
        .peer = muster_topology_rank(topology, here.host, other),
        .streams = here.local_size / 2 * 2,
    };
}

static struct part rack_part(const struct muster_topology *topology, uint32_t rank, bool alone)
{
    struct muster_position here = muster_topology_locate(topology, rank);
    uint32_t first = topology->rack_first[here.rack];
    uint32_t host = first + neighbour(here.host - first, topology->rack_sizes[here.rack]);
    uint32_t there = topology->host_sizes[host];
    struct part part = {.streams = there < here.local_size ? there : here.local_size};
    if (host != here.host && here.local_rank < (alone ? 1 : part.streams)) {
        part.present = true;
        part.peer = muster_topology_rank(topology, host, here.local_rank);
    }
    return part;
}

static struct part world_part(const struct muster_topology *topology, uint32_t rank, bool alone)
{
    struct muster_position here = muster_topology_locate(topology, rank);
    uint32_t rack = neighbour(here.rack, topology->racks);
    uint32_t index = here.host - topology->rack_first[here.rack];
    uint32_t mine = topology->rack_sizes[here.rack];
    uint32_t theirs = topology->rack_sizes[rack];
    struct part part = {.streams = theirs < mine ? theirs : mine};
    if (rack != here.rack && here.local_rank == 0 && index < (alone ? 1 : part.streams)) {
        part.present = true;
        part.peer = muster_topology_rank(topology, topology->rack_first[rack] + index, 0);
    }
    return part;
}

static struct part part_of(const struct muster_topology *topology, uint32_t rank,
                           enum muster_link_level level, bool alone)
{
    switch (level) {
    case MUSTER_LEVEL_HOST:
        return host_part(topology, rank, alone);
    case MUSTER_LEVEL_RACK:
        return rack_part(topology, rank, alone);
    case MUSTER_LEVEL_WORLD:
        break;
    }
    return world_part(topology, rank, alone);
}

unsigned muster_measure_levels(const struct muster_topology *topology)
{
    unsigned levels = topology->racks > 1 ? 1U << MUSTER_LEVEL_WORLD : 0;
    levels |= topology->hosts > topology->racks ? 1U << MUSTER_LEVEL_RACK : 0;
    levels |= topology->ranks > topology->hosts ? 1U << MUSTER_LEVEL_HOST : 0;
    return levels;
}

/* Together ------------------------------------------------------------------------------------- */

static muster_status run_all(struct measuring *measuring, struct muster_request request)
{
    request.deadline_ns = measuring->options->deadline_ns;
    return muster_context_run(measuring->all, &request, measuring->suspect);
}

/* Nobody begins before those that are still at the one before are through. */
static muster_status run_stage(struct measuring *measuring, enum muster_link_level level,
                               bool alone)
{
    const struct muster_measure_options *options = measuring->options;
    TRY(run_all(measuring, (struct muster_request){.collective = MUSTER_BARRIER}));
    struct part part = part_of(options->topology, options->rank, level, alone);
    if (!part.present) {
        return MUSTER_OK;
    }
    bool lower = options->rank < part.peer;
    struct pair pair = {
        .measuring = measuring,
        .ranks = {lower ? options->rank : part.peer, lower ? part.peer : options->rank},
        .index = lower ? 0 : 1,
        .sequence = (uint64_t)(2 * level + alone) << 32, /* stages may have the same pair */
    };
    return alone ? measure_link(&pair, level) : measure_shared(&pair, level, part.streams);
}

static double bytes_rate_GBps(uint64_t size_bytes, int64_t duration_ns)
{
    return (double)size_bytes / (double)(duration_ns > 0 ? duration_ns : 1);
}

/* The best of a few: anything else was disturbed. */
static void measure_core(struct measuring *measuring)
{
    muster_reduce_function reduce = muster_reduce_kernel(MUSTER_FLOAT32, MUSTER_SUM);
    int64_t reduce_ns = INT64_MAX;
    int64_t copy_ns = INT64_MAX;
    for (int i = 0; i < CORE_REPEATS; i++) {
        int64_t start_ns = muster_clock_ns();
        reduce(measuring->out, measuring->out, measuring->in, BUFFER_BYTES / sizeof(float));
        int64_t middle_ns = muster_clock_ns();
        memcpy(measuring->out, measuring->in, BUFFER_BYTES);
        int64_t end_ns = muster_clock_ns();
        reduce_ns = middle_ns - start_ns < reduce_ns ? middle_ns - start_ns : reduce_ns;
        copy_ns = end_ns - middle_ns < copy_ns ? end_ns - middle_ns : copy_ns;
    }
    measuring->samples[SAMPLE_REDUCE] = bytes_rate_GBps(BUFFER_BYTES, reduce_ns);
    measuring->samples[SAMPLE_COPY] = bytes_rate_GBps(BUFFER_BYTES, copy_ns);
}

/* Hosts may be pretended, and then share the cores of one machine. */
static double machine_number(void)
{
    char text[40] = "";
    uint32_t number = 0;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL) {
        if (fgets(text, sizeof text, file) != NULL) {
            number = (uint32_t)strtoul(text, NULL, 16); /* up to the first hyphen */
        }
        (void)fclose(file);
    }
    return number;
}

static void describe_machine(struct measuring *measuring)
{
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
        measuring->samples[SAMPLE_CORES] = CPU_COUNT(&cores);
    }
    measuring->samples[SAMPLE_MACHINE] = machine_number();
}

/* Finds out who shares cores. What counts is the most crowded machine. */
static void take_cores(const struct muster_topology *topology, const double *all,
                       struct muster_core_figures *core)
{
    bool one_machine = topology->hosts > 1;
    double least = INFINITY;
    for (uint32_t rank = 0; rank < topology->ranks; rank++) {
        one_machine &= all[rank * (size_t)SAMPLE_COUNT + SAMPLE_MACHINE] == all[SAMPLE_MACHINE];
    }
    for (uint32_t rank = 0; rank < topology->ranks; rank++) {
        double cores = all[rank * (size_t)SAMPLE_COUNT + SAMPLE_CORES];
        uint32_t crowd =
            one_machine ? topology->ranks : muster_topology_locate(topology, rank).local_size;
        least = cores < crowd && cores < least ? cores : least;
    }
    core->cores = isfinite(least) ? (uint32_t)least : 0;
    core->one_machine = one_machine && core->cores > 0 ? 1 : 0;
}

/* A time or a rate that can be; else what was there stays. */
static void take_figure(const double *medians, size_t index, double *figure)
{
    if (isfinite(medians[index]) && medians[index] > 0) {
        *figure = medians[index];
    }
}

static void take_figures(const double *medians, struct muster_cost_model *model)
{
    take_figure(medians, SAMPLE_REDUCE, &model->core.reduce_GBps);
    take_figure(medians, SAMPLE_COPY, &model->core.copy_GBps);
    for (size_t level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        const double *figures = medians + SAMPLE_LEVELS + level * SAMPLES_PER_LEVEL;
        struct muster_link_figures *link = &model->links[level];
        take_figure(figures, SAMPLE_LATENCY, &link->latency_us);
        take_figure(figures, SAMPLE_POSTING, &link->posting_us);
        take_figure(figures, SAMPLE_BANDWIDTH, &link->bandwidth_GBps);
        take_figure(figures, SAMPLE_SHARED, &link->shared_GBps);
        link->posting_us = fmin(link->posting_us, link->latency_us);
    }
}

/* Where the figure to take is, from the lowest to the highest: the middle. But where streams share
 * unevenly, the one that is through last has shared all the time; those before have had more. */
static double share_of(size_t sample)
{
    bool shared =
        sample >= SAMPLE_LEVELS && (sample - SAMPLE_LEVELS) % SAMPLES_PER_LEVEL == SAMPLE_SHARED;
    return shared ? 0.25 : 0.5;
}

/* Everybody's figures to everybody. */
static muster_status combine(struct measuring *measuring, struct muster_cost_model *ret_model)
{
    uint32_t ranks = measuring->options->topology->ranks;
    AUTO_FREE double *all = calloc(ranks, sizeof measuring->samples);
    AUTO_FREE double *column = calloc(ranks, sizeof *column);
    if (all == NULL || column == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the figures of %u ranks", ranks);
    }
    TRY(run_all(measuring, (struct muster_request){.collective = MUSTER_ALLGATHER,
                                                   .in = measuring->samples,
                                                   .out = all,
                                                   .count = SAMPLE_COUNT,
                                                   .type = MUSTER_FLOAT64}));
    double medians[SAMPLE_COUNT];
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        for (uint32_t rank = 0; rank < ranks; rank++) {
            column[rank] = all[rank * (size_t)SAMPLE_COUNT + i];
        }
        medians[i] = quantile(column, ranks, share_of(i));
    }
    take_figures(medians, ret_model);
    take_cores(measuring->options->topology, all, &ret_model->core);
    return MUSTER_OK;
}

static muster_status measure_all(struct measuring *measuring, struct muster_cost_model *ret_model)
{
    unsigned levels = muster_measure_levels(measuring->options->topology);
    describe_machine(measuring);
    measure_core(measuring);
    for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        if ((levels & 1U << level) != 0) {
            TRY(run_stage(measuring, level, true));
            TRY(run_stage(measuring, level, false));
        }
    }
    return combine(measuring, ret_model);
}

static muster_status make_context(const struct muster_measure_options *options,
                                  struct muster_context **ret_context)
{
    AUTO_FREE uint32_t *ranks = calloc(options->topology->ranks, sizeof *ranks);
    if (ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to measure with");
    }
    for (uint32_t i = 0; i < options->topology->ranks; i++) {
        ranks[i] = i;
    }
    const struct muster_context_options context = {
        .fabric = options->fabric,
        .generation = options->generation,
        .number = options->context,
        .name = "measure",
        .topology = options->topology,
        .ranks = ranks,
        .rank = options->rank,
        .model = &muster_cost_model_default,
    };
    return muster_context_create(&context, ret_context);
}

muster_status muster_measure(const struct muster_measure_options *options,
                             struct muster_cost_model *ret_model, uint32_t *ret_suspect)
{
    struct measuring measuring = {.options = options, .suspect = ret_suspect};
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        measuring.samples[i] = NAN;
    }
    *ret_suspect = UINT32_MAX;
    AUTO_FREE char *in = calloc(1, BUFFER_BYTES);
    AUTO_FREE char *out = calloc(1, BUFFER_BYTES);
    if (in == NULL || out == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to measure with");
    }
    measuring.in = in;
    measuring.out = out;
    struct muster_cost_model model = *ret_model;
    TRY(make_context(options, &measuring.all));
    muster_status status = measure_all(&measuring, &model);
    muster_context_destroy(measuring.all);
    if (status != MUSTER_OK) {
        status = status == MUSTER_RETRY ? MUSTER_REJOIN : status;
        return muster_error_prefix(status, "measuring links");
    }
    *ret_model = model;
    return MUSTER_OK;
}
