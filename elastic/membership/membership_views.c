/* What the shell may read of a membership. */
#include "elastic/membership/membership_parts.h"

enum muster_job_phase muster_membership_phase(const struct muster_membership *membership)
{
    return membership->phase;
}

const char *muster_membership_why(const struct muster_membership *membership)
{
    return membership->why;
}

struct muster_job_settings muster_membership_settings(const struct muster_membership *membership)
{
    return membership->settings;
}

uint64_t muster_membership_resizes(const struct muster_membership *membership)
{
    return membership->resizes;
}

struct muster_generation_view
muster_membership_generation(const struct muster_membership *membership)
{
    struct muster_generation_view view = membership->generation;
    view.host_sizes = membership->host_sizes;
    view.members = (const char(*)[MUSTER_UUID_SIZE])membership->members;
    view.stale = membership->stale;
    return view;
}

bool muster_membership_pending(const struct muster_membership *membership)
{
    return membership->phase == MUSTER_JOB_RUNNING && !membership->finishing &&
           membership->newcomers_settled;
}

uint32_t muster_membership_arrived(const struct muster_membership *membership)
{
    return membership->arrived;
}

uint32_t muster_membership_awaited(const struct muster_membership *membership)
{
    return membership->awaited;
}

uint32_t muster_membership_count(const struct muster_membership *membership)
{
    return membership->count;
}

static struct muster_member_view view_of(const struct muster_member *member)
{
    return (struct muster_member_view){
        .info = member->info,
        .phase = member->phase,
        .leave_asked = member->leave_asked,
        .suspected = muster_liveness_suspected(&member->signs),
        .doubted = muster_liveness_doubted(&member->signs),
        .rank = member->phase == MUSTER_MEMBER_ARRIVED ? UINT32_MAX : member->rank,
        .progress = member->signs.progress,
        .joined_ms = member->joined_ms,
        .last_seen_ms = member->signs.last_seen_ms,
        .held = member->signs.held,
    };
}

bool muster_membership_member(const struct muster_membership *membership, uint32_t index,
                              struct muster_member_view *ret_view)
{
    if (index >= membership->count) {
        return false;
    }
    *ret_view = view_of(membership->listed[index]);
    return true;
}

bool muster_membership_find(const struct muster_membership *membership, const char *member,
                            struct muster_member_view *ret_view)
{
    const struct muster_member *found = muster_records_find(membership, member);
    if (found == NULL || found->phase == MUSTER_MEMBER_GONE) {
        return false;
    }
    *ret_view = view_of(found);
    return true;
}

/* Where a ring holds item number index, counted from the oldest that it still has. */
static bool ring_index(uint64_t written, uint32_t index, uint32_t *ret_at)
{
    uint64_t count = written < MUSTER_HISTORY_MAX ? written : MUSTER_HISTORY_MAX;
    if (index >= count) {
        return false;
    }
    *ret_at = (uint32_t)((written - count + index) % MUSTER_HISTORY_MAX);
    return true;
}

bool muster_membership_generation_record(const struct muster_membership *membership, uint32_t index,
                                         struct muster_generation_record *ret_record)
{
    uint32_t at = 0;
    if (!ring_index(membership->generation_records, index, &at)) {
        return false;
    }
    *ret_record = membership->generations[at];
    return true;
}

bool muster_membership_departure_record(const struct muster_membership *membership, uint32_t index,
                                        struct muster_departure_record *ret_record)
{
    uint32_t at = 0;
    if (!ring_index(membership->departure_records, index, &at)) {
        return false;
    }
    *ret_record = membership->departures[at];
    return true;
}
