/* Receives frames: wire/bundle.h puts them in order, then their payload is reduced or copied
 * straight out of the slot or segment in which they have arrived. */
#include "worker/fabric/verbs/verbs_parts.h"
#include "worker/fabric/wire/whole_frames.h"

#include <stdlib.h>
#include <string.h>

enum { FRAMES_MAX = 16 }; /* delivered before other links have their turn */

/* Room --------------------------------------------------------------------------------------- */

/* The peer writes segments in turn, but they become free in another order after a failover. A
 * credit is owed for a segment when it and all before it are free. */
static void free_segment(struct muster_verbs_path *path, uint32_t segment)
{
    path->segments_free |= 1U << segment;
    while ((path->segments_free & 1U << path->segment_oldest) != 0) {
        path->segments_free &= ~(1U << path->segment_oldest);
        path->segment_oldest = (path->segment_oldest + 1) % VERBS_SEGMENTS;
        path->segment_credits_owed++;
    }
}

/* Returns the frame's slot or segment to the device. The device writes only into posted slots. */
static void free_room(const struct muster_verbs_in_frame *in)
{
    in->path->credits_owed++;
    if (in->segment) {
        free_segment(in->path, in->slot);
    } else {
        muster_verbs_post_receive(in->path, in->slot);
    }
}

/* Frees the slot or segment of the frame, or its copy. */
static void free_frame(struct muster_verbs_in_frame *in)
{
    if (in->copy != NULL) {
        free(in->copy);
    } else {
        free_room(in);
    }
    memset(in, 0, sizeof *in);
}

/* Moves the frame to memory of its own, so that it occupies nothing of its path. False: out of
 * memory. */
static bool copy_out(struct muster_verbs_in_frame *in)
{
    unsigned char *copy = malloc(in->size);
    if (copy == NULL) {
        return false;
    }
    memcpy(copy, in->bytes, in->size);
    in->copy = copy;
    in->bytes = copy;
    in->path = NULL;
    return true;
}

static void vacate(struct muster_verbs_in_frame *in)
{
    const struct muster_verbs_in_frame before = *in;
    if (in->bytes != NULL && in->copy == NULL && copy_out(in)) {
        free_room(&before);
    }
}

void muster_verbs_vacate(struct muster_verbs_link *end)
{
    end->vacate_until = end->bundle.next_in + MUSTER_BUNDLE_AHEAD_MAX;
    for (uint32_t i = 0; i < MUSTER_BUNDLE_AHEAD_MAX; i++) {
        vacate(&end->in[i]);
    }
}

static struct muster_verbs_in_frame *in_of(struct muster_verbs_link *end, uint64_t number)
{
    return &end->in[number % MUSTER_BUNDLE_AHEAD_MAX];
}

muster_status muster_verbs_arrived(struct muster_verbs_path *path, uint16_t lowest_bits,
                                   const struct muster_verbs_in_frame *in)
{
    struct muster_verbs_link *end = path->end;
    uint64_t number = muster_bundle_number_of(&end->bundle, lowest_bits);
    struct muster_verbs_in_frame duplicate = *in;
    switch (muster_bundle_arrive(&end->bundle, number)) {
    case MUSTER_BUNDLE_DUPLICATE:
        free_frame(
            &duplicate); /* the path that carried it first was lost before its acknowledgement */
        return MUSTER_OK;
    case MUSTER_BUNDLE_TOO_FAR:
        return muster_error_set(MUSTER_INVALID, "a frame too far ahead of the missing one");
    case MUSTER_BUNDLE_NEW:
        break;
    }
    *in_of(end, number) = *in;
    if (number > end->bundle.next_in && end->bundle.next_in < end->vacate_until) {
        vacate(in_of(end, number));
    }
    return MUSTER_OK;
}

bool muster_verbs_abandon_receives(struct muster_verbs_path *path)
{
    struct muster_verbs_link *end = path->end;
    for (uint32_t i = 0; i < MUSTER_BUNDLE_AHEAD_MAX; i++) {
        struct muster_verbs_in_frame *in = &end->in[i];
        if (in->path == path && !copy_out(in)) {
            return false;
        }
    }
    return true;
}

void muster_verbs_finish_receives(struct muster_verbs_link *end)
{
    for (uint32_t i = 0; i < MUSTER_BUNDLE_AHEAD_MAX; i++) {
        free(end->in[i].copy);
    }
}

/* Delivering --------------------------------------------------------------------------------- */

static enum muster_verbs_delivery reject_peer(struct muster_verbs_link *end)
{
    muster_whole_frame_reject(end->link, end->goodbye_queued);
    return VERBS_DELIVERED_LAST;
}

static bool is_same(const struct muster_verbs_link *end, const struct muster_link *link,
                    uint64_t opened)
{
    return link->end == end && link->opened == opened && link->state == MUSTER_LINK_OPEN;
}

static muster_status read_header(const struct muster_verbs_in_frame *in,
                                 struct muster_frame *ret_frame)
{
    if (in->size < MUSTER_FRAME_SIZE) {
        return muster_error_set(MUSTER_INVALID, "a frame is too short");
    }
    TRY(muster_frame_decode_unchecked(in->bytes, ret_frame));
    if (in->size != MUSTER_FRAME_SIZE + ret_frame->length) {
        return muster_error_set(MUSTER_INVALID, "a frame has another size than it says");
    }
    return MUSTER_OK;
}

static enum muster_verbs_delivery deliver_frame(struct muster_verbs_link *end)
{
    struct muster_link *link = end->link;
    uint64_t opened = link->opened;
    struct muster_verbs_in_frame *in = in_of(end, end->bundle.next_in);
    struct muster_frame frame = {0};
    if (!muster_bundle_has_next(&end->bundle)) {
        return VERBS_DELIVERED_NOTHING;
    }
    if (read_header(in, &frame) != MUSTER_OK) {
        return reject_peer(end);
    }
    muster_bundle_deliver(&end->bundle, frame.length);
    if (muster_whole_frame_consume(&end->match, &end->arrival, &frame,
                                   in->bytes + MUSTER_FRAME_SIZE) != MUSTER_OK) {
        return reject_peer(end);
    }
    free_frame(in);
    if (muster_whole_frame_complete(&end->match, &end->arrival) != MUSTER_OK) {
        return reject_peer(end);
    }
    return is_same(end, link, opened) ? VERBS_DELIVERED_FRAME : VERBS_DELIVERED_LAST;
}

enum muster_verbs_delivery muster_verbs_deliver_frames(struct muster_verbs_link *end)
{
    struct muster_link *link = end->link;
    uint64_t opened = link->opened;
    enum muster_verbs_delivery delivery = VERBS_DELIVERED_FRAME;
    for (int i = 0; i < FRAMES_MAX && delivery == VERBS_DELIVERED_FRAME; i++) {
        muster_fabric_yield(link->fabric);
        if (!is_same(end, link, opened)) {
            return VERBS_DELIVERED_LAST;
        }
        delivery = deliver_frame(end);
    }
    return delivery;
}
