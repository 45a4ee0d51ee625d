/* `muster bench step`: parses its options and starts the measurement. */
#include "worker/cli/bench/step/step.h"

#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "worker/base/option_parse.h"
#include "worker/base/random.h"
#include "worker/cli/bench/bench_memory.h"
#include "worker/cli/bench/step/step_parts.h"
#include "worker/cli/cli.h"
#include "worker/cli/print.h"

enum {
    KEY_MODEL = 256,
    KEY_HOSTS,
    KEY_TRANSPORT,
    KEY_SHAPE,
    KEY_SIDES,
    KEY_ORDER,
    KEY_SEED,
    KEY_BACKWARD_MS,
    KEY_ITERATIONS,
    KEY_SECONDS,
    KEY_IDLE_SECONDS,
    KEY_IN_PLACE,
    KEY_TIMELINE,
    KEY_TRACE,
    KEY_LIST,
    KEY_JSON,
    SECONDS_DEFAULT = 5,
    SECONDS_MAX = 3600,
    BACKWARD_MS_MAX = 60000,
};

static const char sides_default[] = "plain,each,engine";

static const char doc[] =
    "Measures what a training step gives to the network: the gradients of a model, summed over all "
    "ranks, in several ways that take turns."
    "\v"
    "Sides:\n"
    "  plain    one allreduce of the same bytes\n"
    "  each     an allreduce for each tensor, one after another\n"
    "  started  an allreduce for each tensor, all in flight\n"
    "  engine   the tensors are submitted by name, to be fused\n"
    "  urgent   the same; the later in the list, the higher the priority\n"
    "\n"
    "A time is that of the slowest rank; p50 is the median over the steps. \"ratio\" compares with "
    "the first side. \"exposed\" is the time from the moment at which a rank has all its tensors "
    "ready to the last result; \"first needed\" from the beginning of the step to the result of "
    "the tensor that the next forward pass needs first, the last one of the list. The results of "
    "each side are checked before and after the measurement.\n"
    "\n"
    "Examples:\n"
    "  muster bench step --model resnet50 -n 2 --transport tcp\n"
    "  muster bench step --model vgg16 -n 4 --transport shm --backward-ms 100 --json";

static const struct argp_option argp_options[] = {
    {"model", KEY_MODEL, "NAME", 0,
     "resnet50 (default), bert, gpt2, vgg16, or ones:N for N tensors of one element", 0},
    {"ranks", 'n', "RANKS", 0, "The number of ranks (required)", 0},
    {"hosts", KEY_HOSTS, "N", 0, "Spread the ranks evenly over N pretended hosts (default 1)", 0},
    {"transport", KEY_TRANSPORT, "NAME", 0,
     "shm (default): shared memory on a host and tcp between hosts; tcp: between all ranks; verbs: "
     "RDMA between all ranks",
     0},
    {"shape", KEY_SHAPE, "RATE", 0,
     "Make each host a network namespace whose link has this rate (1gbit), as long as the command "
     "runs; needs root, ip and tc",
     0},
    {"sides", KEY_SIDES, "NAME[,NAME...]", 0, "The sides to measure (default plain,each,engine)",
     0},
    {"order", KEY_ORDER, "NAME", 0,
     "In which order a rank submits its tensors, where the side allows any: random (default): its "
     "own, the same in each step; shuffled: its own, another one in each step; ready: the model's",
     0},
    {"seed", KEY_SEED, "N", 0, "Of the random orders (default: a random one, which is printed)", 0},
    {"backward-ms", KEY_BACKWARD_MS, "MS", 0,
     "The tensors become ready one by one over this time, during which the rank sleeps (default 0: "
     "all at once)",
     0},
    {"iterations", KEY_ITERATIONS, "N", 0, "The number of measured steps of each side", 0},
    {"seconds", KEY_SECONDS, "S", 0,
     "Instead of --iterations: the approximate time to measure (default 5)", 0},
    {"idle-seconds", KEY_IDLE_SECONDS, "S", 0,
     "At the end measure for this time what the idle engine costs (default 0: do not)", 0},
    {"in-place", KEY_IN_PLACE, NULL, 0, "Use one buffer for input and output", 0},
    {"timeline", KEY_TIMELINE, "PREFIX", 0,
     "Record what each rank does in PREFIX.1.RANK.json; `muster timeline' reads the files", 0},
    {"trace", KEY_TRACE, "PREFIX", 0,
     "Record the tensors only, as muster_trace_start() does, while the steps are measured", 0},
    {"list", KEY_LIST, NULL, 0,
     "Print the elements and the name of each tensor of the model, and measure nothing", 0},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object", 0},
    {0},
};

static muster_status parse_transport(const char *text, const char **ret_transport)
{
    if (strcmp(text, "shm") != 0 && strcmp(text, "tcp") != 0 && strcmp(text, "verbs") != 0) {
        return muster_error_set(MUSTER_INVALID,
                                "--transport: \"%.32s\" is none of shm, tcp and verbs", text);
    }
    *ret_transport = text;
    return MUSTER_OK;
}

/* Each option by itself; check_options() compares them. */
static muster_status parse_option(int key, char *text, struct muster_bench_step_options *options)
{
    switch (key) {
    case 'n':
        return muster_option_parse_number("-n", text, 1, MUSTER_BENCH_RANKS_MAX, &options->ranks);
    case KEY_MODEL:
        options->model = text;
        return MUSTER_OK;
    case KEY_HOSTS:
        return muster_option_parse_number("--hosts", text, 1, MUSTER_BENCH_RANKS_MAX,
                                          &options->hosts);
    case KEY_TRANSPORT:
        return parse_transport(text, &options->transport);
    case KEY_SHAPE:
        options->shape = text;
        return muster_bench_network_check_rate(text);
    case KEY_SIDES:
        return muster_bench_step_parse_sides(text, options);
    case KEY_ORDER:
        return muster_bench_step_parse_order(text, &options->order);
    case KEY_SEED:
        return muster_option_parse_number("--seed", text, 0, INT32_MAX, &options->seed);
    case KEY_BACKWARD_MS:
        return muster_option_parse_number("--backward-ms", text, 0, BACKWARD_MS_MAX,
                                          &options->backward_ms);
    case KEY_ITERATIONS:
        return muster_option_parse_number("--iterations", text, 1, MUSTER_BENCH_STEP_ITERATIONS_MAX,
                                          &options->iterations);
    case KEY_SECONDS:
        return muster_option_parse_number("--seconds", text, 1, SECONDS_MAX, &options->seconds);
    case KEY_TRACE:
        options->trace = text;
        return MUSTER_OK;
    case KEY_IDLE_SECONDS:
        return muster_option_parse_number("--idle-seconds", text, 0, SECONDS_MAX,
                                          &options->idle_seconds);
    case KEY_TIMELINE:
        return setenv("MUSTER_TIMELINE", text, 1) == 0
                   ? MUSTER_OK
                   : muster_error_errno(MUSTER_FATAL, "--timeline");
    default:
        options->in_place |= key == KEY_IN_PLACE;
        options->list |= key == KEY_LIST;
        options->json |= key == KEY_JSON;
        return MUSTER_OK;
    }
}

/* Checks options against each other, when all are parsed. */
static muster_status check_options(struct muster_bench_step_options *options)
{
    if (options->ranks == 0 && !options->list) {
        return muster_error_set(MUSTER_INVALID, "-n RANKS is missing");
    }
    if (options->hosts > options->ranks && !options->list) {
        return muster_error_set(MUSTER_INVALID, "--hosts: %u ranks cannot be on %u hosts",
                                options->ranks, options->hosts);
    }
    if (options->shape != NULL &&
        (options->hosts < 2 || strcmp(options->transport, "verbs") == 0)) {
        return muster_error_set(MUSTER_INVALID,
                                "--shape: there is no link to shape: it needs --hosts 2 or more, "
                                "and --transport shm or tcp");
    }
    if (options->iterations != 0 && options->seconds != 0) {
        return muster_error_set(MUSTER_INVALID, "--iterations and --seconds exclude each other");
    }
    options->seconds = options->seconds == 0 ? SECONDS_DEFAULT : options->seconds;
    return MUSTER_OK;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct muster_bench_step_options *options = state->input;
    muster_status status = MUSTER_OK;
    if (key == ARGP_KEY_ARG) {
        argp_error(state, "\"%.64s\" is one argument too many", text);
    } else if (key == ARGP_KEY_END) {
        status = check_options(options);
    } else if (key == 'n' || (key >= KEY_MODEL && key <= KEY_JSON)) {
        status = parse_option(key, text, options);
    } else {
        return ARGP_ERR_UNKNOWN;
    }
    if (status != MUSTER_OK) {
        argp_error(state, "%s", muster_last_error());
    }
    return 0;
}

static int print_list(const struct muster_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        (void)printf("%" PRIu32 " %s\n", model->tensors[i].elements, model->tensors[i].name);
    }
    return muster_cli_flush() == MUSTER_OK ? MUSTER_CLI_DONE : muster_cli_fail(MUSTER_CLI_FAILED);
}

static int run_on_network(struct muster_bench_step_shared *shared)
{
    const struct muster_bench_step_options *options = &shared->options;
    struct muster_bench_network network;
    if (options->shape == NULL) {
        return muster_bench_step_lead(shared);
    }
    if (muster_bench_network_create(options->hosts, options->shape, &network) != MUSTER_OK) {
        return muster_cli_fail(MUSTER_CLI_FAILED);
    }
    shared->network = &network;
    int exit_status = muster_bench_step_lead(shared);
    shared->network = NULL;
    muster_bench_network_destroy(&network);
    return exit_status;
}

static int measure(const struct muster_bench_step_options *options,
                   const struct muster_model *model)
{
    if (muster_bench_check_available("--model", options->ranks,
                                     muster_bench_step_data_bytes(options, model) *
                                         options->ranks) != MUSTER_OK) {
        return muster_cli_fail(MUSTER_CLI_FAILED);
    }
    size_t size_bytes = sizeof(struct muster_bench_step_shared) +
                        options->ranks * sizeof(struct muster_bench_step_slot);
    struct muster_bench_step_shared *shared =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
             -1, 0);
    if (shared == MAP_FAILED) {
        (void)muster_error_errno(MUSTER_FATAL, "memory for the times of %u ranks", options->ranks);
        return muster_cli_fail(MUSTER_CLI_FAILED);
    }
    shared->options = *options;
    shared->model = model;
    int exit_status = run_on_network(shared);
    munmap(shared, size_bytes);
    return exit_status;
}

int muster_bench_step(int argc, char **argv)
{
    static const struct argp argp = {.options = argp_options, .parser = parse, .doc = doc};
    struct muster_bench_step_options options = {.model = "resnet50",
                                                .transport = "shm",
                                                .hosts = 1,
                                                .seed = muster_random_below(INT32_MAX)};
    struct muster_model model;
    if (muster_bench_step_parse_sides(sides_default, &options) != MUSTER_OK ||
        argp_parse(&argp, argc, argv, 0, NULL, &options) != 0) {
        return MUSTER_CLI_USAGE;
    }
    if (muster_model_init(options.model, &model) != MUSTER_OK) {
        return muster_cli_misuse("bench step");
    }
    int exit_status = options.list ? print_list(&model) : measure(&options, &model);
    muster_model_finish(&model);
    return exit_status;
}
