/* The lock of a slot: a listening Unix socket with an abstract name. */
#include "worker/session/slot_lock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zlib.h>

#include "worker/base/fork_guard.h"

enum { BACKLOG = 128, BOOT_ID_SIZE = 40, NAMESPACE_SIZE = 32 };

static uint32_t add_text(uint32_t crc, const char *text)
{
    return (uint32_t)crc32(crc, (const Bytef *)text, (uInt)strlen(text) + 1);
}

static uint32_t place_digest(const struct muster_slot_place *place)
{
    return add_text(add_text(add_text(0, place->rendezvous), place->job), place->host);
}

/* "\0muster-slot-1-89abcdef-train-a": the digest distinguishes places, the rest is for people, who
 * see it in `ss -xl`. */
static socklen_t name_lock(const struct muster_slot_place *place, uint32_t slot,
                           struct sockaddr_un *ret_address)
{
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(ret_address->sun_path + 1, sizeof ret_address->sun_path - 1,
                          "muster-slot-%u-%08x-%.32s-%.32s", slot, place_digest(place), place->job,
                          place->host);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

muster_status muster_slot_lock_take(const struct muster_slot_place *place, uint32_t slot,
                                    int *ret_fd)
{
    struct sockaddr_un address;
    socklen_t size = name_lock(place, slot, &address);
    int fd = MUSTER_GUARDED(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&address, size) == 0 &&
        listen(fd, BACKLOG) == 0) {
        *ret_fd = fd;
        return MUSTER_OK;
    }
    muster_status status =
        errno == EADDRINUSE
            ? muster_error_set(MUSTER_RETRY, "slot %u of host %s is held by another process", slot,
                               place->host)
            : muster_error_errno(MUSTER_FATAL, "the lock of slot %u", slot);
    if (fd >= 0) {
        muster_fork_guard_close(fd);
    }
    return status;
}

pid_t muster_slot_lock_holder(const struct muster_slot_place *place, uint32_t slot)
{
    struct sockaddr_un address;
    socklen_t size = name_lock(place, slot, &address);
    struct ucred peer = {0};
    socklen_t peer_size = sizeof peer;
    int fd = MUSTER_GUARDED(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0) {
        return 0;
    }
    bool known = connect(fd, (const struct sockaddr *)&address, size) == 0 &&
                 getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) == 0;
    muster_fork_guard_close(fd);
    return known ? peer.pid : 0;
}

static void read_boot_id(char text[BOOT_ID_SIZE])
{
    text[0] = '\0';
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL) {
        if (fgets(text, BOOT_ID_SIZE, file) == NULL) {
            text[0] = '\0';
        }
        (void)fclose(file);
    }
    text[strcspn(text, "\n")] = '\0';
}

void muster_slot_lock_domain(const struct muster_slot_place *place,
                             char ret_text[MUSTER_SLOT_LOCK_DOMAIN_SIZE])
{
    char boot[BOOT_ID_SIZE];
    char network[NAMESPACE_SIZE];
    read_boot_id(boot);
    ssize_t length = readlink("/proc/self/ns/net", network, sizeof network - 1);
    ret_text[0] = '\0';
    if (boot[0] != '\0' && length > 0) {
        network[length] = '\0';
        (void)snprintf(ret_text, MUSTER_SLOT_LOCK_DOMAIN_SIZE, "%s %s %08x", boot, network,
                       place_digest(place));
    }
}
