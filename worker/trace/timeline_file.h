/*
 * The file of a timeline: which events stand in it, and that it can be read at every moment.
 *
 * Whatever is written ends with whole events and with the end of the list, which the next write
 * takes the place of. A process can be killed within a write, which the kernel does page by page:
 * no event crosses the border of a page, so that what is then left are whole events, only without
 * the end of the list, which readers of such files do without.
 *
 * One thread. Private to the timeline.
 */
#ifndef MUSTER_WORKER_TRACE_TIMELINE_FILE_H
#define MUSTER_WORKER_TRACE_TIMELINE_FILE_H

#include "worker/trace/timeline_event.h"

#include <stdbool.h>

enum {
    MUSTER_TIMELINE_BUFFER_BYTES = 64 * 1024,
    MUSTER_TIMELINE_LANES_MAX = 32, /* beside each other: spans of one kind and peer that overlap */
    MUSTER_TIMELINE_PEERS_MAX = 65536,
};

/* Lines that spans are shown on, so that those on one do not overlap. */
struct muster_timeline_lanes {
    uint32_t count;
    int64_t *ends_ns; /* [count] of the last span on each */
};

struct muster_timeline_file {
    char *path; /* NULL: not opened yet */
    int fd;     /* -1: closed */
    uint32_t rank;
    uint64_t bytes_max;
    void (*print_algorithm)(size_t algorithm, char *ret_name, size_t size);
    uint64_t at; /* where the buffer goes: the end of the list stands there */
    size_t used;
    char *buffer;
    /* By peer, the first for those without. */
    struct muster_timeline_lanes *lanes[MUSTER_TIMELINE_STAGES];
    uint32_t lanes_count[MUSTER_TIMELINE_STAGES];
};

/* `file` is zeroed but for what the options say. False: it cannot be written, and the log says why;
 * so for all that follow. */
bool muster_timeline_file_open(struct muster_timeline_file *file, const char *prefix,
                               uint64_t generation, uint32_t rank);

/* end_ns: when it was added. */
bool muster_timeline_file_event(struct muster_timeline_file *file,
                                const struct muster_timeline_event *event, int64_t end_ns);

/* A point in time: with up to three numbers that have names, the others' names being NULL. */
struct muster_timeline_mark {
    const char *name;
    int64_t at_ns;
    const char *words[3];
    uint64_t numbers[3];
};
bool muster_timeline_file_mark(struct muster_timeline_file *file,
                               const struct muster_timeline_mark *mark);

/* Writes what is in the buffer. */
bool muster_timeline_file_flush(struct muster_timeline_file *file);

/* Closes it, too; frees what it holds. Accepts one that was never opened. */
void muster_timeline_file_finish(struct muster_timeline_file *file);

#endif
