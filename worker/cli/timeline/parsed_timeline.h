/*
 * muster timeline: the contents of a timeline's file, and how long its stages overlapped.
 *
 * Times are nanoseconds of the clock of the host on which the file was written.
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

/* One span of the file. */
struct muster_parsed_event {
    struct muster_parsed_interval span;
    uint64_t bytes;
    uint32_t track; /* the number of the track that it is shown on */
    uint32_t context;
    uint64_t sequence; /* of the operation, in its context; 0: none */
    enum muster_timeline_stage stage;
};

struct muster_parsed_track {
    uint32_t number;
    char name[MUSTER_PARSED_NAME_SIZE]; /* printable; "": no name */
};

/* All spans of one stage. */
struct muster_parsed_stage {
    uint64_t spans, bytes;
    int64_t total_ns; /* the sum of their durations */
    /* When at least one span was in progress: overlapping spans merged, in the order of time. */
    struct muster_parsed_interval *busy; /* [busy_count] */
    size_t busy_count, busy_capacity;
    int64_t busy_ns;
};

struct muster_parsed_timeline {
    uint32_t rank; /* of the member in its first generation */
    uint64_t generations;
    uint64_t missing_spans;   /* spans that were not recorded, because there were too many */
    uint64_t missing_tensors; /* the same of tensors */
    int64_t start_ns, end_ns; /* of all spans */
    struct muster_parsed_stage stages[MUSTER_TIMELINE_STAGES];
    struct muster_parsed_event *events; /* [event_count], in the order of the file */
    size_t event_count, event_capacity;
    struct muster_parsed_track *tracks; /* [track_count], sorted by number */
    size_t track_count, track_capacity;
};

/* MUSTER_INVALID: the file cannot be read or is not a timeline of Muster. The text names the file
 * and the line. */
MUSTER_CHECKED muster_status
muster_parsed_timeline_init(const char *path, struct muster_parsed_timeline *ret_timeline);
void muster_parsed_timeline_finish(struct muster_parsed_timeline *timeline);

/* The share of the busy time of `one` in which `other` was busy too: 0 to 1. */
double muster_parsed_overlap(const struct muster_parsed_stage *one,
                             const struct muster_parsed_stage *other);

/* lateness.c: how late each rank was in the operations that carried tensors. No rank ends one
 * before all have begun it: who has it on the wire for the shortest time has come last. So clocks
 * of different hosts need not agree. */
struct muster_timeline_lateness {
    size_t operations; /* that are in all timelines */
    size_t last;       /* those of them to which this rank has come last */
    double late_us;    /* the median of them: how long the first rank has waited */
};
/* ret_lateness: [count] as the timelines. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_timeline_compare(const struct muster_parsed_timeline *timelines,
                                                     size_t count,
                                                     struct muster_timeline_lateness *ret_lateness);

/* What a picture shows. */
enum muster_timeline_subject {
    MUSTER_TIMELINE_LARGEST_CALL, /* the last of the largest calls of the first timeline */
    MUSTER_TIMELINE_LAST_STEP,    /* the last submissions of all tensors of the first timeline */
};

/* timeline_svg.c: draws the spans of all timelines during a call or a step. MUSTER_INVALID: a
 * timeline has no call, or no tensor; those of the others were at another time (the clocks of two
 * hosts differ); there are too many spans. */
MUSTER_CHECKED muster_status
muster_timeline_write_svg(const char *path, enum muster_timeline_subject subject,
                          const struct muster_parsed_timeline *timelines, size_t count);

#endif
