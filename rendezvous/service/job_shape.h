/*
 * The shape of a generation: what a member of a large job is told in place of the lists of all
 * hosts, peers and stale ranks. Run-length coded, so that it is short however large the job is.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_JOB_SHAPE_H
#define MUSTER_RENDEZVOUS_SERVICE_JOB_SHAPE_H

#include "elastic/messages/messages.h"

/* Fills what all members are told alike; the lists are the caller's
 * (muster_join_response_finish()), also after a failure. False: no memory. */
bool muster_job_shape_fill(const struct muster_membership *membership,
                           const struct muster_generation_view *generation,
                           struct muster_wire_shape *ret_shape);

#endif
