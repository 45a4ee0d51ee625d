/* How shared memory links begin: listening, dialling, hellos, and the proof that both ends see one
 * memory. */
#include "worker/base/clock.h"
#include "worker/base/region.h"
#include "worker/fabric/shm.h"

#include <errno.h>
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
    struct shm_path *path = (struct shm_path *)watch;
    muster_shm_unmap(path);
    free(path);
}

static void leave_halves(struct shm_path *path)
{
    if (path->phase == SHM_PHASE_OPEN) {
        return;
    }
    DL_DELETE(path->shm->halves, path);
    path->shm->half_open -= path->phase == SHM_PHASE_HELLO;
    path->shm->parked -= path->phase == SHM_PHASE_PARKED;
}

void muster_shm_path_close(struct shm_path *path)
{
    if (path->phase == SHM_PHASE_OPEN && path->link != NULL) {
        DL_DELETE2(path->shm->open, path->link, prev_open, next_open);
    }
    leave_halves(path);
    path->phase = SHM_PHASE_OPEN; /* it is in no list */
    if (path->link != NULL && path->link->path == path) {
        path->link->path = NULL;
    }
    path->link = NULL;
    if (path->memory_fd >= 0) {
        close(path->memory_fd);
        path->memory_fd = -1;
    }
    muster_watch_retire(path->shm->fabric, &path->watch);
}

static void refuse(struct shm_path *path, enum muster_stranger kind)
{
    struct shm *shm = path->shm;
    muster_strangers_note(&shm->strangers, kind, "shm", muster_clock_ns());
    shm->fabric->figures.strangers_refused++;
    muster_shm_path_close(path);
}

static void path_ready(struct muster_watch *watch, uint32_t events);

/* Takes the descriptor, also on failure. */
static struct shm_path *make_path(struct shm *shm, int fd, enum shm_phase phase)
{
    struct shm_path *path = calloc(1, sizeof *path);
    if (path == NULL) {
        close(fd);
        return NULL;
    }
    path->shm = shm;
    path->phase = phase;
    path->deadline_ns = MUSTER_NEVER;
    path->memory_fd = -1;
    path->watch =
        (struct muster_watch){.fd = fd, .events = EPOLLIN, .ready = path_ready, .free = free_path};
    if (muster_watch_add(shm->fabric, &path->watch) != MUSTER_OK) {
        close(fd);
        free(path);
        return NULL;
    }
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    path->pid = peer.pid;
    DL_APPEND(shm->halves, path);
    shm->half_open += phase == SHM_PHASE_HELLO;
    return path;
}

/* Opening ------------------------------------------------------------------------------------- */

static void open_path(struct shm_path *path)
{
    struct shm_link *link = path->link;
    leave_halves(path);
    path->phase = SHM_PHASE_OPEN;
    path->deadline_ns = MUSTER_NEVER;
    link->redial_ns = MUSTER_NEVER;
    muster_shm_bind(link, path);
    muster_shm_write_tickets(link);
    DL_APPEND2(path->shm->open, link, prev_open, next_open);
    muster_link_opened(link->link);
}

/* Dialling ----------------------------------------------------------------------------------- */

static struct sockaddr_un socket_address(const char *name, socklen_t *ret_size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    memcpy(address.sun_path + 1, name,
           length); /* the first byte stays 0: the abstract name space */
    *ret_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    return address;
}

/* The peer's address for this host and network; false if it has none. */
static bool find_address(const struct shm_link *link, struct shm_address *ret_address)
{
    const struct muster_peer *peer = &link->link->peer;
    const struct shm_address *own = &link->shm->own;
    for (uint32_t i = 0; i < peer->address_count; i++) {
        struct shm_address address;
        if (muster_shm_address_parse(peer->addresses[i], &address) &&
            strcmp(address.boot, own->boot) == 0 && address.network == own->network) {
            *ret_address = address;
            return true;
        }
    }
    return false;
}

static bool send_hello(struct shm_path *path)
{
    const struct muster_fabric *fabric = path->shm->fabric;
    int memory_fd = -1;
    if (muster_region_create("muster-link", SHM_REGION_BYTES, &memory_fd) != MUSTER_OK) {
        return false;
    }
    AUTO_CLOSE int passed = memory_fd;
    path->memory_fd = dup(passed);
    if (path->memory_fd < 0 || !muster_shm_map(path, 0)) {
        return false;
    }
    muster_random_bytes(path->mine->nonce, SHM_NONCE_BYTES);
    struct shm_packet packet = {.kind = SHM_HELLO};
    memcpy(packet.nonce, path->mine->nonce, SHM_NONCE_BYTES);
    struct muster_hello hello = {.generation = fabric->generation};
    memcpy(hello.from, fabric->member, sizeof hello.from);
    memcpy(hello.to, path->link->link->peer.member, sizeof hello.to);
    memcpy(hello.token, fabric->token, sizeof hello.token);
    muster_hello_encode(&hello, packet.hello);
    return muster_shm_packet_send(path->watch.fd, &packet, passed);
}

void muster_shm_dial(struct shm_link *link)
{
    struct shm_address address;
    link->redial_ns = MUSTER_NEVER;
    if (!find_address(link, &address)) {
        muster_link_try_next(link->link, "it is not on this host, or in another network");
        return;
    }
    socklen_t size;
    const struct sockaddr_un remote = socket_address(address.name, &size);
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&remote, size) != 0) {
        if (fd >= 0 && errno == EAGAIN) { /* many are calling it */
            link->redial_ns = muster_clock_after_ms(SHM_REDIAL_MS);
        } else {
            muster_link_try_next(link->link, strerror(errno));
        }
        return;
    }
    struct shm_path *path = make_path(link->shm, TAKE_FD(fd), SHM_PHASE_GREETING);
    if (path == NULL) {
        muster_link_try_next(link->link, "out of memory");
        return;
    }
    path->link = link;
    link->path = path;
    if (!send_hello(path)) {
        muster_link_try_next(link->link, "no shared memory could be made");
    }
}

/* The peer hung up before it had answered: it may be crowded by strangers. */
static void dial_again(struct shm_path *path)
{
    struct shm_link *link = path->link;
    muster_shm_path_close(path);
    if (++link->hang_ups >= SHM_HANG_UPS_MAX) {
        muster_link_try_next(link->link, "it closes the connection without an answer");
        return;
    }
    link->redial_ns = muster_clock_after_ms((uint32_t)SHM_REDIAL_MS << link->hang_ups);
}

static void confirm(struct shm_path *path, const struct shm_packet *answer)
{
    const struct shm_packet packet = {.kind = SHM_CONFIRM};
    if (memcmp(path->theirs->nonce, answer->nonce, SHM_NONCE_BYTES) != 0) {
        muster_link_try_next(path->link->link, "it does not see the same memory");
    } else if (!muster_shm_packet_send(path->watch.fd, &packet, -1)) {
        dial_again(path);
    } else {
        open_path(path);
    }
}

static void answered(struct shm_path *path, const struct shm_packet *packet)
{
    struct shm_link *link = path->link;
    if (packet->kind != SHM_ANSWER) {
        muster_link_try_next(link->link, "it answers otherwise than a Muster peer");
        return;
    }
    switch (packet->word) {
    case MUSTER_WELCOME:
        confirm(path, packet);
        break;
    case MUSTER_REFUSED_CROSSED:
        muster_shm_path_close(path); /* its call comes; if not, ours goes again */
        link->redial_ns = muster_clock_after_ms(SHM_CROSSED_MS);
        break;
    case MUSTER_REFUSED_VERSION:
    case MUSTER_REFUSED_TOKEN:
    case MUSTER_REFUSED_STRANGER:
    case MUSTER_REFUSED_LOST:
        muster_link_fail(link->link, MUSTER_LINK_LOST,
                         muster_verdict_text((enum muster_verdict)packet->word));
        break;
    default:
        muster_link_try_next(link->link, muster_verdict_text(MUSTER_REFUSED_MEMORY));
    }
}

/* Accepting ---------------------------------------------------------------------------------- */

static void turn_away(struct shm_path *path, enum muster_verdict verdict)
{
    const struct shm_packet packet = {.kind = SHM_ANSWER, .word = verdict};
    (void)muster_shm_packet_send(path->watch.fd, &packet, -1); /* a courtesy */
}

static void park(struct shm_path *path)
{
    struct shm *shm = path->shm;
    if (path->phase == SHM_PHASE_PARKED) {
        return;
    }
    if (shm->parked >= SHM_PARKED_MAX) {
        refuse(path, MUSTER_STRANGER_PUSHED);
        return;
    }
    shm->half_open--;
    shm->parked++;
    path->phase = SHM_PHASE_PARKED;
    path->deadline_ns = muster_clock_after_ms(SHM_PARKED_MS);
}

static struct shm_link *end_of(const struct muster_link *link)
{
    return link->ops == &muster_shm_ops ? link->end : NULL;
}

/* As over TCP: which of two calls counts must be decided alike by both ends, and a call that finds
 * an open link is turned down. One that finds the link on its way over another transport is told
 * so. */
static enum muster_verdict judge_call(struct shm *shm, struct muster_link *link)
{
    const struct shm_link *end = end_of(link);
    switch (link->state) {
    case MUSTER_LINK_IDLE:
        link->ops = &muster_shm_ops;
        link->transport = shm;
        muster_shm_accepted(link);
        return link->end != NULL ? MUSTER_WELCOME : MUSTER_REFUSED_LOST;
    case MUSTER_LINK_OPENING:
        if (end == NULL) {
            return MUSTER_REFUSED_MEMORY;
        }
        return end->path != NULL && end->path->phase == SHM_PHASE_GREETING &&
                       strcmp(shm->fabric->member, link->peer.member) < 0
                   ? MUSTER_REFUSED_CROSSED
                   : MUSTER_WELCOME;
    case MUSTER_LINK_OPEN:
        return end == NULL ? MUSTER_REFUSED_MEMORY : MUSTER_REFUSED_CROSSED;
    case MUSTER_LINK_LEFT:
    case MUSTER_LINK_LOST:
        break;
    }
    return MUSTER_REFUSED_LOST;
}

static void take_call(struct shm_path *path, struct muster_link *link)
{
    enum muster_verdict verdict = judge_call(path->shm, link);
    struct shm_link *end = end_of(link);
    if (verdict != MUSTER_WELCOME) {
        turn_away(path, verdict);
        muster_shm_path_close(path);
        return;
    }
    if (end->path != NULL) {
        muster_shm_path_close(end->path);
    }
    end->redial_ns = MUSTER_NEVER;
    leave_halves(path);
    path->phase = SHM_PHASE_PROVING;
    path->deadline_ns = muster_clock_after_ms(SHM_HELLO_MS);
    DL_APPEND(path->shm->halves, path);
    path->link = end;
    end->path = path;
    if (!muster_shm_prove(path)) {
        turn_away(path, MUSTER_REFUSED_MEMORY);
        muster_link_try_next(link, "what it passes is not shared memory");
        return;
    }
    struct shm_packet packet = {.kind = SHM_ANSWER, .word = MUSTER_WELCOME};
    muster_random_bytes(path->mine->nonce, SHM_NONCE_BYTES);
    memcpy(packet.nonce, path->mine->nonce, SHM_NONCE_BYTES);
    if (!muster_shm_packet_send(path->watch.fd, &packet, -1)) {
        muster_shm_path_close(path); /* the caller will notice, and dial again */
        end->redial_ns = muster_clock_ns();
    }
}

static void judge(struct shm_path *path)
{
    struct muster_fabric *fabric = path->shm->fabric;
    const struct muster_hello *hello = &path->hello;
    if (fabric->parting) {
        muster_shm_path_close(path);
        return;
    }
    if (fabric->generation == 0) {
        park(path); /* the link token is not known yet */
        return;
    }
    if (!muster_token_equal(hello->token, fabric->token)) {
        turn_away(path, MUSTER_REFUSED_TOKEN);
        refuse(path, MUSTER_STRANGER_TOKEN);
        return;
    }
    bool for_us = strcmp(hello->to, fabric->member) == 0;
    struct muster_link *link = muster_fabric_find_link(fabric, hello->from);
    if (for_us && link != NULL) {
        take_call(path, link);
    } else if (for_us && hello->generation > fabric->generation) {
        park(path);
    } else {
        turn_away(path, MUSTER_REFUSED_STRANGER);
        refuse(path, MUSTER_STRANGER_UNKNOWN);
    }
}

void muster_shm_judge_parked(struct shm *shm)
{
    struct shm_path *path = NULL;
    struct shm_path *next = NULL;
    DL_FOREACH_SAFE(shm->halves, path, next)
    {
        if (path->phase == SHM_PHASE_PARKED) {
            judge(path);
        }
    }
}

static void greeted(struct shm_path *path, const struct shm_packet *packet, int *memory_fd)
{
    if (packet->kind != SHM_HELLO) {
        refuse(path, MUSTER_STRANGER_GARBAGE);
        return;
    }
    path->memory_fd = TAKE_FD(*memory_fd);
    memcpy(path->nonce, packet->nonce, SHM_NONCE_BYTES);
    switch (muster_hello_decode(packet->hello, &path->hello)) {
    case MUSTER_OK:
        judge(path);
        break;
    case MUSTER_FATAL:
        turn_away(path, MUSTER_REFUSED_VERSION);
        refuse(path, MUSTER_STRANGER_VERSION);
        break;
    default:
        refuse(path, MUSTER_STRANGER_GARBAGE);
    }
}

static void confirmed(struct shm_path *path, const struct shm_packet *packet)
{
    if (packet->kind == SHM_CONFIRM) {
        open_path(path);
    } else {
        muster_link_try_next(path->link->link, "it answers otherwise than a Muster peer");
    }
}

static void push_out_oldest(struct shm *shm)
{
    struct shm_path *path = NULL;
    DL_FOREACH(shm->halves, path)
    {
        if (path->phase == SHM_PHASE_HELLO) {
            refuse(path, MUSTER_STRANGER_PUSHED);
            return;
        }
    }
}

static void accept_ready(struct muster_watch *watch, uint32_t events)
{
    struct shm *shm = (struct shm *)watch;
    (void)events;
    for (int i = 0; i < SHM_PACKETS_MAX && !watch->retired; i++) {
        int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
                shm->accept_again_ns = muster_clock_after_ms(SHM_ACCEPT_PAUSE_MS);
                muster_watch_change(shm->fabric, watch, 0);
            }
            return;
        }
        if (shm->half_open >= SHM_HALF_OPEN_MAX) {
            push_out_oldest(shm);
        }
        struct shm_path *path = make_path(shm, fd, SHM_PHASE_HELLO);
        if (path != NULL) {
            path->deadline_ns = muster_clock_after_ms(SHM_HELLO_MS);
        }
    }
}

/* Packets ------------------------------------------------------------------------------------ */

static void hung_up(struct shm_path *path)
{
    switch (path->phase) {
    case SHM_PHASE_GREETING:
        dial_again(path);
        break;
    case SHM_PHASE_HELLO:
    case SHM_PHASE_PARKED:
        refuse(path, errno == EPROTO ? MUSTER_STRANGER_GARBAGE : MUSTER_STRANGER_SILENT);
        break;
    case SHM_PHASE_PROVING:
        muster_link_try_next(path->link->link, "it does not confirm that it sees the same memory");
        break;
    case SHM_PHASE_OPEN:
        muster_shm_ended(path->link,
                         errno == 0 ? "it closed the connection without goodbye" : strerror(errno));
    }
}

static void packet_came(struct shm_path *path, const struct shm_packet *packet, int *fd)
{
    switch (path->phase) {
    case SHM_PHASE_GREETING:
        answered(path, packet);
        break;
    case SHM_PHASE_HELLO:
        greeted(path, packet, fd);
        break;
    case SHM_PHASE_PARKED:
        refuse(path, MUSTER_STRANGER_GARBAGE); /* it has to wait for us */
        break;
    case SHM_PHASE_PROVING:
        confirmed(path, packet);
        break;
    case SHM_PHASE_OPEN:
        muster_shm_packet_came(path->link, packet, fd);
    }
}

bool muster_shm_packets(struct shm_path *path)
{
    const struct muster_watch *watch = &path->watch;
    for (int i = 0; i < SHM_PACKETS_MAX && !watch->retired; i++) {
        struct shm_packet packet;
        AUTO_CLOSE int fd = -1;
        int got = muster_shm_packet_receive(watch->fd, &packet, &fd);
        if (got == 0) {
            return true;
        }
        if (got < 0) {
            hung_up(path);
            return false;
        }
        packet_came(path, &packet, &fd);
    }
    return !watch->retired;
}

static void path_ready(struct muster_watch *watch, uint32_t events)
{
    (void)events;
    (void)muster_shm_packets((struct shm_path *)watch);
}

/* Time --------------------------------------------------------------------------------------- */

static void expire(struct shm_path *path)
{
    if (path->phase == SHM_PHASE_PROVING) {
        muster_link_try_next(path->link->link, "it does not confirm that it sees the same memory");
    } else {
        refuse(path, path->phase == SHM_PHASE_HELLO ? MUSTER_STRANGER_SLOW : MUSTER_STRANGER_EARLY);
    }
}

static int64_t expire_halves(struct shm *shm, int64_t now_ns)
{
    int64_t due_ns = MUSTER_NEVER;
    struct shm_path *path = shm->halves;
    while (path != NULL) {
        if (path->deadline_ns <= now_ns) {
            expire(path);
            path = shm->halves; /* a lost link may have closed others */
            due_ns = MUSTER_NEVER;
            continue;
        }
        due_ns = path->deadline_ns < due_ns ? path->deadline_ns : due_ns;
        path = path->next;
    }
    return due_ns;
}

static int64_t redial(struct shm *shm, int64_t now_ns)
{
    int64_t due_ns = MUSTER_NEVER;
    struct shm_link *link = shm->links;
    while (link != NULL) {
        if (link->redial_ns <= now_ns) {
            muster_shm_dial(link);
            link = shm->links;
            due_ns = MUSTER_NEVER;
            continue;
        }
        due_ns = link->redial_ns < due_ns ? link->redial_ns : due_ns;
        link = link->next;
    }
    return due_ns;
}

int64_t muster_shm_connect_timers(struct shm *shm, int64_t now_ns)
{
    int64_t due_ns = expire_halves(shm, now_ns);
    int64_t redial_ns = redial(shm, now_ns);
    if (shm->accept_again_ns <= now_ns) {
        shm->accept_again_ns = MUSTER_NEVER;
        muster_watch_change(shm->fabric, &shm->listener, EPOLLIN);
    }
    due_ns = redial_ns < due_ns ? redial_ns : due_ns;
    return shm->accept_again_ns < due_ns ? shm->accept_again_ns : due_ns;
}

/* Listening ---------------------------------------------------------------------------------- */

static void free_shm(struct muster_watch *watch)
{
    struct shm *shm = (struct shm *)watch;
    free(shm->piece);
    free(shm);
}

muster_status muster_shm_listen(struct shm *shm)
{
    char uuid[MUSTER_UUID_SIZE];
    muster_random_uuid(uuid);
    (void)snprintf(shm->own.name, sizeof shm->own.name, "muster-%s", uuid);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return muster_error_errno(MUSTER_FATAL, "a socket for this host's members");
    }
    shm->listener =
        (struct muster_watch){.fd = fd, .events = EPOLLIN, .ready = accept_ready, .free = free_shm};
    socklen_t size;
    const struct sockaddr_un own = socket_address(shm->own.name, &size);
    if (bind(fd, (const struct sockaddr *)&own, size) != 0 || listen(fd, SOMAXCONN) != 0) {
        return muster_error_errno(MUSTER_FATAL, "a socket for this host's members");
    }
    return muster_watch_add(shm->fabric, &shm->listener);
}
