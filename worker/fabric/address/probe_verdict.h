/*
 * What dials of a member's addresses say about its process. Pure: probe.h dials.
 *
 *   an address accepts        the process is there: running, busy or frozen. Its kernel accepts
 *   else, one refuses         the process is gone: its host answers, and nobody listens
 *   else, none answers        the member is cut off, or its host is down
 *
 * A member listens at all its addresses. So one that accepts outweighs all others, and one that
 * refuses outweighs those without an answer, whose networks may be down. A firewall that rejects
 * connections looks like a process that is gone. Only what the host itself cannot dial is left out;
 * and if this process has no descriptor or memory for a dial, that address might have accepted.
 */
#ifndef MUSTER_WORKER_FABRIC_ADDRESS_PROBE_VERDICT_H
#define MUSTER_WORKER_FABRIC_ADDRESS_PROBE_VERDICT_H

#include "worker/fabric/fabric.h"

/* What became of the dial of one address. */
enum muster_probe_dial {
    MUSTER_DIAL_PENDING = 0, /* no answer yet */
    MUSTER_DIAL_ACCEPTED = 1,
    MUSTER_DIAL_REFUSED = 2,
    MUSTER_DIAL_UNREACHABLE = 3, /* the network says so */
    MUSTER_DIAL_SKIPPED = 4,     /* not possible from this host */
    MUSTER_DIAL_FAILED = 5,      /* this process's own fault */
    MUSTER_DIAL_KINDS = 6,
};

/* Of connect(), or of SO_ERROR after it: 0 or an errno. */
enum muster_probe_dial muster_probe_dial_of(int error);

/* over: the time has passed; then the verdict is not MUSTER_PROBE_PENDING. */
enum muster_probe_verdict muster_probe_decide(const enum muster_probe_dial *dials, uint32_t count,
                                              bool over);

#endif
