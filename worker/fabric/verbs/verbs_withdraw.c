/* Withdraws operations whose memory a device may be reading. */
#include "worker/base/clock.h"
#include "worker/fabric/verbs/verbs_parts.h"

#include <sched.h>

enum { WITHDRAW_MS = 500 }; /* longer than the device takes to retransmit a packet */

static bool belongs_to(const struct muster_verbs_out_frame *out,
                       const struct muster_operation_id *operation)
{
    return out->frame.transfer != NULL &&
           muster_operation_has(operation, &out->frame.transfer->key);
}

/* Finds a frame of the operation that a device may be reading, or else one that waits to be
 * retransmitted: the peer cannot deliver later frames without it. */
static bool find_being_read(struct muster_verbs_link *end,
                            const struct muster_operation_id *operation, uint64_t *ret_number)
{
    bool found = false;
    for (uint64_t number = end->bundle.first_out; number != end->bundle.next_out; number++) {
        const struct muster_verbs_out_frame *out = muster_verbs_out(end, number);
        if (!out->copied && belongs_to(out, operation) &&
            !muster_bundle_is_acknowledged(&end->bundle, number)) {
            *ret_number = number;
            if (muster_bundle_carrier(&end->bundle, number) != MUSTER_BUNDLE_NO_PATH) {
                return true;
            }
            found = true;
        }
    }
    return found;
}

/* Turns the frame into an empty one: the peer needs its number, and the credit in its header. */
static void make_empty(struct muster_verbs_out_frame *out)
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

/* The path has failed, or does not complete its sends: its frames wait for another path. The leader
 * closes the path later. */
static void abandon_path(struct muster_verbs_path *path)
{
    bool whole = muster_verbs_drain(path, "it does not end sends that were withdrawn");
    muster_verbs_pair_destroy(path);
    path->unrecoverable = !muster_verbs_abandon_sends(path) || !whole || path->unrecoverable;
}

/* First waits until no device reads the operation's memory: its sends complete; or their path fails
 * or is abandoned, and another path retransmits its frames. Then makes empty frames of those that
 * are left. */
void muster_verbs_withdraw_sends(struct muster_verbs_link *end,
                                 const struct muster_operation_id *operation)
{
    int64_t deadline_ns = muster_clock_after_ms(WITHDRAW_MS);
    uint64_t read = 0;
    while (find_being_read(end, operation, &read)) {
        bool late = muster_clock_ns() > deadline_ns;
        uint32_t place = muster_bundle_carrier(&end->bundle, read);
        struct muster_verbs_path *path = place != MUSTER_BUNDLE_NO_PATH ? end->paths[place] : NULL;
        if (path != NULL && (late || path->failure[0] != '\0')) {
            abandon_path(path);
        } else if (late || muster_verbs_count_usable(end) == 0) {
            break;
        }
        muster_verbs_handle_all(end->verbs);
        (void)muster_verbs_retransmit(end);
        (void)sched_yield();
    }
    for (uint64_t number = end->bundle.first_out; number != end->bundle.next_out; number++) {
        struct muster_verbs_out_frame *out = muster_verbs_out(end, number);
        if (belongs_to(out, operation)) {
            if (!out->copied && !muster_bundle_is_acknowledged(&end->bundle, number)) {
                muster_verbs_release_registrations(out);
                make_empty(out);
            }
            out->frame.transfer = NULL;
        }
    }
    muster_link_mark(end->link);
}
