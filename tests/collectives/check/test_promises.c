/* The promises of schedules are proven for every algorithm, hold in an interpreter that knows
 * nothing of the checker, and are missed where they are broken. With an argument: for every number
 * of ranks, which the slow tier does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/interpreter.h"
#include "tests/support/schedules.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { RANKS_MAX = 33 };
#else
enum { RANKS_MAX = 64 };
#endif
enum { SMALL_RANKS_MAX = 9 };
enum { KEPT = MUSTER_CHECK_INPUT_KEPT, TOGETHER = MUSTER_CHECK_FINISH_TOGETHER };

/* Called with a plan for each algorithm that fits the topology. */
typedef void (*visitor)(size_t algorithm, const struct muster_plan *plan, bool uneven,
                        uint64_t *random);

static void visit_plan(size_t algorithm, const struct muster_plan *plan, unsigned promises,
                       uint64_t *random, visitor visit)
{
    struct muster_plan wanted = *plan;
    wanted.keep_input = (promises & KEPT) != 0;
    wanted.finish_together = (promises & TOGETHER) != 0;
    /* What keeps its input is proven as it is in place. */
    bool kept = wanted.keep_input && !muster_collective_in_place_counts(plan->collective);
    bool both = muster_collective_in_place_counts(plan->collective);
    for (int in_place = kept ? 1 : 0; in_place < (both || kept ? 2 : 1); in_place++) {
        wanted.in_place = in_place != 0;
        visit(algorithm, &wanted, false, random);
    }
    if (plan->collective == MUSTER_REDUCE_SCATTER) {
        visit(algorithm, &wanted, true, random);
    }
}

static void visit_all(const struct muster_topology *topology, uint64_t count, unsigned promises,
                      uint64_t *random, visitor visit)
{
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        struct muster_plan plan = test_plan(algorithm, topology, count, topology->ranks / 2);
        if (test_fits(algorithm, &plan)) {
            visit_plan(algorithm, &plan, promises, random, visit);
        }
    }
}

/* Prints which call has failed. */
static void name_call(const struct test_job *job, const char *why)
{
    const struct muster_plan *plan = &job->plans[0];
    print_error("%s %s: %u ranks, %u hosts, count %llu%s: %s\n",
                muster_collective_name(plan->collective), muster_algorithms[job->algorithm].name,
                job->ranks, plan->topology->hosts, (unsigned long long)plan->count,
                plan->in_place ? ", in place" : "", why);
}

static void prove(size_t algorithm, const struct muster_plan *plan, bool uneven, uint64_t *random)
{
    (void)random;
    struct test_job job = test_job_create(algorithm, plan, uneven);
    assert_true(test_prove(&job).proven);
    test_job_finish(&job);
}

static bool all; /* every number of ranks, with more counts */

/* How many of the counts are visited for so many ranks: all for few, and of large numbers of ranks
 * some, which are others in each run. */
static size_t counts_for(uint32_t ranks, size_t most, uint64_t *random)
{
    if (ranks <= (all ? 16 : 8)) {
        return most;
    }
    return all || test_random_below(random, ranks <= 16 ? 2 : 8) == 0 ? 1 : 0;
}

static void every_algorithm_keeps_its_promises_for_1_to_64_ranks(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        const uint64_t counts[] = {0, 1, ranks - 1, ranks + 1, 3 * ranks + 2, 5003, 1000003};
        const size_t most = sizeof counts / sizeof counts[0];
        struct muster_topology topology = test_topology_even(ranks, ranks % 3 == 0 ? 3 : 1);
        const size_t visited = counts_for(ranks, most, &random);
        for (size_t i = 0; i < visited; i++) {
            uint64_t count = counts[(i * 2 + ranks) % most];
            visit_all(&topology, count, KEPT, &random, prove);
            visit_all(&topology, count, TOGETHER, &random, prove);
            visit_all(&topology, count, KEPT | TOGETHER, &random, prove);
        }
        muster_topology_finish(&topology);
    }
}

static void random_ragged_hosts_in_random_racks_keep_their_promises(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < 40; i++) {
        struct muster_topology topology = test_topology_random(1, 10, 6, &random);
        test_racks(&topology, &random);
        visit_all(&topology, test_random_below(&random, 200), KEPT | TOGETHER, &random, prove);
        muster_topology_finish(&topology);
    }
}

static void execute(size_t algorithm, const struct muster_plan *plan, bool uneven, uint64_t *random)
{
    struct test_job job = test_job_create(algorithm, plan, uneven);
    char why[MUSTER_CHECK_TEXT_MAX] = "";
    bool kept = plan->in_place || !muster_collective_in_place_counts(plan->collective);
    unsigned promises = kept ? job.promises : job.promises & ~(unsigned)KEPT;
    bool right = test_executes_right(&job, job.schedules, random) &&
                 test_keeps_promises(&job, job.schedules, promises, random, why);
    if (!right) {
        name_call(&job, why);
    }
    assert_true(right);
    test_job_finish(&job);
}

static void promises_hold_when_schedules_are_executed_without_one_rank(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (uint32_t ranks = 1; ranks <= SMALL_RANKS_MAX; ranks++) {
        struct muster_topology topology = test_topology_even(ranks, ranks > 3 ? 2 : 1);
        const uint64_t counts[] = {0, 1, 2 * ranks + 1};
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            visit_all(&topology, counts[i], KEPT | TOGETHER, &random, execute);
        }
        muster_topology_finish(&topology);
    }
}

/* Of the allreduce by this name, whose large chunks go in pieces where the input is kept. */
static void visit_pieces(const char *name, uint32_t ranks, uint64_t count, uint64_t *random,
                         visitor visit)
{
    size_t algorithm = 0;
    assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, name, &algorithm), MUSTER_OK);
    struct muster_topology topology = test_topology_even(ranks, ranks % 3 == 0 ? 3 : 1);
    struct muster_plan plan = test_plan(algorithm, &topology, count, 0);
    plan.keep_input = true;
    plan.in_place = true;
    visit(algorithm, &plan, false, random);
    muster_topology_finish(&topology);
}

/* Only some ranks may be in place. */
static void compare_messages_out_of_place(size_t algorithm, const struct muster_plan *plan,
                                          bool uneven, uint64_t *random)
{
    struct muster_plan apart = *plan;
    apart.in_place = false;
    struct test_job job = test_job_create(algorithm, plan, uneven);
    struct test_job other = test_job_create(algorithm, &apart, uneven);
    (void)random;
    for (uint32_t rank = 0; rank < job.ranks; rank++) {
        assert_int_equal(job.schedules[rank].step_count, other.schedules[rank].step_count);
        for (size_t i = 0; i < job.schedules[rank].step_count; i++) {
            const struct muster_step *step = &job.schedules[rank].steps[i];
            const struct muster_step *same = &other.schedules[rank].steps[i];
            assert_true(step->kind == same->kind && step->peer == same->peer &&
                        step->round == same->round && step->span.count == same->span.count);
        }
    }
    test_job_finish(&job);
    test_job_finish(&other);
}

static void compare_formula(size_t algorithm, const struct muster_plan *plan, bool uneven,
                            uint64_t *random);

static void chunks_that_go_in_pieces_keep_their_promises_for_1_to_64_ranks(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        if (counts_for(ranks, 1, &random) == 0) {
            continue;
        }
        uint64_t pieces = 1 + test_random_below(&random, 20);
        uint64_t count = (pieces << 18) * ranks + test_random_below(&random, 2 * ranks);
        visit_pieces("ring", ranks, count, &random, prove);
        visit_pieces("ring", ranks, count, &random, compare_formula);
        visit_pieces("ring", ranks, count, &random, compare_messages_out_of_place);
    }
    visit_pieces("ring", 4, (UINT64_C(2) << 18) * 4 + 1, &random, execute);
}

static struct muster_check_result check(const struct test_job *job, unsigned promises)
{
    struct muster_check_result result;
    assert_int_equal(muster_check_promises(job->shapes, job->schedules, job->ranks, job->in_place,
                                           promises, &result),
                     MUSTER_OK);
    return result;
}

/* The plan asks for promises; a closing round shows in the formula, and so do pieces. */
static void compare_formula(size_t algorithm, const struct muster_plan *plan, bool uneven,
                            uint64_t *random)
{
    (void)random;
    struct test_job job = test_job_create(algorithm, plan, uneven);
    struct muster_check_result result = test_prove(&job);
    struct muster_formula formula;
    muster_algorithm_formula(algorithm, &job.plans[0], &formula);
    if (plan->collective != MUSTER_ALLTOALLV) { /* each of its plans knows its own counts only */
        assert_int_equal(result.rounds, formula.rounds);
        assert_int_equal(result.elements_sent_max, formula.elements);
    }
    test_job_finish(&job);
}

static void a_closing_round_is_in_the_formulas(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 20; ranks++) {
        struct muster_topology topology = test_topology_even(ranks, ranks > 3 ? 3 : 1);
        visit_all(&topology, 3 * ranks + 2, TOGETHER, NULL, compare_formula);
        visit_all(&topology, 0, TOGETHER, NULL, compare_formula);
        muster_topology_finish(&topology);
    }
}

/* The plan asks for no promise. */
static void look_who_synchronizes(size_t algorithm, const struct muster_plan *plan, bool uneven,
                                  uint64_t *random)
{
    struct test_job job = test_job_create(algorithm, plan, uneven);
    struct muster_check_result result = check(&job, TOGETHER);
    if (muster_collective_synchronizes(plan->collective) || plan->topology->ranks == 1) {
        if (!result.proven) {
            name_call(&job, result.why);
        }
        assert_true(result.proven);
    } else {
        /* In some algorithms every rank happens to hear of all: pairwise_exchange of a power of
         * two, broadcasts that end with an allgather. */
        const char *name = muster_algorithms[algorithm].name;
        bool tree = strcmp(name, "binomial") == 0 || strcmp(name, "linear") == 0;
        assert_true(!tree || !result.proven);
        assert_true(result.proven || strstr(result.why, " finishes before rank ") != NULL);
        if (plan->topology->ranks <= SMALL_RANKS_MAX) {
            char why[MUSTER_CHECK_TEXT_MAX];
            assert_true(!result.proven ||
                        test_keeps_promises(&job, job.schedules, TOGETHER, random, why));
        }
    }
    test_job_finish(&job);
}

static void without_a_closing_round_some_collectives_finish_early(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        const uint64_t counts[] = {0, 1, ranks - 1, ranks, 3 * ranks + 2, 50003};
        struct muster_topology topology = test_topology_even(ranks, ranks > 7 ? 4 : 1);
        const size_t visited = counts_for(ranks, sizeof counts / sizeof counts[0], &random);
        for (size_t i = 0; i < visited; i++) {
            visit_all(&topology, counts[i], 0, &random, look_who_synchronizes);
        }
        muster_topology_finish(&topology);
    }
}

static bool are_equal(const struct muster_schedule *one, const struct muster_schedule *other,
                      uint32_t ranks)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (one[rank].step_count != other[rank].step_count ||
            one[rank].scratch_count != other[rank].scratch_count) {
            return false;
        }
        for (size_t i = 0; i < one[rank].step_count; i++) {
            const struct muster_step *left = &one[rank].steps[i];
            const struct muster_step *right = &other[rank].steps[i];
            if (left->source != right->source || left->target != right->target ||
                left->at != right->at || left->span.offset != right->span.offset) {
                return false;
            }
        }
    }
    return true;
}

/* The plan asks to keep the input. */
static void compare_with_unkept(size_t algorithm, const struct muster_plan *plan, bool uneven,
                                uint64_t *random)
{
    struct muster_plan plain = *plan;
    plain.keep_input = false;
    struct test_job kept = test_job_create(algorithm, plan, uneven);
    struct test_job job = test_job_create(algorithm, &plain, uneven);
    struct muster_check_result result = check(&job, KEPT);
    char why[MUSTER_CHECK_TEXT_MAX];
    assert_true(muster_collective_overwrites_input(plan->collective) ||
                are_equal(job.schedules, kept.schedules, job.ranks));
    if (!are_equal(job.schedules, kept.schedules, job.ranks)) {
        bool late = strstr(result.why, "before rank ") != NULL;
        /* Some in-place alltoalls write their output late anyway. */
        assert_true(!result.proven || muster_collective_in_place_counts(plan->collective));
        assert_true(result.proven || late || strstr(result.why, "does not keep the input") != NULL);
    } else {
        if (!result.proven) {
            name_call(&job, result.why);
        }
        assert_true(result.proven);
    }
    /* What breaks the promise in an execution is never taken for proven. */
    if (!test_keeps_promises(&job, job.schedules, KEPT, random, why)) {
        assert_false(result.proven);
    }
    test_job_finish(&kept);
    test_job_finish(&job);
}

static void schedules_that_were_not_changed_break_the_promise_or_needed_no_change(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (uint32_t ranks = 2; ranks <= SMALL_RANKS_MAX; ranks++) {
        struct muster_topology topology = test_topology_even(ranks, ranks > 3 ? 2 : 1);
        for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
            struct muster_plan plan = test_plan(algorithm, &topology, 2 * ranks + 1, ranks / 2);
            plan.keep_input = true;
            plan.in_place = true;
            if (test_fits(algorithm, &plan)) {
                compare_with_unkept(algorithm, &plan, false, &random);
            }
        }
        muster_topology_finish(&topology);
    }
}

/* Changes where one step of the schedules reads or writes. False: nothing has changed. */
static bool mutate(struct muster_schedule *schedules, uint32_t ranks, uint64_t *random)
{
    struct muster_schedule *schedule = &schedules[test_random_below(random, ranks)];
    if (schedule->step_count == 0) {
        return false;
    }
    struct muster_step *step =
        &schedule->steps[test_random_below(random, (uint32_t)schedule->step_count)];
    struct muster_step was = *step;
    uint64_t offset = test_random_below(random, 8);
    switch (test_random_below(random, 4)) {
    case 0: /* a partial result to OUTPUT, or a result to SCRATCH */
        step->target = step->target == MUSTER_SCRATCH ? MUSTER_OUTPUT : MUSTER_SCRATCH;
        step->at = step->kind == MUSTER_STEP_RECV ? step->at : offset;
        break;
    case 1:
        step->source = (uint8_t)test_random_below(random, 3);
        break;
    case 2:
        step->at = offset;
        step->span.offset = step->kind == MUSTER_STEP_RECV ? offset : step->span.offset;
        break;
    default:
        step->span.offset = step->kind == MUSTER_STEP_RECV ? step->span.offset : offset;
        break;
    }
    return step->target != was.target || step->source != was.source || step->at != was.at ||
           step->span.offset != was.span.offset;
}

/* Removes the n-th empty message of the schedules, both ends. */
static void remove_message(struct muster_schedule *schedules, uint32_t ranks, uint64_t *random)
{
    uint32_t from = test_random_below(random, ranks);
    struct muster_schedule *sender = &schedules[from];
    for (size_t i = 0; i < sender->step_count; i++) {
        const struct muster_step *step = &sender->steps[i];
        if (step->kind != MUSTER_STEP_SEND || step->lane != 0 ||
            test_random_below(random, 2) == 0) {
            continue;
        }
        /* A rank's messages to another differ in their rounds: the receive has the same one. */
        struct muster_schedule *receiver = &schedules[step->peer];
        for (size_t j = 0; j < receiver->step_count; j++) {
            struct muster_step *end = &receiver->steps[j];
            if (end->kind == MUSTER_STEP_RECV && end->lane == 0 && end->peer == from &&
                end->round == step->round && end->span.count == 0 && step->span.count == 0) {
                /* A copy of nothing in its place leaves the rounds without gaps. */
                const struct muster_step nothing = {
                    .kind = MUSTER_STEP_COPY, .target = MUSTER_OUTPUT, .round = end->round};
                *end = nothing;
                sender->steps[i] = nothing;
                return;
            }
        }
    }
}

/* The plan asks for promises. */
static void compare_mutants(size_t algorithm, const struct muster_plan *plan, bool uneven,
                            uint64_t *random)
{
    struct test_job job = test_job_create(algorithm, plan, uneven);
    bool kept = plan->in_place || !muster_collective_in_place_counts(plan->collective);
    unsigned promises = kept ? job.promises : job.promises & ~(unsigned)KEPT;
    for (int i = 0; i < 12; i++) {
        struct muster_schedule *mutant = test_copy_all(job.schedules, job.ranks);
        char why[MUSTER_CHECK_TEXT_MAX] = "";
        if (i % 3 == 0) {
            remove_message(mutant, job.ranks, random);
        } else {
            for (int tries = 0; tries < 20 && !mutate(mutant, job.ranks, random); tries++) {
            }
        }
        struct muster_check_result result = test_check(&job, mutant);
        if (result.proven) {
            assert_true(test_executes_right(&job, mutant, random));
            if (!test_keeps_promises(&job, mutant, promises, random, why)) {
                print_error("%s %s: %u ranks: taken for proven, but %s\n",
                            muster_collective_name(plan->collective),
                            muster_algorithms[algorithm].name, job.ranks, why);
                fail();
            }
        }
        test_finish_all(mutant, job.ranks);
    }
    test_job_finish(&job);
}

static void mutants_that_break_a_promise_are_rejected(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (uint32_t ranks = 2; ranks <= SMALL_RANKS_MAX; ranks++) {
        struct muster_topology topology = test_topology_even(ranks, ranks > 3 ? 2 : 1);
        visit_all(&topology, 2 * ranks + 1, KEPT | TOGETHER, &random, compare_mutants);
        muster_topology_finish(&topology);
    }
}

int main(int argc, char **argv)
{
    (void)argv;
    all = argc > 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_keeps_its_promises_for_1_to_64_ranks),
        cmocka_unit_test(random_ragged_hosts_in_random_racks_keep_their_promises),
        cmocka_unit_test(promises_hold_when_schedules_are_executed_without_one_rank),
        cmocka_unit_test(chunks_that_go_in_pieces_keep_their_promises_for_1_to_64_ranks),
        cmocka_unit_test(a_closing_round_is_in_the_formulas),
        cmocka_unit_test(without_a_closing_round_some_collectives_finish_early),
        cmocka_unit_test(schedules_that_were_not_changed_break_the_promise_or_needed_no_change),
        cmocka_unit_test(mutants_that_break_a_promise_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
