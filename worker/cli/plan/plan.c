/* `muster plan`: shows, checks and simulates the schedules of a collective. */
#include "worker/cli/plan/plan.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "worker/cli/cli.h"
#include "worker/cli/print.h"
#include "worker/cli/svg.h"

enum {
    KEY_RANKS = 256,
    KEY_HOSTS,
    KEY_RACKS,
    KEY_ALGORITHM,
    KEY_COUNT,
    KEY_BLOCKS,
    KEY_ROOT,
    KEY_IN_PLACE,
    KEY_SHARED_MEMORY,
    KEY_KEEP_INPUT,
    KEY_FINISH_TOGETHER,
    KEY_RANK,
    KEY_STEPS,
    KEY_SVG,
    KEY_SIMULATE,
    KEY_TABLE,
    KEY_CHECK,
    KEY_JSON,
    KEY_LIST,
    KEY_FORMULAS,
};

static const char doc[] =
    "Shows what each rank sends, receives and reduces in a collective. --list names COLLECTIVEs "
    "and "
    "algorithms."
    "\v"
    "Without an option that says what to print it draws the schedules of all ranks as text; "
    "schedules that are too large for that are listed step by step, a line for each step: its "
    "lane, "
    "its round, the peer and the elements. Times are predictions from the figures of an ordinary "
    "machine, for elements of float32.\n"
    "\n"
    "Examples:\n"
    "  muster plan allreduce --ranks 8 --hosts 2 --algorithm hierarchical\n"
    "  muster plan allreduce --ranks 8 --algorithm ring --svg ring.svg\n"
    "  muster plan broadcast --ranks 5 --root 2 --rank 4\n"
    "  muster plan allreduce --hosts 3,1,4 --check\n"
    "  muster plan allreduce --ranks 16 --hosts 4 --table\n"
    "\n"
    "Exit status: 0 done, and the schedules are proven right; 1 they are not, or there is no "
    "memory, "
    "or a file cannot be written; 2 the request is wrong or impossible.";

static const struct argp_option options_table[] = {
    {NULL, 0, NULL, 0, "The call:", 1},
    {"ranks", KEY_RANKS, "P", 0, "The number of ranks", 1},
    {"hosts", KEY_HOSTS, "H|A,B,...", 0,
     "Spread the ranks evenly over H hosts; or A ranks on the first host, B on the second, ...", 1},
    {"racks", KEY_RACKS, "R|A,B,...", 0,
     "Spread the hosts evenly over R racks; or A hosts in the first rack, B in the second, ...", 1},
    {"algorithm", KEY_ALGORITHM, "NAME", 0,
     "An algorithm by a name or alias that --list prints (default: the one with the lowest "
     "predicted time)",
     1},
    {"count", KEY_COUNT, "N", 0,
     "The element count of the call (default: 2P; 1 for collectives whose count is that of a "
     "block; "
     "0 for a barrier)",
     1},
    {"blocks", KEY_BLOCKS, "A,B,...", 0,
     "A elements in the block of rank 0, B in that of rank 1, ..., for collectives whose blocks "
     "may "
     "differ (default: the count)",
     1},
    {"root", KEY_ROOT, "R", 0, "The root, for collectives that have one (default 0)", 1},
    {"in-place", KEY_IN_PLACE, NULL, 0, "Use one buffer for input and output", 1},
    {"shared-memory", KEY_SHARED_MEMORY, NULL, 0,
     "The ranks of a host share memory, in which group steps are performed", 1},
    {"keep-input", KEY_KEEP_INPUT, NULL, 0,
     "The same, and partial results go through scratch, so that the buffer gets results only", 1},
    {"finish-together", KEY_FINISH_TOGETHER, NULL, 0,
     "No rank finishes before all have started: with a closing round, where one is needed", 1},
    {NULL, 0, NULL, 0, "What to print:", 2},
    {"rank", KEY_RANK, "R", 0, "List the steps of this rank only", 2},
    {"steps", KEY_STEPS, NULL, 0, "List the steps of all ranks", 2},
    {"svg", KEY_SVG, "FILE", 0, "Write a picture to FILE; - is standard output", 2},
    {"check", KEY_CHECK, NULL, 0, "Print only whether the schedules of all ranks are proven right",
     2},
    {"simulate", KEY_SIMULATE, NULL, 0, "Add predicted times", 2},
    {"table", KEY_TABLE, NULL, 0,
     "Print predicted times of all algorithms for 4 B to 64 MiB, and mark the fastest", 2},
    {"json", KEY_JSON, NULL, 0,
     "Print steps, or the output of --check, --table, --simulate or --list, as one JSON object a "
     "line",
     2},
    {"list", KEY_LIST, NULL, 0,
     "Print all collectives and algorithms, what the two promises take (scratch, a closing round), "
     "and what Gloo and NCCL call them",
     2},
    {"formulas", KEY_FORMULAS, NULL, 0,
     "Print the numbers of rounds and elements of all algorithms as a table for the documentation",
     2},
    {0},
};

/* Where the argument of an option is stored; NULL: the option has no argument. */
static const char **find_text(struct muster_plan_options *options, int key)
{
    switch (key) {
    case KEY_RANKS:
        return &options->ranks;
    case KEY_HOSTS:
        return &options->hosts;
    case KEY_RACKS:
        return &options->racks;
    case KEY_ALGORITHM:
        return &options->algorithm;
    case KEY_COUNT:
        return &options->count;
    case KEY_BLOCKS:
        return &options->blocks;
    case KEY_ROOT:
        return &options->root;
    case KEY_RANK:
        return &options->rank;
    case KEY_SVG:
        return &options->svg;
    default:
        return NULL;
    }
}

static bool *find_switch(struct muster_plan_options *options, int key)
{
    switch (key) {
    case KEY_SHARED_MEMORY:
        return &options->shared_memory;
    case KEY_IN_PLACE:
        return &options->in_place;
    case KEY_KEEP_INPUT:
        return &options->keep_input;
    case KEY_FINISH_TOGETHER:
        return &options->finish_together;
    case KEY_STEPS:
        return &options->steps;
    case KEY_SIMULATE:
        return &options->simulate;
    case KEY_TABLE:
        return &options->table;
    case KEY_CHECK:
        return &options->check;
    case KEY_JSON:
        return &options->json;
    case KEY_LIST:
        return &options->list;
    case KEY_FORMULAS:
        return &options->formulas;
    default:
        return NULL;
    }
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct muster_plan_options *options = state->input;
    const char **text = find_text(options, key);
    bool *choice = find_switch(options, key);
    if (text != NULL) {
        *text = argument;
        return 0;
    }
    if (choice != NULL) {
        *choice = true;
        return 0;
    }
    if (key != ARGP_KEY_ARG) {
        return ARGP_ERR_UNKNOWN;
    }
    if (options->collective != NULL) {
        argp_error(state, "\"%.80s\" is one argument too many", argument);
        return EINVAL;
    }
    options->collective = argument;
    return 0;
}

static void print_verdict(const struct muster_plan_request *request,
                          const struct muster_check_result *verdict)
{
    (void)printf("%s: ", verdict->proven ? "proven" : "not proven");
    muster_plan_request_print(request, stdout);
    if (!verdict->proven) {
        (void)printf(": %s\n", verdict->why);
        return;
    }
    (void)printf(", rounds %" PRIu32, verdict->rounds);
    if (request->plan.count > 0 && request->bounds == NULL) {
        (void)printf(", the busiest rank sends %.3f x count",
                     (double)verdict->elements_sent_max / (double)request->plan.count);
    }
    (void)putchar('\n');
}

static muster_status print_check(const struct muster_plan_options *options,
                                 const struct muster_plan_request *request,
                                 const struct muster_plan_set *set)
{
    if (options->json) {
        return muster_plan_print_verdict_json(request, &set->verdict);
    }
    print_verdict(request, &set->verdict);
    return MUSTER_OK;
}

/* The command that makes the same picture. */
static void write_command(const struct muster_plan_options *options, char *text, size_t size)
{
    const struct {
        const char *name, *value;
    } parts[] = {{"muster plan ", options->collective},
                 {" --ranks ", options->ranks},
                 {" --hosts ", options->hosts},
                 {" --racks ", options->racks},
                 {" --algorithm ", options->algorithm},
                 {" --count ", options->count},
                 {" --blocks ", options->blocks},
                 {" --root ", options->root},
                 {" --rank ", options->rank},
                 {" --in-place", options->in_place ? "" : NULL},
                 {" --shared-memory", options->shared_memory ? "" : NULL},
                 {" --keep-input", options->keep_input ? "" : NULL},
                 {" --finish-together", options->finish_together ? "" : NULL},
                 {" --simulate", options->simulate ? "" : NULL}};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].value != NULL && used < size) {
            used +=
                (size_t)snprintf(text + used, size - used, "%s%s", parts[i].name, parts[i].value);
        }
    }
}

static muster_status draw(FILE *out, const void *scene)
{
    return muster_plan_draw(out, scene);
}

static muster_status write_picture(const struct muster_plan_options *options,
                                   const struct muster_plan_scene *scene)
{
    char command[1024];
    write_command(options, command, sizeof command);
    struct muster_plan_scene named = *scene;
    named.command = command;
    return muster_svg_write(options->svg, draw, &named);
}

static void print_text(const struct muster_plan_options *options,
                       const struct muster_plan_scene *scene)
{
    const struct muster_plan_request *request = scene->request;
    muster_plan_request_print(request, stdout);
    (void)printf("\n%s\n", muster_algorithms[request->algorithm % MUSTER_ALGORITHM_ROWS_MAX].what);
    if (request->one_rank) {
        muster_plan_print_rank(scene, request->plan.rank);
        return;
    }
    if (!options->steps && scene->drawing != NULL && muster_plan_print_grid(scene)) {
        return;
    }
    for (uint32_t rank = 0; rank < request->topology.ranks; rank++) {
        muster_plan_print_rank(scene, rank);
    }
}

static muster_status show(const struct muster_plan_options *options,
                          const struct muster_plan_scene *scene)
{
    if (options->check) {
        TRY(print_check(options, scene->request, scene->set));
    }
    if (options->svg != NULL) {
        TRY(scene->drawing != NULL
                ? write_picture(options, scene)
                : muster_error_set(MUSTER_INVALID,
                                   "--svg: schedules that are not proven right are not drawn: %s",
                                   scene->set->verdict.why));
    }
    if (!options->check && options->svg == NULL && options->json) {
        return muster_plan_print_steps_json(scene);
    }
    if (!options->check && options->svg == NULL) {
        print_text(options, scene);
        print_verdict(scene->request, &scene->set->verdict);
    }
    return MUSTER_OK;
}

/* Adds the drawing and the times that the options need, and shows the scene. */
static muster_status prepare_scene(const struct muster_plan_options *options,
                                   struct muster_plan_scene *scene)
{
    struct muster_drawing drawing = {0};
    struct muster_plan_times times = {0};
    const struct muster_plan_set *set = scene->set;
    muster_status status = MUSTER_OK;
    if (set->verdict.proven && (!options->check || options->svg != NULL)) {
        status = muster_drawing_init(set->shapes, set->schedules, set->ranks,
                                     scene->request->plan.in_place, &drawing);
        scene->drawing = status == MUSTER_OK ? &drawing : NULL;
    }
    if (status == MUSTER_OK && options->simulate && set->verdict.proven) {
        status = muster_plan_times_create(scene->request, set, &times);
        scene->times = status == MUSTER_OK ? &times : NULL;
    }
    if (status == MUSTER_OK) {
        status = show(options, scene);
    }
    scene->drawing = NULL;
    scene->times = NULL;
    muster_plan_times_finish(&times);
    muster_drawing_finish(&drawing);
    return status;
}

/* Schedules are generated and checked unless only times are wanted: those are also predicted for
 * more ranks than MUSTER_PLAN_RANKS_MAX, because the simulator takes one schedule after another. */
static muster_status run_request(const struct muster_plan_options *options,
                                 const struct muster_plan_request *request, bool *ret_proven)
{
    *ret_proven = true;
    if (options->table) {
        return muster_plan_print_table(request, options->json);
    }
    bool times_only = options->simulate && request->topology.ranks > MUSTER_PLAN_RANKS_MAX &&
                      !options->check && options->svg == NULL && !options->steps &&
                      !request->one_rank;
    if (!times_only) {
        struct muster_plan_set set = {0};
        TRY(muster_plan_set_create(request, &set));
        struct muster_plan_scene scene = {.request = request, .set = &set};
        *ret_proven = set.verdict.proven;
        muster_status status = prepare_scene(options, &scene);
        muster_plan_set_finish(&set);
        TRY(status);
    }
    bool to_stdout = options->svg != NULL && strcmp(options->svg, "-") == 0;
    bool wanted = options->simulate && *ret_proven && !to_stdout;
    return wanted && (times_only || !options->json)
               ? muster_plan_print_times(request, options->json)
               : MUSTER_OK;
}

static int end(muster_status status, bool proven)
{
    if (status != MUSTER_OK) {
        return muster_cli_fail(status == MUSTER_INVALID ? MUSTER_CLI_USAGE : MUSTER_CLI_FAILED);
    }
    if (muster_cli_flush() != MUSTER_OK) {
        return muster_cli_fail(MUSTER_CLI_FAILED);
    }
    return proven ? MUSTER_CLI_DONE : MUSTER_CLI_FAILED;
}

/* --list and --formulas need no collective; everything else is about one request. */
int muster_cli_plan(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options_table, .parser = parse, .args_doc = "COLLECTIVE", .doc = doc};
    struct muster_plan_options options = {0};
    error_t failed = argp_parse(&argp, argc, argv, 0, NULL, &options);
    if (failed != 0) {
        return MUSTER_CLI_USAGE;
    }
    if (options.list) {
        return end(muster_plan_print_list(options.json), true);
    }
    if (options.formulas) {
        return end(muster_plan_print_formulas(), true);
    }
    struct muster_plan_request request = {0};
    bool proven = true;
    muster_status status = muster_plan_request_read(&options, &request);
    if (status == MUSTER_OK) {
        status = run_request(&options, &request, &proven);
    }
    int exit_status = end(status, proven);
    muster_plan_request_finish(&request);
    return exit_status;
}
