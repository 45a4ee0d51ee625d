/*
 * Doubted members: those of which the service is not certain that they live. It names them in
 * answers to Join and Watch; this member dials them, and reports who refuses, which is dead then.
 */
#ifndef MUSTER_WORKER_SESSION_DOUBTED_MEMBERS_H
#define MUSTER_WORKER_SESSION_DOUBTED_MEMBERS_H

#include "worker/session/rendezvous_client.h"
#include "worker/session/session_parts.h"

/* Blocks for MUSTER_DIAL_MS at most, and for the reports, which have the limits of any
 * (service_policy.h). An error of the service is not this member's. client: one that nobody else
 * uses meanwhile. */
void muster_session_dial_doubted(const struct muster_session *session, struct muster_client *client,
                                 const struct muster_wire_peer *doubted, uint32_t count);

#endif
