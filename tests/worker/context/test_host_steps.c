/* Group steps within hosts beside messages between them, in allreduces: right results on even and
 * ragged hosts, in place, in several ranges, with leaders and pieces; members that disagree;
 * deaths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/call/request_ranges.h"
#include "tests/support/group.h"
#include "worker/base/clock.h"
#include "worker/context/context_parts.h"
#include "worker/device/host/group_parts.h"

enum { COUNT_MAX = 200000, HANGS_MS = 20000, RANGES = 3 };

static const char *const names[] = {
    "hierarchical(local=group)",
    "hierarchical(local=group,cross=ring,pieces=16)",
    "hierarchical(local=group,cross=recursive_doubling,leaders=1)",
    "hierarchical(local=group,leaders=2,pieces=4)",
    "hierarchical(local=group,cross=bcube)",
};
enum { NAMES = sizeof names / sizeof names[0] };

static const struct {
    uint32_t hosts;
    uint32_t sizes[4];
} shapes[] = {{2, {2, 2}}, {2, {2, 1}}, {3, {1, 3, 2}}, {2, {4, 4}}, {4, {2, 2, 2, 2}}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

enum way { APART, IN_PLACE, IN_RANGES, WAYS };

struct job {
    const char *name;
    size_t count;
    enum way way;
};

static uint64_t announced_by(const struct group_member *member)
{
    const struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    const struct muster_group_memory *memory = context->host.memory;
    return memory == NULL ? 0 : memory->announced;
}

static bool in_a_group(const struct group_member *member)
{
    const struct muster_topology *topology = &member->group->topology;
    return muster_topology_locate(topology, member->rank).local_size > 1;
}

static void fill(const struct group_member *member, int64_t *data, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        data[i] = (int64_t)(i * 7 + member->rank * 1000);
    }
}

static void check(struct group_member *member, const struct job *job, const int64_t *data)
{
    int64_t ranks = member->group->size;
    for (size_t i = 0; i < job->count; i++) {
        int64_t expected = ranks * (int64_t)i * 7 + 500 * ranks * (ranks - 1);
        if (data[i] != expected) {
            group_fail(member, "%s, count %zu, way %d: element %zu is %lld, not %lld", job->name,
                       job->count, job->way, i, (long long)data[i], (long long)expected);
            return;
        }
    }
}

/* Ranges with gaps, of which the last has most: in `room`, from its front to its end. */
/* NOLINTNEXTLINE(readability-non-const-parameter): the call writes to the ranges */
static void cut(int64_t *room, size_t count, muster_range *ranges)
{
    size_t first = count / 5;
    size_t second = count / 3;
    ranges[0] = (muster_range){.address = room, .count = first};
    ranges[1] = (muster_range){.address = room + first + 3, .count = second};
    ranges[2] =
        (muster_range){.address = room + first + second + 8, .count = count - first - second};
}

static void spread(const muster_range *ranges, int64_t *data, bool back)
{
    for (size_t i = 0; i < RANGES; i++) {
        size_t bytes = ranges[i].count * sizeof *data;
        if (bytes > 0) {
            memcpy(back ? (void *)data : ranges[i].address, back ? ranges[i].address : (void *)data,
                   bytes);
        }
        data += ranges[i].count;
    }
}

static muster_status run(struct group_member *member, const struct job *job, int64_t *in,
                         int64_t *out, uint32_t *ret_suspect)
{
    muster_range ranges[RANGES];
    const struct muster_given_ranges given = {
        .ins = ranges, .outs = ranges, .in_count = RANGES, .out_count = RANGES};
    struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                     .in = job->way == IN_PLACE ? out : in,
                                     .out = out,
                                     .count = job->count,
                                     .type = MUSTER_INT64,
                                     .op = MUSTER_SUM,
                                     .algorithm = job->name,
                                     .deadline_ns = muster_clock_after_ms(HANGS_MS)};
    if (job->way == IN_RANGES) {
        request.in = NULL;
        request.out = NULL;
        request.count = 0;
        request.ranges = &given;
        cut(in, job->count, ranges);
        spread(ranges, out, false);
    }
    TRY(muster_context_run(member->contexts[MUSTER_GLOBAL], &request, ret_suspect));
    if (job->way == IN_RANGES) {
        spread(ranges, out, true);
    }
    return MUSTER_OK;
}

static void call_all(struct group_member *member, void *argument)
{
    static const size_t counts[] = {0, 1, 3, 1003, 40000, COUNT_MAX};
    int64_t *in = calloc(COUNT_MAX + 16, sizeof *in);
    int64_t *out = calloc(COUNT_MAX + 16, sizeof *out);
    uint32_t suspect;
    (void)argument;
    for (size_t i = 0; i < NAMES * WAYS * sizeof counts / sizeof counts[0]; i++) {
        const struct job job = {.name = names[i % NAMES],
                                .count = counts[i / NAMES / WAYS],
                                .way = (enum way)(i / NAMES % WAYS)};
        uint64_t announced = announced_by(member);
        fill(member, in, job.count);
        fill(member, out, job.count);
        if (run(member, &job, in, out, &suspect) != MUSTER_OK) {
            group_fail(member, "%s: %s", job.name, muster_last_error());
            break;
        }
        check(member, &job, out);
        if (announced_by(member) == announced && in_a_group(member)) {
            group_fail(member, "%s has performed no group step", job.name);
        }
    }
    free(in);
    free(out);
}

static void results_are_right_on_even_and_ragged_hosts(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        struct group group;
        group_start(&group, GROUP_MEMORY, shapes[i].hosts, shapes[i].sizes, NULL);
        group_each(&group, call_all, NULL);
        group_finish(&group);
    }
}

/* Members that disagree ------------------------------------------------------------------------ */

enum { ROUNDS = 12 };

/* In each third call one member, another one each time, calls with another count or by messages.
 * All members are told, and later calls are right. */
static void disagree(struct group_member *member, void *argument)
{
    int64_t *in = calloc(COUNT_MAX + 16, sizeof *in);
    int64_t *out = calloc(COUNT_MAX + 16, sizeof *out);
    uint32_t suspect;
    (void)argument;
    for (uint32_t i = 0; i < ROUNDS && member->failure[0] == '\0'; i++) {
        struct job job = {.name = names[i / 3 % 2], .count = 1000};
        bool differs = i % 3 == 1;
        if (differs && member->rank == i / 3 % member->group->size) {
            job.name = i % 2 == 0 ? job.name : "ring";
            job.count = i % 2 == 0 ? 999 : 1000;
        }
        fill(member, in, job.count);
        muster_status status = run(member, &job, in, out, &suspect);
        if (status != (differs ? MUSTER_INVALID : MUSTER_OK)) {
            group_fail(member, "call %u: %s: %s", i, muster_status_name(status),
                       status == MUSTER_OK ? "" : muster_last_error());
        } else if (!differs) {
            check(member, &job, out);
        }
    }
    free(in);
    free(out);
}

static void members_that_disagree_are_told_and_go_on(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct group group;
        group_start(&group, GROUP_MEMORY, shapes[i].hosts, shapes[i].sizes, NULL);
        group_each(&group, disagree, NULL);
        group_finish(&group);
    }
}

/* Deaths ----------------------------------------------------------------------------------------
 */

enum { GOOD_CALLS = 3 };

struct death {
    const char *name;
    uint32_t victim;
    atomic_uint noticed;
};

static void call_until_death(struct group_member *member, void *argument)
{
    struct death *death = argument;
    const struct job job = {.name = death->name, .count = 30000};
    int64_t *in = calloc(COUNT_MAX, sizeof *in);
    int64_t *out = calloc(COUNT_MAX, sizeof *out);
    uint32_t suspect = UINT32_MAX;
    muster_status status = MUSTER_OK;
    for (int calls = 0; status == MUSTER_OK; calls++) {
        if (member->rank == death->victim && calls == GOOD_CALLS) {
            muster_fabric_kill(member->fabric);
        }
        status = run(member, &job, in, out, &suspect);
    }
    if (status != MUSTER_REJOIN) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
    /* A member that suspects nobody saw another leave, and joins again: the service revokes, too.
     */
    if (member->rank != death->victim && (suspect == death->victim || suspect == UINT32_MAX)) {
        atomic_fetch_add(&death->noticed, 1);
        for (uint32_t i = 0; i < member->group->size; i++) {
            muster_fabric_revoke(member->group->members[i].fabric, member->group->generation,
                                 "the victim died");
        }
    } else if (member->rank != death->victim) {
        group_fail(member, "rank %u is suspected: %s", suspect, muster_last_error());
    }
    free(in);
    free(out);
}

static void a_death_ends_the_calls_of_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < (size_t)NAMES * SHAPES; i++) {
        const size_t shape = i / NAMES;
        struct group group;
        struct death death = {.name = names[i % NAMES], .victim = (uint32_t)(i % 3)};
        group_start(&group, GROUP_MEMORY, shapes[shape].hosts, shapes[shape].sizes, NULL);
        group_each(&group, call_until_death, &death);
        assert_true(atomic_load(&death.noticed) > 0);
        group_finish(&group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_right_on_even_and_ragged_hosts),
        cmocka_unit_test(members_that_disagree_are_told_and_go_on),
        cmocka_unit_test(a_death_ends_the_calls_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
