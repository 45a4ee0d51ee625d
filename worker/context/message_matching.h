/*
 * Matching of point-to-point messages: which receive gets which message. Pure, without a lock.
 *
 * The rules are MPI's. A message goes to the first receive that fits, in the order in which the
 * receives were posted; a receive gets the first message that fits, in the order in which the
 * messages arrived. Messages of one source count as arrived in the order in which they were sent,
 * which is that of their numbers, whatever the order in which they come in: one that comes too
 * early waits until those before it have come.
 *
 *   a message   comes in before earlier ones of its source     early
 *               comes in, or those before it have come         matched, if a receive fits;
 *                                                              else arrived
 *   a receive   is posted                                      matched, if a message has arrived
 *                                                              that fits; else waiting
 *
 * The lists link the caller's records, which must stay while they are in a list. A search takes
 * time in proportion to the length of its list.
 *
 * May use: base.
 */
#ifndef MUSTER_WORKER_CONTEXT_MESSAGE_MATCHING_H
#define MUSTER_WORKER_CONTEXT_MESSAGE_MATCHING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "worker/base/status.h"

/* A posted receive. */
struct muster_waiting_receive {
    uint32_t source; /* or MUSTER_ANY_SOURCE */
    uint32_t tag;    /* or MUSTER_ANY_TAG */
    TAILQ_ENTRY(muster_waiting_receive) order;
};

/* A message that has no receive yet. */
struct muster_arrived_message {
    uint32_t source, tag;
    uint64_t number; /* of its source's messages to this rank, from 0 */
    TAILQ_ENTRY(muster_arrived_message) order;
};

TAILQ_HEAD(muster_waiting_receives, muster_waiting_receive);
TAILQ_HEAD(muster_arrived_messages, muster_arrived_message);

struct muster_message_source {
    uint64_t next;                        /* number of the message that comes next in its order */
    struct muster_arrived_messages early; /* by number */
};

struct muster_message_matching {
    uint32_t size; /* sources */
    struct muster_message_source *sources;
    struct muster_waiting_receives waiting; /* in the order of their posts */
    struct muster_arrived_messages arrived; /* in the order of their arrivals */
};

/* A message and the receive that gets it; both are in no list any more. */
struct muster_message_match {
    struct muster_arrived_message *message;
    struct muster_waiting_receive *receive;
};

MUSTER_CHECKED muster_status muster_message_matching_init(struct muster_message_matching *matching,
                                                          uint32_t size);
/* The lists are the caller's to empty. */
void muster_message_matching_finish(struct muster_message_matching *matching);

/* Whether a message with this number has not come in before. */
bool muster_message_matching_is_new(const struct muster_message_matching *matching, uint32_t source,
                                    uint64_t number);

/* Adds a new message. It and messages that were early may have receives now: muster_message_deliver
 * must be called for its source until that returns false. */
void muster_message_matching_add(struct muster_message_matching *matching,
                                 struct muster_arrived_message *message);

/* Moves messages of a source on, in order, until one of them gets a receive. False: none did, and
 * nothing is left to move. */
bool muster_message_matching_deliver(struct muster_message_matching *matching, uint32_t source,
                                     struct muster_message_match *ret_match);

/* The next message of a source, without records: for a receive of this source and tag that is to
 * get it as soon as it comes in. */

/* Whether such a receive would get the next message of the source, if the tags fit: no message has
 * come in that it would get before, and no other receive waits. */
bool muster_message_matching_awaits_next(const struct muster_message_matching *matching,
                                         uint32_t source, uint32_t tag);
/* The receive has got that message. */
void muster_message_matching_pass_next(struct muster_message_matching *matching, uint32_t source);

/* Posts a receive. Returns its message, which is in no list any more; NULL: the receive waits. */
struct muster_arrived_message *
muster_message_matching_post(struct muster_message_matching *matching,
                             struct muster_waiting_receive *receive);

/* The message that such a receive would get, which stays where it is; NULL: none has arrived. */
struct muster_arrived_message *
muster_message_matching_find(const struct muster_message_matching *matching, uint32_t source,
                             uint32_t tag);

/* The same, taken out of its list. */
struct muster_arrived_message *
muster_message_matching_take(struct muster_message_matching *matching, uint32_t source,
                             uint32_t tag);

/* Removes a waiting receive. */
void muster_message_matching_withdraw(struct muster_message_matching *matching,
                                      struct muster_waiting_receive *receive);

/* Removes the first waiting receive that names this source, which may be MUSTER_ANY_SOURCE; NULL if
 * there is none. */
struct muster_waiting_receive *
muster_message_matching_take_waiting(struct muster_message_matching *matching, uint32_t source);

/* Removes any message, arrived or early; NULL if there is none. */
struct muster_arrived_message *
muster_message_matching_take_any(struct muster_message_matching *matching);

#endif
