/*
 * muster timeline: a timeline's file as it is read, and how long which kinds of work overlapped.
 *
 * Times are in nanoseconds of the clock of the host that the file was written on.
 */
#ifndef MUSTER_WORKER_CLI_TIMELINE_PARSED_TIMELINE_H
#define MUSTER_WORKER_CLI_TIMELINE_PARSED_TIMELINE_H

#include "worker/base/status.h"
#include "worker/trace/timeline.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MUSTER_PARSED_NAME_SIZE = 64 };

struct muster_parsed_interval {
    int64_t start_ns, end_ns;
};

/* As it stands in the file. */
struct muster_parsed_event {
    struct muster_parsed_interval span;
    uint64_t bytes;
    uint32_t track; /* that it is shown on; they are in the order of their numbers */
    enum muster_timeline_stage stage;
};

struct muster_parsed_track {
    uint32_t number;
    char name[MUSTER_PARSED_NAME_SIZE]; /* printable; "" if it has none */
};

/* All of one stage. */
struct muster_parsed_stage {
    uint64_t spans, bytes;
    int64_t total_ns; /* their durations added up */
    /* What is left of them when those that overlap are one: in the order of time. */
    struct muster_parsed_interval *busy; /* [busy_count] */
    size_t busy_count, busy_capacity;
    int64_t busy_ns;
};

struct muster_parsed_timeline {
    uint32_t rank; /* that the member began with */
    uint64_t generations;
    uint64_t missing_spans;   /* spans that are missing */
    int64_t start_ns, end_ns; /* of all spans */
    struct muster_parsed_stage stages[MUSTER_TIMELINE_STAGES];
    struct muster_parsed_event *events; /* [event_count] in the order of the file */
    size_t event_count, event_capacity;
    struct muster_parsed_track *tracks; /* [track_count] by number */
    size_t track_count, track_capacity;
};

/* MUSTER_INVALID: it cannot be read, or is no timeline of Muster's: the text names the file and the
 * line. */
MUSTER_CHECKED muster_status
muster_parsed_timeline_init(const char *path, struct muster_parsed_timeline *ret_timeline);
void muster_parsed_timeline_finish(struct muster_parsed_timeline *timeline);

/* For how much of the time in which one stage was busy the other was, too: 0 to 1. */
double muster_parsed_overlap(const struct muster_parsed_stage *one,
                             const struct muster_parsed_stage *other);

/* timeline_svg.c: draws what all of them did in the time of one call: the last one of the largest
 * of the first. MUSTER_INVALID: there is none, the others were not at it then (their clocks are
 * those of their hosts), or it has too many spans. */
MUSTER_CHECKED muster_status muster_timeline_write_svg(
    const char *path, const struct muster_parsed_timeline *timelines, size_t count);

#endif
