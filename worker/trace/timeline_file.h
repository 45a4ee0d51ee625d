/*
 * The file of a timeline: its events, and the rule that it can be read at every moment.
 *
 * Each write ends with whole events and the end of the list, which the next write overwrites. So
 * between writes the file is valid JSON. A process may be killed during a write, which the kernel
 * does page by page. No event crosses a page, so whole events are left, only without the end of the
 * list; the readers of such files accept that.
 *
 * Events that overlap in time would be shown one inside the other. So events of one stage and peer
 * are spread over tracks ("threads" of the format), and no two on one track overlap.
 *
 * One thread. Private to the timeline.
 */
#ifndef MUSTER_WORKER_TRACE_TIMELINE_FILE_H
#define MUSTER_WORKER_TRACE_TIMELINE_FILE_H

#include "worker/trace/timeline_event.h"

#include <stdbool.h>

enum {
    MUSTER_TIMELINE_BUFFER_BYTES = 64 * 1024,
    MUSTER_TIMELINE_TRACKS_MAX = 32, /* of one stage and peer; then events overlap */
    MUSTER_TIMELINE_PEERS_MAX = 65536,
};

/* The tracks of one stage and peer. */
struct muster_timeline_tracks {
    uint32_t count;
    int64_t *ends_ns; /* [count] end of the last event on each */
};

struct muster_timeline_file {
    char *path; /* NULL: not opened yet */
    int fd;     /* -1: closed */
    uint32_t rank;
    uint64_t bytes_max;
    void (*print_algorithm)(size_t algorithm, char *ret_name, size_t size);
    uint64_t at; /* offset of the next write: where the end of the list is */
    size_t used;
    char *buffer;
    /* By stage and peer + 1; index 0 is for events without a peer. */
    struct muster_timeline_tracks *tracks[MUSTER_TIMELINE_STAGES];
    uint32_t track_counts[MUSTER_TIMELINE_STAGES];
    /* Of tensors each name has a track, if it is among the first MUSTER_TIMELINE_NAMES_MAX. */
    bool *named; /* [named_count] by number: the track has its name */
    uint32_t named_count;
};

/* `file` has bytes_max and print_algorithm, fd -1, and zeros. Like the functions below this returns
 * false if the file cannot be written, and logs why. */
bool muster_timeline_file_open(struct muster_timeline_file *file, const char *prefix,
                               uint64_t generation, uint32_t rank);

/* Adds an event. end_ns: when it was added to the timeline. */
bool muster_timeline_file_event(struct muster_timeline_file *file,
                                const struct muster_timeline_event *event, int64_t end_ns);

/* Adds the stages of a tensor's life, one inside the other on the track of its name. name: a string
 * of JSON. */
bool muster_timeline_file_tensor(struct muster_timeline_file *file,
                                 const struct muster_timeline_tensor *tensor, const char *name);

/* A point in time, with up to three named numbers; unused names are NULL. */
struct muster_timeline_mark {
    const char *name;
    int64_t at_ns;
    const char *names[3];
    uint64_t numbers[3];
};
bool muster_timeline_file_mark(struct muster_timeline_file *file,
                               const struct muster_timeline_mark *mark);

/* Writes the buffer. */
bool muster_timeline_file_flush(struct muster_timeline_file *file);

/* Writes the buffer, closes the file, and frees what it holds. Accepts one that was never opened.
 */
void muster_timeline_file_finish(struct muster_timeline_file *file);

#endif
