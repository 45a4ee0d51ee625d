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

#include <stddef.h>

enum { MUSTER_TIMELINE_NAME_SIZE = 192 }; /* of a text that an event has, with its end */

/* What kind of work; in the order in which they are shown. */
enum muster_timeline_stage {
    MUSTER_TIMELINE_CALL = 0,            /* a whole collective */
    MUSTER_TIMELINE_REGISTER = 1,        /* memory with a device */
    MUSTER_TIMELINE_SEND = 2,            /* a message, from its first byte to its last */
    MUSTER_TIMELINE_SEND_SEGMENT = 3,    /* a part of it, as the transport takes it */
    MUSTER_TIMELINE_WRITE = 4,           /* a device writes into the peer's memory */
    MUSTER_TIMELINE_RECEIVE = 5,         /* a message, from its first byte to its last */
    MUSTER_TIMELINE_RECEIVE_SEGMENT = 6, /* a part of it, until all of it is here */
    MUSTER_TIMELINE_REDUCE = 7,
    MUSTER_TIMELINE_COPY = 8,
    MUSTER_TIMELINE_GPU_COPY = 9, /* from memory of a GPU, or into it */
    MUSTER_TIMELINE_DEREGISTER = 10,
    MUSTER_TIMELINE_STAGES
};

/* "send segment". */
const char *muster_timeline_stage_name(enum muster_timeline_stage stage);

#define MUSTER_TIMELINE_NOBODY UINT32_MAX
#define MUSTER_TIMELINE_NO_ALGORITHM SIZE_MAX

/* A piece of work. It ends when it is added. */
struct muster_timeline_event {
    enum muster_timeline_stage stage;
    uint32_t peer; /* global rank; MUSTER_TIMELINE_NOBODY */
    int64_t start_ns;
    int64_t waited_ns; /* before that */
    uint64_t bytes;
    /* The operation, from 1, within its context, and which of its messages, where there is one. */
    uint64_t sequence;
    uint32_t context, lane, message;
    uint64_t offset_bytes; /* within the message */
    const char *name;      /* CALL: of the collective; static */
    size_t algorithm;      /* CALL: or MUSTER_TIMELINE_NO_ALGORITHM */
};

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

#endif
