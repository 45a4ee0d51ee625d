/*
 * When a member is dead: its signs of life and of death, and the time -> a verdict. Pure functions;
 * membership.c has the signs and turns verdicts into events.
 *
 * A member is dead at the first of these. A sign of life clears the first two. A request that is
 * held is a lasting sign of life: the lease begins when it ends.
 *
 *   evidence                                                             dead
 *   its connection closed and a member reported it, no sign since        at once
 *   its connection closed, or the server has started and not heard of    at once
 *   it since; and it refused another member's dial
 *   one of the two, no sign of life since                                after suspect_ms
 *   no sign of life, and no request of it is held                        after lease_ms
 *   its generation was revoked and it has not joined again               after arrive_ms, with or
 *                                                                        without signs of life
 */
#ifndef MUSTER_ELASTIC_MEMBERSHIP_LIVENESS_H
#define MUSTER_ELASTIC_MEMBERSHIP_LIVENESS_H

#include "elastic/membership/membership.h"

#include <stdbool.h>
#include <stdint.h>

/* A time that never comes. */
#define MUSTER_LIVENESS_NEVER INT64_MAX

/* Times at which something was seen; MUSTER_LIVENESS_NEVER: it was not. */
struct muster_signs {
    int64_t last_seen_ms; /* the last sign of life */
    bool held;            /* a request of it is held */
    int64_t closed_ms;    /* its connection closed, and no sign of life came since */
    bool unheard;         /* the server has started, and no sign of life came since */
    bool away;            /* a connection over which nothing was held closed, and none came since */
    bool refused;         /* it refused another member's dial, and no sign of life came since */
    int64_t reported_ms;  /* another member reported it, and no sign of life came since */
    uint32_t reporter;    /* the rank of that member; UINT32_MAX: a newcomer */
    int64_t awaited_ms;   /* the revocation after which it has not joined again yet */
    uint64_t progress;
};

/* time_ms + delay_ms, at most MUSTER_LIVENESS_NEVER. */
int64_t muster_liveness_after(int64_t time_ms, uint32_t delay_ms);

/* Seen now for the first time, and not awaited. */
void muster_liveness_init(struct muster_signs *signs, int64_t now_ms);

/* A sign of life: clears every suspicion. That the member is awaited ends only with its Join. */
void muster_liveness_heartbeat(struct muster_signs *signs, int64_t now_ms);

/* A request of the member is held from now on, and until end_hold: then its lease begins. */
void muster_liveness_begin_hold(struct muster_signs *signs);
void muster_liveness_end_hold(struct muster_signs *signs, int64_t now_ms);

/* The server has started, and the member may not know of it yet: until a sign of life or end_hold
 * it counts as one of which a request is held. */
void muster_liveness_expect(struct muster_signs *signs);

/* A connection of it closed over which nothing was held: no suspicion, as there are many reasons
 * for that, but others should dial it. */
void muster_liveness_doubt(struct muster_signs *signs);

/* Whether others should dial the member: its connection closed, or it is not heard of since the
 * server has started. */
bool muster_liveness_doubted(const struct muster_signs *signs);

/* It refused a dial of the member of this rank. Counts only while it is doubted. */
void muster_liveness_refused(struct muster_signs *signs, uint32_t reporter);

/* A fresh lease, and the whole time to arrive again for an awaited member. */
void muster_liveness_restart(struct muster_signs *signs, int64_t now_ms);

/* The shortest silence after which a member may be dead: the lease, or the time of a suspicion. */
uint32_t muster_liveness_shortest_ms(const struct muster_job_settings *settings);

/* True if a check that was due at due_ms comes only at now_ms, more than half of the shortest
 * silence late: the checker itself was stopped, signs of life may be waiting unread, and a RESTART
 * should come before any verdict. */
bool muster_liveness_check_was_late(int64_t due_ms, int64_t now_ms,
                                    const struct muster_job_settings *settings);

bool muster_liveness_suspected(const struct muster_signs *signs);

/* When muster_liveness_verdict() becomes true, if no sign of life comes before. */
int64_t muster_liveness_deadline_ms(const struct muster_signs *signs,
                                    const struct muster_job_settings *settings);

/* Why a member was declared dead, for statistics. */
enum muster_liveness_verdict_kind {
    MUSTER_LIVENESS_OTHER = 0, /* a text of another version */
    MUSTER_LIVENESS_LEASE,     /* no sign of life for a lease */
    MUSTER_LIVENESS_CLOSED,    /* its connection closed, and it did not come back */
    MUSTER_LIVENESS_REPORTED,  /* another member reported it, and it gave no sign of life */
    MUSTER_LIVENESS_CONFIRMED, /* both */
    MUSTER_LIVENESS_STUCK,     /* alive, but it did not join again */
    MUSTER_LIVENESS_REFUSED,   /* doubted, and it refused another member's dial */
    MUSTER_LIVENESS_VERDICTS,
};

/* The kind of a reason that muster_liveness_verdict() gave. */
enum muster_liveness_verdict_kind muster_liveness_verdict_of(const char *why);
/* "lease", "closed", ...; "other". */
const char *muster_liveness_verdict_name(enum muster_liveness_verdict_kind kind);

/* True if the member is dead; ret_why then gives the reason. */
bool muster_liveness_verdict(const struct muster_signs *signs,
                             const struct muster_job_settings *settings, int64_t now_ms,
                             char ret_why[MUSTER_WHY_SIZE]);

#endif
