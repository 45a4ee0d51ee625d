/*
 * Generations that end before a collective does. Members that cannot reach each other show the
 * service that they live, and so form the same generation for ever: each time later, and not
 * without end. Those who are cut off from most of the others give up first, so that the rest can go
 * on without them.
 */
#include "worker/session/session_parts.h"

#include <time.h>

#include "worker/base/clock.h"

enum {
    FRUITLESS_MAX = 10, /* in a row: then it gives up */
    FRUITLESS_LOOK = 6, /* from so many on it looks whom it can reach, */
    FRUITLESS_LOOK_MS = 5000,
    FRUITLESS_REST_MAX = 20, /* and stays so long if those are more than half */
    FRUITLESS_PAUSE_MS = 20, /* after the first; doubled after each further one */
    FRUITLESS_PAUSE_MAX_MS = 1000,
};

muster_status muster_session_count_fruitless(struct muster_session *session, const char *why)
{
    const struct muster_generation *generation = &session->generation;
    uint64_t progress = 0;
    for (int i = 0; i < MUSTER_SCOPE_COUNT; i++) {
        progress +=
            generation->contexts[i] == NULL ? 0 : muster_context_progress(generation->contexts[i]);
    }
    session->fruitless = progress > 0 ? 0 : session->fruitless + 1;
    uint32_t size = generation->topology.ranks;
    bool rest = 2 * (session->reached + 1) > size;
    if (session->fruitless > (rest ? FRUITLESS_REST_MAX : FRUITLESS_MAX)) {
        return muster_error_set(MUSTER_FATAL,
                                "%u generations in a row ended before a collective did "
                                "(%u of %u other members can be reached): %s",
                                session->fruitless, session->reached, size > 0 ? size - 1 : 0, why);
    }
    return MUSTER_OK;
}

void muster_session_look_around(struct muster_session *session)
{
    if (session->fruitless >= FRUITLESS_LOOK) {
        session->reached = muster_fabric_reach(session->fabric, session->generation.number,
                                               muster_clock_after_ms(FRUITLESS_LOOK_MS));
    }
}

void muster_session_pause_if_fruitless(const struct muster_session *session)
{
    if (session->fruitless == 0) {
        return;
    }
    uint32_t pause_ms = (uint32_t)FRUITLESS_PAUSE_MS << (session->fruitless - 1);
    pause_ms = pause_ms < FRUITLESS_PAUSE_MAX_MS ? pause_ms : FRUITLESS_PAUSE_MAX_MS;
    struct timespec pause = {.tv_sec = pause_ms / 1000,
                             .tv_nsec = (long)(pause_ms % 1000) * 1000000};
    (void)nanosleep(&pause, NULL);
}
