/*
 * Whether a member that keeps this one waiting is still there: when it is probed (probe.h), and
 * what the answers mean in a row. Pure: time comes in as an argument.
 *
 * A wait may last long, because a peer may compute. But it need not last until its deadline if the
 * peer's process is gone, or its host cut off, and the link does not notice. So:
 *
 *   quiet for MUSTER_PRESENCE_QUIET_MS     first probe
 *   "there"                                the next one after 5 s, then after twice the time, up to
 *                                          two minutes: the wait goes on until its deadline
 *   "gone"                                 the next one after 1 s; three in a row within at least
 *                                          2 s end the wait
 *   "cut off"                              the same; three in a row of this or "gone", within at
 *                                          least 30 s, end the wait
 *   "unknown" (this process's own fault)   as "there"
 *
 * With a service these bounds are longer than its own: it knows of a death after two seconds, of a
 * lost host after five. One bad answer ends nothing: a switch or a firewall may be restarting.
 *
 * All times scale with quiet_ms, so that tests need not wait.
 */
#ifndef MUSTER_WORKER_FABRIC_ADDRESS_PRESENCE_H
#define MUSTER_WORKER_FABRIC_ADDRESS_PRESENCE_H

#include "worker/fabric/fabric.h"

enum {
    MUSTER_PRESENCE_QUIET_MS = 5000,
    MUSTER_PRESENCE_ABSENT_LEAST = 3, /* probes in a row */
};

struct muster_presence {
    uint32_t quiet_ms;
    int64_t quiet_since_ns;
    int64_t due_ns;                         /* the next probe */
    int64_t pause_ns;                       /* until the one after it, if the answer is "there" */
    uint32_t gone;                          /* in a row, up to the last answer */
    uint32_t absent;                        /* likewise "gone" or "cut off" */
    int64_t gone_since_ns, absent_since_ns; /* when the first probe of the row began */
};

/* Nothing has been heard of the peer since now_ns, or nothing is awaited from it yet. */
void muster_presence_begin(struct muster_presence *presence, uint32_t quiet_ms, int64_t now_ns);

/* How long one probe may take. */
int64_t muster_presence_probe_ns(const struct muster_presence *presence);

/* A probe that began at that time has this verdict, which is not MUSTER_PROBE_PENDING. Returns what
 * ends the wait: MUSTER_PROBE_GONE or MUSTER_PROBE_CUT_OFF; MUSTER_PROBE_PENDING: it goes on. */
enum muster_probe_verdict muster_presence_note(struct muster_presence *presence,
                                               enum muster_probe_verdict verdict, int64_t began_ns,
                                               int64_t now_ns);

#endif
