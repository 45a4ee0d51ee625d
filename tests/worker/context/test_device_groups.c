/* Groups of another device than the host: the toy device of the tests performs the group steps of
 * every collective that has them, on one host and on several, blocking and in flight; and what
 * happens where a group cannot be opened, or ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/devices.h"
#include "tests/support/group.h"
#include "tests/support/pattern.h"
#include "tests/support/toy_device/toy_device.h"
#include "worker/base/clock.h"
#include "worker/context/context_parts.h"

enum { COUNT = 3000, RANKS_MAX = 8, HANGS_MS = 30000, IN_FLIGHT = 3 };

static const enum muster_collective collectives[] = {
    MUSTER_ALLREDUCE, MUSTER_REDUCE_SCATTER, MUSTER_ALLGATHER, MUSTER_ALLGATHERV,
    MUSTER_BROADCAST, MUSTER_REDUCE,         MUSTER_BARRIER};
enum { COLLECTIVES = sizeof collectives / sizeof collectives[0] };

static const struct {
    uint32_t hosts, sizes[3];
} shapes[] = {{1, {4}}, {2, {2, 2}}, {3, {1, 3, 2}}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void open_group(struct group_member *member)
{
    if (muster_context_open_group(member->contexts[MUSTER_GLOBAL], &toy_device,
                                  muster_clock_after_ms(HANGS_MS), NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
}

struct one_call {
    struct muster_request request;
    struct muster_started_call *started;
    char *in, *out;
};

static void prepare(const struct group_member *member, enum muster_collective collective,
                    uint32_t i, struct one_call *call)
{
    call->request = (struct muster_request){
        .collective = collective,
        .algorithm = member->group->topology.hosts > 1 ? "hierarchical_group" : "host_memory",
        .in = collective == MUSTER_BROADCAST ? NULL : call->in,
        .out = call->out,
        .count = collective == MUSTER_BARRIER ? 0 : COUNT - i,
        .root = muster_collective_has_root(collective) ? i % member->group->size : 0,
        .keep_input = i % 2 == 1,
        .finish_together = i % 3 == 1,
        .user_function = pattern_user,
        .deadline_ns = muster_clock_after_ms(HANGS_MS)};
    pattern_pair((5 * i + collective) % pattern_pairs(), &call->request.type, &call->request.op);
    if (muster_collective_needs_bounds(collective)) {
        pattern_make_counts(&call->request, member->rank, member->group->size);
    }
    if (collective != MUSTER_BARRIER) {
        pattern_fill(&call->request, call->request.in != NULL ? call->in : call->out, member->rank,
                     member->group->size);
    }
}

static void check(struct group_member *member, struct one_call *call, muster_status status)
{
    char text[128] = "";
    const struct muster_request *request = &call->request;
    if (status != MUSTER_OK) {
        group_fail(member, "%s: %s", muster_collective_name(request->collective),
                   muster_last_error());
    } else if (request->collective != MUSTER_BARRIER &&
               pattern_check(request, member->rank, member->group->size, text, sizeof text) > 0) {
        group_fail(member, "%s, %s: %s", muster_collective_name(request->collective),
                   muster_op_name(request->op), text);
    }
    pattern_free_counts(&call->request);
}

static void call_all(struct group_member *member, void *argument)
{
    struct one_call calls[IN_FLIGHT];
    (void)argument;
    for (uint32_t i = 0; i < IN_FLIGHT; i++) {
        calls[i].in = malloc(2 * (COUNT + 1) * RANKS_MAX * sizeof(double));
        calls[i].out = malloc(2 * (COUNT + 1) * RANKS_MAX * sizeof(double));
    }
    open_group(member);
    for (uint32_t i = 0; i < 6 * COLLECTIVES && member->failure[0] == '\0'; i++) {
        prepare(member, collectives[i % COLLECTIVES], i / COLLECTIVES, &calls[0]);
        check(member, &calls[0],
              muster_context_run(member->contexts[MUSTER_GLOBAL], &calls[0].request, NULL));
    }
    for (uint32_t i = 0; i < 2 * COLLECTIVES && member->failure[0] == '\0'; i++) {
        uint32_t started = 0;
        for (uint32_t j = 0; j < IN_FLIGHT; j++) {
            prepare(member, collectives[(i + j) % COLLECTIVES], j, &calls[j]);
            started += muster_context_start(member->contexts[MUSTER_GLOBAL], &calls[j].request,
                                            &calls[j].started) == MUSTER_OK;
        }
        for (uint32_t j = 0; j < started; j++) {
            check(member, &calls[j], muster_started_call_end(calls[j].started, NULL));
        }
    }
    for (uint32_t i = 0; i < IN_FLIGHT; i++) {
        free(calls[i].in);
        free(calls[i].out);
    }
}

static void another_device_performs_the_group_steps_of_every_collective(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        struct group group;
        uint64_t before = toy_groups_performed();
        group_start(&group, GROUP_INPROC, shapes[i].hosts, shapes[i].sizes, NULL);
        group_each(&group, call_all, NULL);
        assert_true(toy_groups_performed() > before + 6 * (COLLECTIVES - 1));
        group_finish(&group);
    }
}

/* Its prices, which are all ranks' highest, choose the algorithm. */
static void select_by_price(struct group_member *member, void *argument)
{
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = argument,
                                           .out = argument,
                                           .count = 4096,
                                           .type = MUSTER_FLOAT32,
                                           .op = MUSTER_SUM,
                                           .untuned = true};
    struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    size_t algorithm = 0;
    open_group(member);
    if (!context->host.reach.priced || context->host.reach.prices.fixed_us[MUSTER_BROADCAST] != 1) {
        group_fail(member, "the context has no prices of the device");
    }
    if (muster_context_algorithm(context, &request, &algorithm) != MUSTER_OK ||
        strcmp(muster_algorithms[algorithm % MUSTER_ALGORITHM_ROWS_MAX].name,
               "hierarchical_group") != 0) {
        group_fail(member, "algorithm %zu: %s", algorithm, muster_last_error());
    }
}

static void its_prices_choose_the_algorithm(void **state)
{
    (void)state;
    static char data[4096 * 4];
    struct group group;
    group_start(&group, GROUP_INPROC, 2, (const uint32_t[]){4, 4}, NULL);
    group_each(&group, select_by_price, data);
    group_finish(&group);
}

/* One member leaves by its deadline; the others end with REJOIN, and name it or say that it left.
 */
static void call_without_one(struct group_member *member, void *argument)
{
    int64_t sum = 0;
    uint32_t suspect = UINT32_MAX;
    bool absent = member->rank == 1;
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .algorithm = "hierarchical_group",
                                           .in = &sum,
                                           .out = &sum,
                                           .count = 1,
                                           .type = MUSTER_INT64,
                                           .op = MUSTER_SUM,
                                           .deadline_ns = muster_clock_after_ms(300)};
    (void)argument;
    open_group(member);
    muster_status status =
        absent ? MUSTER_REJOIN
               : muster_context_run(member->contexts[MUSTER_GLOBAL], &request, &suspect);
    if (status != MUSTER_REJOIN) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    } else if (member->rank == 0 && suspect != 1) {
        group_fail(member, "suspects %u: %s", suspect, muster_last_error());
    }
}

static void a_member_that_does_not_come_is_named_at_the_deadline(void **state)
{
    (void)state;
    struct group group;
    group_start(&group, GROUP_INPROC, 2, (const uint32_t[]){2, 1}, NULL);
    group_each(&group, call_without_one, NULL);
    group_finish(&group);
}

static void a_device_without_groups_opens_none(struct group_member *member, void *argument)
{
    (void)argument;
    struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    const struct muster_device without = {.name = "without", .groups = &muster_device_no_groups};
    if (muster_context_open_group(context, &without, muster_clock_after_ms(HANGS_MS), NULL) !=
            MUSTER_OK ||
        context->shared.memory != NULL || context->hosts_share) {
        group_fail(member, "%s", muster_last_error());
    }
}

static void contexts_of_a_device_without_groups_go_on_by_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct group group;
        group_start(&group, GROUP_INPROC, shapes[i].hosts, shapes[i].sizes, NULL);
        group_each(&group, a_device_without_groups_opens_none, NULL);
        group_finish(&group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_device_performs_the_group_steps_of_every_collective),
        cmocka_unit_test(its_prices_choose_the_algorithm),
        cmocka_unit_test(a_member_that_does_not_come_is_named_at_the_deadline),
        cmocka_unit_test(contexts_of_a_device_without_groups_go_on_by_messages),
    };
    (void)devices_start("toy");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
