/* Follows waits to their root. */
#include "elastic/verdicts/waits.h"

enum { SILENT_LEAST = 3 }; /* one or two may well fail at once */

bool muster_waits_is_own_fault(uint32_t silent, uint32_t count)
{
    return silent >= SILENT_LEAST && 2 * (uint64_t)silent > count;
}

/* Whether a is the likelier root of two for which it is not known who waits for them: one that does
 * not answer, else one that does not wait, else one that has finished less. */
static bool is_likelier(const struct muster_wait_member *a, const struct muster_wait_member *b)
{
    if (a->answers != b->answers) {
        return !a->answers;
    }
    if (a->answers && a->waits != b->waits) {
        return !a->waits;
    }
    if (a->answers && !a->waits && a->in_call != b->in_call) {
        return !a->in_call;
    }
    return a->progress < b->progress;
}

/* Waits in memory that the members of a host share name nobody: they are for members of the host,
 * if one of those does not wait. */
static uint32_t find_likeliest(const struct muster_wait_member *members, uint32_t count,
                               uint32_t waiter, bool same_host)
{
    uint32_t found = MUSTER_WAITS_NOBODY;
    for (uint32_t i = 0; i < count; i++) {
        bool counts = i != waiter && (!same_host || members[i].host == members[waiter].host);
        if (counts && (found == MUSTER_WAITS_NOBODY || is_likelier(&members[i], &members[found]))) {
            found = i;
        }
    }
    return found;
}

static bool may_be_root(const struct muster_wait_member *member)
{
    return !member->answers || !member->waits;
}

static uint32_t next_of(const struct muster_wait_member *members, uint32_t count, uint32_t waiter)
{
    uint32_t named = members[waiter].waits_for;
    if (named < count && named != waiter) {
        return named;
    }
    uint32_t found = find_likeliest(members, count, waiter, true);
    if (found == MUSTER_WAITS_NOBODY || !may_be_root(&members[found])) {
        found = find_likeliest(members, count, waiter, false);
    }
    return found;
}

static enum muster_wait_kind kind_of(const struct muster_wait_member *member)
{
    if (!member->answers) {
        return MUSTER_WAIT_FROZEN;
    }
    return member->in_call ? MUSTER_WAIT_SLOW : MUSTER_WAIT_USER_CODE;
}

/* All on the way wait: the one that is behind, and one that waits for it. */
static struct muster_wait_root slowest(const struct muster_wait_member *members, uint32_t count,
                                       uint32_t first)
{
    struct muster_wait_root root = {.kind = MUSTER_WAIT_SLOW, .member = first, .waiter = first};
    uint32_t at = first;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t next = next_of(members, count, at);
        if (members[next].progress < members[root.member].progress || root.waiter == root.member) {
            root.member = next;
            root.waiter = at;
        }
        at = next;
    }
    return root;
}

struct muster_wait_root muster_waits_find_root(const struct muster_wait_member *members,
                                               uint32_t count, uint32_t first)
{
    uint32_t at = first;
    if (!members[first].answers || !members[first].waits) {
        return (struct muster_wait_root){.kind = MUSTER_WAIT_NONE};
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t next = next_of(members, count, at);
        if (next == MUSTER_WAITS_NOBODY) { /* it is alone */
            return (struct muster_wait_root){.kind = MUSTER_WAIT_NONE};
        }
        if (may_be_root(&members[next])) {
            return (struct muster_wait_root){
                .kind = kind_of(&members[next]), .member = next, .waiter = at};
        }
        at = next;
    }
    return slowest(members, count, first);
}
