/* Point to point over every transport: random messages with all kinds of receives, messages to
 * oneself, and small ones that no receive waits for. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/messages.h"
#include "tests/support/schedules.h"

enum {
    MEMBERS = 4,
    MESSAGES = 150, /* of each member */
    TAGS = 4,       /* the upper half is received from any source */
    IN_FLIGHT = 20, /* receives of a member, and sends */
    SMALL_MAX = 40,
    MIDDLE_MAX = 6000,  /* around the limit of eager messages */
    LARGE_MAX = 120000, /* several segments */
};

static const uint32_t hosts[] = {3, 1};

static uint64_t seed;

/* What each member sends, which all members draw alike. */
struct planned {
    uint32_t to, tag;
    uint32_t index; /* among the messages of this sender, receiver and tag */
    size_t count;
};

struct plan {
    struct planned messages[MEMBERS][MESSAGES];
    uint32_t counts[MEMBERS][MEMBERS][TAGS]; /* of a sender and a receiver */
    bool any;                                /* all are received with any source and any tag */
};

static void draw_plan(struct plan *plan, uint64_t *random, bool any)
{
    memset(plan, 0, sizeof *plan);
    plan->any = any;
    for (uint32_t from = 0; from < MEMBERS; from++) {
        for (int i = 0; i < MESSAGES; i++) {
            struct planned *each = &plan->messages[from][i];
            size_t most = i % 10 == 0 ? LARGE_MAX : i % 3 == 0 ? MIDDLE_MAX : SMALL_MAX;
            each->to = (uint32_t)(test_random(random) % MEMBERS);
            each->tag = (uint32_t)(test_random(random) % TAGS);
            each->count = test_random(random) % most;
            each->index = plan->counts[from][each->to][each->tag]++;
        }
    }
}

/* The first three elements say which message it is; the others follow from them. */
static void fill(int32_t *data, size_t count, uint32_t from, uint32_t tag, uint32_t index)
{
    for (size_t i = 0; i < count; i++) {
        data[i] = (int32_t)(from * 1000003 + tag * 10007 + index * 101 + i);
    }
}

static bool holds(const int32_t *data, size_t count, uint32_t from, uint32_t tag, uint32_t index)
{
    for (size_t i = 0; i < count; i++) {
        if (data[i] != (int32_t)(from * 1000003 + tag * 10007 + index * 101 + i)) {
            return false;
        }
    }
    return true;
}

static const struct planned *find_planned(const struct plan *plan, uint32_t from, uint32_t to,
                                          uint32_t tag, uint32_t index)
{
    for (int i = 0; i < MESSAGES; i++) {
        const struct planned *each = &plan->messages[from][i];
        if (each->to == to && each->tag == tag && each->index == index) {
            return each;
        }
    }
    return NULL;
}

/* One thread of a member; a member has a sender and a receiver. */
struct side {
    struct group_member *member;
    const struct plan *plan;
    uint64_t random;
};

struct pending {
    struct muster_started_call *call; /* NULL: it has ended */
    int32_t *data;
    muster_message message;
};

static void end_pending(struct side *side, struct pending *pending)
{
    if (pending->call != NULL && muster_started_call_end(pending->call, NULL) != MUSTER_OK) {
        group_fail(side->member, "end: %s", muster_last_error());
    }
    pending->call = NULL;
    free(pending->data);
    pending->data = NULL;
}

/* Half of the messages block, the others are in flight. */
static void *send_all(void *user)
{
    struct side *side = user;
    const struct group_member *member = side->member;
    struct pending pending[IN_FLIGHT] = {{0}};
    for (int i = 0; i < MESSAGES && side->member->failure[0] == '\0'; i++) {
        const struct planned *each = &side->plan->messages[member->rank][i];
        struct pending *slot = &pending[test_random(&side->random) % IN_FLIGHT];
        end_pending(side, slot);
        slot->data = malloc((each->count + 1) * sizeof *slot->data);
        fill(slot->data, each->count, member->rank, each->tag, each->index);
        struct muster_message_call what =
            message_send_of(slot->data, each->count, each->to, each->tag);
        bool blocks = test_random(&side->random) % 2 == 0;
        muster_status status =
            blocks
                ? message_run(member, &what)
                : muster_context_start_message(member->contexts[MUSTER_GLOBAL], &what, &slot->call);
        if (status != MUSTER_OK) {
            group_fail(side->member, "send: %s", muster_last_error());
        }
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        end_pending(side, &pending[i]);
    }
    return NULL;
}

/* The receives of a member, in a random order: of each (source, tag) of the lower tags as many as
 * there are messages, and of each upper tag from any source. */
struct wanted {
    uint32_t source, tag;
};

static size_t list_wanted(const struct plan *plan, uint32_t rank, struct wanted *wanted)
{
    size_t count = 0;
    for (uint32_t from = 0; from < MEMBERS; from++) {
        for (uint32_t tag = 0; tag < TAGS; tag++) {
            for (uint32_t i = 0; i < plan->counts[from][rank][tag]; i++) {
                wanted[count++] = (struct wanted){
                    .source = plan->any || tag >= TAGS / 2 ? MUSTER_ANY_SOURCE : from,
                    .tag = plan->any ? MUSTER_ANY_TAG : tag};
            }
        }
    }
    return count;
}

/* Receives are checked in the order of their posts: the messages of a sender and a tag come in the
 * order in which they were sent. */
static void check_received(struct side *side, const struct pending *pending,
                           uint32_t next[MEMBERS][TAGS])
{
    const muster_message *message = &pending->message;
    uint32_t rank = side->member->rank;
    if (message->source >= MEMBERS || message->tag >= TAGS || message->type != MUSTER_INT32) {
        group_fail(side->member, "a message of rank %u with tag %u", message->source, message->tag);
        return;
    }
    uint32_t index = next[message->source][message->tag]++;
    const struct planned *planned =
        find_planned(side->plan, message->source, rank, message->tag, index);
    if (planned == NULL || planned->count != message->count ||
        !holds(pending->data, message->count, message->source, message->tag, index)) {
        group_fail(side->member, "message %u of rank %u with tag %u has %zu elements, or others",
                   index, message->source, message->tag, message->count);
    }
}

static void *receive_all(void *user)
{
    struct side *side = user;
    struct group_member *member = side->member;
    struct wanted *wanted = calloc((size_t)MEMBERS * MESSAGES, sizeof *wanted);
    struct pending *all = calloc((size_t)MEMBERS * MESSAGES, sizeof *all);
    uint32_t next[MEMBERS][TAGS] = {{0}};
    size_t count = list_wanted(side->plan, member->rank, wanted);
    size_t ended = 0;
    for (size_t i = 0; i < count && member->failure[0] == '\0'; i++) {
        size_t pick = i + test_random(&side->random) % (count - i);
        const struct wanted want = wanted[pick];
        wanted[pick] = wanted[i];
        all[i].data = malloc(LARGE_MAX * sizeof *all[i].data);
        struct muster_message_call what =
            message_receive_of(all[i].data, LARGE_MAX, want.source, want.tag, &all[i].message);
        /* A blocking receive may wait for a message behind one whose send waits for a receive of
         * this member that is still to come: so all are in flight, IN_FLIGHT at least. */
        if (muster_context_start_message(member->contexts[MUSTER_GLOBAL], &what, &all[i].call) !=
            MUSTER_OK) {
            group_fail(member, "receive: %s", muster_last_error());
        }
    }
    for (; ended < count; ended++) {
        struct pending *each = &all[ended];
        if (each->call != NULL && muster_started_call_end(each->call, NULL) != MUSTER_OK) {
            group_fail(member, "receive: %s", muster_last_error());
        } else if (each->call != NULL) {
            check_received(side, each, next);
        }
        each->call = NULL;
        free(each->data);
    }
    free(all);
    free(wanted);
    return NULL;
}

static void exchange(struct group_member *member, void *argument)
{
    const struct plan *plan = argument;
    struct side sender = {.member = member, .plan = plan, .random = seed + 10 + member->rank};
    struct side receiver = {.member = member, .plan = plan, .random = seed + 20 + member->rank};
    pthread_t thread;
    if (pthread_create(&thread, NULL, send_all, &sender) != 0) {
        abort();
    }
    (void)receive_all(&receiver);
    (void)pthread_join(thread, NULL);
}

static void random_messages_arrive_once_and_in_order(void **state)
{
    struct plan *plan = malloc(sizeof *plan);
    (void)state;
    for (enum group_transport transport = GROUP_INPROC; transport <= GROUP_SHM; transport++) {
        struct group group;
        uint64_t random = seed;
        group_start(&group, transport, 2, hosts, NULL);
        for (int round = 0; round < 2; round++) {
            draw_plan(plan, &random, false);
            group_each(&group, exchange, plan);
        }
        draw_plan(plan, &random, true);
        group_each(&group, exchange, plan);
        group_finish(&group);
    }
    free(plan);
}

static void small_messages_need_no_receive(void **state)
{
    (void)state;
    for (enum group_transport transport = GROUP_TCP; transport <= GROUP_SHM; transport++) {
        struct group group;
        group_start(&group, transport, 2, hosts, NULL);
        group_each(&group, message_ring, NULL);
        group_finish(&group);
    }
}

/* Small messages to oneself are stored; long ones wait for their receive. */
static void write_to_oneself(struct group_member *member, void *argument)
{
    enum { COUNT = 100000 };
    int32_t *out = malloc(COUNT * sizeof *out);
    int32_t *in = malloc(COUNT * sizeof *in);
    struct muster_started_call *call = NULL;
    muster_message message = {.count = 0};
    bool found = true;
    uint32_t suspect = 0;
    const struct muster_message_probe own = {.source = member->rank, .tag = 3};
    const struct muster_message_probe any = {.source = MUSTER_ANY_SOURCE, .tag = 3};
    (void)argument;
    struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    fill(out, COUNT, member->rank, 1, 1);
    struct muster_message_call send = message_send_of(out, 10, member->rank, 3);
    struct muster_message_call receive = message_receive_of(in, COUNT, member->rank, 3, &message);
    if (muster_context_probe(context, &own, &found, &message, &suspect) != MUSTER_OK || found) {
        group_fail(member, "a message before it is sent");
    }
    if (message_run(member, &send) != MUSTER_OK ||
        muster_context_probe(context, &any, &found, &message, &suspect) != MUSTER_OK || !found ||
        message.count != 10 || message.source != member->rank ||
        message_run(member, &receive) != MUSTER_OK || !holds(in, 10, member->rank, 1, 1)) {
        group_fail(member, "small: %s", muster_last_error());
    }
    send = message_send_of(out, COUNT, member->rank, 3);
    if (muster_context_start_message(context, &send, &call) != MUSTER_OK ||
        muster_started_call_test(call) || message_run(member, &receive) != MUSTER_OK ||
        muster_started_call_end(call, NULL) != MUSTER_OK || message.count != COUNT ||
        !holds(in, COUNT, member->rank, 1, 1)) {
        group_fail(member, "long: %s", muster_last_error());
    }
    /* The receive comes first, and does not fit. */
    receive = message_receive_of(in, COUNT - 1, member->rank, 3, &message);
    if (muster_context_start_message(context, &receive, &call) != MUSTER_OK ||
        message_run(member, &send) != MUSTER_INVALID ||
        strstr(muster_last_error(), "100000 elements of type int32") == NULL ||
        muster_started_call_end(call, NULL) != MUSTER_INVALID ||
        strstr(muster_last_error(), "room for 99999") == NULL) {
        group_fail(member, "too long: %s", muster_last_error());
    }
    free(in);
    free(out);
}

static void a_message_to_oneself_works(void **state)
{
    (void)state;
    struct group group;
    group_start(&group, GROUP_SHM, 2, hosts, NULL);
    group_each(&group, write_to_oneself, NULL);
    group_finish(&group);
    group_start_flat(&group, GROUP_INPROC, 1);
    group_each(&group, write_to_oneself, NULL);
    group_finish(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_messages_need_no_receive),
        cmocka_unit_test(a_message_to_oneself_works),
        cmocka_unit_test(random_messages_arrive_once_and_in_order),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
