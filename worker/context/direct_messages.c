/* Point to point: blocking sends and receives of small messages that need no request, since they
 * are done at once. */
#include "worker/context/point_to_point_parts.h"

struct direct_receive {
    const struct muster_point_to_point *messages;
    const struct muster_message_call *what;
};

/* Others are left to the receives that say what is wrong with them. */
static bool accepts(const struct muster_direct_message *message)
{
    const struct direct_receive *receive = message->owner;
    const struct muster_message_call *what = receive->what;
    const struct muster_call *call = &message->call;
    return receive->messages->broken == MUSTER_OK && call->count <= what->count &&
           (what->tag == MUSTER_ANY_TAG || what->tag == call->root) &&
           message->size_bytes == call->count * muster_type_size_bytes(what->type);
}

static bool send_now(struct muster_point_to_point *messages, const struct muster_message_call *what)
{
    struct message_peer *peer = &messages->peers[what->peer];
    if (what->count > MUSTER_DIRECT_BYTES_MAX) {
        return false;
    }
    const struct muster_direct_message message = {
        .key = muster_message_key_of(messages->context, peer->sent),
        .peer = muster_context_global_rank(messages->context, what->peer),
        .data = (void *)what->in, /* only read */
        .call = muster_message_wire_call(what),
        .size_bytes = (uint32_t)(what->count * muster_type_size_bytes(what->type)),
    };
    if (!muster_fabric_send_direct_locked(messages->context->fabric, &message)) {
        return false;
    }
    peer->sent++;
    return true;
}

static bool receive_now(struct muster_point_to_point *messages,
                        const struct muster_message_call *what)
{
    const struct direct_receive receive = {.messages = messages, .what = what};
    if (!muster_message_matching_awaits_next(&messages->matching, what->peer, what->tag)) {
        return false;
    }
    struct muster_direct_message message = {
        .key =
            muster_message_key_of(messages->context, messages->matching.sources[what->peer].next),
        .peer = muster_context_global_rank(messages->context, what->peer),
        .data = what->out,
        .call = {.type = (uint8_t)what->type},
        .accepts = accepts,
        .owner = (void *)&receive, /* only read */
    };
    if (!muster_fabric_receive_direct_locked(messages->context->fabric, &message)) {
        return false;
    }
    muster_message_matching_pass_next(&messages->matching, what->peer);
    if (what->ret_message != NULL) {
        *what->ret_message = (muster_message){.source = what->peer,
                                              .tag = message.call.root,
                                              .count = (size_t)message.call.count,
                                              .type = what->type};
    }
    return true;
}

bool muster_message_send_or_receive_now(struct muster_point_to_point *messages,
                                        const struct muster_message_call *what)
{
    struct muster_fabric *fabric = messages->context->fabric;
    bool done = false;
    if (what->peer == MUSTER_ANY_SOURCE || what->peer == messages->context->rank ||
        what->taken != 0) {
        return false;
    }
    muster_fabric_begin_posting(fabric);
    if (messages->broken == MUSTER_OK) {
        done =
            what->direction == MUSTER_SEND ? send_now(messages, what) : receive_now(messages, what);
    }
    if (done) { /* counted under the lock, which is cheaper than another atomic addition */
        uint64_t count = atomic_load_explicit(&messages->direct_count, memory_order_relaxed);
        atomic_store_explicit(&messages->direct_count, count + 1, memory_order_relaxed);
    }
    muster_fabric_end_posting(fabric);
    return done;
}
