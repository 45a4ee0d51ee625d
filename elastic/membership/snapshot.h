/*
 * A snapshot: all that a membership has decided and believes, as a list of records. A store keeps
 * it in place of the events that led to it, so that the history of a job stays bounded.
 */
#ifndef MUSTER_ELASTIC_MEMBERSHIP_SNAPSHOT_H
#define MUSTER_ELASTIC_MEMBERSHIP_SNAPSHOT_H

#include "elastic/membership/liveness.h"
#include "elastic/membership/membership.h"

/* The kinds, in the order in which a snapshot lists them. A field of the record that a kind does
 * not name is 0. */
enum muster_snapshot_record_kind {
    MUSTER_SNAPSHOT_JOB = 1,  /* the job and its last generation; exactly one, the first */
    MUSTER_SNAPSHOT_HOST = 2, /* of that generation: rank is the host's number, size its members */
    MUSTER_SNAPSHOT_RANK = 3, /* of that generation: member, rank, stale */
    MUSTER_SNAPSHOT_GONE = 4, /* a member that is gone; the first to go comes first */
    MUSTER_SNAPSHOT_MEMBER = 5,   /* a listed member, in the order of arrival */
    MUSTER_SNAPSHOT_FORMED = 6,   /* a generation of the history; now_ms: when it formed */
    MUSTER_SNAPSHOT_DEPARTED = 7, /* a departure of the history; now_ms: when it was */
};

struct muster_snapshot_record {
    enum muster_snapshot_record_kind kind;
    int64_t now_ms;                /* MEMBER, GONE: its first Join */
    char member[MUSTER_UUID_SIZE]; /* JOB: the member blamed for the end of the generation */
    char why[MUSTER_WHY_SIZE];
    struct muster_member_info info; /* MEMBER; DEPARTED: host and pid */
    struct muster_job_settings settings;
    uint64_t generation;
    uint32_t size, hosts, rank;
    bool stale;
    /* MEMBER, GONE */
    enum muster_member_phase phase;
    struct muster_signs signs;
    uint64_t arrival, seniority;
    bool leave_asked, died;
    /* JOB */
    enum muster_job_phase job_phase;
    bool begun, newcomers_settled, shrinking, finishing, deserted, why_open;
    uint64_t arrivals, seniorities, highest, resizes;
    int64_t last_newcomer_ms;
    uint64_t state_version;
    uint32_t state_source;
    /* FORMED, DEPARTED */
    int64_t revoked_ms;
    enum muster_leave_reason leave_reason;
};

/* Calls write for each record. Ends with the first status that is not MUSTER_OK, and returns it. */
MUSTER_CHECKED muster_status muster_membership_snapshot(
    const struct muster_membership *membership,
    muster_status (*write)(void *user, const struct muster_snapshot_record *record), void *user);

/* Applied to a new membership, the records of a snapshot in their order make the same membership
 * again. The caller should apply a RESTART next. MUSTER_INVALID: the record is wrong at this place;
 * MUSTER_FATAL: no memory. After a failure the membership may only be destroyed. */
MUSTER_CHECKED muster_status muster_membership_restore(struct muster_membership *membership,
                                                       const struct muster_snapshot_record *record);

/* After the last record, before anything else is done with the membership. MUSTER_INVALID says what
 * does not fit together: records are missing, or were edited. */
MUSTER_CHECKED muster_status
muster_membership_check_restored(const struct muster_membership *membership);

#endif
