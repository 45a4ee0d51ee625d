/* The death of a member in the middle of a collective, with every algorithm, members as threads. */
#include "tests/support/group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 5, VICTIM = 2, COUNT = 3000, GOOD_CALLS = 3 };

struct death {
    size_t algorithm;
    atomic_uint suspected; /* number of members that suspect the victim */
};

/* Stands in for the service: revokes the generation on all members. */
static void revoke_everywhere(struct group_member *member)
{
    struct group *group = member->group;
    for (uint32_t i = 0; i < group->size; i++) {
        muster_fabric_revoke(group->members[i].fabric, group->generation, "rank 2 died");
    }
}

static muster_status call(struct group_member *member, const struct death *death, double *in,
                          double *out, uint32_t *ret_suspect)
{
    static const size_t counts[RANKS] = {COUNT, COUNT, COUNT, COUNT, COUNT};
    const struct muster_algorithm *row = &muster_algorithms[death->algorithm];
    struct muster_request request = {
        .collective = row->collective,
        .in = row->collective == MUSTER_BROADCAST ? NULL : in,
        .out = out,
        .count = row->collective == MUSTER_BARRIER ? 0 : COUNT,
        .type = MUSTER_FLOAT64,
        .algorithm = row->name,
        .deadline_ns = group_deadline(),
    };
    if (muster_collective_needs_bounds(row->collective)) {
        request.in_counts = row->collective == MUSTER_ALLTOALLV ? counts : NULL;
        request.out_counts = counts;
    }
    return muster_context_run(member->contexts[MUSTER_GLOBAL], &request, ret_suspect);
}

static void call_until_failure(struct group_member *member, void *argument)
{
    struct death *death = argument;
    double *in = calloc(COUNT * RANKS, sizeof *in);
    double *out = calloc(COUNT * RANKS, sizeof *out);
    uint32_t suspect = UINT32_MAX;
    muster_status status = MUSTER_OK;
    for (int calls = 0; status == MUSTER_OK; calls++) {
        if (member->rank == VICTIM && calls == GOOD_CALLS) {
            muster_fabric_kill(member->fabric);
        }
        status = call(member, death, in, out, &suspect);
    }
    if (status != MUSTER_REJOIN) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
    if (member->rank != VICTIM && suspect == VICTIM) {
        atomic_fetch_add(&death->suspected, 1);
        revoke_everywhere(member);
    } else if (member->rank != VICTIM && suspect != UINT32_MAX) {
        group_fail(member, "rank %u is suspected: %s", suspect, muster_last_error());
    }
    free(in);
    free(out);
}

static void a_death_ends_every_algorithm_and_a_member_suspects_the_victim(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {2, 3};
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        struct group group;
        struct death death = {.algorithm = i};
        group_start(&group, GROUP_INPROC, 2, sizes, NULL);
        group_each(&group, call_until_failure, &death);
        if (atomic_load(&death.suspected) == 0) {
            fail_msg("%s %s: no member suspects the victim",
                     muster_collective_name(muster_algorithms[i].collective),
                     muster_algorithms[i].name);
        }
        group_finish(&group);
    }
}

/* A member may wait for another one that has failed because of the victim; then it suspects no
 * rank. */
static void a_death_ends_every_algorithm_of_shared_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        struct group group;
        struct death death = {.algorithm = i};
        if (muster_algorithm_uses_memory(i)) {
            group_start(&group, GROUP_MEMORY, 1, (const uint32_t[]){RANKS}, NULL);
            group_each(&group, call_until_failure, &death);
            group_finish(&group);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_ends_every_algorithm_and_a_member_suspects_the_victim),
        cmocka_unit_test(a_death_ends_every_algorithm_of_shared_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
