/* Values: what muster_values.h promises, with a real musterd: several members and many threads,
 * wrong arguments, a service that is restarted before its answer arrives, frozen or away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/crew.h"
#include "tests/support/false_server.h"
#include "tests/support/service.h"
#include "worker/base/clock.h"

#define REQUEST_ID "33333333-3333-4333-8333-333333333333"

enum {
    SHORT_MS = 300,
    LONG_MS = 30000,
    THREADS = 16,
    ADDITIONS = 25,
    WAITERS = 60, /* more than may wait at the same time */
};

static muster_value_options with_limit(uint32_t timeout_ms)
{
    return (muster_value_options){.size = sizeof(muster_value_options), .timeout_ms = timeout_ms};
}

static const muster_value_options of_generation = {.size = sizeof(muster_value_options),
                                                   .lifetime = MUSTER_VALUE_OF_GENERATION};

/* The value is there, and is this text. */
static bool has_text(muster_session *session, const char *key, const muster_value_options *options,
                     const char *text)
{
    muster_value value = {.data = NULL};
    bool has = muster_value_get(session, key, options, &value) == MUSTER_OK && value.data != NULL &&
               value.size_bytes == strlen(text) && strcmp(value.data, text) == 0;
    if (!has) {
        print_message("key %s: \"%s\" in place of \"%s\"\n", key,
                      value.data != NULL ? (const char *)value.data : "(none)", text);
    }
    muster_value_finish(&value);
    return has;
}

static bool is_none(muster_session *session, const char *key, const muster_value_options *options)
{
    muster_value value = {.data = &value};
    return muster_value_get(session, key, options, &value) == MUSTER_OK && value.data == NULL;
}

static muster_status put_text(muster_session *session, const char *key, const char *text,
                              const muster_value_options *options)
{
    return muster_value_put(session, key, text, strlen(text), options);
}

/* One member that talks to this service. */
static muster_session *open_alone(const char *url, const char *job)
{
    muster_options options;
    muster_session *session = NULL;
    muster_options_init(&options);
    options.rendezvous = url;
    options.job = job;
    options.max_size = 1;
    options.leave_on_sigterm = 0;
    assert_int_equal(muster_open(&options, &session), MUSTER_OK);
    return session;
}

/* Several members -------------------------------------------------------------------------------
 */

static void exchange_values(struct crew_member *member)
{
    muster_session *session = member->session;
    uint32_t rank = muster_rank(session, MUSTER_GLOBAL);
    const char *keys[] = {"from 0", "from 1", "from 2"};
    char text[32];
    int64_t sum = 0;
    uint32_t count = 0;
    (void)snprintf(text, sizeof text, "member %u", rank);
    MEMBER_OK(member, put_text(session, keys[rank], text, NULL));
    MEMBER_OK(member, muster_value_wait_all(session, keys, 3, NULL));
    for (uint32_t i = 0; i < 3; i++) {
        muster_value value = {.data = NULL};
        (void)snprintf(text, sizeof text, "member %u", i);
        MEMBER_OK(member, muster_value_wait(session, keys[i], NULL, &value));
        MEMBER_CHECK(member, strcmp(value.data, text) == 0);
        muster_value_finish(&value);
        MEMBER_CHECK(member, is_none(session, keys[i], &of_generation));
    }
    MEMBER_OK(member, muster_value_add(session, "sum", 1 + rank, NULL, &sum));
    MEMBER_CHECK(member, sum >= 1 + rank && sum <= 6);
    crew_barrier(member);
    MEMBER_CHECK(member, has_text(session, "sum", NULL, "6"));
    MEMBER_OK(member, muster_value_count(session, "from", NULL, &count));
    MEMBER_CHECK(member, count == 3);
    crew_barrier(member);
}

static void members_exchange_values(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "exchange",
                        .count = 3,
                        .hosts = 2,
                        .function = exchange_values};
    assert_int_equal(crew_run(&crew), 0);
}

static void swap_and_delete(struct crew_member *member)
{
    muster_session *session = member->session;
    const char *mine = member->index == 0 ? "zero" : "one";
    const muster_value_swap to_mine = {
        .expected_size_bytes = 0, .desired = mine, .desired_size_bytes = strlen(mine)};
    muster_value value = {.data = NULL};
    int swapped = -1;
    int32_t winners = 0;
    /* Both want to make the value; one does, and the other gets what that one has put. */
    MEMBER_OK(member,
              muster_value_compare_and_swap(session, "leader", &to_mine, NULL, &swapped, &value));
    MEMBER_CHECK(member, (strcmp(value.data, mine) == 0) == (swapped == 1));
    MEMBER_CHECK(member, has_text(session, "leader", NULL, value.data));
    muster_value_finish(&value);
    const int32_t own = swapped;
    MEMBER_OK(member, muster_allreduce(session, MUSTER_GLOBAL, &own, &winners, 1, MUSTER_INT32,
                                       MUSTER_SUM, NULL));
    MEMBER_CHECK(member, winners == 1);
    int deleted = -1;
    int32_t deletions = 0;
    MEMBER_OK(member, muster_value_delete(session, "leader", NULL, &deleted));
    const int32_t gone = deleted;
    MEMBER_OK(member, muster_allreduce(session, MUSTER_GLOBAL, &gone, &deletions, 1, MUSTER_INT32,
                                       MUSTER_SUM, NULL));
    MEMBER_CHECK(member, deletions == 1);
    MEMBER_CHECK(member, is_none(session, "leader", NULL));
    crew_barrier(member);
}

static void of_two_swaps_and_of_two_deletes_one_counts(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "swap",
                        .count = 2,
                        .hosts = 1,
                        .function = swap_and_delete};
    assert_int_equal(crew_run(&crew), 0);
}

/* Member 1 leaves; member 0 learns from a call about a value that its generation has ended. */
static void end_a_generation(struct crew_member *member)
{
    muster_session *session = member->session;
    uint64_t before = muster_generation(session);
    MEMBER_OK(member, put_text(session, "once", "old", &of_generation));
    MEMBER_OK(member, put_text(session, "once", "job's", NULL));
    crew_barrier(member);
    if (member->index == 1) {
        muster_leave(session); /* so that the others go on */
        muster_close(session);
        member->session = NULL;
        return;
    }
    muster_status status = MUSTER_OK;
    while (status == MUSTER_OK) { /* until the Leave has arrived */
        status = put_text(session, "again", "old", &of_generation);
    }
    MEMBER_CHECK(member, status == MUSTER_REJOIN);
    MEMBER_CHECK(member, strstr(muster_last_error(), "does not run") != NULL);
    MEMBER_OK(member, muster_rejoin(session));
    MEMBER_CHECK(member, muster_generation(session) > before);
    MEMBER_CHECK(member, is_none(session, "once", &of_generation));
    MEMBER_CHECK(member, has_text(session, "once", NULL, "job's"));
    MEMBER_OK(member, put_text(session, "once", "new", &of_generation));
}

static void allow_one(struct crew_member *member)
{
    member->options.min_size = 1;
}

static void values_of_a_generation_end_with_it(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "generations",
                        .count = 2,
                        .hosts = 1,
                        .prepare = allow_one,
                        .function = end_a_generation};
    assert_int_equal(crew_run(&crew), 0);
}

/* One member ------------------------------------------------------------------------------------
 */

static void empty_values_and_bytes_are_what_was_put(void **state)
{
    (void)state;
    unsigned char bytes[MUSTER_VALUE_BYTES_MAX];
    muster_session *session = open_alone(group_service.url, "bytes");
    muster_value value = {.data = NULL};
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(i * 7 + i / 256);
    }
    assert_int_equal(muster_value_put(session, "all", bytes, sizeof bytes, NULL), MUSTER_OK);
    assert_int_equal(muster_value_get(session, "all", NULL, &value), MUSTER_OK);
    assert_int_equal(value.size_bytes, sizeof bytes);
    assert_memory_equal(value.data, bytes, sizeof bytes);
    muster_value_finish(&value);
    assert_null(value.data);
    assert_int_equal(muster_value_put(session, "empty", NULL, 0, NULL), MUSTER_OK);
    assert_true(has_text(session, "empty", NULL, ""));
    assert_true(is_none(session, "none", NULL));
    assert_int_equal(put_text(session, "größe \"\\", "odd", NULL), MUSTER_OK);
    assert_true(has_text(session, "größe \"\\", NULL, "odd"));
    const muster_value_swap grow = {.expected = "odd",
                                    .expected_size_bytes = 3,
                                    .desired = bytes,
                                    .desired_size_bytes = sizeof bytes};
    int swapped = 0;
    assert_int_equal(
        muster_value_compare_and_swap(session, "größe \"\\", &grow, NULL, &swapped, NULL),
        MUSTER_OK);
    assert_int_equal(swapped, 1);
    muster_close(session);
}

static void expect_invalid(muster_status status, const char *text)
{
    assert_int_equal(status, MUSTER_INVALID);
    if (strstr(muster_last_error(), text) == NULL) {
        fail_msg("\"%s\" in place of \"%s\"", muster_last_error(), text);
    }
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    char key[MUSTER_VALUE_KEY_MAX_BYTES + 2];
    static char bytes[MUSTER_VALUE_BYTES_MAX + 1];
    const char *keys[] = {"good", "", "good"};
    muster_value_options options = {.size = sizeof options};
    muster_value value = {.data = NULL};
    int64_t sum = 0;
    uint32_t count = 0;
    muster_session *session = open_alone(group_service.url, "wrong");
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    expect_invalid(put_text(session, key, "x", NULL), "longer than 255 bytes");
    expect_invalid(put_text(session, NULL, "x", NULL), "key: it is NULL");
    expect_invalid(put_text(session, "", "x", NULL), "key: is empty");
    expect_invalid(put_text(session, "\xc3(", "x", NULL), "key: it is not UTF-8");
    expect_invalid(put_text(session, "a\nb", "x", NULL), "key: has a control character");
    expect_invalid(muster_value_put(session, "k", bytes, sizeof bytes, NULL),
                   "65537 bytes are more than 65536");
    expect_invalid(muster_value_put(session, "k", NULL, 1, NULL), "value: 1 bytes at NULL");
    expect_invalid(muster_value_wait_all(session, keys, 3, NULL), "keys[1]: key: is empty");
    expect_invalid(muster_value_wait_all(session, keys, MUSTER_VALUE_KEYS_MAX + 1, NULL),
                   "4097 are more than 4096");
    expect_invalid(muster_value_count(session, key, NULL, &count), "prefix");
    options.lifetime = (muster_value_lifetime)7;
    expect_invalid(muster_value_get(session, "k", &options, &value), "lifetime 7");
    options = (muster_value_options){.size = sizeof options, .request_id = "not one"};
    expect_invalid(muster_value_add(session, "k", 1, &options, &sum), "request_id");
    options.size = 0;
    expect_invalid(muster_value_add(session, "k", 1, &options, &sum), "muster_value_options");
    assert_int_equal(put_text(session, "word", "seven", NULL), MUSTER_OK);
    expect_invalid(muster_value_add(session, "word", 1, NULL, &sum), "not a whole number");
    assert_int_equal(muster_value_add(session, "k", INT64_MAX, NULL, &sum), MUSTER_OK);
    expect_invalid(muster_value_add(session, "k", 1, NULL, &sum), "more than 64 bits");
    assert_int_equal(sum, INT64_MAX);
    assert_true(is_none(session, "good", NULL));
    muster_close(session);
}

/* On a busy machine the service's answer may come after a short limit. */
static void a_key_that_nobody_puts_is_named_when_the_time_is_over(void **state)
{
    (void)state;
    const char *keys[] = {"here", "not here"};
    muster_value value = {.data = NULL};
    muster_session *session = open_alone(group_service.url, "nobody");
    assert_int_equal(put_text(session, "here", "", NULL), MUSTER_OK);
    bool named = false;
    for (uint32_t limit_ms = SHORT_MS; !named && limit_ms <= LONG_MS; limit_ms *= 4) {
        const muster_value_options options = with_limit(limit_ms);
        int64_t begin_ms = muster_clock_ms();
        assert_int_equal(muster_value_wait(session, "not here", &options, &value), MUSTER_RETRY);
        assert_int_equal(muster_value_wait_all(session, keys, 2, &options), MUSTER_RETRY);
        named = strstr(muster_last_error(), "not here") != NULL;
        assert_true(muster_clock_ms() - begin_ms >= limit_ms);
        assert_null(value.data);
    }
    assert_true(named);
    muster_close(session);
}

static int one_rank(const void *mine, void *all, size_t size_bytes, void *user_data)
{
    (void)user_data;
    memcpy(all, mine, size_bytes);
    return 0;
}

static void a_session_without_a_service_and_a_child_have_no_values(void **state)
{
    (void)state;
    muster_session *session = NULL;
    assert_int_equal(muster_open_with(NULL, 0, 1, one_rank, NULL, &session), MUSTER_OK);
    expect_invalid(put_text(session, "k", "x", NULL), "no service");
    muster_close(session);
    session = open_alone(group_service.url, "child");
    pid_t child = fork();
    if (child == 0) {
        _exit((int)put_text(session, "k", "x", NULL));
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), MUSTER_INVALID);
    muster_close(session);
}

/* Threads ---------------------------------------------------------------------------------------
 */

struct crowd {
    muster_session *session;
    atomic_int failed, waiting;
};

static void *add_often(void *user)
{
    struct crowd *crowd = user;
    int64_t before = 0;
    for (int i = 0; i < ADDITIONS; i++) {
        int64_t sum = 0;
        if (muster_value_add(crowd->session, "crowd", 2, NULL, &sum) != MUSTER_OK ||
            sum <= before) {
            print_message("%s\n", muster_last_error());
            atomic_fetch_add(&crowd->failed, 1);
        }
        before = sum;
    }
    return NULL;
}

static void *wait_for_end(void *user)
{
    struct crowd *crowd = user;
    muster_value value = {.data = NULL};
    const muster_value_options options = with_limit(2 * LONG_MS);
    atomic_fetch_add(&crowd->waiting, 1);
    if (muster_value_wait(crowd->session, "end", &options, &value) != MUSTER_OK) {
        print_message("%s\n", muster_last_error());
        atomic_fetch_add(&crowd->failed, 1);
    }
    muster_value_finish(&value);
    return NULL;
}

static void many_threads_add_while_more_wait_than_may(void **state)
{
    (void)state;
    pthread_t adders[THREADS];
    pthread_t waiters[WAITERS];
    struct crowd crowd = {.session = open_alone(group_service.url, "threads")};
    for (int i = 0; i < WAITERS; i++) {
        assert_int_equal(pthread_create(&waiters[i], NULL, wait_for_end, &crowd), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&adders[i], NULL, add_often, &crowd), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(adders[i], NULL);
    }
    char sum[32];
    (void)snprintf(sum, sizeof sum, "%d", 2 * THREADS * ADDITIONS);
    assert_true(has_text(crowd.session, "crowd", NULL, sum));
    assert_int_equal(put_text(crowd.session, "end", "now", NULL), MUSTER_OK);
    for (int i = 0; i < WAITERS; i++) {
        (void)pthread_join(waiters[i], NULL);
    }
    assert_int_equal(atomic_load(&crowd.failed), 0);
    muster_close(crowd.session);
}

/* A service that restarts, is frozen or away ------------------------------------------------------
 */

/* Swallows the first answers to this method, so many, and restarts the musterd before. */
struct swallow {
    struct test_service *service;
    const char *method;
    unsigned answers;
};

static bool swallow_answer(struct false_exchange *exchange)
{
    const struct swallow *swallow = exchange->server->user;
    if (strcmp(exchange->method, swallow->method) != 0 || exchange->number >= swallow->answers) {
        return false;
    }
    assert_int_equal(exchange->status, 200); /* it has been done */
    test_service_kill(swallow->service);
    assert_true(test_service_restart(swallow->service, NULL));
    return true;
}

static void a_change_counts_once_though_the_service_restarts_before_its_answer(void **state)
{
    (void)state;
    struct test_service service;
    int64_t sum = 0;
    int swapped = 0;
    assert_true(test_service_start(&service, NULL));
    struct swallow swallow = {.service = &service, .method = "Add", .answers = 2};
    struct false_server server = {
        .function = swallow_answer, .user = &swallow, .to_port = service.port};
    assert_true(false_server_start(&server));
    muster_session *session = open_alone(server.url, "restart");
    assert_int_equal(muster_value_add(session, "sum", 5, NULL, &sum), MUSTER_OK);
    assert_int_equal(sum, 5);
    assert_true(false_server_count(&server, "Add") >= 3);
    assert_true(has_text(session, "sum", NULL, "5"));

    swallow = (struct swallow){.service = &service, .method = "CompareAndSwap", .answers = 1};
    const muster_value_swap swap = {
        .expected = "5", .expected_size_bytes = 1, .desired = "6", .desired_size_bytes = 1};
    assert_int_equal(muster_value_compare_and_swap(session, "sum", &swap, NULL, &swapped, NULL),
                     MUSTER_OK);
    assert_int_equal(swapped, 1);
    assert_true(false_server_count(&server, "CompareAndSwap") >= 2);

    /* A program that repeats its call with the name of the change. */
    const muster_value_options named = {.size = sizeof named, .request_id = REQUEST_ID};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(muster_value_add(session, "sum", 1, &named, &sum), MUSTER_OK);
        assert_int_equal(sum, 7);
    }
    assert_int_equal(put_text(session, "word", "one", &named), MUSTER_OK);
    assert_int_equal(put_text(session, "word", "two", NULL), MUSTER_OK);
    assert_int_equal(put_text(session, "word", "one", &named), MUSTER_OK);
    assert_true(has_text(session, "word", NULL, "two"));
    muster_close(session);
    false_server_stop(&server);
    assert_int_equal(test_service_stop(&service), 0);
}

struct frozen {
    struct test_service service;
    bool killed;
};

/* While the service does not answer, calls about values end in time, and collectives go on. */
static void outlast(struct crew_member *member)
{
    muster_session *session = member->session;
    struct frozen *frozen = member->crew->user;
    const muster_value_options options = with_limit(SHORT_MS);
    uint64_t before = muster_generation(session);
    MEMBER_OK(member, put_text(session, "k", "before", NULL));
    crew_barrier(member);
    if (member->index == 0) {
        (void)kill(frozen->service.pid, frozen->killed ? SIGKILL : SIGSTOP);
        (void)waitpid(frozen->service.pid, NULL, WUNTRACED); /* until it is */
    }
    crew_barrier(member);
    for (int i = 0; i < 3; i++) {
        muster_value value = {.data = NULL};
        int64_t begin_ms = muster_clock_ms();
        MEMBER_CHECK(member, put_text(session, "k", "lost", &options) == MUSTER_RETRY);
        MEMBER_CHECK(member, strstr(muster_last_error(), "put: rendezvous http://") != NULL);
        MEMBER_CHECK(member, muster_value_wait(session, "k", &options, &value) == MUSTER_RETRY);
        MEMBER_CHECK(member, muster_clock_ms() - begin_ms < LONG_MS);
        int32_t one = 1;
        int32_t all = 0;
        MEMBER_OK(member, muster_allreduce(session, MUSTER_GLOBAL, &one, &all, 1, MUSTER_INT32,
                                           MUSTER_SUM, NULL));
        MEMBER_CHECK(member, all == 2);
    }
    crew_barrier(member);
    if (member->index == 0 && frozen->killed) {
        MEMBER_CHECK(member, test_service_restart(&frozen->service, NULL));
    } else if (member->index == 0) {
        (void)kill(frozen->service.pid, SIGCONT);
    }
    crew_barrier(member);
    MEMBER_OK(member, put_text(session, "k", "after", NULL));
    MEMBER_CHECK(member, has_text(session, "k", NULL, "after"));
    MEMBER_OK(member, muster_commit(session));
    MEMBER_CHECK(member, muster_generation(session) == before);
    crew_barrier(member);
}

static void outlast_the_service(bool killed)
{
    struct frozen frozen = {.killed = killed};
    assert_true(test_service_start(&frozen.service, NULL));
    struct crew crew = {.url = frozen.service.url,
                        .job = "outlast",
                        .count = 2,
                        .hosts = 1,
                        .function = outlast,
                        .user = &frozen};
    int failed = crew_run(&crew);
    (void)kill(frozen.service.pid, SIGCONT);
    assert_int_equal(test_service_stop(&frozen.service), 0);
    assert_int_equal(failed, 0);
}

static void a_frozen_service_delays_neither_ranks_nor_leases(void **state)
{
    (void)state;
    outlast_the_service(false);
}

static void a_service_that_is_away_delays_neither_ranks_nor_leases(void **state)
{
    (void)state;
    outlast_the_service(true);
}

/* The first server of the list does not answer at all; the second one has the job. */
static void with_two_servers_the_one_that_answers_is_found(void **state)
{
    (void)state;
    struct test_service silent;
    char urls[256];
    assert_true(test_service_start(&silent, NULL));
    (void)snprintf(urls, sizeof urls, "%s,%s", silent.url, group_service.url);
    assert_int_equal(kill(silent.pid, SIGKILL), 0);
    muster_session *session = open_alone(urls, "two");
    assert_int_equal(put_text(session, "k", "here", NULL), MUSTER_OK);
    assert_true(has_text(session, "k", NULL, "here"));
    muster_close(session);
    (void)test_service_stop(&silent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_exchange_values),
        cmocka_unit_test(of_two_swaps_and_of_two_deletes_one_counts),
        cmocka_unit_test(values_of_a_generation_end_with_it),
        cmocka_unit_test(empty_values_and_bytes_are_what_was_put),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(a_key_that_nobody_puts_is_named_when_the_time_is_over),
        cmocka_unit_test(a_session_without_a_service_and_a_child_have_no_values),
        cmocka_unit_test(many_threads_add_while_more_wait_than_may),
        cmocka_unit_test(a_change_counts_once_though_the_service_restarts_before_its_answer),
        cmocka_unit_test(a_frozen_service_delays_neither_ranks_nor_leases),
        cmocka_unit_test(a_service_that_is_away_delays_neither_ranks_nor_leases),
        cmocka_unit_test(with_two_servers_the_one_that_answers_is_found),
    };
    return test_service_built()
               ? cmocka_run_group_tests(tests, test_service_setup, test_service_teardown)
               : 77;
}
