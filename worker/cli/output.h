/*
 * What workers print, line by line. A stream reads the pipe of one worker and collects a line. A
 * sink (the standard output or error of this process) receives whole lines with the prefix of the
 * worker. Nothing here blocks: a sink that nobody reads fills up, its streams are then no longer
 * read, and the workers block in their own write().
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
    MUSTER_LINE_MAX_BYTES = 16 * 1024, /* a longer line is continued on a new line */
    MUSTER_PREFIX_SIZE = 112,
    MUSTER_SINK_BYTES = 8 * MUSTER_LINE_MAX_BYTES,
};

struct muster_sink {
    int fd;
    int own_fd;    /* fd opened again as non-blocking; -1: not possible, fd itself is written to */
    bool regular;  /* a file, which never blocks */
    bool terminal; /* a terminal, and colours are wanted */
    bool broken;   /* a write has failed: further output is dropped */
    char broken_why[128];
    size_t start, end; /* of the unwritten bytes in buffer */
    char *buffer;      /* owned [MUSTER_SINK_BYTES] */
};

struct muster_stream {
    int fd; /* owned; -1: the end of the pipe was read */
    struct muster_sink *sink;
    char prefix[MUSTER_PREFIX_SIZE];
    size_t used;
    char *line; /* owned [MUSTER_LINE_MAX_BYTES]; NULL until something was read */
};

/* fd is borrowed. */
MUSTER_CHECKED muster_status muster_sink_init(struct muster_sink *sink, int fd);
void muster_sink_finish(struct muster_sink *sink);
/* The descriptor to poll for POLLOUT; -1: there is nothing to write. */
int muster_sink_poll_fd(const struct muster_sink *sink);
/* Writes what can be written without blocking. A write that fails makes the sink broken. */
void muster_sink_flush(struct muster_sink *sink);
/* True if its streams may be read: it is at most half full. */
bool muster_sink_wants_more(const struct muster_sink *sink);
/* Adds one line of the launcher's own, without a prefix; a full sink drops it. */
void muster_sink_print(struct muster_sink *sink, const char *format, ...) MUSTER_PRINTF(2, 3);
/* Blocks until everything is written or the deadline (muster_clock_ns()) has passed. */
void muster_sink_drain(struct muster_sink *sink, int64_t deadline_ns);

/* The stream owns fd from here on. `name` is shown in the prefix, "a:0"; NULL: no prefix. `colour`
 * is the number of a colour. */
void muster_stream_init(struct muster_stream *stream, int fd, struct muster_sink *sink,
                        const char *name, unsigned colour);
void muster_stream_finish(struct muster_stream *stream);
/* Reads once, if there is room. At the end of the pipe the descriptor is closed, and a last line
 * without a newline counts as a whole line. MUSTER_FATAL: out of memory. */
MUSTER_CHECKED muster_status muster_stream_read(struct muster_stream *stream);
/* Moves whole lines to the sink while the sink wants more. False: no whole line is left. */
bool muster_stream_pump(struct muster_stream *stream);

#endif
