/* A membership as snapshot records, and a membership restored from them. */
#include "elastic/membership/snapshot.h"

#include "elastic/membership/membership_parts.h"

#include <inttypes.h>
#include <string.h>

/* Writing ------------------------------------------------------------------------------------- */

/* The scalars of the membership. */
static struct muster_snapshot_record job_record(const struct muster_membership *m)
{
    struct muster_snapshot_record record = {
        .kind = MUSTER_SNAPSHOT_JOB,
        .now_ms = m->now_ms,
        .settings = m->settings,
        .begun = m->begun,
        .job_phase = m->phase,
        .arrivals = m->arrivals,
        .seniorities = m->seniorities,
        .highest = m->highest,
        .epoch = m->epoch,
        .resizes = m->resizes,
        .last_newcomer_ms = m->last_newcomer_ms,
        .newcomers_settled = m->newcomers_settled,
        .shrinking = m->shrinking,
        .finishing = m->finishing,
        .deserted = m->deserted,
        .why_open = m->why_open,
        .generation = m->generation.number,
        .size = m->generation.size,
        .hosts = m->generation.hosts,
        .state_version = m->generation.state_version,
        .state_source = m->generation.state_source,
    };
    memcpy(record.member, m->blamed, sizeof record.member);
    memcpy(record.why, m->why, sizeof record.why);
    return record;
}

static struct muster_snapshot_record host_record(const struct muster_membership *m, uint32_t host)
{
    return (struct muster_snapshot_record){
        .kind = MUSTER_SNAPSHOT_HOST, .rank = host, .size = m->host_sizes[host]};
}

static struct muster_snapshot_record rank_record(const struct muster_membership *m, uint32_t rank)
{
    struct muster_snapshot_record record = {
        .kind = MUSTER_SNAPSHOT_RANK, .rank = rank, .stale = m->stale[rank] != 0};
    memcpy(record.member, m->members[rank], sizeof record.member);
    return record;
}

static struct muster_snapshot_record member_record(const struct muster_member *member)
{
    struct muster_snapshot_record record = {
        .kind = member->info != NULL ? MUSTER_SNAPSHOT_MEMBER : MUSTER_SNAPSHOT_GONE,
        .now_ms = member->joined_ms,
        .phase = member->phase,
        .signs = member->signs,
        .arrival = member->arrival,
        .seniority = member->seniority,
        .generation = member->generation,
        .rank = member->rank,
        .leave_asked = member->leave_asked,
        .died = member->died,
    };
    if (member->info != NULL) {
        record.info = *member->info;
    }
    memcpy(record.member, member->id, sizeof record.member);
    memcpy(record.why, member->why, sizeof record.why);
    return record;
}

static struct muster_snapshot_record
generation_record(const struct muster_generation_record *generation)
{
    struct muster_snapshot_record record = {
        .kind = MUSTER_SNAPSHOT_FORMED,
        .generation = generation->number,
        .size = generation->size,
        .hosts = generation->hosts,
        .now_ms = generation->formed_ms,
        .revoked_ms = generation->revoked_ms,
    };
    memcpy(record.why, generation->why, sizeof record.why);
    return record;
}

static struct muster_snapshot_record
departure_record(const struct muster_departure_record *departure)
{
    struct muster_snapshot_record record = {
        .kind = MUSTER_SNAPSHOT_DEPARTED,
        .info = {.pid = departure->pid},
        .rank = departure->rank,
        .generation = departure->generation,
        .leave_reason = departure->reason,
        .now_ms = departure->at_ms,
    };
    memcpy(record.member, departure->member, sizeof record.member);
    memcpy(record.info.host, departure->host, sizeof record.info.host);
    memcpy(record.why, departure->why, sizeof record.why);
    return record;
}

/* Writes the records in the order that restoring needs: the job has the sizes that host and rank
 * records are checked against, and members that are gone come in the order in which they went. */
muster_status muster_membership_snapshot(
    const struct muster_membership *membership,
    muster_status (*write)(void *user, const struct muster_snapshot_record *record), void *user)
{
    const struct muster_membership *m = membership;
    struct muster_snapshot_record record = job_record(m);
    TRY(write(user, &record));
    for (uint32_t host = 0; host < m->generation.hosts; host++) {
        record = host_record(m, host);
        TRY(write(user, &record));
    }
    for (uint32_t rank = 0; rank < m->generation.size; rank++) {
        record = rank_record(m, rank);
        TRY(write(user, &record));
    }
    for (const struct muster_member *gone = m->gone_first; gone != NULL; gone = gone->next_gone) {
        record = member_record(gone);
        TRY(write(user, &record));
    }
    for (uint32_t i = 0; i < m->count; i++) {
        record = member_record(m->listed[i]);
        TRY(write(user, &record));
    }
    struct muster_generation_record formed;
    for (uint32_t i = 0; muster_membership_generation_record(m, i, &formed); i++) {
        record = generation_record(&formed);
        TRY(write(user, &record));
    }
    struct muster_departure_record departed;
    for (uint32_t i = 0; muster_membership_departure_record(m, i, &departed); i++) {
        record = departure_record(&departed);
        TRY(write(user, &record));
    }
    return MUSTER_OK;
}

/* Restoring ----------------------------------------------------------------------------------- */

/* The first record: makes room for its generation, whose hosts and ranks follow. */
static muster_status restore_job(struct muster_membership *m,
                                 const struct muster_snapshot_record *record)
{
    if (m->now_ms != 0 || m->begun || m->capacity > 0) {
        return muster_error_set(MUSTER_INVALID, "a second job record");
    }
    if (record->size > MUSTER_MEMBERS_MAX || record->hosts > record->size) {
        return muster_error_set(MUSTER_INVALID,
                                "a generation of %" PRIu32 " members on %" PRIu32 " hosts",
                                record->size, record->hosts);
    }
    TRY(muster_records_reserve(m, record->size));
    for (uint32_t i = 0; i < record->size; i++) {
        memset(m->members[i], 0, sizeof m->members[i]);
        m->host_sizes[i] = 0;
        m->stale[i] = 0;
    }
    m->now_ms = record->now_ms;
    m->settings = record->settings;
    m->begun = record->begun;
    m->phase = record->job_phase;
    m->arrivals = record->arrivals;
    m->seniorities = record->seniorities;
    m->highest = record->highest;
    m->epoch = record->epoch;
    m->resizes = record->resizes;
    m->last_newcomer_ms = record->last_newcomer_ms;
    m->newcomers_settled = record->newcomers_settled;
    m->shrinking = record->shrinking;
    m->finishing = record->finishing;
    m->deserted = record->deserted;
    m->why_open = record->why_open;
    m->liveness_check_ms = INT64_MIN; /* no deadline is known yet */
    m->generation = (struct muster_generation_view){
        .number = record->generation,
        .size = record->size,
        .hosts = record->hosts,
        .state_version = record->state_version,
        .state_source = record->state_source,
    };
    memcpy(m->blamed, record->member, sizeof m->blamed);
    memcpy(m->why, record->why, sizeof m->why);
    return MUSTER_OK;
}

static muster_status out_of_range(const char *what)
{
    return muster_error_set(MUSTER_INVALID, "a %s outside of the generation", what);
}

static muster_status restore_host(struct muster_membership *m,
                                  const struct muster_snapshot_record *record)
{
    if (record->rank >= m->generation.hosts || record->size > m->generation.size) {
        return out_of_range("host");
    }
    m->host_sizes[record->rank] = record->size;
    return MUSTER_OK;
}

static muster_status restore_rank(struct muster_membership *m,
                                  const struct muster_snapshot_record *record)
{
    if (record->rank >= m->generation.size) {
        return out_of_range("rank");
    }
    memcpy(m->members[record->rank], record->member, sizeof m->members[record->rank]);
    m->stale[record->rank] = record->stale ? 1 : 0;
    return MUSTER_OK;
}

/* A listed member, or one that is gone: it is listed first in both cases. */
static muster_status restore_member(struct muster_membership *m,
                                    const struct muster_snapshot_record *record)
{
    bool gone = record->kind == MUSTER_SNAPSHOT_GONE;
    struct muster_member_info info = record->info;
    memcpy(info.id, record->member, sizeof info.id);
    if (record->member[0] == '\0' || muster_records_find(m, record->member) != NULL ||
        (!gone && record->phase == MUSTER_MEMBER_GONE)) {
        return muster_error_set(MUSTER_INVALID, "member %s: no job has such a record",
                                record->member);
    }
    uint64_t arrivals = m->arrivals; /* counts this member already */
    struct muster_member *member = NULL;
    TRY(muster_records_add(m, &info, &member));
    m->arrivals = arrivals;
    /* Through AWAITED: the count of survivors depends on the seniority of a member that is ARRIVED,
     * which is set only now. */
    muster_records_set_phase(m, member, MUSTER_MEMBER_AWAITED);
    member->joined_ms = record->now_ms;
    member->arrival = record->arrival;
    member->seniority = record->seniority;
    member->generation = record->generation;
    member->rank = record->rank;
    member->leave_asked = record->leave_asked;
    member->signs = record->signs;
    member->died = record->died;
    if (gone) {
        muster_records_mark_gone(m, member, record->why);
    } else {
        muster_records_set_phase(m, member, record->phase);
    }
    return MUSTER_OK;
}

static void restore_generation(struct muster_membership *m,
                               const struct muster_snapshot_record *record)
{
    struct muster_generation_record *generation =
        &m->generations[m->generation_records++ % MUSTER_HISTORY_MAX];
    *generation = (struct muster_generation_record){
        .number = record->generation,
        .size = record->size,
        .hosts = record->hosts,
        .formed_ms = record->now_ms,
        .revoked_ms = record->revoked_ms,
    };
    memcpy(generation->why, record->why, sizeof generation->why);
}

static void restore_departure(struct muster_membership *m,
                              const struct muster_snapshot_record *record)
{
    struct muster_departure_record *departure =
        &m->departures[m->departure_records++ % MUSTER_HISTORY_MAX];
    *departure = (struct muster_departure_record){
        .pid = record->info.pid,
        .rank = record->rank,
        .generation = record->generation,
        .reason = record->leave_reason,
        .at_ms = record->now_ms,
    };
    memcpy(departure->member, record->member, sizeof departure->member);
    memcpy(departure->host, record->info.host, sizeof departure->host);
    memcpy(departure->why, record->why, sizeof departure->why);
}

muster_status muster_membership_restore(struct muster_membership *membership,
                                        const struct muster_snapshot_record *record)
{
    switch (record->kind) {
    case MUSTER_SNAPSHOT_JOB:
        return restore_job(membership, record);
    case MUSTER_SNAPSHOT_HOST:
        return restore_host(membership, record);
    case MUSTER_SNAPSHOT_RANK:
        return restore_rank(membership, record);
    case MUSTER_SNAPSHOT_GONE:
    case MUSTER_SNAPSHOT_MEMBER:
        return restore_member(membership, record);
    case MUSTER_SNAPSHOT_FORMED:
        restore_generation(membership, record);
        break;
    case MUSTER_SNAPSHOT_DEPARTED:
        restore_departure(membership, record);
        break;
    }
    return MUSTER_OK;
}
