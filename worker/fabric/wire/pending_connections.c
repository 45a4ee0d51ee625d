#include "worker/fabric/wire/pending_connections.h"

#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utlist.h>

/* Who has come less than 100 ms ago may be a member that is about to say so. */
static const int64_t spared_ns = (MUSTER_HELLO_MS - 100) * INT64_C(1000000);

static const int64_t say_again_after_ns = INT64_C(60) * 1000 * 1000 * 1000;

/* Records ------------------------------------------------------------------------------------ */

void *muster_half_create(struct muster_halves *halves, size_t size_bytes, enum muster_phase phase,
                         const struct muster_watch *watch)
{
    struct muster_half *half = calloc(1, size_bytes);
    if (half == NULL) {
        close(watch->fd);
        return NULL;
    }
    half->all = halves;
    half->watch = *watch;
    half->watch.ready = halves->ops->ready;
    half->phase = phase;
    half->deadline_ns = MUSTER_NEVER;
    if (muster_watch_add(halves->fabric, &half->watch) != MUSTER_OK) {
        close(half->watch.fd);
        free(half);
        return NULL;
    }
    DL_APPEND(halves->list, half);
    halves->half_open += phase == MUSTER_PHASE_HELLO;
    return half;
}

static void uncount(const struct muster_half *half)
{
    half->all->half_open -= half->phase == MUSTER_PHASE_HELLO;
    half->all->parked -= half->phase == MUSTER_PHASE_PARKED;
}

bool muster_half_ended(const struct muster_half *half)
{
    struct pollfd look = {.fd = half->watch.fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) == 1 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void muster_half_leave(struct muster_half *half)
{
    if (half->phase == MUSTER_PHASE_OPEN) {
        return;
    }
    uncount(half);
    DL_DELETE(half->all->list, half);
    half->phase = MUSTER_PHASE_OPEN;
    half->deadline_ns = MUSTER_NEVER;
}

void muster_half_prove(struct muster_half *half)
{
    uncount(half);
    half->phase = MUSTER_PHASE_PROVING;
    half->deadline_ns = muster_clock_after_ms(MUSTER_HELLO_MS);
}

void muster_half_refuse_because(struct muster_half *half, enum muster_stranger kind,
                                const char *why)
{
    char from[MUSTER_ADDRESS_SIZE];
    struct muster_halves *halves = half->all;
    halves->ops->from(half, from);
    muster_strangers_note(&halves->strangers, kind, from, why, muster_clock_ns());
    halves->fabric->figures.strangers_refused++;
    halves->ops->close(half);
}

void muster_half_refuse(struct muster_half *half, enum muster_stranger kind)
{
    muster_half_refuse_because(half, kind, NULL);
}

/* Hellos ------------------------------------------------------------------------------------- */

int muster_half_heard(ssize_t got, uint32_t size_bytes, uint32_t *have)
{
    if (got < 0) {
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    }
    if (got == 0) {
        errno = 0;
        return -1;
    }
    *have += (uint32_t)got;
    return *have == size_bytes;
}

void muster_half_turn_away(struct muster_half *half, enum muster_verdict verdict,
                           enum muster_stranger kind)
{
    (void)half->all->ops->answer(half, verdict); /* a courtesy */
    muster_half_refuse(half, kind);
}

/* Whether another call of the same attempt waits already: a caller that tries several addresses at
 * once keeps the one that is told to wait. */
static bool waits_already(const struct muster_half *half)
{
    const struct muster_half *each = NULL;
    DL_FOREACH(half->all->list, each)
    {
        if (each->phase == MUSTER_PHASE_PARKED && half->hello.ticket != 0 &&
            each->hello.ticket == half->hello.ticket && each->hello.index == half->hello.index &&
            strcmp(each->hello.from, half->hello.from) == 0) {
            return true;
        }
    }
    return false;
}

static void park(struct muster_half *half)
{
    struct muster_halves *halves = half->all;
    if (half->phase == MUSTER_PHASE_PARKED) {
        return;
    }
    if (waits_already(half)) {
        (void)halves->ops->answer(half, MUSTER_REFUSED_CROSSED);
        halves->ops->close(half);
        return;
    }
    if (halves->parked >= MUSTER_PARKED_MAX) {
        muster_half_refuse(half, MUSTER_STRANGER_PUSHED);
        return;
    }
    uncount(half);
    halves->parked++;
    half->phase = MUSTER_PHASE_PARKED;
    half->deadline_ns = muster_clock_after_ms(MUSTER_PARKED_MS);
    if (!halves->ops->answer(half, MUSTER_WAIT)) {
        halves->ops->close(half); /* the caller will notice, and dial again */
    }
}

static void judge(struct muster_half *half)
{
    struct muster_halves *halves = half->all;
    struct muster_fabric *fabric = halves->fabric;
    const struct muster_hello *hello = &half->hello;
    bool for_us = strcmp(hello->to, fabric->member) == 0;
    if (fabric->parting) {
        halves->ops->close(half);
        return;
    }
    if (fabric->generation == 0 && for_us) {
        park(half); /* the link token is not known yet */
        return;
    }
    if (fabric->generation > 0 && !muster_token_equal(hello->token, fabric->token)) {
        muster_half_turn_away(half, MUSTER_REFUSED_TOKEN, MUSTER_STRANGER_TOKEN);
        return;
    }
    struct muster_link *link = muster_fabric_find_link(fabric, hello->from);
    if (for_us && link != NULL) {
        halves->ops->take(half, link);
    } else if (for_us && hello->generation > fabric->generation) {
        park(half);
    } else {
        muster_half_turn_away(half, MUSTER_REFUSED_STRANGER, MUSTER_STRANGER_UNKNOWN);
    }
}

void muster_half_greeted(struct muster_half *half, const unsigned char bytes[MUSTER_HELLO_SIZE])
{
    switch (muster_hello_decode(bytes, &half->hello)) {
    case MUSTER_OK:
        judge(half);
        break;
    case MUSTER_FATAL:
        muster_half_turn_away(half, MUSTER_REFUSED_VERSION, MUSTER_STRANGER_VERSION);
        break;
    default:
        muster_half_refuse(half, MUSTER_STRANGER_GARBAGE);
    }
}

void muster_halves_judge_parked(struct muster_halves *halves)
{
    struct muster_half *half = NULL;
    struct muster_half *next = NULL;
    DL_FOREACH_SAFE(halves->list, half, next)
    {
        if (half->phase == MUSTER_PHASE_PARKED) {
            judge(half);
        }
    }
}

static enum muster_verdict begin_link(struct muster_halves *halves, struct muster_link *link)
{
    muster_link_called(link, halves);
    return muster_dialler_begin(halves, link) ? MUSTER_WELCOME : MUSTER_REFUSED_LOST;
}

/* A hello may also come late, when the caller has already taken our call instead: one that finds an
 * open link is turned down. If its sender means it, because the link is dead and we do not know
 * yet, it dials again. */
static enum muster_verdict verdict_on(struct muster_halves *halves, struct muster_link *link)
{
    const struct muster_half_ops *ops = halves->ops;
    bool ours = link->transport == halves && link->end != NULL;
    switch (link->state) {
    case MUSTER_LINK_IDLE:
        return begin_link(halves, link);
    case MUSTER_LINK_OPENING:
        if (!ours) {
            return ops->elsewhere;
        }
        return ops->calls(link) && strcmp(halves->fabric->member, link->peer.member) < 0
                   ? MUSTER_REFUSED_CROSSED
                   : MUSTER_WELCOME;
    case MUSTER_LINK_OPEN:
        return ours ? MUSTER_REFUSED_CROSSED : ops->elsewhere;
    case MUSTER_LINK_LEFT:
    case MUSTER_LINK_LOST:
        break;
    }
    return MUSTER_REFUSED_LOST;
}

bool muster_half_counts(struct muster_half *half, struct muster_link *link)
{
    const struct muster_half_ops *ops = half->all->ops;
    enum muster_verdict verdict = verdict_on(half->all, link);
    if (verdict != MUSTER_WELCOME) {
        (void)ops->answer(half, verdict);
        ops->close(half);
        return false;
    }
    struct muster_dialler *end = link->end;
    end->redial_ns = MUSTER_NEVER;
    return true;
}

/* The caller will notice, and dial again, too. */
void muster_half_unheard(struct muster_half *half, struct muster_link *link)
{
    struct muster_dialler *end = link->end;
    half->all->ops->close(half);
    end->redial_ns = muster_clock_ns();
}

struct muster_hello muster_hello_to(const struct muster_link *link)
{
    const struct muster_fabric *fabric = link->fabric;
    struct muster_hello hello = {.generation = fabric->generation};
    memcpy(hello.from, fabric->member, sizeof hello.from);
    memcpy(hello.to, link->peer.member, sizeof hello.to);
    memcpy(hello.token, fabric->token, sizeof hello.token);
    return hello;
}

void muster_half_refused(struct muster_half *half, struct muster_link *link,
                         enum muster_verdict verdict)
{
    switch (verdict) {
    case MUSTER_REFUSED_CROSSED:
        half->all->ops->close(half);
        muster_dialler_crossed(link->end);
        break;
    case MUSTER_REFUSED_VERSION:
    case MUSTER_REFUSED_TOKEN:
    case MUSTER_REFUSED_STRANGER:
    case MUSTER_REFUSED_LOST:
        muster_link_fail(link, MUSTER_LINK_LOST, muster_verdict_text(verdict));
        break;
    default:
        muster_link_try_next(link, muster_verdict_text(verdict));
    }
}

void muster_half_hung_up(struct muster_half *half, struct muster_link *link)
{
    half->all->ops->close(half);
    if (!muster_dialler_again(link->end)) {
        muster_link_try_next(link, "it closes the connection without an answer");
    }
}

/* Diallers ----------------------------------------------------------------------------------- */

bool muster_dialler_begin(struct muster_halves *halves, struct muster_link *link)
{
    struct muster_dialler *end = calloc(1, halves->ops->end_size_bytes);
    if (end == NULL) {
        muster_link_fail(link, MUSTER_LINK_LOST, "out of memory");
        return false;
    }
    link->end = end;
    link->state = MUSTER_LINK_OPENING;
    halves->ops->init_end(link);
    end->redial_ns = MUSTER_NEVER;
    DL_APPEND(halves->diallers, end);
    return true;
}

bool muster_dialler_again(struct muster_dialler *dialler)
{
    if (++dialler->hang_ups >= MUSTER_HANG_UPS_MAX) {
        return false;
    }
    dialler->redial_ns = muster_clock_after_ms((uint32_t)MUSTER_REDIAL_MS << dialler->hang_ups);
    return true;
}

void muster_dialler_crossed(struct muster_dialler *dialler)
{
    dialler->redial_ns = muster_clock_after_ms(MUSTER_CROSSED_MS);
}

void muster_dialler_missed(struct muster_dialler *dialler)
{
    if (dialler->redial_ns == MUSTER_NEVER) {
        dialler->redial_ns = muster_clock_after_ms((uint32_t)MUSTER_MISSING_MS << dialler->missed);
        dialler->missed += dialler->missed < MUSTER_MISSING_DOUBLINGS;
    }
}

void muster_dialler_lost(struct muster_dialler *dialler)
{
    dialler->missed = 0;
    dialler->redial_ns = MUSTER_NEVER;
    muster_dialler_missed(dialler);
}

/* Accepting ---------------------------------------------------------------------------------- */

static void push_out_oldest(struct muster_halves *halves)
{
    struct muster_half *half = NULL;
    DL_FOREACH(halves->list, half)
    {
        if (half->phase == MUSTER_PHASE_HELLO) {
            muster_half_refuse(half, MUSTER_STRANGER_PUSHED);
            return;
        }
    }
}

bool muster_half_make_room(struct muster_halves *halves)
{
    int64_t now_ns = muster_clock_ns();
    struct muster_half *half = NULL;
    if (halves->fabric->busy) {
        return false; /* perhaps with this very connection */
    }
    DL_FOREACH(halves->list, half)
    {
        if (half->phase == MUSTER_PHASE_HELLO) {
            int64_t left_ns = half->deadline_ns - now_ns;
            if (!half->prolonged && left_ns > spared_ns) {
                return false; /* it has just come, and the others are younger */
            }
            muster_half_refuse(half, MUSTER_STRANGER_PUSHED);
            return true;
        }
    }
    return false;
}

static void watch_listeners(struct muster_halves *halves, uint32_t events)
{
    for (struct muster_listener *each = halves->listeners; each != NULL; each = each->next) {
        muster_watch_change(halves->fabric, &each->watch, events);
    }
}

/* Strangers may be what holds the descriptors: they have their time, then there is room. */
static void note_exhausted(struct muster_halves *halves, int error)
{
    struct muster_fabric *fabric = halves->fabric;
    int64_t now_ns = muster_clock_ns();
    if (!muster_is_exhausted(error) || halves->half_open > 0) {
        return;
    }
    if (!fabric->lost) {
        (void)snprintf(fabric->exhausted, sizeof fabric->exhausted,
                       "this process has no descriptor left for a peer's call (ulimit -n): %s",
                       strerror(error));
    }
    if (now_ns >= halves->say_again_ns) {
        halves->say_again_ns = now_ns + say_again_after_ns;
        muster_log(MUSTER_LOG_WARN, "no descriptor left for a peer's call (ulimit -n): %s",
                   strerror(error));
    }
}

static void pause_accepting(struct muster_halves *halves, int error)
{
    note_exhausted(halves, error);
    halves->accept_again_ns = muster_clock_after_ms(MUSTER_ACCEPT_PAUSE_MS);
    watch_listeners(halves, 0);
}

static bool lacks_room(int error)
{
    return muster_is_exhausted(error) || error == ENOMEM || error == ENOBUFS;
}

static void accept_ready(struct muster_watch *watch, uint32_t events)
{
    struct muster_halves *halves = ((struct muster_listener *)watch)->halves;
    (void)events;
    for (int i = 0; i < MUSTER_ACCEPTS_MAX && !watch->retired; i++) {
        struct muster_socket_address remote = {.size = sizeof remote.storage};
        int fd = accept4(watch->fd, (struct sockaddr *)&remote.storage, &remote.size,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            int error = errno;
            if (lacks_room(error) && muster_half_make_room(halves)) {
                continue;
            }
            if (lacks_room(error)) {
                pause_accepting(halves, error);
            }
            return;
        }
        if (!halves->fabric->lost) {
            halves->fabric->exhausted[0] = '\0'; /* there is room again */
        }
        if (halves->half_open >= MUSTER_HALF_OPEN_MAX) {
            push_out_oldest(halves);
        }
        struct muster_half *half = halves->ops->accepted(halves, fd, &remote);
        if (half != NULL) {
            half->deadline_ns = muster_clock_after_ms(MUSTER_HELLO_MS);
        }
    }
}

/* Time --------------------------------------------------------------------------------------- */

static void expire(struct muster_half *half)
{
    if (half->phase == MUSTER_PHASE_HELLO) {
        muster_half_refuse(half, MUSTER_STRANGER_SLOW);
    } else if (half->phase == MUSTER_PHASE_PARKED) {
        muster_half_refuse(half, MUSTER_STRANGER_EARLY);
    } else {
        half->all->ops->expired(half);
    }
}

/* A member that has not looked for seconds, because it computed or had no processor, must not take
 * that for the peer's silence: what lies in the kernel is looked at first. Once only, so that
 * nobody keeps a connection half open by sending a byte now and then. */
static bool prolong(struct muster_half *half)
{
    struct pollfd look = {.fd = half->watch.fd,
                          .events = (half->watch.events & EPOLLOUT) != 0 ? POLLOUT : POLLIN};
    if (half->prolonged || poll(&look, 1, 0) != 1) {
        return false;
    }
    half->prolonged = true;
    half->deadline_ns = muster_clock_after_ms(MUSTER_HELLO_MS);
    return true;
}

static int64_t expire_halves(struct muster_halves *halves, int64_t now_ns)
{
    int64_t due_ns = MUSTER_NEVER;
    struct muster_half *half = halves->list;
    while (half != NULL) {
        if (half->deadline_ns <= now_ns && !prolong(half)) {
            expire(half);
            half = halves->list; /* a lost link may have closed others */
            due_ns = MUSTER_NEVER;
            continue;
        }
        due_ns = half->deadline_ns < due_ns ? half->deadline_ns : due_ns;
        half = half->next;
    }
    return due_ns;
}

static int64_t redial(struct muster_halves *halves, int64_t now_ns)
{
    int64_t due_ns = MUSTER_NEVER;
    struct muster_dialler *dialler = halves->diallers;
    while (dialler != NULL) {
        if (dialler->redial_ns <= now_ns) {
            dialler->redial_ns = MUSTER_NEVER;
            halves->ops->dial(dialler);
            dialler = halves->diallers;
            due_ns = MUSTER_NEVER;
            continue;
        }
        due_ns = dialler->redial_ns < due_ns ? dialler->redial_ns : due_ns;
        dialler = dialler->next;
    }
    return due_ns;
}

int64_t muster_halves_timers(struct muster_halves *halves, int64_t now_ns)
{
    int64_t due_ns = expire_halves(halves, now_ns);
    int64_t redial_ns = redial(halves, now_ns);
    if (halves->accept_again_ns <= now_ns) {
        halves->accept_again_ns = MUSTER_NEVER;
        watch_listeners(halves, EPOLLIN);
    }
    due_ns = redial_ns < due_ns ? redial_ns : due_ns;
    return halves->accept_again_ns < due_ns ? halves->accept_again_ns : due_ns;
}

/* Beginning and end -------------------------------------------------------------------------- */

void muster_halves_init(struct muster_halves *halves, struct muster_fabric *fabric,
                        const struct muster_half_ops *ops)
{
    halves->fabric = fabric;
    halves->ops = ops;
    halves->accept_again_ns = MUSTER_NEVER;
}

/* The last one to go takes the transport's object along. */
static void free_listener(struct muster_watch *watch)
{
    struct muster_listener *listener = (struct muster_listener *)watch;
    struct muster_halves *halves = listener->halves;
    LL_DELETE(halves->listeners, listener);
    free(listener);
    if (halves->listeners == NULL) {
        halves->ops->free(halves);
    }
}

muster_status muster_halves_listen(struct muster_halves *halves, int fd)
{
    struct muster_listener *listener = calloc(1, sizeof *listener);
    if (listener == NULL) {
        close(fd);
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    listener->halves = halves;
    listener->watch = (struct muster_watch){
        .fd = fd, .events = EPOLLIN, .ready = accept_ready, .free = free_listener};
    muster_status status = muster_watch_add(halves->fabric, &listener->watch);
    if (status != MUSTER_OK) {
        close(fd);
        free(listener);
        return status;
    }
    LL_PREPEND(halves->listeners, listener);
    return MUSTER_OK;
}

void muster_halves_stop(struct muster_halves *halves)
{
    while (halves->list != NULL) {
        halves->ops->close(halves->list);
    }
    if (halves->listeners == NULL) {
        halves->ops->free(halves);
        return;
    }
    for (struct muster_listener *each = halves->listeners; each != NULL; each = each->next) {
        muster_watch_retire(halves->fabric, &each->watch);
    }
}
