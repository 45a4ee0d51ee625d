/* Rounds, by tables of events and by random ones. */
#include "elastic/horovod/horovod_rounds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { WORKERS_MAX = 64, RANDOM_RUNS = 300, RANDOM_EVENTS = 60 };

static void plan(struct muster_horovod_rounds *rounds, const char *text)
{
    struct muster_horovod_plan parsed;
    assert_int_equal(muster_horovod_plan_parse(text, strlen(text), &parsed), MUSTER_OK);
    assert_int_equal(muster_horovod_rounds_plan(rounds, &parsed), MUSTER_OK);
}

/* "a:0" */
static void parse(const char *slot, char host[8], uint32_t *ret_local_rank)
{
    (void)snprintf(host, 8, "%.*s", (int)strcspn(slot, ":"), slot);
    assert_true(slot[strlen(host)] == ':');
    *ret_local_rank = (uint32_t)strtoul(slot + strlen(host) + 1, NULL, 10);
}

static enum muster_horovod_answer ask(struct muster_horovod_rounds *rounds, const char *slot)
{
    char host[8];
    uint32_t local_rank;
    uint32_t rank;
    parse(slot, host, &local_rank);
    return muster_horovod_rounds_ask(rounds, host, local_rank, &rank);
}

static bool exited(struct muster_horovod_rounds *rounds, const char *slot)
{
    char host[8];
    uint32_t local_rank;
    parse(slot, host, &local_rank);
    return muster_horovod_rounds_exit(rounds, host, local_rank);
}

/* What the worker with that rank in the round before is answered. */
static void expect_answer(const struct muster_horovod_rounds *rounds, uint32_t rank_before,
                          const char *expected)
{
    char text[MUSTER_HOROVOD_RANKS_SIZE];
    struct muster_horovod_ranks ranks =
        muster_horovod_rounds_answer(rounds, rank_before, "nowhere", 0);
    muster_horovod_ranks_format(&ranks, text);
    assert_string_equal(text, expected);
}

/* The first plan, with every worker seen. */
static struct muster_horovod_rounds begin(const char *text)
{
    struct muster_horovod_rounds rounds = {0};
    plan(&rounds, text);
    assert_true(muster_horovod_rounds_form(&rounds));
    for (uint32_t rank = 0; rank < rounds.running.plan.size; rank++) {
        muster_horovod_rounds_seen(&rounds, rank);
    }
    return rounds;
}

static void a_round_forms_when_every_worker_has_asked(void **state)
{
    (void)state;
    struct muster_horovod_rounds rounds = begin("a:2,b:1");
    assert_int_equal(ask(&rounds, "a:0"), MUSTER_HOROVOD_WAIT);
    assert_int_equal(ask(&rounds, "b:0"), MUSTER_HOROVOD_WAIT);
    assert_int_equal(ask(&rounds, "b:0"), MUSTER_HOROVOD_WAIT); /* counts once */
    assert_int_equal(ask(&rounds, "b:1"), MUSTER_HOROVOD_REMOVED);
    assert_int_equal(ask(&rounds, "x:0"), MUSTER_HOROVOD_REMOVED); /* unknown: does not count */
    assert_false(muster_horovod_rounds_form(&rounds));
    assert_int_equal(ask(&rounds, "a:1"), MUSTER_HOROVOD_WAIT);
    assert_true(muster_horovod_rounds_form(&rounds));
    assert_false(muster_horovod_rounds_form(&rounds));
    assert_int_equal(rounds.running.number, 2);
    expect_answer(&rounds, 0, "0,3,0,2,0,2");
    expect_answer(&rounds, 2, "2,3,0,1,1,2");
    muster_horovod_rounds_finish(&rounds);
}

static void a_closed_request_no_longer_counts(void **state)
{
    (void)state;
    struct muster_horovod_rounds rounds = begin("a:2");
    assert_int_equal(ask(&rounds, "a:0"), MUSTER_HOROVOD_WAIT);
    muster_horovod_rounds_unask(&rounds, 0);
    muster_horovod_rounds_unask(&rounds, MUSTER_HOROVOD_NONE);
    assert_int_equal(ask(&rounds, "a:1"), MUSTER_HOROVOD_WAIT);
    assert_false(muster_horovod_rounds_form(&rounds));
    muster_horovod_rounds_finish(&rounds);
}

static void the_others_go_on_without_a_worker_that_exited(void **state)
{
    (void)state;
    struct muster_horovod_rounds rounds = begin("a:2,b:2");
    assert_int_equal(ask(&rounds, "a:1"), MUSTER_HOROVOD_WAIT);
    assert_int_equal(ask(&rounds, "b:0"), MUSTER_HOROVOD_WAIT);
    assert_int_equal(ask(&rounds, "b:1"), MUSTER_HOROVOD_WAIT);
    assert_false(muster_horovod_rounds_form(&rounds));
    assert_true(exited(&rounds, "a:0"));
    assert_false(exited(&rounds, "a:0"));
    assert_false(exited(&rounds, "x:0"));
    assert_true(muster_horovod_rounds_form(&rounds));
    expect_answer(&rounds, 2, "0,3,0,2,0,2"); /* b: its slot 0 has a state */
    expect_answer(&rounds, 3, "1,3,1,2,0,1");
    expect_answer(&rounds, 1, "2,3,0,1,1,2"); /* a:1 is a:0 now */
    expect_answer(&rounds, 0, "-1,-1,-1,-1,-1,-1");
    muster_horovod_rounds_finish(&rounds);
}

static void a_plan_waits_for_the_workers_that_stay(void **state)
{
    (void)state;
    struct muster_horovod_rounds rounds = begin("a:2,b:2");
    assert_int_equal(ask(&rounds, "b:0"), MUSTER_HOROVOD_WAIT);
    plan(&rounds, "a:2,c:2");
    assert_int_equal(ask(&rounds, "a:0"), MUSTER_HOROVOD_WAIT);
    assert_false(muster_horovod_rounds_form(&rounds));
    assert_int_equal(ask(&rounds, "b:1"), MUSTER_HOROVOD_REMOVED);
    assert_int_equal(ask(&rounds, "a:1"), MUSTER_HOROVOD_WAIT);
    assert_true(muster_horovod_rounds_form(&rounds));
    expect_answer(&rounds, 0, "0,4,0,2,0,2");
    expect_answer(&rounds, 2, "-1,-1,-1,-1,-1,-1"); /* b:0 had asked before the plan */
    assert_int_equal(rounds.running.slots[2].state, MUSTER_HOROVOD_NEW);
    muster_horovod_rounds_finish(&rounds);
}

static void a_newcomer_is_never_rank_0_where_a_worker_lives(void **state)
{
    (void)state;
    struct muster_horovod_rounds rounds = begin("a:2,b:2");
    assert_true(exited(&rounds, "a:0"));
    plan(&rounds, "a:2,b:2"); /* a:0 is started anew: b goes first, because b:0 has the state */
    assert_string_equal(rounds.next.plan.hosts[0].name, "b");
    assert_int_equal(rounds.next.slots[2].before, MUSTER_HOROVOD_NONE);
    assert_int_equal(rounds.next.slots[3].before, 1); /* a:1 keeps its slot */
    assert_true(exited(&rounds, "b:0"));
    assert_true(rounds.next_void); /* the new a:0 may have been told its rank */
    plan(&rounds, "c:1,a:2,b:2");  /* no slot 0 lives: a:1 takes that of its host */
    assert_false(rounds.next_void);
    assert_string_equal(rounds.next.plan.hosts[0].name, "a");
    assert_int_equal(rounds.next.slots[0].before, 1);
    assert_int_equal(rounds.next.slots[1].before, MUSTER_HOROVOD_NONE);
    muster_horovod_rounds_finish(&rounds);
}

static void a_round_that_lost_a_newcomer_waits_for_another_plan(void **state)
{
    (void)state;
    struct muster_horovod_rounds rounds = begin("a:1");
    plan(&rounds, "a:1,b:1");
    assert_true(exited(&rounds, "b:0"));
    assert_int_equal(ask(&rounds, "a:0"), MUSTER_HOROVOD_WAIT);
    assert_false(muster_horovod_rounds_form(&rounds));
    plan(&rounds, "a:1");
    assert_true(muster_horovod_rounds_form(&rounds));
    expect_answer(&rounds, 0, "0,1,0,1,0,1");
    muster_horovod_rounds_finish(&rounds);
}

static void a_plan_without_any_living_worker_is_refused(void **state)
{
    (void)state;
    struct muster_horovod_rounds rounds = begin("a:2");
    struct muster_horovod_plan parsed;
    assert_int_equal(muster_horovod_plan_parse("b:2", 3, &parsed), MUSTER_OK);
    assert_int_equal(muster_horovod_rounds_plan(&rounds, &parsed), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "no living worker"));
    assert_int_equal(rounds.next.number, 0);
    assert_true(exited(&rounds, "a:0") && exited(&rounds, "a:1"));
    plan(&rounds, "b:2"); /* all have gone: this is a new beginning */
    assert_true(muster_horovod_rounds_form(&rounds));
    muster_horovod_rounds_finish(&rounds);
}

static void a_worker_that_was_never_seen_is_told_its_place(void **state)
{
    (void)state;
    struct muster_horovod_rounds rounds = {0};
    assert_int_equal(ask(&rounds, "a:0"), MUSTER_HOROVOD_WAIT); /* for the first plan */
    assert_false(muster_horovod_rounds_form(&rounds));
    plan(&rounds, "a:2");
    assert_true(muster_horovod_rounds_form(&rounds));
    assert_int_equal(ask(&rounds, "a:1"), MUSTER_HOROVOD_PLACED);
    assert_int_equal(ask(&rounds, "a:1"), MUSTER_HOROVOD_WAIT); /* now it leaves that round */
    muster_horovod_rounds_finish(&rounds);
}

static void a_plan_without_newcomers_shrinks_with_an_exit(void **state)
{
    (void)state;
    struct muster_horovod_rounds rounds = begin("a:2,b:2");
    plan(&rounds, "a:1,b:2");
    assert_true(exited(&rounds, "b:0"));
    assert_false(rounds.next_void);
    assert_int_equal(ask(&rounds, "a:0"), MUSTER_HOROVOD_WAIT);
    assert_int_equal(ask(&rounds, "b:1"), MUSTER_HOROVOD_WAIT);
    assert_true(muster_horovod_rounds_form(&rounds));
    assert_int_equal(rounds.running.plan.size, 2);
    expect_answer(&rounds, 3, "1,2,0,1,1,2");
    muster_horovod_rounds_finish(&rounds);
}

/* Random events ------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Every worker is in one slot, slots are by rank, and rank 0 has a state if anybody has. */
static void check_round(const struct muster_horovod_round *before,
                        const struct muster_horovod_round *round)
{
    bool placed[WORKERS_MAX] = {false};
    bool anybody = false;
    uint32_t total = 0;
    for (uint32_t i = 0; i < round->plan.host_count; i++) {
        total += round->plan.hosts[i].slot_count;
    }
    assert_int_equal(total, round->plan.size);
    for (uint32_t rank = 0; rank < round->plan.size; rank++) {
        const struct muster_horovod_slot *slot = &round->slots[rank];
        assert_int_equal(muster_horovod_round_ranks(round, slot).rank, rank);
        if (slot->before != MUSTER_HOROVOD_NONE) {
            assert_true(slot->before < before->plan.size && !placed[slot->before]);
            placed[slot->before] = true;
            enum muster_horovod_slot_state state = before->slots[slot->before].state;
            anybody = anybody || state == MUSTER_HOROVOD_LIVING || state == MUSTER_HOROVOD_ASKED;
            assert_string_equal(before->plan.hosts[before->slots[slot->before].host].name,
                                round->plan.hosts[slot->host].name);
        }
    }
    if (anybody) {
        assert_true(round->slots[0].before != MUSTER_HOROVOD_NONE);
        assert_int_not_equal(before->slots[round->slots[0].before].state, MUSTER_HOROVOD_NEW);
    }
}

static struct muster_horovod_round copy_round(const struct muster_horovod_round *round)
{
    struct muster_horovod_round copy = *round;
    copy.slots = malloc((round->plan.size + 1) * sizeof *copy.slots);
    if (round->plan.size > 0) {
        memcpy(copy.slots, round->slots, round->plan.size * sizeof *copy.slots);
    }
    assert_int_equal(muster_horovod_plan_copy(&round->plan, &copy.plan), MUSTER_OK);
    return copy;
}

static void random_event(struct muster_horovod_rounds *rounds, uint64_t *seed)
{
    char host[8];
    char text[64];
    uint32_t rank;
    struct muster_horovod_plan parsed;
    uint32_t local_rank = (uint32_t)(next_random(seed) % 4);
    (void)snprintf(host, sizeof host, "h%u", (unsigned)(next_random(seed) % 4));
    switch (next_random(seed) % 12) {
    case 0:
        (void)snprintf(text, sizeof text, "h%u:%u,h%u:%u", (unsigned)(next_random(seed) % 2),
                       (unsigned)(1 + next_random(seed) % 3), (unsigned)(2 + next_random(seed) % 2),
                       (unsigned)(1 + next_random(seed) % 3));
        assert_int_equal(muster_horovod_plan_parse(text, strlen(text), &parsed), MUSTER_OK);
        if (muster_horovod_rounds_plan(rounds, &parsed) == MUSTER_OK) {
            check_round(&rounds->running, &rounds->next);
        }
        return;
    case 1:
        (void)muster_horovod_rounds_exit(rounds, host, local_rank);
        return;
    case 2:
        muster_horovod_rounds_unask(rounds, (uint32_t)(next_random(seed) % 8));
        return;
    case 3:
    case 4:
        muster_horovod_rounds_seen(rounds, (uint32_t)(next_random(seed) % 8));
        return;
    default:
        (void)muster_horovod_rounds_ask(rounds, host, local_rank, &rank);
        return;
    }
}

/* A round forms only out of workers that have all asked, and each of these has one place. */
static void rounds_keep_their_promises_in_any_order_of_events(void **state)
{
    (void)state;
    const char *given = getenv("MUSTER_SEED");
    uint64_t first = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    unsigned formed = 0;
    print_message("MUSTER_SEED=%llu\n", (unsigned long long)first);
    for (unsigned run = 0; run < RANDOM_RUNS; run++) {
        uint64_t seed = (first + run) * 0x9e3779b97f4a7c15U + 1;
        struct muster_horovod_rounds rounds = {0};
        uint64_t number = 0;
        for (unsigned i = 0; i < RANDOM_EVENTS; i++) {
            random_event(&rounds, &seed);
            struct muster_horovod_round before = copy_round(&rounds.running);
            if (muster_horovod_rounds_form(&rounds)) {
                formed++;
                assert_true(rounds.running.number > number);
                number = rounds.running.number;
                check_round(&before, &rounds.running);
                for (uint32_t rank = 0; rank < rounds.running.plan.size; rank++) {
                    uint32_t worker = rounds.running.slots[rank].before;
                    assert_true(worker == MUSTER_HOROVOD_NONE ||
                                before.slots[worker].state == MUSTER_HOROVOD_ASKED);
                }
            }
            muster_horovod_plan_finish(&before.plan);
            free(before.slots);
        }
        muster_horovod_rounds_finish(&rounds);
    }
    assert_true(formed > RANDOM_RUNS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_forms_when_every_worker_has_asked),
        cmocka_unit_test(a_closed_request_no_longer_counts),
        cmocka_unit_test(the_others_go_on_without_a_worker_that_exited),
        cmocka_unit_test(a_plan_waits_for_the_workers_that_stay),
        cmocka_unit_test(a_newcomer_is_never_rank_0_where_a_worker_lives),
        cmocka_unit_test(a_round_that_lost_a_newcomer_waits_for_another_plan),
        cmocka_unit_test(a_plan_without_any_living_worker_is_refused),
        cmocka_unit_test(a_worker_that_was_never_seen_is_told_its_place),
        cmocka_unit_test(a_plan_without_newcomers_shrinks_with_an_exit),
        cmocka_unit_test(rounds_keep_their_promises_in_any_order_of_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
