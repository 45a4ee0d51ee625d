/* Says in one line in what two lists of one process set differ. Pure. */
#ifndef MUSTER_WORKER_COMMUNICATOR_SET_DIFFERENCE_H
#define MUSTER_WORKER_COMMUNICATOR_SET_DIFFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The list with which a member creates the set. */
struct muster_named_list {
    uint32_t owner;          /* the member's global rank */
    const uint32_t *members; /* [count] global ranks, each once */
    size_t count;
};

/* "ranks 0 and 1 have different lists: rank 2 is in that of rank 1 (3 members), not in that of
 * rank 0 (2 members)", with the lowest rank that only one list has; or the first place at which the
 * same members stand in another order. The text does not depend on which list is first. False: the
 * lists are equal, or there is no memory. */
bool muster_set_difference(const struct muster_named_list *one,
                           const struct muster_named_list *other, char *ret_text, size_t size);

#endif
