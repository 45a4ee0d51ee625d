/* Probes members that keep this one waiting, and loses the links to those that are gone. */
#include "worker/fabric/link_presence.h"

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/fabric/address/presence.h"
#include "worker/fabric/address/probe.h"
#include "worker/fabric/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKS_PER_QUIET_TIME = 5, POLLS_PER_QUIET_TIME = 250 }; /* every 1 s, and every 20 ms */

/* Of a link whose peer keeps this member waiting. */
struct muster_link_presence {
    struct muster_presence presence;
    uint64_t activity; /* of the link, when it was last looked at */
    uint64_t opened;   /* likewise */
    bool probing;
    struct muster_probe probe;
    int64_t began_ns; /* the probe */
};

static uint32_t quiet_ms(const struct muster_fabric *fabric)
{
    return fabric->quiet_ms != 0 ? fabric->quiet_ms : MUSTER_PRESENCE_QUIET_MS;
}

static int64_t part_of_quiet_ns(const struct muster_fabric *fabric, int64_t parts)
{
    return (int64_t)quiet_ms(fabric) * MUSTER_NS_PER_MS / parts;
}

static bool is_awaited(const struct muster_link *link)
{
    if (link->peer.address_count == 0) {
        return false; /* it is sought, or has dialled this member: others can probe it */
    }
    return link->state == MUSTER_LINK_OPENING ||
           (link->state == MUSTER_LINK_OPEN && (link->receives.count > 0 || link->sends > 0));
}

void muster_link_presence_end(struct muster_link *link)
{
    struct muster_link_presence *watched = TAKE(link->presence);
    if (watched != NULL && watched->probing) {
        muster_probe_end(&watched->probe);
    }
    free(watched);
}

static void stop_probing(struct muster_link_presence *watched)
{
    if (watched->probing) {
        muster_probe_end(&watched->probe);
        watched->probing = false;
    }
}

static void begin_again(struct muster_link *link, int64_t now_ns)
{
    struct muster_link_presence *watched = link->presence;
    stop_probing(watched);
    watched->activity = link->activity;
    watched->opened = link->opened;
    muster_presence_begin(&watched->presence, quiet_ms(link->fabric), now_ns);
}

static void lose(struct muster_link *link, enum muster_probe_verdict verdict, int64_t now_ns)
{
    const struct muster_presence *presence = &link->presence->presence;
    bool gone = verdict == MUSTER_PROBE_GONE;
    uint32_t probes = gone ? presence->gone : presence->absent;
    int64_t since_ns = gone ? presence->gone_since_ns : presence->absent_since_ns;
    char what[MUSTER_REASON_SIZE];
    (void)snprintf(what, sizeof what,
                   "%s: %u dials in %lld ms were %s, and nothing has come from it for %lld ms",
                   muster_probe_text(verdict), probes,
                   (long long)((now_ns - since_ns) / MUSTER_NS_PER_MS),
                   gone ? "refused" : "not answered",
                   (long long)((now_ns - presence->quiet_since_ns) / MUSTER_NS_PER_MS));
    muster_link_presence_end(link);
    muster_link_fail(link, MUSTER_LINK_LOST, what);
}

/* Looks for answers. Returns when to look again. */
static int64_t poll_probe(struct muster_link *link, int64_t now_ns)
{
    struct muster_link_presence *watched = link->presence;
    bool over = now_ns - watched->began_ns >= muster_presence_probe_ns(&watched->presence);
    enum muster_probe_verdict verdict = muster_probe_poll(&watched->probe, 0, over);
    if (verdict == MUSTER_PROBE_PENDING) {
        return now_ns + part_of_quiet_ns(link->fabric, POLLS_PER_QUIET_TIME);
    }
    stop_probing(watched);
    enum muster_probe_verdict end =
        muster_presence_note(&watched->presence, verdict, watched->began_ns, now_ns);
    if (end != MUSTER_PROBE_PENDING) {
        lose(link, end, now_ns);
        return MUSTER_NEVER;
    }
    return watched->presence.due_ns;
}

static int64_t probe(struct muster_link *link, int64_t now_ns)
{
    struct muster_link_presence *watched = link->presence;
    const struct muster_transport *ops = link->ops;
    if (link->state == MUSTER_LINK_OPEN && (ops->answers == NULL || ops->answers(link))) {
        (void)muster_presence_note(&watched->presence, MUSTER_PROBE_THERE, now_ns, now_ns);
        return watched->presence.due_ns;
    }
    watched->probing = true;
    watched->began_ns = now_ns;
    muster_probe_begin(&watched->probe, &link->peer,
                       strcmp(link->peer.host, link->fabric->host) == 0);
    return poll_probe(link, now_ns);
}

/* Returns when to look at the link again. Without memory it is not watched for now. */
static int64_t look_at(struct muster_link *link, int64_t now_ns)
{
    if (!is_awaited(link)) {
        muster_link_presence_end(link);
        return MUSTER_NEVER;
    }
    if (link->presence == NULL) {
        link->presence = calloc(1, sizeof *link->presence);
        if (link->presence == NULL) {
            return MUSTER_NEVER;
        }
        begin_again(link, now_ns);
    }
    struct muster_link_presence *watched = link->presence;
    if (watched->activity != link->activity || watched->opened != link->opened) {
        begin_again(link, now_ns);
    }
    if (watched->probing) {
        return poll_probe(link, now_ns);
    }
    return now_ns >= watched->presence.due_ns ? probe(link, now_ns) : watched->presence.due_ns;
}

int64_t muster_link_presence_timers(struct muster_fabric *fabric, int64_t now_ns)
{
    if (now_ns < fabric->presence_due_ns) {
        return fabric->presence_due_ns;
    }
    int64_t due_ns = now_ns + part_of_quiet_ns(fabric, LOOKS_PER_QUIET_TIME);
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        if (fabric->links[i] != NULL) {
            int64_t link_due_ns = look_at(fabric->links[i], now_ns);
            due_ns = link_due_ns < due_ns ? link_due_ns : due_ns;
        }
    }
    fabric->presence_due_ns = due_ns;
    return due_ns;
}
