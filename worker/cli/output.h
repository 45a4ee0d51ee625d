/*
 * What workers print, line by line: a stream (one worker's pipe) collects a line, a sink (our
 * standard output or error) gets whole lines with the worker's prefix. Nothing here blocks: a sink
 * that is not read fills up, streams are then not read, and the workers wait in their own write().
 *
 * One thread.
 */
#ifndef MUSTER_WORKER_CLI_OUTPUT_H
#define MUSTER_WORKER_CLI_OUTPUT_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MUSTER_LINE_MAX_BYTES = 16 * 1024, /* longer lines are continued on a new one */
    MUSTER_PREFIX_SIZE = 112,
    MUSTER_SINK_BYTES = 8 * MUSTER_LINE_MAX_BYTES,
};

struct muster_sink {
    int fd;
    int own_fd;    /* non-blocking, of our own; -1: fd itself is used, carefully */
    bool regular;  /* a file: never blocks */
    bool terminal; /* and colour is wanted */
    bool broken;   /* what it was connected to is gone; what comes is dropped */
    char broken_why[128];
    size_t start, end; /* of what waits in buffer */
    char *buffer;      /* owned [MUSTER_SINK_BYTES] */
};

struct muster_stream {
    int fd; /* owned; -1: at its end */
    struct muster_sink *sink;
    char prefix[MUSTER_PREFIX_SIZE];
    size_t used;
    char *line; /* owned [MUSTER_LINE_MAX_BYTES]; NULL until something came */
};

/* fd is borrowed. */
MUSTER_CHECKED muster_status muster_sink_init(struct muster_sink *sink, int fd);
void muster_sink_finish(struct muster_sink *sink);
/* The descriptor to poll for POLLOUT; -1 when nothing waits. */
int muster_sink_poll_fd(const struct muster_sink *sink);
/* Writes what can be written now. A write that fails makes the sink broken. */
void muster_sink_flush(struct muster_sink *sink);
/* True if streams may be read for it: it is at most half full. */
bool muster_sink_wants_more(const struct muster_sink *sink);
/* Takes one line of our own (without prefix); a full sink drops it. */
void muster_sink_print(struct muster_sink *sink, const char *format, ...) MUSTER_PRINTF(2, 3);
/* Waits until all is written or the deadline (muster_clock_ns()) has passed. */
void muster_sink_drain(struct muster_sink *sink, int64_t deadline_ns);

/* fd becomes the stream's. `name` is what stands in the prefix, "a:0"; NULL: no prefix. `colour`
 * picks one by number. */
void muster_stream_init(struct muster_stream *stream, int fd, struct muster_sink *sink,
                        const char *name, unsigned colour);
void muster_stream_finish(struct muster_stream *stream);
/* Reads once, if there is room. At the end of the pipe the descriptor is closed, and a last line
 * without a newline counts as a whole one. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_stream_read(struct muster_stream *stream);
/* Passes whole lines on while the sink wants more. False: none are left. */
bool muster_stream_pump(struct muster_stream *stream);

#endif
