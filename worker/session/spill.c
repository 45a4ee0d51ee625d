/* The thread that writes committed states to files, and the reading of the newest. */
#include "worker/session/spill.h"

#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"

static struct muster_spill_place place_of(const struct muster_session *session)
{
    return (struct muster_spill_place){.folder = session->settings.spill,
                                       .job = session->settings.job};
}

/* Waits so that two files begin spill_every_ms apart. */
static void wait_for_turn(struct muster_session *session, int64_t turn_ns)
{
    struct muster_spill *spill = &session->spill;
    AUTO_LOCK(&spill->mutex);
    while (!atomic_load(&spill->stop) &&
           muster_condition_wait(&spill->changed, &spill->mutex, turn_ns)) {
    }
}

/* Another rank than 0 has nothing to write; it may become rank 0. */
static void write_one(struct muster_session *session, const struct muster_state_reading *reading)
{
    struct muster_spill *spill = &session->spill;
    const struct muster_spill_place place = place_of(session);
    if (atomic_load(&session->ranks[MUSTER_GLOBAL]) != 0) {
        return;
    }
    uint64_t followed = atomic_load(&spill->generation);
    const struct muster_spill_key key = {
        .generation =
            reading->committed_generation > followed ? reading->committed_generation : followed,
        .version = reading->version,
    };
    muster_status status = muster_spill_file_write(&place, &session->state, reading->bytes, key);
    if (status != MUSTER_OK) {
        if (!spill->failed) {
            muster_log(MUSTER_LOG_WARN, "%s: the job goes on without this file",
                       muster_last_error());
        }
    } else {
        muster_spill_file_prune(&place, session->settings.spill_keep);
    }
    spill->failed = status != MUSTER_OK;
}

static void *run(void *argument)
{
    struct muster_session *session = argument;
    struct muster_spill *spill = &session->spill;
    struct muster_state_reading reading;
    int64_t turn_ns = 0;
    uint64_t version = 0;
    for (;;) {
        wait_for_turn(session, turn_ns);
        uint64_t followed = atomic_load(&spill->version);
        if (!muster_state_begin_reading(&session->state, version > followed ? version : followed,
                                        &spill->stop, &reading)) {
            return NULL;
        }
        turn_ns = muster_clock_after_ms(session->settings.spill_every_ms);
        version = reading.version;
        write_one(session, &reading);
        muster_state_end_reading(&session->state);
    }
}

muster_status muster_session_start_spill(struct muster_session *session)
{
    struct muster_spill *spill = &session->spill;
    if (session->settings.spill == NULL) {
        return MUSTER_OK;
    }
    muster_mutex_init(&spill->mutex);
    muster_condition_init(&spill->changed);
    if (pthread_create(&spill->thread, NULL, run, session) != 0) {
        return muster_error_set(MUSTER_FATAL, "no thread to spill the state");
    }
    spill->started = true;
    return MUSTER_OK;
}

void muster_session_stop_spill(struct muster_session *session)
{
    struct muster_spill *spill = &session->spill;
    if (!spill->started) {
        return;
    }
    muster_mutex_lock(&spill->mutex);
    atomic_store(&spill->stop, true);
    (void)pthread_cond_broadcast(&spill->changed);
    muster_mutex_unlock(&spill->mutex);
    muster_state_wake_reader(&session->state);
    (void)pthread_join(spill->thread, NULL);
    (void)pthread_cond_destroy(&spill->changed);
    (void)pthread_mutex_destroy(&spill->mutex);
    spill->started = false;
}

muster_status muster_session_read_spilled(struct muster_session *session,
                                          struct muster_spill_key *ret_key)
{
    const struct muster_spill_place place = place_of(session);
    AUTO_FREE struct muster_spill_key *keys = calloc(MUSTER_SPILL_FILES_MAX, sizeof *keys);
    uint32_t count = 0;
    *ret_key = (struct muster_spill_key){0};
    if (keys == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    if (muster_spill_file_list(&place, keys, &count) != MUSTER_OK) {
        muster_log(MUSTER_LOG_WARN, "%s", muster_last_error());
    }
    for (uint32_t i = 0; i < count; i++) {
        muster_status status =
            muster_spill_file_read(&place, &session->state, keys[i], session->state.copy);
        if (status == MUSTER_OK) {
            *ret_key = keys[i];
            return MUSTER_OK;
        }
        if (status == MUSTER_FATAL) {
            return status;
        }
        muster_log(MUSTER_LOG_WARN, "%s: it is not used", muster_last_error());
    }
    return MUSTER_OK;
}

void muster_session_follow_spilled(struct muster_session *session, struct muster_spill_key key)
{
    atomic_store(&session->spill.version, key.version);
    atomic_store(&session->spill.generation, key.generation);
}
