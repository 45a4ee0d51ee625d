/*
 * muster timeline: a timeline's file as it is read, and how long which kinds of work overlapped.
 *
 * Times are in nanoseconds of the clock of the host that the file was written on.
 */
#ifndef MUSTER_WORKER_CLI_TIMELINE_TIMELINE_READING_H
#define MUSTER_WORKER_CLI_TIMELINE_TIMELINE_READING_H

#include "worker/base/status.h"
#include "worker/trace/timeline.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MUSTER_READING_LINE_SIZE = 64 };

struct muster_reading_span {
    int64_t start_ns, end_ns;
};

/* As it stands in the file. */
struct muster_reading_event {
    struct muster_reading_span span;
    uint64_t bytes;
    uint32_t line; /* that it is shown on; they are in the order of their numbers */
    enum muster_timeline_stage stage;
};

struct muster_reading_line {
    uint32_t number;
    char name[MUSTER_READING_LINE_SIZE]; /* printable; "" if it has none */
};

/* All of one stage. */
struct muster_reading_stage {
    uint64_t spans, bytes;
    int64_t total_ns; /* their durations added up */
    /* What is left of them when those that overlap are one: in the order of time. */
    struct muster_reading_span *busy; /* [busy_count] */
    size_t busy_count, busy_room;
    int64_t busy_ns;
};

struct muster_reading {
    uint32_t rank; /* that the member began with */
    uint64_t generations;
    uint64_t lost;            /* spans that are missing */
    int64_t start_ns, end_ns; /* of all spans */
    struct muster_reading_stage stages[MUSTER_TIMELINE_STAGES];
    struct muster_reading_event *events; /* [event_count] in the order of the file */
    size_t event_count, event_room;
    struct muster_reading_line *lines; /* [line_count] by number */
    size_t line_count, line_room;
};

/* MUSTER_INVALID: it cannot be read, or is no timeline of Muster's: the text names the file and the
 * line. */
MUSTER_CHECKED muster_status muster_reading_init(const char *path,
                                                 struct muster_reading *ret_reading);
void muster_reading_finish(struct muster_reading *reading);

/* For how much of the time in which one stage was busy the other was, too: 0 to 1. */
double muster_reading_overlap(const struct muster_reading_stage *one,
                              const struct muster_reading_stage *other);

/* timeline_svg.c: draws what all of them did in the time of one call: the last one of the largest
 * of the first. MUSTER_INVALID: there is none, the others were not at it then (their clocks are
 * those of their hosts), or it has too many spans. */
MUSTER_CHECKED muster_status muster_timeline_write_svg(const char *path,
                                                       const struct muster_reading *readings,
                                                       size_t count);

#endif
