/* Ranks that call with different counts, for which different algorithms are chosen: their messages
 * may not match, so that all wait for each other. All get an error long before the deadline. */
#include "collectives/algorithms/algorithm.h"
#include "collectives/select/select.h"
#include "tests/support/group.h"
#include "tests/support/schedules.h"
#include "worker/base/clock.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    RANKS = 4,
    COUNT_MAX = 1 << 20,
    HANGS_MS = 60000, /* only a hanging test takes so long */
    PAIRS = 8,        /* of different algorithms, on each topology */
    DIGITS = 8,       /* size classes between a power of two and the next */
};

struct disagreement {
    uint64_t counts[2];
    const char *algorithms[2]; /* NULL: chosen by count */
    uint32_t odd;              /* the rank that calls with counts[1] and algorithms[1] */
    float *in[RANKS], *out[RANKS];
};

/* The context still works after the disagreement. */
static void agree(struct group_member *member)
{
    const float in = 1;
    float out = 0;
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = &in,
                                           .out = &out,
                                           .count = 1,
                                           .type = MUSTER_FLOAT32,
                                           .deadline_ns = muster_clock_after_ms(HANGS_MS)};
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    } else if (out != (float)RANKS) {
        group_fail(member, "the sum is %f", (double)out);
    }
}

static void disagree(struct group_member *member, void *argument)
{
    const struct disagreement *pair = argument;
    uint32_t side = member->rank == pair->odd;
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = pair->in[member->rank],
                                           .out = pair->out[member->rank],
                                           .count = pair->counts[side],
                                           .type = MUSTER_FLOAT32,
                                           .algorithm = pair->algorithms[side],
                                           .deadline_ns = muster_clock_after_ms(HANGS_MS)};
    uint32_t suspect = UINT32_MAX;
    muster_status status = muster_context_run(member->contexts[MUSTER_GLOBAL], &request, &suspect);
    if (status != MUSTER_INVALID || strstr(muster_last_error(), "rank ") == NULL ||
        suspect != UINT32_MAX) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
    agree(member);
}

static void run_disagreement(struct group *group, const struct disagreement *pair)
{
    print_message("  %" PRIu64 " %s, rank %u: %" PRIu64 " %s\n", pair->counts[0],
                  pair->algorithms[0] != NULL ? pair->algorithms[0] : "", pair->odd,
                  pair->counts[1], pair->algorithms[1] != NULL ? pair->algorithms[1] : "");
    group_each(group, disagree, (void *)pair);
}

static size_t chosen_for(const struct group *group, uint64_t count)
{
    const struct muster_plan plan = {
        .topology = &group->topology, .collective = MUSTER_ALLREDUCE, .count = count};
    size_t algorithm = 0;
    assert_int_equal(muster_select(&plan, sizeof(float), &muster_cost_model_default, &algorithm),
                     MUSTER_OK);
    return algorithm;
}

/* The counts of a size class have one algorithm, so it is enough to try one count of each: two
 * neighbours with different algorithms are a border. */
static void disagree_across_all_borders(struct group *group, struct disagreement *pair,
                                        uint64_t *random)
{
    uint64_t before = 1;
    size_t chosen_before = chosen_for(group, before);
    for (uint64_t count = 2; count <= COUNT_MAX;
         count +=
         count < 2 * DIGITS ? 1 : (UINT64_C(1) << (63 - __builtin_clzll(count))) / DIGITS) {
        size_t chosen = chosen_for(group, count);
        if (chosen != chosen_before) {
            pair->odd = test_random_below(random, RANKS);
            pair->counts[0] = before;
            pair->counts[1] = count;
            run_disagreement(group, pair);
        }
        before = count;
        chosen_before = chosen;
    }
}

static size_t draw_allreduce(const struct group *group, uint64_t count, uint64_t *random)
{
    for (;;) {
        size_t algorithm = test_random_below(random, (uint32_t)muster_algorithm_count);
        struct muster_plan plan = test_plan(algorithm, &group->topology, count, 0);
        if (plan.collective == MUSTER_ALLREDUCE && test_fits(algorithm, &plan)) {
            return algorithm;
        }
    }
}

static void disagree_on_algorithms(struct group *group, struct disagreement *pair, uint64_t *random)
{
    for (int i = 0; i < PAIRS; i++) {
        size_t drawn[2];
        for (int side = 0; side < 2; side++) {
            pair->counts[side] = 1 + test_random_below(random, i % 2 == 0 ? 100 : 20000) * 2 +
                                 (uint64_t)side; /* never the same */
            drawn[side] = draw_allreduce(group, pair->counts[side], random);
            pair->algorithms[side] = muster_algorithms[drawn[side]].name;
        }
        pair->odd = test_random_below(random, RANKS);
        run_disagreement(group, pair);
    }
}

static enum group_transport transport;

static void counts_that_choose_different_algorithms_are_told_to_all(void **state)
{
    (void)state;
    static const uint32_t one_host[] = {4};
    static const uint32_t two_hosts[] = {2, 2};
    uint64_t random = test_seed();
    struct disagreement pair = {.odd = 0};
    for (uint32_t i = 0; i < RANKS; i++) {
        pair.in[i] = calloc(COUNT_MAX, sizeof(float));
        pair.out[i] = calloc(COUNT_MAX, sizeof(float));
    }
    for (uint32_t hosts = 1; hosts <= (transport == GROUP_MEMORY ? 1 : 2); hosts++) {
        struct group group;
        group_start(&group, transport, hosts, hosts == 1 ? one_host : two_hosts, NULL);
        pair.algorithms[0] = pair.algorithms[1] = NULL;
        disagree_across_all_borders(&group, &pair, &random);
        disagree_on_algorithms(&group, &pair, &random);
        group_finish(&group);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        free(pair.in[i]);
        free(pair.out[i]);
    }
}

int main(void)
{
    static const enum group_transport transports[] = {GROUP_INPROC, GROUP_TCP, GROUP_SHM,
                                                      GROUP_MEMORY};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_that_choose_different_algorithms_are_told_to_all),
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++) {
        transport = transports[i];
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed;
}
