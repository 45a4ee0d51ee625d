/*
 * The slots of members: a slot is the member's place on its host. It is the lowest free one when
 * the member joins, or the one that its Join asks for, and does not change while the member is
 * listed.
 *
 * A member is listed until the service knows of its death, which may be later than its successor's
 * Join. So a slot may be asked for that somebody still holds here. Each member holds a lock of its
 * host's kernel, which nobody else gets while its process exists: where the locks of both are the
 * same, the earlier holder has exited, and the slot goes to the newcomer.
 */
#include "elastic/membership/membership_parts.h"

#include <string.h>

static struct muster_member *find_holder(const struct muster_membership *m,
                                         const struct muster_listed_host *host, uint32_t slot)
{
    struct muster_member *holder = NULL;
    struct muster_slot_key key;
    memset(&key, 0, sizeof key);
    key.host = host;
    key.slot = slot;
    HASH_FIND(slot_hh, m->by_slot, &key, sizeof key, holder);
    return holder;
}

static bool has_exited(const struct muster_member *holder, const struct muster_member_info *info)
{
    return info->slot_lock[0] != '\0' && strcmp(holder->info->slot_lock, info->slot_lock) == 0;
}

const struct muster_member *muster_slots_holder(const struct muster_membership *membership,
                                                const struct muster_listed_host *host,
                                                const struct muster_member_info *info)
{
    if (!info->has_slot || info->slot_any) {
        return NULL;
    }
    const struct muster_member *holder = find_holder(membership, host, info->slot);
    bool other = holder != NULL && strcmp(holder->id, info->id) != 0 && !has_exited(holder, info);
    return other ? holder : NULL;
}

/* There are fewer members than slots, so one is free. */
static uint32_t find_free(const struct muster_membership *m, struct muster_listed_host *host)
{
    while (find_holder(m, host, host->slots_used) != NULL) {
        host->slots_used++;
    }
    return host->slots_used;
}

static void set_slot(struct muster_membership *m, struct muster_member *member, uint32_t slot)
{
    member->slot = (struct muster_slot_key){.host = member->host, .slot = slot};
    HASH_ADD(slot_hh, m->by_slot, slot, sizeof member->slot, member);
    bool added = member->slot_hh.tbl != NULL;
    member->info->has_slot = added;
    member->info->slot = added ? slot : 0;
    if (!added) {
        member->slot.host = NULL;
    }
}

void muster_slots_take(struct muster_membership *membership, struct muster_member *member)
{
    const struct muster_member_info *info = member->info;
    struct muster_member *holder =
        info->has_slot ? find_holder(membership, member->host, info->slot) : NULL;
    if (!info->has_slot || (holder != NULL && !has_exited(holder, info))) {
        set_slot(membership, member, find_free(membership, member->host));
        return;
    }
    if (holder != NULL) {
        muster_slots_release(membership, holder);
    }
    set_slot(membership, member, info->slot);
    if (holder != NULL) { /* until the service knows of its death */
        set_slot(membership, holder, find_free(membership, holder->host));
    }
}

void muster_slots_release(struct muster_membership *membership, struct muster_member *member)
{
    if (member->slot.host == NULL) {
        return;
    }
    HASH_DELETE(slot_hh, membership->by_slot, member);
    if (member->slot.slot < member->host->slots_used) {
        member->host->slots_used = (uint32_t)member->slot.slot;
    }
    member->slot.host = NULL;
}
