/* Rejected connections: one line of the log a kind and minute, with the number since the last one.
 */
#include "worker/fabric/wire/rejected_connections.h"

#include "worker/base/log.h"

#include <inttypes.h>

static const int64_t quiet_ns = INT64_C(60) * 1000 * 1000 * 1000;

static const char *const words[MUSTER_REJECTED_KINDS] = {
    [MUSTER_REJECTED_SILENT] = "closed before its hello was complete",
    [MUSTER_REJECTED_SLOW] = "no complete hello in time",
    [MUSTER_REJECTED_TOO_MANY] = "too many connections without a complete hello",
    [MUSTER_REJECTED_GARBAGE] = "no Muster peer",
    [MUSTER_REJECTED_VERSION] = "another wire version",
    [MUSTER_REJECTED_TOKEN] = "wrong link token",
    [MUSTER_REJECTED_UNKNOWN] = "no member of this generation, or for another member",
    [MUSTER_REJECTED_NO_GENERATION] = "its generation has not begun here",
    [MUSTER_REJECTED_PLAIN] = "without TLS, which this member uses",
    [MUSTER_REJECTED_TLS] = "with TLS, which this member does not use",
    [MUSTER_REJECTED_HANDSHAKE] = "the TLS handshake failed",
    [MUSTER_REJECTED_RANK] = "another rank",
};

void muster_rejections_note(struct muster_rejections *rejections, enum muster_rejection kind,
                            const char *from, const char *why, int64_t now_ns)
{
    uint64_t count = ++rejections->kinds[kind].unlogged;
    if (now_ns < rejections->kinds[kind].quiet_until_ns) {
        return;
    }
    rejections->kinds[kind].quiet_until_ns = now_ns + quiet_ns;
    rejections->kinds[kind].unlogged = 0;
    /* Of two connections that cross one is closed like this. */
    enum muster_log_level level =
        kind == MUSTER_REJECTED_SILENT ? MUSTER_LOG_INFO : MUSTER_LOG_WARN;
    muster_log(level, "from=%s connection refused: %s%s%s (%" PRIu64 " of this kind)", from,
               words[kind], why != NULL ? ": " : "", why != NULL ? why : "", count);
}
