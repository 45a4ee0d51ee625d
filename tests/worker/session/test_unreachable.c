/* Members that the service sees but that their peers cannot reach. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/service.h"
#include "worker/base/clock.h"
#include "worker/base/status.h"
#include "worker/fabric/fabric.h"
#include "worker/session/rendezvous_client.h"

enum { WAIT_MS = 60000, ATTEMPT_MS = 5000, GIVES_UP_AFTER = 12, COMPANIONS = 2 };

/* A member that publishes an address where no process listens. It joins, watches, and joins again,
 * and leaves when this many generations have ended. */
struct unreachable_member {
    struct muster_client *client;
    struct muster_join_request join;
    atomic_bool stop;
    unsigned generations; /* 0: it never leaves */
    pthread_t thread;
};

static bool ask(struct unreachable_member *member, enum muster_rpc_method method, json_t *request,
                json_t **ret_answer)
{
    struct muster_retry_policy retry_policy = {.attempt_ms = ATTEMPT_MS,
                                               .deadline_ns = muster_clock_after_ms(WAIT_MS)};
    return muster_client_call(member->client, method, request, &retry_policy, ret_answer, NULL) ==
           MUSTER_OK;
}

static bool join(struct unreachable_member *member)
{
    bool formed = false;
    while (!formed && !atomic_load(&member->stop)) {
        json_t *answer = NULL;
        struct muster_join_response response = {0};
        if (!ask(member, MUSTER_RPC_JOIN, muster_join_request_encode(&member->join), &answer)) {
            return false;
        }
        if (muster_join_response_decode(answer, &response) == MUSTER_OK && response.formed) {
            formed = true;
            member->join.info.generation = response.generation;
        }
        muster_join_response_finish(&response);
        json_decref(answer);
    }
    return formed;
}

static bool watch(struct unreachable_member *member)
{
    struct muster_watch_response response = {0};
    while (!response.revoked && !atomic_load(&member->stop)) {
        struct muster_watch_request watch = {.generation = member->join.info.generation};
        json_t *answer = NULL;
        memcpy(watch.job, member->join.job, sizeof watch.job);
        memcpy(watch.member, member->join.info.id, sizeof watch.member);
        if (!ask(member, MUSTER_RPC_WATCH, muster_watch_request_encode(&watch), &answer)) {
            return false;
        }
        bool decoded = muster_watch_response_decode(answer, &response) == MUSTER_OK;
        muster_watch_response_finish(&response);
        json_decref(answer);
        if (!decoded) {
            return false;
        }
    }
    return true;
}

static void leave(struct unreachable_member *member)
{
    struct muster_leave_request leave = {.generation = member->join.info.generation,
                                         .reason = MUSTER_LEAVE_PLANNED};
    json_t *answer = NULL;
    memcpy(leave.job, member->join.job, sizeof leave.job);
    memcpy(leave.member, member->join.info.id, sizeof leave.member);
    if (ask(member, MUSTER_RPC_LEAVE, muster_leave_request_encode(&leave), &answer)) {
        json_decref(answer);
    }
}

static void *run_unreachable(void *user)
{
    struct unreachable_member *member = user;
    unsigned ended = 0;
    while (!atomic_load(&member->stop) && join(member) && watch(member)) {
        if (++ended == member->generations) {
            leave(member);
            break;
        }
    }
    return NULL;
}

static void start_unreachable(struct unreachable_member *member, const char *job, uint32_t size,
                              uint32_t least)
{
    member->join = (struct muster_join_request){.wire_version = MUSTER_WIRE_VERSION,
                                                .info = {.host = "ghost", .address_count = 1},
                                                .min_size = least,
                                                .max_size = size,
                                                .target_size = size};
    (void)snprintf(member->join.job, sizeof member->join.job, "%s", job);
    muster_random_uuid(member->join.info.id);
    (void)snprintf(member->join.info.addresses[0], MUSTER_MEMBER_ADDRESS_SIZE, "tcp://127.0.0.1:1");
    assert_int_equal(muster_client_create(group_service.url, NULL, &member->client), MUSTER_OK);
    assert_int_equal(pthread_create(&member->thread, NULL, run_unreachable, member), 0);
}

static void stop_unreachable(struct unreachable_member *member)
{
    atomic_store(&member->stop, true);
    muster_client_interrupt(member->client);
    assert_int_equal(pthread_join(member->thread, NULL), 0);
    muster_client_destroy(member->client);
}

static muster_status add_up(muster_session *session, void *user)
{
    int32_t one = 1;
    return muster_allreduce(session, MUSTER_GLOBAL, &one, user, 1, MUSTER_INT32, MUSTER_SUM, NULL);
}

/* A member in a thread of its own. */
struct member {
    const char *job;
    uint32_t size, least;
    muster_status status;
    int32_t sum;
    char text[MUSTER_ERROR_MAX];
    pthread_t thread;
};

static void *take_part(void *user)
{
    struct member *member = user;
    muster_options options;
    muster_session *session = NULL;
    muster_options_init(&options);
    options.rendezvous = group_service.url;
    options.job = member->job;
    options.min_size = member->least;
    options.max_size = options.target_size = member->size;
    member->status = muster_open(&options, &session);
    if (member->status == MUSTER_OK) {
        member->status = muster_run(session, add_up, &member->sum);
    }
    (void)snprintf(member->text, sizeof member->text, "%s", muster_last_error());
    muster_close(session);
    return NULL;
}

static void start_member(struct member *member, const char *job, uint32_t size, uint32_t least)
{
    *member = (struct member){.job = job, .size = size, .least = least};
    assert_int_equal(pthread_create(&member->thread, NULL, take_part, member), 0);
}

/* Both jobs at the same time, because both take some seconds. */
static void a_member_that_reaches_no_peer_gives_up_and_one_that_reaches_most_stays(void **state)
{
    (void)state;
    static struct unreachable_member lasting;
    static struct unreachable_member leaving = {.generations = GIVES_UP_AFTER};
    struct member alone;
    struct member companions[COMPANIONS];
    start_unreachable(&lasting, "apart", 2, 2);
    start_member(&alone, "apart", 2, 2);
    start_unreachable(&leaving, "parted", 1 + COMPANIONS, 1);
    for (int i = 0; i < COMPANIONS; i++) {
        start_member(&companions[i], "parted", 1 + COMPANIONS, 1);
    }
    assert_int_equal(pthread_join(alone.thread, NULL), 0);
    for (int i = 0; i < COMPANIONS; i++) {
        assert_int_equal(pthread_join(companions[i].thread, NULL), 0);
    }
    stop_unreachable(&lasting);
    stop_unreachable(&leaving);
    assert_int_equal(alone.status, MUSTER_FATAL);
    assert_non_null(strstr(alone.text, "generations in a row"));
    assert_non_null(strstr(alone.text, "(host ghost)"));
    assert_non_null(strstr(alone.text, "(0 of 1 other members can be reached)"));
    for (int i = 0; i < COMPANIONS; i++) {
        if (companions[i].status != MUSTER_OK || companions[i].sum != COMPANIONS) {
            fail_msg("%s: %s (sum %d)", muster_status_name(companions[i].status),
                     companions[i].text, companions[i].sum);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_that_reaches_no_peer_gives_up_and_one_that_reaches_most_stays),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup_patient, test_service_teardown);
}
