/*
 * Measures the link between two ranks: its latency and its rate.
 *
 * Latency is measured with schedules of empty messages, so that it is that of a collective.
 *
 * The rate is measured with a stream. The receiver requests one message after the other, a few of
 * them in flight, each so large that it takes a quarter of a millisecond at the rate seen so far,
 * until it has seen enough. So the time is bounded at any rate, and nothing has to be known
 * beforehand. There is no pause in which a shaped link could save up credit for a burst, and what
 * such a link lets through at the beginning is not counted. Streams that share a resource
 * (measure.h) count in the same interval and run a little longer than it: a stream that runs alone
 * at the end would get the whole rate.
 */
#include "worker/communicator/measure_link.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/base/bytes.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/statistics.h"
#include "worker/base/status.h"
#include "worker/executor/executor.h"

enum {
    REPEATS = 14,
    WARM_REPEATS = 2, /* of those, not counted: the link is opened, and caches are filled */

    IN_FLIGHT = MUSTER_MEASURE_IN_FLIGHT,
    MESSAGES_MAX = 128,
    MESSAGE_BYTES_LEAST = 32 << 10, /* more than an eager message has */
    MESSAGE_BYTES_MAX = 256 << 10,  /* one segment */
    MESSAGE_US = 250,
    WARM_BYTES = 512 << 10, /* several times what shaped links usually let through at once */
    WARM_US = 3000,
    COUNTED_BYTES = 8 << 20,
    COUNTED_US = 4000,
    REQUEST_BYTES = 8, /* on the wire: a size, little-endian */
    SHARED_US = 20000, /* counted when streams share a resource. A shaped link may save up credit
                          for a burst while the others pause; the longer this is, the less that
                          matters */
    SHARED_BYTES_LEAST = 64 << 10, /* of a message then, as requests queue behind the data that goes
                                      the other way */
    LINGER_US = 3000,              /* not counted then: other streams may have begun a bit later */
    WINDOWS = 3,
};

/* Latency -------------------------------------------------------------------------------------- */

/* Which of the two ranks send. */
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

/* A schedule of one empty message in each of these directions. */
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

/* The description of a call that the two ranks compare; it is always the same here. */
static const struct muster_call pair_call = {.collective = MUSTER_PAIRWISE_EXCHANGE,
                                             .type = MUSTER_UINT8};

/* Processor time of this thread so far. */
static double thread_us(void)
{
    struct timespec used = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec * 1e6 + (double)used.tv_nsec / 1e3;
}

/* Medians of several runs: the time of one, and its processor time. */
static muster_status run_empty_messages(struct muster_measure_pair *pair, enum direction direction,
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
                                             .call = pair_call,
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

/* The processor time of posting is measured on a rank that only sends: one that waits for an answer
 * may use the processor for the wait. */
muster_status muster_measure_latency(struct muster_measure_pair *pair, double *ret_latency_us,
                                     double *ret_posting_us, uint32_t *ret_suspect)
{
    double times_us[BOTH];
    double busy_us[BOTH];
    for (unsigned i = 0; i < BOTH; i++) {
        TRY(run_empty_messages(pair, BOTH - i, &times_us[i], &busy_us[i], ret_suspect));
    }
    *ret_latency_us = times_us[0];
    *ret_posting_us = busy_us[is_sender(pair, UPPER) ? BOTH - UPPER : BOTH - LOWER];
    return MUSTER_OK;
}

/* Streams -------------------------------------------------------------------------------------- */

/*
 * A stream is what goes in one direction. The receiver sends requests, each of which is the size of
 * the next message; size 0 is the last one. Both ends number requests and messages alike.
 *
 *   receiver: posts the receive of a message, then the send of its request
 *   sender:   when a request has come, posts the message and the receive of the next request
 *
 * After start_stream() a stream belongs to the done functions, which run under the fabric's lock.
 */
struct stream {
    struct streams *streams;
    bool sends;
    uint16_t data_lane, request_lane;
    uint32_t requests;   /* sent, at the receiver; received, at the sender; the last one included */
    uint32_t received;   /* messages, at the receiver */
    bool last_requested; /* the request of size 0 is posted, or has come */
    uint64_t sizes_bytes[MESSAGES_MAX + 1];                       /* the requests */
    unsigned char request_bytes[MESSAGES_MAX + 1][REQUEST_BYTES]; /* the same as they travel */
    int64_t received_ns[MESSAGES_MAX]; /* when each message had come, at the receiver */
    struct muster_transfer request_transfers[MESSAGES_MAX + 1];
    struct muster_transfer data_transfers[MESSAGES_MAX];
};

/* One direction, or both. */
struct streams {
    struct muster_measure_pair *pair;
    struct stream streams[2]; /* from the lower rank, from the upper one */
    uint8_t count;
    bool shared; /* with other pairs: all streams run for as long as any of them counts */
    int64_t start_ns;
    uint32_t pending; /* transfers that are posted and not done */
    bool finished;    /* or failed */
    muster_status failure;
    char reason[MUSTER_ERROR_MAX];
};

static void on_request_done(struct muster_transfer *transfer);
static void on_message_done(struct muster_transfer *transfer);

/* Under the fabric's lock. The first failure is kept. */
static void fail(struct streams *streams, muster_status status)
{
    if (streams->failure == MUSTER_OK) {
        streams->failure = status;
        (void)snprintf(streams->reason, sizeof streams->reason, "%s", muster_last_error());
    }
    streams->finished = true;
}

static struct muster_transfer *fill(struct stream *stream, bool is_request, uint32_t ordinal)
{
    const struct muster_measure_pair *pair = stream->streams->pair;
    struct muster_transfer *transfer =
        is_request ? &stream->request_transfers[ordinal] : &stream->data_transfers[ordinal];
    char *buffer = stream->sends ? (char *)pair->in /* only ever read */
                                 : pair->out + (size_t)(ordinal % IN_FLIGHT) * MESSAGE_BYTES_MAX;
    *transfer = (struct muster_transfer){
        .key = {.generation = pair->generation,
                .sequence = pair->sequence,
                .context = pair->context,
                .ordinal = ordinal,
                .lane = is_request ? stream->request_lane : stream->data_lane},
        .call = &pair_call,
        .direction = stream->sends != is_request ? MUSTER_SEND : MUSTER_RECEIVE,
        .peer = pair->ranks[1 - pair->index],
        .data = is_request ? (char *)stream->request_bytes[ordinal] : buffer,
        .size_bytes = is_request ? REQUEST_BYTES : stream->sizes_bytes[ordinal],
        .element_size_bytes = 1,
        .done = is_request ? on_request_done : on_message_done,
        .owner = stream};
    return transfer;
}

static void post_locked(struct stream *stream, bool is_request, uint32_t ordinal)
{
    stream->streams->pending++;
    muster_status status =
        muster_fabric_post_locked(stream->streams->pair->fabric, fill(stream, is_request, ordinal));
    if (status != MUSTER_OK) {
        fail(stream->streams, status);
    }
}

/* Every done function begins with this one and ends with the next one. False: a transfer has
 * failed. */
static bool count_done(struct streams *streams, const struct muster_transfer *transfer)
{
    streams->pending--;
    if (transfer->status != MUSTER_OK) {
        fail(streams, transfer->status);
    }
    return streams->failure == MUSTER_OK;
}

static void finish_if_complete(struct streams *streams)
{
    bool complete = streams->pending == 0;
    for (uint32_t i = 0; i < streams->count; i++) {
        complete &= streams->streams[i].last_requested;
    }
    streams->finished |= complete;
}

/* The last message of the warm-up; the messages after it are counted. */
static uint32_t warm_up_end(const struct stream *stream)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i + 1 < stream->received; i++) {
        bytes += stream->sizes_bytes[i];
        if (bytes >= WARM_BYTES ||
            stream->received_ns[i] - stream->received_ns[0] >= WARM_US * 1000L) {
            return i;
        }
    }
    return stream->received - 1;
}

/* Received after the message `from`, up to the message `to`. */
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
    int64_t time_ns = stream->received_ns[to] - stream->received_ns[from];
    return time_ns > 0 ? time_ns : 1;
}

static bool is_long_enough(const struct stream *stream)
{
    uint32_t first = warm_up_end(stream);
    uint32_t last = stream->received - 1;
    if (stream->streams->shared && last > 0) {
        return bytes_between(stream, 0, last) >= WARM_BYTES + COUNTED_BYTES ||
               stream->received_ns[last] - stream->streams->start_ns >=
                   (WARM_US + SHARED_US + LINGER_US) * 1000L;
    }
    return bytes_between(stream, first, last) >= COUNTED_BYTES ||
           time_between_ns(stream, first, last) >= COUNTED_US * 1000L ||
           time_between_ns(stream, 0, last) >= (WARM_US + COUNTED_US) * 1000L;
}

/* A message that takes MESSAGE_US at the rate of the last one. */
static uint64_t next_size_bytes(const struct stream *stream)
{
    uint32_t last = stream->received - 1;
    uint64_t least = stream->streams->shared ? SHARED_BYTES_LEAST : MESSAGE_BYTES_LEAST;
    if (last == 0) {
        return least;
    }
    int64_t time_ns = stream->received_ns[last] - stream->received_ns[last - 1];
    double bytes =
        (double)stream->sizes_bytes[last] * MESSAGE_US * 1e3 / (double)(time_ns > 0 ? time_ns : 1);
    return bytes > MESSAGE_BYTES_MAX ? MESSAGE_BYTES_MAX
           : bytes < (double)least   ? least
                                     : (uint64_t)bytes;
}

static void set_request(struct stream *stream, uint32_t ordinal, uint64_t size_bytes)
{
    stream->sizes_bytes[ordinal] = size_bytes;
    muster_bytes_put(stream->request_bytes[ordinal], size_bytes, REQUEST_BYTES);
}

/* The receive of the next message, then its request. Size 0: the last request. */
static void request_message(struct stream *stream, uint64_t size_bytes)
{
    uint32_t ordinal = stream->requests++;
    set_request(stream, ordinal, size_bytes);
    stream->last_requested = size_bytes == 0;
    if (size_bytes > 0) {
        post_locked(stream, false, ordinal);
    }
    post_locked(stream, true, ordinal);
}

static void continue_receiving(struct stream *stream)
{
    stream->received_ns[stream->received++] = muster_clock_ns();
    if (!stream->last_requested && stream->requests < MESSAGES_MAX && !is_long_enough(stream)) {
        uint32_t in_flight =
            stream->received > 1 ? IN_FLIGHT : 1; /* a slow link needs just two messages */
        while (stream->requests < MESSAGES_MAX && stream->requests < stream->received + in_flight) {
            request_message(stream, next_size_bytes(stream));
        }
    } else if (!stream->last_requested) {
        request_message(stream, 0);
    }
}

static void on_message_done(struct muster_transfer *transfer)
{
    struct stream *stream = transfer->owner;
    if (count_done(stream->streams, transfer) && !stream->sends) {
        continue_receiving(stream);
    }
    finish_if_complete(stream->streams);
}

/* A request has come to the sender. */
static void continue_sending(struct stream *stream)
{
    uint32_t ordinal = stream->requests++;
    uint64_t size_bytes = muster_bytes_get(stream->request_bytes[ordinal], REQUEST_BYTES);
    if (size_bytes > MESSAGE_BYTES_MAX || (size_bytes > 0 && ordinal >= MESSAGES_MAX)) {
        fail(stream->streams,
             muster_error_set(MUSTER_FATAL, "rank %u requests a message of %llu bytes",
                              stream->streams->pair->ranks[1 - stream->streams->pair->index],
                              (unsigned long long)size_bytes));
        return;
    }
    stream->sizes_bytes[ordinal] = size_bytes;
    stream->last_requested = size_bytes == 0;
    if (size_bytes > 0) {
        post_locked(stream, false, ordinal);
        post_locked(stream, true, ordinal + 1);
    }
}

static void on_request_done(struct muster_transfer *transfer)
{
    struct stream *stream = transfer->owner;
    if (count_done(stream->streams, transfer) && stream->sends) {
        continue_sending(stream);
    }
    finish_if_complete(stream->streams);
}

/* The sender waits for a request. The receiver requests the first message only, and the others when
 * that has come: so no two threads use a stream. */
static muster_status start_stream(struct stream *stream)
{
    struct muster_fabric *fabric = stream->streams->pair->fabric;
    if (stream->sends) {
        return muster_fabric_post(fabric, fill(stream, true, 0));
    }
    stream->requests = 1;
    set_request(stream, 0, MESSAGE_BYTES_LEAST);
    TRY(muster_fabric_post(fabric, fill(stream, false, 0)));
    return muster_fabric_post(fabric, fill(stream, true, 0));
}

static muster_status failed_status(struct streams *streams, muster_status status,
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
        return muster_error_set(MUSTER_RETRY, "the deadline passed while measuring with rank %u",
                                *ret_suspect);
    } else {
        status = muster_error_set(status, "%s", text);
    }
    if (status == MUSTER_REJOIN) {
        (void)muster_fabric_lost_peer(pair->fabric, pair->generation, ret_suspect, reason);
    }
    return status;
}

/* A thread that was not scheduled for some time finds several messages at once. Merges such
 * messages into one that was received when the last of them was. Returns how many messages remain.
 */
static uint32_t merge_bunched(struct stream *stream, uint32_t first)
{
    int64_t average_ns =
        time_between_ns(stream, first, stream->received - 1) / (stream->received - first);
    uint32_t count = first + 1;
    for (uint32_t i = first + 1; i < stream->received; i++) {
        bool bunched = count > first + 1 &&
                       stream->received_ns[i] - stream->received_ns[count - 1] < average_ns / 4;
        count -= bunched ? 1 : 0;
        stream->sizes_bytes[count] =
            stream->sizes_bytes[i] + (bunched ? stream->sizes_bytes[count] : 0);
        stream->received_ns[count] = stream->received_ns[i];
        count++;
    }
    return count;
}

/* Bytes received up to some time, as if each message arrived evenly since the one before. */
static double bytes_until(const struct stream *stream, double time_ns)
{
    double bytes = 0;
    double before_ns = 0;
    for (uint32_t i = 0; i < stream->received && before_ns < time_ns; i++) {
        double done_ns = (double)(stream->received_ns[i] - stream->streams->start_ns);
        double share = done_ns > time_ns ? (time_ns - before_ns) / (done_ns - before_ns) : 1;
        bytes += share * (double)stream->sizes_bytes[i];
        before_ns = done_ns;
    }
    return bytes;
}

/* The rate in the interval in which all streams that share a resource are counted; they began at
 * about the same time. A stream that stalled while the others went on did get less, so no part of
 * the interval is left out. On a fast link the messages may be used up earlier. */
static double shared_GBps(const struct stream *stream)
{
    double end_ns = (double)(stream->received_ns[stream->received - 1] - stream->streams->start_ns);
    double whole_ns = fmax(fmin(end_ns, (WARM_US + SHARED_US) * 1e3), 1);
    double warm_ns = whole_ns * WARM_US / (WARM_US + SHARED_US);
    return (bytes_until(stream, whole_ns) - bytes_until(stream, warm_ns)) / (whole_ns - warm_ns);
}

/* The median of a few windows, as the thread may not have been scheduled in one of them. Few
 * messages are one window. */
static double rate_GBps(struct stream *stream)
{
    double rates_GBps[WINDOWS] = {0};
    uint32_t first = warm_up_end(stream);
    first = first + 1 < stream->received ? first : 0;
    uint32_t last = merge_bunched(stream, first) - 1;
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
        streams->streams[i].streams = streams;
        streams->streams[i].sends = i == pair->index;
        streams->streams[i].data_lane = i;
        streams->streams[i].request_lane = i + 2;
        streams->pending += streams->streams[i].sends ? 1 : 2; /* posted by start_stream() */
    }
    for (uint8_t i = 0; status == MUSTER_OK && i < streams->count; i++) {
        status = start_stream(&streams->streams[i]);
    }
    if (status == MUSTER_OK) {
        status = muster_fabric_wait(pair->fabric, pair->generation, &streams->finished,
                                    pair->deadline_ns);
    }
    if (status != MUSTER_OK || streams->failure != MUSTER_OK) {
        return failed_status(streams, status, ret_suspect);
    }
    struct stream *incoming = &streams->streams[1 - pair->index];
    *ret_GBps = both_ways ? shared_GBps(incoming) : pair->index == 1 ? rate_GBps(incoming) : NAN;
    return MUSTER_OK;
}
