/* The suite: messages that their receiver does not know beforehand, which are announced to it. */
#include "tests/conformance/suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    CONTEXT = 5,
    MESSAGES = 60,
    SIZE_MAX_BYTES = 200000,
    TAG = 42,
};

/* Some are sent without a grant, others are not. */
static uint64_t size_of(uint32_t index)
{
    return index % 4 == 0 ? (uint64_t)index * 3001 : (uint64_t)index * 7;
}

static struct muster_message_key key_of(const struct rig *rig, uint32_t index)
{
    return (struct muster_message_key){.generation = rig->generation,
                                       .sequence = MUSTER_ANNOUNCED_SEQUENCE,
                                       .context = CONTEXT | MUSTER_ANNOUNCED_CONTEXT,
                                       .ordinal = index};
}

/* A receiver: each message is received when it is announced, or if it is one of those that are
 * deferred, when all have been announced. */
struct receiver {
    struct muster_announcement_listener listener; /* its first member */
    const struct rig *rig;
    struct muster_fabric *fabric;
    struct muster_announcement seen[MESSAGES];
    bool announced[MESSAGES], posted[MESSAGES];
    struct muster_call calls[MESSAGES];
    struct muster_transfer *receives; /* [MESSAGES] */
    char *data[MESSAGES];
    uint32_t defers_every; /* which messages are received when all have been announced; 1: all */
    uint32_t announced_left, received_left;
    bool all_announced, all_received, failed;
    uint32_t ended; /* links */
};

static void received(struct muster_transfer *transfer)
{
    struct receiver *self = transfer->owner;
    self->failed = self->failed || transfer->status != MUSTER_OK;
    if (--self->received_left == 0 || self->failed) {
        __atomic_store_n(&self->all_received, true, __ATOMIC_SEQ_CST);
    }
}

static void post(struct receiver *self, uint32_t index)
{
    const struct muster_announcement *message = &self->seen[index];
    self->calls[index] = message->call;
    self->posted[index] = true;
    self->data[index] = malloc(message->size_bytes + 1);
    self->receives[index] = (struct muster_transfer){.key = message->key,
                                                     .call = &self->calls[index],
                                                     .direction = MUSTER_RECEIVE,
                                                     .peer = message->peer,
                                                     .data = self->data[index],
                                                     .size_bytes = message->size_bytes,
                                                     .element_size_bytes = 1,
                                                     .done = received,
                                                     .owner = self};
    if (muster_fabric_post_locked(self->fabric, &self->receives[index]) != MUSTER_OK) {
        self->failed = true;
    }
}

static void announced(struct muster_announcement_listener *listener,
                      const struct muster_announcement *message)
{
    struct receiver *self = (struct receiver *)listener;
    uint32_t index = message->key.ordinal;
    if (index >= MESSAGES || message->call.root != TAG + index ||
        message->size_bytes != size_of(index)) {
        self->failed = true;
        return;
    }
    if (self->announced[index]) {
        return;
    }
    self->announced[index] = true;
    self->seen[index] = *message;
    if (index % self->defers_every != 0) {
        post(self, index);
    }
    if (--self->announced_left == 0) {
        __atomic_store_n(&self->all_announced, true, __ATOMIC_SEQ_CST);
    }
}

static void link_ended(struct muster_announcement_listener *listener, uint32_t peer, bool left,
                       const char *reason)
{
    struct receiver *self = (struct receiver *)listener;
    self->ended += peer == 0 && left && reason != NULL;
}

static void init_receiver(struct receiver *self, const struct rig *rig, uint32_t defers_every)
{
    *self = (struct receiver){.receives = calloc(MESSAGES, sizeof *self->receives),
                              .listener = {.generation = rig->generation,
                                           .context = CONTEXT | MUSTER_ANNOUNCED_CONTEXT,
                                           .announced = announced,
                                           .link_ended = link_ended},
                              .rig = rig,
                              .fabric = rig->fabrics[1],
                              .defers_every = defers_every,
                              .announced_left = MESSAGES,
                              .received_left = MESSAGES};
}

static void finish_receiver(struct receiver *self)
{
    muster_fabric_unlisten(self->fabric, &self->listener);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        free(self->data[i]);
    }
    free(self->receives);
}

/* Rank 0: the calls differ from message to message, which those of one operation may not elsewhere.
 */
static char *send_messages(struct rig *rig, struct rig_counter *counter, char *data,
                           struct muster_call *calls, struct muster_transfer *sends)
{
    counter->left = MESSAGES;
    for (uint32_t i = 0; i < MESSAGES; i++) {
        calls[i] = (struct muster_call){.root = TAG + i, .count = size_of(i)};
        sends[i] = rig_send(rig, 1, 1, data, size_of(i));
        sends[i].key = key_of(rig, i);
        sends[i].call = &calls[i];
        rig_post(rig, 0, counter, &sends[i]);
    }
    RIG_EXPECT(counter->status == MUSTER_OK);
    return NULL;
}

static char *send_all(struct rig *rig)
{
    char *data = malloc(SIZE_MAX_BYTES);
    struct rig_counter counter = {.left = 0};
    struct muster_call calls[MESSAGES];
    struct muster_transfer *sends = calloc(MESSAGES, sizeof *sends);
    rig_fill(data, SIZE_MAX_BYTES, 7);
    char *failure = send_messages(rig, &counter, data, calls, sends);
    if (failure == NULL && rig_wait(rig, 0, &counter) != MUSTER_OK) {
        failure = rig_error("send: %s", counter.reason);
    }
    free(sends);
    free(data);
    return failure;
}

static char *check_received(const struct receiver *self)
{
    RIG_EXPECT(!self->failed);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        RIG_EXPECT(self->posted[i] && rig_filled(self->data[i], size_of(i), 7));
    }
    return NULL;
}

static char *receive_all(struct rig *rig, uint32_t defers_every)
{
    static struct receiver self;
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    init_receiver(&self, rig, defers_every);
    muster_fabric_listen(self.fabric, &self.listener);
    RIG_EXPECT(muster_fabric_wait(self.fabric, rig->generation, &self.all_announced, deadline_ns) ==
               MUSTER_OK);
    muster_fabric_begin_posting(self.fabric);
    for (uint32_t i = 0; i < MESSAGES; i += defers_every) {
        post(&self, i);
    }
    muster_fabric_end_posting(self.fabric);
    RIG_EXPECT(muster_fabric_wait(self.fabric, rig->generation, &self.all_received, deadline_ns) ==
               MUSTER_OK);
    char *failure = check_received(&self);
    finish_receiver(&self);
    return failure;
}

static char *exchange(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    return rank == 0 ? send_all(rig) : receive_all(rig, 3);
}

static void announced_messages_are_received_at_once_or_later(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    rig_run(&rig, exchange, NULL);
    rig_begin(&rig); /* the same keys in another generation */
    rig_run(&rig, exchange, NULL);
    rig_finish(&rig);
}

/* Refuses long messages, the only ones here, as soon as they are announced. */
static void refuse(struct muster_announcement_listener *listener,
                   const struct muster_announcement *message)
{
    struct receiver *self = (struct receiver *)listener;
    self->failed = self->failed ||
                   !muster_fabric_refuse_locked(self->fabric, message->peer, &message->key,
                                                "rank 1 says: it is too long") ||
                   /* It is gone. */
                   muster_fabric_refuse_locked(self->fabric, message->peer, &message->key, "again");
}

static char *send_what_is_refused(struct rig *rig)
{
    char *data = malloc(SIZE_MAX_BYTES);
    for (uint32_t i = 0; i < 3; i++) {
        struct rig_counter counter = {.left = 1};
        const struct muster_call call = {.root = TAG};
        struct muster_transfer send = rig_send(rig, 1, 1, data, SIZE_MAX_BYTES);
        send.key = key_of(rig, i);
        send.call = &call;
        rig_post(rig, 0, &counter, &send);
        RIG_EXPECT(rig_wait(rig, 0, &counter) == MUSTER_INVALID);
        RIG_EXPECT(strcmp(counter.reason, "rank 1 says: it is too long") == 0);
    }
    free(data);
    return rig_exchange(rig, 0, NULL); /* the link goes on */
}

static char *refuse_or_send(struct rig *rig, uint32_t rank, void *user)
{
    static struct receiver self;
    (void)user;
    if (rank == 0) {
        return send_what_is_refused(rig);
    }
    init_receiver(&self, rig, 1);
    self.listener.announced = refuse;
    muster_fabric_listen(self.fabric, &self.listener);
    char *failure = rig_exchange(rig, 1, NULL);
    finish_receiver(&self);
    RIG_EXPECT(failure != NULL || !self.failed);
    return failure;
}

static void a_refused_message_ends_its_send_with_the_reason(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    rig_run(&rig, refuse_or_send, NULL);
    rig_finish(&rig);
}

/* Rank 1 listens when the messages, or what can be sent of them, have come in. */
static char *listen_late(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    if (rank == 0) {
        return send_all(rig);
    }
    rig_progress(rig, 1, 20);
    return receive_all(rig, 1);
}

static void messages_that_came_before_the_listener_are_announced_to_it(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, conformance_transport, 2);
    rig_run(&rig, rig_exchange, NULL); /* the link is open */
    rig_run(&rig, listen_late, NULL);
    rig_finish(&rig);
}

const struct CMUnitTest conformance_announced[] = {
    cmocka_unit_test(announced_messages_are_received_at_once_or_later),
    cmocka_unit_test(a_refused_message_ends_its_send_with_the_reason),
    cmocka_unit_test(messages_that_came_before_the_listener_are_announced_to_it),
};
const size_t conformance_announced_count =
    sizeof conformance_announced / sizeof conformance_announced[0];
