#include "elastic/membership/membership_parts.h"

#include <string.h>

/* Keeping ------------------------------------------------------------------------------------- */

static struct muster_kept keep_job(const struct muster_membership *m)
{
    struct muster_kept kept = {
        .kind = MUSTER_KEPT_JOB,
        .now_ms = m->now_ms,
        .settings = m->settings,
        .begun = m->begun,
        .job_phase = m->phase,
        .arrivals = m->arrivals,
        .seniorities = m->seniorities,
        .highest = m->highest,
        .newcomer_ms = m->newcomer_ms,
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
    memcpy(kept.member, m->blamed, sizeof kept.member);
    memcpy(kept.why, m->why, sizeof kept.why);
    return kept;
}

static struct muster_kept keep_host(const struct muster_membership *m, uint32_t host)
{
    return (struct muster_kept){
        .kind = MUSTER_KEPT_HOST, .rank = host, .size = m->host_sizes[host]};
}

static struct muster_kept keep_seat(const struct muster_membership *m, uint32_t rank)
{
    struct muster_kept kept = {
        .kind = MUSTER_KEPT_SEAT, .rank = rank, .stale = m->stale[rank] != 0};
    memcpy(kept.member, m->members[rank], sizeof kept.member);
    return kept;
}

static struct muster_kept keep_member(const struct muster_member *member)
{
    struct muster_kept kept = {
        .kind = member->info != NULL ? MUSTER_KEPT_MEMBER : MUSTER_KEPT_GONE,
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
        kept.info = *member->info;
    }
    memcpy(kept.member, member->id, sizeof kept.member);
    memcpy(kept.why, member->why, sizeof kept.why);
    return kept;
}

static struct muster_kept keep_formed(const struct muster_generation_record *record)
{
    struct muster_kept kept = {
        .kind = MUSTER_KEPT_FORMED,
        .generation = record->number,
        .size = record->size,
        .hosts = record->hosts,
        .now_ms = record->formed_ms,
        .revoked_ms = record->revoked_ms,
    };
    memcpy(kept.why, record->why, sizeof kept.why);
    return kept;
}

static struct muster_kept keep_departed(const struct muster_departure_record *record)
{
    struct muster_kept kept = {
        .kind = MUSTER_KEPT_DEPARTED,
        .info = {.pid = record->pid},
        .rank = record->rank,
        .generation = record->generation,
        .leave_reason = record->reason,
        .now_ms = record->at_ms,
    };
    memcpy(kept.member, record->member, sizeof kept.member);
    memcpy(kept.info.host, record->host, sizeof kept.info.host);
    memcpy(kept.why, record->why, sizeof kept.why);
    return kept;
}

muster_status muster_membership_keep(const struct muster_membership *membership,
                                     muster_status (*keep)(void *user,
                                                           const struct muster_kept *kept),
                                     void *user)
{
    const struct muster_membership *m = membership;
    struct muster_kept kept = keep_job(m);
    TRY(keep(user, &kept));
    for (uint32_t host = 0; host < m->generation.hosts; host++) {
        kept = keep_host(m, host);
        TRY(keep(user, &kept));
    }
    for (uint32_t rank = 0; rank < m->generation.size; rank++) {
        kept = keep_seat(m, rank);
        TRY(keep(user, &kept));
    }
    for (const struct muster_member *gone = m->gone_first; gone != NULL; gone = gone->next_gone) {
        kept = keep_member(gone);
        TRY(keep(user, &kept));
    }
    for (uint32_t i = 0; i < m->count; i++) {
        kept = keep_member(m->listed[i]);
        TRY(keep(user, &kept));
    }
    struct muster_generation_record formed;
    for (uint32_t i = 0; muster_membership_generation_record(m, i, &formed); i++) {
        kept = keep_formed(&formed);
        TRY(keep(user, &kept));
    }
    struct muster_departure_record departed;
    for (uint32_t i = 0; muster_membership_departure_record(m, i, &departed); i++) {
        kept = keep_departed(&departed);
        TRY(keep(user, &kept));
    }
    return MUSTER_OK;
}

/* Restoring ----------------------------------------------------------------------------------- */

static muster_status restore_job(struct muster_membership *m, const struct muster_kept *kept)
{
    if (m->now_ms != 0 || m->begun || m->capacity > 0) {
        return muster_error_set(MUSTER_INVALID, "a job within a job");
    }
    if (kept->size > MUSTER_MEMBERS_MAX || kept->hosts > kept->size) {
        return muster_error_set(MUSTER_INVALID, "a generation of impossible size");
    }
    TRY(muster_records_reserve(m, kept->size));
    for (uint32_t i = 0; i < kept->size; i++) {
        memset(m->members[i], 0, sizeof m->members[i]);
        m->host_sizes[i] = 0;
        m->stale[i] = 0;
    }
    m->now_ms = kept->now_ms;
    m->settings = kept->settings;
    m->begun = kept->begun;
    m->phase = kept->job_phase;
    m->arrivals = kept->arrivals;
    m->seniorities = kept->seniorities;
    m->highest = kept->highest;
    m->newcomer_ms = kept->newcomer_ms;
    m->newcomers_settled = kept->newcomers_settled;
    m->shrinking = kept->shrinking;
    m->finishing = kept->finishing;
    m->deserted = kept->deserted;
    m->why_open = kept->why_open;
    m->look_ms = INT64_MIN; /* nobody has looked yet */
    m->generation = (struct muster_generation_view){
        .number = kept->generation,
        .size = kept->size,
        .hosts = kept->hosts,
        .state_version = kept->state_version,
        .state_source = kept->state_source,
    };
    memcpy(m->blamed, kept->member, sizeof m->blamed);
    memcpy(m->why, kept->why, sizeof m->why);
    return MUSTER_OK;
}

static muster_status out_of_range(const char *what)
{
    return muster_error_set(MUSTER_INVALID, "a %s of no generation", what);
}

static muster_status restore_host(struct muster_membership *m, const struct muster_kept *kept)
{
    if (kept->rank >= m->generation.hosts || kept->size > m->generation.size) {
        return out_of_range("host");
    }
    m->host_sizes[kept->rank] = kept->size;
    return MUSTER_OK;
}

static muster_status restore_seat(struct muster_membership *m, const struct muster_kept *kept)
{
    if (kept->rank >= m->generation.size) {
        return out_of_range("rank");
    }
    memcpy(m->members[kept->rank], kept->member, sizeof m->members[kept->rank]);
    m->stale[kept->rank] = kept->stale ? 1 : 0;
    return MUSTER_OK;
}

static muster_status restore_member(struct muster_membership *m, const struct muster_kept *kept)
{
    bool gone = kept->kind == MUSTER_KEPT_GONE;
    struct muster_member_info info = kept->info;
    memcpy(info.id, kept->member, sizeof info.id);
    if (kept->member[0] == '\0' || muster_records_find(m, kept->member) != NULL ||
        (!gone && kept->phase == MUSTER_MEMBER_GONE)) {
        return muster_error_set(MUSTER_INVALID, "member %s: as no job has it", kept->member);
    }
    uint64_t arrivals = m->arrivals; /* that of this one is among them */
    struct muster_member *member = NULL;
    TRY(muster_records_add(m, &info, &member));
    m->arrivals = arrivals;
    /* The counts by phase look at the seniority of those who have arrived. */
    muster_records_set_phase(m, member, MUSTER_MEMBER_AWAITED);
    member->arrival = kept->arrival;
    member->seniority = kept->seniority;
    member->generation = kept->generation;
    member->rank = kept->rank;
    member->leave_asked = kept->leave_asked;
    member->signs = kept->signs;
    member->died = kept->died;
    if (gone) {
        muster_records_forget(m, member, kept->why);
    } else {
        muster_records_set_phase(m, member, kept->phase);
    }
    return MUSTER_OK;
}

static void restore_formed(struct muster_membership *m, const struct muster_kept *kept)
{
    struct muster_generation_record *record =
        &m->generations[m->generation_records++ % MUSTER_HISTORY_MAX];
    *record = (struct muster_generation_record){
        .number = kept->generation,
        .size = kept->size,
        .hosts = kept->hosts,
        .formed_ms = kept->now_ms,
        .revoked_ms = kept->revoked_ms,
    };
    memcpy(record->why, kept->why, sizeof record->why);
}

static void restore_departed(struct muster_membership *m, const struct muster_kept *kept)
{
    struct muster_departure_record *record =
        &m->departures[m->departure_records++ % MUSTER_HISTORY_MAX];
    *record = (struct muster_departure_record){
        .pid = kept->info.pid,
        .rank = kept->rank,
        .generation = kept->generation,
        .reason = kept->leave_reason,
        .at_ms = kept->now_ms,
    };
    memcpy(record->member, kept->member, sizeof record->member);
    memcpy(record->host, kept->info.host, sizeof record->host);
    memcpy(record->why, kept->why, sizeof record->why);
}

muster_status muster_membership_restore(struct muster_membership *membership,
                                        const struct muster_kept *kept)
{
    switch (kept->kind) {
    case MUSTER_KEPT_JOB:
        return restore_job(membership, kept);
    case MUSTER_KEPT_HOST:
        return restore_host(membership, kept);
    case MUSTER_KEPT_SEAT:
        return restore_seat(membership, kept);
    case MUSTER_KEPT_GONE:
    case MUSTER_KEPT_MEMBER:
        return restore_member(membership, kept);
    case MUSTER_KEPT_FORMED:
        restore_formed(membership, kept);
        break;
    case MUSTER_KEPT_DEPARTED:
        restore_departed(membership, kept);
        break;
    }
    return MUSTER_OK;
}
