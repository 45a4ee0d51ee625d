/* Operations that are withdrawn while a device may be reading their memory. */
#include "worker/base/clock.h"
#include "worker/fabric/verbs/verbs.h"

#include <sched.h>

enum { WITHDRAW_MS = 500 }; /* a packet that was lost goes again after that */

static bool is_of(const struct verbs_out *out, const struct muster_operation_id *operation)
{
    return out->frame.transfer != NULL &&
           muster_operation_has(operation, &out->frame.transfer->key);
}

/* A piece of the operation that a device may be reading, or (if there is none) is to read again:
 * without it the peer could make nothing of those behind it that it has got. */
static bool find_read(struct verbs_link *link, const struct muster_operation_id *operation,
                      uint64_t *ret_number)
{
    bool found = false;
    for (uint64_t number = link->bundle.first_out; number != link->bundle.next_out; number++) {
        const struct verbs_out *out = muster_verbs_out(link, number);
        if (!out->copied && is_of(out, operation) &&
            !muster_bundle_is_acknowledged(&link->bundle, number)) {
            *ret_number = number;
            if (muster_bundle_carrier(&link->bundle, number) != MUSTER_BUNDLE_NO_PATH) {
                return true;
            }
            found = true;
        }
    }
    return found;
}

/* The peer needs the number, and the credit of the matching, to go on. */
static void make_empty(struct verbs_out *out)
{
    struct muster_frame frame;
    struct muster_frame nothing = {.kind = MUSTER_FRAME_CREDIT};
    if (muster_frame_decode_unchecked(out->frame.header, &frame) == MUSTER_OK) {
        nothing.credit = frame.credit;
    }
    muster_frame_encode_unchecked(&nothing, out->frame.header);
    out->frame.size = 0;
    out->copied = true;
}

/* It has failed, or does not end its sends: they are to go again. The leader closes it later. */
static void give_up_reading(struct verbs_path *path)
{
    bool whole = muster_verbs_pair_drain(path, "it does not end sends that were withdrawn");
    muster_verbs_pair_destroy(path);
    path->spoilt = !muster_verbs_abandon_sends(path) || !whole || path->spoilt;
}

void muster_verbs_withdraw_sends(struct verbs_link *link,
                                 const struct muster_operation_id *operation)
{
    int64_t deadline_ns = muster_clock_after_ms(WITHDRAW_MS);
    uint64_t read = 0;
    while (find_read(link, operation, &read)) {
        bool late = muster_clock_ns() > deadline_ns;
        uint32_t place = muster_bundle_carrier(&link->bundle, read);
        struct verbs_path *path = place != MUSTER_BUNDLE_NO_PATH ? link->paths[place] : NULL;
        if (path != NULL && (late || path->failure[0] != '\0')) {
            give_up_reading(path);
        } else if (late || muster_verbs_count_serving(link) == 0) {
            break;
        }
        muster_verbs_take(link->verbs);
        (void)muster_verbs_retransmit(link);
        (void)sched_yield();
    }
    for (uint64_t number = link->bundle.first_out; number != link->bundle.next_out; number++) {
        struct verbs_out *out = muster_verbs_out(link, number);
        if (is_of(out, operation)) {
            if (!out->copied && !muster_bundle_is_acknowledged(&link->bundle, number)) {
                muster_verbs_release(out);
                make_empty(out);
            }
            out->frame.transfer = NULL;
        }
    }
    muster_link_mark(link->link);
}
