/* The packets of shared memory links, and their addresses. */
#include "worker/fabric/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { VERSION = 1 };

static const size_t short_size = offsetof(struct muster_shm_packet, hello);

/* Packets ------------------------------------------------------------------------------------ */

bool muster_shm_packet_send(int socket, const struct muster_shm_packet *packet, int fd)
{
    struct muster_shm_packet out = *packet;
    out.version = VERSION;
    struct iovec part = {.iov_base = &out,
                         .iov_len = packet->kind == SHM_HELLO ? sizeof out : short_size};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof fd)];
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
    }
    ssize_t sent;
    do {
        sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0; /* a packet is sent as a whole */
}

/* There is room for one descriptor. The kernel closes any others that were sent. */
static int receive_descriptor(struct msghdr *message)
{
    const struct cmsghdr *header = CMSG_FIRSTHDR(message);
    int fd = -1;
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof fd)) {
        memcpy(&fd, CMSG_DATA(header), sizeof fd);
    }
    return fd;
}

static bool is_valid(const struct muster_shm_packet *packet, ssize_t size, bool has_fd)
{
    bool needs_fd = packet->kind == SHM_HELLO || packet->kind == SHM_DESCRIPTOR ||
                    packet->kind == SHM_ALLOCATION;
    size_t expected = packet->kind == SHM_HELLO ? sizeof *packet : short_size;
    return (size_t)size == expected && packet->version == VERSION && packet->kind >= SHM_HELLO &&
           packet->kind <= SHM_FREED && has_fd == needs_fd;
}

/* A packet is checked before its descriptor is passed on: another version, a wrong size or a
 * missing descriptor is EPROTO. */
int muster_shm_packet_receive(int socket, struct muster_shm_packet *ret_packet, int *ret_fd)
{
    struct muster_shm_packet in = {0};
    struct iovec part = {.iov_base = &in, .iov_len = sizeof in};
    union {
        struct cmsghdr header;
        char bytes[CMSG_LEN(sizeof *ret_fd)];
    } control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_LEN(sizeof *ret_fd)};
    ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (got <= 0) {
        errno = got == 0 ? 0 : errno;
        return -1;
    }
    AUTO_CLOSE int fd = receive_descriptor(&message);
    if (!is_valid(&in, got, fd >= 0) || (message.msg_flags & MSG_TRUNC) != 0) {
        errno = EPROTO;
        return -1;
    }
    *ret_packet = in;
    *ret_fd = TAKE_FD(fd);
    return 1;
}

/* Addresses ---------------------------------------------------------------------------------- */

bool muster_shm_address_here(struct muster_shm_address *ret_address)
{
    struct stat network;
    struct muster_shm_address here = {.name = ""};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file == NULL) {
        return false;
    }
    bool read = fscanf(file, "%36s", here.boot) == 1;
    (void)fclose(file);
    if (!read || stat("/proc/self/ns/net", &network) != 0) {
        return false;
    }
    here.network = network.st_ino;
    *ret_address = here;
    return true;
}

void muster_shm_address_print(const struct muster_shm_address *address,
                              char ret_text[MUSTER_ADDRESS_SIZE])
{
    (void)snprintf(ret_text, MUSTER_ADDRESS_SIZE, "shm://%s/%" PRIu64 "/%s", address->boot,
                   address->network, address->name);
}

/* Copies the characters up to a '/' or the end, if they are in the set and fit. Returns what
 * follows, or NULL. */
static const char *parse_part(const char *text, const char *of, char *ret_part, size_t size)
{
    size_t length = strspn(text, of);
    if (length == 0 || length >= size || (text[length] != '/' && text[length] != '\0')) {
        return NULL;
    }
    memcpy(ret_part, text, length);
    ret_part[length] = '\0';
    return text + length + (text[length] == '/');
}

bool muster_shm_address_parse(const char *text, struct muster_shm_address *ret_address)
{
    static const char scheme[] = "shm://";
    struct muster_shm_address address = {.name = ""};
    char network[20]; /* at most 19 digits, which fit into 64 bits */
    if (strncmp(text, scheme, sizeof scheme - 1) != 0) {
        return false;
    }
    text = parse_part(text + sizeof scheme - 1, "0123456789abcdef-", address.boot,
                      sizeof address.boot);
    text = text != NULL ? parse_part(text, "0123456789", network, sizeof network) : NULL;
    text = text != NULL ? parse_part(text, "0123456789abcdefghijklmnopqrstuvwxyz-", address.name,
                                     sizeof address.name)
                        : NULL;
    if (text == NULL || *text != '\0') {
        return false;
    }
    address.network = strtoull(network, NULL, 10);
    *ret_address = address;
    return true;
}
