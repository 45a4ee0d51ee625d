/* The tables of the responses. */
#include "elastic/messages/messages_parts.h"

#include <string.h>

/* Joins --------------------------------------------------------------------------------------- */

static const struct muster_field host_fields[] = {
    TEXT_FIELD(muster_wire_host, "name", name, REQUIRED),
    TEXT_FIELD(muster_wire_host, "rack", rack, ANY),
    FIELD(muster_wire_host, "size", UINT32, size),
};
static const struct muster_service_message wire_host = MESSAGE(muster_wire_host, host_fields);

static const struct muster_field peer_fields[] = {
    FIELD(muster_wire_peer, "rank", UINT32, rank),
    TEXT_FIELD(muster_wire_peer, "member", member, REQUIRED),
    TEXT_FIELD(muster_wire_peer, "host", host, ANY),
    FIELD(muster_wire_peer, "order", UINT32, order),
    ADDRESSES_FIELD(muster_wire_peer, addresses, address_count),
};
static const struct muster_service_message wire_peer = MESSAGE(muster_wire_peer, peer_fields);
DEFINE_MESSAGE(wire_peer, muster_wire_peer, wire_peer)

static const struct muster_field peers_fields[] = {
    LIST_FIELD(muster_peers_response, "peers", peers, peer_count, wire_peer),
};
static const struct muster_service_message peers_response =
    MESSAGE(muster_peers_response, peers_fields);
DEFINE_MESSAGE(peers_response, muster_peers_response, peers_response)

void muster_peers_response_finish(struct muster_peers_response *value)
{
    muster_message_finish(&peers_response, value);
}

static const struct muster_field waiting_fields[] = {
    FIELD(muster_join_response, "members", UINT32, members),
    FIELD(muster_join_response, "minSize", UINT32, min_size),
    FIELD(muster_join_response, "targetSize", UINT32, target_size),
    FIELD(muster_join_response, "missing", TEXTS, missing, .max = MUSTER_MISSING_MAX,
          .size_bytes = MUSTER_MISSING_SIZE,
          .count_offset = offsetof(struct muster_join_response, missing_count)),
    LIST_FIELD(muster_join_response, "doubted", doubted, doubted_count, wire_peer),
};
static const struct muster_service_message join_waiting =
    MESSAGE(muster_join_response, waiting_fields);

static const struct muster_field state_fields[] = {
    FIELD(muster_join_response, "version", UINT64, state_version),
    FIELD(muster_join_response, "source", UINT32, state_source),
    FIELD(muster_join_response, "stale", NUMBERS, stale, .max = MUSTER_MEMBERS_MAX,
          .count_offset = offsetof(struct muster_join_response, stale_count)),
};
static const struct muster_service_message join_state = MESSAGE(muster_join_response, state_fields);

/* The count of peers is the size of the generation: decode checks that both are equal. */
static const struct muster_field formed_fields[] = {
    FIELD(muster_join_response, "generation", UINT64, generation),
    FIELD(muster_join_response, "rank", UINT32, rank),
    LIST_FIELD(muster_join_response, "peers", peers, size, wire_peer),
    FIELD(muster_join_response, "size", UINT32, size, .max = MUSTER_MEMBERS_MAX),
    FIELD(muster_join_response, "localRank", UINT32, local_rank),
    FIELD(muster_join_response, "localSize", UINT32, local_size),
    FIELD(muster_join_response, "crossRank", UINT32, cross_rank),
    FIELD(muster_join_response, "crossSize", UINT32, cross_size),
    FIELD(muster_join_response, "slot", UINT32, slot, .max = MUSTER_MEMBERS_MAX - 1),
    LIST_FIELD(muster_join_response, "hosts", hosts, host_count, wire_host),
    FIELD(muster_join_response, "state", PART, state_version, .message = &join_state),
    TEXT_FIELD(muster_join_response, "linkToken", link_token, ANY),
    FIELD(muster_join_response, "holdMs", UINT32, hold_ms),
    FIELD(muster_join_response, "leaseMs", UINT32, lease_ms),
};
static const struct muster_service_message join_formed =
    MESSAGE(muster_join_response, formed_fields);

/* Of a large job. */
static const struct muster_field host_run_fields[] = {
    FIELD(muster_wire_host_run, "hosts", UINT32, hosts),
    FIELD(muster_wire_host_run, "size", UINT32, size),
};
static const struct muster_service_message host_run =
    MESSAGE(muster_wire_host_run, host_run_fields);

static const struct muster_field rack_run_fields[] = {
    FIELD(muster_wire_rack_run, "racks", UINT32, racks),
    FIELD(muster_wire_rack_run, "hosts", UINT32, hosts),
};
static const struct muster_service_message rack_run =
    MESSAGE(muster_wire_rack_run, rack_run_fields);

static const struct muster_field order_run_fields[] = {
    FIELD(muster_wire_order_run, "first", UINT32, first),
    FIELD(muster_wire_order_run, "count", UINT32, count),
    FIELD(muster_wire_order_run, "step", UINT32, step),
};
static const struct muster_service_message order_run =
    MESSAGE(muster_wire_order_run, order_run_fields);

static const struct muster_field ranks_fields[] = {
    FIELD(muster_wire_ranks, "first", UINT32, first),
    FIELD(muster_wire_ranks, "count", UINT32, count),
};
static const struct muster_service_message wire_ranks = MESSAGE(muster_wire_ranks, ranks_fields);

static const struct muster_field short_state_fields[] = {
    FIELD(muster_join_response, "version", UINT64, state_version),
    FIELD(muster_join_response, "source", UINT32, state_source),
    LIST_FIELD(muster_join_response, "staleRanges", shape.stale, shape.stale_count, wire_ranks),
};
static const struct muster_service_message short_state =
    MESSAGE(muster_join_response, short_state_fields);

static const struct muster_field short_fields[] = {
    FIELD(muster_join_response, "generation", UINT64, generation),
    TEXT_FIELD(muster_join_response, "member", shape.member, REQUIRED),
    FIELD(muster_join_response, "rank", UINT32, rank),
    FIELD(muster_join_response, "size", UINT32, size, .max = MUSTER_MEMBERS_MAX),
    FIELD(muster_join_response, "localRank", UINT32, local_rank),
    FIELD(muster_join_response, "localSize", UINT32, local_size),
    FIELD(muster_join_response, "crossRank", UINT32, cross_rank),
    FIELD(muster_join_response, "crossSize", UINT32, cross_size),
    FIELD(muster_join_response, "slot", UINT32, slot, .max = MUSTER_MEMBERS_MAX - 1),
    LIST_FIELD(muster_join_response, "near", shape.near, shape.near_count, wire_peer),
    LIST_FIELD(muster_join_response, "shape", shape.hosts, shape.host_run_count, host_run),
    LIST_FIELD(muster_join_response, "rackShape", shape.racks, shape.rack_run_count, rack_run),
    LIST_FIELD(muster_join_response, "orders", shape.orders, shape.order_run_count, order_run),
    FIELD(muster_join_response, "hostsDigest", UINT32, shape.hosts_digest),
    FIELD(muster_join_response, "state", PART, state_version, .message = &short_state),
    TEXT_FIELD(muster_join_response, "linkToken", link_token, ANY),
    FIELD(muster_join_response, "holdMs", UINT32, hold_ms),
    FIELD(muster_join_response, "leaseMs", UINT32, lease_ms),
};
static const struct muster_service_message join_short = MESSAGE(muster_join_response, short_fields);

static const struct muster_service_message *table_of(const struct muster_join_response *value)
{
    if (!value->formed) {
        return &join_waiting;
    }
    return value->has_shape ? &join_short : &join_formed;
}

json_t *muster_join_response_encode(const struct muster_join_response *value)
{
    json_t *json = json_object();
    json_t *inner = muster_message_encode(table_of(value), value);
    if (json == NULL ||
        json_object_set_new(json, value->formed ? "formed" : "waiting", inner) != 0) {
        json_decref(json);
        return NULL;
    }
    return json;
}

static muster_status check_hosts(const struct muster_join_response *value)
{
    uint64_t members = 0;
    for (uint32_t i = 0; i < value->host_count; i++) {
        if (value->hosts[i].size == 0) {
            return muster_error_set(MUSTER_INVALID, "formed.hosts[%u].size: is 0", i);
        }
        members += value->hosts[i].size;
    }
    if (members != value->size) {
        return muster_error_set(MUSTER_INVALID, "formed.hosts: %llu members for size %u",
                                (unsigned long long)members, value->size);
    }
    return MUSTER_OK;
}

static muster_status check_rank(const char *name, uint32_t rank, uint32_t size)
{
    if (rank >= size) {
        return muster_error_set(MUSTER_INVALID, "formed.%s: %u is not below %u", name, rank, size);
    }
    return MUSTER_OK;
}

static muster_status check_ranks(const struct muster_join_response *value)
{
    if (value->generation == 0) {
        return muster_error_set(MUSTER_INVALID, "formed.generation: is 0");
    }
    TRY(check_rank("rank", value->rank, value->size));
    TRY(check_rank("localRank", value->local_rank, value->local_size));
    TRY(check_rank("crossRank", value->cross_rank, value->cross_size));
    return check_rank("state.source", value->state_source, value->size);
}

/* The worker indexes its tables with these numbers, so numbers that contradict each other are
 * refused here. */
static muster_status check_formed(const struct muster_join_response *value, size_t peer_count)
{
    if (peer_count != value->size) {
        return muster_error_set(MUSTER_INVALID, "formed.peers: %zu items for size %u", peer_count,
                                value->size);
    }
    TRY(check_ranks(value));
    TRY(check_hosts(value));
    for (uint32_t i = 0; i < value->stale_count; i++) {
        TRY(check_rank("state.stale", value->stale[i], value->size));
        if (i > 0 && value->stale[i] <= value->stale[i - 1]) {
            return muster_error_set(MUSTER_INVALID,
                                    "formed.state.stale[%u]: is not above the one before", i);
        }
    }
    return MUSTER_OK;
}

static muster_status check_sum(const char *name, uint64_t sum, uint64_t wanted)
{
    return sum == wanted
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID, "formed.%s: %llu in all, not %llu", name,
                                  (unsigned long long)sum, (unsigned long long)wanted);
}

/* A product of two 32-bit numbers, of which at most MUSTER_MEMBERS_MAX are added, fits: the sum is
 * compared after each. */
static muster_status check_runs(const struct muster_join_response *value, uint64_t *ret_hosts)
{
    const struct muster_wire_shape *shape = &value->shape;
    uint64_t members = 0;
    uint64_t hosts = 0;
    for (uint32_t i = 0; i < shape->host_run_count && members <= value->size; i++) {
        if (shape->hosts[i].size == 0 || shape->hosts[i].hosts == 0) {
            return muster_error_set(MUSTER_INVALID, "formed.shape[%u]: is 0", i);
        }
        members += (uint64_t)shape->hosts[i].hosts * shape->hosts[i].size;
        hosts += shape->hosts[i].hosts;
    }
    TRY(check_sum("shape", members, value->size));
    uint64_t racked = 0;
    for (uint32_t i = 0; i < shape->rack_run_count && racked <= hosts; i++) {
        if (shape->racks[i].racks == 0 || shape->racks[i].hosts == 0) {
            return muster_error_set(MUSTER_INVALID, "formed.rackShape[%u]: is 0", i);
        }
        racked += (uint64_t)shape->racks[i].racks * shape->racks[i].hosts;
    }
    TRY(check_sum("rackShape", racked, hosts));
    uint64_t ordered = 0;
    for (uint32_t i = 0; i < shape->order_run_count && ordered <= value->size; i++) {
        ordered += shape->orders[i].count;
    }
    *ret_hosts = hosts;
    return check_sum("orders", ordered, value->size);
}

static muster_status check_short(const struct muster_join_response *value, uint32_t *ret_hosts)
{
    const struct muster_wire_shape *shape = &value->shape;
    uint64_t hosts = 0;
    uint64_t next = 0;
    TRY(check_ranks(value));
    TRY(check_runs(value, &hosts));
    for (uint32_t i = 0; i < shape->near_count; i++) {
        TRY(check_rank("near.rank", shape->near[i].rank, value->size));
    }
    for (uint32_t i = 0; i < shape->stale_count; i++) {
        const struct muster_wire_ranks *range = &shape->stale[i];
        if (range->count == 0 || range->first < next ||
            (uint64_t)range->first + range->count > value->size) {
            return muster_error_set(MUSTER_INVALID,
                                    "formed.state.staleRanges[%u]: ranks %u and %u more, of %u", i,
                                    range->first, range->count, value->size);
        }
        next = (uint64_t)range->first + range->count;
    }
    *ret_hosts = (uint32_t)hosts;
    return MUSTER_OK;
}

/* `near` is in the responses of large jobs only, which have a table of their own. */
static muster_status decode_formed(const json_t *formed, struct muster_join_response *value)
{
    bool is_short = json_object_get(formed, "near") != NULL;
    muster_status status =
        muster_message_decode(is_short ? &join_short : &join_formed, formed, value);
    if (status != MUSTER_OK) {
        return muster_error_set(status, "formed.%s", muster_last_error());
    }
    value->formed = true;
    value->has_shape = is_short;
    status = is_short ? check_short(value, &value->shape.host_count)
                      : check_formed(value, json_array_size(json_object_get(formed, "peers")));
    if (status != MUSTER_OK) {
        muster_join_response_finish(value);
    }
    return status;
}

/* Exactly one of the two forms, each with its own table of fields. */
muster_status muster_join_response_decode(const json_t *json,
                                          struct muster_join_response *ret_value)
{
    const json_t *formed = json_object_get(json, "formed");
    const json_t *waiting = json_object_get(json, "waiting");
    if ((formed == NULL) == (waiting == NULL)) {
        return muster_error_set(MUSTER_INVALID, "not exactly one of formed and waiting");
    }
    struct muster_join_response value;
    if (waiting != NULL) {
        if (muster_message_decode(&join_waiting, waiting, &value) != MUSTER_OK) {
            return muster_error_set(MUSTER_INVALID, "waiting.%s", muster_last_error());
        }
        *ret_value = value;
        return MUSTER_OK;
    }
    TRY(decode_formed(formed, &value));
    *ret_value = value;
    return MUSTER_OK;
}

void muster_join_response_finish(struct muster_join_response *value)
{
    muster_message_finish(&join_waiting, value);
    muster_message_finish(&join_formed, value);
    muster_message_finish(&join_short, value);
}

/* Watches, errors ----------------------------------------------------------------------------- */

static const struct muster_field watch_fields[] = {
    FIELD(muster_watch_response, "revoked", BOOL, revoked),
    FIELD(muster_watch_response, "pending", BOOL, pending),
    FIELD(muster_watch_response, "leave", BOOL, leave),
    TEXT_FIELD(muster_watch_response, "reason", reason, ANY),
    LIST_FIELD(muster_watch_response, "doubted", doubted, doubted_count, wire_peer),
};
static const struct muster_service_message watch_response =
    MESSAGE(muster_watch_response, watch_fields);
DEFINE_MESSAGE(watch_response, muster_watch_response, watch_response)

void muster_watch_response_finish(struct muster_watch_response *value)
{
    muster_message_finish(&watch_response, value);
}

static const struct muster_field error_fields[] = {
    FIELD(muster_rpc_error, "message", LINE, message,
          .size_bytes = sizeof(((struct muster_rpc_error *)0)->message)),
};
static const struct muster_service_message rpc_error = MESSAGE(muster_rpc_error, error_fields);

json_t *muster_rpc_error_encode(const struct muster_rpc_error *value)
{
    json_t *json = json_pack("{ss}", "code", muster_rpc_code_name(value->code));
    json_t *message = muster_message_encode(&rpc_error, value);
    if (json == NULL || message == NULL || json_object_update(json, message) != 0) {
        json_decref(json);
        json = NULL;
    }
    json_decref(message);
    return json;
}

muster_status muster_rpc_error_decode(const json_t *json, struct muster_rpc_error *ret_value)
{
    struct muster_rpc_error value;
    TRY(muster_message_decode(&rpc_error, json, &value));
    const char *code = json_string_value(json_object_get(json, "code"));
    if (code == NULL) {
        return muster_error_set(MUSTER_INVALID, "code: missing or not a string");
    }
    value.code = muster_rpc_code_parse(code);
    *ret_value = value;
    return MUSTER_OK;
}

/* Jobs ---------------------------------------------------------------------------------------- */

static const char *const phase_words[] = {
    "JOB_PHASE_UNSPECIFIED",
    "JOB_PHASE_FORMING",
    "JOB_PHASE_RUNNING",
    "JOB_PHASE_ENDED",
};
static const char *const member_words[] = {NULL, "arrived", "active", "awaited"};
static const char *const departure_words[] = {"died", "finished", "planned", "failed"};

static const struct muster_field member_fields[] = {
    TEXT_FIELD(muster_job_member, "member", info.id, REQUIRED),
    TEXT_FIELD(muster_job_member, "host", info.host, ANY),
    TEXT_FIELD(muster_job_member, "rack", info.rack, ANY),
    FIELD(muster_job_member, "pid", UINT32, info.pid),
    TEXT_FIELD(muster_job_member, "libraryVersion", info.library, ANY),
    FIELD(muster_job_member, "capabilities", PAIRS, info.capabilities,
          .size_bytes = MUSTER_CAPABILITIES_SIZE),
    WORD_FIELD(muster_job_member, "phase", phase, member_words),
    FIELD(muster_job_member, "rank", INT32, rank),
    FIELD(muster_job_member, "localRank", INT32, local_rank),
    FIELD(muster_job_member, "crossRank", INT32, cross_rank),
    FIELD(muster_job_member, "slot", UINT32, info.slot),
    FIELD(muster_job_member, "joinedMs", INT64, joined_ms),
    FIELD(muster_job_member, "stateVersion", UINT64, info.state_version),
    FIELD(muster_job_member, "progress", UINT64, progress),
    FIELD(muster_job_member, "silentMs", UINT64, silent_ms),
    FIELD(muster_job_member, "suspected", BOOL, suspected),
    FIELD(muster_job_member, "leaveAsked", BOOL, leave_asked),
};
static const struct muster_service_message job_member = MESSAGE(muster_job_member, member_fields);

static const struct muster_field generation_fields[] = {
    FIELD(muster_generation_record, "number", UINT64, number),
    FIELD(muster_generation_record, "size", UINT32, size),
    FIELD(muster_generation_record, "hosts", UINT32, hosts),
    FIELD(muster_generation_record, "formedMs", INT64, formed_ms),
    FIELD(muster_generation_record, "revokedMs", INT64, revoked_ms),
    TEXT_FIELD(muster_generation_record, "why", why, ANY),
};
static const struct muster_service_message generation_record =
    MESSAGE(muster_generation_record, generation_fields);

static const struct muster_field departure_fields[] = {
    TEXT_FIELD(muster_departure_record, "member", member, ANY),
    TEXT_FIELD(muster_departure_record, "host", host, ANY),
    FIELD(muster_departure_record, "pid", UINT32, pid),
    FIELD(muster_departure_record, "rank", RANK, rank),
    FIELD(muster_departure_record, "generation", UINT64, generation),
    WORD_FIELD(muster_departure_record, "reason", reason, departure_words),
    FIELD(muster_departure_record, "atMs", INT64, at_ms),
    TEXT_FIELD(muster_departure_record, "why", why, ANY),
};
static const struct muster_service_message departure_record =
    MESSAGE(muster_departure_record, departure_fields);

static const struct muster_field job_fields[] = {
    TEXT_FIELD(muster_job_response, "name", name, JOB),
    WORD_FIELD(muster_job_response, "phase", phase, phase_words),
    TEXT_FIELD(muster_job_response, "why", why, ANY),
    FIELD(muster_job_response, "generation", UINT64, generation),
    FIELD(muster_job_response, "minSize", UINT32, min_size),
    FIELD(muster_job_response, "maxSize", UINT32, max_size),
    FIELD(muster_job_response, "targetSize", UINT32, target_size),
    FIELD(muster_job_response, "nowMs", INT64, now_ms),
    FIELD(muster_job_response, "wireVersion", UINT32, wire_version),
    FIELD(muster_job_response, "resizes", UINT64, resizes),
    FIELD(muster_job_response, "pending", BOOL, pending),
    LIST_FIELD(muster_job_response, "members", members, member_count, job_member),
    LIST_FIELD(muster_job_response, "generations", generations, generation_count,
               generation_record),
    LIST_FIELD(muster_job_response, "departures", departures, departure_count, departure_record),
};
static const struct muster_service_message job = MESSAGE(muster_job_response, job_fields);

json_t *muster_job_response_encode(const struct muster_job_response *value)
{
    json_t *json = json_object();
    if (json == NULL || json_object_set_new(json, "job", muster_message_encode(&job, value)) != 0) {
        json_decref(json);
        return NULL;
    }
    return json;
}

muster_status muster_job_response_decode(const json_t *json, struct muster_job_response *ret_value)
{
    muster_status status = muster_message_decode(&job, json_object_get(json, "job"), ret_value);
    if (status != MUSTER_OK) {
        return muster_error_set(status, "job.%s", muster_last_error());
    }
    return MUSTER_OK;
}

void muster_job_response_finish(struct muster_job_response *value)
{
    muster_message_finish(&job, value);
}

static const struct muster_field summary_fields[] = {
    TEXT_FIELD(muster_job_summary, "name", name, JOB),
    WORD_FIELD(muster_job_summary, "phase", phase, phase_words),
    FIELD(muster_job_summary, "generation", UINT64, generation),
    FIELD(muster_job_summary, "size", UINT32, size),
    FIELD(muster_job_summary, "members", UINT32, members),
};
static const struct muster_service_message job_summary =
    MESSAGE(muster_job_summary, summary_fields);

static const struct muster_field jobs_fields[] = {
    LIST_FIELD(muster_jobs_response, "jobs", jobs, count, job_summary),
};
static const struct muster_service_message jobs_response =
    MESSAGE(muster_jobs_response, jobs_fields);
DEFINE_MESSAGE(jobs_response, muster_jobs_response, jobs_response)

void muster_jobs_response_finish(struct muster_jobs_response *value)
{
    muster_message_finish(&jobs_response, value);
}
