/* Point-to-point messages of the members of a group: 32-bit integers in the global context. */
#ifndef MUSTER_TESTS_SUPPORT_MESSAGES_H
#define MUSTER_TESTS_SUPPORT_MESSAGES_H

#include "tests/support/group.h"

/* Calls with a deadline that only a hanging test reaches. */
struct muster_message_call message_send_of(const int32_t *data, size_t count, uint32_t to,
                                           uint32_t tag);
struct muster_message_call message_receive_of(int32_t *data, size_t count, uint32_t from,
                                              uint32_t tag, muster_message *ret_message);

muster_status message_run(const struct group_member *member,
                          const struct muster_message_call *what);

/* For group_each(): each member sends its rank to the next one, and then receives. Over links that
 * send small messages without a receive. */
void message_ring(struct group_member *member, void *argument);

#endif
