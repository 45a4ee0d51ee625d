/* `muster timeline`: how long each stage of work was busy in a timeline, and which stages
 * overlapped. */
#include "worker/base/cleanup.h"
#include "worker/cli/cli.h"
#include "worker/cli/print.h"
#include "worker/cli/timeline/parsed_timeline.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_JSON = 256, KEY_SVG, KEY_STEP, NAME_WIDTH = 15 }; /* of the longest name of a stage */

struct timeline_options {
    bool json;
    bool step;
    char *svg;    /* or NULL */
    char **files; /* [count] */
    int count;
};

static const char doc[] =
    "Shows how long each stage of work was busy, and which stages overlapped, in timelines that "
    "MUSTER_TIMELINE or muster bench --timeline has recorded, one file for each member."
    "\v"
    "A stage is busy while at least one of its spans is in progress; \"at once\" is how many spans "
    "were in progress on average during that time. Each column after it belongs to another stage: "
    "the share of the row's busy time in which that stage was busy too.\n"
    "Given the files of several members, it also says how late each of them was in the operations "
    "that carried named tensors.\n"
    "https://ui.perfetto.dev and chrome://tracing draw the same files.\n"
    "\n"
    "Example:\n"
    "  muster bench allreduce -n 2 --bytes 16M --timeline /tmp/t\n"
    "  muster timeline /tmp/t.1.0.json";

static const struct argp_option argp_options[] = {
    {"svg", KEY_SVG, "FILE", 0,
     "Draw the last of the largest calls, with the spans of all members whose files are given; "
     "they must be of one host and job",
     0},
    {"step", KEY_STEP, NULL, 0,
     "Draw the last step of a program that submits named tensors, instead of a call", 0},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object for each file", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct timeline_options *options = state->input;
    switch (key) {
    case KEY_JSON:
        options->json = true;
        return 0;
    case KEY_SVG:
        options->svg = argument;
        return 0;
    case KEY_STEP:
        options->step = true;
        return 0;
    case ARGP_KEY_END:
        if (options->step && options->svg == NULL) {
            argp_error(state, "--step is what --svg draws");
        }
        return 0;
    case ARGP_KEY_ARGS:
        options->files = state->argv + state->next;
        options->count = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "a file is missing: one that MUSTER_TIMELINE has recorded");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const char *name_of(int stage)
{
    return muster_timeline_stage_name((enum muster_timeline_stage)stage);
}

/* How many spans are in progress on average while at least one is. */
static double at_once(const struct muster_parsed_stage *stage)
{
    return stage->busy_ns > 0 ? (double)stage->total_ns / (double)stage->busy_ns : 0;
}

/* Text ---------------------------------------------------------------------------------------- */

static void print_row(const struct muster_parsed_timeline *timeline, int row)
{
    const struct muster_parsed_stage *stage = &timeline->stages[row];
    (void)printf("%-*s %8" PRIu64 " %13" PRIu64 " %12.3f %8.2f", NAME_WIDTH, name_of(row),
                 stage->spans, stage->bytes, (double)stage->busy_ns / 1e6, at_once(stage));
    for (int i = 0; i < MUSTER_TIMELINE_STAGES; i++) {
        if (timeline->stages[i].spans == 0) {
            continue;
        }
        if (i == row) {
            (void)printf("  %*s", (int)strlen(name_of(i)), "-");
        } else {
            (void)printf("  %*.0f%%", (int)strlen(name_of(i)) - 1,
                         100 * muster_parsed_overlap(stage, &timeline->stages[i]));
        }
    }
    (void)printf("\n");
}

static void print_text(const char *path, const struct muster_parsed_timeline *timeline,
                       const struct muster_timeline_lateness *lateness)
{
    (void)printf("%s: rank %" PRIu32 ", %" PRIu64 " calls in %.3f ms\n", path, timeline->rank,
                 timeline->stages[MUSTER_TIMELINE_CALL].spans,
                 (double)(timeline->end_ns - timeline->start_ns) / 1e6);
    (void)printf("%-*s %8s %13s %12s %8s", NAME_WIDTH, "stage", "spans", "bytes", "busy ms",
                 "at once");
    for (int i = 0; i < MUSTER_TIMELINE_STAGES; i++) {
        if (timeline->stages[i].spans > 0) {
            (void)printf("  %s", name_of(i));
        }
    }
    (void)printf("\n");
    for (int i = 0; i < MUSTER_TIMELINE_STAGES; i++) {
        if (timeline->stages[i].spans > 0) {
            print_row(timeline, i);
        }
    }
    if (timeline->missing_spans > 0) {
        (void)printf("%" PRIu64 " spans are missing: too many were recorded at once\n",
                     timeline->missing_spans);
    }
    if (timeline->missing_tensors > 0) {
        (void)printf("%" PRIu64 " tensors are missing: too many were submitted at once\n",
                     timeline->missing_tensors);
    }
    if (lateness->operations > 0) {
        (void)printf(
            "last to come to %zu of %zu operations with tensors, %.1f us after the first "
            "rank (median)\n",
            lateness->last, lateness->operations, lateness->late_us);
    }
}

/* JSON ---------------------------------------------------------------------------------------- */

static json_t *stage_json(const struct muster_parsed_timeline *timeline, int row)
{
    const struct muster_parsed_stage *stage = &timeline->stages[row];
    json_t *overlaps = json_object();
    for (int i = 0; i < MUSTER_TIMELINE_STAGES; i++) {
        if (i != row && timeline->stages[i].spans > 0) {
            double overlap = muster_parsed_overlap(stage, &timeline->stages[i]);
            (void)json_object_set_new(overlaps, name_of(i), json_real(overlap));
        }
    }
    return json_pack("{s:s, s:I, s:I, s:f, s:f, s:o}", "stage", name_of(row), "spans",
                     (json_int_t)stage->spans, "bytes", (json_int_t)stage->bytes, "busy_us",
                     (double)stage->busy_ns / 1e3, "at_once", at_once(stage), "overlaps", overlaps);
}

static muster_status print_json(const char *path, const struct muster_parsed_timeline *timeline,
                                const struct muster_timeline_lateness *lateness)
{
    json_t *stages = json_array();
    for (int i = 0; i < MUSTER_TIMELINE_STAGES; i++) {
        if (timeline->stages[i].spans > 0) {
            (void)json_array_append_new(stages, stage_json(timeline, i));
        }
    }
    json_t *json =
        json_pack("{s:s, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:f, s:o}", "file", path, "rank",
                  (json_int_t)timeline->rank, "generations", (json_int_t)timeline->generations,
                  "lasted_us", (double)(timeline->end_ns - timeline->start_ns) / 1e3,
                  "missing_spans", (json_int_t)timeline->missing_spans, "missing_tensors",
                  (json_int_t)timeline->missing_tensors, "compared_operations",
                  (json_int_t)lateness->operations, "last_in", (json_int_t)lateness->last,
                  "late_us", lateness->late_us, "stages", stages);
    return muster_cli_print_json(json, MUSTER_CLI_ALL_DIGITS);
}

/* The command ---------------------------------------------------------------------------------- */

static muster_status print(const struct timeline_options *options,
                           const struct muster_parsed_timeline *timelines)
{
    size_t count = (size_t)options->count;
    AUTO_FREE struct muster_timeline_lateness *lateness = calloc(count, sizeof *lateness);
    if (lateness == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    if (count > 1) {
        TRY(muster_timeline_compare(timelines, count, lateness));
    }
    for (size_t i = 0; i < count; i++) {
        if (options->json) {
            TRY(print_json(options->files[i], &timelines[i], &lateness[i]));
        } else {
            print_text(options->files[i], &timelines[i], &lateness[i]);
        }
    }
    return muster_cli_flush();
}

static muster_status report(const struct timeline_options *options,
                            struct muster_parsed_timeline *timelines)
{
    size_t count = (size_t)options->count;
    for (size_t i = 0; i < count; i++) {
        TRY(muster_parsed_timeline_init(options->files[i], &timelines[i]));
    }
    if (options->svg != NULL) {
        TRY(muster_timeline_write_svg(
            options->svg, options->step ? MUSTER_TIMELINE_LAST_STEP : MUSTER_TIMELINE_LARGEST_CALL,
            timelines, count));
    }
    return print(options, timelines);
}

int muster_cli_timeline(int argc, char **argv)
{
    static const struct argp argp = {
        .options = argp_options, .parser = parse, .args_doc = "FILE...", .doc = doc};
    struct timeline_options options = {.json = false};
    if (argp_parse(&argp, argc, argv, 0, NULL, &options) != 0) {
        return MUSTER_CLI_USAGE;
    }
    struct muster_parsed_timeline *timelines = calloc((size_t)options.count, sizeof *timelines);
    muster_status status = timelines != NULL ? report(&options, timelines)
                                             : muster_error_set(MUSTER_FATAL, "no memory");
    for (int i = 0; timelines != NULL && i < options.count; i++) {
        muster_parsed_timeline_finish(&timelines[i]);
    }
    free(timelines);
    return status == MUSTER_OK ? MUSTER_CLI_DONE : muster_cli_fail(MUSTER_CLI_FAILED);
}
