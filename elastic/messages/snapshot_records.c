/*
 * Snapshot records as JSON, for the store. The names in it, also "kept" and "seat", are part of the
 * format of version 1 of the store and do not change within it.
 */
#include "elastic/messages/messages_parts.h"

static const char *const kind_words[] = {
    NULL, "job", "host", "seat", "gone", "member", "formed", "departed",
};

static const struct muster_field info_fields[] = {
    INFO_FIELDS(muster_snapshot_record, ANY),
};
static const struct muster_service_message info =
    MESSAGE(muster_snapshot_record, info_fields, .sparse = true);

static const struct muster_field settings_fields[] = {
    SETTINGS_FIELDS(muster_snapshot_record),
};
static const struct muster_service_message settings =
    MESSAGE(muster_snapshot_record, settings_fields, .sparse = true);

static const struct muster_field signs_fields[] = {
    FIELD(muster_snapshot_record, "heardMs", INT64, signs.last_seen_ms),
    FIELD(muster_snapshot_record, "closedMs", INT64, signs.closed_ms),
    FIELD(muster_snapshot_record, "reportedMs", INT64, signs.reported_ms),
    FIELD(muster_snapshot_record, "reporter", UINT32, signs.reporter),
    FIELD(muster_snapshot_record, "awaitedMs", INT64, signs.awaited_ms),
    FIELD(muster_snapshot_record, "progress", UINT64, signs.progress),
};
static const struct muster_service_message signs =
    MESSAGE(muster_snapshot_record, signs_fields, .sparse = true);

static const struct muster_field fields[] = {
    WORD_FIELD(muster_snapshot_record, "kept", kind, kind_words),
    FIELD(muster_snapshot_record, "nowMs", INT64, now_ms),
    TEXT_FIELD(muster_snapshot_record, "member", member, ANY),
    TEXT_FIELD(muster_snapshot_record, "why", why, ANY),
    FIELD(muster_snapshot_record, "generation", UINT64, generation),
    FIELD(muster_snapshot_record, "size", UINT32, size),
    FIELD(muster_snapshot_record, "hosts", UINT32, hosts),
    FIELD(muster_snapshot_record, "rank", UINT32, rank),
    FIELD(muster_snapshot_record, "stale", BOOL, stale),
    FIELD(muster_snapshot_record, "phase", UINT32, phase, .max = MUSTER_MEMBER_AWAITED),
    FIELD(muster_snapshot_record, "arrival", UINT64, arrival),
    FIELD(muster_snapshot_record, "seniority", UINT64, seniority),
    FIELD(muster_snapshot_record, "leaveAsked", BOOL, leave_asked),
    FIELD(muster_snapshot_record, "died", BOOL, died),
    FIELD(muster_snapshot_record, "jobPhase", UINT32, job_phase, .max = MUSTER_JOB_ENDED),
    FIELD(muster_snapshot_record, "begun", BOOL, begun),
    FIELD(muster_snapshot_record, "newcomersSettled", BOOL, newcomers_settled),
    FIELD(muster_snapshot_record, "shrinking", BOOL, shrinking),
    FIELD(muster_snapshot_record, "finishing", BOOL, finishing),
    FIELD(muster_snapshot_record, "deserted", BOOL, deserted),
    FIELD(muster_snapshot_record, "whyOpen", BOOL, why_open),
    FIELD(muster_snapshot_record, "arrivals", UINT64, arrivals),
    FIELD(muster_snapshot_record, "seniorities", UINT64, seniorities),
    FIELD(muster_snapshot_record, "highest", UINT64, highest),
    FIELD(muster_snapshot_record, "epoch", UINT32, epoch),
    FIELD(muster_snapshot_record, "resizes", UINT64, resizes),
    FIELD(muster_snapshot_record, "newcomerMs", INT64, last_newcomer_ms),
    FIELD(muster_snapshot_record, "stateVersion", UINT64, state_version),
    FIELD(muster_snapshot_record, "stateSource", UINT32, state_source),
    FIELD(muster_snapshot_record, "revokedMs", INT64, revoked_ms),
    FIELD(muster_snapshot_record, "leaveReason", UINT32, leave_reason, .max = MUSTER_LEAVE_FAILED),
    FIELD(muster_snapshot_record, "info", PART, info, .message = &info),
    FIELD(muster_snapshot_record, "settings", PART, settings, .message = &settings),
    FIELD(muster_snapshot_record, "signs", PART, signs, .message = &signs),
};
static const struct muster_service_message record =
    MESSAGE(muster_snapshot_record, fields, .sparse = true);

bool muster_snapshot_record_is(const json_t *json)
{
    return json_object_get(json, "kept") != NULL;
}

json_t *muster_snapshot_record_encode(const struct muster_snapshot_record *value)
{
    json_t *json = muster_message_encode(&record, value);
    bool is_member = value->kind == MUSTER_SNAPSHOT_MEMBER;
    if (json != NULL && !is_member && value->kind != MUSTER_SNAPSHOT_DEPARTED) {
        (void)json_object_del(json, "info");
    }
    if (json != NULL && !is_member) {
        (void)json_object_del(json, "signs");
    }
    if (json != NULL && value->kind != MUSTER_SNAPSHOT_JOB) {
        (void)json_object_del(json, "settings");
    }
    return json;
}

muster_status muster_snapshot_record_decode(const json_t *json,
                                            struct muster_snapshot_record *ret_value)
{
    struct muster_snapshot_record value;
    TRY(muster_message_decode(&record, json, &value));
    if (value.kind == 0) {
        return muster_error_set(MUSTER_INVALID, "kept: missing");
    }
    *ret_value = value;
    return MUSTER_OK;
}
