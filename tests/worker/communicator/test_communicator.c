/* A communicator of given members, without a service: its contexts, its figures, contexts of some
 * members. */
#include "worker/communicator/communicator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/group.h"
#include "worker/base/clock.h"

enum { MEMBERS = 5 };

static const uint32_t hosts[] = {3, 2};

/* The sum of the ranks in a context is checked by all its members. */
static void expect_sum(struct group_member *member, struct muster_context *context, int32_t own,
                       int32_t expected)
{
    int32_t sum = 0;
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = &own,
                                           .out = &sum,
                                           .count = 1,
                                           .type = MUSTER_INT32,
                                           .op = MUSTER_SUM,
                                           .deadline_ns = group_deadline()};
    if (muster_context_run(context, &request, NULL) != MUSTER_OK) {
        group_fail(member, "allreduce: %s", muster_last_error());
    } else if (sum != expected) {
        group_fail(member, "sum %d, not %d", sum, expected);
    }
}

static void sum_in_each_scope(struct group_member *member, void *argument)
{
    struct muster_context *const *contexts = member->communicator->contexts;
    int32_t own = (int32_t)member->rank;
    (void)argument;
    expect_sum(member, contexts[MUSTER_GLOBAL], own, 0 + 1 + 2 + 3 + 4);
    expect_sum(member, contexts[MUSTER_LOCAL], own, own < 3 ? 0 + 1 + 2 : 3 + 4);
    expect_sum(member, contexts[MUSTER_CROSS], own, own == 2 ? 2 : 2 * (own % 3) + 3);
}

static void test_the_members_of_each_scope_add_up_their_ranks(void **state)
{
    (void)state;
    struct group group;
    group_start(&group, GROUP_INPROC, 2, hosts, NULL);
    group_each(&group, sum_in_each_scope, NULL);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(muster_communicator_progress(group.members[i].communicator),
                         MUSTER_SCOPE_COUNT);
    }
    group_finish(&group);
}

/* Rank 0 asks for measuring; the others bring figures of their own, which are replaced. */
static void agree(struct group_member *member, void *argument)
{
    struct muster_communicator *communicator = member->communicator;
    struct muster_figures_choice choice = {
        .measure = member->rank == 0, .autotune = member->rank == 0, .outdated = member->rank != 0};
    uint32_t suspect = UINT32_MAX;
    uint32_t before = communicator->next_context;
    muster_figures_init(&choice.figures);
    if (muster_communicator_agree_figures(communicator, &choice, &suspect) != MUSTER_OK ||
        muster_communicator_share_memory(communicator, &suspect) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
        return;
    }
    muster_communicator_apply_figures(communicator);
    if (!communicator->autotunes || communicator->figures_outdated ||
        communicator->figures.levels == 0 || communicator->next_context <= before) {
        group_fail(member, "autotunes %d, outdated %d, levels %u", communicator->autotunes,
                   communicator->figures_outdated, communicator->figures.levels);
    }
    ((struct muster_cost_model *)argument)[member->rank] = communicator->figures.model;
}

static void test_all_members_adopt_what_rank_0_chooses(void **state)
{
    (void)state;
    struct muster_cost_model models[MEMBERS];
    struct group group;
    group_start(&group, GROUP_INPROC, 2, hosts, NULL);
    group_each(&group, agree, models);
    for (uint32_t i = 1; i < MEMBERS; i++) {
        assert_memory_equal(&models[i], &models[0], sizeof models[0]);
    }
    group_each(&group, sum_in_each_scope, NULL);
    group_finish(&group);
}

static void sum_among_some(struct group_member *member, void *argument)
{
    static const uint32_t ranks[] = {0, 2, 4};
    struct muster_communicator *communicator = member->communicator;
    struct muster_context *context = NULL;
    uint32_t number = communicator->next_context++;
    (void)argument;
    if (member->rank % 2 != 0) {
        return;
    }
    if (muster_communicator_create_context(communicator, "even", number, ranks, 3, &context) !=
        MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
        return;
    }
    if (muster_context_rank(context) != member->rank / 2 || muster_context_size(context) != 3) {
        group_fail(member, "rank %u of %u", muster_context_rank(context),
                   muster_context_size(context));
    }
    expect_sum(member, context, (int32_t)member->rank, 0 + 2 + 4);
    muster_context_destroy(context);
}

static void test_some_members_have_a_context_of_their_own(void **state)
{
    (void)state;
    struct group group;
    group_start(&group, GROUP_INPROC, 2, hosts, NULL);
    group_each(&group, sum_among_some, NULL);
    group_finish(&group);
}

/* As MPI_Comm_split with keys: the members of a context are known in it by the order that they
 * give.
 */
static void gather_in_given_order(struct group_member *member, void *argument)
{
    static const uint32_t ranks[MEMBERS - 1] = {4, 1, 3, 0};
    struct muster_communicator *communicator = member->communicator;
    struct muster_context *context = NULL;
    uint32_t number = communicator->next_context++;
    uint32_t found[MEMBERS - 1] = {0};
    (void)argument;
    if (member->rank == 2) {
        return;
    }
    if (muster_communicator_create_context(communicator, "keys", number, ranks, MEMBERS - 1,
                                           &context) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
        return;
    }
    const struct muster_request request = {.collective = MUSTER_ALLGATHER,
                                           .in = &member->rank,
                                           .out = found,
                                           .count = 1,
                                           .type = MUSTER_UINT32,
                                           .deadline_ns = group_deadline()};
    if (ranks[muster_context_rank(context)] != member->rank) {
        group_fail(member, "rank %u", muster_context_rank(context));
    } else if (muster_context_run(context, &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    } else if (memcmp(found, ranks, sizeof ranks) != 0) {
        group_fail(member, "found %u %u %u %u", found[0], found[1], found[2], found[3]);
    }
    muster_context_destroy(context);
}

static void test_a_context_has_its_members_in_any_order(void **state)
{
    (void)state;
    struct group group;
    group_start(&group, GROUP_INPROC, 2, hosts, NULL);
    group_each(&group, gather_in_given_order, NULL);
    group_finish(&group);
}

static void test_a_member_that_is_named_twice_is_an_error(void **state)
{
    (void)state;
    static const uint32_t twice[] = {0, 1, 0};
    static const uint32_t beyond[] = {0, MEMBERS};
    struct muster_context *context = NULL;
    struct group group;
    group_start(&group, GROUP_INPROC, 2, hosts, NULL);
    struct muster_communicator *communicator = group.members[0].communicator;
    assert_int_equal(muster_communicator_create_context(communicator, "x", 9, twice, 3, &context),
                     MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "rank 0 stands there twice"));
    assert_int_equal(muster_communicator_create_context(communicator, "x", 9, beyond, 2, &context),
                     MUSTER_INVALID);
    group_finish(&group);
}

/* A single member sends nothing: every exchange ends at once. */
static void agree_alone(struct group_member *member, void *argument)
{
    struct muster_figures_choice choice = {.measure = true};
    uint32_t suspect = UINT32_MAX;
    (void)argument;
    muster_figures_init(&choice.figures);
    choice.figures.model.burst_bytes = 12345;
    if (muster_communicator_agree_figures(member->communicator, &choice, &suspect) != MUSTER_OK ||
        muster_communicator_share_memory(member->communicator, &suspect) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
    if (member->communicator->figures.model.burst_bytes != 12345) {
        group_fail(member, "the figures were not adopted");
    }
    muster_communicator_apply_figures(member->communicator);
    expect_sum(member, member->contexts[MUSTER_GLOBAL], 7, 7);
}

static void test_a_single_member_needs_nobody(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, 1);
    group_each(&group, agree_alone, NULL);
    group_finish(&group);
}

static void test_an_unknown_algorithm_is_refused_by_name(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, 1);
    const struct muster_communicator_options options = {.fabric = group.members[0].fabric,
                                                        .generation = group.generation + 1,
                                                        .topology = &group.topology,
                                                        .peers = &group.members[0].peer,
                                                        .algorithm = "allreduce=fastest"};
    struct muster_communicator *communicator = NULL;
    assert_int_equal(muster_communicator_create(&options, &communicator), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "fastest"));
    assert_null(communicator);
    group_finish(&group);
}

static void test_local_addresses_are_removed_and_the_others_keep_their_order(void **state)
{
    (void)state;
    struct muster_peer peer = {.address_count = 3};
    (void)snprintf(peer.addresses[0], sizeof peer.addresses[0], "tcp://10.0.0.1:4000");
    (void)snprintf(peer.addresses[1], sizeof peer.addresses[1], "shm://boot/net/name");
    (void)snprintf(peer.addresses[2], sizeof peer.addresses[2], "tcp://10.0.0.2:4000");
    muster_peer_remove_local_addresses(&peer);
    assert_int_equal(peer.address_count, 2);
    assert_string_equal(peer.addresses[0], "tcp://10.0.0.1:4000");
    assert_string_equal(peer.addresses[1], "tcp://10.0.0.2:4000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_members_of_each_scope_add_up_their_ranks),
        cmocka_unit_test(test_all_members_adopt_what_rank_0_chooses),
        cmocka_unit_test(test_some_members_have_a_context_of_their_own),
        cmocka_unit_test(test_a_context_has_its_members_in_any_order),
        cmocka_unit_test(test_a_member_that_is_named_twice_is_an_error),
        cmocka_unit_test(test_a_single_member_needs_nobody),
        cmocka_unit_test(test_an_unknown_algorithm_is_refused_by_name),
        cmocka_unit_test(test_local_addresses_are_removed_and_the_others_keep_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
