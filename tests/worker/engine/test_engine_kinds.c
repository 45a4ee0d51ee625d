/* Named tensors on real jobs: every kind, from several threads, in groups and in process sets; and
 * bad input. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"

/* Other kinds ---------------------------------------------------------------------------------- */

static void *give_output(const size_t *counts, uint32_t size, size_t total, void *user)
{
    (void)counts;
    (void)size;
    return *(void **)user = calloc(total + 1, sizeof(int32_t));
}

static void work_with_other_kinds(struct crew_member *member)
{
    uint32_t rank = muster_rank(member->session, MUSTER_GLOBAL);
    uint32_t size = muster_size(member->session, MUSTER_GLOBAL);
    for (int step = 0; step < 8; step++) {
        int32_t root_value = rank == 1 ? 77 + step : 0;
        int32_t gathered[4] = {(int32_t)rank, 0, 0, 0};
        int32_t scattered_in[8];
        int32_t scattered = 0;
        int32_t *outputs[2] = {NULL, NULL};
        size_t received[2][CREW_MAX];
        size_t splits[CREW_MAX];
        int32_t sent[64];
        muster_operation operations[5];
        size_t total = 0;
        for (uint32_t i = 0; i < size; i++) {
            scattered_in[i] = (int32_t)(10 * i + rank);
            splits[i] = (rank + i + (uint32_t)step) % 3;
            for (size_t k = 0; k < splits[i]; k++) {
                sent[total++] = (int32_t)(100 * rank + i);
            }
        }
        const muster_tensor tensors[5] = {
            {.size = sizeof tensors[0],
             .name = "b",
             .kind = MUSTER_TENSOR_BROADCAST,
             .type = MUSTER_INT32,
             .out = &root_value,
             .count = 1,
             .root = 1},
            {.size = sizeof tensors[0],
             .name = "g",
             .kind = MUSTER_TENSOR_ALLGATHER,
             .type = MUSTER_INT32,
             .in = gathered,
             .count = rank + 1,
             .output = give_output,
             .output_data = &outputs[0],
             .received_counts = received[0]},
            {.size = sizeof tensors[0],
             .name = "r",
             .kind = MUSTER_TENSOR_REDUCE_SCATTER,
             .type = MUSTER_INT32,
             .in = scattered_in,
             .out = &scattered,
             .count = 1},
            {.size = sizeof tensors[0],
             .name = "a",
             .kind = MUSTER_TENSOR_ALLTOALL,
             .type = MUSTER_INT32,
             .in = sent,
             .splits = splits,
             .output = give_output,
             .output_data = &outputs[1],
             .received_counts = received[1]},
            {.size = sizeof tensors[0], .name = "barrier", .kind = MUSTER_TENSOR_BARRIER},
        };
        for (uint32_t i = 0; i < 5; i++) {
            uint32_t t = (i + rank) % 5;
            MEMBER_OK(member,
                      muster_submit(member->session, MUSTER_GLOBAL, &tensors[t], &operations[t]));
        }
        for (uint32_t t = 0; t < 5; t++) {
            MEMBER_OK(member, muster_wait(operations[t]));
        }
        MEMBER_CHECK(member, root_value == 77 + step);
        MEMBER_CHECK(member, scattered == (int32_t)(10 * rank * size + size * (size - 1) / 2));
        int32_t *next = outputs[0];
        int32_t *came = outputs[1];
        for (uint32_t i = 0; i < size; i++) {
            MEMBER_CHECK(member, received[0][i] == i + 1 && next[0] == (int32_t)i);
            next += i + 1;
            MEMBER_CHECK(member, received[1][i] == (i + rank + (uint32_t)step) % 3);
            for (size_t k = 0; k < received[1][i]; k++) {
                MEMBER_CHECK(member, *came++ == (int32_t)(100 * i + rank));
            }
        }
        free(outputs[0]);
        free(outputs[1]);
    }
}

static void every_kind_works_and_its_sizes_may_change(void **state)
{
    (void)state;
    assert_int_equal(crew_run_job(group_service.url, "kinds3", 3, 1, work_with_other_kinds), 0);
    assert_int_equal(crew_run_job(group_service.url, "kinds2", 2, 2, work_with_other_kinds), 0);
}

/* Threads -------------------------------------------------------------------------------------- */

enum { THREADS = 4 };

struct submitter {
    struct crew_member *member;
    uint32_t number;
    bool bad;
};

static atomic_uint done_calls;

static void count_call(muster_status status, const char *text, void *user)
{
    (void)user;
    (void)text;
    atomic_fetch_add(&done_calls, status == MUSTER_OK);
}

static void *submit_some(void *argument)
{
    struct submitter *own = argument;
    for (uint32_t i = 0; i < 60 && !own->bad; i++) {
        char name[32];
        float number = 1;
        muster_operation operation = 0;
        int done = 0;
        (void)snprintf(name, sizeof name, "thread%u.%u", own->number, i % 5);
        const muster_tensor tensor = {.size = sizeof tensor,
                                      .name = name,
                                      .in = &number,
                                      .out = &number,
                                      .count = 1,
                                      .done = count_call};
        own->bad =
            muster_submit(own->member->session, MUSTER_GLOBAL, &tensor, &operation) != MUSTER_OK;
        if (i % 3 == 0) {
            own->bad = own->bad || muster_wait(operation) != MUSTER_OK;
        } else if (i % 3 == 1) {
            own->bad = own->bad || muster_wait_for(operation, 60000) != MUSTER_OK;
        } else {
            while (!own->bad && done == 0) {
                own->bad = muster_test(operation, &done) != MUSTER_OK;
            }
        }
        own->bad = own->bad || number != (float)own->member->crew->count;
    }
    return NULL;
}

static void work_with_threads(struct crew_member *member)
{
    struct submitter submitters[THREADS];
    pthread_t threads[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        submitters[i] = (struct submitter){.member = member, .number = i};
        MEMBER_CHECK(member, pthread_create(&threads[i], NULL, submit_some, &submitters[i]) == 0);
    }
    bool bad = false;
    for (uint32_t i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
        bad = bad || submitters[i].bad;
    }
    MEMBER_CHECK(member, !bad);
}

static void threads_submit_and_wait_at_once(void **state)
{
    (void)state;
    atomic_store(&done_calls, 0);
    assert_int_equal(crew_run_job(group_service.url, "threads2", 2, 1, work_with_threads), 0);
    assert_int_equal(atomic_load(&done_calls), 2 * THREADS * 60);
}

/* Groups --------------------------------------------------------------------------------------- */

static void work_with_groups(struct crew_member *member)
{
    uint32_t rank = muster_rank(member->session, MUSTER_GLOBAL);
    for (int step = 0; step < 6; step++) {
        float numbers[3] = {1, 2, 3};
        muster_tensor tensors[3];
        muster_operation operations[3];
        bool differs = step == 4;
        for (int i = 0; i < 3; i++) {
            static const char *const names[] = {"one", "two", "three"};
            muster_tensor_init(&tensors[i]);
            tensors[i].name = names[i];
            tensors[i].in = tensors[i].out = &numbers[i];
            tensors[i].count = 1;
        }
        if (differs && rank == 0) {
            tensors[1].op = MUSTER_MAX;
        }
        MEMBER_OK(member, muster_submit_group(member->session, MUSTER_GLOBAL, tensors, 3,
                                              MUSTER_GROUP_ALONE, operations));
        for (int i = 0; i < 3; i++) {
            if (differs) {
                crew_expect_invalid(member, muster_wait(operations[i]), "tensor two");
            } else {
                MEMBER_OK(member, muster_wait(operations[i]));
                MEMBER_CHECK(member, numbers[i] == (float)((i + 1) * (int)member->crew->count));
            }
        }
    }
}

static void a_group_is_done_as_one_or_not_at_all(void **state)
{
    (void)state;
    assert_int_equal(crew_run_job(group_service.url, "groups", 2, 1, work_with_groups), 0);
}

/* Bad input ------------------------------------------------------------------------------------ */

static void work_with_bad_input(struct crew_member *member)
{
    muster_session *session = member->session;
    char long_name[10001];
    float number = 1;
    muster_operation operation = 0;
    muster_operation other = 0;
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    muster_tensor tensor = {.size = sizeof tensor, .in = &number, .out = &number, .count = 1};
    const struct {
        const char *name;
        size_t count;
        muster_scope scope;
        const char *text;
    } bad[] = {
        {"", 1, MUSTER_GLOBAL, "1 to 255 bytes"},
        {NULL, 1, MUSTER_GLOBAL, "(no name)"},
        {long_name, 1, MUSTER_GLOBAL, "xxx...: names have 1 to 255 bytes"},
        {"a\nb", 1, MUSTER_GLOBAL, "control character"},
        {"huge", (size_t)1 << 62, MUSTER_GLOBAL, "too many"},
        {"scope", 1, (muster_scope)99999, "scope 99999"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tensor.name = bad[i].name;
        tensor.count = bad[i].count;
        crew_expect_invalid(member, muster_submit(session, bad[i].scope, &tensor, &operation),
                            bad[i].text);
    }
    tensor.name = "twice";
    tensor.count = 0; /* nothing to add up is in order */
    MEMBER_OK(member, muster_submit(session, MUSTER_GLOBAL, &tensor, &operation));
    MEMBER_OK(member, muster_wait(operation));
    crew_expect_invalid(member, muster_wait(operation), "is not in flight");
    tensor.count = 1;
    if (member->index == 0) { /* the others have not submitted it: it is in flight for sure */
        MEMBER_OK(member, muster_submit(session, MUSTER_GLOBAL, &tensor, &operation));
        crew_expect_invalid(member, muster_submit(session, MUSTER_GLOBAL, &tensor, &other),
                            "tensor twice is in flight already");
    }
    crew_barrier(member);
    if (member->index != 0) {
        MEMBER_OK(member, muster_submit(session, MUSTER_GLOBAL, &tensor, &operation));
    }
    MEMBER_OK(member, muster_wait(operation));
    /* Sizes that differ are found before memory is touched. */
    tensor.name = "sizes";
    tensor.count = member->index == 0 ? (size_t)1 << 40 : 1;
    MEMBER_OK(member, muster_submit(session, MUSTER_GLOBAL, &tensor, &operation));
    crew_expect_invalid(member, muster_wait(operation), "count 1099511627776");
}

static void bad_input_is_named(void **state)
{
    (void)state;
    assert_int_equal(crew_run_job(group_service.url, "bad", 2, 1, work_with_bad_input), 0);
}

/* Process sets run side by side: one whose members wait does not keep the other waiting. */
static void work_in_sets(struct crew_member *member)
{
    uint32_t rank = muster_rank(member->session, MUSTER_GLOBAL);
    const uint32_t members[2][3] = {{0, 1, 2}, {1, 0}};
    muster_scope scopes[2] = {0, 0};
    muster_operation operations[2] = {0, 0};
    float numbers[2] = {1, 1};
    MEMBER_OK(member, muster_process_set(member->session, "three", members[0], 3, &scopes[0]));
    if (rank < 2) {
        MEMBER_OK(member, muster_process_set(member->session, "two", members[1], 2, &scopes[1]));
        MEMBER_OK(member,
                  muster_submit_allreduce(member->session, scopes[0], "x", &numbers[0], &numbers[0],
                                          1, MUSTER_FLOAT32, MUSTER_SUM, &operations[0]));
        MEMBER_OK(member,
                  muster_submit_allreduce(member->session, scopes[1], "x", &numbers[1], &numbers[1],
                                          1, MUSTER_FLOAT32, MUSTER_SUM, &operations[1]));
        MEMBER_OK(member, muster_wait(operations[1]));
        MEMBER_CHECK(member, numbers[1] == 2);
        crew_barrier(member);
    } else {
        crew_barrier(member);
        MEMBER_OK(member,
                  muster_submit_allreduce(member->session, scopes[0], "x", &numbers[0], &numbers[0],
                                          1, MUSTER_FLOAT32, MUSTER_SUM, &operations[0]));
    }
    MEMBER_OK(member, muster_wait(operations[0]));
    MEMBER_CHECK(member, numbers[0] == 3);
}

static void process_sets_do_not_wait_for_each_other(void **state)
{
    (void)state;
    assert_int_equal(crew_run_job(group_service.url, "sets", 3, 1, work_in_sets), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_works_and_its_sizes_may_change),
        cmocka_unit_test(threads_submit_and_wait_at_once),
        cmocka_unit_test(a_group_is_done_as_one_or_not_at_all),
        cmocka_unit_test(bad_input_is_named),
        cmocka_unit_test(process_sets_do_not_wait_for_each_other),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
