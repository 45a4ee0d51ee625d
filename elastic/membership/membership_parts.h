/* The state of a membership, and the functions that the files of this folder offer each other. */
#ifndef MUSTER_ELASTIC_MEMBERSHIP_MEMBERSHIP_PARTS_H
#define MUSTER_ELASTIC_MEMBERSHIP_MEMBERSHIP_PARTS_H

#include "elastic/membership/liveness.h"
#include "elastic/membership/membership.h"

/* uthash must not exit the process when memory is out: an element that could not be added has
 * hh.tbl == NULL. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

enum {
    MUSTER_GONE_MAX = 2 * MUSTER_MEMBERS_MAX, /* members that are gone and remembered */
    MUSTER_ACTIONS_MAX = 4,                   /* of one event: one of each kind */
};

/* The phase of a member that is gone. */
#define MUSTER_MEMBER_GONE ((enum muster_member_phase)0)
#define MUSTER_NEWCOMER UINT64_MAX

/* A host of listed members: how many, and its rack, which is the same for all of them. */
struct muster_listed_host {
    char name[MUSTER_HOST_SIZE];
    char rack[MUSTER_RACK_SIZE];
    uint32_t members;
    uint32_t slots_used; /* slots below this one are held */
    UT_hash_handle hh;
};

struct muster_slot_key {
    const struct muster_listed_host *host;
    uint64_t slot; /* as wide as the pointer: no padding */
};

/* A member, listed or gone. One allocation serves both, so that leaving needs no memory. */
struct muster_member {
    char id[MUSTER_UUID_SIZE];
    enum muster_member_phase phase;
    struct muster_member_info *info; /* owned; NULL once it is gone */
    struct muster_signs signs;
    int64_t joined_ms;   /* its first Join */
    uint64_t arrival;    /* its number among all members, by first Join */
    uint64_t seniority;  /* its number by first generation; MUSTER_NEWCOMER before that */
    uint64_t generation; /* the last one it was in; 0: none */
    uint32_t rank;       /* in that generation */
    bool leave_asked;
    bool died;                       /* gone: it was declared dead */
    char why[MUSTER_WHY_SIZE];       /* gone: the reason */
    struct muster_member *next_gone; /* gone: the next one in the list of gone members */
    struct muster_listed_host *host; /* listed: the one that info names */
    struct muster_slot_key slot;     /* host is NULL: it has none */
    UT_hash_handle hh, slot_hh;
};

/* A member of the generation that forms, with the keys by which ranks are assigned. */
struct muster_candidate {
    struct muster_member *member;
    uint32_t place;      /* in order of service */
    uint32_t host_place; /* the lowest place on its host */
    uint32_t rack_place; /* the lowest place in its host's rack */
};

struct muster_membership {
    struct muster_job_settings settings;
    bool begun; /* a first Join has set the settings */
    enum muster_job_phase phase;
    char why[MUSTER_WHY_SIZE];
    int64_t now_ms; /* of the last event; never decreases */

    struct muster_member *by_id;      /* listed and gone */
    struct muster_listed_host *hosts; /* of the listed members */
    struct muster_member *by_slot;    /* of the listed members, by host and slot */
    struct muster_member **listed;    /* owned [capacity]; count members, by arrival */
    uint32_t count, capacity;
    struct muster_member *gone_first, *gone_last;
    uint32_t gone_count;
    uint32_t arrived, active, awaited; /* listed members by phase */
    uint32_t survivors;                /* ARRIVED members that have been in a generation */
    uint64_t arrivals, seniorities;    /* counters */

    uint32_t epoch;           /* the highest of an event */
    uint64_t highest;         /* the highest generation number that this job or a joiner knows */
    int64_t last_newcomer_ms; /* when the last newcomer joined */
    bool newcomers_settled;   /* RUNNING: the next generation is to include them */
    uint64_t resizes;         /* accepted so far, also those that changed no target */
    bool shrinking;           /* a Resize asks for fewer members than there are */
    bool finishing;           /* RUNNING: a member has finished */
    bool deserted;            /* ENDED: only because nobody was left */
    bool why_open;            /* a departure may still replace the reason of the revocation */
    char blamed[MUSTER_UUID_SIZE]; /* the member whose departure may; empty: any member */
    int64_t liveness_check_ms;     /* no member's deadline lies before it */
    bool maybe_doubted;            /* false: no listed member is */
    bool blocked;                  /* by the last due(): one that is ARRIVED is doubted */

    /* The last generation; the arrays are owned [capacity]. */
    struct muster_generation_view generation; /* without its pointers */
    char (*members)[MUSTER_UUID_SIZE];
    uint32_t *host_sizes;
    uint8_t *stale;
    struct muster_candidate *candidates; /* scratch for forming */

    /* The history: rings, indexed modulo MUSTER_HISTORY_MAX. */
    uint64_t generation_records, departure_records; /* written so far */
    struct muster_generation_record generations[MUSTER_HISTORY_MAX];
    struct muster_departure_record departures[MUSTER_HISTORY_MAX];
};

/* records ------------------------------------------------------------------------------------- */

/* Listed or gone; NULL: unknown. */
struct muster_member *muster_records_find(const struct muster_membership *membership,
                                          const char *id);

/* Reserves room for so many members in every array that forming needs, so that forming cannot fail.
 */
MUSTER_CHECKED muster_status muster_records_reserve(struct muster_membership *membership,
                                                    uint32_t count);

/* Lists a newcomer, which is ARRIVED. MUSTER_FATAL: no memory, nothing changed. */
MUSTER_CHECKED muster_status muster_records_add(struct muster_membership *membership,
                                                const struct muster_member_info *info,
                                                struct muster_member **ret_member);

/* The host of this name that has listed members; NULL: none. */
const struct muster_listed_host *muster_records_host(const struct muster_membership *membership,
                                                     const char *name);

/* What a listed member says of itself is replaced. MUSTER_FATAL: no memory, nothing changed. */
MUSTER_CHECKED muster_status muster_records_set_info(struct muster_membership *membership,
                                                     struct muster_member *member,
                                                     const struct muster_member_info *info);

/* Moves a listed member to another phase, not to gone. */
void muster_records_set_phase(struct muster_membership *membership, struct muster_member *member,
                              enum muster_member_phase phase);

/* Moves the member from the listed to the gone members. why: the reason in later refusals. */
void muster_records_mark_gone(struct muster_membership *membership, struct muster_member *member,
                              const char *why);

/* Marks the member gone and adds its departure to the history, with the sentence "rank 2 (host a,
 * pid 12) left: SIGTERM". reason 0: it died. cause: "SIGTERM"; may be empty. */
void muster_records_depart(struct muster_membership *membership, struct muster_member *member,
                           enum muster_leave_reason reason, const char *cause);

/* "rank 3 (host b, pid 4711)" or "newcomer (host b, pid 4711)"; returns text. */
const char *muster_records_describe(const struct muster_member *member, char text[MUSTER_WHY_SIZE]);

/* The generation that has just formed enters the history; the last one is revoked there. */
void muster_records_add_generation(struct muster_membership *membership);
void muster_records_end_generation(struct muster_membership *membership, const char *why);

/* printf into ret_why; too long a text is cut, and control characters become blanks. */
void muster_records_format(char ret_why[MUSTER_WHY_SIZE], const char *format, ...)
    MUSTER_PRINTF(2, 3);

/* Frees every member and array. */
void muster_records_finish(struct muster_membership *membership);

/* slots --------------------------------------------------------------------------------------- */

/* Another member, which may live, that holds the slot which a Join asks for; or NULL. */
const struct muster_member *muster_slots_holder(const struct muster_membership *membership,
                                                const struct muster_listed_host *host,
                                                const struct muster_member_info *info);

/* Gives the member, whose host and info are set, its slot, and writes it into info. Without memory
 * it has none until it joins again. */
void muster_slots_take(struct muster_membership *membership, struct muster_member *member);

/* The slot is free. To be called before the member's host is. */
void muster_slots_release(struct muster_membership *membership, struct muster_member *member);

/* forming ------------------------------------------------------------------------------------- */

/* When a TICK would form a generation, and when it would settle newcomers, if no event comes
 * before. INT64_MIN: at once; MUSTER_LIVENESS_NEVER: not by time alone. */
int64_t muster_forming_form_ms(const struct muster_membership *membership);
int64_t muster_forming_settle_ms(const struct muster_membership *membership);

/* Forms the next generation of the members that are ARRIVED. */
void muster_forming_form(struct muster_membership *membership);

/* Asks as many of the highest ranks to leave as are above the target; clears it for all others. */
void muster_forming_ask_leaves(struct muster_membership *membership);

#endif
