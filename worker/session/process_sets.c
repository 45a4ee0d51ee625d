/* The table of process sets. */
#include "worker/session/process_sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

enum { SLOTS_FIRST = 8, LISTED_RANKS_MAX = 8 /* by an error text */ };

static void clear(struct muster_process_set *set)
{
    free(set->listed);
    free(set->members);
    *set = (struct muster_process_set){.serial = set->serial};
}

void muster_process_sets_finish(struct muster_process_sets *sets)
{
    for (uint32_t i = 0; i < sets->slot_count; i++) {
        clear(&sets->slots[i]);
    }
    free(sets->slots);
    free(sets->numbers);
    *sets = (struct muster_process_sets){0};
}

/* Texts ---------------------------------------------------------------------------------------- */

struct ranks_text {
    char text[16 * LISTED_RANKS_MAX];
};

/* "0 2 4", or "0 2 4 6 8 10 12 14 and 3 more". */
static struct ranks_text print_ranks(const uint32_t *ranks, size_t count)
{
    struct ranks_text printed = {""};
    size_t used = 0;
    for (size_t i = 0; i < count && i < LISTED_RANKS_MAX; i++) {
        used += (size_t)snprintf(printed.text + used, sizeof printed.text - used, "%s%u",
                                 i == 0 ? "" : " ", ranks[i]);
    }
    if (count > LISTED_RANKS_MAX) {
        (void)snprintf(printed.text + used, sizeof printed.text - used, " and %zu more",
                       count - LISTED_RANKS_MAX);
    }
    return printed;
}

/* Checks of what a user passes --------------------------------------------------------------------
 */

static muster_status check_name(const char *name)
{
    size_t length = name != NULL ? strnlen(name, MUSTER_SET_NAME_SIZE) : 0;
    if (length == 0 || length == MUSTER_SET_NAME_SIZE) {
        return muster_error_set(MUSTER_INVALID, "the name of a process set has 1 to %d bytes",
                                MUSTER_SET_NAME_SIZE - 1);
    }
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)name[i] < ' ') {
            return muster_error_set(MUSTER_INVALID,
                                    "the name of a process set has byte 0x%02x at place %zu: "
                                    "control characters are not allowed",
                                    (unsigned char)name[i], i);
        }
    }
    return MUSTER_OK;
}

static muster_status check_members(const struct muster_set_list *list, uint32_t *ret_rank)
{
    uint32_t rank = MUSTER_SET_GONE;
    AUTO_FREE bool *seen = calloc(list->size, sizeof *seen);
    if (seen == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    for (uint32_t i = 0; i < list->count; i++) {
        uint32_t member = list->members[i];
        if (member >= list->size) {
            return muster_error_set(MUSTER_INVALID, "rank %u: ranks are below %u", member,
                                    list->size);
        }
        if (seen[member]) {
            return muster_error_set(MUSTER_INVALID, "rank %u is listed twice", member);
        }
        seen[member] = true;
        rank = member == list->own ? i : rank;
    }
    if (rank == MUSTER_SET_GONE) {
        return muster_error_set(MUSTER_INVALID,
                                "rank %u, which creates it, is not among its members: ranks %s",
                                list->own, print_ranks(list->members, list->count).text);
    }
    *ret_rank = rank;
    return MUSTER_OK;
}

static muster_status check_list(const struct muster_set_list *list, uint32_t *ret_rank)
{
    if (list->members == NULL || list->count == 0 || list->count > list->size) {
        return muster_error_set(MUSTER_INVALID, "%zu members: there must be from 1 to %u",
                                list->members == NULL ? 0 : list->count, list->size);
    }
    return check_members(list, ret_rank);
}

/* Slots ---------------------------------------------------------------------------------------- */

static muster_scope scope_of(const struct muster_process_sets *sets, uint32_t slot)
{
    return (muster_scope)(sets->slots[slot].serial << MUSTER_SET_SLOT_BITS | slot);
}

static uint32_t slot_of_name(const struct muster_process_sets *sets, const char *name)
{
    uint32_t slot = 0;
    while (slot < sets->slot_count && (sets->slots[slot].stage == MUSTER_SET_NONE ||
                                       strcmp(sets->slots[slot].name, name) != 0)) {
        slot++;
    }
    return slot;
}

static uint32_t free_slot(const struct muster_process_sets *sets)
{
    uint32_t slot = 0;
    while (slot < sets->slot_count && sets->slots[slot].stage != MUSTER_SET_NONE) {
        slot++;
    }
    return slot;
}

static muster_status grow(struct muster_process_sets *sets)
{
    uint32_t count = sets->slot_count == 0 ? SLOTS_FIRST : 2 * sets->slot_count;
    if (count > MUSTER_SETS_MAX) {
        return muster_error_set(MUSTER_INVALID, "this process knows %d process sets: no more fit",
                                MUSTER_SETS_MAX);
    }
    struct muster_process_set *slots = realloc(sets->slots, count * sizeof *slots);
    if (slots == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u process sets", count);
    }
    memset(slots + sets->slot_count, 0, (count - sets->slot_count) * sizeof *slots);
    sets->slots = slots;
    sets->slot_count = count;
    return MUSTER_OK;
}

static void take_serial(struct muster_process_set *set)
{
    set->serial = set->serial < MUSTER_SET_SERIAL_MAX ? set->serial + 1 : 1;
}

/* Numbers of contexts -------------------------------------------------------------------------- */

static bool is_used(const struct muster_process_sets *sets, uint32_t number)
{
    for (size_t i = 0; i < sets->number_count; i++) {
        if (sets->numbers[i] == number) {
            return true;
        }
    }
    return false;
}

static muster_status make_room_for_numbers(struct muster_process_sets *sets)
{
    if (sets->number_count + MUSTER_SET_CANDIDATES <= sets->number_room) {
        return MUSTER_OK;
    }
    size_t room = 2 * sets->number_room + MUSTER_SET_CANDIDATES;
    uint32_t *numbers = realloc(sets->numbers, room * sizeof *numbers);
    if (numbers == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the numbers of process sets");
    }
    sets->numbers = numbers;
    sets->number_room = room;
    return MUSTER_OK;
}

/* Reserves the candidates that are free. There is room. */
static uint8_t reserve_candidates(struct muster_process_sets *sets, struct muster_process_set *set)
{
    uint32_t candidates[MUSTER_SET_CANDIDATES];
    uint8_t free_ones = 0;
    muster_set_candidates(set->name, set->creations, candidates);
    for (uint32_t i = 0; i < MUSTER_SET_CANDIDATES; i++) {
        bool used = is_used(sets, candidates[i]);
        set->reserved[i] = used ? 0 : candidates[i];
        if (!used) {
            free_ones = (uint8_t)(free_ones | 1U << i);
            sets->numbers[sets->number_count++] = candidates[i];
        }
    }
    return free_ones;
}

/* But for the one to keep. */
static void release_candidates(struct muster_process_sets *sets, struct muster_process_set *set,
                               uint32_t keep)
{
    for (uint32_t i = 0; i < MUSTER_SET_CANDIDATES; i++) {
        for (size_t at = 0; at < sets->number_count && i != keep; at++) {
            if (sets->numbers[at] == set->reserved[i]) {
                sets->numbers[at] = sets->numbers[--sets->number_count];
                break;
            }
        }
        set->reserved[i] = 0;
    }
}

/* Creating ------------------------------------------------------------------------------------- */

/* Whether the name can be created with this list now. */
static muster_status check_use(const struct muster_process_set *set,
                               const struct muster_set_list *list)
{
    if (set->creating) {
        return muster_error_set(MUSTER_INVALID, "another thread is creating it");
    }
    if (set->listed == NULL) {
        return MUSTER_OK;
    }
    if (set->stage == MUSTER_SET_HELD) {
        return muster_error_set(MUSTER_INVALID,
                                "it exists, with ranks %s: muster_process_set_find() returns it",
                                print_ranks(set->listed, set->listed_count).text);
    }
    if (set->listed_count != list->count ||
        memcmp(set->listed, list->members, list->count * sizeof *list->members) != 0) {
        return muster_error_set(MUSTER_INVALID,
                                "in this generation the name stands for ranks %s: ranks %s need "
                                "another name",
                                print_ranks(set->listed, set->listed_count).text,
                                print_ranks(list->members, list->count).text);
    }
    return MUSTER_OK;
}

static muster_status begin(struct muster_process_sets *sets, const struct muster_set_list *list,
                           struct muster_set_creation *ret_creation)
{
    uint32_t rank = 0;
    TRY(check_list(list, &rank));
    uint32_t slot = slot_of_name(sets, list->name);
    if (slot < sets->slot_count) {
        TRY(check_use(&sets->slots[slot], list));
    } else {
        slot = free_slot(sets);
    }
    if (slot == sets->slot_count) {
        TRY(grow(sets));
    }
    TRY(make_room_for_numbers(sets));
    struct muster_process_set *set = &sets->slots[slot];
    if (set->stage == MUSTER_SET_NONE) {
        set->stage = MUSTER_SET_NAMED;
        (void)snprintf(set->name, sizeof set->name, "%s", list->name);
    }
    set->creating = true;
    set->creations++;
    *ret_creation = (struct muster_set_creation){.slot = slot,
                                                 .creation = set->creations,
                                                 .rank = rank,
                                                 .free_candidates = reserve_candidates(sets, set)};
    return MUSTER_OK;
}

muster_status muster_process_sets_begin(struct muster_process_sets *sets,
                                        const struct muster_set_list *list,
                                        struct muster_set_creation *ret_creation)
{
    TRY(check_name(list->name));
    muster_status status = begin(sets, list, ret_creation);
    return status == MUSTER_OK ? MUSTER_OK
                               : muster_error_prefix(status, "process set %s", list->name);
}

static uint32_t *copy_ranks(const uint32_t *ranks, size_t count)
{
    uint32_t *copy = calloc(count, sizeof *copy);
    if (copy != NULL) {
        memcpy(copy, ranks, count * sizeof *copy);
    }
    return copy;
}

muster_status muster_process_sets_end(struct muster_process_sets *sets,
                                      const struct muster_set_list *list,
                                      const struct muster_set_creation *creation,
                                      uint32_t candidate, struct muster_context *context,
                                      struct muster_context **ret_old, muster_scope *ret_scope)
{
    struct muster_process_set *set = &sets->slots[creation->slot];
    AUTO_FREE uint32_t *members = copy_ranks(list->members, list->count);
    AUTO_FREE uint32_t *listed = copy_ranks(list->members, list->count);
    if (members == NULL || listed == NULL) {
        muster_process_sets_abandon(sets, creation);
        return muster_error_set(MUSTER_FATAL, "no memory for process set %s", list->name);
    }
    set->number = set->reserved[candidate];
    release_candidates(sets, set, candidate);
    if (set->stage == MUSTER_SET_NAMED) {
        take_serial(set);
    }
    free(set->members);
    free(set->listed);
    set->members = TAKE(members);
    set->listed = TAKE(listed);
    set->count = set->listed_count = (uint32_t)list->count;
    set->rank = creation->rank;
    set->stage = MUSTER_SET_HELD;
    set->creating = false;
    *ret_old = set->context;
    set->context = context;
    *ret_scope = scope_of(sets, creation->slot);
    return MUSTER_OK;
}

void muster_process_sets_abandon(struct muster_process_sets *sets,
                                 const struct muster_set_creation *creation)
{
    struct muster_process_set *set = &sets->slots[creation->slot];
    release_candidates(sets, set, MUSTER_SET_CANDIDATES);
    set->creating = false;
}

/* Finding and freeing -------------------------------------------------------------------------- */

static muster_status lost(const struct muster_process_set *set)
{
    return muster_error_set(MUSTER_INVALID,
                            "process set %s ended with its generation: not all of its members "
                            "hold it, and they have to create it again",
                            set->name);
}

muster_status muster_process_sets_find(const struct muster_process_sets *sets, const char *name,
                                       muster_scope *ret_scope)
{
    TRY(check_name(name));
    uint32_t slot = slot_of_name(sets, name);
    if (slot < sets->slot_count && sets->slots[slot].stage == MUSTER_SET_LOST) {
        return lost(&sets->slots[slot]);
    }
    if (slot == sets->slot_count || sets->slots[slot].stage != MUSTER_SET_HELD) {
        return muster_error_set(MUSTER_INVALID, "process set %s: this member is in none", name);
    }
    *ret_scope = scope_of(sets, slot);
    return MUSTER_OK;
}

/* The set of a number, HELD or LOST; NULL: there is none, which is an error with a text. */
static struct muster_process_set *find_scope(const struct muster_process_sets *sets,
                                             muster_scope scope)
{
    uint32_t slot = (uint32_t)scope & (MUSTER_SETS_MAX - 1);
    if ((int32_t)scope < MUSTER_SET_SCOPE_FIRST) {
        (void)muster_error_set(MUSTER_INVALID, "scope %d: there is no such scope", (int)scope);
        return NULL;
    }
    if (slot >= sets->slot_count || sets->slots[slot].stage < MUSTER_SET_HELD ||
        scope_of(sets, slot) != scope) {
        (void)muster_error_set(MUSTER_INVALID,
                               "scope %d: there is no such process set: it was freed, or never "
                               "created here",
                               (int)scope);
        return NULL;
    }
    return &sets->slots[slot];
}

muster_status muster_process_sets_get(const struct muster_process_sets *sets, muster_scope scope,
                                      struct muster_process_set **ret_set)
{
    struct muster_process_set *set = find_scope(sets, scope);
    if (set == NULL) {
        return MUSTER_INVALID;
    }
    if (set->stage == MUSTER_SET_LOST) {
        return lost(set);
    }
    *ret_set = set;
    return MUSTER_OK;
}

muster_status muster_process_sets_free(struct muster_process_sets *sets, muster_scope scope,
                                       struct muster_context **ret_context)
{
    struct muster_process_set *set = find_scope(sets, scope);
    if (set == NULL) {
        return MUSTER_INVALID;
    }
    if (set->creating) {
        return muster_error_set(MUSTER_INVALID,
                                "process set %s cannot be freed: another thread is creating it "
                                "again",
                                set->name);
    }
    *ret_context = TAKE(set->context);
    free(TAKE(set->members));
    set->count = 0;
    set->stage = MUSTER_SET_NAMED;
    return MUSTER_OK;
}

/* From one generation to the next -----------------------------------------------------------------
 */

static void keep_survivors(struct muster_process_set *set, const uint32_t *new_ranks, uint32_t own)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t rank = new_ranks[set->members[i]];
        if (rank != MUSTER_SET_GONE) {
            set->rank = set->members[i] == own ? count : set->rank;
            set->members[count++] = rank;
        }
    }
    set->count = count;
}

static void lose(struct muster_process_set *set)
{
    free(TAKE(set->members));
    set->count = 0;
    set->stage = MUSTER_SET_LOST;
}

void muster_process_sets_forget_names(struct muster_process_sets *sets)
{
    sets->number_count = 0;
    for (uint32_t i = 0; i < sets->slot_count; i++) {
        struct muster_process_set *set = &sets->slots[i];
        free(TAKE(set->listed));
        set->listed_count = 0;
        set->creations = 0;
        set->number = 0;
        if (set->stage == MUSTER_SET_NAMED) {
            clear(set);
        }
    }
}

void muster_process_sets_move(struct muster_process_sets *sets, const uint32_t *new_ranks,
                              uint32_t own)
{
    muster_process_sets_forget_names(sets);
    for (uint32_t i = 0; i < sets->slot_count; i++) {
        struct muster_process_set *set = &sets->slots[i];
        if (set->stage == MUSTER_SET_HELD && new_ranks[own] == MUSTER_SET_GONE) {
            lose(set);
        } else if (set->stage == MUSTER_SET_HELD) {
            keep_survivors(set, new_ranks, own);
        }
    }
}

bool muster_process_sets_any(const struct muster_process_sets *sets)
{
    return muster_process_sets_digests(sets, NULL) > 0;
}

uint32_t muster_process_sets_digests(const struct muster_process_sets *sets, uint64_t *ret_digests)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sets->slot_count; i++) {
        const struct muster_process_set *set = &sets->slots[i];
        if (set->stage != MUSTER_SET_HELD) {
            continue;
        }
        if (ret_digests != NULL) {
            ret_digests[count] = muster_set_digest(set->name, set->members, set->count);
        }
        count++;
    }
    return count;
}

static int compare_digests(const void *left, const void *right)
{
    const uint64_t *a = left;
    const uint64_t *b = right;
    return (*a > *b) - (*a < *b);
}

/* Sorts, and leaves out what stands there twice. Returns how many remain. */
static size_t sort_digests(uint64_t *digests, size_t count)
{
    size_t remaining = 0;
    qsort(digests, count, sizeof *digests, compare_digests);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || digests[i] != digests[i - 1]) {
            digests[remaining++] = digests[i];
        }
    }
    return remaining;
}

/* Whether all members of the set hold it. */
static bool is_held_by_all(const struct muster_process_set *set, uint64_t digest,
                           const size_t *starts, const uint64_t *digests)
{
    for (uint32_t i = 0; i < set->count; i++) {
        size_t at = starts[set->members[i]];
        size_t end = starts[set->members[i] + 1];
        while (at < end && digests[at] != digest) {
            at++;
        }
        if (at == end) {
            return false;
        }
    }
    return true;
}

static void insert_by_number(const struct muster_process_sets *sets, uint32_t slot, uint32_t *slots,
                             uint32_t count)
{
    uint32_t at = count;
    while (at > 0 && sets->slots[slots[at - 1]].number > sets->slots[slot].number) {
        slots[at] = slots[at - 1];
        at--;
    }
    slots[at] = slot;
}

muster_status muster_process_sets_confirm(struct muster_process_sets *sets, uint32_t size,
                                          const size_t *starts, const uint64_t *digests,
                                          uint32_t *ret_slots, uint32_t *ret_count)
{
    uint32_t count = 0;
    AUTO_FREE uint64_t *sorted = calloc(starts[size] + 1, sizeof *sorted);
    if (sorted == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the process sets of all members");
    }
    memcpy(sorted, digests, starts[size] * sizeof *sorted);
    size_t distinct = sort_digests(sorted, starts[size]);
    for (uint32_t i = 0; i < sets->slot_count; i++) {
        struct muster_process_set *set = &sets->slots[i];
        if (set->stage != MUSTER_SET_HELD) {
            continue;
        }
        uint64_t digest = muster_set_digest(set->name, set->members, set->count);
        if (!is_held_by_all(set, digest, starts, digests)) {
            lose(set);
            continue;
        }
        const uint64_t *place = bsearch(&digest, sorted, distinct, sizeof *sorted, compare_digests);
        set->number = MUSTER_SET_LEFT_NUMBERS | (uint32_t)(place - sorted);
        insert_by_number(sets, i, ret_slots, count++);
    }
    *ret_count = count;
    return MUSTER_OK;
}
