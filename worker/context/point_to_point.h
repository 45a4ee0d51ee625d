/*
 * Point to point: the messages of a context, between its matching and the fabric.
 *
 * A message is one transfer of the fabric. Its key has the context's number with
 * MUSTER_ANNOUNCED_CONTEXT and the message's number among those of its sender to its receiver; its
 * call has the tag (root), the type and the count. A small one arrives with its data, a long one is
 * offered by its sender; either way the fabric announces it, the matching finds its receive, and
 * that is posted with the message's key. So data go straight into the buffer of a receive that is
 * posted in time. What waits for a receive is bounded by the fabric: 1 MiB of data and 16,384
 * offers for each sender.
 *
 *   a send       posted                          its transfer is posted: done, REJOIN, or refused
 *   a receive    no message fits yet             waits in the matching
 *                a message fits                  its transfer is posted
 *                it fits, but type or size not   the message is refused, or if its data are under
 *                                                way, received and dropped; then INVALID
 *                a link ends, or all links have  REJOIN, if the receive waits for them
 *   a message    is taken (a matched probe)      out of the matching: only the receive that names
 *                                                its number gets it
 *   all          a deadline passes, or the       broken: all end with REJOIN, and so do later ones
 *                generation is over
 *
 * A message to oneself is copied, under the fabric's lock; up to 16 KiB, and 1 MiB in all, it is
 * stored, so that its send is done before there is a receive.
 *
 * Threads: the fabric's lock guards everything here.
 *
 * Private to the context. May use: fabric, collectives/call, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_POINT_TO_POINT_H
#define MUSTER_WORKER_CONTEXT_POINT_TO_POINT_H

#include "worker/context/context.h"
#include "worker/context/message_matching.h"

struct muster_point_to_point;

/* A send or a receive under way. It stays where it is until it is finished. */
struct muster_message_request {
    struct muster_waiting_receive waiting; /* of a receive; its first member */
    struct muster_message_call what;
    struct muster_context *context;
    struct muster_point_to_point *owner;
    struct muster_transfer transfer;
    struct muster_call call;
    bool waits;   /* in the matching */
    bool dropped; /* the message is received only to drop it; `text` says why */
    bool *awake;  /* is set when it is finished; or NULL */
    TAILQ_ENTRY(muster_message_request) order; /* in the list of those that are not finished */

    /* Valid when it is finished. */
    bool finished;
    muster_status status;
    uint32_t suspect; /* global rank that was waited for until the deadline; UINT32_MAX: none */
    muster_message message; /* of a receive */
    char text[MUSTER_ERROR_MAX];
};

/* The context is borrowed, and complete. */
MUSTER_CHECKED muster_status muster_point_to_point_create(
    struct muster_context *context, struct muster_point_to_point **ret_messages);
/* Ends what is under way, which nobody may wait for any more. Accepts NULL. */
void muster_point_to_point_destroy(struct muster_point_to_point *messages);

/* The context's, which are created by the first call. */
MUSTER_CHECKED muster_status muster_context_messages(struct muster_context *context,
                                                     struct muster_point_to_point **ret_messages);

/* MUSTER_INVALID: a bad argument. */
MUSTER_CHECKED muster_status muster_message_call_check(const struct muster_context *context,
                                                       const struct muster_message_call *what);

/* Sends or receives a small message at once, without a request, where that is possible. False:
 * nothing has happened. May poll for some microseconds. */
bool muster_message_send_or_receive_now(struct muster_point_to_point *messages,
                                        const struct muster_message_call *what);

/* Begins a send or a receive. True: it is finished already, with any status. */
bool muster_message_request_start(struct muster_point_to_point *messages,
                                  const struct muster_message_call *what, bool *awake,
                                  struct muster_message_request *request);

/* The wait for the request has ended with this status, which is not MUSTER_OK, and its text: breaks
 * the messages of the context, unless the request is finished. It is finished afterwards. */
void muster_message_request_give_up(struct muster_message_request *request, muster_status status);

/* As muster_context_probe() does. */
MUSTER_CHECKED muster_status muster_point_to_point_probe(struct muster_point_to_point *messages,
                                                         const struct muster_message_probe *what,
                                                         bool *ret_found,
                                                         muster_message *ret_message);

/* The status of a finished request, with a text that names the call. */
MUSTER_CHECKED muster_status muster_message_request_end(struct muster_message_request *request,
                                                        uint32_t *ret_suspect);

#endif
