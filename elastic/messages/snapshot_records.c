/* What a membership keeps, as the store has it. */
#include "elastic/messages/messages_parts.h"

static const char *const kept_words[] = {
    NULL, "job", "host", "seat", "gone", "member", "formed", "departed",
};

static const struct muster_field info_fields[] = {
    INFO_FIELDS(muster_kept, ANY),
};
static const struct muster_message info = MESSAGE(muster_kept, info_fields, .sparse = true);

static const struct muster_field settings_fields[] = {
    SETTINGS_FIELDS(muster_kept),
};
static const struct muster_message settings = MESSAGE(muster_kept, settings_fields, .sparse = true);

static const struct muster_field signs_fields[] = {
    FIELD(muster_kept, "heardMs", INT64, signs.heard_ms),
    FIELD(muster_kept, "closedMs", INT64, signs.closed_ms),
    FIELD(muster_kept, "reportedMs", INT64, signs.reported_ms),
    FIELD(muster_kept, "reporter", UINT32, signs.reporter),
    FIELD(muster_kept, "awaitedMs", INT64, signs.awaited_ms),
    FIELD(muster_kept, "progress", UINT64, signs.progress),
};
static const struct muster_message signs = MESSAGE(muster_kept, signs_fields, .sparse = true);

static const struct muster_field fields[] = {
    WORD_FIELD(muster_kept, "kept", kind, kept_words),
    FIELD(muster_kept, "nowMs", INT64, now_ms),
    TEXT_FIELD(muster_kept, "member", member, ANY),
    TEXT_FIELD(muster_kept, "why", why, ANY),
    FIELD(muster_kept, "generation", UINT64, generation),
    FIELD(muster_kept, "size", UINT32, size),
    FIELD(muster_kept, "hosts", UINT32, hosts),
    FIELD(muster_kept, "rank", UINT32, rank),
    FIELD(muster_kept, "stale", BOOL, stale),
    FIELD(muster_kept, "phase", UINT32, phase, .max = MUSTER_MEMBER_AWAITED),
    FIELD(muster_kept, "arrival", UINT64, arrival),
    FIELD(muster_kept, "seniority", UINT64, seniority),
    FIELD(muster_kept, "leaveAsked", BOOL, leave_asked),
    FIELD(muster_kept, "died", BOOL, died),
    FIELD(muster_kept, "jobPhase", UINT32, job_phase, .max = MUSTER_JOB_ENDED),
    FIELD(muster_kept, "begun", BOOL, begun),
    FIELD(muster_kept, "newcomersSettled", BOOL, newcomers_settled),
    FIELD(muster_kept, "shrinking", BOOL, shrinking),
    FIELD(muster_kept, "finishing", BOOL, finishing),
    FIELD(muster_kept, "deserted", BOOL, deserted),
    FIELD(muster_kept, "whyOpen", BOOL, why_open),
    FIELD(muster_kept, "arrivals", UINT64, arrivals),
    FIELD(muster_kept, "seniorities", UINT64, seniorities),
    FIELD(muster_kept, "highest", UINT64, highest),
    FIELD(muster_kept, "newcomerMs", INT64, newcomer_ms),
    FIELD(muster_kept, "stateVersion", UINT64, state_version),
    FIELD(muster_kept, "stateSource", UINT32, state_source),
    FIELD(muster_kept, "revokedMs", INT64, revoked_ms),
    FIELD(muster_kept, "leaveReason", UINT32, leave_reason, .max = MUSTER_LEAVE_FAILED),
    FIELD(muster_kept, "info", PART, info, .message = &info),
    FIELD(muster_kept, "settings", PART, settings, .message = &settings),
    FIELD(muster_kept, "signs", PART, signs, .message = &signs),
};
static const struct muster_message kept = MESSAGE(muster_kept, fields, .sparse = true);

bool muster_kept_is(const json_t *json)
{
    return json_object_get(json, "kept") != NULL;
}

json_t *muster_kept_encode(const struct muster_kept *value)
{
    json_t *json = muster_message_encode(&kept, value);
    bool is_member = value->kind == MUSTER_KEPT_MEMBER;
    if (json != NULL && !is_member && value->kind != MUSTER_KEPT_DEPARTED) {
        (void)json_object_del(json, "info");
    }
    if (json != NULL && !is_member) {
        (void)json_object_del(json, "signs");
    }
    if (json != NULL && value->kind != MUSTER_KEPT_JOB) {
        (void)json_object_del(json, "settings");
    }
    return json;
}

muster_status muster_kept_decode(const json_t *json, struct muster_kept *ret_value)
{
    struct muster_kept value;
    TRY(muster_message_decode(&kept, json, &value));
    if (value.kind == 0) {
        return muster_error_set(MUSTER_INVALID, "kept: missing");
    }
    *ret_value = value;
    return MUSTER_OK;
}
