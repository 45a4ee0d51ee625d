/* muster bench: the work of one rank. */
#include "worker/cli/bench/bench_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/call/request.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/status.h"
#include "worker/cli/bench/bench_device.h"
#include "worker/cli/bench/bench_memory.h"
#include "worker/communicator/communicator.h"
#include "worker/device/devices.h"
#include "worker/trace/timeline.h"

enum { TURNS = 8, GENERATION = 1, CALL_TIMEOUT_MS = 60000, LINGER_MS = 1000 };

/* The state of one rank; pointers are NULL until created. */
struct rank_run {
    struct muster_bench_shared *shared;
    struct muster_bench_rank_slot *slot;
    uint32_t rank;
    int channel;
    struct muster_topology topology;
    struct muster_timeline *timeline; /* or NULL */
    struct muster_fabric *fabric;
    struct muster_communicator *communicator;
    struct muster_context *context; /* its global one */
    void *in, *out;                 /* of the host: filled and checked */
    void *device_in, *device_out;   /* the same on a GPU, and used; NULL: in and out are used */
    uintptr_t stream;               /* of that GPU, on which calls are made; 0: none */
    size_t *counts;                 /* [ranks] of equal blocks, at the size being measured */
    uint64_t in_bytes, out_bytes;   /* of in and out: the most that a size so far has used */
};

/* The options of the command replace those of the environment. */
static muster_status create_fabric(struct rank_run *run, const char *address,
                                   struct muster_fabric_options *options)
{
    const struct muster_bench_options *given = &run->shared->options;
    muster_options user;
    muster_options_init(&user);
    user.listen = given->transport == MUSTER_BENCH_VERBS ? NULL : address;
    user.interface = NULL;
    user.tcp_connections = given->connections > 0 ? given->connections : 1;
    user.verbs_connections = given->connections;
    if (given->device_count > 0) {
        user.verbs_device = given->devices[run->rank % given->device_count];
    }
    struct muster_transport_settings *settings = NULL;
    TRY(muster_transports_parse(&user, muster_bench_transport_list(given->transport), &settings));
    options->transports = settings;
    muster_status status = muster_fabric_create(options, &run->fabric);
    muster_transport_settings_destroy(settings);
    return status;
}

/* Opens the rank's links, with the options that a session takes from its environment, and puts its
 * addresses into the shared memory. With --shape the rank first enters the network of its host, so
 * that its sockets are made there. */
static muster_status open_fabric(struct rank_run *run)
{
    struct muster_peer *peer = &run->slot->peer;
    muster_random_uuid(peer->member);
    uint32_t host = muster_topology_locate(&run->topology, run->rank).host;
    char address[MUSTER_BENCH_ADDRESS_SIZE] = "127.0.0.1";
    if (run->shared->network != NULL) {
        TRY(muster_bench_network_enter(run->shared->network, host, address));
    }
    /* All ranks name the same host: they share the cores of this machine, and the spin policy of
     * the fabric depends on that. */
    (void)snprintf(peer->host, sizeof peer->host, "localhost");
    muster_options environment;
    muster_options_init(&environment);
    run->timeline = muster_timeline_create(&(struct muster_timeline_options){
        .prefix = environment.timeline, .print_algorithm = muster_algorithm_print});
    struct muster_fabric_options options = {
        .member = peer->member, .link_token = run->shared->link_token, .timeline = run->timeline};
    TRY(create_fabric(run, address, &options));
    peer->address_count = muster_fabric_address_count(run->fabric);
    for (uint32_t i = 0; i < peer->address_count; i++) {
        (void)snprintf(peer->addresses[i], sizeof peer->addresses[i], "%s",
                       muster_fabric_address(run->fabric, i));
    }
    return muster_bench_rank_end_phase(run->channel);
}

/* Without tuned choices from earlier jobs the first calls find the fastest algorithm. With --shape
 * the network lets some bytes through at once after a pause, which the figures do not know. */
static muster_status measure_links(struct rank_run *run)
{
    struct muster_communicator *communicator = run->communicator;
    struct muster_figures_choice choice = {.measure = true, .autotune = true};
    uint32_t suspect = UINT32_MAX;
    muster_figures_init(&choice.figures);
    TRY(muster_communicator_agree_figures(communicator, &choice, &suspect));
    if (run->shared->options.shape != NULL) {
        communicator->figures.model.burst_bytes = MUSTER_BENCH_BURST_BYTES;
    }
    if (run->rank == 0) {
        run->shared->link_figures = communicator->figures;
    }
    return MUSTER_OK;
}

/* Pretended hosts must not share memory: their local addresses are removed. */
static struct muster_peer *copy_peers(const struct rank_run *run)
{
    uint32_t ranks = run->shared->options.ranks;
    uint32_t host = muster_topology_locate(&run->topology, run->rank).host;
    struct muster_peer *peers = calloc(ranks, sizeof *peers);
    for (uint32_t i = 0; peers != NULL && i < ranks; i++) {
        peers[i] = run->shared->rank_slots[i].peer;
        if (muster_topology_locate(&run->topology, i).host != host) {
            muster_peer_remove_local_addresses(&peers[i]);
        }
    }
    return peers;
}

/* Shared memory is connected only where it is what the transport measures: otherwise the links are
 * to be measured. */
static muster_status connect_ranks(struct rank_run *run)
{
    const struct muster_bench_options *options = &run->shared->options;
    uint32_t suspect = UINT32_MAX;
    AUTO_FREE struct muster_peer *peers = copy_peers(run);
    if (peers == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u peers", options->ranks);
    }
    const struct muster_communicator_options communicator = {.fabric = run->fabric,
                                                             .generation = GENERATION,
                                                             .topology = &run->topology,
                                                             .peers = peers,
                                                             .rank = run->rank,
                                                             .timeout_ms = CALL_TIMEOUT_MS};
    TRY(muster_communicator_create(&communicator, &run->communicator));
    TRY(measure_links(run));
    if (options->transport == MUSTER_BENCH_SHM) {
        TRY(muster_communicator_share_memory(run->communicator, &suspect));
    }
    muster_communicator_apply_figures(run->communicator);
    run->context = run->communicator->contexts[MUSTER_GLOBAL];
    return MUSTER_OK;
}

static uint64_t larger(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

/* Buffers for the largest size. */
static muster_status allocate_buffers(struct rank_run *run)
{
    const struct muster_bench_options *options = &run->shared->options;
    uint64_t largest_bytes = larger(muster_bench_largest_bytes(options), 1);
    if (options->alloc) {
        TRY(muster_alloc(largest_bytes, &run->in));
        TRY(muster_alloc(largest_bytes, &run->out));
    } else {
        run->in = malloc(largest_bytes);
        run->out = malloc(largest_bytes);
    }
    if (options->on_device) {
        TRY(muster_bench_device_allocate(largest_bytes, &run->device_in));
        TRY(muster_bench_device_allocate(largest_bytes, &run->device_out));
    }
    run->counts = calloc(options->ranks, sizeof *run->counts);
    if (run->in == NULL || run->out == NULL || run->counts == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for two buffers of %llu bytes",
                                (unsigned long long)largest_bytes);
    }
    return MUSTER_OK;
}

/* The collectives with counts for each block get equal blocks. */
static void set_counts(const struct rank_run *run, struct muster_request *request)
{
    enum muster_collective collective = request->collective;
    for (uint32_t i = 0; i < run->shared->options.ranks; i++) {
        run->counts[i] = request->count;
    }
    if (collective == MUSTER_ALLGATHERV || collective == MUSTER_GATHERV ||
        collective == MUSTER_ALLTOALLV) {
        request->out_counts = run->counts;
    }
    if (collective == MUSTER_ALLTOALLV) {
        request->in_counts = run->counts;
    }
}

/* The same request with the GPU's buffers. */
static struct muster_request on_device(const struct rank_run *run, struct muster_request request)
{
    if (run->device_in != NULL && request.in == run->in) {
        request.in = run->device_in;
    } else if (run->device_in != NULL) { /* in place */
        request.in = (char *)run->device_out + ((const char *)request.in - (const char *)run->out);
    }
    if (run->device_out != NULL) {
        request.out = (char *)run->device_out + ((char *)request.out - (char *)run->out);
    }
    return request;
}

/* The request for a size and an algorithm. A broadcast is in place by its definition. In place,
 * input and output are parts of one buffer, at the offset that the collective defines. */
static struct muster_request request_of(const struct rank_run *run, size_t size_index,
                                        size_t algorithm_index)
{
    const struct muster_bench_options *options = &run->shared->options;
    const char *name = options->algorithms[algorithm_index];
    bool tuned = strcmp(name, MUSTER_BENCH_TUNED) == 0;
    uint64_t bytes;
    struct muster_request request = {
        .collective = options->collective,
        .in = run->in,
        .out = run->out,
        .count = muster_bench_count(options, options->sizes_bytes[size_index], &bytes),
        .type = options->type,
        .op = options->op,
        .user_function = muster_bench_user_function,
        .algorithm = name[0] == '\0' || tuned ? NULL : name,
        .untuned = !tuned,
        .reproducible = options->reproducible,
        .keep_input = options->keep_input,
        .finish_together = options->finish_together,
        .compression = options->compression,
    };
    set_counts(run, &request);
    if (options->collective == MUSTER_BROADCAST || options->in_place) {
        const struct muster_shape shape = muster_request_shape(&request, run->rank, options->ranks);
        int64_t offset = muster_shape_in_place_offset(&shape);
        int64_t offset_bytes = offset * (int64_t)muster_type_size_bytes(options->type);
        /* Each buffer has room for the larger of input and output. */
        request.in = (char *)run->out + (offset_bytes > 0 ? offset_bytes : 0);
        request.out = (char *)run->out + (offset_bytes < 0 ? -offset_bytes : 0);
    }
    return request;
}

static muster_status copy_all(const struct rank_run *run, bool to_device)
{
    uint64_t bytes = larger(muster_bench_largest_bytes(&run->shared->options), 1);
    if (run->device_in == NULL) {
        return MUSTER_OK;
    }
    TRY(muster_devices_copy(to_device ? run->device_in : run->in,
                            to_device ? run->in : run->device_in, bytes));
    return muster_devices_copy(to_device ? run->device_out : run->out,
                               to_device ? run->out : run->device_out, bytes);
}

/* Until the stream has come past the call. */
static muster_status call_on_stream(const struct rank_run *run,
                                    const struct muster_request *request)
{
    struct muster_started_call *started = NULL;
    struct muster_request on_stream = *request;
    on_stream.stream = run->stream;
    TRY(muster_context_start(run->context, &on_stream, &started));
    TRY(muster_bench_device_wait(run->stream));
    return muster_started_call_end(started, NULL);
}

static muster_status call(const struct rank_run *run, struct muster_request *request,
                          double *ret_us)
{
    int64_t start_ns = muster_clock_ns();
    request->deadline_ns = start_ns + (int64_t)CALL_TIMEOUT_MS * MUSTER_NS_PER_MS;
    TRY(run->stream != 0 && request->collective != MUSTER_BARRIER
            ? call_on_stream(run, request)
            : muster_context_run(run->context, request, NULL));
    *ret_us = (double)(muster_clock_ns() - start_ns) / 1000;
    return MUSTER_OK;
}

/* The first call is timed, after a barrier, and checked. Calls that try algorithms follow until the
 * choice is made. Then the warm-up calls are timed: from their mean the leader chooses the number
 * of iterations. A barrier has no data to check. */
static muster_status check_and_warm(struct rank_run *run, const struct muster_request *on_host,
                                    double *ret_first_us, double *ret_warm_us)
{
    struct muster_request used = on_device(run, *on_host);
    struct muster_request *request = &used;
    struct muster_request barrier = {.collective = MUSTER_BARRIER};
    uint32_t ranks = run->shared->options.ranks;
    double us;
    if (request->collective != MUSTER_BARRIER) {
        muster_bench_fill(on_host, (char *)on_host->in, run->rank, ranks);
        TRY(copy_all(run, true));
        TRY(call(run, &barrier, &us)); /* the time has no wait for ranks that fill longer */
    }
    TRY(call(run, request, ret_first_us));
    if (request->collective != MUSTER_BARRIER) {
        TRY(copy_all(run, false));
        TRY(muster_bench_check(on_host, run->rank, ranks));
    }
    bool tuned = false;
    TRY(muster_context_is_tuned(run->context, request, &tuned));
    while (!tuned) { /* which calls on a stream, in flight, would not try */
        TRY(muster_context_run(run->context, request, NULL));
        TRY(muster_context_is_tuned(run->context, request, &tuned));
    }
    double sum_us = 0;
    for (int i = 0; i < MUSTER_BENCH_WARM_UP; i++) {
        TRY(call(run, request, &us));
        sum_us += us;
    }
    *ret_warm_us = sum_us / MUSTER_BENCH_WARM_UP;
    return MUSTER_OK;
}

/* Whether an algorithm fits is a function of the request and the topology, so that all ranks decide
 * alike without a message. With "all", an algorithm that does not fit is left out. */
static muster_status warm_candidate(struct rank_run *run, size_t size_index, size_t algorithm_index)
{
    struct muster_bench_candidate candidate = {.fits = false};
    struct muster_request request = request_of(run, size_index, algorithm_index);
    size_t algorithm = 0;
    muster_status status = muster_context_algorithm(run->context, &request, &algorithm);
    candidate.fits = status == MUSTER_OK;
    if (status == MUSTER_OK) {
        TRY(check_and_warm(run, &request, &run->slot->first_us[algorithm_index],
                           &candidate.warm_us));
        TRY(muster_context_algorithm(run->context, &request, &algorithm));
        muster_algorithm_print(algorithm, candidate.algorithm, sizeof candidate.algorithm);
        TRY(muster_context_predict(run->context, &request, &candidate.predicted_us));
    } else if (status != MUSTER_INVALID || !run->shared->options.all_algorithms) {
        return status;
    }
    if (run->rank == 0) {
        run->shared->candidates[algorithm_index] = candidate;
    }
    return MUSTER_OK;
}

static muster_status warm_up(struct rank_run *run, size_t size_index)
{
    for (size_t i = 0; i < run->shared->options.algorithm_count; i++) {
        TRY(warm_candidate(run, size_index, i));
    }
    return muster_bench_rank_end_phase(run->channel);
}

static void record_memory(struct rank_run *run, const struct muster_request *request)
{
    const struct muster_bench_options *options = &run->shared->options;
    if (request->collective != MUSTER_BARRIER) {
        const struct muster_shape shape = muster_request_shape(request, run->rank, options->ranks);
        uint64_t unit = muster_type_size_bytes(options->type);
        uint64_t in_bytes = muster_shape_input_count(&shape) * unit;
        uint64_t out_bytes = muster_shape_output_count(&shape) * unit;
        bool one_buffer = options->in_place || request->collective == MUSTER_BROADCAST;
        run->in_bytes = larger(run->in_bytes, one_buffer ? 0 : in_bytes);
        run->out_bytes =
            larger(run->out_bytes, one_buffer ? larger(in_bytes, out_bytes) : out_bytes);
    }
    uint64_t peak_bytes = muster_bench_peak_bytes();
    uint64_t buffers_bytes = run->in_bytes + run->out_bytes;
    if (options->transport != MUSTER_BENCH_INPROC && peak_bytes > buffers_bytes) {
        run->slot->memory_bytes = peak_bytes - buffers_bytes;
    }
}

/* A barrier before each call in which some ranks could run ahead of the others, so that their times
 * would mean nothing: with a root, and where ranks exchange with few others. The other collectives
 * end on no rank before they have started on all: one barrier at the beginning is enough. */
static muster_status measure_calls(struct rank_run *run, struct muster_request *request,
                                   double *times_us, uint32_t count)
{
    struct muster_request barrier = {.collective = MUSTER_BARRIER};
    bool apart = muster_collective_has_root(request->collective) ||
                 request->collective == MUSTER_PAIRWISE_EXCHANGE;
    double us;
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || apart) {
            TRY(call(run, &barrier, &us));
        }
        TRY(call(run, request, &times_us[i]));
    }
    return MUSTER_OK;
}

/* Several algorithms are measured in turns, so that all see the same noise. */
static muster_status measure(struct rank_run *run, size_t size_index)
{
    const struct muster_bench_shared *shared = run->shared;
    uint32_t turns = shared->options.algorithm_count > 1 ? TURNS : 1;
    for (uint32_t turn = 0; turn < turns; turn++) {
        uint32_t offset = 0;
        for (size_t i = 0; i < shared->options.algorithm_count; i++) {
            uint32_t iterations = shared->candidates[i].iterations;
            uint32_t first = iterations * turn / turns;
            uint32_t end = iterations * (turn + 1) / turns;
            struct muster_request request = on_device(run, request_of(run, size_index, i));
            TRY(measure_calls(run, &request, run->slot->times_us + offset + first, end - first));
            offset += iterations;
        }
    }
    const struct muster_request request = request_of(run, size_index, 0);
    record_memory(run, &request);
    return muster_bench_rank_end_phase(run->channel);
}

static muster_status run_all_phases(struct rank_run *run)
{
    const struct muster_bench_options *options = &run->shared->options;
    TRY(muster_topology_init_even(options->ranks, options->hosts, &run->topology));
    TRY(open_fabric(run));
    if (options->on_device) {
        TRY(muster_bench_device_open(run->rank));
    }
    if (options->on_stream) {
        TRY(muster_bench_device_make_stream(&run->stream));
    }
    TRY(connect_ranks(run));
    TRY(allocate_buffers(run));
    for (size_t i = 0; i < run->shared->options.size_count; i++) {
        TRY(warm_up(run, i));
        TRY(measure(run, i));
    }
    return MUSTER_OK;
}

muster_status muster_bench_rank_main(struct muster_bench_shared *shared, uint32_t rank, int channel)
{
    struct rank_run run = {
        .shared = shared, .slot = &shared->rank_slots[rank], .rank = rank, .channel = channel};
    muster_status status = run_all_phases(&run);
    muster_bench_outcome_set(&shared->outcomes[rank], status);
    muster_communicator_destroy(run.communicator);
    muster_fabric_destroy(run.fabric, status == MUSTER_OK ? LINGER_MS : 0);
    muster_timeline_destroy(run.timeline);
    muster_topology_finish(&run.topology);
    free(run.counts);
    (shared->options.alloc ? muster_free : free)(run.in);
    (shared->options.alloc ? muster_free : free)(run.out);
    return status;
}
