/* A revocation reaches all members over the open links, also where these form a chain, and ends one
 * generation only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/calls.h"
#include "tests/support/group.h"
#include "worker/executor/progress_engine.h"

enum { SIZE = 6 };

/* Neighbours exchange something, so that each link of the chain is open, and no other. */
static void link_neighbours(struct group_member *member, void *argument)
{
    (void)argument;
    struct muster_communicator *communicator = member->communicator;
    for (uint32_t first = 0; first + 1 < member->group->size; first++) {
        const uint32_t ranks[2] = {first, first + 1};
        uint32_t number = communicator->next_context++;
        struct muster_context *context = NULL;
        const struct muster_request barrier = {.collective = MUSTER_BARRIER,
                                               .deadline_ns = group_deadline()};
        if (member->rank != first && member->rank != first + 1) {
            continue;
        }
        if (muster_communicator_create_context(communicator, "pair", number, ranks, 2, &context) !=
                MUSTER_OK ||
            muster_context_run(context, &barrier, NULL) != MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
        }
        muster_context_destroy(context);
    }
}

static void wait_for_end(struct group_member *member, const char *text)
{
    const bool never = false;
    muster_status status =
        muster_fabric_wait(member->fabric, member->group->generation, &never, group_deadline());
    if (status != MUSTER_REJOIN || strstr(muster_last_error(), text) == NULL) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
}

static void revoke_at_one_end(struct group_member *member, void *argument)
{
    (void)argument;
    if (member->rank == 0) {
        muster_fabric_revoke_for_all(member->fabric, member->group->generation, "a reason");
    }
    wait_for_end(member, "rank 0: a reason");
}

static void run_in_a_chain(group_work work)
{
    for (enum group_transport transport = GROUP_INPROC; transport <= GROUP_SHM; transport++) {
        struct group group;
        group_start_flat(&group, transport, SIZE);
        group_each(&group, link_neighbours, NULL);
        group_each(&group, work, NULL);
        group_finish(&group);
    }
}

static void all_members_of_a_chain_are_told(void **state)
{
    (void)state;
    run_in_a_chain(revoke_at_one_end);
}

/* The members between the two ends are in the caller's code: their thread has ended. */
static void wait_at_the_ends(struct group_member *member, void *argument)
{
    (void)argument;
    if (muster_progress_engine_keep_watch(member->communicator->engine) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
    if (member->rank == 0) {
        muster_fabric_revoke_for_all(member->fabric, member->group->generation, "a reason");
    } else if (member->rank == SIZE - 1) {
        wait_for_end(member, "rank 0: a reason");
    }
}

static void members_that_compute_pass_it_on(void **state)
{
    (void)state;
    run_in_a_chain(wait_at_the_ends);
}

/* Member 1 is in the next generation already when member 0 revokes the old one. What member 0 sends
 * afterwards on the same link arrives later. */
static void an_older_generation_is_dropped(void **state)
{
    (void)state;
    struct group group;
    struct muster_peer peers[2];
    group_start_flat(&group, GROUP_TCP, 2);
    group_each(&group, link_neighbours, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        peers[i] = group.members[i].peer;
        muster_communicator_destroy(group.members[i].communicator);
        group.members[i].communicator = NULL;
    }
    assert_int_equal(
        muster_fabric_begin_generation(group.members[1].fabric, group.generation + 1, peers, 2),
        MUSTER_OK);
    muster_fabric_revoke_for_all(group.members[0].fabric, group.generation, "too late");
    assert_int_equal(muster_fabric_check(group.members[0].fabric, group.generation), MUSTER_REJOIN);
    group.generation++;
    group_regroup(&group, UINT32_MAX, NULL);
    group_each(&group, group_allreduce_well, NULL);
    muster_fabric_revoke_for_all(group.members[0].fabric, group.generation - 1, "of another one");
    group_each(&group, group_allreduce_well, NULL);
    group_finish(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_members_of_a_chain_are_told),
        cmocka_unit_test(members_that_compute_pass_it_on),
        cmocka_unit_test(an_older_generation_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
