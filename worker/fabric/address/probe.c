/* Dials the addresses of a member at once, and asks probe_verdict.h what the answers mean. */
#include "worker/fabric/address/probe.h"

#include "worker/base/clock.h"
#include "worker/base/fork_guard.h"
#include "worker/fabric/address/address.h"

#include <errno.h>

/* Closed by a reset, so that no connection of a probe stays in TIME_WAIT. */
static void hang_up(struct pollfd *polled)
{
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    if (polled->fd >= 0) {
        (void)setsockopt(polled->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        muster_fork_guard_close(polled->fd);
        polled->fd = -1;
    }
}

static enum muster_probe_dial dial(const struct muster_socket_address *address,
                                   struct pollfd *ret_polled)
{
    int fd = MUSTER_GUARDED(
        socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd < 0) {
        return muster_probe_dial_of(errno);
    }
    *ret_polled = (struct pollfd){.fd = fd, .events = POLLOUT};
    int failed = connect(fd, (const struct sockaddr *)&address->storage, address->size);
    enum muster_probe_dial result = muster_probe_dial_of(failed != 0 ? errno : 0);
    if (result != MUSTER_DIAL_PENDING) {
        hang_up(ret_polled);
    }
    return result;
}

/* Whether a dial of this address would stay on this host: then the kernel chooses the same address
 * for the other end, also if its interface is down. Sends nothing. *ret_failed: this process cannot
 * find out. */
static bool leads_here(const struct muster_socket_address *address, bool *ret_failed)
{
    AUTO_CLOSE_GUARDED int fd =
        MUSTER_GUARDED(socket(address->storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    *ret_failed = fd < 0 && muster_probe_dial_of(errno) == MUSTER_DIAL_FAILED;
    return fd >= 0 && connect(fd, (const struct sockaddr *)&address->storage, address->size) == 0 &&
           muster_address_within_host(fd);
}

/* Dials address i; if outside, only where the dial leaves this host. */
static void dial_one(struct muster_probe *probe, const struct muster_peer *peer, uint32_t i,
                     bool outside)
{
    struct muster_socket_address address;
    bool failed = false;
    probe->dials[i] = MUSTER_DIAL_SKIPPED;
    probe->polled[i].fd = -1;
    if (!muster_address_has_scheme(peer->addresses[i], "tcp") ||
        muster_address_parse(peer->addresses[i], &address) != MUSTER_OK ||
        (outside && leads_here(&address, &failed))) {
        return;
    }
    probe->dials[i] = failed ? MUSTER_DIAL_FAILED : dial(&address, &probe->polled[i]);
}

static void dial_all(struct muster_probe *probe, const struct muster_peer *peer, bool outside)
{
    probe->count = peer->address_count;
    for (uint32_t i = 0; i < probe->count; i++) {
        dial_one(probe, peer, i, outside);
    }
}

/* No address could be dialled. */
static bool have_all_been_skipped(const struct muster_probe *probe)
{
    bool all = true;
    for (uint32_t i = 0; i < probe->count; i++) {
        all = all && probe->dials[i] == MUSTER_DIAL_SKIPPED;
    }
    return all;
}

static void collect_answers(struct muster_probe *probe)
{
    for (uint32_t i = 0; i < probe->count; i++) {
        int error = 0;
        socklen_t size = sizeof error;
        if (probe->polled[i].fd < 0 || probe->polled[i].revents == 0) {
            continue;
        }
        (void)getsockopt(probe->polled[i].fd, SOL_SOCKET, SO_ERROR, &error, &size);
        probe->dials[i] = muster_probe_dial_of(error);
        hang_up(&probe->polled[i]);
    }
}

/* The first address that gave this answer; their number if none did. */
static uint32_t find_answer(const struct muster_probe *probe, enum muster_probe_dial dial)
{
    uint32_t i = 0;
    while (i < probe->count && probe->dials[i] != dial) {
        i++;
    }
    return i;
}

void muster_probe_begin(struct muster_probe *probe, const struct muster_peer *peer, bool same_host)
{
    dial_all(probe, peer, !same_host);
    if (!same_host && have_all_been_skipped(probe)) {
        dial_all(probe, peer, false); /* who has only addresses of this host is on it */
    }
}

/* The answers that have come are collected even when the time is over: a thread that came late may
 * find them there. */
enum muster_probe_verdict muster_probe_poll(struct muster_probe *probe, int wait_ms, bool over)
{
    if (muster_probe_decide(probe->dials, probe->count, false) == MUSTER_PROBE_PENDING &&
        poll(probe->polled, probe->count, wait_ms) > 0) {
        collect_answers(probe);
    }
    return muster_probe_decide(probe->dials, probe->count, over);
}

void muster_probe_end(struct muster_probe *probe)
{
    for (uint32_t i = 0; i < probe->count; i++) {
        hang_up(&probe->polled[i]);
    }
}

struct muster_probe_report muster_peer_probe(const struct muster_peer *peer, bool same_host,
                                             uint32_t bound_ms)
{
    struct muster_probe probe;
    int64_t deadline_ns = muster_clock_after_ms(bound_ms);
    enum muster_probe_verdict verdict = MUSTER_PROBE_PENDING;
    muster_probe_begin(&probe, peer, same_host);
    while (verdict == MUSTER_PROBE_PENDING) {
        int left_ms = muster_clock_left_ms(deadline_ns);
        verdict = muster_probe_poll(&probe, left_ms, left_ms == 0);
    }
    muster_probe_end(&probe);
    uint32_t index = verdict == MUSTER_PROBE_THERE  ? find_answer(&probe, MUSTER_DIAL_ACCEPTED)
                     : verdict == MUSTER_PROBE_GONE ? find_answer(&probe, MUSTER_DIAL_REFUSED)
                                                    : probe.count;
    return (struct muster_probe_report){.verdict = verdict, .index = index};
}
