/* Times and decisions of a member that calls the service. */
#include "worker/session/service_policy.h"

enum {
    BACK_OFF_BASE_MS = 10,
    BACK_OFF_CAP_MS = 1000,
    BACK_OFF_DOUBLINGS = 7,                      /* 10 ms x 2^7 exceeds the cap */
    JOIN_ATTEMPT_MS = MUSTER_WAIT_MAX_MS + 5000, /* before the service's hold time is known */
    JOIN_MARGIN_MS = 5000,
    WATCH_MARGIN_LEAST_MS = 100,
    REVOKED_PAUSE_MAX_MS = 250,
    REVOKED_PAUSES = 4,   /* in the time that a Watch would have been held */
    REJOIN_PAUSE_MS = 20, /* after the first; doubled after each further one */
    REJOIN_PAUSE_MAX_MS = 1000,
    REJOIN_DOUBLINGS = 6,
};

/* Full jitter: the bound doubles with every failure. */
uint32_t muster_policy_back_off_ms(uint32_t failures)
{
    return failures < BACK_OFF_DOUBLINGS ? (uint32_t)BACK_OFF_BASE_MS << failures
                                         : (uint32_t)BACK_OFF_CAP_MS;
}

uint32_t muster_policy_join_attempt_ms(uint32_t hold_ms)
{
    return hold_ms > 0 ? hold_ms + JOIN_MARGIN_MS : JOIN_ATTEMPT_MS;
}

/* The service holds a Watch for hold_ms, and the lease begins when it answers. The attempt ends
 * after that time and a margin for the answer: half the lease, so that after a lost answer there is
 * time for another Watch before the lease ends, and that a server which is 2 s behind with reading
 * does not see a living member close its connection. */
uint32_t muster_policy_watch_attempt_ms(uint32_t hold_ms, uint32_t lease_ms)
{
    uint32_t margin_ms = lease_ms / 2;
    return hold_ms + (margin_ms > WATCH_MARGIN_LEAST_MS ? margin_ms : WATCH_MARGIN_LEAST_MS);
}

uint32_t muster_policy_revoked_pause_ms(uint32_t hold_ms)
{
    uint32_t pause_ms = hold_ms / REVOKED_PAUSES;
    return pause_ms < REVOKED_PAUSE_MAX_MS ? pause_ms : REVOKED_PAUSE_MAX_MS;
}

enum muster_policy_place muster_policy_place(enum muster_rpc_code code)
{
    return code == MUSTER_RPC_NOT_FOUND             ? MUSTER_PLACE_LOST
           : code == MUSTER_RPC_FAILED_PRECONDITION ? MUSTER_PLACE_ENDED
                                                    : MUSTER_PLACE_KEPT;
}

enum muster_policy_place muster_policy_join_place(enum muster_rpc_code code, bool known)
{
    return known || code == MUSTER_RPC_NOT_FOUND ? muster_policy_place(code) : MUSTER_PLACE_KEPT;
}

enum muster_policy_watch muster_policy_watch(muster_status status, enum muster_rpc_code code)
{
    return code == MUSTER_RPC_CANCELED ? MUSTER_WATCH_REPLACED
           : status == MUSTER_RETRY    ? MUSTER_WATCH_UNREACHABLE
                                       : MUSTER_WATCH_REFUSED;
}

bool muster_policy_joins_again(muster_status status)
{
    return status == MUSTER_RETRY || status == MUSTER_REJOIN;
}

uint32_t muster_policy_rejoin_pause_ms(uint32_t failed_generations)
{
    if (failed_generations == 0) {
        return 0;
    }
    return failed_generations <= REJOIN_DOUBLINGS
               ? (uint32_t)REJOIN_PAUSE_MS << (failed_generations - 1)
               : (uint32_t)REJOIN_PAUSE_MAX_MS;
}
