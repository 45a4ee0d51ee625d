/*
 * What membership.h hides: the state, and what its files promise each other. Only membership*.c
 * include it.
 *
 *   membership.c          create, check and apply; one function an event
 *   forming.c  when a generation forms, and who gets which rank
 *   member_records.c  who is listed, who is gone, what is remembered, in which words
 *   membership_views.c    what the shell may look at
 *   snapshot.c     all of the state as records, and back
 */
#ifndef MUSTER_ELASTIC_MEMBERSHIP_MEMBERSHIP_PARTS_H
#define MUSTER_ELASTIC_MEMBERSHIP_MEMBERSHIP_PARTS_H

#include "elastic/membership/liveness.h"
#include "elastic/membership/membership.h"

/* uthash must not exit the process when memory is out: an element that could not be added has
 * hh.tbl == NULL. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

enum {
    MUSTER_GONE_MAX = 2 * MUSTER_MEMBERS_MAX, /* so many that are gone are told so */
    MUSTER_ACTIONS_MAX = 4,                   /* of one event: one of each kind */
};

/* phase of a member that is gone */
#define MUSTER_MEMBER_GONE ((enum muster_member_phase)0)
#define MUSTER_NEWCOMER UINT64_MAX

/* A member, listed or gone. One allocation serves both, so that leaving needs no memory. */
struct muster_member {
    char id[MUSTER_UUID_SIZE];
    enum muster_member_phase phase;
    struct muster_member_info *info; /* owned; NULL once it is gone */
    struct muster_signs signs;
    uint64_t arrival;    /* counts members by their first Join */
    uint64_t seniority;  /* counts members by their first generation; or MUSTER_NEWCOMER */
    uint64_t generation; /* the last one it was in; 0: none */
    uint32_t rank;       /* in it */
    bool leave_asked;
    bool died;                       /* gone: nobody asked it to go */
    char why[MUSTER_WHY_SIZE];       /* gone: why */
    struct muster_member *next_gone; /* gone: the one that went after it */
    UT_hash_handle hh;
};

/* One place in the order of a generation that forms. */
struct muster_candidate {
    struct muster_member *member;
    uint32_t place;      /* in order of service */
    uint32_t host_place; /* the first place of its host */
    uint32_t rack_place; /* the first place of its host's rack */
};

struct muster_membership {
    struct muster_job_settings settings;
    bool begun; /* settings are those of a first Join */
    enum muster_job_phase phase;
    char why[MUSTER_WHY_SIZE];
    int64_t now_ms; /* of the last event: time does not run backward */

    struct muster_member *by_id;   /* listed and gone */
    struct muster_member **listed; /* owned [capacity]; the first count, by arrival */
    uint32_t count, capacity;
    struct muster_member *gone_first, *gone_last;
    uint32_t gone_count;
    uint32_t arrived, active, awaited; /* listed members by phase */
    uint32_t survivors;                /* arrived ones that have been in a generation */
    uint64_t arrivals, seniorities;    /* counters */

    uint64_t highest;              /* generation number that this job or a joiner knows */
    int64_t last_newcomer_ms;      /* when the last newcomer came */
    bool newcomers_settled;        /* RUNNING: the members are to move over and take them in */
    bool shrinking;                /* a Resize wants fewer members than there are */
    bool finishing;                /* RUNNING: a member has finished */
    bool deserted;                 /* ENDED: only because nobody was left */
    bool why_open;                 /* a departure may tell better why the generation was revoked */
    char blamed[MUSTER_UUID_SIZE]; /* whose departure; empty: anyone's */
    int64_t liveness_check_ms;     /* no member's deadline lies before it */

    /* The last generation; arrays are owned [capacity]. */
    struct muster_generation_view generation; /* its pointers are not used */
    char (*members)[MUSTER_UUID_SIZE];
    uint32_t *host_sizes;
    uint8_t *stale;
    struct muster_candidate *candidates; /* workspace */

    /* Rings; index modulo MUSTER_HISTORY_MAX. */
    uint64_t generation_records, departure_records; /* ever written */
    struct muster_generation_record generations[MUSTER_HISTORY_MAX];
    struct muster_departure_record departures[MUSTER_HISTORY_MAX];
};

/* records ------------------------------------------------------------------------------------- */

/* Listed or gone; NULL: unknown. */
struct muster_member *muster_records_find(const struct muster_membership *membership,
                                          const char *id);

/* Room for so many, in everything that forming will need: it must not fail half-way. */
MUSTER_CHECKED muster_status muster_records_reserve(struct muster_membership *membership,
                                                    uint32_t count);

/* Lists a newcomer that has arrived. MUSTER_FATAL: no memory, nothing changed. */
MUSTER_CHECKED muster_status muster_records_add(struct muster_membership *membership,
                                                const struct muster_member_info *info,
                                                struct muster_member **ret_member);

/* Moves a listed member to another phase; gone is not one. */
void muster_records_set_phase(struct muster_membership *membership, struct muster_member *member,
                              enum muster_member_phase phase);

/* Takes the member off the list; from now on it is told why. */
void muster_records_mark_gone(struct muster_membership *membership, struct muster_member *member,
                              const char *why);

/* As forget, and it gets a record. reason 0: it died. cause: "SIGTERM", may be empty. Builds the
 * sentence "rank 2 (host a, pid 12) left: SIGTERM". */
void muster_records_depart(struct muster_membership *membership, struct muster_member *member,
                           enum muster_leave_reason reason, const char *cause);

/* "rank 3 (host b, pid 4711)" or "newcomer (host b, pid 4711)"; returns text. */
const char *muster_records_describe(const struct muster_member *member, char text[MUSTER_WHY_SIZE]);

/* A generation has formed; the last one is over. */
void muster_records_add_generation(struct muster_membership *membership);
void muster_records_end_generation(struct muster_membership *membership, const char *why);

/* Cuts to MUSTER_WHY_SIZE, and keeps a line a line. */
void muster_records_format(char ret_why[MUSTER_WHY_SIZE], const char *format, ...)
    MUSTER_PRINTF(2, 3);

/* Frees every member and array. */
void muster_records_finish(struct muster_membership *membership);

/* forming ------------------------------------------------------------------------------------- */

/* When a TICK would form a generation, or make newcomers pending, if nothing else happens;
 * INT64_MIN: at once; MUSTER_LIVENESS_NEVER: it would not. */
int64_t muster_forming_form_ms(const struct muster_membership *membership);
int64_t muster_forming_settle_ms(const struct muster_membership *membership);

/* Makes the next generation of those that have arrived. */
void muster_forming_form(struct muster_membership *membership);

/* Asks the highest ranks to leave until the target is met, or nobody. */
void muster_forming_ask_leaves(struct muster_membership *membership);

#endif
