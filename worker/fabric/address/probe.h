/*
 * The probe: finds out whether the process of a member is there, by a TCP dial of the port at which
 * it listens anyway. The kernel of its host answers, so it costs the member nothing, and it works
 * while the member computes, or is stopped. probe_verdict.h says what the answers mean.
 *
 * Nothing is sent. When the member runs again it finds a connection that was closed before its
 * hello, which it logs at level info, at most once a minute.
 *
 * Limits. Another process that has got the port of a dead member looks like the member. A process
 * that accepts nothing (stopped, or in no call of the library) has room for as many dials as
 * net.core.somaxconn says, usually 4096: then it looks cut off. So who probes regularly, with many
 * members that all do, waits longer the more often the answer was "there".
 */
#ifndef MUSTER_WORKER_FABRIC_ADDRESS_PROBE_H
#define MUSTER_WORKER_FABRIC_ADDRESS_PROBE_H

#include "worker/fabric/address/probe_verdict.h"

#include <poll.h>

/* The dials of one probe: entry i of each array belongs to address i of the peer. */
struct muster_probe {
    uint32_t count;
    enum muster_probe_dial dials[MUSTER_ADDRESSES_MAX];
    struct pollfd polled[MUSTER_ADDRESSES_MAX]; /* fd -1: not pending */
};

struct muster_probe_report {
    enum muster_probe_verdict verdict;
    uint32_t index; /* into peer->addresses: the one that decided (THERE and GONE); else
                       peer->address_count */
};

/* Dials all TCP addresses of the peer at once, and returns when the verdict is certain, or after
 * bound_ms. same_host: the peer says that it is on this host. If it does not, addresses that this
 * host has itself, even by an interface that is down, are not dialled, because they lead here;
 * unless the peer has no others, since then it is here. Any thread. */
struct muster_probe_report muster_peer_probe(const struct muster_peer *peer, bool same_host,
                                             uint32_t bound_ms);

/* The same in parts, for a thread that has other work: begin dials, and does not block; poll waits
 * for an answer, at most wait_ms, and says MUSTER_PROBE_PENDING as long as the verdict is not
 * certain, unless the time is over; end closes what is still open. */
void muster_probe_begin(struct muster_probe *probe, const struct muster_peer *peer, bool same_host);
enum muster_probe_verdict muster_probe_poll(struct muster_probe *probe, int wait_ms, bool over);
void muster_probe_end(struct muster_probe *probe);

#endif
