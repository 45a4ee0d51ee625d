/* How shared memory links open: listening, dialling, hellos, and the proof that both members see
 * one memory. */
#include "worker/base/clock.h"
#include "worker/base/fork_guard.h"
#include "worker/fabric/shm/shm.h"
#include "worker/memory/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <utlist.h>

/* Paths -------------------------------------------------------------------------------------- */

static void free_path(struct muster_watch *watch)
{
    struct muster_shm_path *path = (struct muster_shm_path *)watch;
    muster_shm_unmap(path);
    free(path);
}

void muster_shm_path_close(struct muster_shm_path *path)
{
    if (path->pending.phase == MUSTER_PHASE_OPEN && path->end != NULL) {
        DL_DELETE2(path->shm->open, path->end, prev_open, next_open);
    }
    muster_pending_remove(&path->pending);
    if (path->end != NULL && path->end->path == path) {
        path->end->path = NULL;
    }
    path->end = NULL;
    if (path->memory_fd >= 0) {
        close(path->memory_fd);
        path->memory_fd = -1;
    }
    muster_watch_retire(path->shm->pending_list.fabric, &path->pending.watch);
}

/* Owns the descriptor from now on; NULL: out of memory, the descriptor is closed. */
static struct muster_shm_path *make_path(struct muster_shm *shm, int fd, enum muster_phase phase)
{
    const struct muster_watch watch = {.fd = fd, .events = EPOLLIN, .free = free_path};
    struct muster_shm_path *path =
        muster_pending_create(&shm->pending_list, sizeof *path, phase, &watch);
    if (path == NULL) {
        return NULL;
    }
    path->shm = shm;
    path->memory_fd = -1;
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    path->pid = peer.pid;
    return path;
}

/* Opening ------------------------------------------------------------------------------------- */

static void open_path(struct muster_shm_path *path)
{
    struct muster_shm_link *end = path->end;
    muster_pending_remove(&path->pending);
    end->dialler.redial_ns = MUSTER_NEVER;
    muster_shm_set_rings(end, path);
    muster_shm_write_tickets(end);
    DL_APPEND2(path->shm->open, end, prev_open, next_open);
    muster_link_opened(end->link);
}

/* Dialling ----------------------------------------------------------------------------------- */

static struct sockaddr_un socket_address(const char *name, socklen_t *ret_size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    memcpy(address.sun_path + 1, name, length); /* after a 0 byte: the abstract name space */
    *ret_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    return address;
}

/* Finds the peer's address for this host and network name space. False: it has none. */
static bool find_address(const struct muster_shm_link *end, struct muster_shm_address *ret_address)
{
    const struct muster_peer *peer = &end->link->peer;
    const struct muster_shm_address *own = &end->shm->own;
    for (uint32_t i = 0; i < peer->address_count; i++) {
        struct muster_shm_address address;
        if (muster_shm_address_parse(peer->addresses[i], &address) &&
            strcmp(address.boot, own->boot) == 0 && address.network == own->network) {
            *ret_address = address;
            return true;
        }
    }
    return false;
}

static bool send_hello(struct muster_shm_path *path)
{
    int memory_fd = -1;
    if (muster_shared_memory_create("muster-link", SHM_MEMORY_BYTES, &memory_fd) != MUSTER_OK) {
        return false;
    }
    AUTO_CLOSE int passed = memory_fd;
    path->memory_fd =
        fcntl(passed, F_DUPFD_CLOEXEC, 0); /* close-on-exec: another thread may start a program */
    if (path->memory_fd < 0 || !muster_shm_map(path, 0)) {
        return false;
    }
    muster_random_bytes(path->mine->nonce, SHM_NONCE_BYTES);
    struct muster_shm_packet packet = {.kind = SHM_HELLO};
    memcpy(packet.nonce, path->mine->nonce, SHM_NONCE_BYTES);
    const struct muster_hello hello = muster_hello_to(path->end->link);
    muster_hello_encode(&hello, packet.hello);
    return muster_shm_packet_send(path->pending.watch.fd, &packet, passed);
}

/* Connects to the name in the peer's address and sends the hello with the descriptor of a new
 * memory. Everything but a full backlog is final: the link tries its next transport. */
void muster_shm_dial(struct muster_shm_link *end)
{
    struct muster_shm_address address;
    end->dialler.redial_ns = MUSTER_NEVER;
    if (!find_address(end, &address)) {
        muster_link_try_next(end->link, "it is not on this host, or in another network");
        return;
    }
    socklen_t size;
    const struct sockaddr_un remote = socket_address(address.name, &size);
    AUTO_CLOSE_GUARDED int fd =
        MUSTER_GUARDED(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd < 0 || connect(fd, (const struct sockaddr *)&remote, size) != 0) {
        if (fd >= 0 && errno == EAGAIN) { /* its backlog is full */
            end->dialler.redial_ns = muster_clock_after_ms(MUSTER_REDIAL_MS);
        } else {
            muster_link_try_next(end->link, strerror(errno));
        }
        return;
    }
    struct muster_shm_path *path = make_path(end->shm, TAKE_FD(fd), MUSTER_PHASE_GREETING);
    if (path == NULL) {
        muster_link_try_next(end->link, "out of memory");
        return;
    }
    path->end = end;
    end->path = path;
    if (!send_hello(path)) {
        muster_link_try_next(end->link, "no shared memory could be made");
    }
}

static void confirm(struct muster_shm_path *path, const struct muster_shm_packet *answer)
{
    const struct muster_shm_packet packet = {.kind = SHM_CONFIRM};
    if (memcmp(path->theirs->nonce, answer->nonce, SHM_NONCE_BYTES) != 0) {
        muster_link_try_next(path->end->link, "it does not see the same memory");
    } else if (!muster_shm_packet_send(path->pending.watch.fd, &packet, -1)) {
        muster_pending_handle_close(&path->pending, path->end->link);
    } else {
        open_path(path);
    }
}

static void handle_answer(struct muster_shm_path *path, const struct muster_shm_packet *packet)
{
    struct muster_link *link = path->end->link;
    if (packet->kind == SHM_ANSWER && muster_wire_version_check(packet->generation) != MUSTER_OK) {
        (void)muster_error_prefix(MUSTER_FATAL, "refused");
        muster_link_fail(link, MUSTER_LINK_LOST, muster_last_error());
    } else if (packet->kind != SHM_ANSWER || packet->word > MUSTER_REFUSED_RANK) {
        muster_link_try_next(link, "its answer is not that of a Muster peer");
    } else if (packet->word == MUSTER_WELCOME) {
        confirm(path, packet);
    } else if (packet->word != MUSTER_WAIT) {
        muster_pending_handle_refusal(&path->pending, link, (enum muster_verdict)packet->word);
    }
}

/* Accepting ---------------------------------------------------------------------------------- */

bool muster_shm_answer(struct muster_pending_connection *pending, enum muster_verdict verdict)
{
    const struct muster_shm_packet packet = {
        .kind = SHM_ANSWER, .generation = MUSTER_WIRE_VERSION, .word = verdict};
    return muster_shm_packet_send(pending->watch.fd, &packet, -1);
}

struct muster_pending_connection *
muster_shm_create_connection(struct muster_pending_connections *pending_list, int fd,
                             const struct muster_socket_address *remote)
{
    (void)remote;
    struct muster_shm_path *path =
        make_path((struct muster_shm *)pending_list, fd, MUSTER_PHASE_HELLO);
    return path != NULL ? &path->pending : NULL;
}

/* This connection replaces the link's own attempt. The welcome carries this member's nonce; the
 * link opens when the dialler confirms that it has found the nonce in the memory. */
void muster_shm_admit(struct muster_pending_connection *pending, struct muster_link *link)
{
    struct muster_shm_path *path = (struct muster_shm_path *)pending;
    if (!muster_pending_claim_link(pending, link)) {
        return;
    }
    struct muster_shm_link *end = link->end;
    if (end->path != NULL) {
        muster_shm_path_close(end->path);
    }
    muster_pending_await_proof(pending);
    path->end = end;
    end->path = path;
    if (!muster_shm_verify_memory(path)) {
        (void)muster_shm_answer(pending, MUSTER_REFUSED_MEMORY);
        muster_link_try_next(link, "what it passes is not shared memory");
        return;
    }
    struct muster_shm_packet packet = {
        .kind = SHM_ANSWER, .generation = MUSTER_WIRE_VERSION, .word = MUSTER_WELCOME};
    muster_random_bytes(path->mine->nonce, SHM_NONCE_BYTES);
    memcpy(packet.nonce, path->mine->nonce, SHM_NONCE_BYTES);
    if (!muster_shm_packet_send(path->pending.watch.fd, &packet, -1)) {
        muster_pending_answer_failed(pending, link);
    }
}

static void handle_hello(struct muster_shm_path *path, const struct muster_shm_packet *packet,
                         int *memory_fd)
{
    if (packet->kind != SHM_HELLO) {
        muster_pending_refuse(&path->pending, MUSTER_REJECTED_GARBAGE);
        return;
    }
    path->memory_fd = TAKE_FD(*memory_fd);
    memcpy(path->nonce, packet->nonce, SHM_NONCE_BYTES);
    muster_pending_check_hello(&path->pending, packet->hello);
}

static void handle_confirmation(struct muster_shm_path *path,
                                const struct muster_shm_packet *packet)
{
    if (packet->kind == SHM_CONFIRM) {
        open_path(path);
    } else {
        muster_link_try_next(path->end->link, "its answer is not that of a Muster peer");
    }
}

/* Packets ------------------------------------------------------------------------------------ */

static void handle_end(struct muster_shm_path *path)
{
    switch (path->pending.phase) {
    case MUSTER_PHASE_DIALLING: /* never: connect() on such a socket is done at once */
        break;
    case MUSTER_PHASE_GREETING:
        muster_pending_handle_close(&path->pending, path->end->link);
        break;
    case MUSTER_PHASE_HELLO:
    case MUSTER_PHASE_PARKED:
        muster_pending_refuse(&path->pending,
                              errno == EPROTO ? MUSTER_REJECTED_GARBAGE : MUSTER_REJECTED_SILENT);
        break;
    case MUSTER_PHASE_PROVING:
        muster_link_try_next(path->end->link, "it does not confirm that it sees the same memory");
        break;
    case MUSTER_PHASE_OPEN:
        muster_shm_handle_end(path->end, errno == 0 ? "it closed the connection without goodbye"
                                                    : strerror(errno));
    }
}

static void handle_packet(struct muster_shm_path *path, const struct muster_shm_packet *packet,
                          int *fd)
{
    switch (path->pending.phase) {
    case MUSTER_PHASE_DIALLING: /* never: connect() on such a socket is done at once */
        break;
    case MUSTER_PHASE_GREETING:
        handle_answer(path, packet);
        break;
    case MUSTER_PHASE_HELLO:
        handle_hello(path, packet, fd);
        break;
    case MUSTER_PHASE_PARKED:
        muster_pending_refuse(&path->pending, MUSTER_REJECTED_GARBAGE); /* it was answered "wait" */
        break;
    case MUSTER_PHASE_PROVING:
        handle_confirmation(path, packet);
        break;
    case MUSTER_PHASE_OPEN:
        muster_shm_handle_packet(path->end, packet, fd);
    }
}

bool muster_shm_receive_packets(struct muster_shm_path *path)
{
    const struct muster_watch *watch = &path->pending.watch;
    for (int i = 0; i < SHM_PACKETS_MAX && !watch->retired; i++) {
        struct muster_shm_packet packet;
        AUTO_CLOSE int fd = -1;
        int got = muster_shm_packet_receive(watch->fd, &packet, &fd);
        if (got == 0) {
            return true;
        }
        if (got < 0) {
            handle_end(path);
            return false;
        }
        handle_packet(path, &packet, &fd);
    }
    return !watch->retired;
}

void muster_shm_path_ready(struct muster_watch *watch, uint32_t events)
{
    (void)events;
    (void)muster_shm_receive_packets((struct muster_shm_path *)watch);
}

/* Listening ---------------------------------------------------------------------------------- */

muster_status muster_shm_listen(struct muster_shm *shm)
{
    char uuid[MUSTER_UUID_SIZE];
    muster_random_uuid(uuid);
    (void)snprintf(shm->own.name, sizeof shm->own.name, "muster-%s", uuid);
    AUTO_CLOSE_GUARDED int fd =
        MUSTER_GUARDED(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd < 0) {
        return muster_error_errno(MUSTER_FATAL, "a socket for this host's members");
    }
    socklen_t size;
    const struct sockaddr_un own = socket_address(shm->own.name, &size);
    if (bind(fd, (const struct sockaddr *)&own, size) != 0 || listen(fd, SOMAXCONN) != 0) {
        return muster_error_errno(MUSTER_FATAL, "a socket for this host's members");
    }
    return muster_pending_connections_listen(&shm->pending_list, TAKE_FD(fd));
}
