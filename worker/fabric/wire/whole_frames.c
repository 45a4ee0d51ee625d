/* Passes whole frames between the matching and the transports. */
#include "worker/fabric/wire/whole_frames.h"

#include <stdio.h>
#include <string.h>

bool muster_whole_frame_next_control(struct muster_match *match,
                                     struct muster_outgoing *ret_outgoing)
{
    struct muster_frame_queue *control = &match->control;
    if (control->start == control->end) {
        return false;
    }
    unsigned char *bytes = control->bytes + control->start;
    *ret_outgoing = (struct muster_outgoing){.data = bytes + MUSTER_FRAME_SIZE,
                                             .size = muster_frame_length(bytes)};
    memcpy(ret_outgoing->header, bytes, MUSTER_FRAME_SIZE);
    control->start += MUSTER_FRAME_SIZE + ret_outgoing->size;
    return true;
}

muster_status muster_whole_frame_consume(struct muster_match *match, struct muster_arrival *arrival,
                                         const struct muster_frame *frame,
                                         const unsigned char *payload)
{
    TRY(muster_match_header(match, frame, arrival));
    muster_arrival_consume(match, arrival, payload, frame->length);
    return MUSTER_OK;
}

/* First delivers stored messages whose receives have been posted since. */
static void complete_goodbye(struct muster_match *match, unsigned char *piece)
{
    struct muster_link *link = match->link;
    const void *end = link->end;
    uint64_t opened = link->opened;
    if (muster_match_progress(match, piece) && link->end == end && link->opened == opened &&
        link->state == MUSTER_LINK_OPEN) {
        muster_link_fail(link, MUSTER_LINK_PEER_LEFT, NULL);
    }
}

muster_status muster_whole_frame_complete(struct muster_match *match,
                                          struct muster_arrival *arrival)
{
    if (arrival->frame.kind == MUSTER_FRAME_GOODBYE) {
        complete_goodbye(match, arrival->piece);
        return MUSTER_OK;
    }
    return muster_match_arrived(match, arrival);
}

void muster_whole_frame_reject(struct muster_link *link, bool goodbye_queued)
{
    char what[MUSTER_REASON_SIZE];
    (void)snprintf(what, sizeof what, "it violates the protocol: %.160s", muster_last_error());
    muster_link_fail(link, goodbye_queued ? MUSTER_LINK_PEER_LEFT : MUSTER_LINK_LOST, what);
}
