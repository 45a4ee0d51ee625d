/*
 * A session without a service: its members come from the program's exchange function. Its one
 * generation is a communicator that lasts until a member is lost.
 *
 * May use: communicator, context.h, fabric.h, the floor.
 */
#ifndef MUSTER_WORKER_SESSION_OPEN_WITH_H
#define MUSTER_WORKER_SESSION_OPEN_WITH_H

#include "worker/session/session_parts.h"

/* What muster_open_with() was given. */
struct muster_exchange_call {
    uint32_t rank, size;
    muster_exchange_function function;
    void *user_data;
};

/* Takes part in the exchange and begins the generation. status: of the settings; if they are wrong,
 * the other members are told. Blocks. The statuses are those of muster_open_with(); on failure the
 * session is to be destroyed. */
MUSTER_CHECKED muster_status muster_session_start_with(struct muster_session *session,
                                                       const struct muster_exchange_call *exchange,
                                                       muster_status status);

#endif
