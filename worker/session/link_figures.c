/*
 * Link figures for a generation: rank 0 chooses them, all members agree on its choice
 * (figures_agreement.h), and the service stores them with the job.
 *
 * Rank 0 chooses, in this order: the figures that it has, if they were measured on these hosts with
 * as many members on each, for every level of links that there is now; those that the job has
 * stored, under the same condition; or that all measure now. In a later generation, if it has any
 * figures, it chooses those, so that the first operation waits neither for new ones nor for the
 * service; a commit replaces them, once the service has said what the job has stored. A job that
 * never commits keeps them.
 *
 * A commit is the one call that all members make at the same place, and when it replaces figures
 * the members have just agreed that the membership does not change. So nothing else has to be
 * agreed on, and no thread of its own disturbs the training.
 *
 * With the figures go the algorithms that former generations have tuned, on the same hosts with as
 * many members on each. Contexts tune more of them. When a generation ends every member keeps the
 * result, so that the next rank 0 can use it; rank 0 stores it with the job at commits. Without a
 * service nothing is stored, and all measure.
 */
#include "worker/session/link_figures.h"

#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/session/failure_handling.h"
#include "worker/session/figures_exchange.h"
#include "worker/session/generation_guard.h"
#include "worker/session/stored_figures.h"

/* For a call to the service that the member can do without. */
enum { FETCH_MS = 2000 };

static bool match(const struct muster_figures *figures,
                  const struct muster_communicator *communicator)
{
    return muster_figures_match(figures, &communicator->topology, communicator->hosts_digest,
                                communicator->shape_digest);
}

/* With the job --------------------------------------------------------------------------------- */

/* Figures without levels if the job has none for these hosts, or invalid ones. Before the first
 * operation of a job only: the service has just answered Join. */
static void fetch(struct muster_session *session, uint32_t hosts_digest,
                  struct muster_figures *ret_figures)
{
    char key[MUSTER_FIGURES_KEY_SIZE];
    muster_figures_key(hosts_digest, key);
    AUTO_LOCK(&session->client_mutex);
    muster_figures_init(ret_figures);
    if (session->without_service) {
        return;
    }
    if (muster_figures_get(session->caller_client, session->settings.job, key, FETCH_MS,
                           ret_figures) != MUSTER_OK) {
        muster_log(MUSTER_LOG_WARN, "the link figures stored as %s are not used: %s", key,
                   muster_last_error());
    }
}

/* Rank 0 stores what has been tuned since the last time, if anything. */
static void store_tuned(struct muster_session *session)
{
    uint32_t count_before = session->figures.tuned.count;
    muster_session_collect_tuned(session, session->generation.communicator);
    if (session->figures.tuned.count > count_before) {
        muster_session_store_figures(session, &session->figures);
    }
}

/* Choosing and agreeing ------------------------------------------------------------------------ */

/* When figures are chosen. */
enum moment {
    FIRST_GENERATION, /* of this member: the job begins, or it has no member with figures */
    LATER_GENERATION,
    AT_COMMIT,
};

/* The figures that the job has stored. False: they are on their way. */
static bool find_stored(struct muster_session *session, enum moment moment,
                        struct muster_figures *ret_stored)
{
    uint32_t hosts_digest = session->generation.communicator->hosts_digest;
    if (moment == AT_COMMIT) {
        return muster_session_take_figures(session, hosts_digest, ret_stored);
    }
    fetch(session, hosts_digest, ret_stored);
    return true;
}

/* Rank 0's choice. */
static void choose(struct muster_session *session, enum moment moment,
                   struct muster_figures_choice *choice)
{
    const struct muster_communicator *communicator = session->generation.communicator;
    struct muster_figures stored;
    choice->figures = session->figures;
    choice->autotune = session->settings.tune;
    if (!session->settings.measure || match(&session->figures, communicator)) {
        return;
    }
    if (moment == LATER_GENERATION && session->figures.levels != 0) {
        muster_session_want_figures(session, communicator->hosts_digest);
        choice->outdated = true;
    } else if (!find_stored(session, moment, &stored)) {
        choice->outdated = true;
    } else if (match(&stored, communicator)) {
        choice->figures = stored;
    } else {
        choice->measure = true;
    }
}

static muster_status agree(struct muster_session *session, enum moment moment,
                           uint32_t *ret_suspect)
{
    struct muster_communicator *communicator = session->generation.communicator;
    bool chooses = communicator->rank == 0 && communicator->topology.ranks > 1;
    struct muster_figures_choice choice = {.figures = session->figures};
    if (chooses) {
        choose(session, moment, &choice);
    }
    TRY(muster_communicator_agree_figures(communicator, &choice, ret_suspect));
    if (chooses && choice.measure) {
        muster_session_store_figures(session, &choice.figures);
    }
    session->figures = choice.figures;
    return MUSTER_OK;
}

muster_status muster_session_agree_figures(struct muster_session *session, uint32_t *ret_suspect)
{
    muster_status status =
        agree(session, session->has_formed ? LATER_GENERATION : FIRST_GENERATION, ret_suspect);
    session->has_formed = true;
    return status;
}

void muster_session_collect_tuned(struct muster_session *session,
                                  const struct muster_communicator *communicator)
{
    if (communicator->autotunes && match(&session->figures, communicator)) {
        muster_context_tuned(communicator->contexts[MUSTER_GLOBAL], &session->figures.tuned);
    }
}

/* A commit comes between the same calls of the global scope on all members, so its context can
 * change over here. The local and cross scopes may be used by other threads in an order of their
 * own; they keep their figures until the next generation. */
muster_status muster_session_refresh_figures(struct muster_session *session)
{
    uint32_t suspect = UINT32_MAX;
    TRY(muster_session_hold_generation(session));
    struct muster_communicator *communicator = session->generation.communicator;
    uint64_t number = session->generation.number;
    muster_status status = MUSTER_OK;
    if (communicator->figures_outdated) {
        status = agree(session, AT_COMMIT, &suspect);
        if (status == MUSTER_OK && !communicator->figures_outdated) {
            muster_communicator_apply_figures_to(communicator, MUSTER_GLOBAL);
        }
    } else if (communicator->rank == 0) {
        store_tuned(session);
    }
    muster_session_release_generation(session);
    return muster_session_handle_result(session, number, status, suspect);
}
