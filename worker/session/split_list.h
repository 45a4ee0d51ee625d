/*
 * Splitting by colour and key: from what all members of the parent have said to the list of
 * members of one part. Pure.
 */
#ifndef MUSTER_WORKER_SESSION_SPLIT_LIST_H
#define MUSTER_WORKER_SESSION_SPLIT_LIST_H

#include "worker/muster.h"

/* What a member says, as the elements of an allgather. */
struct muster_split_entry {
    int32_t colour; /* of its part; negative: it is in none */
    int32_t key;
    int32_t name_checksum; /* of the name that it passes */
};

int32_t muster_split_name_checksum(const char *name);

/* entries[i] is that of the parent's rank i, whose global rank is members[i]. MUSTER_INVALID, on
 * all members: two of them pass different names. */
MUSTER_CHECKED muster_status muster_split_check(const struct muster_split_entry *entries,
                                                const uint32_t *members, uint32_t count);

/* The part of a colour: ranks in the parent, by key; equal keys in the order of those ranks.
 * ret_ranks has room for [count]. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_split_part(const struct muster_split_entry *entries,
                                               uint32_t count, int32_t colour, uint32_t *ret_ranks,
                                               uint32_t *ret_count);

#endif
