/*
 * Membership of one job as a pure state machine: state + event -> state + actions.
 *
 * No clock, socket, thread, log or global: time comes in with each event (milliseconds of any clock
 * that only grows), so that every decision can be tested, replayed and simulated. A shell (musterd)
 * checks an event, stores it, applies it, and does what the actions say; then it does the same
 * with the events that muster_membership_due() hands out, until there are none.
 *
 * Two kinds of knowledge: what the stored events decided (phases, members, ranks, records), and
 * signs of life (heartbeats, suspicions), which are not stored. The second kind decides nothing by
 * itself: it only makes muster_membership_due() hand out a DEATH, which is an event and is stored.
 * So a replay of the stored events gives the same decisions without a single heartbeat.
 *
 * The life of a job: FORMING (no generation runs; members arrive by Join) -> RUNNING (one
 * generation) -> FORMING ... -> ENDED.
 *
 * The life of a member: ARRIVED (its Join waits for an answer) -> ACTIVE (in the running
 * generation) -> AWAITED (its generation was revoked; it has not joined again yet) -> ARRIVED ...
 * -> gone. A member that is gone is remembered for a while, to tell it so.
 */
#ifndef MUSTER_ELASTIC_MEMBERSHIP_MEMBERSHIP_H
#define MUSTER_ELASTIC_MEMBERSHIP_MEMBERSHIP_H

#include "worker/base/random.h"
#include "worker/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MUSTER_MEMBERS_MAX = 4096, /* of one job, waiting ones included */
    MUSTER_JOB_NAME_SIZE = 65, /* letters, digits, '.', '_', '-'; and the terminator */
    MUSTER_HOST_SIZE = 64,
    MUSTER_RACK_SIZE = 64,
    MUSTER_MEMBER_ADDRESSES_MAX = 16,
    MUSTER_MEMBER_ADDRESS_SIZE = 128,
    MUSTER_WHY_SIZE = 192,
    MUSTER_HISTORY_MAX = 64, /* generations, and departures, that are remembered */
};

/* How the job is to be run; fixed by its first Join, except target (Resize). */
struct muster_job_settings {
    uint32_t min_size;    /* at least 1 */
    uint32_t max_size;    /* at least min, at most MUSTER_MEMBERS_MAX */
    uint32_t target_size; /* 0: none; else min..max */
    uint32_t settle_ms;   /* newcomers are waited for so long after the last one came */
    uint32_t lease_ms;    /* a member that is silent for longer is dead */
    uint32_t arrive_ms;   /* after a revocation a live member has so long to join again */
    uint32_t suspect_ms;  /* a member whose connection broke, or that was reported, has so long to
                             show itself */
};

/* Defaults: min 1, max 1024, target 0, settle 200, lease 5000, arrive 30000, suspect 2000. */
void muster_job_settings_init(struct muster_job_settings *settings);

/* What a worker says of itself when it joins. */
struct muster_member_info {
    char id[MUSTER_UUID_SIZE];
    char host[MUSTER_HOST_SIZE];
    char rack[MUSTER_RACK_SIZE]; /* that its host is in; empty: the one without a name */
    uint32_t address_count;
    char addresses[MUSTER_MEMBER_ADDRESSES_MAX][MUSTER_MEMBER_ADDRESS_SIZE];
    uint64_t state_version; /* 0: it has no state */
    uint64_t generation;    /* the last one it was in; 0: a newcomer */
    uint32_t order;         /* newcomers of one moment are ranked by it */
    uint32_t pid;           /* for people */
};

enum muster_member_phase {
    MUSTER_MEMBER_ARRIVED = 1,
    MUSTER_MEMBER_ACTIVE = 2,
    MUSTER_MEMBER_AWAITED = 3,
};

enum muster_leave_reason {
    MUSTER_LEAVE_FINISHED = 1, /* its work is done: nobody is disturbed */
    MUSTER_LEAVE_PLANNED = 2,  /* SIGTERM, resize */
    MUSTER_LEAVE_FAILED = 3,   /* it gives up, and says why */
};

enum muster_job_phase {
    MUSTER_JOB_FORMING = 1,
    MUSTER_JOB_RUNNING = 2,
    MUSTER_JOB_ENDED = 3,
};

enum muster_event_kind {
    MUSTER_EVENT_JOIN = 1,       /* info; settings are compared, or taken if it is the first */
    MUSTER_EVENT_LEAVE = 2,      /* member, generation, leave_reason, why */
    MUSTER_EVENT_REPORT = 3,     /* member (the reporter), suspect, generation, why */
    MUSTER_EVENT_DISCONNECT = 4, /* member: the connection of its latest held request broke */
    MUSTER_EVENT_RESIZE = 5,     /* target_size */
    MUSTER_EVENT_END = 6,        /* why */
    MUSTER_EVENT_TICK = 7,       /* time has passed: settle windows, forming */
    MUSTER_EVENT_RESTART = 8,    /* the server came back: everyone has a fresh lease */
    MUSTER_EVENT_DEATH = 9,      /* member, why: a verdict; only muster_membership_due() makes it */
};

struct muster_event {
    enum muster_event_kind kind;
    int64_t now_ms;
    char member[MUSTER_UUID_SIZE];
    char suspect[MUSTER_UUID_SIZE];
    uint64_t generation;
    enum muster_leave_reason leave_reason;
    uint32_t target_size;
    char why[MUSTER_WHY_SIZE];
    struct muster_member_info info;      /* JOIN */
    struct muster_job_settings settings; /* JOIN */
};

enum muster_action_kind {
    MUSTER_ACTION_ANSWER_JOINS = 1,   /* answer the held Joins of all that are ACTIVE now */
    MUSTER_ACTION_NOTIFY_WATCHES = 2, /* something a Watch shows has changed */
    MUSTER_ACTION_GONE = 3,           /* this member is gone: answer its held requests so */
    MUSTER_ACTION_ENDED = 4,          /* answer everything */
};

struct muster_action {
    enum muster_action_kind kind;
    char member[MUSTER_UUID_SIZE]; /* GONE */
};

struct muster_actions {
    size_t count;
    struct muster_action *items; /* owned */
};
void muster_actions_finish(struct muster_actions *actions);

struct muster_membership;

MUSTER_CHECKED muster_status muster_membership_create(struct muster_membership **ret_membership);
void muster_membership_destroy(struct muster_membership *membership);

/* Would this event be accepted? Changes nothing. MUSTER_OK; MUSTER_INVALID (settings differ, the
 * job is full, target out of min..max, no such member, ...: the text names the value);
 * MUSTER_ENDED (this member is gone, or the job has ended, and why); MUSTER_REJOIN (the event is
 * of another generation than the one that runs). */
MUSTER_CHECKED muster_status muster_membership_check(const struct muster_membership *membership,
                                                     const struct muster_event *event);

/* How this member stands to the job, whatever it asks. MUSTER_OK: it is listed. MUSTER_REJOIN: it
 * was never heard of, or was declared dead while the job went on: it may join under a new id.
 * MUSTER_ENDED: it has left or finished, or the job has ended. The error text says why. */
MUSTER_CHECKED muster_status
muster_membership_check_member(const struct muster_membership *membership, const char *member);

/* Applies an event that check accepts in this state (else: check's status, nothing changed).
 * MUSTER_FATAL: no memory, nothing changed.
 *
 * A Join may be answered at once: with ANSWER_JOINS, when a generation forms or when the member is
 * ACTIVE already and only its answer got lost (its info.generation is older than the running one);
 * with GONE, when its generation has begun to finish. So hold the request first, then do the
 * actions. A Leave that check refuses with MUSTER_ENDED has done its work before. */
MUSTER_CHECKED muster_status muster_membership_apply(struct muster_membership *membership,
                                                     const struct muster_event *event,
                                                     struct muster_actions *ret_actions);

/* A member has shown itself: its lease runs anew. Not an event (nothing to store). Progress is its
 * counter of finished operations. Unknown members are ignored. */
void muster_membership_heartbeat(struct muster_membership *membership, const char *member,
                                 uint64_t progress, int64_t now_ms);

/* When to ask muster_membership_due() again, unless an event comes before; INT64_MAX: never. Exact
 * enough to sleep until then: it lies ahead once due has said false. */
int64_t muster_membership_next_ms(const struct muster_membership *membership);

/* True if something is to happen now: ret_event is then a DEATH or a TICK at now_ms, to be stored
 * and applied like any other event. Ask after each event, until it says false. Deaths come before
 * the TICK that forms a generation, so that no generation forms with a member that is known to be
 * dead. Changes nothing that a view shows. */
bool muster_membership_due(struct muster_membership *membership, int64_t now_ms,
                           struct muster_event *ret_event);

/* What the shell answers from. Pointers are borrowed until the next call that changes anything. */
struct muster_member_view {
    const struct muster_member_info *info;
    enum muster_member_phase phase;
    bool leave_asked; /* it is to leave at its next commit */
    bool suspected;
    uint32_t rank; /* ACTIVE and AWAITED: in the last generation; else UINT32_MAX */
    uint64_t progress;
    int64_t last_seen_ms; /* last sign of life */
};

struct muster_generation_view {
    uint64_t number; /* 0: none has formed yet */
    uint32_t size;
    uint32_t hosts;
    const uint32_t *host_sizes;              /* [hosts], in rank order */
    const char (*members)[MUSTER_UUID_SIZE]; /* [size], by rank */
    uint64_t state_version; /* the newest committed state; 0: none was ever committed */
    uint32_t state_source;  /* the rank that sends it */
    const uint8_t *stale;   /* [size]: 1 if that rank must receive it */
};

struct muster_generation_record { /* for the summary */
    uint64_t number;
    uint32_t size;
    uint32_t hosts;
    int64_t formed_ms;
    int64_t revoked_ms;        /* 0: still running */
    char why[MUSTER_WHY_SIZE]; /* why it was revoked */
};

struct muster_departure_record {
    char member[MUSTER_UUID_SIZE];
    char host[MUSTER_HOST_SIZE];
    uint32_t pid;
    uint32_t rank; /* in its last generation; UINT32_MAX: in none */
    uint64_t generation;
    enum muster_leave_reason reason; /* 0: it died */
    int64_t at_ms;
    char why[MUSTER_WHY_SIZE];
};

enum muster_job_phase muster_membership_phase(const struct muster_membership *membership);
const char *muster_membership_why(const struct muster_membership *membership); /* of the phase */
struct muster_job_settings muster_membership_settings(const struct muster_membership *membership);
/* The last formed generation, running or revoked. */
struct muster_generation_view
muster_membership_generation(const struct muster_membership *membership);
/* True if all members are to move over at their next commit: newcomers have settled. Those who are
 * asked to leave are told so (leave_asked), and nobody else: if the others moved over before these
 * have heard of it, they would come along, be asked anew, and so on without end. */
bool muster_membership_pending(const struct muster_membership *membership);
uint32_t muster_membership_count(const struct muster_membership *membership);
bool muster_membership_member(const struct muster_membership *membership, uint32_t index,
                              struct muster_member_view *ret_view);
bool muster_membership_find(const struct muster_membership *membership, const char *member,
                            struct muster_member_view *ret_view);
/* Oldest first; false when index is out of range. */
bool muster_membership_generation_record(const struct muster_membership *membership, uint32_t index,
                                         struct muster_generation_record *ret_record);
bool muster_membership_departure_record(const struct muster_membership *membership, uint32_t index,
                                        struct muster_departure_record *ret_record);

#endif
