/*
 * Asks members of which only the rank is known to dial this one, without the service: the request
 * goes from member to member, each time to the last one before its destination whom that member
 * knows. Members know those at distance 2^k, so it arrives after log2 P hops at most. It carries
 * this member's addresses; its answer is the link that the destination opens.
 *
 * A member passes requests on while any of its threads is in a call. A request may get lost: who
 * sends it sends it again while the member is still sought.
 *
 *   at      bytes
 *   0       4      rank of the destination
 *   4       4      rank of who asks
 *   8       4      hops so far
 *   12      4      addresses
 *   16      37     its member id
 *   53      64     the name of its host
 *   117     ...    the addresses, each with its terminator
 *
 * May use: fabric.h, the topology, base.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_DIAL_REQUESTS_H
#define MUSTER_WORKER_COMMUNICATOR_DIAL_REQUESTS_H

#include "worker/communicator/communicator.h"

/* Encoding and decoding; pure. */
struct muster_dial_request {
    uint32_t to, from, hops;
    struct muster_peer peer; /* who asks */
};
enum {
    MUSTER_DIAL_REQUEST_LEAST = 117,
    MUSTER_DIAL_REQUEST_MOST =
        MUSTER_DIAL_REQUEST_LEAST + MUSTER_ADDRESSES_MAX * MUSTER_ADDRESS_SIZE
};
/* Returns the number of bytes. */
size_t muster_dial_request_encode(const struct muster_dial_request *request,
                                  unsigned char ret_bytes[MUSTER_DIAL_REQUEST_MOST]);
/* size: of the job. MUSTER_INVALID: the bytes are no request of such a job; the text says why. */
MUSTER_CHECKED muster_status muster_dial_request_decode(const unsigned char *bytes,
                                                        size_t size_bytes, uint32_t size,
                                                        struct muster_dial_request *ret_request);

/* Of a generation that the fabric has begun, with this topology, borrowed. */
MUSTER_CHECKED muster_status muster_dial_requests_create(
    struct muster_fabric *fabric, uint64_t generation, uint32_t rank,
    const struct muster_topology *topology, struct muster_dial_requests **ret_requests);
/* Accepts NULL. */
void muster_dial_requests_destroy(struct muster_dial_requests *requests);

/* Any thread. Does not block. */
void muster_dial_requests_send(struct muster_dial_requests *requests, const uint32_t *ranks,
                               uint32_t count);

#endif
