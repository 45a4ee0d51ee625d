/* The session's slot and its lock. */
#include "worker/session/slot.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "worker/base/clock.h"
#include "worker/base/fork_guard.h"
#include "worker/base/log.h"
#include "worker/session/slot_lock.h"

enum {
    HOLDER_ENDS_MS = 2000, /* for a process that was killed and has not ended yet */
    HOLDER_POLL_MS = 10,
};

_Static_assert((int)MUSTER_SLOT_LOCK_DOMAIN_SIZE == (int)MUSTER_SLOT_LOCK_SIZE,
               "a Join has room for the domain of a lock");

static struct muster_slot_place place_of(const struct muster_session *session)
{
    const struct muster_settings *settings = &session->settings;
    return (struct muster_slot_place){
        .rendezvous = settings->rendezvous, .job = settings->job, .host = settings->host};
}

static void set(struct muster_session *session, uint32_t slot, int fd)
{
    muster_session_release_slot(session);
    session->slot_fd = fd;
    atomic_store(&session->slot, slot);
}

/* Without such locks on this system the service alone keeps slots apart. */
static muster_status go_without(struct muster_session *session, uint32_t slot)
{
    muster_log(MUSTER_LOG_WARN, "%s: the slots of this host are not locked", muster_last_error());
    set(session, slot, -1);
    return MUSTER_OK;
}

/* The lowest whose lock is free. */
static muster_status take_any(struct muster_session *session)
{
    const struct muster_slot_place place = place_of(session);
    for (uint32_t slot = 0; slot < MUSTER_MEMBERS_MAX; slot++) {
        int fd = -1;
        muster_status status = muster_slot_lock_take(&place, slot, &fd);
        if (status == MUSTER_OK) {
            set(session, slot, fd);
            return MUSTER_OK;
        }
        if (status != MUSTER_RETRY) {
            return go_without(session, slot);
        }
    }
    return muster_error_set(MUSTER_FATAL, "host %s has no free slot", session->settings.host);
}

static muster_status refuse(const struct muster_slot_place *place, uint32_t slot, pid_t holder)
{
    char process[32] = "";
    if (holder != 0) {
        (void)snprintf(process, sizeof process, " (pid %d)", (int)holder);
    }
    return muster_error_set(
        MUSTER_INVALID, "slot %u (MUSTER_SLOT) of host %s: another process%s of job %s holds it",
        slot, place->host, process, place->job);
}

/* A second session of one process has a slot of its own, whatever its environment says. */
static muster_status take_given(struct muster_session *session, uint32_t slot)
{
    const struct muster_slot_place place = place_of(session);
    int64_t deadline_ns = muster_clock_after_ms(HOLDER_ENDS_MS);
    pid_t holder = -1; /* not asked yet */
    for (;;) {
        int fd = -1;
        muster_status status = muster_slot_lock_take(&place, slot, &fd);
        if (status == MUSTER_OK) {
            set(session, slot, fd);
            return MUSTER_OK;
        }
        if (status != MUSTER_RETRY) {
            return go_without(session, slot);
        }
        holder = holder < 0 ? muster_slot_lock_holder(&place, slot) : holder;
        if (holder == getpid()) {
            session->settings.slot = MUSTER_NO_SLOT;
            return take_any(session);
        }
        if (muster_clock_left_ms(deadline_ns) == 0) {
            return refuse(&place, slot, holder);
        }
        struct timespec wait = {.tv_nsec = HOLDER_POLL_MS * 1000L * 1000};
        (void)nanosleep(&wait, NULL);
    }
}

muster_status muster_session_take_slot(struct muster_session *session)
{
    uint32_t given = session->settings.slot;
    return given == MUSTER_NO_SLOT ? take_any(session) : take_given(session, given);
}

void muster_session_state_slot(const struct muster_session *session,
                               struct muster_member_info *info)
{
    const struct muster_slot_place place = place_of(session);
    info->has_slot = true;
    info->slot = atomic_load(&session->slot);
    info->slot_any = session->settings.slot == MUSTER_NO_SLOT;
    if (session->slot_fd >= 0) {
        muster_slot_lock_domain(&place, info->slot_lock);
    }
}

muster_status muster_session_adopt_slot(struct muster_session *session, uint32_t slot)
{
    if (slot == atomic_load(&session->slot) || session->settings.slot != MUSTER_NO_SLOT) {
        return MUSTER_OK;
    }
    const struct muster_slot_place place = place_of(session);
    int fd = -1;
    muster_status status = muster_slot_lock_take(&place, slot, &fd);
    if (status == MUSTER_RETRY) {
        return muster_error_prefix(MUSTER_INVALID, "the service gives this member a slot");
    }
    set(session, slot, fd);
    return MUSTER_OK;
}

void muster_session_set_slot_without_service(struct muster_session *session)
{
    uint32_t given = session->settings.slot;
    atomic_store(&session->slot,
                 given != MUSTER_NO_SLOT ? given : atomic_load(&session->ranks[MUSTER_LOCAL]));
}

void muster_session_release_slot(struct muster_session *session)
{
    if (session->slot_fd >= 0) {
        muster_fork_guard_close(session->slot_fd);
        session->slot_fd = -1;
    }
}

uint32_t muster_slot(const muster_session *session)
{
    return atomic_load(&session->slot);
}
