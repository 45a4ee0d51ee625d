/*
 * Membership of one job as a pure state machine: state + event -> state + actions.
 *
 * There is no clock, socket, thread, log or global. Time comes in with each event, in milliseconds
 * of any clock that only grows, so that every decision can be tested, replayed and simulated. A
 * shell (musterd) checks an event, stores it, applies it and carries out the actions. Then it does
 * the same with each event that muster_membership_due() returns, until there is none.
 *
 * State is of two kinds. Phases, members, ranks and records are decided, by stored events alone.
 * Leases and suspicions are believed: heartbeats renew them, and nothing of them is stored. A
 * belief changes a decision only through a DEATH, an event that muster_membership_due() returns and
 * that is stored like any other. A replay of the stored events therefore gives the same decisions
 * without a single heartbeat.
 *
 *   phase of a job    what it means                        next phase, and what leads to it
 *   FORMING           no generation runs, members join     RUNNING a generation forms
 *                                                          ENDED   no member is left, all had
 *                                                                  finished, or an End
 *   RUNNING           one generation runs                  FORMING it is revoked
 *                                                          ENDED   no member is left, all have
 *                                                                  finished, or an End
 *   ENDED             all members are gone                 FORMING the Join of a new member
 *
 *   phase of a member what it means                        next phase, and what leads to it
 *   ARRIVED           its Join waits for the answer        ACTIVE  a generation forms with it
 *   ACTIVE            it is in the running generation      AWAITED the generation is revoked
 *                                                          ARRIVED its own Join revokes it
 *   AWAITED           its generation was revoked, and      ARRIVED it joins again
 *                     it has not joined again yet
 *   gone              it left, finished, died, or the job ended; reached from every phase. The last
 *                     32768 of these are remembered, so that refusals give the reason.
 *
 * README.md in this folder has the table of what each event does in each phase.
 */
#ifndef MUSTER_ELASTIC_MEMBERSHIP_MEMBERSHIP_H
#define MUSTER_ELASTIC_MEMBERSHIP_MEMBERSHIP_H

#include "worker/base/random.h"
#include "worker/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MUSTER_MEMBERS_MAX = 16384, /* of one job, including those that wait */
    MUSTER_JOB_NAME_SIZE = 65,  /* letters, digits, '.', '_', '-'; and the terminator */
    MUSTER_HOST_SIZE = 64,
    MUSTER_RACK_SIZE = 64,
    MUSTER_MEMBER_ADDRESSES_MAX = 16,
    MUSTER_MEMBER_ADDRESS_SIZE = 128,
    MUSTER_LIBRARY_SIZE = 32,
    MUSTER_CAPABILITIES_SIZE = 256,
    MUSTER_SLOT_LOCK_SIZE = 96,
    MUSTER_WHY_SIZE = 192,
    MUSTER_HISTORY_MAX = 64, /* the last generations, and the last departures, of the history */
};

/* Settings of a job. The first Join fixes them; only target_size changes later, by Resize. */
struct muster_job_settings {
    uint32_t min_size;     /* at least 1 */
    uint32_t max_size;     /* at least min, at most MUSTER_MEMBERS_MAX */
    uint32_t target_size;  /* 0: none; else min..max */
    uint32_t wire_version; /* of what members send each other; 0: the first one stated none */
    uint32_t settle_ms;    /* the settle window: from the last newcomer's Join to the generation */
    uint32_t lease_ms;     /* a member without a sign of life for so long is dead */
    uint32_t arrive_ms;    /* a member must join again within it after a revocation */
    uint32_t suspect_ms; /* a suspected member (connection closed, or reported) must give a sign of
                            life within it */
};

/* Defaults: min 1, max 1024, target 0, settle 200, lease 5000, arrive 30000, suspect 2000. */
void muster_job_settings_init(struct muster_job_settings *settings);

/* What a worker states about itself when it joins. */
struct muster_member_info {
    char id[MUSTER_UUID_SIZE];
    char host[MUSTER_HOST_SIZE];
    char rack[MUSTER_RACK_SIZE]; /* of its host; empty: the rack without a name */
    uint32_t address_count;
    char addresses[MUSTER_MEMBER_ADDRESSES_MAX][MUSTER_MEMBER_ADDRESS_SIZE];
    uint64_t state_version; /* 0: it has no state */
    uint64_t generation;    /* its last one; 0: a newcomer */
    uint32_t order;         /* newcomers to the same generation are ranked by it */
    /* Its slot, the place on its host that it keeps while it lives. A Join without one gets the
     * lowest free one; so does one whose slot another has, if any other will do. */
    bool has_slot, slot_any;
    bool done;     /* its work is done: where others have finished, it has, too */
    uint32_t slot; /* below MUSTER_MEMBERS_MAX */
    /* Where the kernel's lock of that slot, which it holds, is valid: of two members with the same
     * slot and the same lock, the earlier one has exited. Empty: it holds none. */
    char slot_lock[MUSTER_SLOT_LOCK_SIZE];
    uint32_t pid;                      /* only shown */
    char library[MUSTER_LIBRARY_SIZE]; /* the version of its libmuster; only shown and named */
    /* What it can do, only shown: lines "name=value", each with its line end, by name. */
    char capabilities[MUSTER_CAPABILITIES_SIZE];
};

enum muster_member_phase {
    MUSTER_MEMBER_ARRIVED = 1,
    MUSTER_MEMBER_ACTIVE = 2,
    MUSTER_MEMBER_AWAITED = 3,
};

enum muster_leave_reason {
    MUSTER_LEAVE_FINISHED = 1, /* its work is done: the generation goes on */
    MUSTER_LEAVE_PLANNED = 2,  /* SIGTERM, resize */
    MUSTER_LEAVE_FAILED = 3,   /* it gives up, with a reason */
};

enum muster_job_phase {
    MUSTER_JOB_FORMING = 1,
    MUSTER_JOB_RUNNING = 2,
    MUSTER_JOB_ENDED = 3,
};

enum muster_event_kind {
    MUSTER_EVENT_JOIN = 1,   /* info, settings: the first Join sets them, later ones must agree */
    MUSTER_EVENT_LEAVE = 2,  /* member, generation, leave_reason, why */
    MUSTER_EVENT_REPORT = 3, /* member (the reporter), suspect, generation, why */
    MUSTER_EVENT_DISCONNECT = 4, /* member: the connection of its latest held request closed */
    MUSTER_EVENT_RESIZE = 5,     /* target_size */
    MUSTER_EVENT_END = 6,        /* why */
    MUSTER_EVENT_TICK = 7,       /* time has passed: a settle window, a generation that can form */
    MUSTER_EVENT_RESTART = 8,    /* the server restarted: every member gets a fresh lease */
    MUSTER_EVENT_DEATH = 9,      /* member, why: only muster_membership_due() makes it */
};

struct muster_event {
    enum muster_event_kind kind;
    int64_t now_ms;
    char member[MUSTER_UUID_SIZE];
    char suspect[MUSTER_UUID_SIZE];
    uint64_t generation;
    uint32_t epoch; /* JOIN, RESTART: of the store; numbers of generations are not below it */
    enum muster_leave_reason leave_reason;
    uint32_t target_size;
    bool forms_nothing; /* it is doubtful whether all that have arrived live: a TICK will form */
    char why[MUSTER_WHY_SIZE];
    struct muster_member_info info;      /* JOIN */
    struct muster_job_settings settings; /* JOIN */
};

enum muster_action_kind {
    MUSTER_ACTION_ANSWER_JOINS = 1,   /* respond to the held Joins of all members that are ACTIVE */
    MUSTER_ACTION_NOTIFY_WATCHES = 2, /* something that a Watch shows has changed */
    MUSTER_ACTION_GONE = 3,           /* this member is gone: refuse its held requests */
    MUSTER_ACTION_ENDED = 4,          /* the job has ended: respond to every held request */
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

/* Whether this event would be accepted; changes nothing. MUSTER_INVALID: settings differ, the job
 * is full, target outside of min..max, no such member, ...; the text names the value. MUSTER_ENDED:
 * the member is gone, or the job has ended; the text gives the reason. MUSTER_REJOIN: the event is
 * of another generation than the last. */
MUSTER_CHECKED muster_status muster_membership_check(const struct muster_membership *membership,
                                                     const struct muster_event *event);

/* Whether the member is in the job, for any request of it. MUSTER_OK: it is listed. MUSTER_REJOIN:
 * it is unknown, or was declared dead and the job goes on; it may join under a new id.
 * MUSTER_ENDED: it has left or finished, or the job has ended. The error text gives the reason. */
MUSTER_CHECKED muster_status
muster_membership_check_member(const struct muster_membership *membership, const char *member);

/* Applies an event that muster_membership_check() accepts; otherwise returns the status of the
 * check. MUSTER_FATAL: no memory. After a failure nothing has changed.
 *
 * A Join can be answered by the event itself. ANSWER_JOINS: a generation forms, or the member is
 * ACTIVE already and the response to its first Join was lost (its info.generation is older than the
 * running one). GONE: its generation has begun to finish. The shell therefore reads the phase of
 * the member after the Join, before it holds the request. A Leave that is refused with MUSTER_ENDED
 * took effect before. */
MUSTER_CHECKED muster_status muster_membership_apply(struct muster_membership *membership,
                                                     const struct muster_event *event,
                                                     struct muster_actions *ret_actions);

/* A sign of life: renews the member's lease and clears its suspicions. Not an event, so there is
 * nothing to store. progress is the member's counter of finished operations. An unknown member is
 * ignored. */
void muster_membership_heartbeat(struct muster_membership *membership, const char *member,
                                 uint64_t progress, int64_t now_ms);

/* A request of the member is held, which is a lasting sign of life; and it is held no longer: the
 * member's lease begins. Like heartbeats, neither is an event. An unknown member is ignored. */
void muster_membership_begin_hold(struct muster_membership *membership, const char *member);
void muster_membership_end_hold(struct muster_membership *membership, const char *member,
                                int64_t now_ms);

/* The server has started: until a sign of life or end_hold the member counts as one of which a
 * request is held, and is doubted. */
void muster_membership_expect(struct muster_membership *membership, const char *member);

/* A connection of it closed over which nothing was held. */
void muster_membership_doubt(struct muster_membership *membership, const char *member);

/* Doubts. A member whose connection closed, or that was not heard of since the server started, may
 * be dead; others dial it. If it refuses, it is dead at once (the next DEATH that is due). While
 * one that is ARRIVED is doubted, no generation forms with it: an event that the shell applies then
 * has forms_nothing set, as muster_membership_forms_nothing() says, and no TICK is due. None of
 * these is an event. */
void muster_membership_refused(struct muster_membership *membership, const char *suspect,
                               const char *reporter, int64_t now_ms);
bool muster_membership_forms_nothing(struct muster_membership *membership);

/* When to call muster_membership_due() again if no event comes before; INT64_MAX: never. Once due
 * has returned false it lies in the future, so that the caller can sleep until then. */
int64_t muster_membership_next_ms(const struct muster_membership *membership);

/* True if an event is due: *ret_event is then a DEATH or a TICK at now_ms, to be stored and applied
 * like any other. To be called after each event until it returns false. Deaths come before the TICK
 * that forms a generation, so that no generation forms with a member that is known to be dead.
 * Changes nothing that a view shows. */
bool muster_membership_due(struct muster_membership *membership, int64_t now_ms,
                           struct muster_event *ret_event);

/* Views of the state, for responses. Pointers are borrowed until the next call that changes it. */
struct muster_member_view {
    const struct muster_member_info *info;
    uint64_t progress;
    int64_t joined_ms;    /* its first Join */
    int64_t last_seen_ms; /* last sign of life, unless a request is held */
    enum muster_member_phase phase;
    uint32_t rank;    /* ACTIVE and AWAITED: in the last generation; else UINT32_MAX */
    bool leave_asked; /* it is asked to leave at its next commit */
    bool suspected;
    bool doubted; /* others should dial it: see muster_membership_refused() */
    bool held;    /* a request of it is held */
};

struct muster_generation_view {
    uint64_t number; /* 0: none has formed yet */
    uint32_t size;
    uint32_t hosts;
    const uint32_t *host_sizes;              /* [hosts], in rank order */
    const char (*members)[MUSTER_UUID_SIZE]; /* [size], by rank */
    uint64_t state_version; /* of the newest committed state; 0: none was ever committed */
    uint32_t state_source;  /* the rank that sends it */
    const uint8_t *stale;   /* [size]: 1 if that rank must receive it */
};

struct muster_generation_record { /* of the history */
    uint64_t number;
    uint32_t size;
    uint32_t hosts;
    int64_t formed_ms;
    int64_t revoked_ms;        /* 0: it runs */
    char why[MUSTER_WHY_SIZE]; /* the reason of the revocation */
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
/* How many Resizes the job has accepted. A launcher starts the workers that are missing after each,
 * also after one to the size that the job aims at already. */
uint64_t muster_membership_resizes(const struct muster_membership *membership);
struct muster_generation_view
muster_membership_generation(const struct muster_membership *membership);
/* True if newcomers have settled, so that all members are to join again at their next commit.
 * Members that are asked to leave do not count: only they learn of it, by leave_asked. If the
 * others joined again first, the members that should leave would join with them, be asked anew, and
 * so on without end. */
bool muster_membership_pending(const struct muster_membership *membership);
/* Members that are ARRIVED, and those that are AWAITED. */
uint32_t muster_membership_arrived(const struct muster_membership *membership);
uint32_t muster_membership_awaited(const struct muster_membership *membership);
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
