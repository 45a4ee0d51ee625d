/* When the contexts of process sets are destroyed. */
#include "worker/session/session_sets.h"

#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/session/generation_guard.h"

enum { RETIRED_FIRST = 8 };

void muster_session_sets_init(struct muster_session *session)
{
    muster_mutex_init(&session->sets.mutex);
}

void muster_session_sets_finish(struct muster_session *session)
{
    muster_process_sets_finish(&session->sets.table);
    free(session->sets.retired);
    free(session->sets.member_ids);
    (void)pthread_mutex_destroy(&session->sets.mutex);
}

void muster_session_retire_set_locked(struct muster_session *session,
                                      struct muster_context *context)
{
    struct muster_session_sets *sets = &session->sets;
    if (context == NULL) {
        return;
    }
    if (sets->retired_count == sets->retired_room) {
        size_t room = sets->retired_room == 0 ? RETIRED_FIRST : 2 * sets->retired_room;
        /* NOLINTNEXTLINE(bugprone-sizeof-expression): the elements are pointers */
        struct muster_context **retired = realloc(sets->retired, room * sizeof *retired);
        if (retired == NULL) {
            muster_log(MUSTER_LOG_WARN, "no memory: the context of a freed process set is lost");
            return;
        }
        sets->retired = retired;
        sets->retired_room = room;
    }
    sets->retired[sets->retired_count++] = context;
}

/* Takes one out that no call uses; NULL: there is none. */
static struct muster_context *take_idle(struct muster_session_sets *sets)
{
    AUTO_LOCK(&sets->mutex);
    for (size_t i = 0; i < sets->retired_count; i++) {
        struct muster_context *context = sets->retired[i];
        if (muster_context_is_idle(context)) {
            sets->retired[i] = sets->retired[--sets->retired_count];
            sets->former_progress += muster_context_progress(context);
            return context;
        }
    }
    return NULL;
}

void muster_session_reap_sets(struct muster_session *session)
{
    struct muster_context *context = NULL;
    if (!muster_session_hold_generation_alone(
            session)) { /* a later call finds no retired context */
        return;         /* the next free does it, or the end of the generation */
    }
    while ((context = take_idle(&session->sets)) != NULL) {
        muster_context_destroy(context);
    }
    muster_session_release_generation(session);
}

void muster_session_end_sets(struct muster_session *session)
{
    struct muster_session_sets *sets = &session->sets;
    struct muster_process_sets *table = &sets->table;
    muster_mutex_lock(&sets->mutex);
    for (uint32_t i = 0; i < table->slot_count; i++) {
        muster_session_retire_set_locked(session, TAKE(table->slots[i].context));
    }
    struct muster_context **retired = TAKE(sets->retired);
    size_t count = sets->retired_count;
    sets->retired_count = 0;
    sets->retired_room = 0;
    sets->former_progress = 0;
    muster_mutex_unlock(&sets->mutex);
    for (size_t i = 0; i < count; i++) {
        muster_context_destroy(retired[i]);
    }
    free(retired);
}

uint64_t muster_session_sets_progress(struct muster_session *session)
{
    struct muster_session_sets *sets = &session->sets;
    AUTO_LOCK(&sets->mutex);
    uint64_t finished = sets->former_progress;
    for (size_t i = 0; i < sets->retired_count; i++) {
        finished += muster_context_progress(sets->retired[i]);
    }
    for (uint32_t i = 0; i < sets->table.slot_count; i++) {
        const struct muster_context *context = sets->table.slots[i].context;
        finished += context != NULL ? muster_context_progress(context) : 0;
    }
    return finished;
}
