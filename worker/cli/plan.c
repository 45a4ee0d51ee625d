/* `muster plan`: prints the schedules of a collective, and checks them. */
#include "collectives/check.h"
#include "collectives/select.h"
#include "worker/base/cleanup.h"
#include "worker/cli/cli.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    KEY_RANKS = 256,
    KEY_HOSTS,
    KEY_ALGORITHM,
    KEY_COUNT,
    KEY_ROOT,
    KEY_RANK,
    KEY_CHECK,
    KEY_LIST,
    RANKS_MAX = 1024,       /* the checker's time and memory grow faster than the ranks */
    ELEMENT_SIZE_BYTES = 4, /* float32, when the algorithm is to be chosen */
};

struct plan_options {
    const char *collective, *ranks, *hosts, *algorithm, *count, *root, *rank;
    bool check, list;
};

/* The request, understood. */
struct request {
    struct muster_topology topology;
    struct muster_plan plan;
    size_t algorithm;
    bool one_rank; /* print plan.rank only */
};

static const char doc[] =
    "Prints what each rank sends, receives and reduces in a collective: COLLECTIVE is allreduce, "
    "reduce_scatter, allgather, broadcast or barrier."
    "\v"
    "A step is one line: its lane, its round, the rank at the other end, and the elements. Steps "
    "of "
    "one round overlap; the next round of the lane begins when all of them are done.\n"
    "\n"
    "Examples:\n"
    "  muster plan allreduce --ranks 8 --hosts 2 --algorithm hierarchical\n"
    "  muster plan broadcast --ranks 5 --root 2 --rank 4\n"
    "  muster plan allreduce --hosts 3,1,4 --check\n"
    "\n"
    "Exit status: 0 done, and with --check proven; 1 not proven, or no memory; 2 the request is "
    "wrong or impossible.";

static const struct argp_option options_table[] = {
    {"ranks", KEY_RANKS, "P", 0, "So many ranks", 1},
    {"hosts", KEY_HOSTS, "H|A,B,...", 0,
     "On H hosts, spread evenly; or with A ranks on the first host, B on the second, ...", 1},
    {"algorithm", KEY_ALGORITHM, "NAME", 0,
     "One that --list names (default: that of the lowest predicted time)", 1},
    {"count", KEY_COUNT, "N", 0, "The call's count of elements (default: P; in a barrier 0)", 1},
    {"root", KEY_ROOT, "R", 0, "Root of a broadcast (default 0)", 1},
    {"rank", KEY_RANK, "R", 0, "Print this rank only", 1},
    {"check", KEY_CHECK, NULL, 0, "Print only whether the schedules of all ranks are proven right",
     1},
    {"list", KEY_LIST, NULL, 0, "Print all collectives and algorithms", 1},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct plan_options *options = state->input;
    switch (key) {
    case KEY_RANKS:
        options->ranks = argument;
        return 0;
    case KEY_HOSTS:
        options->hosts = argument;
        return 0;
    case KEY_ALGORITHM:
        options->algorithm = argument;
        return 0;
    case KEY_COUNT:
        options->count = argument;
        return 0;
    case KEY_ROOT:
        options->root = argument;
        return 0;
    case KEY_RANK:
        options->rank = argument;
        return 0;
    case KEY_CHECK:
        options->check = true;
        return 0;
    case KEY_LIST:
        options->list = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->collective != NULL) {
            argp_error(state, "\"%.80s\" is one argument too many", argument);
            return EINVAL;
        }
        options->collective = argument;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static muster_status parse_count(const char *text, uint64_t *ret_count)
{
    char *end = NULL;
    errno = 0;
    unsigned long long count = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0) {
        return muster_error_set(MUSTER_INVALID, "--count: \"%.64s\" is not a number of elements",
                                text);
    }
    *ret_count = count;
    return MUSTER_OK;
}

/* "3,1,4" */
static muster_status parse_sizes(const char *text, struct muster_topology *ret_topology)
{
    uint32_t sizes[RANKS_MAX];
    uint32_t hosts = 0;
    AUTO_FREE char *copy = strdup(text);
    if (copy == NULL) {
        return muster_error_set(MUSTER_FATAL, "--hosts: no memory");
    }
    for (char *rest = copy; rest != NULL;) {
        const char *size = strsep(&rest, ",");
        if (hosts == RANKS_MAX) {
            return muster_error_set(MUSTER_INVALID, "--hosts: more than %d hosts", RANKS_MAX);
        }
        TRY(muster_cli_parse_number("--hosts", size, 1, RANKS_MAX, &sizes[hosts++]));
    }
    return muster_topology_init(hosts, sizes, ret_topology);
}

static muster_status parse_topology(const struct plan_options *options,
                                    struct muster_topology *ret_topology)
{
    uint32_t ranks = 0;
    uint32_t hosts = 1;
    bool sized = options->hosts != NULL && strchr(options->hosts, ',') != NULL;
    if (options->ranks != NULL) {
        TRY(muster_cli_parse_number("--ranks", options->ranks, 1, RANKS_MAX, &ranks));
    } else if (!sized) {
        return muster_error_set(MUSTER_INVALID, "how many ranks? Say --ranks P or --hosts A,B,...");
    }
    if (!sized) {
        if (options->hosts != NULL) {
            TRY(muster_cli_parse_number("--hosts", options->hosts, 1, RANKS_MAX, &hosts));
        }
        return muster_topology_init_even(ranks, hosts, ret_topology);
    }
    struct muster_topology topology = {0};
    TRY(parse_sizes(options->hosts, &topology));
    if (topology.ranks > RANKS_MAX || (ranks != 0 && ranks != topology.ranks)) {
        uint32_t sum = topology.ranks;
        muster_topology_finish(&topology);
        return ranks == 0
                   ? muster_error_set(MUSTER_INVALID, "--hosts: %" PRIu32 " ranks, at most %d", sum,
                                      RANKS_MAX)
                   : muster_error_set(MUSTER_INVALID,
                                      "--ranks %" PRIu32 " and --hosts with %" PRIu32
                                      " ranks do not agree",
                                      ranks, sum);
    }
    *ret_topology = topology;
    return MUSTER_OK;
}

/* The topology is the caller's to finish, also on failure. */
static muster_status understand(const struct plan_options *options, struct request *request)
{
    struct muster_plan *plan = &request->plan;
    if (options->collective == NULL) {
        return muster_error_set(MUSTER_INVALID, "a collective is missing: say one, or --list");
    }
    TRY(muster_collective_parse(options->collective, &plan->collective));
    TRY(parse_topology(options, &request->topology));
    plan->topology = &request->topology;
    uint32_t last = request->topology.ranks - 1;
    if (options->root != NULL) {
        TRY(muster_cli_parse_number("--root", options->root, 0, last, &plan->root));
    }
    if (options->rank != NULL) {
        TRY(muster_cli_parse_number("--rank", options->rank, 0, last, &plan->rank));
        request->one_rank = true;
    }
    plan->count = plan->collective == MUSTER_BARRIER ? 0 : request->topology.ranks;
    if (options->count != NULL) {
        TRY(parse_count(options->count, &plan->count));
    }
    if (options->algorithm != NULL) {
        TRY(muster_algorithm_find(plan->collective, options->algorithm, &request->algorithm));
        return muster_plan_check(request->algorithm, plan);
    }
    return muster_select(plan, ELEMENT_SIZE_BYTES, &muster_cost_model_default, &request->algorithm);
}

/* The collective, algorithm and shape, without an end of line. */
static void print_head(const struct request *request)
{
    const struct muster_topology *topology = &request->topology;
    char name[MUSTER_ALGORITHM_NAME_SIZE];
    muster_algorithm_print(request->algorithm, name, sizeof name);
    (void)printf("%s %s, P = %" PRIu32 " on %" PRIu32 " host%s",
                 muster_collective_name(request->plan.collective), name, topology->ranks,
                 topology->hosts, topology->hosts == 1 ? "" : "s");
    for (uint32_t host = 0; topology->hosts > 1 && host < topology->hosts; host++) {
        (void)printf("%s%" PRIu32, host == 0 ? " (" : ",", topology->host_sizes[host]);
    }
    (void)printf("%s, count %" PRIu64, topology->hosts > 1 ? ")" : "", request->plan.count);
    if (muster_collective_has_root(request->plan.collective)) {
        (void)printf(", root %" PRIu32, request->plan.root);
    }
}

static muster_status print_rank(const struct request *request, uint32_t rank)
{
    struct muster_plan plan = request->plan;
    plan.rank = rank;
    struct muster_schedule schedule = {0};
    TRY(muster_schedule_generate(request->algorithm, &plan, &schedule));
    struct muster_position position = muster_topology_locate(&request->topology, rank);
    struct muster_schedule_totals totals = muster_schedule_total(&schedule);
    (void)printf("\nrank %" PRIu32 ": host %" PRIu32 ", local rank %" PRIu32 "; %" PRIu32
                 " rounds; sends %" PRIu64 " elements in %" PRIu64 " messages, reduces %" PRIu64
                 ", scratch %" PRIu64 "\n",
                 rank, position.host, position.local_rank, totals.rounds, totals.elements_sent,
                 totals.messages_sent, totals.elements_reduced, schedule.scratch_count);
    muster_schedule_print(&schedule, stdout);
    muster_schedule_finish(&schedule);
    return MUSTER_OK;
}

static muster_status print(const struct request *request)
{
    print_head(request);
    (void)putchar('\n');
    if (request->one_rank) {
        return print_rank(request, request->plan.rank);
    }
    for (uint32_t rank = 0; rank < request->topology.ranks; rank++) {
        TRY(print_rank(request, rank));
    }
    return MUSTER_OK;
}

static void print_verdict(const struct request *request, const struct muster_check_result *result)
{
    (void)printf("%s: ", result->proven ? "proven" : "not proven");
    print_head(request);
    if (!result->proven) {
        (void)printf(": %s\n", result->why);
        return;
    }
    (void)printf(", rounds %" PRIu32, result->rounds);
    if (request->plan.count > 0) {
        (void)printf(", the busiest rank sends %.3f x count",
                     (double)result->elements_sent_max / (double)request->plan.count);
    }
    (void)putchar('\n');
}

static muster_status check(const struct request *request, bool *ret_proven)
{
    uint32_t ranks = request->topology.ranks;
    AUTO_FREE struct muster_shape *shapes = calloc((size_t)ranks + 1, sizeof *shapes);
    AUTO_FREE struct muster_schedule *schedules = calloc((size_t)ranks + 1, sizeof *schedules);
    if (shapes == NULL || schedules == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %" PRIu32 " schedules", ranks);
    }
    muster_status status = MUSTER_OK;
    for (uint32_t rank = 0; rank < ranks && status == MUSTER_OK; rank++) {
        struct muster_plan plan = request->plan;
        plan.rank = rank;
        shapes[rank] = muster_plan_shape(&plan);
        status = muster_schedule_generate(request->algorithm, &plan, &schedules[rank]);
    }
    struct muster_check_result result = {0};
    if (status == MUSTER_OK) {
        status = muster_check(shapes, schedules, ranks, request->plan.in_place, &result);
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        muster_schedule_finish(&schedules[rank]);
    }
    TRY(status);
    print_verdict(request, &result);
    *ret_proven = result.proven;
    return MUSTER_OK;
}

static void list(void)
{
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        const struct muster_algorithm *row = &muster_algorithms[i];
        (void)printf("%-14s  %-18s  %s\n", muster_collective_name(row->collective), row->name,
                     row->what);
    }
}

static int answer(const struct plan_options *options, const struct request *request)
{
    bool proven = true;
    muster_status status = options->check ? check(request, &proven) : print(request);
    if (status != MUSTER_OK) {
        return muster_cli_fail(status == MUSTER_INVALID ? MUSTER_CLI_USAGE : MUSTER_CLI_FAILED);
    }
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        (void)muster_error_errno(MUSTER_FATAL, "standard output");
        return muster_cli_fail(MUSTER_CLI_FAILED);
    }
    return proven ? MUSTER_CLI_DONE : MUSTER_CLI_FAILED;
}

int muster_cli_plan(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options_table, .parser = parse, .args_doc = "COLLECTIVE", .doc = doc};
    struct plan_options options = {0};
    error_t failed = argp_parse(&argp, argc, argv, 0, NULL, &options);
    if (failed != 0) {
        return MUSTER_CLI_USAGE;
    }
    if (options.list) {
        list();
        return MUSTER_CLI_DONE;
    }
    struct request request = {0};
    muster_status status = understand(&options, &request);
    int exit_status = MUSTER_CLI_USAGE;
    if (status == MUSTER_OK) {
        exit_status = answer(&options, &request);
    } else {
        exit_status =
            muster_cli_fail(status == MUSTER_INVALID ? MUSTER_CLI_USAGE : MUSTER_CLI_FAILED);
    }
    muster_topology_finish(&request.topology);
    return exit_status;
}
