/*
 * The service's messages as C values, and their JSON. The service and its clients link the same
 * code, and every bound on input from the network is here. The meaning of the fields is documented
 * in rendezvous/muster/v1/rendezvous.proto.
 *
 * muster_NAME_encode(): value -> jansson object, owned by the caller; NULL only if memory is out.
 * muster_NAME_decode(): object -> value. MUSTER_INVALID names the field and the bound
 * ("addresses[2]: longer than 127 bytes"). Unknown fields are ignored; absent ones are 0 or empty.
 * A value that owns memory has a muster_NAME_finish(), which accepts zeroed storage.
 */
#ifndef MUSTER_ELASTIC_MESSAGES_MESSAGES_H
#define MUSTER_ELASTIC_MESSAGES_MESSAGES_H

#include "elastic/membership/snapshot.h"

#include <jansson.h>

enum {
    MUSTER_BODY_MAX_BYTES = 256 * 1024,          /* of a request */
    MUSTER_RESPONSE_MAX_BYTES = 8 * 1024 * 1024, /* of a response */
    MUSTER_TOKEN_MAX_BYTES = 128,                /* of a job's token, or a server's */
    MUSTER_LINK_TOKEN_SIZE = 33,                 /* 16 random bytes as hex, terminator */
    MUSTER_KEY_MAX_BYTES = 255,
    MUSTER_VALUE_MAX_BYTES = 64 * 1024,
    MUSTER_WAIT_MAX_MS = 30000,
    MUSTER_PEERS_INLINE_MAX = 64, /* a job of more: neighbours for those who ask for them */
    MUSTER_PEERS_MAX = 4096,      /* ranks of one Peers */
    MUSTER_WAIT_KEYS_MAX = 1024,  /* of one Wait */
    MUSTER_PAIRS_MAX = 8,         /* capabilities of a member */
    MUSTER_PAIR_NAME_MAX_BYTES = 31,
    MUSTER_PAIR_VALUE_MAX_BYTES = 63,
    MUSTER_MISSING_MAX = 8,
    MUSTER_MISSING_SIZE = 128,
    MUSTER_JSON_DEPTH_MAX = 16,
};

/* The header of a request that has a token of the server, beside that of a job in Authorization. */
/* The header of a response that has come from another server, which has the job: its URL. */
#define MUSTER_OWNER_HEADER "Muster-Owner"
#define MUSTER_SERVER_TOKEN_HEADER "Muster-Server-Token"

/* gRPC's canonical codes, as far as Muster uses them. */
enum muster_rpc_code {
    MUSTER_RPC_OK = 0,
    MUSTER_RPC_CANCELED,
    MUSTER_RPC_UNKNOWN,
    MUSTER_RPC_INVALID_ARGUMENT,
    MUSTER_RPC_DEADLINE_EXCEEDED,
    MUSTER_RPC_NOT_FOUND,
    MUSTER_RPC_ALREADY_EXISTS,
    MUSTER_RPC_PERMISSION_DENIED,
    MUSTER_RPC_RESOURCE_EXHAUSTED,
    MUSTER_RPC_FAILED_PRECONDITION,
    MUSTER_RPC_ABORTED,
    MUSTER_RPC_OUT_OF_RANGE,
    MUSTER_RPC_UNIMPLEMENTED,
    MUSTER_RPC_INTERNAL,
    MUSTER_RPC_UNAVAILABLE,
    MUSTER_RPC_DATA_LOSS,
    MUSTER_RPC_UNAUTHENTICATED,
};
/* The code's name in JSON ("invalid_argument") and its HTTP status; the code of a name (an unknown
 * name: MUSTER_RPC_UNKNOWN). */
const char *muster_rpc_code_name(enum muster_rpc_code code);
unsigned muster_rpc_code_http(enum muster_rpc_code code);
enum muster_rpc_code muster_rpc_code_parse(const char *name);

/* The code for a status, and the status for a code. A status says what the caller should do, and
 * that survives both conversions:
 *
 *   status   code                  codes that also become this status
 *   INVALID  invalid_argument      all that are not listed here
 *   RETRY    unavailable           canceled (a newer request of the member has replaced this one),
 *                                  deadline_exceeded, resource_exhausted
 *   REJOIN   aborted
 *   ENDED    failed_precondition
 *   FATAL    internal              unknown, data_loss
 *
 * Join, Watch, Leave and Report respond with not_found where the member was declared dead, or is
 * unknown to the running job, or the job to the server: it may join again as a new member. After
 * failed_precondition it must not. */
enum muster_rpc_code muster_rpc_code_of_status(muster_status status);
muster_status muster_rpc_code_status(enum muster_rpc_code code);

enum muster_rpc_method {
    MUSTER_RPC_JOIN = 0,
    MUSTER_RPC_WATCH,
    MUSTER_RPC_LEAVE,
    MUSTER_RPC_REPORT,
    MUSTER_RPC_RESIZE,
    MUSTER_RPC_PUT,
    MUSTER_RPC_GET,
    MUSTER_RPC_WAIT,
    MUSTER_RPC_GET_JOB,
    MUSTER_RPC_LIST_JOBS,
    MUSTER_RPC_END_JOB,
    MUSTER_RPC_PEERS,
    MUSTER_RPC_ADD,
    MUSTER_RPC_COMPARE_AND_SWAP,
    MUSTER_RPC_DELETE,
    MUSTER_RPC_COUNT_KEYS,
    MUSTER_RPC_WATCH_STREAM,
    MUSTER_RPC_METHOD_COUNT,
};
/* The last part of the path: "Join". */
const char *muster_rpc_method_name(enum muster_rpc_method method);

/* True for 1 to 64 letters, digits, '.', '_', '-'. */
bool muster_job_name_valid(const char *name);

/* True for 1 to 63 letters, digits, '.', '_', '-' and ':', which addresses have. */
bool muster_host_name_valid(const char *name);

struct muster_join_request {
    char job[MUSTER_JOB_NAME_SIZE];
    struct muster_member_info info;
    uint32_t min_size, max_size, target_size, wire_version;
    bool neighbours;           /* it can fetch peers: in a large job its neighbours are enough */
    uint32_t neighbours_above; /* members of a job that is not large; 0: MUSTER_PEERS_INLINE_MAX */
};

/* The capability of a member that dials those whom the service doubts, and that keeps its own
 * connection to the service open between requests. */
#define MUSTER_CAPABILITY_DIALS "dials=yes\n"

struct muster_wire_peer {
    uint32_t rank;
    char member[MUSTER_UUID_SIZE];
    char host[MUSTER_HOST_SIZE]; /* its name */
    uint32_t order;
    uint32_t address_count;
    char addresses[MUSTER_MEMBER_ADDRESSES_MAX][MUSTER_MEMBER_ADDRESS_SIZE];
};

struct muster_wire_host {
    char name[MUSTER_HOST_SIZE];
    char rack[MUSTER_RACK_SIZE];
    uint32_t size;
};

/* So many hosts in a row have so many members each. */
struct muster_wire_host_run {
    uint32_t hosts, size;
};

/* So many racks in a row have so many hosts each. */
struct muster_wire_rack_run {
    uint32_t racks, hosts;
};

/* So many members in a row have the orders first, first + step, ... */
struct muster_wire_order_run {
    uint32_t first, count, step;
};

/* So many ranks in a row. */
struct muster_wire_ranks {
    uint32_t first, count;
};

/* What a response to Join says of a large job in place of hosts, peers and stale ranks. */
struct muster_wire_shape {
    uint32_t near_count, host_run_count, rack_run_count, order_run_count, stale_count;
    uint32_t host_count;                /* in all; decoding counts them */
    uint32_t hosts_digest;              /* of the names of hosts and racks, as all members see it */
    char member[MUSTER_UUID_SIZE];      /* whom the response is for */
    struct muster_wire_peer *near;      /* owned [near_count]: ranks at distance 2^k */
    struct muster_wire_host_run *hosts; /* owned [host_run_count], in rank order */
    struct muster_wire_rack_run *racks; /* owned [rack_run_count], in rank order */
    struct muster_wire_order_run *orders; /* owned [order_run_count], by rank */
    struct muster_wire_ranks *stale;      /* owned [stale_count], increasing */
};

struct muster_join_response {
    bool formed;
    bool has_shape; /* formed, and `shape` in place of hosts, peers and stale */
    /* waiting */
    uint32_t members, min_size, target_size;
    uint32_t missing_count;
    char missing[MUSTER_MISSING_MAX][MUSTER_MISSING_SIZE];
    uint32_t doubted_count;
    struct muster_wire_peer *doubted; /* owned [doubted_count]: dial them, report who refuses */
    /* formed */
    uint64_t generation;
    uint32_t rank, size, local_rank, local_size, cross_rank, cross_size;
    uint32_t slot;
    uint32_t host_count;
    struct muster_wire_host *hosts; /* owned [host_count] */
    struct muster_wire_peer *peers; /* owned [size], by rank */
    struct muster_wire_shape shape;
    uint64_t state_version;
    uint32_t state_source;
    uint32_t stale_count;
    uint32_t *stale; /* owned [stale_count], ranks in increasing order */
    char link_token[MUSTER_LINK_TOKEN_SIZE];
    uint32_t hold_ms, lease_ms;
};

struct muster_watch_request {
    char job[MUSTER_JOB_NAME_SIZE];
    char member[MUSTER_UUID_SIZE];
    uint64_t generation;
    bool pending_known, leave_known;
    uint64_t progress;
};

struct muster_watch_response {
    bool revoked, pending, leave;
    char reason[MUSTER_WHY_SIZE];
    uint32_t doubted_count;
    struct muster_wire_peer *doubted; /* as in a waiting answer to Join */
};

struct muster_leave_request {
    char job[MUSTER_JOB_NAME_SIZE];
    char member[MUSTER_UUID_SIZE];
    uint64_t generation;
    enum muster_leave_reason reason;
    char why[MUSTER_WHY_SIZE];
};

enum muster_report_kind {
    MUSTER_REPORT_UNSPECIFIED = 0,
    MUSTER_REPORT_RESET = 1,       /* the kernel closed a link to it, or a new dial was refused */
    MUSTER_REPORT_UNREACHABLE = 2, /* dials get no answer */
    MUSTER_REPORT_WAITING = 3,     /* it keeps the reporter waiting */
};

struct muster_report_request {
    char job[MUSTER_JOB_NAME_SIZE];
    char member[MUSTER_UUID_SIZE];
    uint64_t generation;
    uint32_t suspect;
    char why[MUSTER_WHY_SIZE];
    enum muster_report_kind kind;
    char suspect_member[MUSTER_UUID_SIZE]; /* RESET: whom the service had asked to dial; then
                                              generation and suspect do not count. Empty: none */
};

struct muster_resize_request {
    char job[MUSTER_JOB_NAME_SIZE];
    uint32_t target_size;
};

struct muster_peers_request {
    char job[MUSTER_JOB_NAME_SIZE];
    char member[MUSTER_UUID_SIZE];
    uint64_t generation;
    uint32_t rank_count;
    uint32_t *ranks; /* owned [rank_count] */
};

struct muster_peers_response {
    uint32_t peer_count;
    struct muster_wire_peer *peers; /* owned [peer_count], in the order of the request */
};

/* Put, Get, Wait, Add, CompareAndSwap and Delete. */
struct muster_value_request {
    char job[MUSTER_JOB_NAME_SIZE];
    uint64_t generation;
    char key[MUSTER_KEY_MAX_BYTES + 1];     /* Wait: may be empty if keys are not */
    uint32_t timeout_ms;                    /* Wait */
    uint32_t key_count;                     /* Wait */
    char (*keys)[MUSTER_KEY_MAX_BYTES + 1]; /* Wait; owned */
    size_t value_size;                      /* Put, CompareAndSwap */
    void *value;                            /* Put, CompareAndSwap; owned */
    size_t expected_size;                   /* CompareAndSwap */
    void *expected;                         /* CompareAndSwap; owned */
    int64_t amount;                         /* Add */
    char request_id[MUSTER_UUID_SIZE]; /* Put, Add, CompareAndSwap: empty, or the same in a retry */
};

struct muster_count_request {
    char job[MUSTER_JOB_NAME_SIZE];
    uint64_t generation;
    char prefix[MUSTER_KEY_MAX_BYTES + 1]; /* empty: all keys */
};

struct muster_count_response {
    uint32_t count;
};

struct muster_add_response {
    int64_t value;
};

struct muster_swap_response {
    bool swapped;
    size_t value_size; /* of the value after the call */
    void *value;       /* owned */
};

struct muster_delete_response {
    bool deleted;
};

struct muster_value_response {
    size_t value_size;
    void *value; /* owned */
};

/* GetJob and EndJob. */
struct muster_job_request {
    char job[MUSTER_JOB_NAME_SIZE];
    char why[MUSTER_WHY_SIZE]; /* EndJob */
};

struct muster_job_member {
    struct muster_member_info info; /* addresses are not sent */
    enum muster_member_phase phase;
    int32_t rank, local_rank, cross_rank; /* in the last generation; -1: none */
    int64_t joined_ms;                    /* since the job began */
    uint64_t progress, silent_ms;
    bool suspected, leave_asked;
};

struct muster_job_response {
    char name[MUSTER_JOB_NAME_SIZE];
    enum muster_job_phase phase;
    char why[MUSTER_WHY_SIZE];
    uint64_t generation;
    uint32_t min_size, max_size, target_size, wire_version;
    uint64_t resizes;
    int64_t now_ms; /* since the job began */
    bool pending;
    uint32_t member_count, generation_count, departure_count;
    struct muster_job_member *members;            /* owned */
    struct muster_generation_record *generations; /* owned; times since the job began */
    struct muster_departure_record *departures;   /* owned; times since the job began */
};

struct muster_job_summary {
    char name[MUSTER_JOB_NAME_SIZE];
    enum muster_job_phase phase;
    uint64_t generation;
    uint32_t size, members;
};

struct muster_jobs_response {
    uint32_t count;
    struct muster_job_summary *jobs; /* owned */
};

struct muster_rpc_error {
    enum muster_rpc_code code;
    char message[512];
};

#define MUSTER_MESSAGE(name, type)                            \
    json_t *muster_##name##_encode(const struct type *value); \
    MUSTER_CHECKED muster_status muster_##name##_decode(const json_t *json, struct type *ret_value)

MUSTER_MESSAGE(join_request, muster_join_request);
MUSTER_MESSAGE(join_response, muster_join_response);
MUSTER_MESSAGE(watch_request, muster_watch_request);
MUSTER_MESSAGE(stream_request, muster_watch_request); /* of WatchStream: member may be empty */
MUSTER_MESSAGE(watch_response, muster_watch_response);
MUSTER_MESSAGE(leave_request, muster_leave_request);
MUSTER_MESSAGE(report_request, muster_report_request);
MUSTER_MESSAGE(resize_request, muster_resize_request);
MUSTER_MESSAGE(wire_peer, muster_wire_peer);
MUSTER_MESSAGE(peers_request, muster_peers_request);
MUSTER_MESSAGE(peers_response, muster_peers_response);
MUSTER_MESSAGE(value_request, muster_value_request);
MUSTER_MESSAGE(value_response, muster_value_response);
MUSTER_MESSAGE(count_request, muster_count_request);
MUSTER_MESSAGE(count_response, muster_count_response);
MUSTER_MESSAGE(add_response, muster_add_response);
MUSTER_MESSAGE(swap_response, muster_swap_response);
MUSTER_MESSAGE(delete_response, muster_delete_response);
MUSTER_MESSAGE(job_request, muster_job_request);
MUSTER_MESSAGE(job_response, muster_job_response);
MUSTER_MESSAGE(jobs_response, muster_jobs_response);
MUSTER_MESSAGE(rpc_error, muster_rpc_error);

void muster_join_response_finish(struct muster_join_response *value);
void muster_watch_response_finish(struct muster_watch_response *value);
void muster_peers_request_finish(struct muster_peers_request *value);
void muster_peers_response_finish(struct muster_peers_response *value);
void muster_value_request_finish(struct muster_value_request *value);
void muster_value_response_finish(struct muster_value_response *value);
void muster_swap_response_finish(struct muster_swap_response *value);
void muster_job_response_finish(struct muster_job_response *value);
void muster_jobs_response_finish(struct muster_jobs_response *value);

/* Membership events and snapshot records, for the store. */
MUSTER_MESSAGE(event, muster_event);
MUSTER_MESSAGE(snapshot_record, muster_snapshot_record);

/* True for a snapshot record, false for an event. */
bool muster_snapshot_record_is(const json_t *json);

/* Lines "name=value" as an object of strings; NULL only if memory is out. */
json_t *muster_pairs_encode(const char *text);

/* Parses a text of at most MUSTER_RESPONSE_MAX_BYTES into an object. At most MUSTER_JSON_DEPTH_MAX
 * objects and arrays are nested, and no key occurs twice. MUSTER_INVALID gives the place in the
 * text. */
MUSTER_CHECKED muster_status muster_json_parse(const char *text, size_t size_bytes,
                                               json_t **ret_json);

#endif
