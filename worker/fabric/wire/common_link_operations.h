/*
 * The slots of struct muster_transport that are alike for all transports which carry frames and
 * have half-open connections: TCP, shared memory, RDMA. Of such a transport the object begins with
 * a struct muster_pending_connections, and what link->end points to with a struct muster_dialler.
 *
 * Threads: the fabric's lock.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_COMMON_LINK_OPERATIONS_H
#define MUSTER_WORKER_FABRIC_WIRE_COMMON_LINK_OPERATIONS_H

#include "worker/fabric/wire/match.h"
#include "worker/fabric/wire/pending_connections.h"

/* Slots: link.h says what each does. */
void muster_common_link_stop(void *transport);
/* Nothing: posts have marked their links. */
void muster_common_link_woken(void *transport);
void muster_common_link_refresh(void *transport);
void muster_common_link_begin_generation(void *transport);
int64_t muster_common_link_timers(void *transport, int64_t now_ns);
void muster_common_link_open(struct muster_link *link);
/* For those that do not try to send at once. */
void muster_common_link_post_send(struct muster_link *link, struct muster_transfer *transfer);
void muster_common_link_post_receive(struct muster_link *link, struct muster_transfer *transfer);
void muster_common_link_abort(struct muster_link *link, const struct muster_operation_id *operation,
                              const char *reason);
void muster_common_link_send_signature(struct muster_link *link,
                                       const struct muster_operation_id *operation);
bool muster_common_link_has_arrived(const struct muster_link *link,
                                    const struct muster_message_key *key);

/* Those that no such transport does otherwise: part of its row. */
#define MUSTER_COMMON_LINK_OPERATIONS                                                       \
    .woken = muster_common_link_woken, .refresh = muster_common_link_refresh,               \
    .open = muster_common_link_open, .post_receive = muster_common_link_post_receive,       \
    .abort = muster_common_link_abort, .send_signature = muster_common_link_send_signature, \
    .has_arrived = muster_common_link_has_arrived

/* The last part of the slot close, when the transport has let go of all else. */
void muster_common_link_destroy(struct muster_link *link, struct muster_transfer_list *ret_sends);

#endif
