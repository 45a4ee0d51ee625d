/* Decides, from the answers of a member's addresses, whether its process is there. */
#include "worker/fabric/address/probe_verdict.h"

#include <errno.h>

enum muster_probe_dial muster_probe_dial_of(int error)
{
    switch (error) {
    case 0:
        return MUSTER_DIAL_ACCEPTED;
    case EINPROGRESS:
        return MUSTER_DIAL_PENDING;
    case ECONNREFUSED:
        return MUSTER_DIAL_REFUSED;
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ETIMEDOUT:
    case ECONNRESET:
    case EACCES: /* a firewall of this host */
    case EPERM:
        return MUSTER_DIAL_UNREACHABLE;
    case EAFNOSUPPORT: /* the kernel has no IPv6, or no address of it */
    case EADDRNOTAVAIL:
    case EINVAL:
        return MUSTER_DIAL_SKIPPED;
    default:
        return MUSTER_DIAL_FAILED;
    }
}

enum muster_probe_verdict muster_probe_decide(const enum muster_probe_dial *dials, uint32_t count,
                                              bool over)
{
    uint32_t counts[MUSTER_DIAL_KINDS] = {0};
    for (uint32_t i = 0; i < count; i++) {
        counts[dials[i]]++;
    }
    if (counts[MUSTER_DIAL_ACCEPTED] > 0) {
        return MUSTER_PROBE_THERE;
    }
    if (counts[MUSTER_DIAL_PENDING] > 0 && !over) {
        return MUSTER_PROBE_PENDING;
    }
    if (counts[MUSTER_DIAL_FAILED] > 0) {
        return MUSTER_PROBE_UNKNOWN;
    }
    if (counts[MUSTER_DIAL_REFUSED] > 0) {
        return MUSTER_PROBE_GONE;
    }
    return counts[MUSTER_DIAL_PENDING] + counts[MUSTER_DIAL_UNREACHABLE] > 0 ? MUSTER_PROBE_CUT_OFF
                                                                             : MUSTER_PROBE_UNKNOWN;
}

const char *muster_probe_text(enum muster_probe_verdict verdict)
{
    static const char *const texts[] = {
        [MUSTER_PROBE_PENDING] = "its process has not answered yet",
        [MUSTER_PROBE_THERE] = "its process is there",
        [MUSTER_PROBE_GONE] = "its process is gone",
        [MUSTER_PROBE_CUT_OFF] = "it is cut off from this host, or its host is down",
        [MUSTER_PROBE_UNKNOWN] = "it cannot be probed from here",
    };
    return texts[verdict];
}
