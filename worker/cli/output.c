/* What workers print: whole lines with a prefix, from many pipes to two outputs, without blocking.
 */
#include "worker/cli/output.h"

#include "worker/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COLOURS = 6, FIRST_COLOUR = 31, PRINT_MAX_BYTES = 1024 };

static bool colour_is_wanted(int fd)
{
    const char *no_color = getenv("NO_COLOR"); /* https://no-color.org */
    const char *terminal = getenv("TERM");
    return isatty(fd) == 1 && (no_color == NULL || no_color[0] == '\0') &&
           (terminal == NULL || strcmp(terminal, "dumb") != 0);
}

muster_status muster_sink_init(struct muster_sink *sink, int fd)
{
    *sink = (struct muster_sink){.fd = fd, .own_fd = -1, .terminal = colour_is_wanted(fd)};
    sink->buffer = malloc(MUSTER_SINK_BYTES);
    if (sink->buffer == NULL) {
        return muster_error_set(MUSTER_FATAL, "output: out of memory");
    }
    struct stat about;
    sink->regular = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    if (!sink->regular) {
        /* O_NONBLOCK on fd itself would change it for every process that shares it. */
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        sink->own_fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    }
    return MUSTER_OK;
}

void muster_sink_finish(struct muster_sink *sink)
{
    if (sink->buffer == NULL) {
        return;
    }
    if (sink->own_fd >= 0) {
        close(sink->own_fd);
    }
    free(sink->buffer);
    *sink = (struct muster_sink){.fd = -1, .own_fd = -1};
}

static int sink_fd(const struct muster_sink *sink)
{
    return sink->own_fd >= 0 ? sink->own_fd : sink->fd;
}

int muster_sink_poll_fd(const struct muster_sink *sink)
{
    return sink->end > sink->start ? sink_fd(sink) : -1;
}

static bool can_write(const struct muster_sink *sink)
{
    struct pollfd one = {.fd = sink_fd(sink), .events = POLLOUT};
    return sink->regular || poll(&one, 1, 0) == 1;
}

void muster_sink_flush(struct muster_sink *sink)
{
    while (sink->end > sink->start && can_write(sink)) {
        size_t size_bytes = sink->end - sink->start;
        if (sink->own_fd < 0 && !sink->regular && size_bytes > PIPE_BUF) {
            size_bytes = PIPE_BUF; /* after POLLOUT a write of this size does not block */
        }
        ssize_t written = write(sink_fd(sink), sink->buffer + sink->start, size_bytes);
        if (written > 0) {
            sink->start += (size_t)written;
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            sink->broken = true;
            (void)snprintf(sink->broken_why, sizeof sink->broken_why, "%s", strerror(errno));
            sink->start = sink->end;
        }
    }
    if (sink->start == sink->end) {
        sink->start = sink->end = 0;
    }
}

bool muster_sink_wants_more(const struct muster_sink *sink)
{
    return sink->end - sink->start <= MUSTER_SINK_BYTES / 2;
}

/* False: there is no room. */
static bool append(struct muster_sink *sink, const char *bytes, size_t size_bytes)
{
    if (sink->broken) {
        return true;
    }
    if (MUSTER_SINK_BYTES - sink->end < size_bytes) {
        memmove(sink->buffer, sink->buffer + sink->start, sink->end - sink->start);
        sink->end -= sink->start;
        sink->start = 0;
    }
    if (MUSTER_SINK_BYTES - sink->end < size_bytes) {
        return false;
    }
    memcpy(sink->buffer + sink->end, bytes, size_bytes);
    sink->end += size_bytes;
    return true;
}

void muster_sink_print(struct muster_sink *sink, const char *format, ...)
{
    char line[PRINT_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length < 0) {
        return;
    }
    size_t used = (size_t)length < sizeof line - 2 ? (size_t)length : sizeof line - 2;
    line[used++] = '\n';
    (void)append(sink, line, used);
    muster_sink_flush(sink);
}

void muster_sink_drain(struct muster_sink *sink, int64_t deadline_ns)
{
    muster_sink_flush(sink);
    while (sink->end > sink->start && muster_clock_left_ms(deadline_ns) > 0) {
        struct pollfd one = {.fd = sink_fd(sink), .events = POLLOUT};
        (void)poll(&one, 1, muster_clock_left_ms(deadline_ns));
        muster_sink_flush(sink);
    }
}

void muster_stream_init(struct muster_stream *stream, int fd, struct muster_sink *sink,
                        const char *name, unsigned colour)
{
    *stream = (struct muster_stream){.fd = fd, .sink = sink};
    if (name == NULL) {
        return;
    }
    if (sink->terminal) {
        (void)snprintf(stream->prefix, sizeof stream->prefix, "\033[%um[%s]\033[0m ",
                       FIRST_COLOUR + colour % COLOURS, name);
    } else {
        (void)snprintf(stream->prefix, sizeof stream->prefix, "[%s] ", name);
    }
}

void muster_stream_finish(struct muster_stream *stream)
{
    if (stream->fd >= 0) {
        close(stream->fd);
    }
    free(stream->line);
    *stream = (struct muster_stream){.fd = -1};
}

muster_status muster_stream_read(struct muster_stream *stream)
{
    if (stream->fd < 0 || stream->used == MUSTER_LINE_MAX_BYTES) {
        return MUSTER_OK;
    }
    if (stream->line == NULL) {
        stream->line = malloc(MUSTER_LINE_MAX_BYTES);
    }
    if (stream->line == NULL) {
        return muster_error_set(MUSTER_FATAL, "output: out of memory");
    }
    ssize_t got =
        read(stream->fd, stream->line + stream->used, MUSTER_LINE_MAX_BYTES - stream->used);
    if (got > 0) {
        stream->used += (size_t)got;
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(stream->fd);
        stream->fd = -1;
    }
    return MUSTER_OK;
}

/* Bytes of the first whole line, with its newline; 0: no line is complete yet. */
static size_t first_line(const struct muster_stream *stream, size_t start)
{
    size_t left = stream->used - start;
    const char *newline = left > 0 ? memchr(stream->line + start, '\n', left) : NULL;
    if (newline != NULL) {
        return (size_t)(newline - (stream->line + start)) + 1;
    }
    return left == MUSTER_LINE_MAX_BYTES || stream->fd < 0 ? left : 0;
}

bool muster_stream_pump(struct muster_stream *stream)
{
    size_t start = 0;
    size_t length = first_line(stream, start);
    while (length > 0 && muster_sink_wants_more(stream->sink)) {
        const char *line = stream->line + start;
        (void)append(stream->sink, stream->prefix, strlen(stream->prefix));
        (void)append(stream->sink, line, length);
        if (line[length - 1] != '\n') {
            (void)append(stream->sink, "\n", 1);
        }
        start += length;
        length = first_line(stream, start);
    }
    if (start > 0) {
        memmove(stream->line, stream->line + start, stream->used - start);
        stream->used -= start;
    }
    return length > 0;
}
