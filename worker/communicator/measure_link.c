/*
 * Latency by messages to and fro, as schedules, so that it is that of a collective. The rate by a
 * stream: the receiver asks for one message after the other, always a few at the same time, each so
 * large that it takes a part of a millisecond at the rate seen so far, until it has seen enough. So
 * the time is bounded whatever the rate is, nothing has to be known beforehand, and no pause gives
 * a link that is shaped the time to save up for a burst; what it lets through at the beginning is
 * not counted. Those that share something count in the same time, and flow a little longer: a
 * stream that is alone at the end would find all of it free.
 */
#include "worker/communicator/measure_link.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/statistics.h"
#include "worker/base/status.h"
#include "worker/executor/executor.h"

enum {
    REPEATS = 14,
    WARM_REPEATS = 2, /* of those: the link is opened, and caches are filled */

    FLYING = MUSTER_MEASURE_FLYING,
    MESSAGES_MAX = 128,
    MESSAGE_BYTES_LEAST = 32 << 10, /* more than what a link may send without being asked */
    MESSAGE_BYTES_MAX = 256 << 10,  /* goes in one piece */
    MESSAGE_US = 250,
    WARM_BYTES = 512 << 10, /* several times what shaped links usually let through at once */
    WARM_US = 3000,
    COUNTED_BYTES = 8 << 20,
    COUNTED_US = 4000,
    SHARED_US = 20000, /* counted where all share something: a link that may save up for a burst
                          when those that share it pause is off by that much less */
    SHARED_BYTES_LEAST = 64 << 10, /* a message then: words wait behind what goes the other way */
    LINGER_US = 3000,              /* not counted then: the others may have begun a little later */
    WINDOWS = 3,
};

/* Words ---------------------------------------------------------------------------------------- */

/* Who sends. */
enum direction {
    LOWER = 1,
    UPPER = 2,
    BOTH = LOWER | UPPER,
};

static bool is_sender(const struct muster_measure_pair *pair, enum direction direction)
{
    return (direction & (pair->index == 0 ? LOWER : UPPER)) != 0;
}

static bool is_receiver(const struct muster_measure_pair *pair, enum direction direction)
{
    return (direction & (pair->index == 0 ? UPPER : LOWER)) != 0;
}

/* An empty message. */
static muster_status make_schedule(const struct muster_measure_pair *pair, enum direction direction,
                                   struct muster_schedule *ret_schedule)
{
    const struct muster_step send = {.kind = MUSTER_STEP_SEND, .peer = 1 - pair->index};
    const struct muster_step receive = {
        .kind = MUSTER_STEP_RECV, .target = MUSTER_OUTPUT, .peer = 1 - pair->index};
    struct muster_step *steps = calloc(2, sizeof *steps);
    size_t count = 0;
    if (steps == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to measure with");
    }
    if (is_sender(pair, direction)) {
        steps[count++] = send;
    }
    if (is_receiver(pair, direction)) {
        steps[count++] = receive;
    }
    *ret_schedule = (struct muster_schedule){
        .rank = pair->index, .ranks = 2, .lanes = 1, .step_count = count, .steps = steps};
    return MUSTER_OK;
}

/* What the members of a pair compare. */
static const struct muster_call same_call = {.collective = MUSTER_PAIRWISE_EXCHANGE,
                                             .type = MUSTER_UINT8};

/* What this thread has used of a core so far. */
static double thread_us(void)
{
    struct timespec used = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec * 1e6 + (double)used.tv_nsec / 1e3;
}

/* The medians of several runs: how long one takes, and how much of a core. */
static muster_status run_words(struct muster_measure_pair *pair, enum direction direction,
                               double *ret_us, double *ret_busy_us, uint32_t *ret_suspect)
{
    double times_us[REPEATS];
    double busy_us[REPEATS];
    struct muster_schedule schedule;
    struct muster_operation *operation;
    TRY(make_schedule(pair, direction, &schedule));
    TRY(muster_operation_create(pair->fabric, &schedule, pair->ranks, &operation));
    muster_status status = MUSTER_OK;
    for (uint32_t i = 0; status == MUSTER_OK && i < REPEATS; i++) {
        const struct muster_launch launch = {.generation = pair->generation,
                                             .context = pair->context,
                                             .sequence = ++pair->sequence,
                                             .call = same_call,
                                             .in = pair->in,
                                             .out = pair->out,
                                             .deadline_ns = pair->deadline_ns};
        busy_us[i] = thread_us();
        int64_t start_ns = muster_clock_ns();
        status = muster_operation_run(operation, &launch, ret_suspect);
        times_us[i] = (double)(muster_clock_ns() - start_ns) / 1e3;
        busy_us[i] = thread_us() - busy_us[i];
    }
    muster_operation_destroy(operation);
    TRY(status);
    *ret_us = muster_statistics_median_high(times_us + WARM_REPEATS, REPEATS - WARM_REPEATS);
    *ret_busy_us = muster_statistics_median_high(busy_us + WARM_REPEATS, REPEATS - WARM_REPEATS);
    return MUSTER_OK;
}

/* What posting costs is seen where one only sends: who waits for an answer may be busy with
 * waiting. */
muster_status muster_measure_latency(struct muster_measure_pair *pair, double *ret_latency_us,
                                     double *ret_posting_us, uint32_t *ret_suspect)
{
    double times_us[BOTH];
    double busy_us[BOTH];
    for (unsigned i = 0; i < BOTH; i++) {
        TRY(run_words(pair, BOTH - i, &times_us[i], &busy_us[i], ret_suspect));
    }
    *ret_latency_us = times_us[0];
    *ret_posting_us = busy_us[is_sender(pair, UPPER) ? BOTH - UPPER : BOTH - LOWER];
    return MUSTER_OK;
}

/* Streams --------------------------------------------------------------------------------------
 */

/* One direction, at one end of it. Belongs to the done functions, under the fabric's lock, from the
 * first posting on. */
struct stream {
    struct streams *streams;
    bool sends;
    uint16_t data_lane, word_lane;
    uint32_t words;  /* receiver: sent; sender: received. The last one asks for nothing */
    uint32_t done;   /* receiver: messages that have come */
    bool last_asked; /* the word that asks for nothing is posted, or has come */
    uint64_t sizes_bytes[MESSAGES_MAX + 1]; /* the words: what each message is to be */
    int64_t done_ns[MESSAGES_MAX];          /* receiver */
    struct muster_transfer word_transfers[MESSAGES_MAX + 1];
    struct muster_transfer data_transfers[MESSAGES_MAX];
};

/* Both directions, or one. */
struct streams {
    struct muster_measure_pair *pair;
    struct stream ways[2]; /* from the lower, from the upper rank */
    uint8_t count;
    bool shared; /* with other pairs: all are to flow for as long as one of them counts */
    int64_t start_ns;
    uint32_t pending; /* transfers that are posted and not done */
    bool finished;    /* or failed */
    muster_status failure;
    char reason[MUSTER_ERROR_MAX];
};

static void when_word_done(struct muster_transfer *transfer);
static void when_data_done(struct muster_transfer *transfer);

/* Under the fabric's lock; the first one counts. */
static void fail(struct streams *streams, muster_status status)
{
    if (streams->failure == MUSTER_OK) {
        streams->failure = status;
        (void)snprintf(streams->reason, sizeof streams->reason, "%s", muster_last_error());
    }
    streams->finished = true;
}

static struct muster_transfer *fill(struct stream *stream, bool is_word, uint32_t ordinal)
{
    const struct muster_measure_pair *pair = stream->streams->pair;
    struct muster_transfer *transfer =
        is_word ? &stream->word_transfers[ordinal] : &stream->data_transfers[ordinal];
    char *buffer = stream->sends ? (char *)pair->in /* only ever read */
                                 : pair->out + (size_t)(ordinal % FLYING) * MESSAGE_BYTES_MAX;
    *transfer = (struct muster_transfer){
        .key = {.generation = pair->generation,
                .sequence = pair->sequence,
                .context = pair->context,
                .ordinal = ordinal,
                .lane = is_word ? stream->word_lane : stream->data_lane},
        .call = &same_call,
        .direction = stream->sends != is_word ? MUSTER_SEND : MUSTER_RECEIVE,
        .peer = pair->ranks[1 - pair->index],
        .data = is_word ? (char *)&stream->sizes_bytes[ordinal] : buffer,
        .size_bytes = is_word ? sizeof stream->sizes_bytes[0] : stream->sizes_bytes[ordinal],
        .element_size_bytes = 1,
        .done = is_word ? when_word_done : when_data_done,
        .owner = stream};
    return transfer;
}

static void post_locked(struct stream *stream, bool is_word, uint32_t ordinal)
{
    stream->streams->pending++;
    muster_status status =
        muster_fabric_post_locked(stream->streams->pair->fabric, fill(stream, is_word, ordinal));
    if (status != MUSTER_OK) {
        fail(stream->streams, status);
    }
}

/* What a done function begins and ends with. False: it has failed. */
static bool take_done(struct streams *streams, const struct muster_transfer *transfer)
{
    streams->pending--;
    if (transfer->status != MUSTER_OK) {
        fail(streams, transfer->status);
    }
    return streams->failure == MUSTER_OK;
}

static void finish_if_through(struct streams *streams)
{
    bool asked = true;
    for (uint32_t i = 0; i < streams->count; i++) {
        asked &= streams->ways[i].last_asked;
    }
    streams->finished |= asked && streams->pending == 0;
}

/* The first message that is done when the stream flows; what came before it is not counted. */
static uint32_t first_counted(const struct stream *stream)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i + 1 < stream->done; i++) {
        bytes += stream->sizes_bytes[i];
        if (bytes >= WARM_BYTES || stream->done_ns[i] - stream->done_ns[0] >= WARM_US * 1000L) {
            return i;
        }
    }
    return stream->done - 1;
}

/* What came after one message up to another one. */
static uint64_t bytes_between(const struct stream *stream, uint32_t from, uint32_t to)
{
    uint64_t bytes = 0;
    for (uint32_t i = from + 1; i <= to; i++) {
        bytes += stream->sizes_bytes[i];
    }
    return bytes;
}

static int64_t time_between_ns(const struct stream *stream, uint32_t from, uint32_t to)
{
    int64_t time_ns = stream->done_ns[to] - stream->done_ns[from];
    return time_ns > 0 ? time_ns : 1;
}

static bool has_seen_enough(const struct stream *stream)
{
    uint32_t first = first_counted(stream);
    uint32_t last = stream->done - 1;
    if (stream->streams->shared && last > 0) {
        return bytes_between(stream, 0, last) >= WARM_BYTES + COUNTED_BYTES ||
               stream->done_ns[last] - stream->streams->start_ns >=
                   (WARM_US + SHARED_US + LINGER_US) * 1000L;
    }
    return bytes_between(stream, first, last) >= COUNTED_BYTES ||
           time_between_ns(stream, first, last) >= COUNTED_US * 1000L ||
           time_between_ns(stream, 0, last) >= (WARM_US + COUNTED_US) * 1000L;
}

/* As long as the last one, had it taken the time that it should. */
static uint64_t next_size_bytes(const struct stream *stream)
{
    uint32_t last = stream->done - 1;
    uint64_t least = stream->streams->shared ? SHARED_BYTES_LEAST : MESSAGE_BYTES_LEAST;
    if (last == 0) {
        return least;
    }
    int64_t time_ns = stream->done_ns[last] - stream->done_ns[last - 1];
    double bytes =
        (double)stream->sizes_bytes[last] * MESSAGE_US * 1e3 / (double)(time_ns > 0 ? time_ns : 1);
    return bytes > MESSAGE_BYTES_MAX ? MESSAGE_BYTES_MAX
           : bytes < (double)least   ? least
                                     : (uint64_t)bytes;
}

/* The receiver's next word, and the receive before it; of no bytes: there is no more to come. */
static void ask(struct stream *stream, uint64_t size_bytes)
{
    uint32_t ordinal = stream->words++;
    stream->sizes_bytes[ordinal] = size_bytes;
    stream->last_asked = size_bytes == 0;
    if (size_bytes > 0) {
        post_locked(stream, false, ordinal);
    }
    post_locked(stream, true, ordinal);
}

static void receive_next(struct stream *stream)
{
    stream->done_ns[stream->done++] = muster_clock_ns();
    if (!stream->last_asked && stream->words < MESSAGES_MAX && !has_seen_enough(stream)) {
        uint32_t flying = stream->done > 1 ? FLYING : 1; /* on a slow link one more is enough */
        while (stream->words < MESSAGES_MAX && stream->words < stream->done + flying) {
            ask(stream, next_size_bytes(stream));
        }
    } else if (!stream->last_asked) {
        ask(stream, 0);
    }
}

static void when_data_done(struct muster_transfer *transfer)
{
    struct stream *stream = transfer->owner;
    if (take_done(stream->streams, transfer) && !stream->sends) {
        receive_next(stream);
    }
    finish_if_through(stream->streams);
}

/* The sender has heard what is asked for. */
static void send_next(struct stream *stream)
{
    uint32_t ordinal = stream->words++;
    uint64_t size_bytes = stream->sizes_bytes[ordinal];
    if (size_bytes > MESSAGE_BYTES_MAX || (size_bytes > 0 && ordinal >= MESSAGES_MAX)) {
        fail(stream->streams,
             muster_error_set(MUSTER_FATAL, "rank %u asks for a message of %llu bytes",
                              stream->streams->pair->ranks[1 - stream->streams->pair->index],
                              (unsigned long long)size_bytes));
        return;
    }
    stream->last_asked = size_bytes == 0;
    if (size_bytes > 0) {
        post_locked(stream, false, ordinal);
        post_locked(stream, true, ordinal + 1);
    }
}

static void when_word_done(struct muster_transfer *transfer)
{
    struct stream *stream = transfer->owner;
    if (take_done(stream->streams, transfer) && stream->sends) {
        send_next(stream);
    }
    finish_if_through(stream->streams);
}

/* The sender waits for a word; the receiver asks for the first message, and for the others when it
 * has come: then nothing here is touched by two threads. */
static muster_status start(struct stream *stream)
{
    struct muster_fabric *fabric = stream->streams->pair->fabric;
    if (stream->sends) {
        return muster_fabric_post(fabric, fill(stream, true, 0));
    }
    stream->words = 1;
    stream->sizes_bytes[0] = MESSAGE_BYTES_LEAST;
    TRY(muster_fabric_post(fabric, fill(stream, false, 0)));
    return muster_fabric_post(fabric, fill(stream, true, 0));
}

static muster_status end_failed(struct streams *streams, muster_status status,
                                uint32_t *ret_suspect)
{
    const struct muster_measure_pair *pair = streams->pair;
    char reason[MUSTER_REASON_SIZE];
    char text[MUSTER_ERROR_MAX];
    (void)snprintf(text, sizeof text, "%s", muster_last_error());
    muster_fabric_withdraw(pair->fabric, pair->generation, pair->context, pair->sequence);
    if (streams->failure != MUSTER_OK) {
        status = muster_error_set(streams->failure, "%s", streams->reason);
    } else if (status == MUSTER_RETRY) {
        *ret_suspect = pair->ranks[1 - pair->index];
        return muster_error_set(MUSTER_RETRY, "the deadline passed while it measured with rank %u",
                                *ret_suspect);
    } else {
        status = muster_error_set(status, "%s", text);
    }
    if (status == MUSTER_REJOIN) {
        (void)muster_fabric_lost_peer(pair->fabric, pair->generation, ret_suspect, reason);
    }
    return status;
}

/* A thread that was away finds several messages at once: they count as one, that came when the last
 * of them did. Returns how many are left. */
static uint32_t join_those_at_once(struct stream *stream, uint32_t first)
{
    int64_t usual_ns = time_between_ns(stream, first, stream->done - 1) / (stream->done - first);
    uint32_t count = first + 1;
    for (uint32_t i = first + 1; i < stream->done; i++) {
        bool at_once =
            count > first + 1 && stream->done_ns[i] - stream->done_ns[count - 1] < usual_ns / 4;
        count -= at_once ? 1 : 0;
        stream->sizes_bytes[count] =
            stream->sizes_bytes[i] + (at_once ? stream->sizes_bytes[count] : 0);
        stream->done_ns[count] = stream->done_ns[i];
        count++;
    }
    return count;
}

/* What had come up to some time, as if each message had come evenly since the one before. */
static double bytes_until(const struct stream *stream, double time_ns)
{
    double bytes = 0;
    double before_ns = 0;
    for (uint32_t i = 0; i < stream->done && before_ns < time_ns; i++) {
        double done_ns = (double)(stream->done_ns[i] - stream->streams->start_ns);
        double share = done_ns > time_ns ? (time_ns - before_ns) / (done_ns - before_ns) : 1;
        bytes += share * (double)stream->sizes_bytes[i];
        before_ns = done_ns;
    }
    return bytes;
}

/* What came while all that share were counting, who began at about the same time: a stream that
 * stood still while others flowed did get less, so nothing is left out. On a fast link the messages
 * may not last so long. */
static double shared_GBps(const struct stream *stream)
{
    double end_ns = (double)(stream->done_ns[stream->done - 1] - stream->streams->start_ns);
    double whole_ns = fmax(fmin(end_ns, (WARM_US + SHARED_US) * 1e3), 1);
    double warm_ns = whole_ns * WARM_US / (WARM_US + SHARED_US);
    return (bytes_until(stream, whole_ns) - bytes_until(stream, warm_ns)) / (whole_ns - warm_ns);
}

/* The median of a few windows: the thread may have been away in one of them. Few messages are one
 * window. */
static double rate_GBps(struct stream *stream)
{
    double rates_GBps[WINDOWS] = {0};
    uint32_t first = first_counted(stream);
    first = first + 1 < stream->done ? first : 0;
    uint32_t last = join_those_at_once(stream, first) - 1;
    uint32_t windows = last - first < WINDOWS * 2 ? 1 : WINDOWS;
    for (uint32_t i = 0; i < windows; i++) {
        uint32_t from = first + (last - first) * i / windows;
        uint32_t to = first + (last - first) * (i + 1) / windows;
        rates_GBps[i] =
            (double)bytes_between(stream, from, to) / (double)time_between_ns(stream, from, to);
    }
    return muster_statistics_median_high(rates_GBps, windows);
}

muster_status muster_measure_rate(struct muster_measure_pair *pair, bool both_ways,
                                  double *ret_GBps, uint32_t *ret_suspect)
{
    AUTO_FREE struct streams *streams = calloc(1, sizeof *streams);
    if (streams == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to measure with");
    }
    pair->sequence++;
    streams->pair = pair;
    streams->count = both_ways ? 2 : 1;
    streams->shared = both_ways;
    streams->start_ns = muster_clock_ns();
    muster_status status = MUSTER_OK;
    for (uint8_t i = 0; i < streams->count; i++) {
        streams->ways[i].streams = streams;
        streams->ways[i].sends = i == pair->index;
        streams->ways[i].data_lane = i;
        streams->ways[i].word_lane = i + 2;
        streams->pending += streams->ways[i].sends ? 1 : 2; /* that start() posts */
    }
    for (uint8_t i = 0; status == MUSTER_OK && i < streams->count; i++) {
        status = start(&streams->ways[i]);
    }
    if (status == MUSTER_OK) {
        status = muster_fabric_wait(pair->fabric, pair->generation, &streams->finished,
                                    pair->deadline_ns);
    }
    if (status != MUSTER_OK || streams->failure != MUSTER_OK) {
        return end_failed(streams, status, ret_suspect);
    }
    struct stream *incoming = &streams->ways[1 - pair->index];
    *ret_GBps = both_ways ? shared_GBps(incoming) : pair->index == 1 ? rate_GBps(incoming) : NAN;
    return MUSTER_OK;
}
