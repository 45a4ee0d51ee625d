/* What comes from outside: connections that break, and those that nobody asked for. */
#include "tests/faults/faults.h"
#include "tests/support/schedules.h"
#include "worker/fabric/address/address.h"
#include "worker/fabric/wire/hello.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DESCRIPTORS_MAX = 1024, CONNECTIONS_MAX = 4 };

/* All members are in this process, so its connected sockets are their connections. If the drawn one
 * is closed meanwhile, nothing else is harmed: this process has no other connected sockets. */
void faults_cut(struct fault_run *run)
{
    int connected[DESCRIPTORS_MAX];
    uint32_t count = 0;
    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) {
        struct sockaddr_storage peer;
        socklen_t size = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0 && peer.ss_family == AF_INET) {
            connected[count++] = fd;
        }
    }
    if (count > 0) {
        (void)shutdown(connected[test_random_below(&run->random, count)], SHUT_RDWR);
    }
}

static int connect_to(const struct fault_run *run)
{
    struct muster_socket_address address;
    const struct muster_peer *peer = &run->group.members[run->victim].peer;
    if (muster_address_parse(peer->addresses[0], &address) != MUSTER_OK) {
        return -1;
    }
    int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address.storage, address.size) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Draws the first bytes on a connection that must be rejected; returns their number, 0 for a port
 * scanner. */
static size_t draw_greeting(struct fault_run *run, unsigned char ret_bytes[MUSTER_HELLO_SIZE])
{
    const struct group *group = &run->group;
    struct muster_hello hello = {.generation = group->generation,
                                 .rank = (run->victim + 1) % group->size};
    memcpy(hello.to, group->members[run->victim].peer.member, sizeof hello.to);
    memcpy(hello.from, group->members[(run->victim + 1) % group->size].peer.member,
           sizeof hello.from);
    (void)snprintf(hello.token, sizeof hello.token, "%s", GROUP_TOKEN);
    switch (test_random_below(&run->random, 4)) {
    case 0:
        return 0;
    case 1:
        memset(ret_bytes, 'x', MUSTER_HELLO_SIZE);
        return MUSTER_HELLO_SIZE;
    case 2:
        (void)snprintf(hello.token, sizeof hello.token, "another token");
        break;
    default: /* a member of the generation before */
        hello.generation = group->generation - 1;
        muster_random_uuid(hello.from);
    }
    muster_hello_encode(&hello, ret_bytes);
    return MUSTER_HELLO_SIZE;
}

void faults_connect_strangers(struct fault_run *run)
{
    uint32_t connections = 1 + test_random_below(&run->random, CONNECTIONS_MAX);
    for (uint32_t i = 0; i < connections; i++) {
        unsigned char bytes[MUSTER_HELLO_SIZE];
        size_t size = draw_greeting(run, bytes);
        int fd = connect_to(run);
        if (fd < 0) {
            continue;
        }
        if (size == 0 || send(fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size) {
            run->rejected++;
        }
        close(fd);
    }
}
