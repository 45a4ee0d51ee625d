/* Point to point without requests: blocking sends and receives that are done at once, and their
 * order beside all others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/messages.h"
#include "tests/support/schedules.h"
#include "worker/context/point_to_point_parts.h"

enum {
    ROUNDS = 400,
    BURST_MAX = 12,
    COUNT_MAX = 4000, /* elements; the messages of a burst fit into the eager window */
    TAGS = 3,
};

static uint64_t seed;

static uint64_t direct_count(const struct group_member *member)
{
    const struct muster_point_to_point *messages =
        atomic_load(&member->contexts[MUSTER_GLOBAL]->messages);
    return messages != NULL ? atomic_load(&messages->direct_count) : 0;
}

static void start_pair(struct group *group, enum group_transport transport)
{
    group_start_flat(group, transport, 2);
    group_each(group, message_ring, NULL); /* opens the link */
}

static void must(muster_status status)
{
    if (status != MUSTER_OK) {
        fail_msg("%s", muster_last_error());
    }
}

/* Both members in one thread: what is sent has arrived when it is received. */
static void a_message_that_is_there_needs_no_request(void **state)
{
    (void)state;
    struct group group;
    start_pair(&group, GROUP_SHM);
    uint64_t before[] = {direct_count(&group.members[0]), direct_count(&group.members[1])};
    for (int32_t i = 0; i < 40; i++) { /* fewer than after which a receive takes the other way */
        int32_t out[] = {i, 2 * i};
        int32_t in[2] = {-1, -1};
        muster_message message = {.count = 0};
        struct muster_message_call send = message_send_of(out, (size_t)i % 3, 1, (uint32_t)i);
        struct muster_message_call receive =
            message_receive_of(in, 2, 0, i % 2 == 0 ? (uint32_t)i : MUSTER_ANY_TAG, &message);
        must(message_run(&group.members[0], &send));
        must(message_run(&group.members[1], &receive));
        assert_int_equal(message.source, 0);
        assert_int_equal(message.tag, i);
        assert_int_equal(message.count, i % 3);
        assert_int_equal(message.type, MUSTER_INT32);
        assert_memory_equal(in, out, (size_t)(i % 3) * sizeof in[0]);
    }
    assert_int_equal(direct_count(&group.members[0]) - before[0], 40);
    assert_in_range(direct_count(&group.members[1]) - before[1], 38, 40);
    group_finish(&group);
}

/* Messages that a direct receive must leave where they are: another tag, another type, too long.
 * The receives that follow get them, or say what is wrong. */
static void other_messages_stay_for_other_receives(void **state)
{
    (void)state;
    struct group group;
    start_pair(&group, GROUP_SHM);
    int32_t out[] = {7, 8, 9};
    int32_t in[3] = {0};
    struct muster_message_call first = message_send_of(out, 1, 1, 5);
    struct muster_message_call second = message_send_of(out + 1, 1, 1, 6);
    struct muster_message_call later = message_receive_of(in, 1, 0, 6, NULL);
    struct muster_message_call earlier = message_receive_of(in + 1, 1, 0, 5, NULL);
    must(message_run(&group.members[0], &first));
    must(message_run(&group.members[0], &second));
    must(message_run(&group.members[1], &later));
    must(message_run(&group.members[1], &earlier));
    assert_int_equal(in[0], 8);
    assert_int_equal(in[1], 7);

    struct muster_message_call long_one = message_send_of(out, 3, 1, 1);
    struct muster_message_call short_one = message_receive_of(in, 2, 0, 1, NULL);
    must(message_run(&group.members[0], &long_one));
    assert_int_equal(message_run(&group.members[1], &short_one), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "has 3 elements of type int32"));

    struct muster_message_call floats = message_receive_of(in, 3, 0, 1, NULL);
    floats.type = MUSTER_FLOAT32;
    must(message_run(&group.members[0], &long_one));
    assert_int_equal(message_run(&group.members[1], &floats), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "float32"));

    struct muster_message_call receive = message_receive_of(in, 3, 0, 1, NULL);
    must(message_run(&group.members[0], &long_one));
    must(message_run(&group.members[1], &receive));
    assert_memory_equal(in, out, sizeof in);
    group_finish(&group);
}

/* A burst: its messages, which both members draw alike, and how each is sent and received. */
struct burst {
    uint32_t from, length;
    struct {
        uint32_t tag;
        size_t count;
        bool send_in_flight, receive_in_flight, any_source;
    } messages[BURST_MAX];
};

static void draw_burst(struct burst *burst, uint64_t *random)
{
    burst->from = (uint32_t)(test_random(random) % 2);
    burst->length = 1 + (uint32_t)(test_random(random) % BURST_MAX);
    for (uint32_t i = 0; i < burst->length; i++) {
        burst->messages[i].tag = (uint32_t)(test_random(random) % TAGS);
        burst->messages[i].count =
            test_random(random) % (test_random(random) % 4 == 0 ? COUNT_MAX : 20);
        burst->messages[i].send_in_flight = test_random(random) % 8 == 0;
        burst->messages[i].receive_in_flight = test_random(random) % 8 == 0;
        burst->messages[i].any_source = test_random(random) % 8 == 0;
    }
}

static void run_or_start(struct group_member *member, const struct muster_message_call *what,
                         bool starts, struct muster_started_call **ret_call)
{
    muster_status status =
        starts ? muster_context_start_message(member->contexts[MUSTER_GLOBAL], what, ret_call)
               : message_run(member, what);
    if (status != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
}

static void do_burst(struct group_member *member, const struct burst *burst, int32_t round)
{
    static const size_t room = COUNT_MAX;
    struct muster_started_call *calls[BURST_MAX] = {NULL};
    muster_message messages[BURST_MAX];
    int32_t *data = malloc(BURST_MAX * room * sizeof *data);
    bool sends = burst->from == member->rank;
    for (uint32_t i = 0; i < burst->length; i++) {
        int32_t *own = data + i * room;
        for (size_t k = 0; k < room; k++) {
            own[k] = sends ? round * 1000 + (int32_t)(i * 10 + k) : -1;
        }
        struct muster_message_call what =
            sends ? message_send_of(own, burst->messages[i].count, 1 - member->rank,
                                    burst->messages[i].tag)
                  : message_receive_of(
                        own, room, burst->messages[i].any_source ? MUSTER_ANY_SOURCE : burst->from,
                        burst->messages[i].tag, &messages[i]);
        run_or_start(member, &what,
                     sends ? burst->messages[i].send_in_flight
                           : burst->messages[i].receive_in_flight,
                     &calls[i]);
    }
    for (uint32_t i = 0; i < burst->length; i++) {
        if (calls[i] != NULL && muster_started_call_end(calls[i], NULL) != MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
        }
        size_t count = burst->messages[i].count;
        bool right = sends || (messages[i].source == burst->from && messages[i].count == count &&
                               messages[i].tag == burst->messages[i].tag);
        for (size_t k = 0; k < count && right && !sends; k++) {
            right = data[i * room + k] == round * 1000 + (int32_t)(i * 10 + k);
        }
        if (!right) {
            group_fail(member, "round %d: message %u has other elements", (int)round, i);
        }
    }
    free(data);
}

static void exchange(struct group_member *member, void *argument)
{
    uint64_t random = *(uint64_t *)argument;
    for (int32_t round = 0; round < ROUNDS && member->failure[0] == '\0'; round++) {
        struct burst burst;
        draw_burst(&burst, &random);
        do_burst(member, &burst, round);
    }
}

/* Over links that send small messages without a receive. */
static void bursts_of_all_kinds_keep_their_order(void **state)
{
    (void)state;
    for (enum group_transport transport = GROUP_TCP; transport <= GROUP_SHM; transport++) {
        struct group group;
        start_pair(&group, transport);
        group_each(&group, exchange, &seed);
        group_finish(&group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_that_is_there_needs_no_request),
        cmocka_unit_test(other_messages_stay_for_other_receives),
        cmocka_unit_test(bursts_of_all_kinds_keep_their_order),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
