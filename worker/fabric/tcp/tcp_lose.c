/* Handles lost connections, and detects those whose peer is silent. */
#include "worker/fabric/tcp/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

void muster_tcp_path_lost(struct muster_tcp_path *path, const char *what)
{
    struct muster_tcp_link *end = path->end;
    struct muster_link *link = end->link;
    if (end->bundle == NULL || end->path_count == 1 || end->goodbye_sent) {
        muster_link_fail(link, end->goodbye_queued ? MUSTER_LINK_PEER_LEFT : MUSTER_LINK_LOST,
                         what);
        return;
    }
    muster_tcp_bundle_abandon(path);
    muster_tcp_path_close(path);
    muster_bundle_path_lost(&end->opening, &end->dialler, end->path_count, what);
}

/* Silence ------------------------------------------------------------------------------------ */

static bool is_silent(const struct muster_tcp_path *path)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (getsockopt(path->pending.watch.fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
        return false;
    }
    bool due =
        (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0) || info.tcpi_probes >= TCP_PROBES_MIN;
    uint32_t limit_ms = path->tcp->silence_ms;
    return due && info.tcpi_last_ack_recv > limit_ms && info.tcpi_last_data_recv > limit_ms;
}

void muster_tcp_check_silence(struct muster_tcp_link *end)
{
    struct muster_link *link = end->link;
    for (uint32_t i = 0; i < MUSTER_CONNECTIONS_MAX; i++) {
        if (end->paths[i] != NULL && is_silent(end->paths[i])) {
            muster_tcp_path_lost(end->paths[i], strerror(ETIMEDOUT));
            if (link->end != end) {
                return;
            }
        }
    }
}

bool muster_tcp_answers(const struct muster_link *link)
{
    const struct muster_tcp_link *end = link->end;
    for (uint32_t i = 0; i < MUSTER_CONNECTIONS_MAX; i++) {
        struct tcp_info info = {0};
        socklen_t size = sizeof info;
        if (end->paths[i] != NULL &&
            getsockopt(end->paths[i]->pending.watch.fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
            (info.tcpi_last_ack_recv < TCP_ANSWERS_MS ||
             info.tcpi_last_data_recv < TCP_ANSWERS_MS)) {
            return true;
        }
    }
    return false;
}
