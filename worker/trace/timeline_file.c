/* Prints events as JSON, chooses their tracks, and writes them so that the file can always be read.
 */
#include "worker/trace/timeline_file.h"

#include "worker/base/epoch.h"
#include "worker/base/fork_guard.h"
#include "worker/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PAGE_BYTES = 4096,       /* the smallest page: the kernel writes pages as a whole */
    EVENT_MAX_BYTES = 1024,  /* less than a page: an event does not cross one */
    RESERVE_BYTES = 8 * 1024 /* of the bound, for the mark that it is reached */
};

static const char list_end[] = "\n]\n";

/* Writing ------------------------------------------------------------------------------------- */

/* The job continues without a timeline. */
static bool end_file(struct muster_timeline_file *file, const char *what)
{
    muster_log(MUSTER_LOG_WARN, "timeline %s: %s; nothing more is recorded", file->path, what);
    muster_fork_guard_close(file->fd);
    file->fd = -1;
    return false;
}

/* A write has failed. The events of earlier writes are whole. The failed write may have overwritten
 * the end of the list, so that is written again. */
static bool end_after_error(struct muster_timeline_file *file, int error)
{
    if (file->at == 0) {
        (void)unlink(file->path);
    } else if (pwrite(file->fd, list_end, strlen(list_end), (off_t)file->at) > 0 &&
               ftruncate(file->fd, (off_t)(file->at + strlen(list_end))) != 0) {
        muster_log(MUSTER_LOG_WARN, "timeline %s: %s; it cannot be truncated", file->path,
                   strerror(errno));
    }
    return end_file(file, strerror(error));
}

bool muster_timeline_file_flush(struct muster_timeline_file *file)
{
    if (file->fd < 0) {
        return false;
    }
    memcpy(file->buffer + file->used, list_end, strlen(list_end));
    size_t size = file->used + strlen(list_end);
    size_t done = 0;
    while (file->used > 0 && done < size) {
        ssize_t written =
            pwrite(file->fd, file->buffer + done, size - done, (off_t)(file->at + done));
        if (written < 0 && errno != EINTR) {
            return end_after_error(file, errno);
        }
        done += written > 0 ? (size_t)written : 0;
    }
    file->at += file->used;
    file->used = 0;
    return true;
}

/* Appends an event, with the comma before it. Blanks fill up the page if the event does not fit. */
static bool append(struct muster_timeline_file *file, const char *text, size_t size)
{
    size_t room = PAGE_BYTES - (file->at + file->used) % PAGE_BYTES;
    size_t blank = size > room ? room : 0;
    memset(file->buffer + file->used, ' ', blank);
    memcpy(file->buffer + file->used + blank, text, size);
    file->used += blank + size;
    return file->used < MUSTER_TIMELINE_BUFFER_BYTES || muster_timeline_file_flush(file);
}

static bool end_at_bound(struct muster_timeline_file *file, int64_t now_ns)
{
    const struct muster_timeline_mark mark = {.name = "the file is full: nothing more is recorded",
                                              .at_ns = now_ns};
    file->bytes_max += RESERVE_BYTES;
    if (!muster_timeline_file_mark(file, &mark) || !muster_timeline_file_flush(file)) {
        return false;
    }
    return end_file(file, "it is full");
}

/* Appends an event, or ends the file if it would exceed its bound. */
static bool append_event(struct muster_timeline_file *file, int64_t now_ns, const char *text)
{
    char whole[EVENT_MAX_BYTES];
    int size = snprintf(whole, sizeof whole, ",\n%s", text);
    if (file->fd < 0 || size < 0 || (size_t)size >= sizeof whole) {
        return file->fd >= 0;
    }
    if (file->at + file->used + (size_t)size + RESERVE_BYTES > file->bytes_max) {
        return end_at_bound(file, now_ns);
    }
    return append(file, whole, (size_t)size);
}

/* Opening ------------------------------------------------------------------------------------- */

static bool write_head(struct muster_timeline_file *file)
{
    char text[EVENT_MAX_BYTES];
    int size = snprintf(text, sizeof text,
                        "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%" PRIu32
                        ",\"tid\":0,\"args\":{\"name\":\"rank %" PRIu32 " (process %d)\"}}",
                        file->rank, file->rank, (int)getpid());
    return append(file, text, (size_t)size);
}

bool muster_timeline_file_open(struct muster_timeline_file *file, const char *prefix,
                               uint64_t generation, uint32_t rank)
{
    file->fd = -1;
    file->rank = rank;
    /* With room for the event that fills the buffer, and for the end of the list. */
    file->buffer = malloc(MUSTER_TIMELINE_BUFFER_BYTES + PAGE_BYTES + sizeof list_end);
    if (file->buffer == NULL || asprintf(&file->path, "%s.%" PRIu64 ".%" PRIu32 ".json", prefix,
                                         muster_epoch_shown(generation), rank) < 0) {
        file->path = NULL;
        muster_log(MUSTER_LOG_WARN, "timeline %s: out of memory; nothing is recorded", prefix);
        return false;
    }
    /* Always a new file, never one that a symbolic link leads to or that another process still
     * writes.
     */
    (void)unlink(file->path);
    file->fd = MUSTER_GUARDED(open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file->fd < 0) {
        muster_log(MUSTER_LOG_WARN, "timeline %s: %s; nothing is recorded", file->path,
                   strerror(errno));
        return false;
    }
    return write_head(file);
}

void muster_timeline_file_finish(struct muster_timeline_file *file)
{
    if (file->path != NULL && file->fd >= 0 && muster_timeline_file_flush(file)) {
        muster_fork_guard_close(file->fd);
    }
    for (int stage = 0; stage < MUSTER_TIMELINE_STAGES; stage++) {
        for (uint32_t i = 0; i < file->track_counts[stage]; i++) {
            free(file->tracks[stage][i].ends_ns);
        }
        free(file->tracks[stage]);
    }
    free(file->named);
    free(file->buffer);
    free(file->path);
    *file = (struct muster_timeline_file){.fd = -1};
}

/* Tracks -------------------------------------------------------------------------------------- */

/* The tracks of a stage and peer; NULL: out of memory. */
static struct muster_timeline_tracks *find_tracks(struct muster_timeline_file *file,
                                                  enum muster_timeline_stage stage, uint32_t index)
{
    uint32_t count = file->track_counts[stage];
    if (index >= count) {
        struct muster_timeline_tracks *grown =
            realloc(file->tracks[stage], (index + (size_t)1) * sizeof *grown);
        if (grown == NULL) {
            return NULL;
        }
        memset(grown + count, 0, (index + (size_t)1 - count) * sizeof *grown);
        file->tracks[stage] = grown;
        file->track_counts[stage] = index + 1;
    }
    return &file->tracks[stage][index];
}

/* The first track on which the event overlaps no other. Events come in the order of their ends, so
 * an event overlaps if it starts before the last end. */
static uint32_t find_track(struct muster_timeline_tracks *tracks, int64_t start_ns, bool *ret_new)
{
    *ret_new = false;
    for (uint32_t i = 0; i < tracks->count; i++) {
        if (tracks->ends_ns[i] <= start_ns) {
            return i;
        }
    }
    int64_t *grown = tracks->count < MUSTER_TIMELINE_TRACKS_MAX
                         ? realloc(tracks->ends_ns, (tracks->count + (size_t)1) * sizeof *grown)
                         : NULL;
    if (grown == NULL) {
        return tracks->count > 0 ? tracks->count - 1 : 0; /* events overlap then */
    }
    grown[tracks->count] = INT64_MIN;
    tracks->ends_ns = grown;
    *ret_new = true;
    return tracks->count++;
}

/* Adds the two metadata events of a new track: its name, a string of JSON, and its place among the
 * tracks. */
static bool add_track(struct muster_timeline_file *file, uint32_t number, const char *name)
{
    char text[EVENT_MAX_BYTES];
    (void)snprintf(text, sizeof text,
                   "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
                   ",\"args\":{\"name\":%s}}",
                   file->rank, number, name);
    if (!append_event(file, 0, text)) {
        return false;
    }
    (void)snprintf(text, sizeof text,
                   "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%" PRIu32
                   ",\"tid\":%" PRIu32 ",\"args\":{\"sort_index\":%" PRIu32 "}}",
                   file->rank, number, number);
    return append_event(file, 0, text);
}

/* "send to 4 (2)" */
static bool name_track(struct muster_timeline_file *file, uint32_t number,
                       const struct muster_timeline_event *event, uint32_t track)
{
    static const char *const links[MUSTER_TIMELINE_STAGES] = {
        [MUSTER_TIMELINE_SEND] = "to",
        [MUSTER_TIMELINE_SEND_SEGMENT] = "to",
        [MUSTER_TIMELINE_WRITE] = "to",
        [MUSTER_TIMELINE_RECEIVE] = "from",
        [MUSTER_TIMELINE_RECEIVE_SEGMENT] = "from",
        [MUSTER_TIMELINE_REDUCE] = "from",
    };
    char peer_text[32] = "";
    char track_text[32] = "";
    char text[128];
    if (event->peer != MUSTER_TIMELINE_NO_PEER) {
        (void)snprintf(peer_text, sizeof peer_text, " %s %" PRIu32,
                       links[event->stage] != NULL ? links[event->stage] : "for", event->peer);
    }
    if (track > 0) {
        (void)snprintf(track_text, sizeof track_text, " (%" PRIu32 ")", track + 1);
    }
    (void)snprintf(text, sizeof text, "\"%s%s%s\"", muster_timeline_stage_name(event->stage),
                   peer_text, track_text);
    return add_track(file, number, text);
}

/* Chooses the number of the event's track. Viewers sort tracks by their numbers. */
static bool choose_track(struct muster_timeline_file *file,
                         const struct muster_timeline_event *event, int64_t end_ns,
                         uint32_t *ret_number)
{
    uint32_t index = event->peer < MUSTER_TIMELINE_PEERS_MAX ? event->peer + 1 : 0;
    uint32_t first = ((uint32_t)event->stage * (MUSTER_TIMELINE_PEERS_MAX + 1) + index) *
                         MUSTER_TIMELINE_TRACKS_MAX +
                     1;
    struct muster_timeline_tracks *tracks = find_tracks(file, event->stage, index);
    *ret_number = first;
    if (tracks == NULL) {
        return true;
    }
    bool is_new = false;
    uint32_t track = find_track(tracks, event->start_ns, &is_new);
    if (track < tracks->count) {
        tracks->ends_ns[track] = end_ns;
    }
    *ret_number = first + track;
    return !is_new || name_track(file, first + track, event, track);
}

/* Events -------------------------------------------------------------------------------------- */

/* Prints nanoseconds as microseconds. */
#define US_FORMAT "%" PRId64 ".%03" PRId64
#define US_ARGUMENTS(ns) (ns) / 1000, (ns) % 1000

/* Prints the arguments that depend on the stage. The text has room for them. */
static void print_details(const struct muster_timeline_file *file,
                          const struct muster_timeline_event *event, char *text, size_t size)
{
    int used = 0;
    if (event->sequence != 0) {
        used = snprintf(text, size, ",\"context\":%" PRIu32 ",\"sequence\":%" PRIu64,
                        event->context, event->sequence);
    }
    if (event->stage == MUSTER_TIMELINE_CALL) {
        char name[MUSTER_TIMELINE_NAME_SIZE] = "";
        if (file->print_algorithm != NULL && event->algorithm != MUSTER_TIMELINE_NO_ALGORITHM) {
            file->print_algorithm(event->algorithm, name, sizeof name);
        }
        (void)snprintf(text + used, size - (size_t)used, ",\"algorithm\":\"%s\"", name);
    } else if (event->peer != MUSTER_TIMELINE_NO_PEER) {
        used += snprintf(text + used, size - (size_t)used,
                         ",\"peer\":%" PRIu32 ",\"lane\":%" PRIu32 ",\"message\":%" PRIu32,
                         event->peer, event->lane, event->message);
        if (event->stage == MUSTER_TIMELINE_SEND || event->stage == MUSTER_TIMELINE_RECEIVE) {
            (void)snprintf(text + used, size - (size_t)used, ",\"waited_us\":" US_FORMAT,
                           US_ARGUMENTS(event->waited_ns));
        } else {
            (void)snprintf(text + used, size - (size_t)used, ",\"offset\":%" PRIu64,
                           event->offset_bytes);
        }
    }
}

bool muster_timeline_file_event(struct muster_timeline_file *file,
                                const struct muster_timeline_event *event, int64_t end_ns)
{
    char details[EVENT_MAX_BYTES / 2] = "";
    char text[EVENT_MAX_BYTES];
    uint32_t number = 0;
    if (!choose_track(file, event, end_ns, &number)) {
        return false;
    }
    const char *stage = muster_timeline_stage_name(event->stage);
    int64_t lasted_ns = end_ns - event->start_ns;
    print_details(file, event, details, sizeof details);
    (void)snprintf(text, sizeof text,
                   "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%" PRIu32
                   ",\"tid\":%" PRIu32 ",\"ts\":" US_FORMAT ",\"dur\":" US_FORMAT
                   ",\"args\":{\"bytes\":%" PRIu64 "%s}}",
                   event->name != NULL ? event->name : stage, stage, file->rank, number,
                   US_ARGUMENTS(event->start_ns), US_ARGUMENTS(lasted_ns), event->bytes, details);
    return append_event(file, end_ns, text);
}

/* Tensors ------------------------------------------------------------------------------------- */

/* The track of a name. Viewers sort tracks by their numbers. The first event of a track names it.
 */
static bool choose_tensor_track(struct muster_timeline_file *file, uint32_t name, const char *text,
                                uint32_t *ret_number)
{
    *ret_number =
        MUSTER_TIMELINE_STAGES * (MUSTER_TIMELINE_PEERS_MAX + 1) * MUSTER_TIMELINE_TRACKS_MAX + 1 +
        name;
    if (name >= file->named_count) {
        uint32_t count = 2 * name + 64;
        bool *grown = realloc(file->named, count * sizeof *grown);
        if (grown == NULL) {
            return true;
        }
        memset(grown + file->named_count, 0, (count - file->named_count) * sizeof *grown);
        file->named = grown;
        file->named_count = count;
    }
    bool is_new = !file->named[name];
    file->named[name] = true;
    return !is_new || add_track(file, *ret_number, text);
}

/* A stage that lies within the tensor's span. */
struct part {
    enum muster_timeline_stage stage;
    uint32_t track;
    int64_t start_ns, end_ns;
    const char *details;
};

static bool add_part(struct muster_timeline_file *file, const struct part *part,
                     const struct muster_timeline_tensor *tensor)
{
    char text[EVENT_MAX_BYTES];
    const char *stage = muster_timeline_stage_name(part->stage);
    (void)snprintf(text, sizeof text,
                   "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%" PRIu32
                   ",\"tid\":%" PRIu32 ",\"ts\":" US_FORMAT ",\"dur\":" US_FORMAT
                   ",\"args\":{\"bytes\":%" PRIu64 "%s}}",
                   stage, stage, file->rank, part->track, US_ARGUMENTS(part->start_ns),
                   US_ARGUMENTS(part->end_ns - part->start_ns), tensor->bytes, part->details);
    return append_event(file, part->end_ns, text);
}

/* Prints which rank was last, and what the tensor was fused with: those of the same operation. The
 * text has room for them. */
static void print_tensor_details(const struct muster_timeline_tensor *tensor, char *text,
                                 size_t size)
{
    int used = 0;
    if (tensor->started_ns != 0) {
        used = snprintf(text, size,
                        ",\"context\":%" PRIu32 ",\"sequence\":%" PRIu64 ",\"fused\":%" PRIu32,
                        tensor->context, tensor->sequence, tensor->fused);
    }
    if (tensor->last_rank != MUSTER_TIMELINE_NO_PEER) {
        (void)snprintf(text + used, size - (size_t)used, ",\"last_rank\":%" PRIu32,
                       tensor->last_rank);
    }
}

bool muster_timeline_file_tensor(struct muster_timeline_file *file,
                                 const struct muster_timeline_tensor *tensor, const char *name)
{
    char details[128] = "";
    char text[EVENT_MAX_BYTES];
    uint32_t track = 0;
    if (!choose_tensor_track(file, tensor->name, name, &track)) {
        return false;
    }
    print_tensor_details(tensor, details, sizeof details);
    (void)snprintf(text, sizeof text,
                   "{\"name\":%s,\"cat\":\"tensor\",\"ph\":\"X\",\"pid\":%" PRIu32
                   ",\"tid\":%" PRIu32 ",\"ts\":" US_FORMAT ",\"dur\":" US_FORMAT
                   ",\"args\":{\"bytes\":%" PRIu64 "%s}}",
                   name, file->rank, track, US_ARGUMENTS(tensor->submitted_ns),
                   US_ARGUMENTS(tensor->done_ns - tensor->submitted_ns), tensor->bytes, details);
    if (!append_event(file, tensor->done_ns, text)) {
        return false;
    }
    const struct part pending = {MUSTER_TIMELINE_TENSOR_PENDING, track, tensor->submitted_ns,
                                 tensor->ready_ns, ""};
    const struct part on_wire = {MUSTER_TIMELINE_TENSOR_ON_WIRE, track, tensor->started_ns,
                                 tensor->done_ns, details};
    return (tensor->ready_ns == 0 || add_part(file, &pending, tensor)) &&
           (tensor->started_ns == 0 || add_part(file, &on_wire, tensor));
}

/* Marks --------------------------------------------------------------------------------------- */

bool muster_timeline_file_mark(struct muster_timeline_file *file,
                               const struct muster_timeline_mark *mark)
{
    char details[EVENT_MAX_BYTES / 2] = "";
    char text[EVENT_MAX_BYTES];
    int used = 0;
    for (int i = 0; i < 3 && mark->names[i] != NULL; i++) {
        used += snprintf(details + used, sizeof details - (size_t)used, "%s\"%s\":%" PRIu64,
                         i > 0 ? "," : "", mark->names[i], mark->numbers[i]);
    }
    (void)snprintf(text, sizeof text,
                   "{\"name\":\"%s\",\"ph\":\"i\",\"s\":\"p\",\"pid\":%" PRIu32
                   ",\"tid\":0,\"ts\":" US_FORMAT ",\"args\":{%s}}",
                   mark->name, file->rank, US_ARGUMENTS(mark->at_ns), details);
    return append_event(file, mark->at_ns, text);
}
