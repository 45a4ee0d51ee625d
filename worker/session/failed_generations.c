/*
 * Back-off after generations that end without one finished collective.
 *
 * Members that cannot reach each other still show the service that they live, so they would form
 * the same generation again and again. Each failed generation makes the next Join later, and after
 * too many in a row muster_rejoin() fails. A member that is cut off from most of the others fails
 * first, so that the rest can go on without it.
 */
#include "worker/session/failed_generations.h"
#include "worker/session/engine_list.h"

#include <time.h>

#include "worker/base/clock.h"
#include "worker/session/service_policy.h"
#include "worker/session/session_sets.h"

enum {
    FAILED_MAX = 10,          /* in a row; more are an error */
    FAILED_MAX_MAJORITY = 20, /* the same for a member that reaches more than half of the members */
    FAILED_BEFORE_COUNT = 6,  /* from then on each generation counts the members it can reach */
    COUNT_REACHABLE_MS = 5000,
};

muster_status muster_session_count_failed_generation(struct muster_session *session,
                                                     const char *why)
{
    const struct muster_communicator *communicator = session->generation.communicator;
    bool has_finished = communicator != NULL && muster_communicator_progress(communicator) +
                                                        muster_session_sets_progress(session) +
                                                        muster_session_engines_progress(session) >
                                                    0;
    session->failed_generations = has_finished ? 0 : session->failed_generations + 1;
    uint32_t size = communicator != NULL ? communicator->topology.ranks : 0;
    bool majority = 2 * (session->reachable_members + 1) > size;
    if (session->failed_generations > (majority ? FAILED_MAX_MAJORITY : FAILED_MAX)) {
        return muster_error_set(MUSTER_FATAL,
                                "%u generations in a row ended before a collective did "
                                "(%u of %u other members can be reached): %s",
                                session->failed_generations, session->reachable_members,
                                size > 0 ? size - 1 : 0, why);
    }
    return MUSTER_OK;
}

void muster_session_count_reachable(struct muster_session *session)
{
    if (session->failed_generations >= FAILED_BEFORE_COUNT) {
        session->reachable_members = muster_fabric_connect_all(
            session->fabric, session->generation.number, muster_clock_after_ms(COUNT_REACHABLE_MS));
    }
}

void muster_session_back_off(const struct muster_session *session)
{
    uint32_t pause_ms = muster_policy_rejoin_pause_ms(session->failed_generations);
    if (pause_ms == 0) {
        return;
    }
    struct timespec pause = {.tv_sec = pause_ms / 1000,
                             .tv_nsec = (long)(pause_ms % 1000) * 1000000};
    (void)nanosleep(&pause, NULL);
}
