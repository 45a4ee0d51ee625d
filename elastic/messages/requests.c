/* The tables of the requests, and of the events for the store. */
#include "elastic/messages/messages_parts.h"

#include <string.h>

static const char *const leave_words[] = {
    "LEAVE_REASON_UNSPECIFIED",
    "LEAVE_REASON_FINISHED",
    "LEAVE_REASON_PLANNED",
    "LEAVE_REASON_FAILED",
};

static const char *const report_words[] = {
    "REPORT_KIND_UNSPECIFIED",
    "REPORT_KIND_RESET",
    "REPORT_KIND_UNREACHABLE",
    "REPORT_KIND_WAITING",
};

static const struct muster_field join_fields[] = {
    TEXT_FIELD(muster_join_request, "job", job, JOB),
    TEXT_FIELD(muster_join_request, "member", info.id, UUID),
    INFO_FIELDS(muster_join_request, HOST),
    FIELD(muster_join_request, "minSize", UINT32, min_size),
    FIELD(muster_join_request, "maxSize", UINT32, max_size),
    FIELD(muster_join_request, "targetSize", UINT32, target_size),
    FIELD(muster_join_request, "neighbours", BOOL, neighbours),
    FIELD(muster_join_request, "neighboursAbove", UINT32, neighbours_above),
    FIELD(muster_join_request, "wireVersion", UINT32, wire_version),
};
static const struct muster_service_message join_request =
    MESSAGE(muster_join_request, join_fields, .sparse = true);
DEFINE_MESSAGE(join_request, muster_join_request, join_request)

static const struct muster_field watch_fields[] = {
    TEXT_FIELD(muster_watch_request, "job", job, JOB),
    TEXT_FIELD(muster_watch_request, "member", member, REQUIRED),
    FIELD(muster_watch_request, "generation", UINT64, generation),
    FIELD(muster_watch_request, "pendingKnown", BOOL, pending_known),
    FIELD(muster_watch_request, "leaveKnown", BOOL, leave_known),
    FIELD(muster_watch_request, "progress", UINT64, progress),
};
static const struct muster_service_message watch_request =
    MESSAGE(muster_watch_request, watch_fields, .sparse = true);
DEFINE_MESSAGE(watch_request, muster_watch_request, watch_request)

static const struct muster_field stream_fields[] = {
    TEXT_FIELD(muster_watch_request, "job", job, JOB),
    TEXT_FIELD(muster_watch_request, "member", member, ANY),
    FIELD(muster_watch_request, "generation", UINT64, generation),
    FIELD(muster_watch_request, "pendingKnown", BOOL, pending_known),
    FIELD(muster_watch_request, "leaveKnown", BOOL, leave_known),
    FIELD(muster_watch_request, "progress", UINT64, progress),
};
static const struct muster_service_message stream_request =
    MESSAGE(muster_watch_request, stream_fields, .sparse = true);
DEFINE_MESSAGE(stream_request, muster_watch_request, stream_request)

static const struct muster_field leave_fields[] = {
    TEXT_FIELD(muster_leave_request, "job", job, JOB),
    TEXT_FIELD(muster_leave_request, "member", member, REQUIRED),
    FIELD(muster_leave_request, "generation", UINT64, generation),
    WORD_FIELD(muster_leave_request, "reason", reason, leave_words),
    TEXT_FIELD(muster_leave_request, "why", why, ANY),
};
static const struct muster_service_message leave_request =
    MESSAGE(muster_leave_request, leave_fields, .sparse = true);
DEFINE_MESSAGE(leave_request, muster_leave_request, leave_request)

static const struct muster_field report_fields[] = {
    TEXT_FIELD(muster_report_request, "job", job, JOB),
    TEXT_FIELD(muster_report_request, "member", member, REQUIRED),
    FIELD(muster_report_request, "generation", UINT64, generation),
    FIELD(muster_report_request, "suspect", UINT32, suspect),
    TEXT_FIELD(muster_report_request, "why", why, ANY),
    WORD_FIELD(muster_report_request, "kind", kind, report_words),
    TEXT_FIELD(muster_report_request, "suspectMember", suspect_member, UUID_OR_NONE),
};
static const struct muster_service_message report_request =
    MESSAGE(muster_report_request, report_fields, .sparse = true);
DEFINE_MESSAGE(report_request, muster_report_request, report_request)

static const struct muster_field resize_fields[] = {
    TEXT_FIELD(muster_resize_request, "job", job, JOB),
    FIELD(muster_resize_request, "targetSize", UINT32, target_size),
};
static const struct muster_service_message resize_request =
    MESSAGE(muster_resize_request, resize_fields, .sparse = true);
DEFINE_MESSAGE(resize_request, muster_resize_request, resize_request)

static const struct muster_field peers_fields[] = {
    TEXT_FIELD(muster_peers_request, "job", job, JOB),
    TEXT_FIELD(muster_peers_request, "member", member, REQUIRED),
    FIELD(muster_peers_request, "generation", UINT64, generation),
    FIELD(muster_peers_request, "ranks", NUMBERS, ranks, .max = MUSTER_PEERS_MAX,
          .count_offset = offsetof(struct muster_peers_request, rank_count)),
};
static const struct muster_service_message peers_request =
    MESSAGE(muster_peers_request, peers_fields, .sparse = true);
DEFINE_MESSAGE(peers_request, muster_peers_request, peers_request)

void muster_peers_request_finish(struct muster_peers_request *value)
{
    muster_message_finish(&peers_request, value);
}

static const struct muster_field job_fields[] = {
    TEXT_FIELD(muster_job_request, "job", job, JOB),
    TEXT_FIELD(muster_job_request, "why", why, ANY),
};
static const struct muster_service_message job_request =
    MESSAGE(muster_job_request, job_fields, .sparse = true);
DEFINE_MESSAGE(job_request, muster_job_request, job_request)

/* Events ------------------------------------------------------------------------------------- */

static const char *const event_words[] = {
    NULL, "join", "leave", "report", "disconnect", "resize", "end", "tick", "restart", "death",
};

static const struct muster_field info_fields[] = {
    TEXT_FIELD(muster_event, "member", info.id, ANY),
    INFO_FIELDS(muster_event, ANY),
};
static const struct muster_service_message event_info =
    MESSAGE(muster_event, info_fields, .sparse = true);

static const struct muster_field settings_fields[] = {
    SETTINGS_FIELDS(muster_event),
};
static const struct muster_service_message event_settings =
    MESSAGE(muster_event, settings_fields, .sparse = true);

static const struct muster_field event_fields[] = {
    WORD_FIELD(muster_event, "kind", kind, event_words),
    FIELD(muster_event, "nowMs", INT64, now_ms),
    TEXT_FIELD(muster_event, "member", member, ANY),
    TEXT_FIELD(muster_event, "suspect", suspect, ANY),
    FIELD(muster_event, "generation", UINT64, generation),
    FIELD(muster_event, "epoch", UINT32, epoch),
    WORD_FIELD(muster_event, "leaveReason", leave_reason, leave_words),
    FIELD(muster_event, "targetSize", UINT32, target_size),
    FIELD(muster_event, "formsNothing", BOOL, forms_nothing),
    TEXT_FIELD(muster_event, "why", why, ANY),
    FIELD(muster_event, "info", PART, info, .message = &event_info),
    FIELD(muster_event, "settings", PART, settings, .message = &event_settings),
};
static const struct muster_service_message event =
    MESSAGE(muster_event, event_fields, .sparse = true);

json_t *muster_event_encode(const struct muster_event *value)
{
    json_t *json = muster_message_encode(&event, value);
    if (json != NULL && value->kind != MUSTER_EVENT_JOIN) {
        (void)json_object_del(json, "info");
        (void)json_object_del(json, "settings");
    }
    return json;
}

muster_status muster_event_decode(const json_t *json, struct muster_event *ret_value)
{
    struct muster_event value;
    TRY(muster_message_decode(&event, json, &value));
    if (value.kind == 0) {
        return muster_error_set(MUSTER_INVALID, "kind: missing");
    }
    *ret_value = value;
    return MUSTER_OK;
}
