/*
 * The floor: a timeline of what a member does, in a file for chrome://tracing, Perfetto and
 * `muster timeline`.
 *
 * Whoever has done a piece of work adds a span, which is copied into a ring in memory. A thread of
 * the timeline's own takes them out about every 100 ms, or when the ring is half full, and writes
 * them down. Who adds never waits for the file: what the ring has no room for is counted and left
 * out, and a file that cannot be written ends the timeline with one line of the log, and nothing
 * else.
 *
 * The file is a list of Chrome trace events, one a line. It ends with whole events at every moment,
 * and but for the moment of a write it is valid JSON.
 *
 * Without a timeline (NULL) nothing is done, and no clock is read.
 */
#ifndef MUSTER_WORKER_TRACE_TIMELINE_H
#define MUSTER_WORKER_TRACE_TIMELINE_H

#include "worker/base/clock.h"
#include "worker/trace/timeline_event.h"

struct muster_timeline_options {
    const char *prefix; /* copied; the file is PREFIX.GENERATION.RANK.json, by those that the member
                           begins with; what is there already is replaced */
    /* Writes the name of an algorithm; called by the timeline's thread. NULL: they have none. */
    void (*print_algorithm)(size_t algorithm, char *ret_name, size_t size);
    uint64_t file_bytes_max; /* 0: 256 MiB */
    uint32_t ring_events;    /* 0: 32,768 */
};

struct muster_timeline;

/* NULL if the prefix is NULL, or it cannot be made: then the log says why. */
struct muster_timeline *muster_timeline_create(const struct muster_timeline_options *options);

/* Writes what has been added, and closes the file. No other thread adds any more. Accepts NULL. */
void muster_timeline_destroy(struct muster_timeline *timeline);

/* A generation begins: shown as a mark. The first one opens the file. Accepts NULL. Any thread. */
void muster_timeline_begin(struct muster_timeline *timeline, uint64_t generation, uint32_t rank,
                           uint32_t size);

/* When a span starts; 0 without a timeline. */
static inline int64_t muster_timeline_clock(const struct muster_timeline *timeline)
{
    return timeline != NULL ? muster_clock_ns() : 0;
}

/* The span ends now. Any thread, with or without locks; takes one that is nobody else's. */
void muster_timeline_add(struct muster_timeline *timeline,
                         const struct muster_timeline_event *event);

/* Which operation an event belongs to: within its context, from 1; 0: none. */
struct muster_timeline_operation {
    uint64_t sequence;
    uint32_t context;
};

/* Adds work of this member alone, which names no peer. Inline and of plain numbers, so that without
 * a timeline no event is made. */
static inline void muster_timeline_add_local(struct muster_timeline *timeline,
                                             enum muster_timeline_stage stage, int64_t start_ns,
                                             uint64_t bytes,
                                             struct muster_timeline_operation operation)
{
    if (timeline != NULL) {
        const struct muster_timeline_event event = {.stage = stage,
                                                    .peer = MUSTER_TIMELINE_NOBODY,
                                                    .start_ns = start_ns,
                                                    .bytes = bytes,
                                                    .sequence = operation.sequence,
                                                    .context = operation.context};
        muster_timeline_add(timeline, &event);
    }
}

#endif
