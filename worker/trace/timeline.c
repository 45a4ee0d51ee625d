/* The ring of events, and the thread that writes them to the file. */
#include "worker/trace/timeline.h"

#include "worker/base/epoch.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/trace/timeline_file.h"

#include <stdlib.h>
#include <string.h>

enum {
    RING_EVENTS = 32768,
    BATCH_EVENTS = 256,     /* removed from the ring at a time */
    WRITE_AFTER_MS = 100,   /* since the first event that is not written */
    FILE_BYTES_MIN = 65536, /* a smaller bound is raised to this */
};
#define FILE_BYTES_MAX (UINT64_C(256) << 20)

/* An entry of the ring: an event, or the beginning of a generation. */
struct record {
    struct muster_timeline_event event;
    int64_t end_ns;
    uint64_t generation; /* the one that begins; 0: this is an event */
    uint32_t rank, size;
};

struct muster_timeline {
    char *prefix;
    struct muster_timeline_file file; /* the thread's */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    struct record *ring; /* [capacity] */
    uint32_t capacity, first, count;
    uint64_t dropped; /* events without room in the ring, since the last batch */
    bool waiting;     /* the thread waits for the first event */
    bool closing;
    bool failed; /* the file has ended: events are ignored */
};

/* Adding -------------------------------------------------------------------------------------- */

static void add(struct muster_timeline *timeline, const struct record *record)
{
    AUTO_LOCK(&timeline->mutex);
    if (timeline->failed) {
        return;
    }
    if (timeline->count == timeline->capacity) {
        timeline->dropped++;
        return;
    }
    timeline->ring[(timeline->first + timeline->count) % timeline->capacity] = *record;
    timeline->count++;
    if (timeline->waiting || timeline->count == timeline->capacity / 2) {
        timeline->waiting = false;
        (void)pthread_cond_signal(&timeline->changed);
    }
}

void muster_timeline_add(struct muster_timeline *timeline,
                         const struct muster_timeline_event *event)
{
    if (timeline != NULL) {
        const struct record record = {.event = *event, .end_ns = muster_clock_ns()};
        add(timeline, &record);
    }
}

void muster_timeline_begin(struct muster_timeline *timeline, uint64_t generation, uint32_t rank,
                           uint32_t size)
{
    if (timeline != NULL) {
        const struct record record = {
            .end_ns = muster_clock_ns(), .generation = generation, .rank = rank, .size = size};
        add(timeline, &record);
    }
}

/* The thread ---------------------------------------------------------------------------------- */

static bool write_generation(struct muster_timeline *timeline, const struct record *record)
{
    struct muster_timeline_file *file = &timeline->file;
    const struct muster_timeline_mark mark = {
        .name = "generation begins",
        .at_ns = record->end_ns,
        .names = {"generation", "rank", "size"},
        .numbers = {muster_epoch_shown(record->generation), record->rank, record->size}};
    if (file->path == NULL &&
        !muster_timeline_file_open(file, timeline->prefix, record->generation, record->rank)) {
        return false;
    }
    return muster_timeline_file_mark(file, &mark);
}

/* Events before the first generation are ignored: there is no file yet. */
static bool write_record(struct muster_timeline *timeline, const struct record *record)
{
    if (record->generation != 0) {
        return write_generation(timeline, record);
    }
    return timeline->file.path == NULL ||
           muster_timeline_file_event(&timeline->file, &record->event, record->end_ns);
}

static bool write_dropped(struct muster_timeline *timeline, uint64_t dropped, int64_t now_ns)
{
    const struct muster_timeline_mark mark = {.name = "spans are missing: there were too many",
                                              .at_ns = now_ns,
                                              .names = {"spans"},
                                              .numbers = {dropped}};
    return dropped == 0 || timeline->file.path == NULL ||
           muster_timeline_file_mark(&timeline->file, &mark);
}

static uint32_t remove_batch(struct muster_timeline *timeline, struct record *batch,
                             uint64_t *ret_dropped)
{
    AUTO_LOCK(&timeline->mutex);
    uint32_t count = timeline->count < BATCH_EVENTS ? timeline->count : BATCH_EVENTS;
    for (uint32_t i = 0; i < count; i++) {
        batch[i] = timeline->ring[(timeline->first + i) % timeline->capacity];
    }
    timeline->first = (timeline->first + count) % timeline->capacity;
    timeline->count -= count;
    *ret_dropped = timeline->dropped;
    timeline->dropped = 0;
    return count;
}

/* Writes all entries of the ring. */
static bool write_all(struct muster_timeline *timeline)
{
    struct record batch[BATCH_EVENTS];
    uint64_t dropped = 0;
    uint32_t count = remove_batch(timeline, batch, &dropped);
    while (count > 0) {
        for (uint32_t i = 0; i < count; i++) {
            if (!write_record(timeline, &batch[i])) {
                return false;
            }
        }
        if (!write_dropped(timeline, dropped, batch[count - 1].end_ns)) {
            return false;
        }
        count = remove_batch(timeline, batch, &dropped);
    }
    return timeline->file.path == NULL || muster_timeline_file_flush(&timeline->file);
}

/* Waits until there are events to write. False: the timeline is closing, and there are none. */
static bool wait_for_events(struct muster_timeline *timeline)
{
    AUTO_LOCK(&timeline->mutex);
    while (timeline->count == 0 && !timeline->closing) {
        timeline->waiting = true;
        (void)muster_condition_wait(&timeline->changed, &timeline->mutex, MUSTER_NEVER);
    }
    timeline->waiting = false;
    int64_t until_ns = muster_clock_after_ms(WRITE_AFTER_MS);
    while (timeline->count < timeline->capacity / 2 && !timeline->closing &&
           muster_condition_wait(&timeline->changed, &timeline->mutex, until_ns)) {
    }
    return timeline->count > 0 || !timeline->closing;
}

static void *run(void *argument)
{
    struct muster_timeline *timeline = argument;
    while (wait_for_events(timeline)) {
        if (!write_all(timeline)) {
            AUTO_LOCK(&timeline->mutex);
            timeline->failed = true;
            return NULL;
        }
    }
    return NULL;
}

/* Creating ------------------------------------------------------------------------------------ */

/* Without SIGXFSZ a limit of the size of files is an error of the write. */
static bool start_thread(struct muster_timeline *timeline)
{
    return muster_thread_start(&timeline->thread, run, timeline) == 0;
}

static void free_timeline(struct muster_timeline *timeline)
{
    muster_timeline_file_finish(&timeline->file);
    (void)pthread_cond_destroy(&timeline->changed);
    (void)pthread_mutex_destroy(&timeline->mutex);
    free(timeline->ring);
    free(timeline->prefix);
    free(timeline);
}

/* The thread starts last: it uses all of the rest. The file is opened by the first generation. */
struct muster_timeline *muster_timeline_create(const struct muster_timeline_options *options)
{
    struct muster_timeline *timeline = options->prefix != NULL ? calloc(1, sizeof *timeline) : NULL;
    if (timeline == NULL) {
        return NULL;
    }
    uint64_t most = options->file_bytes_max != 0 ? options->file_bytes_max : FILE_BYTES_MAX;
    muster_mutex_init(&timeline->mutex);
    muster_condition_init(&timeline->changed);
    timeline->capacity = options->ring_events != 0 ? options->ring_events : RING_EVENTS;
    timeline->ring = calloc(timeline->capacity, sizeof *timeline->ring);
    timeline->prefix = strdup(options->prefix);
    timeline->file =
        (struct muster_timeline_file){.fd = -1,
                                      .bytes_max = most < FILE_BYTES_MIN ? FILE_BYTES_MIN : most,
                                      .print_algorithm = options->print_algorithm};
    if (timeline->ring == NULL || timeline->prefix == NULL || !start_thread(timeline)) {
        muster_log(MUSTER_LOG_WARN, "timeline %s: no memory or no thread; nothing is recorded",
                   options->prefix);
        free_timeline(timeline);
        return NULL;
    }
    return timeline;
}

void muster_timeline_destroy(struct muster_timeline *timeline)
{
    if (timeline == NULL) {
        return;
    }
    muster_mutex_lock(&timeline->mutex);
    timeline->closing = true;
    (void)pthread_cond_signal(&timeline->changed);
    muster_mutex_unlock(&timeline->mutex);
    (void)pthread_join(timeline->thread, NULL);
    free_timeline(timeline);
}
