/* The list of a session's engines, and how they end. */
#include "worker/session/engine_list.h"

#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/thread.h"

void muster_session_engines_init(struct muster_session *session)
{
    muster_mutex_init(&session->engines.mutex);
}

/* Ends ----------------------------------------------------------------------------------------- */

static muster_status end_status(const struct muster_session *session)
{
    return session->without_service ? MUSTER_ENDED : MUSTER_REJOIN;
}

void muster_session_end_engines(struct muster_session *session, const char *why)
{
    AUTO_LOCK(&session->engines.mutex);
    for (struct muster_session_engine *own = session->engines.list; own != NULL; own = own->next) {
        if (own->context != NULL) {
            muster_engine_end(own->engine, end_status(session), why);
        }
    }
}

bool muster_session_wait_for_engines(struct muster_session *session, int64_t until_ns)
{
    bool all = true;
    AUTO_LOCK(&session->engines.mutex);
    for (struct muster_session_engine *own = session->engines.list; own != NULL; own = own->next) {
        if (own->context != NULL) {
            all = muster_engine_wait_all(own->engine, until_ns) && all;
        }
    }
    return all;
}

/* Takes out an engine of the generation that ends. */
static struct muster_session_engine *next_running(struct muster_session *session)
{
    AUTO_LOCK(&session->engines.mutex);
    for (struct muster_session_engine *own = session->engines.list; own != NULL; own = own->next) {
        if (own->context != NULL) {
            return own;
        }
    }
    return NULL;
}

/* Engines whose handles are consumed. Those of the last generation stay, as a thread may just be
 * submitting to them. */
static void drop_old(struct muster_session *session)
{
    uint64_t newest = 0;
    AUTO_LOCK(&session->engines.mutex);
    struct muster_session_engine **link = &session->engines.list;
    for (const struct muster_session_engine *own = *link; own != NULL; own = own->next) {
        newest = own->generation > newest ? own->generation : newest;
    }
    while (*link != NULL) {
        struct muster_session_engine *own = *link;
        if (own->generation == newest || muster_engine_has_handles(own->engine)) {
            link = &own->next;
            continue;
        }
        *link = own->next;
        muster_engine_destroy(own->engine);
        free(own);
    }
}

void muster_session_stop_engines(struct muster_session *session)
{
    struct muster_session_engine *own = NULL;
    while ((own = next_running(session)) != NULL) {
        muster_engine_stop(own->engine, end_status(session), "its generation has ended");
        AUTO_LOCK(&session->engines.mutex);
        muster_context_destroy(TAKE(own->context));
    }
    drop_old(session);
}

void muster_session_engines_finish(struct muster_session *session)
{
    while (session->engines.list != NULL) {
        struct muster_session_engine *own = session->engines.list;
        session->engines.list = own->next;
        muster_engine_destroy(own->engine);
        free(own);
    }
    (void)pthread_mutex_destroy(&session->engines.mutex);
}

uint64_t muster_session_engines_progress(struct muster_session *session)
{
    uint64_t finished = 0;
    AUTO_LOCK(&session->engines.mutex);
    for (const struct muster_session_engine *own = session->engines.list; own != NULL;
         own = own->next) {
        finished += own->context != NULL ? muster_context_progress(own->context) : 0;
    }
    return finished;
}
