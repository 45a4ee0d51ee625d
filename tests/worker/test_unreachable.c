/* Two members whom the service sees, but who cannot reach each other. */
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
#include "worker/rendezvous_client.h"

enum { WAIT_MS = 60000, ATTEMPT_MS = 5000 };

/* A member that says it listens where nobody does. It joins, watches, and joins again. */
struct ghost {
    struct muster_client *client;
    struct muster_join_request join;
    atomic_bool stop;
};

static bool ask(struct ghost *ghost, enum muster_rpc_method method, json_t *request,
                json_t **ret_answer)
{
    struct muster_patience patience = {.attempt_ms = ATTEMPT_MS,
                                       .deadline_ns = muster_clock_after_ms(WAIT_MS)};
    return muster_client_call(ghost->client, method, request, &patience, ret_answer, NULL) ==
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

static void *haunt(void *user)
{
    struct ghost *ghost = user;
    while (!atomic_load(&ghost->stop) && join(ghost) && watch(ghost)) {
    }
    return NULL;
}

static muster_status add_up(muster_session *session, void *user)
{
    int32_t one = 1;
    int32_t sum = 0;
    (void)user;
    return muster_allreduce(session, MUSTER_GLOBAL, &one, &sum, 1, MUSTER_INT32, MUSTER_SUM, NULL);
}

static void members_that_cannot_reach_each_other_give_up_and_say_whom(void **state)
{
    (void)state;
    struct ghost ghost = {.join = {.job = "apart",
                                   .info = {.host = "ghost", .address_count = 1},
                                   .min_size = 2,
                                   .max_size = 2,
                                   .target_size = 2}};
    pthread_t thread;
    muster_options options;
    muster_session *session = NULL;
    muster_random_uuid(ghost.join.info.id);
    (void)snprintf(ghost.join.info.addresses[0], MUSTER_MEMBER_ADDRESS_SIZE, "tcp://127.0.0.1:1");
    assert_int_equal(muster_client_create(group_service.url, NULL, &ghost.client), MUSTER_OK);
    assert_int_equal(pthread_create(&thread, NULL, haunt, &ghost), 0);
    muster_options_init(&options);
    options.rendezvous = group_service.url;
    options.job = "apart";
    options.min_size = options.max_size = options.target_size = 2;
    assert_int_equal(muster_open(&options, &session), MUSTER_OK);
    assert_int_equal(muster_run(session, add_up, NULL), MUSTER_FATAL);
    assert_non_null(strstr(muster_last_error(), "generations in a row"));
    assert_non_null(strstr(muster_last_error(), "(host ghost)"));
    muster_close(session);
    atomic_store(&ghost.stop, true);
    muster_client_interrupt(ghost.client);
    assert_int_equal(pthread_join(thread, NULL), 0);
    muster_client_destroy(ghost.client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_that_cannot_reach_each_other_give_up_and_say_whom),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
