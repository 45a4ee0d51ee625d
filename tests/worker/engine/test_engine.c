/* Named tensors on real jobs: members submit them in orders of their own, wait for them in several
 * ways, and all get the same results; without agreements after some equal steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"

enum { TENSORS = 40, COUNT_MAX = 3000, STEPS = 12 };

struct tensors {
    float *in[TENSORS];
    float *out[TENSORS];
    size_t counts[TENSORS];
    uint32_t order[TENSORS];
    muster_operation operations[TENSORS];
    float memory[2][TENSORS][COUNT_MAX];
};

static void shuffle(uint32_t *order, uint32_t count, unsigned *seed)
{
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    for (uint32_t i = count; i > 1; i--) {
        uint32_t other = (uint32_t)rand_r(seed) % i;
        uint32_t held = order[i - 1];
        order[i - 1] = order[other];
        order[other] = held;
    }
}

static float value(uint32_t rank, uint32_t tensor, size_t element, uint32_t step)
{
    return (float)((rank + 1) * (tensor + 1) + element % 7 + step);
}

static struct tensors *make_tensors(bool in_place, size_t count)
{
    struct tensors *all = calloc(1, sizeof *all);
    for (uint32_t t = 0; all != NULL && t < TENSORS; t++) {
        all->counts[t] = count != 0 ? count : 1 + 73 * t % COUNT_MAX;
        all->in[t] = all->memory[0][t];
        all->out[t] = in_place ? all->in[t] : all->memory[1][t];
    }
    return all;
}

static void fill(struct tensors *all, uint32_t rank, uint32_t step)
{
    for (uint32_t t = 0; t < TENSORS; t++) {
        for (size_t i = 0; i < all->counts[t]; i++) {
            all->in[t][i] = value(rank, t, i, step);
        }
    }
}

static bool is_summed(const struct tensors *all, uint32_t tensor, uint32_t size, uint32_t step)
{
    for (size_t i = 0; i < all->counts[tensor]; i++) {
        float sum = 0;
        for (uint32_t rank = 0; rank < size; rank++) {
            sum += value(rank, tensor, i, step);
        }
        if (all->out[tensor][i] != sum) {
            return false;
        }
    }
    return true;
}

static muster_status submit(struct crew_member *member, struct tensors *all, uint32_t tensor)
{
    char name[32];
    (void)snprintf(name, sizeof name, "layer%u.weight", tensor);
    return muster_submit_allreduce(member->session, MUSTER_GLOBAL, name, all->in[tensor],
                                   all->out[tensor], all->counts[tensor], MUSTER_FLOAT32,
                                   MUSTER_SUM, &all->operations[tensor]);
}

static void steps_in_random_orders(struct crew_member *member, bool in_place, size_t count)
{
    struct tensors *all = make_tensors(in_place, count);
    unsigned seed = 17 + member->index;
    uint32_t size = muster_size(member->session, MUSTER_GLOBAL);
    MEMBER_CHECK(member, all != NULL);
    for (uint32_t step = 0; step < STEPS; step++) {
        fill(all, muster_rank(member->session, MUSTER_GLOBAL), step);
        shuffle(all->order, TENSORS, &seed);
        for (uint32_t i = 0; i < TENSORS; i++) {
            MEMBER_OK(member, submit(member, all, all->order[i]));
        }
        shuffle(all->order, TENSORS, &seed);
        for (uint32_t i = 0; i < TENSORS; i++) {
            MEMBER_OK(member, muster_wait(all->operations[all->order[i]]));
            MEMBER_CHECK(member, is_summed(all, all->order[i], size, step));
        }
    }
    free(all);
}

static void work_in_random_orders(struct crew_member *member)
{
    muster_engine_counters before = {.size = sizeof before};
    muster_engine_counters after = before;
    steps_in_random_orders(member, false, 0);
    MEMBER_OK(member, muster_engine_count(member->session, MUSTER_GLOBAL, &before));
    steps_in_random_orders(member, true, 0);
    MEMBER_OK(member, muster_engine_count(member->session, MUSTER_GLOBAL, &after));
    /* The steps before were enough to learn from. */
    MEMBER_CHECK(member, before.orders == 1);
    MEMBER_CHECK(member, after.agreements == before.agreements);
    MEMBER_CHECK(member, after.deviations == 0);
    MEMBER_CHECK(member, after.submitted == 2 * STEPS * TENSORS);
    MEMBER_CHECK(member, after.finished == after.submitted);
}

static void tensors_are_summed_in_any_order_and_soon_without_agreements(void **state)
{
    (void)state;
    assert_int_equal(crew_run_job(group_service.url, "orders2", 2, 1, work_in_random_orders), 0);
    assert_int_equal(crew_run_job(group_service.url, "orders3", 3, 3, work_in_random_orders), 0);
    assert_int_equal(crew_run_job(group_service.url, "orders4", 4, 2, work_in_random_orders), 0);
    assert_int_equal(crew_run_job(group_service.url, "orders1", 1, 1, work_in_random_orders), 0);
}

/* A rare name ---------------------------------------------------------------------------------- */

static void work_with_rare_names(struct crew_member *member)
{
    struct tensors *all = make_tensors(true, 5);
    muster_engine_counters counters = {.size = sizeof counters};
    uint32_t size = muster_size(member->session, MUSTER_GLOBAL);
    uint64_t rare = 0;
    MEMBER_CHECK(member, all != NULL);
    for (uint32_t step = 0; step < 3 * STEPS; step++) {
        fill(all, muster_rank(member->session, MUSTER_GLOBAL), step);
        for (uint32_t i = 0; i < TENSORS; i++) {
            MEMBER_OK(member, submit(member, all, (i * 7 + member->index) % TENSORS));
            if (step % 5 == 4 &&
                i == 20) { /* in the midst of a step: it cannot wait for the rest */
                uint64_t one = 1;
                muster_operation operation = 0;
                MEMBER_OK(member, muster_submit_allreduce(member->session, MUSTER_GLOBAL, "rare",
                                                          &one, &rare, 1, MUSTER_UINT64,
                                                          MUSTER_BITWISE_AND, &operation));
                MEMBER_OK(member, muster_wait(operation));
                MEMBER_CHECK(member, rare == 1);
            }
        }
        for (uint32_t t = 0; t < TENSORS; t++) {
            MEMBER_OK(member, muster_wait(all->operations[t]));
            MEMBER_CHECK(member, is_summed(all, t, size, step));
        }
    }
    MEMBER_OK(member, muster_engine_count(member->session, MUSTER_GLOBAL, &counters));
    MEMBER_CHECK(member, counters.deviations > 0);
    MEMBER_CHECK(member, counters.orders == 1); /* it is never learned anew */
    MEMBER_CHECK(member, counters.ordered > 0);
    free(all);
}

static void a_rare_name_suspends_the_order_and_does_not_end_it(void **state)
{
    (void)state;
    assert_int_equal(crew_run_job(group_service.url, "rare3", 3, 1, work_with_rare_names), 0);
    assert_int_equal(crew_run_job(group_service.url, "rare2", 2, 2, work_with_rare_names), 0);
}

/* Descriptions that differ --------------------------------------------------------------------- */

static void work_with_a_difference(struct crew_member *member)
{
    uint32_t rank = muster_rank(member->session, MUSTER_GLOBAL);
    float in[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    float out[8];
    float good = 1;
    muster_operation bad_operation = 0;
    muster_operation good_operation = 0;
    for (int i = 0; i < 6; i++) {
        MEMBER_OK(member, muster_submit_allreduce(member->session, MUSTER_GLOBAL, "bad", in, out,
                                                  rank == 1 ? 5 : 8, MUSTER_FLOAT32, MUSTER_SUM,
                                                  &bad_operation));
        MEMBER_OK(member,
                  muster_submit_allreduce(member->session, MUSTER_GLOBAL, "good", &good, &good, 1,
                                          MUSTER_FLOAT32, MUSTER_MAX, &good_operation));
        crew_expect_invalid(member, muster_wait(bad_operation), "tensor bad: rank");
        crew_expect_invalid(member, MUSTER_INVALID, "count 8");
        crew_expect_invalid(member, MUSTER_INVALID, "count 5");
        MEMBER_OK(member, muster_wait(good_operation));
        MEMBER_CHECK(member, good == 1);
        /* One that changes alike on all ranks is agreed anew. */
        MEMBER_OK(member, muster_submit_allreduce(member->session, MUSTER_GLOBAL, "bad", in, out,
                                                  (size_t)(1 + i), MUSTER_FLOAT32, MUSTER_SUM,
                                                  &bad_operation));
        MEMBER_OK(member, muster_wait(bad_operation));
        MEMBER_CHECK(member, out[i] == (float)member->crew->count);
    }
}

static void a_difference_ends_the_tensor_everywhere_and_no_other(void **state)
{
    (void)state;
    assert_int_equal(crew_run_job(group_service.url, "difference", 3, 1, work_with_a_difference),
                     0);
}

/* Ends ----------------------------------------------------------------------------------------- */

static struct tensors *still_pending; /* of the member that leaves: until its session is closed */

/* One member leaves; the others' tensors, of which it has submitted none, some or all, have ended
 * before they are asked to rejoin. */
static void work_until_one_leaves(struct crew_member *member)
{
    struct tensors *all = make_tensors(true, 9);
    uint32_t known = *(const uint32_t *)member->crew->user;
    MEMBER_CHECK(member, all != NULL);
    for (uint32_t step = 0; step < known; step++) {
        for (uint32_t t = 0; t < TENSORS; t++) {
            MEMBER_OK(member, submit(member, all, t));
        }
        for (uint32_t t = 0; t < TENSORS; t++) {
            MEMBER_OK(member, muster_wait(all->operations[t]));
        }
    }
    if (member->index == 1) {
        still_pending = all;
        MEMBER_OK(member, submit(member, all, 3)); /* and closes with it pending */
        return;
    }
    for (uint32_t t = 0; t < TENSORS; t++) {
        muster_status status = submit(member, all, t);
        all->order[t] = status == MUSTER_OK;
        MEMBER_CHECK(member, status == MUSTER_OK || status == MUSTER_REJOIN);
    }
    for (uint32_t t = 0; t < TENSORS; t++) {
        muster_status status = all->order[t] ? muster_wait(all->operations[t]) : MUSTER_REJOIN;
        MEMBER_CHECK(member, status == MUSTER_REJOIN || t == 3);
    }
    MEMBER_CHECK(member, submit(member, all, 0) == MUSTER_REJOIN);
    free(all);
}

static void a_member_that_leaves_ends_all_pending_tensors(void **state)
{
    (void)state;
    for (uint32_t known = 0; known < 6; known += 2) {
        char job[16];
        (void)snprintf(job, sizeof job, "leave%u", known);
        struct crew crew = {.url = group_service.url,
                            .job = job,
                            .count = 3,
                            .hosts = 1 + known % 3,
                            .function = work_until_one_leaves,
                            .user = &known};
        assert_int_equal(crew_run(&crew), 0);
        free(still_pending);
        still_pending = NULL;
    }
}

static void allow_two(struct crew_member *member)
{
    member->options.min_size = 2;
}

/* After a rejoin the tensors of the survivors go on, under the same names. */
static void work_over_generations(struct crew_member *member)
{
    struct tensors *all = make_tensors(true, 9);
    MEMBER_CHECK(member, all != NULL);
    muster_operation last = 0;
    for (uint32_t step = 0; step < 10; step++) {
        if (step == 5 && member->index == 2) {
            muster_leave(member->session);
            free(all);
            return;
        }
        fill(all, muster_rank(member->session, MUSTER_GLOBAL), step);
        muster_status status = MUSTER_OK;
        for (uint32_t t = 0; t < TENSORS && status == MUSTER_OK; t++) {
            status = submit(member, all, t);
            last = status == MUSTER_OK ? all->operations[t] : last;
        }
        for (uint32_t t = 0; t < TENSORS && status == MUSTER_OK; t++) {
            status = muster_wait(all->operations[t]);
        }
        if (status == MUSTER_REJOIN) {
            MEMBER_OK(member, muster_rejoin(member->session));
            status = last != 0 ? muster_wait(last) : MUSTER_REJOIN; /* of the last generation */
            MEMBER_CHECK(member, status == MUSTER_REJOIN || status == MUSTER_INVALID);
            last = 0;
            step--;
            continue;
        }
        MEMBER_CHECK(member, status == MUSTER_OK);
        MEMBER_CHECK(member, is_summed(all, 7, muster_size(member->session, MUSTER_GLOBAL), step));
    }
    free(all);
}

static void the_survivors_go_on_with_the_same_names(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "generations",
                        .count = 3,
                        .hosts = 1,
                        .function = work_over_generations,
                        .prepare = allow_two};
    assert_int_equal(crew_run(&crew), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_summed_in_any_order_and_soon_without_agreements),
        cmocka_unit_test(a_rare_name_suspends_the_order_and_does_not_end_it),
        cmocka_unit_test(a_difference_ends_the_tensor_everywhere_and_no_other),
        cmocka_unit_test(a_member_that_leaves_ends_all_pending_tensors),
        cmocka_unit_test(the_survivors_go_on_with_the_same_names),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
