/* Point-to-point messages of the members of a group. */
#include "tests/support/messages.h"

enum { MESSAGE_TIMEOUT_MS = 30 * 1000 };

struct muster_message_call message_send_of(const int32_t *data, size_t count, uint32_t to,
                                           uint32_t tag)
{
    return (struct muster_message_call){.direction = MUSTER_SEND,
                                        .in = data,
                                        .count = count,
                                        .type = MUSTER_INT32,
                                        .peer = to,
                                        .tag = tag,
                                        .timeout_ms = MESSAGE_TIMEOUT_MS};
}

struct muster_message_call message_receive_of(int32_t *data, size_t count, uint32_t from,
                                              uint32_t tag, muster_message *ret_message)
{
    return (struct muster_message_call){.direction = MUSTER_RECEIVE,
                                        .out = data,
                                        .count = count,
                                        .type = MUSTER_INT32,
                                        .peer = from,
                                        .tag = tag,
                                        .timeout_ms = MESSAGE_TIMEOUT_MS,
                                        .ret_message = ret_message};
}

muster_status message_run(const struct group_member *member, const struct muster_message_call *what)
{
    uint32_t suspect = 0;
    return muster_context_message(member->contexts[MUSTER_GLOBAL], what, &suspect);
}

void message_ring(struct group_member *member, void *argument)
{
    int32_t out = (int32_t)member->rank;
    int32_t in = -1;
    muster_message message = {.count = 0};
    (void)argument;
    struct muster_message_call send =
        message_send_of(&out, 1, (member->rank + 1) % member->group->size, 9);
    struct muster_message_call receive =
        message_receive_of(&in, 1, MUSTER_ANY_SOURCE, MUSTER_ANY_TAG, &message);
    if (message_run(member, &send) != MUSTER_OK || message_run(member, &receive) != MUSTER_OK ||
        in != (int32_t)message.source ||
        message.source != (member->rank + member->group->size - 1) % member->group->size ||
        message.tag != 9 || message.count != 1) {
        group_fail(member, "%d of rank %u: %s", in, message.source, muster_last_error());
    }
}
