/* Whether the records of a snapshot made a whole membership: a store may have lost some, or
 * somebody edited them. */
#include "elastic/membership/membership_parts.h"
#include "elastic/membership/snapshot.h"

#include <inttypes.h>
#include <string.h>

static muster_status check_hosts(const struct muster_membership *m)
{
    uint64_t sum = 0;
    for (uint32_t host = 0; host < m->generation.hosts; host++) {
        if (m->host_sizes[host] == 0) {
            return muster_error_set(MUSTER_INVALID, "host %" PRIu32 " has no members", host);
        }
        sum += m->host_sizes[host];
    }
    return sum == m->generation.size
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID,
                                  "its hosts have %" PRIu64 " members, the generation %" PRIu32,
                                  sum, m->generation.size);
}

static muster_status check_ranks(const struct muster_membership *m)
{
    for (uint32_t rank = 0; rank < m->generation.size; rank++) {
        if (m->members[rank][0] == '\0') {
            return muster_error_set(MUSTER_INVALID, "rank %" PRIu32 " has no member", rank);
        }
    }
    for (uint32_t i = 0; i < m->count; i++) {
        const struct muster_member *member = m->listed[i];
        bool ranked = member->rank < m->generation.size &&
                      strcmp(m->members[member->rank], member->info->id) == 0;
        if (member->phase == MUSTER_MEMBER_ACTIVE && !ranked) {
            return muster_error_set(MUSTER_INVALID, "member %s has not the rank %" PRIu32,
                                    member->info->id, member->rank);
        }
    }
    return MUSTER_OK;
}

muster_status muster_membership_check_restored(const struct muster_membership *m)
{
    struct muster_generation_view generation = m->generation;
    bool none = generation.number == 0;
    if (none != (generation.size == 0) || none != (generation.hosts == 0) ||
        (none && m->phase == MUSTER_JOB_RUNNING)) {
        return muster_error_set(
            MUSTER_INVALID, "generation %" PRIu64 " with %" PRIu32 " members on %" PRIu32 " hosts",
            generation.number, generation.size, generation.hosts);
    }
    if (!none && m->generation_records == 0) {
        return muster_error_set(MUSTER_INVALID, "generation %" PRIu64 " is not in the history",
                                generation.number);
    }
    if (!none && generation.state_source >= generation.size) {
        return muster_error_set(MUSTER_INVALID,
                                "rank %" PRIu32 " has the state, of %" PRIu32 " ranks",
                                generation.state_source, generation.size);
    }
    TRY(check_hosts(m));
    return check_ranks(m);
}
