/*
 * Muster: point to point. muster.h includes this header; programs include muster.h.
 *
 * What muster.h says of errors, threads and blocking holds here, too.
 */
#ifndef MUSTER_MESSAGES_H
#define MUSTER_MESSAGES_H

#ifndef MUSTER_H
#error "include muster.h, which includes this header"
#endif

#include "muster_operations.h" /* IWYU pragma: export */

#ifdef __cplusplus
extern "C" {
#endif

/* For the source and the tag of a receive: messages of every rank of the scope, the caller's own
 * included; messages with every tag. */
#define MUSTER_ANY_SOURCE UINT32_MAX
#define MUSTER_ANY_TAG UINT32_MAX

/* A message, as its receiver sees it. */
typedef struct muster_message {
    uint32_t source; /* the sender's rank in the scope */
    uint32_t tag;
    size_t count; /* elements */
    muster_type type;
    uint64_t taken; /* its number, if muster_take() has taken it; otherwise 0 */
} muster_message;

/* A message has a tag, 0 to UINT32_MAX - 1, and goes from one rank of a scope to another one, or to
 * itself. The rules are MPI's: a receive gets the first message that fits, and a message goes to
 * the first receive that fits; a message never overtakes an earlier one with the same tag between
 * the same two ranks. Messages and collectives of a scope are no match for each other. Several
 * threads may send and receive at the same time.
 *
 * A send of up to 16 KiB returns when the data have been copied or sent, as long as fewer than
 * about 1 MiB of such messages wait at the receiver; other sends return when the message has been
 * received. So two ranks that send each other long messages before they receive wait for each
 * other, until the deadline.
 *
 * The types of send and receive must be the same, and the message must not be longer than the
 * receive's capacity: otherwise the message is dropped, and the receive is MUSTER_INVALID, whose
 * error names both; so is the send, unless it has returned. Later messages are not affected.
 *
 * Buffers of the blocking forms may be memory of a device: such messages are copied through memory
 * of the host. Those of operations are memory of the host. Of the options only timeout_ms and
 * priority count. A call that takes longer, for example because the other rank has no such call, is
 * MUSTER_REJOIN, as collectives are: it ends all messages of the scope in this generation.
 *
 * Errors: MUSTER_INVALID (a bad argument, or as above), MUSTER_REJOIN (the other rank, or any rank
 * for MUSTER_ANY_SOURCE, has died; the other rank, or all ranks, have left; the membership has
 * changed; the deadline has passed), MUSTER_ENDED, MUSTER_FATAL. */

/* Sends a message to a rank of the scope. Blocks. */
MUSTER_STATUS muster_send(muster_session *session, muster_scope scope, const void *data,
                          size_t count, muster_type type, uint32_t to, uint32_t tag,
                          const muster_call_options *options);

/* Receives a message of at most capacity_count elements. *ret_message says which one it was, and
 * may be NULL. Blocks. */
MUSTER_STATUS muster_receive(muster_session *session, muster_scope scope, void *data,
                             size_t capacity_count, muster_type type, uint32_t from, uint32_t tag,
                             const muster_call_options *options, muster_message *ret_message);

/* The same as operations in flight (see there). The order of the starts is that of the messages and
 * of the receives. ret_message, too, is the operation's until it is done. */
MUSTER_STATUS muster_send_start(muster_session *session, muster_scope scope, const void *data,
                                size_t count, muster_type type, uint32_t to, uint32_t tag,
                                const muster_call_options *options,
                                muster_operation *ret_operation);
MUSTER_STATUS muster_receive_start(muster_session *session, muster_scope scope, void *data,
                                   size_t capacity_count, muster_type type, uint32_t from,
                                   uint32_t tag, const muster_call_options *options,
                                   muster_message *ret_message, muster_operation *ret_operation);

/* The same as persistent operations (see there): muster_start() starts them again and again, and
 * muster_detach() frees them. */
MUSTER_STATUS muster_send_init(muster_session *session, muster_scope scope, const void *data,
                               size_t count, muster_type type, uint32_t to, uint32_t tag,
                               const muster_call_options *options, muster_operation *ret_operation);
MUSTER_STATUS muster_receive_init(muster_session *session, muster_scope scope, void *data,
                                  size_t capacity_count, muster_type type, uint32_t from,
                                  uint32_t tag, const muster_call_options *options,
                                  muster_message *ret_message, muster_operation *ret_operation);

/* Waits until such a message has arrived and waits for a receive, at most timeout_ms; 0: does not
 * block. *ret_found is 1 or 0, and *ret_message says which one it is. The message stays where it
 * is: another thread may receive it first. */
MUSTER_STATUS muster_probe(muster_session *session, muster_scope scope, uint32_t from, uint32_t tag,
                           uint32_t timeout_ms, int *ret_found, muster_message *ret_message);

/* The same, and takes the message, as MPI's matched probe does: no other receive and no probe sees
 * it any more. It is to be received by muster_receive_taken(), in the same scope; until then it
 * counts as one that waits at the receiver. */
MUSTER_STATUS muster_take(muster_session *session, muster_scope scope, uint32_t from, uint32_t tag,
                          uint32_t timeout_ms, int *ret_found, muster_message *ret_message);

/* Receives the message that was taken. Blocks, if it is a long one. */
MUSTER_STATUS muster_receive_taken(muster_session *session, muster_scope scope, void *data,
                                   size_t capacity_count, muster_type type,
                                   const muster_message *taken, const muster_call_options *options);

#ifdef __cplusplus
}
#endif

#endif
