/*
 * The process sets of one process: names, members, and what becomes of them from one generation to
 * the next. Pure: it sends nothing and creates no contexts, but keeps the caller's.
 *
 *   stage    create                free     next generation
 *   (none)   HELD                  -        -
 *   NAMED    HELD, the same list   -        (none)
 *   HELD     an error; HELD, any   NAMED    HELD: the survivors in their order; LOST if not all of
 *            list, if it comes              them hold it, or if this process joined as a new
 *            from the generation            member
 *            before
 *   LOST     HELD                  NAMED    LOST
 *
 * In one generation a name stands for one list, so that members with different lists for a name
 * find out whenever they create it. A name is NAMED from its free, or its failed creation, to the
 * end of the generation.
 *
 * A scope number belongs to a name until it is freed, in all generations: the slot in the table,
 * and how often that slot was used.
 *
 * Threads: the caller's lock.
 *
 * May use: communicator/set_numbers.h, base.
 */
#ifndef MUSTER_WORKER_SESSION_PROCESS_SETS_H
#define MUSTER_WORKER_SESSION_PROCESS_SETS_H

#include <stdbool.h>

#include "worker/communicator/set_numbers.h"
#include "worker/muster.h"

enum {
    MUSTER_SET_NAME_SIZE = 128,
    MUSTER_SET_SLOT_BITS = 12,
    MUSTER_SETS_MAX = 1 << MUSTER_SET_SLOT_BITS, /* names that a process knows at a time */
    MUSTER_SET_SERIAL_MAX = (1 << 18) - 1,
    MUSTER_SET_SCOPE_FIRST = 1 << MUSTER_SET_SLOT_BITS, /* smaller scopes are no sets */
};

/* In place of a rank: the member is not in the generation. */
#define MUSTER_SET_GONE UINT32_MAX

struct muster_context;

enum muster_set_stage {
    MUSTER_SET_NONE = 0, /* a free slot */
    MUSTER_SET_NAMED = 1,
    MUSTER_SET_HELD = 2,
    MUSTER_SET_LOST = 3,
};

struct muster_process_set {
    char name[MUSTER_SET_NAME_SIZE];
    enum muster_set_stage stage;
    uint32_t serial;    /* of its scope number, from 1; 0: it never had one */
    uint32_t creations; /* begun in this generation */
    uint32_t listed_count;
    uint32_t *listed; /* owned [listed_count] what the name stands for in this generation; NULL: it
                         was not created in it */
    uint32_t reserved[MUSTER_SET_CANDIDATES]; /* numbers, while it is being created; 0: not it */
    /* Of a HELD one: */
    uint32_t *members;              /* owned [count] global ranks, in the order of the set */
    struct muster_context *context; /* the caller's; or NULL */
    uint32_t count;
    uint32_t rank;   /* this process's among them */
    uint32_t number; /* of its context; 0 in a new generation, until it is known */
    bool creating;   /* in any stage: between begin and end of a creation */
};

struct muster_process_sets {
    struct muster_process_set *slots; /* owned [slot_count] */
    uint32_t slot_count;
    uint32_t *numbers; /* owned [number_count] of contexts, used or reserved in this generation */
    size_t number_count, number_room;
};

/* The table is zeroed to begin with. Contexts have been taken out. */
void muster_process_sets_finish(struct muster_process_sets *sets);

/* A list of members, as a user passes it; borrowed. */
struct muster_set_list {
    const char *name;
    const uint32_t *members; /* [count] global ranks; the order is that of the set's ranks */
    size_t count;
    uint32_t own, size; /* this process's global rank, and how many there are */
};

/* Creating, in two steps, with the exchange of the members (set_exchange.h) between them. */
struct muster_set_creation {
    uint32_t slot;
    uint32_t creation;       /* its number in this generation */
    uint32_t rank;           /* this process's in the set */
    uint8_t free_candidates; /* bit i: no other set here has candidate i; it is reserved */
};

/* MUSTER_INVALID names what is wrong with the name, the list, or the two together; MUSTER_FATAL: no
 * memory. Nothing has begun then. */
MUSTER_CHECKED muster_status muster_process_sets_begin(struct muster_process_sets *sets,
                                                       const struct muster_set_list *list,
                                                       struct muster_set_creation *ret_creation);

/* After a success: the set has the candidate's number and the context, and *ret_old gets the
 * context that it had until now, or NULL. *ret_scope: its scope number. MUSTER_FATAL: no memory:
 * as after a failure, and the context stays the caller's. */
MUSTER_CHECKED muster_status muster_process_sets_end(
    struct muster_process_sets *sets, const struct muster_set_list *list,
    const struct muster_set_creation *creation, uint32_t candidate, struct muster_context *context,
    struct muster_context **ret_old, muster_scope *ret_scope);
/* After a failure. A set that was HELD or LOST still is. */
void muster_process_sets_abandon(struct muster_process_sets *sets,
                                 const struct muster_set_creation *creation);

/* MUSTER_INVALID: no set of this name is HELD. */
MUSTER_CHECKED muster_status muster_process_sets_find(const struct muster_process_sets *sets,
                                                      const char *name, muster_scope *ret_scope);

/* The HELD set of a scope number, borrowed until the table changes. MUSTER_INVALID: there is none;
 * the text says why. */
MUSTER_CHECKED muster_status muster_process_sets_get(const struct muster_process_sets *sets,
                                                     muster_scope scope,
                                                     struct muster_process_set **ret_set);

/* *ret_context: the context that it had, or NULL. MUSTER_INVALID: no set has this number, or
 * another thread is creating it. */
MUSTER_CHECKED muster_status muster_process_sets_free(struct muster_process_sets *sets,
                                                      muster_scope scope,
                                                      struct muster_context **ret_context);

/* A generation begins, and no creation is under way. Contexts have been taken out. Names stand for
 * nothing any more, except those of sets that are HELD or LOST. */
void muster_process_sets_forget_names(struct muster_process_sets *sets);

/* The same, and: rank i of the generation whose ranks the HELD sets have is new_ranks[i] now, or
 * MUSTER_SET_GONE; so is `own`, this process's rank in that. */
void muster_process_sets_move(struct muster_process_sets *sets, const uint32_t *new_ranks,
                              uint32_t own);

/* Whether any set is HELD. */
bool muster_process_sets_any(const struct muster_process_sets *sets);

/* Then the members tell each other the digests (set_numbers.h) of the sets that they hold. Appends
 * this process's to ret_digests, if it is not NULL. Returns how many there are. */
uint32_t muster_process_sets_digests(const struct muster_process_sets *sets, uint64_t *ret_digests);

/* What all members hold: those of rank i are digests[starts[i]] up to digests[starts[i + 1]]. A set
 * that not all of its members hold is LOST; each of the others gets its number. ret_slots, with
 * room for as many as this process holds, gets the slots of those, in the order of their numbers,
 * which is the same on all members. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_process_sets_confirm(struct muster_process_sets *sets,
                                                         uint32_t size, const size_t *starts,
                                                         const uint64_t *digests,
                                                         uint32_t *ret_slots, uint32_t *ret_count);

#endif
