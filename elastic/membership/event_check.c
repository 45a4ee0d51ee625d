/* Which events are refused, with which status and text. Nothing here changes the state. */
#include "elastic/membership/membership_parts.h"
#include "worker/base/epoch.h"

#include <inttypes.h>
#include <string.h>

#define TIME_MAX_MS (INT64_MAX / 2) /* less than never */
#define TIMING_MAX_MS (24U * 60 * 60 * 1000)

/* Fields ---------------------------------------------------------------------------------------*/

static muster_status check_length(const char *name, const char *text, size_t size_bytes)
{
    if (memchr(text, '\0', size_bytes) == NULL) {
        return muster_error_set(MUSTER_INVALID, "%s is longer than %zu bytes", name,
                                size_bytes - 1);
    }
    return MUSTER_OK;
}

static muster_status check_text(const char *name, const char *text, size_t size_bytes)
{
    if (text[0] == '\0') {
        return muster_error_set(MUSTER_INVALID, "%s is empty", name);
    }
    return check_length(name, text, size_bytes);
}

static muster_status check_info(const struct muster_member_info *info)
{
    TRY(check_text("member", info->id, sizeof info->id));
    TRY(check_text("host", info->host, sizeof info->host));
    TRY(check_length("rack", info->rack, sizeof info->rack));
    TRY(check_length("slot lock", info->slot_lock, sizeof info->slot_lock));
    if (info->has_slot && info->slot >= MUSTER_MEMBERS_MAX) {
        return muster_error_set(MUSTER_INVALID, "slot %" PRIu32 " is not below %d", info->slot,
                                MUSTER_MEMBERS_MAX);
    }
    if (info->address_count > MUSTER_MEMBER_ADDRESSES_MAX) {
        return muster_error_set(MUSTER_INVALID, "%" PRIu32 " addresses, at most %d are allowed",
                                info->address_count, MUSTER_MEMBER_ADDRESSES_MAX);
    }
    for (uint32_t i = 0; i < info->address_count; i++) {
        TRY(check_text("address", info->addresses[i], sizeof info->addresses[i]));
    }
    return MUSTER_OK;
}

/* A joiner may know a higher number than a service that lost its store, or whose clock is behind.
 */
static muster_status check_epoch(const struct muster_membership *m,
                                 const struct muster_event *event)
{
    uint32_t epoch = event->epoch > m->epoch ? event->epoch : m->epoch;
    uint64_t limit = muster_epoch_limit(epoch);
    if (event->info.generation > limit) {
        return muster_error_set(MUSTER_INVALID,
                                "generation %" PRIu64 " is over %" PRIu64 ": its epoch %" PRIu32
                                " is more than a day after this server's, "
                                "%" PRIu32,
                                event->info.generation, limit,
                                muster_epoch_of(event->info.generation), epoch);
    }
    return MUSTER_OK;
}

static muster_status check_timing(const char *name, uint32_t value_ms, uint32_t least_ms)
{
    if (value_ms < least_ms || value_ms > TIMING_MAX_MS) {
        return muster_error_set(MUSTER_INVALID, "%s %" PRIu32 " is not in %" PRIu32 "..%u", name,
                                value_ms, least_ms, TIMING_MAX_MS);
    }
    return MUSTER_OK;
}

static muster_status check_target(const struct muster_job_settings *settings, uint32_t target_size)
{
    if (target_size < settings->min_size || target_size > settings->max_size) {
        return muster_error_set(MUSTER_INVALID,
                                "target size %" PRIu32 " is not in min..max, %" PRIu32 "..%" PRIu32,
                                target_size, settings->min_size, settings->max_size);
    }
    return MUSTER_OK;
}

static muster_status check_settings(const struct muster_job_settings *settings)
{
    if (settings->min_size < 1) {
        return muster_error_set(MUSTER_INVALID, "min size 0: at least 1 member is needed");
    }
    if (settings->max_size < settings->min_size || settings->max_size > MUSTER_MEMBERS_MAX) {
        return muster_error_set(MUSTER_INVALID, "max size %" PRIu32 " is not in %" PRIu32 "..%d",
                                settings->max_size, settings->min_size, MUSTER_MEMBERS_MAX);
    }
    if (settings->target_size != 0) {
        TRY(check_target(settings, settings->target_size));
    }
    TRY(check_timing("settle_ms", settings->settle_ms, 0));
    TRY(check_timing("lease_ms", settings->lease_ms, 1));
    TRY(check_timing("arrive_ms", settings->arrive_ms, 1));
    return check_timing("suspect_ms", settings->suspect_ms, 1);
}

/* What the state allows ----------------------------------------------------------------------- */

static muster_status refuse_gone(const struct muster_member *member)
{
    return muster_error_set(MUSTER_ENDED, "member %s is gone: %s", member->id, member->why);
}

static muster_status refuse_finishing(void)
{
    return muster_error_set(MUSTER_ENDED, "the job is ending: finished");
}

static muster_status check_not_ended(const struct muster_membership *m)
{
    if (m->phase == MUSTER_JOB_ENDED) {
        return muster_error_set(MUSTER_ENDED, "the job has ended: %s", m->why);
    }
    return MUSTER_OK;
}

/* The member that the event names is listed. absent: the status if it is unknown. */
static muster_status check_listed(const struct muster_membership *m, const char *id,
                                  muster_status absent)
{
    TRY(check_text("member", id, MUSTER_UUID_SIZE));
    const struct muster_member *member = muster_records_find(m, id);
    if (member != NULL && member->phase == MUSTER_MEMBER_GONE) {
        return refuse_gone(member);
    }
    TRY(check_not_ended(m));
    if (member == NULL) {
        return muster_error_set(absent, "member %s is not in this job", id);
    }
    return MUSTER_OK;
}

static muster_status check_agreement(const struct muster_membership *m,
                                     const struct muster_job_settings *settings)
{
    if (settings->min_size != m->settings.min_size) {
        return muster_error_set(MUSTER_INVALID,
                                "min size %" PRIu32 ", but the job has min size %" PRIu32,
                                settings->min_size, m->settings.min_size);
    }
    if (settings->max_size != m->settings.max_size) {
        return muster_error_set(MUSTER_INVALID,
                                "max size %" PRIu32 ", but the job has max size %" PRIu32,
                                settings->max_size, m->settings.max_size);
    }
    return MUSTER_OK;
}

/* Members of different versions could not read each other's messages. The job's is that of its
 * first member. */
static muster_status check_wire_version(const struct muster_membership *m,
                                        const struct muster_event *event)
{
    uint32_t joiner = event->settings.wire_version;
    if (joiner == m->settings.wire_version) {
        return MUSTER_OK;
    }
    const char *library = event->info.library;
    return muster_error_set(MUSTER_INVALID,
                            "wire version %" PRIu32 "%s%s%s, but the job has wire version %" PRIu32
                            ": all members need the same",
                            joiner, library[0] != '\0' ? " (libmuster " : "", library,
                            library[0] != '\0' ? ")" : "", m->settings.wire_version);
}

/* A host is in one rack: otherwise the ranks of the host and those of the rack could not both be
 * contiguous. */
static muster_status check_rack(const struct muster_membership *m,
                                const struct muster_member_info *info)
{
    const struct muster_listed_host *host = muster_records_host(m, info->host);
    if (host == NULL || strcmp(host->rack, info->rack) == 0) {
        return MUSTER_OK;
    }
    const struct muster_member *member = muster_records_find(m, info->id);
    uint32_t own = member != NULL && member->host == host ? 1 : 0;
    if (host->members > own) {
        return muster_error_set(MUSTER_INVALID,
                                "host %s is in rack \"%s\", but other members have it in "
                                "rack \"%s\"",
                                info->host, info->rack, host->rack);
    }
    return MUSTER_OK;
}

static muster_status check_slot(const struct muster_membership *m,
                                const struct muster_member_info *info)
{
    const struct muster_listed_host *host = muster_records_host(m, info->host);
    const struct muster_member *holder = host != NULL ? muster_slots_holder(m, host, info) : NULL;
    char who[MUSTER_WHY_SIZE];
    return holder == NULL
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID, "slot %" PRIu32 " of host %s is held by %s",
                                  info->slot, info->host, muster_records_describe(holder, who));
}

static muster_status check_join(const struct muster_membership *m, const struct muster_event *event)
{
    TRY(check_info(&event->info));
    TRY(check_epoch(m, event));
    TRY(check_settings(&event->settings));
    const struct muster_member *member = muster_records_find(m, event->info.id);
    if (member != NULL && member->phase == MUSTER_MEMBER_GONE) {
        return refuse_gone(member);
    }
    if (!m->begun || m->phase == MUSTER_JOB_ENDED) {
        return MUSTER_OK;
    }
    TRY(check_agreement(m, &event->settings));
    TRY(check_wire_version(m, event));
    TRY(check_rack(m, &event->info));
    TRY(check_slot(m, &event->info));
    if (member == NULL && m->finishing) {
        return refuse_finishing();
    }
    if (member == NULL && m->count >= MUSTER_MEMBERS_MAX) {
        return muster_error_set(MUSTER_INVALID, "the job is full: it has %d members",
                                MUSTER_MEMBERS_MAX);
    }
    return MUSTER_OK;
}

static muster_status check_leave(const struct muster_membership *m,
                                 const struct muster_event *event)
{
    if (event->leave_reason < MUSTER_LEAVE_FINISHED || event->leave_reason > MUSTER_LEAVE_FAILED) {
        return muster_error_set(MUSTER_INVALID, "leave reason %d is not known",
                                (int)event->leave_reason);
    }
    /* An unknown member has nothing left to leave. */
    return check_listed(m, event->member, MUSTER_ENDED);
}

static muster_status check_suspect(const struct muster_membership *m,
                                   const struct muster_event *event)
{
    TRY(check_text("suspect", event->suspect, sizeof event->suspect));
    const struct muster_member *suspect = muster_records_find(m, event->suspect);
    if (suspect != NULL && suspect->generation == event->generation) {
        return suspect->phase == MUSTER_MEMBER_GONE
                   ? muster_error_set(MUSTER_REJOIN, "generation %" PRIu64 " is over: %s",
                                      muster_epoch_shown(event->generation), suspect->why)
                   : MUSTER_OK;
    }
    return muster_error_set(MUSTER_INVALID, "suspect %s is not in generation %" PRIu64,
                            event->suspect, muster_epoch_shown(event->generation));
}

static muster_status check_report(const struct muster_membership *m,
                                  const struct muster_event *event)
{
    /* A service that lost its store knows no member: then the reporter has to join again. */
    TRY(check_listed(m, event->member, MUSTER_REJOIN));
    const struct muster_member *reporter = muster_records_find(m, event->member);
    if (strncmp(event->member, event->suspect, sizeof event->suspect) == 0) {
        return muster_error_set(MUSTER_INVALID, "member %s reports itself", event->member);
    }
    if (m->finishing) {
        return refuse_finishing();
    }
    if (event->generation != m->generation.number || reporter->generation != event->generation) {
        return muster_error_set(MUSTER_REJOIN,
                                "generation %" PRIu64
                                " is not that of member %s, "
                                "and the last one is %" PRIu64,
                                muster_epoch_shown(event->generation), event->member,
                                muster_epoch_shown(m->generation.number));
    }
    return check_suspect(m, event);
}

static muster_status check_resize(const struct muster_membership *m,
                                  const struct muster_event *event)
{
    TRY(check_not_ended(m));
    if (!m->begun) {
        return muster_error_set(MUSTER_INVALID, "target size %" PRIu32 ": nobody has joined yet",
                                event->target_size);
    }
    if (m->finishing) {
        return refuse_finishing();
    }
    return check_target(&m->settings, event->target_size);
}

muster_status muster_membership_check_member(const struct muster_membership *membership,
                                             const char *member)
{
    const struct muster_membership *m = membership;
    const struct muster_member *found = muster_records_find(m, member);
    bool over = m->phase == MUSTER_JOB_ENDED && !m->deserted;
    if (found == NULL && over) {
        return check_not_ended(m);
    }
    if (found == NULL) {
        return muster_error_set(MUSTER_REJOIN, "member %s is not in this job", member);
    }
    if (found->phase != MUSTER_MEMBER_GONE) {
        return MUSTER_OK;
    }
    muster_status status = refuse_gone(found);
    return found->died && !over ? MUSTER_REJOIN : status;
}

/* What every event must satisfy, then the case of its kind. */
muster_status muster_membership_check(const struct muster_membership *membership,
                                      const struct muster_event *event)
{
    if (event->now_ms < 0 || event->now_ms > TIME_MAX_MS) {
        return muster_error_set(MUSTER_INVALID, "time %" PRId64 " is not in 0..%" PRId64,
                                event->now_ms, TIME_MAX_MS);
    }
    if (memchr(event->why, '\0', sizeof event->why) == NULL) {
        return muster_error_set(MUSTER_INVALID, "why is longer than %zu bytes",
                                sizeof event->why - 1);
    }
    if (event->epoch > MUSTER_EPOCH_MAX) {
        return muster_error_set(MUSTER_INVALID, "epoch %" PRIu32 " is over %d", event->epoch,
                                MUSTER_EPOCH_MAX);
    }
    switch (event->kind) {
    case MUSTER_EVENT_JOIN:
        return check_join(membership, event);
    case MUSTER_EVENT_LEAVE:
        return check_leave(membership, event);
    case MUSTER_EVENT_REPORT:
        return check_report(membership, event);
    case MUSTER_EVENT_DISCONNECT:
    case MUSTER_EVENT_DEATH:
        return check_listed(membership, event->member, MUSTER_INVALID);
    case MUSTER_EVENT_RESIZE:
        return check_resize(membership, event);
    case MUSTER_EVENT_END:
        return check_not_ended(membership);
    case MUSTER_EVENT_TICK:
    case MUSTER_EVENT_RESTART:
        return MUSTER_OK;
    }
    return muster_error_set(MUSTER_INVALID, "event kind %d is not known", (int)event->kind);
}
