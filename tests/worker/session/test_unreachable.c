/* Members whom the service sees, but who cannot be reached. */
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
#include "worker/session/rendezvous_client.h"

enum { WAIT_MS = 60000, ATTEMPT_MS = 5000, GIVES_UP_AFTER = 12, COMPANIONS = 2 };

/* A member that says it listens where nobody does. It joins, watches, and joins again, and leaves
 * when so many generations have ended. */
struct ghost {
    struct muster_client *client;
    struct muster_join_request join;
    atomic_bool stop;
    unsigned generations; /* 0: never */
    pthread_t thread;
};

static bool ask(struct ghost *ghost, enum muster_rpc_method method, json_t *request,
                json_t **ret_answer)
{
    struct muster_retry_policy retry_policy = {.attempt_ms = ATTEMPT_MS,
                                               .deadline_ns = muster_clock_after_ms(WAIT_MS)};
    return muster_client_call(ghost->client, method, request, &retry_policy, ret_answer, NULL) ==
           MUSTER_OK;
}

static bool join(struct ghost *ghost)
{
    bool formed = false;
    while (!formed && !atomic_load(&ghost->stop)) {
        json_t *answer = NULL;
        struct muster_join_response response = {0};
        if (!ask(ghost, MUSTER_RPC_JOIN, muster_join_request_encode(&ghost->join), &answer)) {
            return false;
        }
        if (muster_join_response_decode(answer, &response) == MUSTER_OK && response.formed) {
            formed = true;
            ghost->join.info.generation = response.generation;
        }
        muster_join_response_finish(&response);
        json_decref(answer);
    }
    return formed;
}

static bool watch(struct ghost *ghost)
{
    struct muster_watch_response response = {0};
    while (!response.revoked && !atomic_load(&ghost->stop)) {
        struct muster_watch_request watch = {.generation = ghost->join.info.generation};
        json_t *answer = NULL;
        memcpy(watch.job, ghost->join.job, sizeof watch.job);
        memcpy(watch.member, ghost->join.info.id, sizeof watch.member);
        if (!ask(ghost, MUSTER_RPC_WATCH, muster_watch_request_encode(&watch), &answer)) {
            return false;
        }
        bool understood = muster_watch_response_decode(answer, &response) == MUSTER_OK;
        json_decref(answer);
        if (!understood) {
            return false;
        }
    }
    return true;
}

static void leave(struct ghost *ghost)
{
    struct muster_leave_request leave = {.generation = ghost->join.info.generation,
                                         .reason = MUSTER_LEAVE_PLANNED};
    json_t *answer = NULL;
    memcpy(leave.job, ghost->join.job, sizeof leave.job);
    memcpy(leave.member, ghost->join.info.id, sizeof leave.member);
    if (ask(ghost, MUSTER_RPC_LEAVE, muster_leave_request_encode(&leave), &answer)) {
        json_decref(answer);
    }
}

static void *haunt(void *user)
{
    struct ghost *ghost = user;
    unsigned ended = 0;
    while (!atomic_load(&ghost->stop) && join(ghost) && watch(ghost)) {
        if (++ended == ghost->generations) {
            leave(ghost);
            break;
        }
    }
    return NULL;
}

static void begin_haunting(struct ghost *ghost, const char *job, uint32_t size, uint32_t least)
{
    ghost->join = (struct muster_join_request){.info = {.host = "ghost", .address_count = 1},
                                               .min_size = least,
                                               .max_size = size,
                                               .target_size = size};
    (void)snprintf(ghost->join.job, sizeof ghost->join.job, "%s", job);
    muster_random_uuid(ghost->join.info.id);
    (void)snprintf(ghost->join.info.addresses[0], MUSTER_MEMBER_ADDRESS_SIZE, "tcp://127.0.0.1:1");
    assert_int_equal(muster_client_create(group_service.url, NULL, &ghost->client), MUSTER_OK);
    assert_int_equal(pthread_create(&ghost->thread, NULL, haunt, ghost), 0);
}

static void end_haunting(struct ghost *ghost)
{
    atomic_store(&ghost->stop, true);
    muster_client_interrupt(ghost->client);
    assert_int_equal(pthread_join(ghost->thread, NULL), 0);
    muster_client_destroy(ghost->client);
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

static void begin_member(struct member *member, const char *job, uint32_t size, uint32_t least)
{
    *member = (struct member){.job = job, .size = size, .least = least};
    assert_int_equal(pthread_create(&member->thread, NULL, take_part, member), 0);
}

/* At the same time, because both take a while. */
static void who_reaches_nobody_gives_up_and_who_reaches_most_stays(void **state)
{
    (void)state;
    static struct ghost lasting;
    static struct ghost leaving = {.generations = GIVES_UP_AFTER};
    struct member alone;
    struct member companions[COMPANIONS];
    begin_haunting(&lasting, "apart", 2, 2);
    begin_member(&alone, "apart", 2, 2);
    begin_haunting(&leaving, "parted", 1 + COMPANIONS, 1);
    for (int i = 0; i < COMPANIONS; i++) {
        begin_member(&companions[i], "parted", 1 + COMPANIONS, 1);
    }
    assert_int_equal(pthread_join(alone.thread, NULL), 0);
    for (int i = 0; i < COMPANIONS; i++) {
        assert_int_equal(pthread_join(companions[i].thread, NULL), 0);
    }
    end_haunting(&lasting);
    end_haunting(&leaving);
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
        cmocka_unit_test(who_reaches_nobody_gives_up_and_who_reaches_most_stays),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup_patient, test_service_teardown);
}
