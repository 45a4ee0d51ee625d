/*
 * When is a member dead? Signs of life and of death + the time -> a verdict. Pure functions over
 * times; membership.c keeps the signs and turns verdicts into
 * events.
 */
#ifndef MUSTER_ELASTIC_MEMBERSHIP_LIVENESS_H
#define MUSTER_ELASTIC_MEMBERSHIP_LIVENESS_H

#include "elastic/membership/membership.h"

#include <stdbool.h>
#include <stdint.h>

/* A time that has not come. */
#define MUSTER_LIVENESS_NEVER INT64_MAX

struct muster_signs {     /* of life and of death */
    int64_t last_seen_ms; /* last sign of life */
    int64_t closed_ms;    /* its connection broke, and nothing was heard since; or never */
    int64_t reported_ms;  /* another member reported it, and nothing was heard since; or never */
    uint32_t reporter;    /* the rank that did */
    int64_t awaited_ms;   /* since then it is expected to join again; or never */
    uint64_t progress;
};

/* time + delay, no later than never. */
int64_t muster_liveness_after(int64_t time_ms, uint32_t delay_ms);

/* Heard of now for the first time, and not awaited. */
void muster_liveness_init(struct muster_signs *signs, int64_t now_ms);

/* A sign of life clears every suspicion; only joining again ends being awaited. */
void muster_liveness_heartbeat(struct muster_signs *signs, int64_t now_ms);

/* A new lease and, if it is awaited, all the time to arrive. */
void muster_liveness_restart(struct muster_signs *signs, int64_t now_ms);

/* Who was to look at due_ms and did so only at now_ms was itself away for so long that the
 * silence of others proves nothing: a restart should come before any verdict. */
bool muster_liveness_check_was_late(int64_t due_ms, int64_t now_ms, uint32_t lease_ms);

bool muster_liveness_suspected(const struct muster_signs *signs);

/* From when on muster_liveness_verdict() says dead, if nothing is heard until then. */
int64_t muster_liveness_deadline_ms(const struct muster_signs *signs,
                                    const struct muster_job_settings *settings);

/* True if it is dead; then why, for people. */
bool muster_liveness_verdict(const struct muster_signs *signs,
                             const struct muster_job_settings *settings, int64_t now_ms,
                             char ret_why[MUSTER_WHY_SIZE]);

#endif
