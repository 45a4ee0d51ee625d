/* Sessions without a service. Members are threads; their exchange is memory of the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <jansson.h>
#include <unistd.h>

#include "worker/base/status.h"
#include "worker/communicator/introduction.h"
#include "worker/session/session_parts.h"

enum { SIZE = 5, HANGS_MS = 20000, SHORT_MS = 400 };

struct hall;

/* One member, and how its part of the exchange goes wrong. */
struct guest {
    struct hall *hall;
    uint32_t rank, size;
    uint32_t place; /* where its blob goes */
    muster_options options;
    char host[16];
    bool fails;    /* the exchange fails here, after the others have its blob */
    bool vanishes; /* the same, when all others have given up */
    void (*spoil)(unsigned char *blob);
    muster_session *session;
    muster_status status;
    char text[MUSTER_ERROR_MAX];
};

typedef void (*guest_work)(struct guest *guest);

struct hall {
    pthread_barrier_t barrier, end;
    unsigned char blobs[SIZE][MUSTER_INTRODUCTION_SIZE];
    guest_work work; /* with the session open; or NULL */
    struct guest guests[SIZE];
};

static int exchange(const void *mine, void *all, size_t size_bytes, void *user_data)
{
    struct guest *guest = user_data;
    struct hall *hall = guest->hall;
    memcpy(hall->blobs[guest->place], mine, size_bytes);
    if (guest->spoil != NULL) {
        guest->spoil(hall->blobs[guest->place]);
    }
    (void)pthread_barrier_wait(&hall->barrier);
    memcpy(all, hall->blobs, guest->size * size_bytes);
    if (guest->vanishes) {
        (void)pthread_barrier_wait(&hall->end);
    }
    return guest->fails || guest->vanishes ? 7 : 0;
}

static void *attend(void *argument)
{
    struct guest *guest = argument;
    struct hall *hall = guest->hall;
    guest->status = muster_open_with(&guest->options, guest->rank, guest->size, exchange, guest,
                                     &guest->session);
    if (guest->status != MUSTER_OK) {
        (void)snprintf(guest->text, sizeof guest->text, "%s", muster_last_error());
    } else if (hall->work != NULL) {
        hall->work(guest);
    }
    if (!guest->vanishes) {
        (void)pthread_barrier_wait(&hall->end);
    }
    muster_close(guest->session);
    return NULL;
}

/* Ranks are dealt out to two hosts. */
static void prepare(struct hall *hall)
{
    *hall = (struct hall){.work = NULL};
    assert_int_equal(pthread_barrier_init(&hall->barrier, NULL, SIZE), 0);
    assert_int_equal(pthread_barrier_init(&hall->end, NULL, SIZE), 0);
    for (uint32_t i = 0; i < SIZE; i++) {
        struct guest *guest = &hall->guests[i];
        *guest = (struct guest){.hall = hall, .rank = i, .size = SIZE, .place = i};
        muster_options_init(&guest->options);
        (void)snprintf(guest->host, sizeof guest->host, "host%u", i % 2);
        guest->options.host = guest->host;
        guest->options.listen = "127.0.0.1";
        guest->options.measure = 0;
        guest->options.join_timeout_ms = HANGS_MS;
        guest->options.call_timeout_ms = HANGS_MS;
    }
}

static void run(struct hall *hall)
{
    pthread_t threads[SIZE];
    for (uint32_t i = 0; i < SIZE; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, attend, &hall->guests[i]), 0);
    }
    for (uint32_t i = 0; i < SIZE; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    (void)pthread_barrier_destroy(&hall->barrier);
    (void)pthread_barrier_destroy(&hall->end);
}

static void expect(const struct guest *guest, muster_status status, const char *text)
{
    if (guest->status != status || strstr(guest->text, text) == NULL) {
        fail_msg("rank %u: %s, not %s: \"%s\" without \"%s\"", guest->rank,
                 muster_status_name(guest->status), muster_status_name(status), guest->text, text);
    }
}

static void expect_all(const struct hall *hall, muster_status status, const char *text)
{
    for (uint32_t i = 0; i < SIZE; i++) {
        expect(&hall->guests[i], status, text);
    }
}

/* In a member's thread: records the first thing that is wrong. */
#define CHECK(guest, condition)                                                            \
    do {                                                                                   \
        if (!(condition) && (guest)->status == MUSTER_OK) {                                \
            (guest)->status = MUSTER_FATAL;                                                \
            (void)snprintf((guest)->text, sizeof(guest)->text, "%d: %s: %.380s", __LINE__, \
                           #condition, muster_last_error());                               \
        }                                                                                  \
    } while (0)

/* Collectives ---------------------------------------------------------------------------------- */

static void use_collectives(struct guest *guest)
{
    muster_session *session = guest->session;
    uint32_t rank = guest->rank;
    uint32_t found[SIZE] = {0};
    uint32_t sent[SIZE];
    uint32_t value = rank + 1;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < SIZE; i++) {
        sent[i] = 100 * rank + i;
    }
    CHECK(guest, muster_rank(session, MUSTER_GLOBAL) == rank);
    CHECK(guest, muster_size(session, MUSTER_GLOBAL) == SIZE);
    CHECK(guest, muster_rank(session, MUSTER_LOCAL) == rank / 2);
    CHECK(guest, muster_size(session, MUSTER_LOCAL) == (rank % 2 == 0 ? 3 : 2));
    CHECK(guest, muster_rank(session, MUSTER_CROSS) == rank % 2);
    CHECK(guest, muster_generation(session) == 1);
    CHECK(guest, muster_allreduce(session, MUSTER_GLOBAL, &value, &sum, 1, MUSTER_UINT32,
                                  MUSTER_SUM, NULL) == MUSTER_OK);
    CHECK(guest, sum == 15);
    CHECK(guest, muster_allreduce(session, MUSTER_LOCAL, &value, &sum, 1, MUSTER_UINT32, MUSTER_SUM,
                                  NULL) == MUSTER_OK);
    CHECK(guest, sum == (rank % 2 == 0 ? 9 : 6));
    CHECK(guest, muster_allgather(session, MUSTER_GLOBAL, &rank, found, 1, MUSTER_UINT32, NULL) ==
                     MUSTER_OK);
    for (uint32_t i = 0; i < SIZE; i++) {
        CHECK(guest, found[i] == i);
    }
    CHECK(guest, muster_alltoall(session, MUSTER_GLOBAL, sent, found, 1, MUSTER_UINT32, NULL) ==
                     MUSTER_OK);
    for (uint32_t i = 0; i < SIZE; i++) {
        CHECK(guest, found[i] == 100 * i + rank);
    }
    muster_operation operations[2] = {0};
    CHECK(guest, muster_broadcast_start(session, MUSTER_GLOBAL, &value, 1, MUSTER_UINT32, 3, NULL,
                                        &operations[0]) == MUSTER_OK);
    CHECK(guest, muster_allgather_start(session, MUSTER_GLOBAL, &rank, found, 1, MUSTER_UINT32,
                                        NULL, &operations[1]) == MUSTER_OK);
    CHECK(guest, muster_wait(operations[1]) == MUSTER_OK && found[4] == 4);
    CHECK(guest, muster_wait(operations[0]) == MUSTER_OK && value == 4);
    CHECK(guest, muster_rejoin(session) == MUSTER_OK); /* nothing calls for one */
}

static void all_collectives_work_with_the_callers_ranks(void **state)
{
    (void)state;
    struct hall hall;
    prepare(&hall);
    hall.work = use_collectives;
    run(&hall);
    expect_all(&hall, MUSTER_OK, "");
}

static void links_are_measured_where_that_is_asked_for(void **state)
{
    (void)state;
    struct hall hall;
    prepare(&hall);
    hall.guests[0].options.measure = 1; /* rank 0's counts */
    hall.work = use_collectives;
    run(&hall);
    expect_all(&hall, MUSTER_OK, "");
}

static int copy_own(const void *mine, void *all, size_t size_bytes, void *user_data)
{
    (void)user_data;
    memcpy(all, mine, size_bytes);
    return 0;
}

static void a_single_member_needs_nobody(void **state)
{
    (void)state;
    muster_session *session = NULL;
    double number = 5;
    assert_int_equal(muster_open_with(NULL, 0, 1, copy_own, NULL, &session), MUSTER_OK);
    assert_int_equal(muster_allreduce(session, MUSTER_GLOBAL, &number, &number, 1, MUSTER_FLOAT64,
                                      MUSTER_SUM, NULL),
                     MUSTER_OK);
    assert_true(number == 5);
    muster_close(session);
}

/* State ---------------------------------------------------------------------------------------- */

static muster_status count_steps(muster_session *session, void *user)
{
    uint64_t *steps = user;
    while (*steps < 1003) {
        ++*steps;
        TRY(muster_commit(session));
    }
    return MUSTER_OK;
}

static void keep_a_state(struct guest *guest)
{
    muster_session *session = guest->session;
    uint64_t steps = guest->rank == 0 ? 1000 : guest->rank;
    CHECK(guest, muster_register(session, "steps", &steps, sizeof steps) == MUSTER_OK);
    CHECK(guest, muster_run(session, count_steps, &steps) == MUSTER_OK);
    CHECK(guest, steps == 1003 && muster_version_of_state(session) == 4);
    steps = 0;
    CHECK(guest, muster_restore(session) == MUSTER_OK && steps == 1003);
    if (guest->rank == 3) {
        muster_leave(session);
    }
    CHECK(guest, muster_commit(session) == MUSTER_ENDED);
    CHECK(guest, strstr(muster_last_error(), "without a service none follows") != NULL);
    CHECK(guest, muster_rejoin(session) == MUSTER_ENDED);
}

static void state_functions_work_and_a_leave_is_the_end(void **state)
{
    (void)state;
    struct hall hall;
    prepare(&hall);
    hall.work = keep_a_state;
    run(&hall);
    expect_all(&hall, MUSTER_OK, "");
}

static muster_status ask_to_rejoin(muster_session *session, void *user)
{
    (void)session;
    ++*(unsigned *)user;
    return muster_error_set(MUSTER_REJOIN, "the program's own reason");
}

static void run_once(struct guest *guest)
{
    unsigned calls = 0;
    CHECK(guest, muster_run(guest->session, ask_to_rejoin, &calls) == MUSTER_ENDED);
    CHECK(guest, calls <= 1); /* another member may have ended it before */
}

static void a_function_is_run_once(void **state)
{
    (void)state;
    struct hall hall;
    prepare(&hall);
    hall.work = run_once;
    run(&hall);
    expect_all(&hall, MUSTER_OK, "");
}

/* Deaths --------------------------------------------------------------------------------------- */

enum { VICTIM = 2 };

static void go_on_until_lost(struct guest *guest)
{
    muster_session *session = guest->session;
    muster_status status = MUSTER_OK;
    int32_t number = 1;
    (void)pthread_barrier_wait(&guest->hall->barrier); /* all have opened */
    if (guest->rank == VICTIM) {
        muster_fabric_kill(session->fabric);
        return;
    }
    while (status == MUSTER_OK) {
        status = muster_allreduce(session, MUSTER_GLOBAL, &number, &number, 1, MUSTER_INT32,
                                  MUSTER_MAX, NULL);
    }
    CHECK(guest, status == MUSTER_ENDED);
    CHECK(guest, strstr(muster_last_error(), "rank 2 (host host0)") != NULL);
    CHECK(guest, muster_barrier(session, MUSTER_LOCAL, NULL) == MUSTER_ENDED);
    CHECK(guest, muster_commit(session) == MUSTER_ENDED);
    CHECK(guest, muster_rejoin(session) == MUSTER_ENDED);
    muster_operation operation = 0;
    CHECK(guest, muster_barrier_start(session, MUSTER_GLOBAL, NULL, &operation) == MUSTER_ENDED);
}

static void a_death_ends_the_communicator_for_all(void **state)
{
    (void)state;
    struct hall hall;
    prepare(&hall);
    hall.work = go_on_until_lost;
    run(&hall);
    expect_all(&hall, MUSTER_OK, "");
}

/* Faults of the exchange ----------------------------------------------------------------------- */

static void an_exchange_that_fails_is_named(void **state)
{
    (void)state;
    struct hall hall;
    prepare(&hall);
    for (uint32_t i = 0; i < SIZE; i++) {
        hall.guests[i].fails = true;
    }
    run(&hall);
    expect(&hall.guests[1], MUSTER_RETRY,
           "open_with: the exchange function of rank 1 of 5 returned 7");
}

static void a_member_that_never_comes_is_named(void **state)
{
    (void)state;
    struct hall hall;
    prepare(&hall);
    for (uint32_t i = 0; i < SIZE; i++) {
        hall.guests[i].options.join_timeout_ms = SHORT_MS;
    }
    hall.guests[3].vanishes = true;
    run(&hall);
    expect(&hall.guests[3], MUSTER_RETRY, "returned 7");
    for (uint32_t i = 0; i < SIZE; i++) {
        expect(&hall.guests[i], MUSTER_RETRY, i != 3 ? "waited for rank 3" : "");
    }
}

static void spoil_all(unsigned char *blob)
{
    memset(blob, 0x5a, MUSTER_INTRODUCTION_SIZE);
}

static void spoil_a_bit(unsigned char *blob)
{
    blob[MUSTER_INTRODUCTION_SIZE - 1] ^= 4;
}

static void spoil_the_version(unsigned char *blob)
{
    blob[8]++;
}

static void garbage_is_refused(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(unsigned char *blob);
        const char *text;
    } cases[] = {
        {spoil_all, "no introduction of rank 1"},
        {spoil_a_bit, "has changed the introduction of rank 1: wrong checksum"},
        {spoil_the_version, "rank 1 has wire version"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hall hall;
        prepare(&hall);
        hall.guests[1].spoil = cases[i].spoil;
        run(&hall);
        expect_all(&hall, MUSTER_INVALID, cases[i].text);
    }
}

static void members_that_differ_are_named_with_both_values(void **state)
{
    (void)state;
    struct hall hall;
    prepare(&hall);
    hall.guests[4].size = SIZE - 1;
    hall.guests[4].rank = 3;
    run(&hall);
    expect(&hall.guests[0], MUSTER_INVALID, "place 4 of the exchange says that it is rank 3");
    prepare(&hall);
    hall.guests[2].size = 4;
    run(&hall);
    expect(&hall.guests[0], MUSTER_INVALID, "rank 2 has size 4, rank 0 size 5");
    expect(&hall.guests[2], MUSTER_INVALID, "rank 0 has size 5, rank 2 size 4");
    prepare(&hall);
    hall.guests[1].options.algorithm = "ring";
    run(&hall);
    expect(&hall.guests[0], MUSTER_INVALID, "rank 1 has \"ring\", rank 0 \"none\"");
    prepare(&hall);
    hall.guests[3].options.reproducible = 1;
    run(&hall);
    expect_all(&hall, MUSTER_INVALID, "reproducible (MUSTER_REPRODUCIBLE): rank ");
}

/* As in a folder, where two files have one name: the later one stays. */
static void a_rank_that_is_given_twice_is_found(void **state)
{
    (void)state;
    struct hall hall;
    prepare(&hall);
    hall.guests[4].rank = 1;
    hall.guests[4].place = 4;
    run(&hall);
    expect_all(&hall, MUSTER_INVALID, "place 4 of the exchange says that it is rank 1");
}

static void a_member_that_cannot_take_part_tells_the_others(void **state)
{
    (void)state;
    struct hall hall;
    prepare(&hall);
    hall.guests[2].options.call_timeout_ms = 0;
    run(&hall);
    expect(&hall.guests[2], MUSTER_INVALID, "call_timeout_ms (MUSTER_CALL_TIMEOUT_MS)");
    for (uint32_t i = 0; i < SIZE; i++) {
        if (i != 2) {
            expect(&hall.guests[i], MUSTER_RETRY, "rank 2 (host unknown) cannot take part: ");
            expect(&hall.guests[i], MUSTER_RETRY, "call_timeout_ms");
        }
    }
}

/* Each member records its own part of the run; the files begin with the present generation. */
static char trace_folder[64];

static muster_status record(struct guest *guest, const char *prefix)
{
    float sum = 1;
    TRY(muster_trace_start(guest->session, prefix));
    if (muster_trace_start(guest->session, prefix) != MUSTER_INVALID ||
        muster_trace_start(guest->session, "") != MUSTER_INVALID) {
        return muster_error_set(MUSTER_FATAL, "it starts twice");
    }
    TRY(muster_allreduce(guest->session, MUSTER_GLOBAL, &sum, &sum, 1, MUSTER_FLOAT32, MUSTER_SUM,
                         NULL));
    TRY(muster_trace_stop(guest->session));
    return muster_trace_stop(guest->session) == MUSTER_INVALID
               ? MUSTER_OK
               : muster_error_set(MUSTER_FATAL, "it stops twice");
}

static void record_twice(struct guest *guest)
{
    char prefix[80];
    for (int i = 0; i < 2 && guest->status == MUSTER_OK; i++) {
        (void)snprintf(prefix, sizeof prefix, "%s/part%d", trace_folder, i);
        guest->status = record(guest, prefix);
    }
    (void)snprintf(guest->text, sizeof guest->text, "%s", muster_last_error());
}

static void a_part_of_the_run_is_recorded(void **state)
{
    (void)state;
    struct hall hall;
    prepare(&hall);
    (void)snprintf(trace_folder, sizeof trace_folder, "/tmp/test_open_with_XXXXXX");
    assert_non_null(mkdtemp(trace_folder));
    hall.work = record_twice;
    run(&hall);
    for (uint32_t i = 0; i < SIZE; i++) {
        if (hall.guests[i].status != MUSTER_OK) {
            fail_msg("rank %u: %s", i, hall.guests[i].text);
        }
        for (int part = 0; part < 2; part++) {
            char path[128];
            (void)snprintf(path, sizeof path, "%s/part%d.1.%u.json", trace_folder, part, i);
            json_t *events = json_load_file(path, 0, NULL);
            assert_non_null(events);
            const char *name =
                json_string_value(json_object_get(json_array_get(events, 1), "name"));
            assert_string_equal(name, "generation begins");
            json_decref(events);
            assert_int_equal(unlink(path), 0);
        }
    }
    assert_int_equal(rmdir(trace_folder), 0);
}

static void wrong_arguments_are_named_at_once(void **state)
{
    (void)state;
    muster_session *session = NULL;
    assert_int_equal(muster_open_with(NULL, 3, 3, copy_own, NULL, &session), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "rank 3 of size 3"));
    assert_int_equal(muster_open_with(NULL, 0, 0, copy_own, NULL, &session), MUSTER_INVALID);
    assert_int_equal(muster_open_with(NULL, 0, 1, NULL, NULL, &session), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "without exchange function"));
    assert_null(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_single_member_needs_nobody),
        cmocka_unit_test(all_collectives_work_with_the_callers_ranks),
        cmocka_unit_test(links_are_measured_where_that_is_asked_for),
        cmocka_unit_test(state_functions_work_and_a_leave_is_the_end),
        cmocka_unit_test(a_function_is_run_once),
        cmocka_unit_test(a_death_ends_the_communicator_for_all),
        cmocka_unit_test(an_exchange_that_fails_is_named),
        cmocka_unit_test(a_member_that_never_comes_is_named),
        cmocka_unit_test(garbage_is_refused),
        cmocka_unit_test(members_that_differ_are_named_with_both_values),
        cmocka_unit_test(a_rank_that_is_given_twice_is_found),
        cmocka_unit_test(a_member_that_cannot_take_part_tells_the_others),
        cmocka_unit_test(a_part_of_the_run_is_recorded),
        cmocka_unit_test(wrong_arguments_are_named_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
