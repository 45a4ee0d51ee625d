/* Point to point as users have it: scopes, handles beside those of collectives, probes, wrong
 * arguments, and a member that leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/schedules.h"
#include "tests/support/service.h"
#include "worker/session/operations.h"

enum { MEMBERS = 4, LONG = 50000, WAIT_MS = 30 * 1000 /* only a failing test waits so long */ };

/* In each scope, to the next rank and to oneself; with the ranks of the scope. */
static void send_around(struct crew_member *member)
{
    for (muster_scope scope = MUSTER_GLOBAL; scope <= MUSTER_CROSS; scope++) {
        uint32_t rank = muster_rank(member->session, scope);
        uint32_t size = muster_size(member->session, scope);
        double out = 10.0 * (int)scope + rank;
        double in[2] = {-1, -1};
        muster_message message = {.count = 0};
        MEMBER_OK(member, muster_send(member->session, scope, &out, 1, MUSTER_FLOAT64,
                                      (rank + 1) % size, 3, NULL));
        MEMBER_OK(member, muster_receive(member->session, scope, in, 2, MUSTER_FLOAT64,
                                         MUSTER_ANY_SOURCE, MUSTER_ANY_TAG, NULL, &message));
        uint32_t before = (rank + size - 1) % size;
        MEMBER_CHECK(member, message.source == before && message.tag == 3 && message.count == 1);
        MEMBER_CHECK(member, message.type == MUSTER_FLOAT64 && in[0] == 10.0 * (int)scope + before);
        MEMBER_CHECK(member, in[1] == -1);
        MEMBER_OK(member, muster_send(member->session, scope, NULL, 0, MUSTER_INT8, rank, 0, NULL));
        MEMBER_OK(member, muster_receive(member->session, scope, NULL, 0, MUSTER_INT8, rank, 0,
                                         NULL, NULL));
    }
}

/* Handles of messages and of collectives, waited for in all ways. */
static void mix_with_collectives(struct crew_member *member)
{
    static int32_t data[MEMBERS][2][LONG];
    int32_t one = 1;
    int32_t sum = 0;
    muster_message message = {.count = 0};
    muster_operation operations[3];
    bool seen[3] = {false};
    uint32_t rank = muster_rank(member->session, MUSTER_GLOBAL);
    for (int round = 0; round < 20; round++) {
        size_t count = round % 2 == 0 ? 10 : LONG;
        data[member->index][0][count - 1] = (int32_t)rank;
        MEMBER_OK(member,
                  muster_receive_start(member->session, MUSTER_GLOBAL, data[member->index][1], LONG,
                                       MUSTER_INT32, rank ^ 1, 5, NULL, &message, &operations[0]));
        MEMBER_OK(member, muster_allreduce_start(member->session, MUSTER_GLOBAL, &one, &sum, 1,
                                                 MUSTER_INT32, MUSTER_SUM, NULL, &operations[1]));
        MEMBER_OK(member,
                  muster_send_start(member->session, MUSTER_GLOBAL, data[member->index][0], count,
                                    MUSTER_INT32, rank ^ 1, 5, NULL, &operations[2]));
        muster_operation left[3] = {operations[0], operations[1], operations[2]};
        for (size_t count_left = 3; count_left > 0; count_left--) {
            size_t index = SIZE_MAX;
            MEMBER_OK(member, muster_wait_any(left, count_left, &index));
            for (size_t i = 0; i < 3; i++) {
                seen[i] = seen[i] || operations[i] == left[index];
            }
            MEMBER_CHECK(member, muster_wait(left[index]) == MUSTER_INVALID);
            left[index] = left[count_left - 1];
        }
        MEMBER_CHECK(member, seen[0] && seen[1] && seen[2] && sum == MEMBERS);
        MEMBER_CHECK(member, message.source == (rank ^ 1) && message.count == count);
        MEMBER_CHECK(member, data[member->index][1][count - 1] == (int32_t)(rank ^ 1));
        seen[0] = seen[1] = seen[2] = false;
    }
}

/* A persistent send and receive of a small message, and of a long one, started again and again; in
 * the middle of it blocking messages take their places in the order. */
static void start_again_and_again(struct crew_member *member)
{
    static int32_t data[MEMBERS][2][LONG];
    const size_t counts[] = {10, LONG};
    uint32_t rank = muster_rank(member->session, MUSTER_GLOBAL);
    for (int kind = 0; kind < 2; kind++) {
        size_t count = counts[kind];
        int32_t *out = data[member->index][0];
        int32_t *in = data[member->index][1];
        muster_message message = {.count = 0};
        muster_operation sends = 0;
        muster_operation receives = 0;
        MEMBER_OK(member, muster_send_init(member->session, MUSTER_GLOBAL, out, count, MUSTER_INT32,
                                           rank ^ 1, 5, NULL, &sends));
        MEMBER_OK(member,
                  muster_receive_init(member->session, MUSTER_GLOBAL, in, LONG, MUSTER_INT32,
                                      rank ^ 1, MUSTER_ANY_TAG, NULL, &message, &receives));
        MEMBER_CHECK(member, muster_wait(sends) == MUSTER_INVALID);
        for (int32_t round = 0; round < 30; round++) {
            int32_t single = -1;
            out[count - 1] = (int32_t)rank * 1000 + round;
            in[count - 1] = -1;
            MEMBER_OK(member, muster_start(receives));
            MEMBER_OK(member, muster_start(sends));
            MEMBER_CHECK(member, muster_start(sends) == MUSTER_INVALID);
            MEMBER_OK(member, muster_send(member->session, MUSTER_GLOBAL, &round, 1, MUSTER_INT32,
                                          rank ^ 1, 6, NULL));
            MEMBER_OK(member, muster_wait(receives));
            MEMBER_OK(member, muster_receive(member->session, MUSTER_GLOBAL, &single, 1,
                                             MUSTER_INT32, rank ^ 1, 6, NULL, NULL));
            MEMBER_OK(member, muster_wait(sends));
            MEMBER_CHECK(member, single == round && message.tag == 5 && message.count == count);
            MEMBER_CHECK(member, in[count - 1] == (int32_t)(rank ^ 1) * 1000 + round);
        }
        MEMBER_OK(member, muster_detach(sends));
        MEMBER_OK(member, muster_detach(receives));
        MEMBER_CHECK(member, muster_start(sends) == MUSTER_INVALID);
    }
    MEMBER_OK(member, muster_barrier(member->session, MUSTER_GLOBAL, NULL));
}

/* Nobody sends what rank 0 waits for: it reports the member, and all go on in a new generation. */
static void wait_in_vain(struct crew_member *member)
{
    int32_t value = 0;
    uint64_t before = muster_generation(member->session);
    muster_call_options options;
    muster_call_options_init(&options);
    options.timeout_ms = 100;
    if (muster_rank(member->session, MUSTER_GLOBAL) == 0) {
        MEMBER_CHECK(member, muster_receive(member->session, MUSTER_GLOBAL, &value, 1, MUSTER_INT32,
                                            1, 0, &options, NULL) == MUSTER_REJOIN);
        MEMBER_CHECK(member, strstr(muster_last_error(), "the deadline passed") != NULL);
    } else {
        MEMBER_CHECK(member, muster_receive(member->session, MUSTER_GLOBAL, &value, 1, MUSTER_INT32,
                                            MUSTER_ANY_SOURCE, 1, NULL, NULL) == MUSTER_REJOIN);
    }
    MEMBER_OK(member, muster_rejoin(member->session));
    MEMBER_CHECK(member, muster_generation(member->session) > before);
    send_around(member);
}

/* A persistent receive ends with its generation. */
static void persist_beyond_the_generation(struct crew_member *member)
{
    int32_t value = 0;
    muster_operation receives = 0;
    MEMBER_OK(member, muster_receive_init(member->session, MUSTER_GLOBAL, &value, 1, MUSTER_INT32,
                                          0, 5, NULL, NULL, &receives));
    wait_in_vain(member);
    MEMBER_CHECK(member, muster_start(receives) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "has ended with its generation") != NULL);
    MEMBER_OK(member, muster_detach(receives));
    MEMBER_OK(member, muster_barrier(member->session, MUSTER_GLOBAL, NULL));
}

/* A message is found before it is received, and has the size that its receive needs. A receive in
 * flight outlives a wait that gives up. */
static void probe_and_detach(struct crew_member *member)
{
    static int32_t shared[MEMBERS][2];
    uint32_t rank = muster_rank(member->session, MUSTER_GLOBAL);
    muster_message message = {.count = 0};
    muster_operation operation = 0;
    int found = 0;
    if (rank == 0) {
        int32_t values[] = {7, 8, 9};
        MEMBER_OK(member, muster_receive_start(member->session, MUSTER_GLOBAL, shared[0], 1,
                                               MUSTER_INT32, 1, 2, NULL, NULL, &operation));
        MEMBER_CHECK(member, muster_wait_for(operation, 5) == MUSTER_RETRY);
        MEMBER_OK(member,
                  muster_send(member->session, MUSTER_GLOBAL, values, 3, MUSTER_INT32, 1, 1, NULL));
        MEMBER_OK(member, muster_detach(operation));
    } else if (rank == 1) {
        int32_t values[3] = {0};
        MEMBER_OK(member, muster_probe(member->session, MUSTER_GLOBAL, MUSTER_ANY_SOURCE,
                                       MUSTER_ANY_TAG, WAIT_MS, &found, &message));
        MEMBER_CHECK(member, found == 1);
        MEMBER_CHECK(member, message.source == 0 && message.tag == 1 && message.count == 3);
        MEMBER_OK(member, muster_receive(member->session, MUSTER_GLOBAL, values, message.count,
                                         message.type, message.source, message.tag, NULL, NULL));
        MEMBER_CHECK(member, values[2] == 9);
        values[0] = 44;
        MEMBER_OK(member,
                  muster_send(member->session, MUSTER_GLOBAL, values, 1, MUSTER_INT32, 0, 2, NULL));
    }
    MEMBER_OK(member, muster_barrier(member->session, MUSTER_GLOBAL, NULL));
    if (rank == 0) {
        /* The message that the detached receive has got is not there any more. */
        MEMBER_OK(member, muster_probe(member->session, MUSTER_GLOBAL, 1, 2, 0, &found, &message));
        MEMBER_CHECK(member, found == 0);
    }
    MEMBER_OK(member, muster_barrier(member->session, MUSTER_GLOBAL, NULL)); /* nobody leaves yet */
}

/* Threads of rank 1 each take messages and receive what they have taken: none is received twice. */
enum { TAKERS = 3, TAKEN = 300 };

struct taker {
    struct crew_member *member;
    pthread_t thread;
    uint32_t seen[TAKEN]; /* messages by number */
    const char *failure;
};

static size_t length_of(int32_t number)
{
    return number % 10 == 0 ? LONG : (size_t)number % 7 + 1;
}

/* Until the message that says so; that one is passed on. */
static void *take_all(void *user)
{
    struct taker *taker = user;
    muster_session *session = taker->member->session;
    int32_t *values = malloc(LONG * sizeof *values);
    for (bool over = false; !over && taker->failure == NULL;) {
        muster_message message = {.count = 0};
        int found = 0;
        if (muster_take(session, MUSTER_GLOBAL, 0, MUSTER_ANY_TAG, WAIT_MS, &found, &message) !=
                MUSTER_OK ||
            found == 0 || message.taken == 0) {
            taker->failure = "take";
            break;
        }
        if (muster_receive_taken(session, MUSTER_GLOBAL, values, message.count, MUSTER_INT32,
                                 &message, NULL) != MUSTER_OK) {
            taker->failure = "receive";
        } else if (message.tag == 2) {
            over = true;
        } else if (values[0] < 0 || values[0] >= TAKEN || message.count != length_of(values[0])) {
            taker->failure = "another message than the one that was taken";
        } else {
            taker->seen[values[0]]++;
        }
    }
    free(values);
    return NULL;
}

static void send_to_takers(struct crew_member *member)
{
    int32_t *values = calloc(LONG, sizeof *values);
    for (int32_t i = 0; i < TAKEN; i++) {
        values[0] = i;
        MEMBER_OK(member, muster_send(member->session, MUSTER_GLOBAL, values, length_of(i),
                                      MUSTER_INT32, 1, 1, NULL));
    }
    for (int i = 0; i < TAKERS; i++) {
        MEMBER_OK(member,
                  muster_send(member->session, MUSTER_GLOBAL, values, 1, MUSTER_INT32, 1, 2, NULL));
    }
    free(values);
}

static void take_from_threads(struct crew_member *member)
{
    static struct taker takers[TAKERS];
    uint32_t rank = muster_rank(member->session, MUSTER_GLOBAL);
    if (rank == 0) {
        send_to_takers(member);
    }
    for (int i = 0; i < TAKERS && rank == 1; i++) {
        takers[i] = (struct taker){.member = member};
        MEMBER_CHECK(member, pthread_create(&takers[i].thread, NULL, take_all, &takers[i]) == 0);
    }
    for (int i = 0; i < TAKERS && rank == 1; i++) {
        MEMBER_CHECK(member, pthread_join(takers[i].thread, NULL) == 0);
        MEMBER_CHECK(member, takers[i].failure == NULL);
    }
    for (int k = 0; k < TAKEN && rank == 1; k++) {
        MEMBER_CHECK(member, takers[0].seen[k] + takers[1].seen[k] + takers[2].seen[k] == 1);
    }
    MEMBER_OK(member, muster_barrier(member->session, MUSTER_GLOBAL, NULL));
}

/* What is taken is there for nobody else, and can be received once, in the type that it has. */
static void take_and_look(struct crew_member *member)
{
    uint32_t rank = muster_rank(member->session, MUSTER_GLOBAL);
    int32_t values[] = {5, 6};
    float other = 0;
    int found = 1;
    muster_message taken = {.count = 0};
    muster_message message = {.count = 0};
    muster_session *session = member->session;
    for (int i = 0; i < 2; i++) {
        MEMBER_OK(member,
                  muster_send(session, MUSTER_GLOBAL, &values[i], 1, MUSTER_INT32, rank, 4, NULL));
    }
    MEMBER_OK(member, muster_probe(session, MUSTER_GLOBAL, rank, 9, 5, &found, &message));
    MEMBER_CHECK(member, found == 0);
    MEMBER_OK(member, muster_take(session, MUSTER_GLOBAL, MUSTER_ANY_SOURCE, 4, 0, &found, &taken));
    MEMBER_CHECK(member, found == 1 && taken.taken != 0 && taken.source == rank);
    values[0] = values[1] = 0;
    MEMBER_OK(member, muster_receive(session, MUSTER_GLOBAL, values, 1, MUSTER_INT32, rank, 4, NULL,
                                     &message));
    MEMBER_CHECK(member, values[0] == 6 && message.taken == 0);
    MEMBER_OK(member, muster_probe(session, MUSTER_GLOBAL, rank, 4, 0, &found, &message));
    MEMBER_CHECK(member, found == 0);
    MEMBER_CHECK(member, muster_receive_taken(session, MUSTER_GLOBAL, &other, 1, MUSTER_FLOAT32,
                                              &taken, NULL) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "float32") != NULL);
    MEMBER_CHECK(member, muster_receive_taken(session, MUSTER_GLOBAL, values, 1, MUSTER_INT32,
                                              &taken, NULL) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "has been received") != NULL);
    MEMBER_CHECK(member, muster_receive_taken(session, MUSTER_GLOBAL, values, 1, MUSTER_INT32,
                                              &message, NULL) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "muster_take()") != NULL);
    MEMBER_OK(member, muster_barrier(session, MUSTER_GLOBAL, NULL));
}

/* A probe that waits ends with the generation. */
static void probe_in_vain(struct crew_member *member)
{
    int found = 5;
    muster_message message = {.count = 0};
    if (muster_rank(member->session, MUSTER_GLOBAL) == 1) {
        MEMBER_CHECK(member, muster_probe(member->session, MUSTER_GLOBAL, 0, 77, WAIT_MS, &found,
                                          &message) == MUSTER_REJOIN);
        MEMBER_CHECK(member, found == 5);
        MEMBER_CHECK(member, strstr(muster_last_error(), "probe") != NULL);
    }
    wait_in_vain(member);
}

static void use_wrongly(struct crew_member *member)
{
    int32_t value = 0;
    int found = 5;
    muster_message message;
    muster_operation operation = 0;
    muster_call_options options;
    muster_call_options_init(&options);
    muster_session *session = member->session;
    MEMBER_CHECK(member, muster_send(session, (muster_scope)9, &value, 1, MUSTER_INT32, 0, 0,
                                     NULL) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "send: scope 9") != NULL);
    MEMBER_CHECK(member, muster_receive(session, MUSTER_GLOBAL, &value, 1, MUSTER_INT32, MEMBERS, 0,
                                        NULL, NULL) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "rank 4: context global has 4") != NULL);
    MEMBER_CHECK(member, muster_send_start(session, MUSTER_GLOBAL, &value, 1, MUSTER_INT32, 0, 0,
                                           NULL, NULL) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "ret_operation is NULL") != NULL);
    MEMBER_CHECK(member, muster_send_start(session, MUSTER_GLOBAL, NULL, 1, MUSTER_INT32, 0, 0,
                                           NULL, &operation) == MUSTER_INVALID);
    MEMBER_CHECK(member, operation == 0);
    MEMBER_CHECK(member,
                 muster_probe(session, MUSTER_GLOBAL, 0, 0, 0, NULL, &message) == MUSTER_INVALID);
    MEMBER_CHECK(member, muster_probe(session, MUSTER_GLOBAL, 99, 0, 0, &found, &message) ==
                             MUSTER_INVALID);
    MEMBER_CHECK(member, found == 5);
    options.size = 3;
    MEMBER_CHECK(member, muster_send(session, MUSTER_GLOBAL, &value, 1, MUSTER_INT32, 0, 0,
                                     &options) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "send") != NULL);
    MEMBER_OK(member, muster_barrier(session, MUSTER_GLOBAL, NULL));
}

static void run_members(const char *job, crew_function function)
{
    struct crew crew = {
        .url = group_service.url, .job = job, .count = MEMBERS, .hosts = 2, .function = function};
    assert_int_equal(crew_run(&crew), 0);
    assert_int_equal(muster_session_count_operations(), 0);
}

static void messages_go_around_in_every_scope(void **state)
{
    (void)state;
    run_members("around", send_around);
}

static void messages_and_collectives_are_in_flight_together(void **state)
{
    (void)state;
    run_members("mixed", mix_with_collectives);
}

static void persistent_messages_are_started_again(void **state)
{
    (void)state;
    run_members("again", start_again_and_again);
}

static void a_persistent_receive_ends_with_its_generation(void **state)
{
    (void)state;
    run_members("beyond", persist_beyond_the_generation);
}

static void a_probe_finds_a_message_and_a_detached_receive_gets_one(void **state)
{
    (void)state;
    run_members("probe", probe_and_detach);
}

static void threads_receive_what_they_have_taken(void **state)
{
    (void)state;
    run_members("takers", take_from_threads);
}

static void a_taken_message_is_there_for_nobody_else(void **state)
{
    (void)state;
    run_members("taken", take_and_look);
}

static void a_waiting_probe_ends_with_the_generation(void **state)
{
    (void)state;
    run_members("probing", probe_in_vain);
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    run_members("wrong", use_wrongly);
}

static void a_receive_whose_deadline_passes_ends_the_generation(void **state)
{
    (void)state;
    run_members("vain", wait_in_vain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_go_around_in_every_scope),
        cmocka_unit_test(messages_and_collectives_are_in_flight_together),
        cmocka_unit_test(persistent_messages_are_started_again),
        cmocka_unit_test(a_persistent_receive_ends_with_its_generation),
        cmocka_unit_test(a_probe_finds_a_message_and_a_detached_receive_gets_one),
        cmocka_unit_test(threads_receive_what_they_have_taken),
        cmocka_unit_test(a_taken_message_is_there_for_nobody_else),
        cmocka_unit_test(a_waiting_probe_ends_with_the_generation),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(a_receive_whose_deadline_passes_ends_the_generation),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup_patient, test_service_teardown);
}
