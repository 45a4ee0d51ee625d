/* Fabrics of one process, and the threads of their ranks. */
#include "tests/conformance/rig.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const struct muster_call rig_call = {
    .collective = MUSTER_ALLREDUCE, .type = MUSTER_UINT8, .op = MUSTER_SUM, .count = 1};

static const char token[] = "a token that both ends have";

static void make_fabric(struct rig *rig, uint32_t rank)
{
    struct muster_peer *peer = &rig->peers[rank];
    memset(peer, 0, sizeof *peer);
    muster_random_uuid(peer->member);
    (void)snprintf(peer->host, sizeof peer->host, "host-%u", rank);
    struct fabric_wish wish = {.transports = rig->transport->transports,
                               .options = rig->transport->options,
                               .fabric = {.member = peer->member, .link_token = token}};
    if (rig->transport->prepare != NULL) {
        rig->transport->prepare(rank, &wish);
    }
    muster_status status = fabrics_make(&wish, &rig->fabrics[rank]);
    if (rig->transport->prepare != NULL) {
        rig->transport->prepare(RIG_MAX, NULL);
    }
    if (status != MUSTER_OK) {
        fail_msg("%s", muster_last_error());
    }
    peer->address_count = muster_fabric_address_count(rig->fabrics[rank]);
    for (uint32_t i = 0; i < peer->address_count; i++) {
        (void)snprintf(peer->addresses[i], MUSTER_ADDRESS_SIZE, "%s",
                       muster_fabric_address(rig->fabrics[rank], i));
    }
}

void rig_init(struct rig *rig, const struct rig_transport *transport, uint32_t count)
{
    memset(rig, 0, sizeof *rig);
    rig->transport = transport;
    rig->count = count;
    for (uint32_t i = 0; i < count; i++) {
        make_fabric(rig, i);
    }
    rig_begin(rig);
}

static char *destroy_own(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    muster_fabric_destroy(rig->fabrics[rank], 200);
    rig->fabrics[rank] = NULL;
    return NULL;
}

void rig_finish(struct rig *rig)
{
    rig_run(rig, destroy_own, NULL);
}

void rig_replace(struct rig *rig, uint32_t rank)
{
    muster_fabric_destroy(rig->fabrics[rank], 0);
    make_fabric(rig, rank);
}

void rig_begin_one(struct rig *rig, uint32_t rank)
{
    if (muster_fabric_begin_generation(rig->fabrics[rank], rig->generation, rig->peers,
                                       rig->count) != MUSTER_OK) {
        fail_msg("%s", muster_last_error());
    }
}

void rig_begin(struct rig *rig)
{
    rig->generation++;
    for (uint32_t i = 0; i < rig->count; i++) {
        rig_begin_one(rig, i);
    }
}

/* Threads ------------------------------------------------------------------------------------ */

struct rank_thread {
    struct rig *rig;
    uint32_t rank;
    rig_function function;
    void *user;
    char *error;
    pthread_t thread;
};

static void *run_rank(void *argument)
{
    struct rank_thread *self = argument;
    if (self->rig->transport->prepare != NULL) {
        self->rig->transport->prepare(self->rank, NULL);
    }
    self->error = self->function(self->rig, self->rank, self->user);
    return NULL;
}

void rig_run(struct rig *rig, rig_function function, void *user)
{
    struct rank_thread threads[RIG_MAX];
    for (uint32_t i = 0; i < rig->count; i++) {
        threads[i] =
            (struct rank_thread){.rig = rig, .rank = i, .function = function, .user = user};
        assert_int_equal(pthread_create(&threads[i].thread, NULL, run_rank, &threads[i]), 0);
    }
    char *first = NULL;
    for (uint32_t i = 0; i < rig->count; i++) {
        (void)pthread_join(threads[i].thread, NULL);
        if (threads[i].error != NULL) {
            print_error("rank %u: %s\n", i, threads[i].error);
            free(first);
            first = threads[i].error;
        }
    }
    bool failed = first != NULL;
    free(first);
    assert_false(failed);
}

char *rig_error(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    return length < 0 ? NULL : text;
}

/* Transfers ---------------------------------------------------------------------------------- */

static void count_down(struct muster_transfer *transfer)
{
    struct rig_counter *counter = transfer->owner;
    counter->left--;
    if (transfer->status != MUSTER_OK && counter->status == MUSTER_OK) {
        counter->status = transfer->status;
        (void)snprintf(counter->reason, sizeof counter->reason, "%s", muster_last_error());
    }
    counter->finished = counter->left == 0 || counter->status != MUSTER_OK;
}

static struct muster_transfer make_transfer(const struct rig *rig, uint32_t peer, uint64_t sequence,
                                            uint64_t size_bytes)
{
    return (struct muster_transfer){
        .key = {.generation = rig->generation, .sequence = sequence},
        .call = &rig_call,
        .peer = peer,
        .size_bytes = size_bytes,
        .element_size_bytes = 1,
        .done = count_down,
    };
}

struct muster_transfer rig_send(const struct rig *rig, uint32_t peer, uint64_t sequence, void *data,
                                uint64_t size_bytes)
{
    struct muster_transfer transfer = make_transfer(rig, peer, sequence, size_bytes);
    transfer.direction = MUSTER_SEND;
    transfer.data = data;
    return transfer;
}

struct muster_transfer rig_receive(const struct rig *rig, uint32_t peer, uint64_t sequence,
                                   void *data, uint64_t size_bytes)
{
    struct muster_transfer transfer = make_transfer(rig, peer, sequence, size_bytes);
    transfer.direction = MUSTER_RECEIVE;
    transfer.data = data;
    return transfer;
}

/* From the first post on the counter is under the fabric's lock. A failed post is not done, and
 * makes the counter finished with its status. */
void rig_post(struct rig *rig, uint32_t rank, struct rig_counter *counter,
              struct muster_transfer *transfer)
{
    transfer->owner = counter;
    muster_status status = muster_fabric_post(rig->fabrics[rank], transfer);
    if (status != MUSTER_OK) {
        counter->status = status;
        (void)snprintf(counter->reason, sizeof counter->reason, "%s", muster_last_error());
        counter->finished = true;
    }
}

muster_status rig_wait(struct rig *rig, uint32_t rank, struct rig_counter *counter)
{
    muster_status status =
        muster_fabric_wait(rig->fabrics[rank], rig->generation, &counter->finished,
                           muster_clock_after_ms(RIG_TIMEOUT_MS));
    if (status != MUSTER_OK) {
        return status;
    }
    return counter->status;
}

void rig_progress(struct rig *rig, uint32_t rank, uint32_t ms)
{
    bool never = false;
    muster_status status =
        muster_fabric_wait(rig->fabrics[rank], rig->generation, &never, muster_clock_after_ms(ms));
    (void)status;
}

struct rig_counter rig_send_unexpected(struct rig *rig)
{
    char byte = 0;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer send = rig_send(rig, 0, 1, &byte, 1);
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    rig_post(rig, 1, &counter, &send);
    while (!counter.finished && muster_clock_ns() < deadline_ns) {
        rig_progress(rig, 0, 1);
        rig_progress(rig, 1, 1);
    }
    assert_true(counter.finished);
    return counter;
}

char *rig_exchange_with(struct rig *rig, uint32_t rank, uint32_t peer)
{
    char out = (char)rank;
    char in = -1;
    struct rig_counter counter = {.left = 2};
    struct muster_transfer send = rig_send(rig, peer, 1, &out, 1);
    struct muster_transfer receive = rig_receive(rig, peer, 1, &in, 1);
    rig_post(rig, rank, &counter, &send);
    rig_post(rig, rank, &counter, &receive);
    muster_status status = rig_wait(rig, rank, &counter);
    if (status != MUSTER_OK) {
        muster_fabric_withdraw(rig->fabrics[rank], rig->generation, 0, 1);
        return rig_error("rank %u with %u: %s", rank, peer,
                         counter.finished ? counter.reason : muster_last_error());
    }
    RIG_EXPECT(in == (char)peer);
    return NULL;
}

char *rig_exchange(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    return rig_exchange_with(rig, rank, 1 - rank);
}

/* Data --------------------------------------------------------------------------------------- */

/* Eight bytes of the pattern, from this place on. In words, because the thread sanitizer checks
 * each access: single bytes take a third of a test's time. */
static uint64_t word_of_pattern(uint64_t place, uint64_t seed)
{
    uint64_t word = 0;
    for (uint64_t i = place; i < place + sizeof word; i++) {
        word = word << 8 | ((i * 167 + seed * 31 + (i >> 8)) & 0xff);
    }
    return word;
}

void rig_fill(void *data, uint64_t size_bytes, uint64_t seed)
{
    unsigned char *bytes = data;
    uint64_t word = word_of_pattern(0, seed);
    uint64_t i = 0;
    for (; size_bytes - i >= sizeof word; word = word_of_pattern(i, seed)) {
        memcpy(bytes + i, &word, sizeof word);
        i += sizeof word;
    }
    memcpy(bytes + i, &word, size_bytes - i);
}

bool rig_filled(const void *data, uint64_t size_bytes, uint64_t seed)
{
    const unsigned char *bytes = data;
    uint64_t word = word_of_pattern(0, seed);
    uint64_t i = 0;
    for (; size_bytes - i >= sizeof word; word = word_of_pattern(i, seed)) {
        uint64_t found;
        memcpy(&found, bytes + i, sizeof found);
        if (found != word) {
            return false;
        }
        i += sizeof word;
    }
    return memcmp(bytes + i, &word, size_bytes - i) == 0;
}
