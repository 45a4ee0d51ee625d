/* Decides when a member that keeps this one waiting is probed, and when the answers end the wait.
 */
#include "worker/fabric/address/presence.h"

#include "worker/base/clock.h"

/* In fifths of the quiet time: 1 s, 2 s, 2 s, 30 s and 2 min of 5 s. */
enum {
    FIFTHS = 5,
    AGAIN_FIFTHS = 1, /* the pause after an answer that is not "there" */
    PROBE_FIFTHS = 2,
    GONE_FIFTHS = 2, /* the shortest row that ends a wait */
    CUT_OFF_FIFTHS = 30,
    PAUSE_MAX_FIFTHS = 120,
};

static int64_t fifths_ns(const struct muster_presence *presence, int64_t count)
{
    return count * presence->quiet_ms * MUSTER_NS_PER_MS / FIFTHS;
}

void muster_presence_begin(struct muster_presence *presence, uint32_t quiet_ms, int64_t now_ns)
{
    *presence = (struct muster_presence){.quiet_ms = quiet_ms, .quiet_since_ns = now_ns};
    presence->pause_ns = fifths_ns(presence, FIFTHS);
    presence->due_ns = now_ns + presence->pause_ns;
}

int64_t muster_presence_probe_ns(const struct muster_presence *presence)
{
    return fifths_ns(presence, PROBE_FIFTHS);
}

static enum muster_probe_verdict note_there(struct muster_presence *presence, int64_t now_ns)
{
    int64_t most_ns = fifths_ns(presence, PAUSE_MAX_FIFTHS);
    presence->gone = 0;
    presence->absent = 0;
    presence->due_ns = now_ns + presence->pause_ns;
    presence->pause_ns = 2 * presence->pause_ns < most_ns ? 2 * presence->pause_ns : most_ns;
    return MUSTER_PROBE_PENDING;
}

static enum muster_probe_verdict note_absent(struct muster_presence *presence, bool gone,
                                             int64_t began_ns, int64_t now_ns)
{
    if (presence->absent++ == 0) {
        presence->absent_since_ns = began_ns;
    }
    if (gone && presence->gone == 0) {
        presence->gone_since_ns = began_ns;
    }
    presence->gone = gone ? presence->gone + 1 : 0;
    presence->due_ns = now_ns + fifths_ns(presence, AGAIN_FIFTHS);
    if (presence->gone >= MUSTER_PRESENCE_ABSENT_LEAST &&
        began_ns - presence->gone_since_ns >= fifths_ns(presence, GONE_FIFTHS)) {
        return MUSTER_PROBE_GONE;
    }
    return presence->absent >= MUSTER_PRESENCE_ABSENT_LEAST &&
                   now_ns - presence->absent_since_ns >= fifths_ns(presence, CUT_OFF_FIFTHS)
               ? MUSTER_PROBE_CUT_OFF
               : MUSTER_PROBE_PENDING;
}

enum muster_probe_verdict muster_presence_note(struct muster_presence *presence,
                                               enum muster_probe_verdict verdict, int64_t began_ns,
                                               int64_t now_ns)
{
    bool gone = verdict == MUSTER_PROBE_GONE;
    return gone || verdict == MUSTER_PROBE_CUT_OFF ? note_absent(presence, gone, began_ns, now_ns)
                                                   : note_there(presence, now_ns);
}
