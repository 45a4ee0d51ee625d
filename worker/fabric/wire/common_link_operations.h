/*
 * The slots of struct muster_transport that are the same for all transports which carry frames and
 * whose links begin with a connection and a hello: TCP, shared memory, RDMA. The object of such a
 * transport begins with a struct muster_pending_connections, and its link->end with a struct
 * muster_dialler.
 *
 * Threads: the fabric's lock.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_COMMON_LINK_OPERATIONS_H
#define MUSTER_WORKER_FABRIC_WIRE_COMMON_LINK_OPERATIONS_H

#include "worker/fabric/wire/match.h"
#include "worker/fabric/wire/pending_connections.h"

/* Slots: link.h says what each does. */
void muster_common_link_stop(void *transport);
/* Does nothing: posts have marked their links. */
void muster_common_link_woken(void *transport);
void muster_common_link_refresh(void *transport);
void muster_common_link_begin_generation(void *transport);
int64_t muster_common_link_timers(void *transport, int64_t now_ns);
void muster_common_link_open(struct muster_link *link);
/* For transports that do not send within a post. */
void muster_common_link_post_send(struct muster_link *link, struct muster_transfer *transfer);
void muster_common_link_post_receive(struct muster_link *link, struct muster_transfer *transfer);
void muster_common_link_abort(struct muster_link *link, const struct muster_operation_id *operation,
                              const char *reason);
void muster_common_link_send_signature(struct muster_link *link,
                                       const struct muster_operation_id *operation);
void muster_common_link_announce(struct muster_link *link,
                                 const struct muster_operation_id *operation);
bool muster_common_link_refuse(struct muster_link *link, const struct muster_message_key *key,
                               const char *reason);
bool muster_common_link_has_arrived(const struct muster_link *link,
                                    const struct muster_message_key *key);

/* The slots that all these transports fill with the functions here. */
#define MUSTER_COMMON_LINK_OPERATIONS                                                       \
    .woken = muster_common_link_woken, .refresh = muster_common_link_refresh,               \
    .open = muster_common_link_open, .post_receive = muster_common_link_post_receive,       \
    .abort = muster_common_link_abort, .send_signature = muster_common_link_send_signature, \
    .announce = muster_common_link_announce, .refuse = muster_common_link_refuse,           \
    .has_arrived = muster_common_link_has_arrived

/* The last part of the slot close: frees the link's end. */
void muster_common_link_destroy(struct muster_link *link, struct muster_transfer_list *ret_sends);

#endif
