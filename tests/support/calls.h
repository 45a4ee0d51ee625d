/* One call of each member of a group, which a test can make wrong, and the results. */
#ifndef MUSTER_TESTS_SUPPORT_CALLS_H
#define MUSTER_TESTS_SUPPORT_CALLS_H

#include "tests/support/group.h"

enum { GROUP_CALL_DOUBLES = 2000 }; /* room in the buffers, all types */

/* The request of each member, and the result. */
struct group_calls {
    struct muster_request requests[GROUP_SIZE_MAX];
    bool silent[GROUP_SIZE_MAX]; /* this member makes no call */
    muster_status statuses[GROUP_SIZE_MAX];
    uint32_t suspects[GROUP_SIZE_MAX];
    char texts[GROUP_SIZE_MAX][MUSTER_ERROR_MAX];
    size_t
        counts[GROUP_SIZE_MAX]; /* of each rank's block; the requests that need them point here */
    double in[GROUP_SIZE_MAX][GROUP_CALL_DOUBLES], out[GROUP_SIZE_MAX][GROUP_CALL_DOUBLES];
};

/* All members: 100 float32 (for each rank, where there are blocks), sum, out of place, into buffers
 * of the calls'. free() it. */
struct group_calls *group_calls_create(enum muster_collective collective);

/* Works for group_each(): the member's call (argument: the calls), unless it is silent. */
void group_call(struct group_member *member, void *argument);

/* A small allreduce that must succeed. */
void group_allreduce_well(struct group_member *member, void *argument);

#endif
