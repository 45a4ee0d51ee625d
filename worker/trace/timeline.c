/* The ring of events, and the thread that writes them to the file. */
#include "worker/trace/timeline.h"

#include "worker/base/epoch.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/trace/timeline_file.h"
#include "worker/trace/timeline_names.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    RING_EVENTS = 32768,
    BATCH_EVENTS = 256,     /* removed from the ring at a time */
    TENSORS_MAX = 1000,     /* of which one write begins with fewer; the rest is counted */
    WRITE_AFTER_MS = 100,   /* since the first event that is not written */
    FILE_BYTES_MIN = 65536, /* a smaller bound is raised to this */
};
#define FILE_BYTES_MAX (UINT64_C(256) << 20)

enum record_kind { RECORD_EVENT, RECORD_TENSOR, RECORD_GENERATION };

/* An entry of the ring. */
struct record {
    enum record_kind kind;
    union {
        struct {
            struct muster_timeline_event event;
            int64_t end_ns;
        };
        struct muster_timeline_tensor tensor;
        struct generation {
            int64_t begins_ns;
            uint64_t number; /* 0: none has begun */
            uint32_t rank, size;
        } generation;
    };
};

struct muster_timeline {
    void (*print_algorithm)(size_t algorithm, char *ret_name, size_t size);
    uint64_t file_bytes_max;
    uint32_t capacity;
    atomic_bool records;             /* a thread and a file are there */
    atomic_bool wants_tensors;       /* it records, and has not had too many of them lately */
    _Atomic uint64_t missed_tensors; /* since the last batch */
    pthread_mutex_t control;         /* held while it is started or stopped; before `mutex` */
    /* While it records. */
    char *prefix;
    struct muster_timeline_file file; /* the thread's */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    struct record *ring; /* [capacity]; NULL: nothing is recorded */
    uint32_t first, count;
    uint32_t tensors; /* added since the thread wrote last */
    uint64_t dropped; /* events without room in the ring, since the last batch */
    uint64_t dropped_tensors;
    bool waiting; /* the thread waits for the first event */
    bool closing;
    bool failed;                  /* the file has ended: events are ignored */
    struct generation generation; /* the present one */
    struct muster_timeline_names names;
};

/* Adding -------------------------------------------------------------------------------------- */

static bool is_ignored_locked(const struct muster_timeline *timeline)
{
    return timeline->ring == NULL || timeline->failed;
}

static void wake_locked(struct muster_timeline *timeline)
{
    if (timeline->waiting || timeline->count >= timeline->capacity / 2) {
        timeline->waiting = false;
        (void)pthread_cond_signal(&timeline->changed);
    }
}

/* False: the ring is full. */
static bool push_locked(struct muster_timeline *timeline, const struct record *record)
{
    if (timeline->count == timeline->capacity) {
        return false;
    }
    timeline->ring[(timeline->first + timeline->count) % timeline->capacity] = *record;
    timeline->count++;
    return true;
}

static void add(struct muster_timeline *timeline, const struct record *record)
{
    AUTO_LOCK(&timeline->mutex);
    if (is_ignored_locked(timeline)) {
        return;
    }
    timeline->dropped += !push_locked(timeline, record);
    wake_locked(timeline);
}

void muster_timeline_add(struct muster_timeline *timeline,
                         const struct muster_timeline_event *event)
{
    if (timeline != NULL) {
        const struct record record = {
            .kind = RECORD_EVENT, .event = *event, .end_ns = muster_clock_ns()};
        add(timeline, &record);
    }
}

void muster_timeline_begin(struct muster_timeline *timeline, uint64_t generation, uint32_t rank,
                           uint32_t size)
{
    if (timeline != NULL) {
        const struct record record = {
            .kind = RECORD_GENERATION,
            .generation = {
                .begins_ns = muster_clock_ns(), .number = generation, .rank = rank, .size = size}};
        add(timeline, &record);
        AUTO_LOCK(&timeline->mutex);
        timeline->generation = record.generation;
    }
}

/* Tensors ------------------------------------------------------------------------------------- */

bool muster_timeline_records(const struct muster_timeline *timeline)
{
    return timeline != NULL && atomic_load_explicit(&timeline->records, memory_order_relaxed);
}

uint32_t muster_timeline_tensor_name(struct muster_timeline *timeline, const char *name)
{
    if (timeline == NULL) {
        return 0;
    }
    AUTO_LOCK(&timeline->mutex);
    return muster_timeline_names_find(&timeline->names, name);
}

int64_t muster_timeline_tensor_clock(const struct muster_timeline *timeline)
{
    bool wanted =
        timeline != NULL && atomic_load_explicit(&timeline->wants_tensors, memory_order_relaxed);
    return wanted ? muster_clock_ns() : 0;
}

void muster_timeline_miss_tensors(struct muster_timeline *timeline, uint64_t count)
{
    (void)atomic_fetch_add_explicit(&timeline->missed_tensors, count, memory_order_relaxed);
}

/* Those of one operation are recorded all or not at all, apart from those that were submitted while
 * none were wanted. */
void muster_timeline_add_tensors(struct muster_timeline *timeline,
                                 const struct muster_timeline_tensor *tensors, size_t count)
{
    if (!muster_timeline_records(timeline)) {
        return;
    }
    AUTO_LOCK(&timeline->mutex);
    if (is_ignored_locked(timeline)) {
        return;
    }
    bool wanted = timeline->tensors < TENSORS_MAX;
    uint32_t before = timeline->tensors;
    for (size_t i = 0; i < count; i++) {
        const struct record record = {.kind = RECORD_TENSOR, .tensor = tensors[i]};
        bool added = wanted && tensors[i].submitted_ns != 0 && push_locked(timeline, &record);
        timeline->tensors += added;
        timeline->dropped_tensors += !added;
    }
    if (timeline->tensors >= TENSORS_MAX) {
        atomic_store_explicit(&timeline->wants_tensors, false, memory_order_relaxed);
    }
    if (timeline->tensors > before) {
        wake_locked(timeline);
    }
}

/* The thread ---------------------------------------------------------------------------------- */

static bool write_generation(struct muster_timeline *timeline, const struct generation *begins)
{
    struct muster_timeline_file *file = &timeline->file;
    const struct muster_timeline_mark mark = {
        .name = "generation begins",
        .at_ns = begins->begins_ns,
        .names = {"generation", "rank", "size"},
        .numbers = {muster_epoch_shown(begins->number), begins->rank, begins->size}};
    if (file->path == NULL &&
        !muster_timeline_file_open(file, timeline->prefix, begins->number, begins->rank)) {
        return false;
    }
    return muster_timeline_file_mark(file, &mark);
}

/* The text of a name is never changed or moved while the timeline exists. */
static const char *find_name(struct muster_timeline *timeline, uint32_t number)
{
    AUTO_LOCK(&timeline->mutex);
    return muster_timeline_names_text(&timeline->names, number);
}

/* Events before the first generation are ignored: there is no file yet. */
static bool write_record(struct muster_timeline *timeline, const struct record *record)
{
    if (record->kind == RECORD_GENERATION) {
        return write_generation(timeline, &record->generation);
    }
    if (timeline->file.path == NULL) {
        return true;
    }
    return record->kind == RECORD_EVENT
               ? muster_timeline_file_event(&timeline->file, &record->event, record->end_ns)
               : muster_timeline_file_tensor(&timeline->file, &record->tensor,
                                             find_name(timeline, record->tensor.name));
}

/* What was left out since the last batch. */
struct missing {
    uint64_t spans, tensors;
};

static bool write_missing(struct muster_timeline *timeline, const struct missing *missing)
{
    struct muster_timeline_mark mark = {.name = "spans are missing: there were too many",
                                        .at_ns = muster_clock_ns(),
                                        .names = {"spans"},
                                        .numbers = {missing->spans}};
    if (timeline->file.path == NULL) {
        return true;
    }
    if (missing->spans > 0 && !muster_timeline_file_mark(&timeline->file, &mark)) {
        return false;
    }
    mark.name = "tensors are missing: there were too many";
    mark.names[0] = "tensors";
    mark.numbers[0] = missing->tensors;
    return missing->tensors == 0 || muster_timeline_file_mark(&timeline->file, &mark);
}

static uint32_t remove_batch(struct muster_timeline *timeline, struct record *batch,
                             struct missing *ret_missing)
{
    AUTO_LOCK(&timeline->mutex);
    uint32_t count = timeline->count < BATCH_EVENTS ? timeline->count : BATCH_EVENTS;
    for (uint32_t i = 0; i < count; i++) {
        batch[i] = timeline->ring[(timeline->first + i) % timeline->capacity];
    }
    timeline->first = (timeline->first + count) % timeline->capacity;
    timeline->count -= count;
    uint64_t missed = atomic_exchange_explicit(&timeline->missed_tensors, 0, memory_order_relaxed);
    *ret_missing = (struct missing){timeline->dropped, timeline->dropped_tensors + missed};
    timeline->dropped = 0;
    timeline->dropped_tensors = 0;
    return count;
}

/* Writes all entries of the ring. Then tensors are wanted again. */
static bool write_all(struct muster_timeline *timeline)
{
    struct record batch[BATCH_EVENTS];
    struct missing missing;
    uint32_t count = 0;
    do {
        count = remove_batch(timeline, batch, &missing);
        for (uint32_t i = 0; i < count; i++) {
            if (!write_record(timeline, &batch[i])) {
                return false;
            }
        }
        if (!write_missing(timeline, &missing)) {
            return false;
        }
    } while (count > 0);
    muster_mutex_lock(&timeline->mutex);
    timeline->tensors = 0;
    muster_mutex_unlock(&timeline->mutex);
    atomic_store_explicit(&timeline->wants_tensors, true, memory_order_relaxed);
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

/* Starting and stopping ------------------------------------------------------------------------ */

/* The thread has ended, or was not started. */
static void clear(struct muster_timeline *timeline)
{
    muster_timeline_file_finish(&timeline->file);
    AUTO_LOCK(&timeline->mutex);
    free(timeline->ring);
    free(timeline->prefix);
    timeline->ring = NULL;
    timeline->prefix = NULL;
    timeline->first = 0;
    timeline->count = 0;
    timeline->tensors = 0;
    timeline->dropped = 0;
    timeline->dropped_tensors = 0;
    atomic_store(&timeline->missed_tensors, 0);
    timeline->closing = false;
    timeline->failed = false;
}

/* If a generation has begun, its mark is the first event, and the file is opened here, so that the
 * caller learns of an error. */
static muster_status prepare(struct muster_timeline *timeline, const char *prefix)
{
    struct record *ring = calloc(timeline->capacity, sizeof *ring);
    char *copy = strdup(prefix);
    if (ring == NULL || copy == NULL) {
        free(ring);
        free(copy);
        return muster_error_set(MUSTER_FATAL, "timeline %s: no memory", prefix);
    }
    timeline->prefix = copy;
    timeline->file = (struct muster_timeline_file){.fd = -1,
                                                   .bytes_max = timeline->file_bytes_max,
                                                   .print_algorithm = timeline->print_algorithm};
    muster_mutex_lock(&timeline->mutex);
    const struct record record = {.kind = RECORD_GENERATION, .generation = timeline->generation};
    timeline->ring = ring;
    if (record.generation.number != 0) {
        (void)push_locked(timeline, &record);
    }
    muster_mutex_unlock(&timeline->mutex);
    if (record.generation.number != 0 &&
        !muster_timeline_file_open(&timeline->file, prefix, record.generation.number,
                                   record.generation.rank)) {
        return muster_error_set(MUSTER_INVALID, "timeline %s: its file cannot be made", prefix);
    }
    return MUSTER_OK;
}

muster_status muster_timeline_start(struct muster_timeline *timeline, const char *prefix)
{
    AUTO_LOCK(&timeline->control);
    if (atomic_load(&timeline->records)) {
        return muster_error_set(MUSTER_INVALID, "the timeline %s is being recorded already",
                                timeline->prefix);
    }
    muster_status status = prepare(timeline, prefix);
    if (status == MUSTER_OK && muster_thread_start(&timeline->thread, run, timeline) != 0) {
        status = muster_error_set(MUSTER_FATAL, "timeline %s: no thread", prefix);
    }
    if (status != MUSTER_OK) {
        clear(timeline);
        return status;
    }
    atomic_store(&timeline->records, true);
    atomic_store(&timeline->wants_tensors, true);
    return MUSTER_OK;
}

muster_status muster_timeline_stop(struct muster_timeline *timeline)
{
    AUTO_LOCK(&timeline->control);
    if (!atomic_load(&timeline->records)) {
        return muster_error_set(MUSTER_INVALID, "no timeline is being recorded");
    }
    atomic_store(&timeline->records, false);
    muster_mutex_lock(&timeline->mutex);
    timeline->closing = true;
    (void)pthread_cond_signal(&timeline->changed);
    muster_mutex_unlock(&timeline->mutex);
    (void)pthread_join(timeline->thread, NULL);
    atomic_store(&timeline->wants_tensors, false);
    clear(timeline);
    return MUSTER_OK;
}

/* Creating ------------------------------------------------------------------------------------ */

static void free_timeline(struct muster_timeline *timeline)
{
    muster_timeline_names_finish(&timeline->names);
    (void)pthread_cond_destroy(&timeline->changed);
    (void)pthread_mutex_destroy(&timeline->mutex);
    (void)pthread_mutex_destroy(&timeline->control);
    free(timeline);
}

/* The file is opened by the first generation. */
struct muster_timeline *muster_timeline_create(const struct muster_timeline_options *options)
{
    if (options->prefix == NULL && !options->startable) {
        return NULL;
    }
    const char *shown = options->prefix != NULL ? options->prefix : "";
    struct muster_timeline *timeline = calloc(1, sizeof *timeline);
    if (timeline == NULL) {
        muster_log(MUSTER_LOG_WARN, "timeline %s: no memory; nothing is recorded", shown);
        return NULL;
    }
    uint64_t most = options->file_bytes_max != 0 ? options->file_bytes_max : FILE_BYTES_MAX;
    muster_mutex_init(&timeline->control);
    muster_mutex_init(&timeline->mutex);
    muster_condition_init(&timeline->changed);
    timeline->file.fd = -1;
    timeline->file_bytes_max = most < FILE_BYTES_MIN ? FILE_BYTES_MIN : most;
    timeline->print_algorithm = options->print_algorithm;
    timeline->capacity = options->ring_events != 0 ? options->ring_events : RING_EVENTS;
    if (options->prefix != NULL && muster_timeline_start(timeline, options->prefix) != MUSTER_OK) {
        muster_log(MUSTER_LOG_WARN, "%s; nothing is recorded", muster_last_error());
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
    if (atomic_load(&timeline->records)) {
        muster_status status = muster_timeline_stop(timeline);
        (void)status; /* it records */
    }
    free_timeline(timeline);
}
