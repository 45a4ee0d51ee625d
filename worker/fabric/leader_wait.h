/*
 * The leader's wait for events of descriptors, or for work in memory that is polled.
 *
 * Private to the fabric. Threads: the leader's, with the fabric's lock, which is released
 * meanwhile.
 */
#ifndef MUSTER_WORKER_FABRIC_LEADER_WAIT_H
#define MUSTER_WORKER_FABRIC_LEADER_WAIT_H

#include <stdbool.h>
#include <stdint.h>

struct epoll_event;
struct muster_fabric;

enum { MUSTER_EVENTS_MAX = 64 }; /* taken from epoll at a time */

/* now_ns: the present time. Returns when there is work for a link, an event or a wake, or at
 * until_ns; 0: does not wait. Fills events[MUSTER_EVENTS_MAX] and returns their number; under 0:
 * none. */
int muster_leader_wait(struct muster_fabric *fabric, int64_t now_ns, int64_t until_ns,
                       struct epoll_event *events);

/* Reads from the link of the last posted receive, without a wait: where members call again and
 * again, its message is there already. Releases the lock meanwhile. */
void muster_leader_receive_at_once(struct muster_fabric *fabric);

/* After events of descriptors: whether a message of fabric->awaited came by them. If not, another
 * link is waited for, too, and descriptors are polled more often. */
void muster_leader_note_events(struct muster_fabric *fabric, bool awaited_came);

#endif
