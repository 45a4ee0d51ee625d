/*
 * Between the matching and transports that handle frames as wholes: those that number them, or that
 * find header and payload in memory. (A single TCP connection reads payloads straight to where they
 * belong, and uses only the end of this.)
 *
 * An arriving frame: muster_whole_frame_consume(), then its bytes are free, then
 * muster_whole_frame_complete(). Both call the users' functions, so a transport gives back the room
 * of a frame between the two: what a user posts in answer already carries the credit.
 *
 * Threads: the fabric's lock; functions that pass data to consume functions release it meanwhile.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_WHOLE_FRAMES_H
#define MUSTER_WORKER_FABRIC_WIRE_WHOLE_FRAMES_H

#include "worker/fabric/wire/match.h"

/* Going out: the first control frame that is queued. Its data is borrowed until the next one is
 * queued. False: there is none. */
bool muster_whole_frame_next_control(struct muster_match *match,
                                     struct muster_outgoing *ret_outgoing);

/* Moves the payload to where it belongs. Releases the lock while it is consumed. MUSTER_INVALID:
 * the peer violates the protocol. */
MUSTER_CHECKED muster_status muster_whole_frame_consume(struct muster_match *match,
                                                        struct muster_arrival *arrival,
                                                        const struct muster_frame *frame,
                                                        const unsigned char *payload);

/* All of the payload is where it belongs. A GOODBYE ends the link. Afterwards the link may be
 * closed for another reason, too. MUSTER_INVALID: the peer violates the protocol. */
MUSTER_CHECKED muster_status muster_whole_frame_complete(struct muster_match *match,
                                                         struct muster_arrival *arrival);

/* Ends the link of a peer that violates the protocol; muster_last_error() is the reason. */
void muster_whole_frame_reject(struct muster_link *link, bool goodbye_queued);

#endif
