/* Matching, for small messages without transfers: they are EAGER frames as any others, and count
 * for the eager window. */
#include "worker/fabric/wire/match_parts.h"

static uint64_t charge_of(const struct muster_direct_message *message)
{
    return message->size_bytes + MUSTER_EAGER_CHARGE_BYTES;
}

bool muster_match_can_send_direct(const struct muster_match *match,
                                  const struct muster_direct_message *message)
{
    return message->size_bytes <= MUSTER_EAGER_MAX &&
           match->eager_out_bytes + charge_of(message) <= MUSTER_EAGER_WINDOW_BYTES &&
           match->ready.first == NULL && match->control.start == match->control.end &&
           match->unexpected.count == 0 && !match->broken;
}

void muster_match_encode_direct(struct muster_match *match,
                                const struct muster_direct_message *message,
                                unsigned char ret_header[MUSTER_FRAME_SIZE])
{
    match->eager_out_bytes += charge_of(message);
    muster_frame_encode_eager_unchecked(&message->key, &message->call, message->size_bytes,
                                        (uint32_t)match->eager_owed_bytes, ret_header);
    match->eager_owed_bytes = 0;
}

bool muster_match_accept_direct(struct muster_match *match, struct muster_direct_message *message,
                                const unsigned char header[MUSTER_FRAME_SIZE])
{
    uint32_t credit = 0;
    if (!muster_frame_decode_eager_unchecked(header, &message->key, message->call.type,
                                             &message->call, &message->size_bytes, &credit) ||
        credit > match->eager_out_bytes || !message->accepts(message)) {
        return false;
    }
    match->eager_out_bytes -= credit;
    return true;
}

void muster_match_received_direct(struct muster_match *match,
                                  const struct muster_direct_message *message)
{
    muster_match_credit(match, charge_of(message));
}
