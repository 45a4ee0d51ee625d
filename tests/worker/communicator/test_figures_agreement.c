/* All members end up with the figures of rank 0's choice. */
#include "tests/support/group.h"
#include "worker/communicator/figures_agreement.h"
#include "worker/communicator/figures_wire.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SIZE = 4, FIRST_CONTEXT = 7, TIMEOUT_MS = 20000, HOSTS_DIGEST = 17, SHAPE_DIGEST = 23 };

struct agreement {
    struct muster_figures_choice choice; /* rank 0's; the others have another one */
    struct muster_figures_choice results[SIZE];
    uint32_t victim; /* dies instead; UINT32_MAX: no member */
    muster_status statuses[SIZE];
    uint32_t suspects[SIZE];
};

/* Stands in for the service, which revokes the generation after a report. */
static void revoke_all(struct group *group)
{
    for (uint32_t rank = 0; rank < group->size; rank++) {
        muster_fabric_revoke(group->members[rank].fabric, group->generation, "a member died");
    }
}

/* Not what rank 0 chose, in any field. */
static struct muster_figures_choice other_choice(void)
{
    struct muster_figures_choice choice = {.measure = true, .autotune = true, .outdated = true};
    memset(&choice.figures, 0xff, sizeof choice.figures);
    return choice;
}

/* One member agrees on the figures: rank 0 has the choice, the others start with another one, the
 * victim dies. */
static void take_part(struct group_member *member, void *argument)
{
    struct agreement *agreement = argument;
    const struct muster_figures_group group = {
        .fabric = member->fabric,
        .generation = member->group->generation,
        .context = FIRST_CONTEXT,
        .topology = &member->group->topology,
        .rank = member->rank,
        .peers = member->communicator->callers,
        .hosts_digest = HOSTS_DIGEST,
        .shape_digest = SHAPE_DIGEST,
        .timeout_ms = TIMEOUT_MS,
    };
    struct muster_figures_choice *result = &agreement->results[member->rank];
    *result = member->rank == 0 ? agreement->choice : other_choice();
    if (member->rank == agreement->victim) {
        muster_fabric_kill(member->fabric);
        return;
    }
    agreement->suspects[member->rank] = UINT32_MAX;
    agreement->statuses[member->rank] =
        muster_figures_agree(&group, result, &agreement->suspects[member->rank]);
    if (agreement->statuses[member->rank] != MUSTER_OK) {
        revoke_all(member->group);
        if (agreement->victim == UINT32_MAX) {
            group_fail(member, "%s", muster_last_error());
        }
    }
}

static struct agreement *create_agreement(void)
{
    struct agreement *agreement = calloc(1, sizeof *agreement);
    assert_non_null(agreement);
    agreement->victim = UINT32_MAX;
    muster_figures_init(&agreement->choice.figures);
    return agreement;
}

static void agree(struct agreement *agreement)
{
    struct group group = {.generation = 9};
    group_start(&group, GROUP_TCP, 2, (uint32_t[]){2, 2}, NULL);
    group_each(&group, take_part, agreement);
    group_finish(&group);
}

/* The encoding has all fields, and no padding. */
static void expect_equal(const struct muster_figures_choice *one,
                         const struct muster_figures_choice *other)
{
    unsigned char bytes[2][MUSTER_FIGURES_CHOICE_SIZE];
    muster_figures_choice_encode(one, bytes[0]);
    muster_figures_choice_encode(other, bytes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizeof bytes[0]);
}

static void expect_same_results(const struct agreement *agreement)
{
    for (uint32_t rank = 1; rank < SIZE; rank++) {
        expect_equal(&agreement->results[rank], &agreement->results[0]);
    }
}

/* Two levels, measured on these hosts. */
static void set_measured(struct muster_figures *figures)
{
    figures->hosts_digest = HOSTS_DIGEST;
    figures->shape_digest = SHAPE_DIGEST;
    figures->levels = 1U << MUSTER_LEVEL_HOST | 1U << MUSTER_LEVEL_RACK;
    figures->model.links[MUSTER_LEVEL_RACK].latency_us = 123;
    figures->tuned.count = 1;
    figures->tuned.items[0] = (struct muster_tuned){
        .collective = MUSTER_ALLREDUCE, .size_class = 1, .element_size_bytes = sizeof(double)};
}

static void all_members_get_the_choice_of_rank_0(void **state)
{
    (void)state;
    struct agreement *agreement = create_agreement();
    set_measured(&agreement->choice.figures);
    agreement->choice.autotune = true;
    agree(agreement);
    expect_same_results(agreement);
    expect_equal(&agreement->results[SIZE - 1], &agreement->choice);
    free(agreement);
}

static void algorithms_tuned_on_other_hosts_are_dropped(void **state)
{
    (void)state;
    struct agreement *agreement = create_agreement();
    set_measured(&agreement->choice.figures);
    agreement->choice.figures.hosts_digest++;
    agreement->choice.outdated = true;
    agree(agreement);
    expect_same_results(agreement);
    assert_int_equal(agreement->results[1].figures.tuned.count, 0);
    assert_true(agreement->results[1].outdated);
    assert_true(agreement->results[1].figures.model.links[MUSTER_LEVEL_RACK].latency_us == 123);
    free(agreement);
}

static void all_members_measure_if_rank_0_says_so(void **state)
{
    (void)state;
    struct agreement *agreement = create_agreement();
    agreement->choice.measure = true;
    agree(agreement);
    expect_same_results(agreement);
    const struct muster_figures *figures = &agreement->results[0].figures;
    assert_int_equal(figures->levels, 1U << MUSTER_LEVEL_HOST | 1U << MUSTER_LEVEL_RACK);
    assert_int_equal(figures->hosts_digest, HOSTS_DIGEST);
    assert_int_equal(figures->shape_digest, SHAPE_DIGEST);
    assert_memory_not_equal(&figures->model, &muster_cost_model_default, sizeof figures->model);
    free(agreement);
}

static void impossible_figures_are_replaced_by_the_default_ones_on_all_members(void **state)
{
    (void)state;
    struct agreement *agreement = create_agreement();
    set_measured(&agreement->choice.figures);
    agreement->choice.figures.model.links[MUSTER_LEVEL_HOST].latency_us = NAN;
    agree(agreement);
    expect_same_results(agreement);
    assert_int_equal(agreement->results[0].figures.levels, 0);
    assert_memory_equal(&agreement->results[0].figures.model, &muster_cost_model_default,
                        sizeof muster_cost_model_default);
    free(agreement);
}

static void a_death_ends_the_agreement(void **state)
{
    (void)state;
    struct agreement *agreement = create_agreement();
    agreement->victim = 0;
    agree(agreement);
    bool named = false;
    for (uint32_t rank = 1; rank < SIZE; rank++) {
        assert_int_equal(agreement->statuses[rank], MUSTER_REJOIN);
        named |= agreement->suspects[rank] == 0;
    }
    assert_true(named);
    free(agreement);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_members_get_the_choice_of_rank_0),
        cmocka_unit_test(algorithms_tuned_on_other_hosts_are_dropped),
        cmocka_unit_test(all_members_measure_if_rank_0_says_so),
        cmocka_unit_test(impossible_figures_are_replaced_by_the_default_ones_on_all_members),
        cmocka_unit_test(a_death_ends_the_agreement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
