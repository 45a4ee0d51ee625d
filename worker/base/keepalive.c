/* Socket options of keepalive. */
#include "worker/base/keepalive.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/socket.h>

bool muster_keepalive_set(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, MUSTER_KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, MUSTER_KEEPALIVE_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, MUSTER_KEEPALIVE_PROBES},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                       sizeof options[i].value) != 0) {
            return false;
        }
    }
    return true;
}
