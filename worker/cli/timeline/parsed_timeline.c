/* muster timeline: reads a timeline's file, and finds when each stage was busy. */
#include "worker/cli/timeline/parsed_timeline.h"

#include "worker/base/cleanup.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 8192 }; /* an event does not cross a page of the file */

/* Events -------------------------------------------------------------------------------------- */

/* Makes room for one more element in an array of `count`. NULL: out of memory, and the array stays
 * as it is. */
static void *reserve_one(void *array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity) {
        return array;
    }
    void *grown = realloc(array, (2 * count + 1024) * size);
    if (grown == NULL) {
        (void)muster_error_set(MUSTER_FATAL, "no memory for %zu spans", count);
        return NULL;
    }
    *capacity = 2 * count + 1024;
    return grown;
}

static muster_status add_event(struct muster_parsed_timeline *timeline,
                               const struct muster_parsed_event *event)
{
    struct muster_parsed_stage *stage = &timeline->stages[event->stage];
    struct muster_parsed_interval *busy =
        reserve_one(stage->busy, stage->busy_count, &stage->busy_capacity, sizeof *busy);
    stage->busy = busy != NULL ? busy : stage->busy;
    struct muster_parsed_event *events = reserve_one(timeline->events, timeline->event_count,
                                                     &timeline->event_capacity, sizeof *events);
    timeline->events = events != NULL ? events : timeline->events;
    if (busy == NULL || events == NULL) {
        return MUSTER_FATAL;
    }
    busy[stage->busy_count++] = event->span;
    events[timeline->event_count++] = *event;
    stage->spans++;
    stage->bytes += event->bytes;
    stage->total_ns += event->span.end_ns - event->span.start_ns;
    return MUSTER_OK;
}

/* MUSTER_TIMELINE_STAGES: there is no stage of this name. */
static enum muster_timeline_stage find_stage(const char *name)
{
    int stage = 0;
    while (stage < MUSTER_TIMELINE_STAGES &&
           strcmp(name, muster_timeline_stage_name((enum muster_timeline_stage)stage)) != 0) {
        stage++;
    }
    return (enum muster_timeline_stage)stage;
}

static bool is_time(double us)
{
    return us >= 0 && us < 1e15; /* 30 years */
}

static bool is_number(json_int_t number)
{
    return number >= 0 && number <= UINT32_MAX;
}

/* MUSTER_INVALID, without an error text: this is not a span as Muster writes it. */
static muster_status parse_span(struct muster_parsed_timeline *timeline, const json_t *event)
{
    const char *category = "";
    double at_us = 0;
    double lasted_us = 0;
    json_int_t bytes = 0;
    json_int_t track = 0;
    json_int_t context = 0;
    json_int_t sequence = 0;
    if (json_unpack((json_t *)event, "{s:s, s:F, s:F, s:I, s:{s:I, s?I, s?I}}", "cat", &category,
                    "ts", &at_us, "dur", &lasted_us, "tid", &track, "args", "bytes", &bytes,
                    "context", &context, "sequence", &sequence) != 0 ||
        !is_time(at_us) || !is_time(lasted_us) || bytes < 0 || !is_number(track) ||
        !is_number(context) || sequence < 0) {
        return MUSTER_INVALID;
    }
    int64_t start_ns = llround(at_us * 1000);
    int64_t end_ns = llround((at_us + lasted_us) * 1000);
    const struct muster_parsed_event span = {.span = {start_ns, end_ns},
                                             .bytes = (uint64_t)bytes,
                                             .track = (uint32_t)track,
                                             .context = (uint32_t)context,
                                             .sequence = (uint64_t)sequence,
                                             .stage = find_stage(category)};
    if (span.stage == MUSTER_TIMELINE_STAGES) {
        return MUSTER_INVALID;
    }
    bool first = timeline->end_ns == 0;
    timeline->start_ns = first || start_ns < timeline->start_ns ? start_ns : timeline->start_ns;
    timeline->end_ns = first || end_ns > timeline->end_ns ? end_ns : timeline->end_ns;
    return add_event(timeline, &span);
}

/* A metadata event. Only the name of a track is used. */
static muster_status parse_track_name(struct muster_parsed_timeline *timeline, const json_t *event)
{
    const char *kind = "";
    const char *name = "";
    json_int_t number = 0;
    if (json_unpack((json_t *)event, "{s:s, s:I, s:{s:s}}", "name", &kind, "tid", &number, "args",
                    "name", &name) != 0 ||
        strcmp(kind, "thread_name") != 0) {
        return MUSTER_OK;
    }
    struct muster_parsed_track *tracks = reserve_one(timeline->tracks, timeline->track_count,
                                                     &timeline->track_capacity, sizeof *tracks);
    if (tracks == NULL) {
        return MUSTER_FATAL;
    }
    timeline->tracks = tracks;
    struct muster_parsed_track *track = &tracks[timeline->track_count++];
    track->number = (uint32_t)number;
    (void)snprintf(track->name, sizeof track->name, "%s", name);
    for (char *at = track->name; *at != '\0'; at++) {
        if (*at < ' ' || *at > '~' || strchr("<>&\"'", *at) != NULL) {
            *at = '?';
        }
    }
    return MUSTER_OK;
}

/* An instant event: a generation begins, or spans are missing. */
static muster_status parse_mark(struct muster_parsed_timeline *timeline, const json_t *event)
{
    const json_t *arguments = json_object_get(event, "args");
    timeline->generations += json_object_get(arguments, "generation") != NULL;
    timeline->missing_spans += (uint64_t)json_integer_value(json_object_get(arguments, "spans"));
    timeline->missing_tensors +=
        (uint64_t)json_integer_value(json_object_get(arguments, "tensors"));
    return MUSTER_OK;
}

static muster_status parse_event(struct muster_parsed_timeline *timeline, const json_t *event)
{
    const char *phase = "";
    json_int_t rank = 0;
    if (json_unpack((json_t *)event, "{s:s, s:I}", "ph", &phase, "pid", &rank) != 0 ||
        !is_number(rank)) {
        return MUSTER_INVALID;
    }
    timeline->rank = (uint32_t)rank;
    if (strcmp(phase, "X") == 0) {
        return parse_span(timeline, event);
    }
    if (strcmp(phase, "M") == 0) {
        return parse_track_name(timeline, event);
    }
    return strcmp(phase, "i") == 0 ? parse_mark(timeline, event) : MUSTER_OK;
}

/* Lines --------------------------------------------------------------------------------------- */

/* Cuts off the separators at the end of a line. Returns the length of the rest. */
static size_t trim(char *line)
{
    size_t length = strlen(line);
    while (length > 0 && strchr(" ,\n", line[length - 1]) != NULL) {
        line[--length] = '\0';
    }
    return length;
}

static muster_status parse_line(struct muster_parsed_timeline *timeline, char *line,
                                uint64_t number, bool *ret_ended)
{
    size_t length = trim(line);
    if (number == 1) {
        return strcmp(line, "[") == 0 ? MUSTER_OK : MUSTER_INVALID;
    }
    if (strcmp(line, "]") == 0) {
        *ret_ended = true;
        return MUSTER_OK;
    }
    json_t *event = *ret_ended ? NULL : json_loadb(line, length, 0, NULL);
    muster_status status = event != NULL ? parse_event(timeline, event) : MUSTER_INVALID;
    json_decref(event);
    return status;
}

static muster_status parse_file(FILE *file, const char *path,
                                struct muster_parsed_timeline *timeline)
{
    char line[LINE_MAX_BYTES];
    uint64_t number = 0;
    bool ended = false;
    while (fgets(line, sizeof line, file) != NULL) {
        muster_status status = parse_line(timeline, line, ++number, &ended);
        if (status == MUSTER_INVALID) {
            return muster_error_set(
                MUSTER_INVALID, "%s: line %llu is not part of a timeline that Muster has written",
                path, (unsigned long long)number);
        }
        TRY(status);
    }
    if (ferror(file) != 0) {
        return muster_error_errno(MUSTER_INVALID, "%s", path);
    }
    return number > 0 ? MUSTER_OK : muster_error_set(MUSTER_INVALID, "%s: the file is empty", path);
}

/* Busy times ---------------------------------------------------------------------------------- */

static int by_start(const void *one, const void *other)
{
    int64_t left = ((const struct muster_parsed_interval *)one)->start_ns;
    int64_t right = ((const struct muster_parsed_interval *)other)->start_ns;
    return (left > right) - (left < right);
}

/* Merges overlapping intervals, and adds up the busy time. */
static void merge_intervals(struct muster_parsed_stage *stage)
{
    if (stage->busy_count == 0) {
        return;
    }
    qsort(stage->busy, stage->busy_count, sizeof stage->busy[0], by_start);
    size_t last = 0;
    for (size_t i = 1; i < stage->busy_count; i++) {
        struct muster_parsed_interval span = stage->busy[i];
        if (span.start_ns > stage->busy[last].end_ns) {
            stage->busy[++last] = span;
        } else if (span.end_ns > stage->busy[last].end_ns) {
            stage->busy[last].end_ns = span.end_ns;
        }
    }
    stage->busy_count = last + 1;
    for (size_t i = 0; i < stage->busy_count; i++) {
        stage->busy_ns += stage->busy[i].end_ns - stage->busy[i].start_ns;
    }
}

double muster_parsed_overlap(const struct muster_parsed_stage *one,
                             const struct muster_parsed_stage *other)
{
    int64_t shared_ns = 0;
    size_t i = 0;
    size_t j = 0;
    while (i < one->busy_count && j < other->busy_count) {
        const struct muster_parsed_interval *left = &one->busy[i];
        const struct muster_parsed_interval *right = &other->busy[j];
        int64_t start_ns = left->start_ns > right->start_ns ? left->start_ns : right->start_ns;
        int64_t end_ns = left->end_ns < right->end_ns ? left->end_ns : right->end_ns;
        shared_ns += end_ns > start_ns ? end_ns - start_ns : 0;
        i += left->end_ns == end_ns;
        j += right->end_ns == end_ns;
    }
    return one->busy_ns > 0 ? (double)shared_ns / (double)one->busy_ns : 0;
}

/* Beginning and end --------------------------------------------------------------------------- */

static int by_number(const void *one, const void *other)
{
    uint32_t left = ((const struct muster_parsed_track *)one)->number;
    uint32_t right = ((const struct muster_parsed_track *)other)->number;
    return (left > right) - (left < right);
}

muster_status muster_parsed_timeline_init(const char *path,
                                          struct muster_parsed_timeline *ret_timeline)
{
    struct muster_parsed_timeline timeline = {.rank = 0};
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return muster_error_errno(MUSTER_INVALID, "%s", path);
    }
    muster_status status = parse_file(file, path, &timeline);
    (void)fclose(file);
    if (status != MUSTER_OK) {
        muster_parsed_timeline_finish(&timeline);
        return status;
    }
    for (int i = 0; i < MUSTER_TIMELINE_STAGES; i++) {
        merge_intervals(&timeline.stages[i]);
    }
    if (timeline.track_count > 0) {
        qsort(timeline.tracks, timeline.track_count, sizeof timeline.tracks[0], by_number);
    }
    *ret_timeline = timeline;
    return MUSTER_OK;
}

void muster_parsed_timeline_finish(struct muster_parsed_timeline *timeline)
{
    for (int i = 0; i < MUSTER_TIMELINE_STAGES; i++) {
        free(timeline->stages[i].busy);
    }
    free(timeline->events);
    free(timeline->tracks);
    *timeline = (struct muster_parsed_timeline){.rank = 0};
}
