/* One call of each member of a group. */
#include "tests/support/calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/pattern.h"

struct group_calls *group_calls_create(enum muster_collective collective)
{
    struct group_calls *calls = calloc(1, sizeof *calls);
    assert_non_null(calls);
    for (uint32_t i = 0; i < GROUP_SIZE_MAX; i++) {
        calls->requests[i] = (struct muster_request){.collective = collective,
                                                     .in = calls->in[i],
                                                     .out = calls->out[i],
                                                     .count = 100,
                                                     .type = MUSTER_FLOAT32,
                                                     .op = MUSTER_SUM,
                                                     .deadline_ns = group_deadline()};
        calls->counts[i] = 100;
        if (collective == MUSTER_BROADCAST) {
            calls->requests[i].in = NULL;
        }
        if (muster_collective_needs_bounds(collective)) {
            calls->requests[i].out_counts = calls->counts;
        }
        if (collective == MUSTER_ALLTOALLV) {
            calls->requests[i].in_counts = calls->counts;
        }
    }
    return calls;
}

void group_call(struct group_member *member, void *argument)
{
    struct group_calls *calls = argument;
    uint32_t rank = member->rank;
    if (calls->silent[rank]) {
        return;
    }
    calls->statuses[rank] = muster_context_run(member->contexts[MUSTER_GLOBAL],
                                               &calls->requests[rank], &calls->suspects[rank]);
    (void)snprintf(calls->texts[rank], MUSTER_ERROR_MAX, "%s", muster_last_error());
}

void group_allreduce_well(struct group_member *member, void *argument)
{
    (void)argument;
    int64_t in[10];
    int64_t out[10];
    char text[128];
    struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                     .in = in,
                                     .out = out,
                                     .count = 10,
                                     .type = MUSTER_INT64,
                                     .deadline_ns = group_deadline()};
    pattern_fill(&request, in, member->rank, member->group->size);
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    } else if (pattern_check(&request, member->rank, member->group->size, text, sizeof text) > 0) {
        group_fail(member, "%s", text);
    }
}
