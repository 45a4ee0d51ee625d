/*
 * What a member does next after an answer of the service, or after none: pure functions, which the
 * session carries out, and simulations, too.
 */
#ifndef MUSTER_WORKER_SESSION_SERVICE_POLICY_H
#define MUSTER_WORKER_SESSION_SERVICE_POLICY_H

#include "elastic/messages/messages.h"

/* Calls --------------------------------------------------------------------------------------- */

enum {
    MUSTER_REPORT_ATTEMPT_MS = 500,
    MUSTER_REPORT_TOTAL_MS = 1000,
    MUSTER_REPORT_ATTEMPTS = 2,
    MUSTER_DIAL_MS = 200,         /* for members of which the service asks whether they live */
    MUSTER_LEAVE_TOTAL_MS = 2000, /* one attempt may use all of it */
    MUSTER_JOIN_ATTEMPTS = 8,     /* of one call; then the session checks whether it is to leave */
    MUSTER_WATCH_ATTEMPTS = 12,   /* of one call to a service that cannot be reached; then the
                                     request is filled in again */
};

/* A call waits for a random time up to this before it is tried again; failures: before this one. */
uint32_t muster_policy_back_off_ms(uint32_t failures);

/* How long one attempt of a Join, or of a Watch, may take. hold_ms: of the last generation, 0
 * before the first one. */
uint32_t muster_policy_join_attempt_ms(uint32_t hold_ms);
uint32_t muster_policy_watch_attempt_ms(uint32_t hold_ms, uint32_t lease_ms);

/* Between signs of life in a generation that is revoked: the service answers these at once. */
uint32_t muster_policy_revoked_pause_ms(uint32_t hold_ms);

/* Errors -------------------------------------------------------------------------------------- */

/* What an error of the service says of this member. */
enum muster_policy_place {
    MUSTER_PLACE_KEPT = 0,
    MUSTER_PLACE_LOST,  /* it was declared dead: it joins again as a new member */
    MUSTER_PLACE_ENDED, /* the job is over for it */
};
enum muster_policy_place muster_policy_place(enum muster_rpc_code code);
/* The same for an error of Join. known: the service has answered a Join of this member. Where it
 * has not, it may still know the member, from a Join whose answers were lost. */
enum muster_policy_place muster_policy_join_place(enum muster_rpc_code code, bool known);

/* What a Watch that failed means. */
enum muster_policy_watch {
    MUSTER_WATCH_REPLACED, /* the Join of this member replaced it, or the session is closing */
    MUSTER_WATCH_UNREACHABLE,
    MUSTER_WATCH_REFUSED, /* after a pause it is tried again */
};
enum muster_policy_watch muster_policy_watch(muster_status status, enum muster_rpc_code code);

/* Whether a Join that ended with this status is to be sent again. */
bool muster_policy_joins_again(muster_status status);

/* Generations --------------------------------------------------------------------------------- */

/* How long to wait before the next Join, after so many generations in a row that ended without one
 * finished collective. */
uint32_t muster_policy_rejoin_pause_ms(uint32_t failed_generations);

#endif
