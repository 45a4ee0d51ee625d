/* What message_requests.c, where sends and receives end, message_arrivals.c, where messages come
 * in, and point_to_point.c, where they are posted, have in common. Each uses those named before it.
 */
#ifndef MUSTER_WORKER_CONTEXT_POINT_TO_POINT_PARTS_H
#define MUSTER_WORKER_CONTEXT_POINT_TO_POINT_PARTS_H

#include "worker/context/context_parts.h"
#include "worker/context/point_to_point.h"

/* The global rank of a rank as the callers number them. */
static inline uint32_t muster_context_global_rank(const struct muster_context *context,
                                                  uint32_t rank)
{
    return context->order.peers != NULL ? context->order.peers[rank] : context->ranks[rank];
}

/* The call of a message, as its frames carry it. */
static inline struct muster_call muster_message_wire_call(const struct muster_message_call *what)
{
    return (struct muster_call){
        .type = (uint8_t)what->type, .root = what->tag, .count = what->count};
}

static inline struct muster_message_key muster_message_key_of(const struct muster_context *context,
                                                              uint64_t number)
{
    return (struct muster_message_key){.generation = context->generation,
                                       .sequence = MUSTER_ANNOUNCED_SEQUENCE,
                                       .context = context->number | MUSTER_ANNOUNCED_CONTEXT,
                                       .ordinal = (uint32_t)number,
                                       .lane = (uint16_t)(number >> 32)};
}

/* A message that has no receive yet. */
struct stored_message {
    struct muster_arrived_message arrived; /* its first member */
    uint64_t taken;                        /* its number among those taken; 0: not taken */
    struct muster_announcement announced;
    /* Of a message to oneself: its send, which waits; or NULL, and this is a copy of the data. */
    struct muster_message_request *own_send;
    void *own_copy;
};

/* A thread that waits for a message without receiving it. */
struct message_observer {
    bool awake; /* it is to look again */
    TAILQ_ENTRY(message_observer) order;
};

/* What is known of a rank of the context. */
struct message_peer {
    uint64_t sent;  /* number of the next message to it */
    bool has_ended; /* its link */
    char *reason;   /* owned: why; or NULL */
};

struct muster_point_to_point {
    struct muster_announcement_listener listener; /* its first member */
    struct muster_context *context;
    struct muster_message_matching matching;
    struct message_peer *peers; /* [size] by rank of the context */
    uint32_t *ranks_by_global;  /* [global_count] UINT32_MAX: not in the context */
    uint32_t global_count;
    uint32_t ended_count;          /* peers that have ended */
    uint32_t lost_rank;            /* the first one that has not said goodbye; UINT32_MAX: none */
    uint64_t own_bytes;            /* of copies */
    _Atomic uint64_t direct_count; /* sends and receives that were done at once */
    TAILQ_HEAD(muster_pending_messages, muster_message_request) pending;
    TAILQ_HEAD(muster_message_observers, message_observer) observers;
    struct muster_arrived_messages taken; /* out of the matching, and not received */
    uint64_t last_taken;                  /* number */
    muster_status broken; /* why nothing can be sent or received any more; MUSTER_OK: it can */
    char broken_text[MUSTER_ERROR_MAX];
};

/* Of message_requests.c; with the fabric's lock, like all that follows. The first one has a text
 * for a status that is not MUSTER_OK, the second one takes muster_last_error(). */
void muster_message_request_finish_with(struct muster_message_request *request,
                                        muster_status status, const char *text);
void muster_message_request_finish(struct muster_message_request *request, muster_status status);
/* The done function of all transfers. */
void muster_message_transfer_done(struct muster_transfer *transfer);
void muster_stored_message_free(struct muster_point_to_point *messages,
                                struct stored_message *stored);

/* Of message_arrivals.c. */

/* The receive gets the message, which is freed. */
void muster_message_receive(struct muster_message_request *request, struct stored_message *stored);
/* Messages of this source have been added to the matching. */
void muster_messages_deliver(struct muster_point_to_point *messages, uint32_t source);
/* Why a receive from this source, which finds no message, need not wait; NULL: it waits. */
const char *muster_messages_find_end(const struct muster_point_to_point *messages, uint32_t source);
muster_message muster_stored_message_describe(const struct stored_message *stored);
/* A message has arrived, a link has ended, or the messages are broken. */
static inline void muster_messages_wake_observers(struct muster_point_to_point *messages)
{
    struct message_observer *each = NULL;
    TAILQ_FOREACH(each, &messages->observers, order)
    {
        __atomic_store_n(&each->awake, true, __ATOMIC_SEQ_CST);
    }
}

/* The functions of the listener. */
void muster_messages_announced(struct muster_announcement_listener *listener,
                               const struct muster_announcement *announced);
void muster_messages_link_ended(struct muster_announcement_listener *listener, uint32_t peer,
                                bool left, const char *reason);

#endif
