#include "worker/fabric/wire/rejected_connections.h"

#include "worker/base/log.h"

#include <inttypes.h>

static const int64_t quiet_ns = INT64_C(60) * 1000 * 1000 * 1000;

static const char *const words[MUSTER_REJECTED_KINDS] = {
    [MUSTER_REJECTED_SILENT] = "hung up before it said who it is",
    [MUSTER_REJECTED_SLOW] = "did not say in time who it is",
    [MUSTER_REJECTED_TOO_MANY] = "too many have not said who they are",
    [MUSTER_REJECTED_GARBAGE] = "no Muster peer",
    [MUSTER_REJECTED_VERSION] = "another version of links",
    [MUSTER_REJECTED_TOKEN] = "wrong link token",
    [MUSTER_REJECTED_UNKNOWN] = "no member of this generation, or it wants another member",
    [MUSTER_REJECTED_NO_GENERATION] = "its generation has not begun here",
    [MUSTER_REJECTED_PLAIN] = "it came without TLS, which this member uses",
    [MUSTER_REJECTED_TLS] = "it came with TLS, which this member does not use",
    [MUSTER_REJECTED_HANDSHAKE] = "no good handshake of TLS",
};

void muster_rejections_note(struct muster_rejections *strangers, enum muster_rejection kind,
                            const char *from, const char *why, int64_t now_ns)
{
    uint64_t count = ++strangers->kinds[kind].unlogged;
    if (now_ns < strangers->kinds[kind].quiet_until_ns) {
        return;
    }
    strangers->kinds[kind].quiet_until_ns = now_ns + quiet_ns;
    strangers->kinds[kind].unlogged = 0;
    /* Of two members that call each other at the same time one hangs up. */
    enum muster_log_level level =
        kind == MUSTER_REJECTED_SILENT ? MUSTER_LOG_INFO : MUSTER_LOG_WARN;
    muster_log(level, "from=%s connection refused: %s%s%s (%" PRIu64 " of this kind)", from,
               words[kind], why != NULL ? ": " : "", why != NULL ? why : "", count);
}
