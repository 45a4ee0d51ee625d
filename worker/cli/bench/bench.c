/* `muster bench`: parses its options and starts the measurement. */
#include "worker/cli/bench/bench_parts.h"

#include <argp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "worker/base/option_parse.h"
#include "worker/base/random.h"
#include "worker/cli/bench/step/step.h"
#include "worker/cli/cli.h"

enum {
    KEY_HOSTS = 256,
    KEY_TRANSPORT,
    KEY_SHAPE,
    KEY_BYTES,
    KEY_ALGORITHM,
    KEY_TYPE,
    KEY_OP,
    KEY_ITERATIONS,
    KEY_SECONDS,
    KEY_IN_PLACE,
    KEY_FIGURES,
    KEY_REPRODUCIBLE,
    KEY_KEEP_INPUT,
    KEY_FINISH_TOGETHER,
    KEY_COMPRESSION,
    KEY_ALLOC,
    KEY_DEVICE,
    KEY_STREAM,
    KEY_SVG,
    KEY_TIMELINE,
    KEY_CONNECTIONS,
    KEY_DEVICES,
    KEY_JSON,
    SECONDS_DEFAULT = 1,
    SECONDS_MAX = 3600,
};

static const char doc[] =
    "Measures a collective between ranks on this machine.\n"
    "COLLECTIVE is allreduce, reduce_scatter, allgather(v), broadcast, reduce, gather(v), scatter, "
    "alltoall(v), barrier or pairwise_exchange; those with a v get blocks of equal size. `muster "
    "bench "
    "step' measures what a training step gives to the network."
    "\v"
    "The ranks first measure their links, as in a job that starts. The first result is checked, "
    "some more calls warm up, and then each rank times each call; the time of a call is that of "
    "the "
    "slowest rank. Bytes are those of the largest buffer of a rank, rounded up to whole elements "
    "of "
    "all ranks.\n"
    "\n"
    "\"first us\" is the first call of an algorithm at a size, which makes its schedule and "
    "buffers; "
    "spread = (90th percentile - 10th) / median. "
    "algbw = bytes / median time; busbw = algbw x 2(n-1)/n for allreduce, x 1 for "
    "broadcast, reduce and pairwise_exchange, x (n-1)/n for the others. \"predicted us\" comes "
    "from the measured links.\n"
    "\n"
    "TCP is encrypted if MUSTER_TLS_CERTIFICATE, MUSTER_TLS_KEY and MUSTER_TLS_AUTHORITY name "
    "files, as in a session. MUSTER_VERBS_DEVICE, MUSTER_VERBS_PORT and MUSTER_VERBS_GID choose "
    "the "
    "RDMA device.\n"
    "\n"
    "Examples:\n"
    "  muster bench allreduce -n 4 --hosts 2 --bytes 4,64K,16M --transport tcp\n"
    "  sudo muster bench allreduce -n 4 --hosts 4 --shape 1gbit";

static const struct argp_option argp_options[] = {
    {"ranks", 'n', "RANKS", 0, "The number of ranks (required)", 0},
    {"hosts", KEY_HOSTS, "N", 0, "Spread the ranks evenly over N pretended hosts (default 1)", 0},
    {"transport", KEY_TRANSPORT, "NAME", 0,
     "inproc: ranks are threads of one process; shm (default): ranks are processes that share "
     "memory on a host and use tcp between hosts; tcp: between all ranks; verbs: RDMA between all "
     "ranks",
     0},
    {"connections", KEY_CONNECTIONS, "N", 0,
     "TCP connections, or RDMA queue pairs, between two ranks (default 1)", 0},
    {"devices", KEY_DEVICES, "NAME[,NAME...]", 0,
     "RDMA devices, assigned to the ranks in turn (instead of MUSTER_VERBS_DEVICE)", 0},
    {"shape", KEY_SHAPE, "RATE", 0,
     "Make each host a network namespace whose link has this rate (1gbit), as long as the command "
     "runs; needs root, ip and tc",
     0},
    {"bytes", KEY_BYTES, "SIZE[,SIZE...]", 0,
     "Suffixes are K, M and G. FIRST..LAST is a range in steps of factor 4, FIRST..LAST:2 of "
     "factor 2 (default 4,1K,16K,256K,1M,16M)",
     0},
    {"algorithm", KEY_ALGORITHM, "NAME[,NAME...]", 0,
     "A name or alias that `muster plan --list' prints; \"tuned\" (default): what the first calls "
     "of a job find to be the fastest; \"chosen\": the lowest predicted time; \"all\": all that "
     "fit. Several algorithms are measured in turns",
     0},
    {"type", KEY_TYPE, "NAME", 0,
     "float32 (default), float64, float16, bfloat16, int8 to int64, uint8 to uint64 or bool", 0},
    {"op", KEY_OP, "NAME", 0,
     "sum (default), average, prod, min, max, bitwise_and, bitwise_or, bitwise_xor, logical_and, "
     "logical_or or user (a function that computes the maximum)",
     0},
    {"iterations", KEY_ITERATIONS, "N", 0, "The number of timed calls for each size", 0},
    {"seconds", KEY_SECONDS, "S", 0,
     "Instead of --iterations: the approximate time for each size (default 1)", 0},
    {"in-place", KEY_IN_PLACE, NULL, 0, "Use one buffer for input and output", 0},
    {"alloc", KEY_ALLOC, NULL, 0,
     "Allocate buffers by muster_alloc(), so that ranks of one host read them directly", 0},
    {"device", KEY_DEVICE, "NAME", 0,
     "host (default), or cuda: buffers are memory of GPUs, one a rank in turns", 0},
    {"stream", KEY_STREAM, NULL, 0,
     "With --device cuda: make calls on a stream; the time of a call is then until the stream has "
     "come past it",
     0},
    {"figures", KEY_FIGURES, NULL, 0, "Print the measured figures of the links too", 0},
    {"reproducible", KEY_REPRODUCIBLE, NULL, 0,
     "Add floats in the order of the ranks, with any algorithm", 0},
    {"keep-input", KEY_KEEP_INPUT, NULL, 0,
     "As --in-place, and the buffer gets results only: partial results go through scratch", 0},
    {"finish-together", KEY_FINISH_TOGETHER, NULL, 0, "No rank finishes before all have started",
     0},
    {"compression", KEY_COMPRESSION, "NAME", 0,
     "none (default), bfloat16, float16 or int8: how float32 travels", 0},
    {"svg", KEY_SVG, "FILE", 0,
     "Draw time and busbw over the sizes, with a line for each algorithm", 0},
    {"timeline", KEY_TIMELINE, "PREFIX", 0,
     "Record what each rank does in PREFIX.1.RANK.json, as MUSTER_TIMELINE does in a job; `muster "
     "timeline' reads the files",
     0},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object for each size and algorithm", 0},
    {0},
};

/* Each option by itself; check_options() compares them. */
static muster_status parse_option(int key, char *text, struct muster_bench_options *options)
{
    switch (key) {
    case 'n':
        return muster_option_parse_number("-n", text, 1, MUSTER_BENCH_RANKS_MAX, &options->ranks);
    case KEY_HOSTS:
        return muster_option_parse_number("--hosts", text, 1, MUSTER_BENCH_RANKS_MAX,
                                          &options->hosts);
    case KEY_TRANSPORT:
        return muster_bench_parse_transport(text, &options->transport);
    case KEY_CONNECTIONS:
        return muster_option_parse_number("--connections", text, 1, MUSTER_CONNECTIONS_MAX,
                                          &options->connections);
    case KEY_DEVICES:
        return muster_bench_parse_devices(text, options);
    case KEY_SHAPE:
        options->shape = text;
        return muster_bench_network_check_rate(text);
    case KEY_BYTES:
        return muster_bench_parse_sizes(text, options);
    case KEY_ALGORITHM:
        return muster_bench_parse_algorithms(text, options);
    case KEY_SVG:
        options->svg = text;
        return MUSTER_OK;
    case KEY_TIMELINE:
        return setenv("MUSTER_TIMELINE", text, 1) == 0
                   ? MUSTER_OK
                   : muster_error_errno(MUSTER_FATAL, "--timeline");
    case KEY_DEVICE:
        options->on_device = strcmp(text, "cuda") == 0;
        return options->on_device || strcmp(text, "host") == 0
                   ? MUSTER_OK
                   : muster_error_set(MUSTER_INVALID, "--device %s: not one of host, cuda", text);
    case KEY_TYPE:
        return muster_type_parse(text, &options->type);
    case KEY_COMPRESSION:
        return muster_compression_parse(text, &options->compression);
    case KEY_OP:
        return muster_op_parse(text, &options->op);
    case KEY_ITERATIONS:
        return muster_option_parse_number("--iterations", text, 1, MUSTER_BENCH_ITERATIONS_MAX,
                                          &options->iterations);
    case KEY_SECONDS:
        return muster_option_parse_number("--seconds", text, 1, SECONDS_MAX, &options->seconds);
    default:
        options->in_place |= key == KEY_IN_PLACE || key == KEY_KEEP_INPUT;
        options->keep_input |= key == KEY_KEEP_INPUT;
        options->finish_together |= key == KEY_FINISH_TOGETHER;
        options->alloc |= key == KEY_ALLOC;
        options->on_stream |= key == KEY_STREAM;
        options->figures |= key == KEY_FIGURES;
        options->reproducible |= key == KEY_REPRODUCIBLE;
        options->json |= key == KEY_JSON;
        return MUSTER_OK;
    }
}

/* Checks options against each other, when all are parsed. */
static muster_status check_options(struct muster_bench_options *options)
{
    if (options->collective == 0) {
        return muster_error_set(MUSTER_INVALID, "a collective is missing, such as allreduce");
    }
    if (options->ranks == 0) {
        return muster_error_set(MUSTER_INVALID, "-n RANKS is missing");
    }
    if (options->hosts > options->ranks) {
        return muster_error_set(MUSTER_INVALID, "--hosts: %u ranks cannot be on %u hosts",
                                options->ranks, options->hosts);
    }
    if (options->shape != NULL &&
        (options->hosts < 2 || options->transport == MUSTER_BENCH_INPROC ||
         options->transport == MUSTER_BENCH_VERBS)) {
        return muster_error_set(MUSTER_INVALID,
                                "--shape: there is no link to shape: it needs --hosts 2 or more, "
                                "and --transport shm or tcp");
    }
    if (options->on_stream && !options->on_device) {
        return muster_error_set(MUSTER_INVALID, "--stream is for --device cuda only");
    }
    if (options->device_count > 0 && options->transport != MUSTER_BENCH_VERBS) {
        return muster_error_set(MUSTER_INVALID, "--devices is for --transport verbs only");
    }
    if (options->iterations != 0 && options->seconds != 0) {
        return muster_error_set(MUSTER_INVALID, "--iterations and --seconds exclude each other");
    }
    if (options->seconds == 0) {
        options->seconds = SECONDS_DEFAULT;
    }
    if (muster_collective_reduces(options->collective)) {
        TRY(muster_op_check(options->type, options->op));
    }
    if (options->collective == MUSTER_BARRIER) {
        options->size_count = 1;
        options->sizes_bytes[0] = 0;
    }
    if (options->collective == MUSTER_BARRIER && options->svg != NULL) {
        return muster_error_set(MUSTER_INVALID, "--svg: a barrier has no sizes to draw");
    }
    return muster_bench_resolve_algorithms(options);
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct muster_bench_options *options = state->input;
    muster_status status = MUSTER_OK;
    switch (key) {
    case ARGP_KEY_ARG:
        if (options->collective != 0) {
            argp_error(state, "\"%.64s\" is one collective too many", text);
        }
        status = muster_collective_parse(text, &options->collective);
        break;
    case ARGP_KEY_END:
        status = check_options(options);
        break;
    default:
        if (key != 'n' && (key < KEY_HOSTS || key > KEY_JSON)) {
            return ARGP_ERR_UNKNOWN;
        }
        status = parse_option(key, text, options);
    }
    if (status != MUSTER_OK) {
        argp_error(state, "%s", muster_last_error());
    }
    return 0;
}

static struct muster_bench_shared *create_shared(const struct muster_bench_options *options,
                                                 size_t size_bytes)
{
    struct muster_bench_shared *shared = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shared == MAP_FAILED) {
        (void)muster_error_errno(MUSTER_FATAL, "memory for the times of %u ranks", options->ranks);
        return NULL;
    }
    shared->options = *options;
    muster_random_hex(sizeof shared->link_token / 2, shared->link_token);
    return shared;
}

static int run_on_network(struct muster_bench_shared *shared)
{
    const struct muster_bench_options *options = &shared->options;
    struct muster_bench_network network;
    if (muster_bench_network_create(options->hosts, options->shape, &network) != MUSTER_OK) {
        return muster_cli_fail(MUSTER_CLI_FAILED);
    }
    shared->network = &network;
    int exit_status = muster_bench_run(shared);
    shared->network = NULL;
    muster_bench_network_destroy(&network);
    return exit_status;
}

int muster_cli_bench(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "step") == 0) {
        char name[] = "muster bench step";
        argv[1] = name;
        return muster_bench_step(argc - 1, argv + 1);
    }
    static const struct argp argp = {
        .options = argp_options, .parser = parse, .args_doc = "COLLECTIVE", .doc = doc};
    struct muster_bench_options options = {
        .algorithm_count = 1, .hosts = 1, .transport = MUSTER_BENCH_SHM};
    if (muster_bench_parse_sizes("4,1K,16K,256K,1M,16M", &options) != MUSTER_OK ||
        argp_parse(&argp, argc, argv, 0, NULL, &options) != 0) {
        return MUSTER_CLI_USAGE;
    }
    if (muster_bench_check_memory(&options) != MUSTER_OK) {
        return muster_cli_fail(MUSTER_CLI_FAILED);
    }
    size_t size_bytes =
        sizeof(struct muster_bench_shared) + options.ranks * sizeof(struct muster_bench_rank_slot);
    struct muster_bench_shared *shared = create_shared(&options, size_bytes);
    if (shared == NULL || muster_bench_check_svg(options.svg) != MUSTER_OK) {
        return muster_cli_fail(MUSTER_CLI_FAILED);
    }
    int exit_status = options.shape != NULL ? run_on_network(shared) : muster_bench_run(shared);
    munmap(shared, size_bytes);
    return exit_status;
}
