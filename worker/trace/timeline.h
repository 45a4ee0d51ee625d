/*
 * The floor: a timeline of what a member does, in a file for chrome://tracing, Perfetto and
 * `muster timeline`. It records from its creation on, or when it is started, until it is stopped.
 *
 * Code that has done a piece of work adds an event, which is copied into a ring in memory. The
 * timeline's own thread writes the events to the file, 100 ms after the first one or when the ring
 * is half full. Code that adds never waits for the file: events that the ring has no room for are
 * counted and dropped, and a file that cannot be written ends the timeline with one line of the
 * log.
 *
 * The file is a list of Chrome trace events, one a line (timeline_file.h). An event costs two reads
 * of the clock and a copy into memory. Without a timeline (NULL) nothing is done, and no clock is
 * read.
 */
#ifndef MUSTER_WORKER_TRACE_TIMELINE_H
#define MUSTER_WORKER_TRACE_TIMELINE_H

#include "worker/base/clock.h"
#include "worker/base/status.h"
#include "worker/trace/timeline_event.h"

#include <stdbool.h>

struct muster_timeline_options {
    /* Copied. The file is PREFIX.GENERATION.RANK.json, of the first generation and of the rank in
     * it; an older file is replaced. NULL: nothing is recorded until the timeline is started. */
    const char *prefix;
    bool startable; /* without a prefix, too, there is a timeline */
    /* Prints the name of an algorithm; called by the timeline's thread. NULL: names stay empty. */
    void (*print_algorithm)(size_t algorithm, char *ret_name, size_t size);
    uint64_t file_bytes_max; /* 0: 256 MiB */
    uint32_t ring_events;    /* 0: 32,768 */
};

struct muster_timeline;

/* NULL if the prefix is NULL and it need not be startable, or if there is no memory or no thread,
 * which is logged. */
struct muster_timeline *muster_timeline_create(const struct muster_timeline_options *options);

/* Writes the events that were added, and closes the file. No other thread may add now. Accepts
 * NULL. */
void muster_timeline_destroy(struct muster_timeline *timeline);

/* Records from now on, in a new file of this prefix, if a generation has begun that of the present
 * rank. MUSTER_INVALID: the timeline records already, or the file cannot be made; MUSTER_FATAL: no
 * memory or no thread. Any thread. */
MUSTER_CHECKED muster_status muster_timeline_start(struct muster_timeline *timeline,
                                                   const char *prefix);
/* Writes the events that were added, and closes the file. Later events are ignored until it is
 * started again. MUSTER_INVALID: it does not record. Any thread. */
MUSTER_CHECKED muster_status muster_timeline_stop(struct muster_timeline *timeline);

/* Whether events are recorded now. Accepts NULL. Any thread. */
bool muster_timeline_records(const struct muster_timeline *timeline);

/* Marks where a generation begins. The first one opens the file. Accepts NULL. Any thread. */
void muster_timeline_begin(struct muster_timeline *timeline, uint64_t generation, uint32_t rank,
                           uint32_t size);

/* The start time of an event; 0 without a timeline. */
static inline int64_t muster_timeline_clock(const struct muster_timeline *timeline)
{
    return timeline != NULL ? muster_clock_ns() : 0;
}

/* Adds an event that ends now. Any thread, with or without locks held: the timeline's own lock is
 * the last in the order. */
void muster_timeline_add(struct muster_timeline *timeline,
                         const struct muster_timeline_event *event);

/* The number by which records name a tensor, the same for the same name; 0: there is no timeline or
 * no memory, and the tensor is recorded without a name. It takes a lock and may allocate: call it
 * once for a name. Any thread. */
uint32_t muster_timeline_tensor_name(struct muster_timeline *timeline, const char *name);

/* The time of a submission; 0: the tensor need not be recorded, since nothing is, or since 1,000
 * have been within a tenth of a second. So that a program with very many small tensors is not
 * slowed down, the rest of them is only counted. Accepts NULL. Any thread. */
int64_t muster_timeline_tensor_clock(const struct muster_timeline *timeline);

/* Adds the lives of the tensors that one operation carried. Those whose submission has no time are
 * counted as missing. Any thread, as above.
 * muster_timeline_miss_tensors() only counts them, and takes no lock. */
void muster_timeline_add_tensors(struct muster_timeline *timeline,
                                 const struct muster_timeline_tensor *tensors, size_t count);
void muster_timeline_miss_tensors(struct muster_timeline *timeline, uint64_t count);

/* The operation that an event belongs to: its number within its context, from 1; 0: none. */
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
                                                    .peer = MUSTER_TIMELINE_NO_PEER,
                                                    .start_ns = start_ns,
                                                    .bytes = bytes,
                                                    .sequence = operation.sequence,
                                                    .context = operation.context};
        muster_timeline_add(timeline, &event);
    }
}

#endif
