/* muster bench: the options. */
#include "worker/cli/bench/bench_parts.h"

#include <argp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "worker/base/random.h"
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
    KEY_ALLOC,
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
    "alltoall(v), barrier or pairwise_exchange; those with a v get equal blocks."
    "\v"
    "The links are measured, as in a job that begins, and the algorithms chosen by that and by "
    "what "
    "a few calls take with each that is predicted to be good. "
    "The first result is checked, a few more calls warm up, then each call is timed on each rank; "
    "the time of an iteration is the slowest rank's. Bytes are those of the largest buffer of a "
    "rank, rounded up to whole elements of all ranks.\n"
    "algbw = bytes / time at the median; busbw = algbw x 2(n-1)/n for allreduce, x 1 for broadcast "
    "and reduce, x (n-1)/n for the others.\n"
    "TCP is encrypted where MUSTER_TLS_CERTIFICATE, MUSTER_TLS_KEY and MUSTER_TLS_AUTHORITY name "
    "files, as in a session.\n"
    "\n"
    "Example: muster bench allreduce -n 4 --hosts 2 --bytes 4,64K,16M --transport tcp\n"
    "As root: muster bench allreduce -n 4 --hosts 4 --shape 1gbit";

static const struct argp_option argp_options[] = {
    {"ranks", 'n', "RANKS", 0, "How many ranks take part (required)", 0},
    {"hosts", KEY_HOSTS, "N", 0, "Spread them over so many pretended hosts (default 1)", 0},
    {"transport", KEY_TRANSPORT, "NAME", 0,
     "inproc: threads of one process; shm: one process a rank, which share memory on a host, and "
     "tcp between hosts (default); tcp: between all of them; verbs: RDMA between all of them, by "
     "the device that "
     "MUSTER_VERBS_DEVICE, MUSTER_VERBS_PORT and MUSTER_VERBS_GID choose",
     0},
    {"connections", KEY_CONNECTIONS, "N", 0,
     "TCP connections, or queue pairs, between two ranks (default 1)", 0},
    {"devices", KEY_DEVICES, "NAME[,NAME...]", 0,
     "RDMA devices, dealt out to the ranks in turn (instead of MUSTER_VERBS_DEVICE)", 0},
    {"shape", KEY_SHAPE, "RATE", 0,
     "Make the hosts network namespaces, the link of each of this rate (1gbit), for as long as the "
     "command runs; needs root, ip and tc",
     0},
    {"bytes", KEY_BYTES, "SIZE[,SIZE...]", 0,
     "Suffixes K, M and G; FIRST..LAST goes up by four, FIRST..LAST:2 by two (default "
     "4,1K,16K,256K,1M,16M)",
     0},
    {"algorithm", KEY_ALGORITHM, "NAME[,NAME...]", 0,
     "Instead of the one that jobs find out to be the fastest in their first calls, which is "
     "\"tuned\"; \"chosen\" is the one that is predicted to be, \"all\" are those that fit. "
     "Several "
     "take turns with each size",
     0},
    {"type", KEY_TYPE, "NAME", 0,
     "float32 (default), float64, float16, bfloat16, int8 to int64, uint8 to uint64 or bool", 0},
    {"op", KEY_OP, "NAME", 0,
     "sum (default), average, prod, min, max, bitwise_and, bitwise_or, bitwise_xor, logical_and, "
     "logical_or or user (a function that takes the larger one)",
     0},
    {"iterations", KEY_ITERATIONS, "N", 0, "Measured calls for each size", 0},
    {"seconds", KEY_SECONDS, "S", 0, "About so long for each size (default 1)", 0},
    {"in-place", KEY_IN_PLACE, NULL, 0, "Input and output are the same memory", 0},
    {"alloc", KEY_ALLOC, NULL, 0,
     "Buffers come from muster_alloc(), so that ranks of a host read each other's in place", 0},
    {"figures", KEY_FIGURES, NULL, 0, "Print what was measured of the links, too", 0},
    {"reproducible", KEY_REPRODUCIBLE, NULL, 0,
     "Add floats in the order of the members, whatever the algorithm", 0},
    {"svg", KEY_SVG, "FILE", 0, "Draw times and busbw over the sizes, a line for each algorithm",
     0},
    {"timeline", KEY_TIMELINE, "PREFIX", 0,
     "Record what each rank does in PREFIX.1.RANK.json, as MUSTER_TIMELINE does in a job: for "
     "muster timeline, Perfetto and chrome://tracing",
     0},
    {"json", KEY_JSON, NULL, 0, "One JSON object for each size on standard output", 0},
    {0},
};

static muster_status parse_transport(const char *text, enum muster_bench_transport *ret_transport)
{
    if (strcmp(text, "inproc") == 0) {
        *ret_transport = MUSTER_BENCH_INPROC;
    } else if (strcmp(text, "tcp") == 0) {
        *ret_transport = MUSTER_BENCH_TCP;
    } else if (strcmp(text, "shm") == 0) {
        *ret_transport = MUSTER_BENCH_SHM;
    } else if (strcmp(text, "verbs") == 0) {
        *ret_transport = MUSTER_BENCH_VERBS;
    } else {
        return muster_error_set(
            MUSTER_INVALID, "--transport: \"%.32s\" is none of inproc, shm, tcp and verbs", text);
    }
    return MUSTER_OK;
}

static muster_status parse_option(int key, char *text, struct muster_bench_options *options)
{
    switch (key) {
    case 'n':
        return muster_cli_parse_number("-n", text, 1, MUSTER_BENCH_RANKS_MAX, &options->ranks);
    case KEY_HOSTS:
        return muster_cli_parse_number("--hosts", text, 1, MUSTER_BENCH_RANKS_MAX, &options->hosts);
    case KEY_TRANSPORT:
        return parse_transport(text, &options->transport);
    case KEY_CONNECTIONS:
        return muster_cli_parse_number("--connections", text, 1, MUSTER_CONNECTIONS_MAX,
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
    case KEY_TYPE:
        return muster_type_parse(text, &options->type);
    case KEY_OP:
        return muster_op_parse(text, &options->op);
    case KEY_ITERATIONS:
        return muster_cli_parse_number("--iterations", text, 1, MUSTER_BENCH_ITERATIONS_MAX,
                                       &options->iterations);
    case KEY_SECONDS:
        return muster_cli_parse_number("--seconds", text, 1, SECONDS_MAX, &options->seconds);
    default:
        options->in_place |= key == KEY_IN_PLACE;
        options->alloc |= key == KEY_ALLOC;
        options->figures |= key == KEY_FIGURES;
        options->reproducible |= key == KEY_REPRODUCIBLE;
        options->json |= key == KEY_JSON;
        return MUSTER_OK;
    }
}

/* What can only be said once all options are there. */
static muster_status check_options(struct muster_bench_options *options)
{
    if (options->collective == 0) {
        return muster_error_set(MUSTER_INVALID, "a collective is missing: allreduce, for example");
    }
    if (options->ranks == 0) {
        return muster_error_set(MUSTER_INVALID, "-n is missing: how many ranks take part");
    }
    if (options->hosts > options->ranks) {
        return muster_error_set(MUSTER_INVALID, "--hosts: %u ranks cannot be on %u hosts",
                                options->ranks, options->hosts);
    }
    if (options->shape != NULL &&
        (options->hosts < 2 || options->transport == MUSTER_BENCH_INPROC ||
         options->transport == MUSTER_BENCH_VERBS)) {
        return muster_error_set(MUSTER_INVALID,
                                "--shape: there is no link to shape: needs --hosts 2 or more, and "
                                "shm or tcp");
    }
    if (options->device_count > 0 && options->transport != MUSTER_BENCH_VERBS) {
        return muster_error_set(MUSTER_INVALID, "--devices: is for --transport verbs");
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
        return muster_error_set(MUSTER_INVALID, "--svg: a barrier has no sizes to draw it over");
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
        (void)muster_error_errno(MUSTER_FATAL, "memory for %u ranks' figures", options->ranks);
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
