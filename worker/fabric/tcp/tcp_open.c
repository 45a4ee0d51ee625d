/* Opens a link over TCP, whichever end has dialled, and adds connections to it. */
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/fabric/tcp/tcp.h"

#include <sys/socket.h>

static void open_path(struct muster_tcp_path *path, struct muster_tcp_link *end)
{
    muster_pending_remove(&path->pending);
    path->have = 0;
    path->end = end;
    path->place = 0;
    while (end->paths[path->place] != NULL) { /* there is a free place */
        path->place++;
    }
    end->paths[path->place] = path;
    end->path_count++;
    muster_tcp_limit_send_buffer(path->pending.watch.fd);
    muster_tcp_disable_user_timeout(path->pending.watch.fd);
    muster_tcp_path_watch(path, false);
    muster_link_mark(end->link); /* frames may have arrived with the hello or the answer */
}

static void log_open(const struct muster_tcp_path *path, const struct muster_link *link)
{
    char here[MUSTER_ADDRESS_SIZE];
    char dialled_address[MUSTER_ADDRESS_SIZE];
    struct muster_socket_address own = {.size = sizeof own.storage};
    (void)getsockname(path->pending.watch.fd, (struct sockaddr *)&own.storage, &own.size);
    muster_address_print(&own, here);
    muster_address_print(&path->remote, dialled_address);
    muster_log(MUSTER_LOG_INFO, "peer=%u host=%s link from %s to %s", link->rank, link->peer.host,
               here, dialled_address);
}

void muster_tcp_open_link(struct muster_tcp_path *path, struct muster_tcp_link *end,
                          uint32_t connections)
{
    muster_tcp_attempts_close(end, path);
    open_path(path, end);
    log_open(path, end->link);
    end->path = path;
    end->dialler.redial_ns = MUSTER_NEVER;
    if (connections > 1) {
        end->bundle = muster_tcp_bundle_create();
        end->match.payload_max = MUSTER_PIECE_BYTES;
        end->match.broken = end->match.broken || end->bundle == NULL;
    }
    muster_link_opened(end->link);
}

void muster_tcp_add_path(struct muster_tcp_path *path, struct muster_tcp_link *end)
{
    open_path(path, end);
    muster_bundle_path_opened(&end->dialler);
}

int muster_tcp_read_greeting(struct muster_tcp_path *path, uint32_t size)
{
    struct iovec part = {.iov_base = path->header + path->have, .iov_len = size - path->have};
    ssize_t got = muster_tcp_path_receive(path, &part, 1, false);
    return muster_pending_count_received(got, size, &path->have);
}
