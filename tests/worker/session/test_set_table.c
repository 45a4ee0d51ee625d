/* The table of process sets, without sessions: all ways in which members survive, and in which they
 * hold sets; wrong uses; numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/session/process_sets.h"

enum { MEMBERS_MAX = 5 };

/* Any pointer does: the table never follows it. */
static char contexts[64];

static struct muster_context *context_number(size_t i)
{
    return (struct muster_context *)&contexts[i % sizeof contexts];
}

static struct muster_set_list list_of(const char *name, const uint32_t *members, size_t count,
                                      uint32_t own)
{
    return (struct muster_set_list){
        .name = name, .members = members, .count = count, .own = own, .size = MEMBERS_MAX};
}

static muster_scope create(struct muster_process_sets *sets, const struct muster_set_list *list)
{
    struct muster_set_creation creation;
    struct muster_context *old = NULL;
    muster_scope scope = MUSTER_NO_SCOPE;
    assert_int_equal(muster_process_sets_begin(sets, list, &creation), MUSTER_OK);
    assert_true((creation.free_candidates & 1) != 0);
    assert_int_equal(
        muster_process_sets_end(sets, list, &creation, 0, context_number(0), &old, &scope),
        MUSTER_OK);
    assert_null(old);
    return scope;
}

/* As the session does at the end of a generation. */
static void take_contexts(struct muster_process_sets *sets)
{
    for (uint32_t i = 0; i < sets->slot_count; i++) {
        sets->slots[i].context = NULL;
    }
}

/* Surviving ------------------------------------------------------------------------------------ */

/* Each member of the old generation has one of the new ranks, or is gone. */
static bool next_map(uint32_t *new_ranks, uint32_t count)
{
    uint32_t i = 0;
    while (i < count && new_ranks[i] == MUSTER_SET_GONE) {
        new_ranks[i++] = 0;
    }
    if (i == count) {
        return false;
    }
    new_ranks[i] = new_ranks[i] + 1 == count ? MUSTER_SET_GONE : new_ranks[i] + 1;
    return true;
}

static bool is_injective(const uint32_t *new_ranks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (new_ranks[i] == new_ranks[j] && new_ranks[i] != MUSTER_SET_GONE) {
                return false;
            }
        }
    }
    return true;
}

/* The members are the bits of the mask, from the highest rank down: an order of their own. */
static uint32_t members_of(uint32_t mask, uint32_t *members)
{
    uint32_t count = 0;
    for (uint32_t rank = MEMBERS_MAX; rank-- > 0;) {
        if ((mask >> rank & 1) != 0) {
            members[count++] = rank;
        }
    }
    return count;
}

static void expect_survivors(const uint32_t *members, uint32_t count, uint32_t own,
                             const uint32_t *new_ranks)
{
    struct muster_process_sets sets = {0};
    const struct muster_set_list list = list_of("set", members, count, own);
    muster_scope scope = create(&sets, &list);
    struct muster_process_set *set = NULL;
    uint32_t survivors = 0;
    take_contexts(&sets);
    muster_process_sets_move(&sets, new_ranks, own);
    if (new_ranks[own] == MUSTER_SET_GONE) {
        assert_int_equal(muster_process_sets_get(&sets, scope, &set), MUSTER_INVALID);
        assert_non_null(strstr(muster_last_error(), "process set set ended"));
        assert_false(muster_process_sets_any(&sets));
    } else {
        assert_int_equal(muster_process_sets_get(&sets, scope, &set), MUSTER_OK);
        for (uint32_t i = 0; i < count; i++) {
            if (new_ranks[members[i]] == MUSTER_SET_GONE) {
                continue;
            }
            assert_int_equal(set->members[survivors], new_ranks[members[i]]);
            assert_true(members[i] != own || set->rank == survivors);
            survivors++;
        }
        assert_int_equal(set->count, survivors);
    }
    muster_process_sets_finish(&sets);
}

static void test_survivors_keep_their_order_whatever_ranks_they_get(void **state)
{
    (void)state;
    enum { MEMBERS = 4 };
    uint32_t new_ranks[MEMBERS_MAX] = {0};
    size_t cases = 0;
    do {
        for (uint32_t mask = 1; is_injective(new_ranks, MEMBERS) && mask < 1 << MEMBERS; mask++) {
            uint32_t members[MEMBERS_MAX];
            uint32_t count = members_of(mask, members);
            for (uint32_t i = 0; i < count; i++) {
                expect_survivors(members, count, members[i], new_ranks);
                cases++;
            }
        }
    } while (next_map(new_ranks, MEMBERS));
    assert_int_equal(cases, 209 * 32); /* injective partial maps of 4; members of all sets */
}

/* Holding -------------------------------------------------------------------------------------- */

/* Three members. Set i, of two of them or all, is held by those in `holders`. */
enum { HOLDERS = 3, SETS = 4 };

static const uint32_t masks[SETS] = {3, 5, 6, 7};

struct holders {
    struct muster_process_sets tables[HOLDERS];
    size_t starts[HOLDERS + 1];
    uint64_t digests[HOLDERS * SETS];
};

static void hold(struct holders *holders, uint32_t set, uint32_t holding)
{
    char name[8];
    uint32_t members[MEMBERS_MAX];
    uint32_t count = members_of(masks[set], members);
    (void)snprintf(name, sizeof name, "set%u", set % 2); /* some have the same name */
    for (uint32_t rank = 0; rank < HOLDERS; rank++) {
        muster_scope scope;
        if ((holding & masks[set] & 1U << rank) != 0 &&
            muster_process_sets_find(&holders->tables[rank], name, &scope) != MUSTER_OK) {
            const struct muster_set_list list = list_of(name, members, count, rank);
            (void)create(&holders->tables[rank], &list);
        }
    }
}

static void start_a_generation(struct holders *holders)
{
    static const uint32_t same[MEMBERS_MAX] = {0, 1, 2, 3, 4};
    for (uint32_t rank = 0; rank < HOLDERS; rank++) {
        take_contexts(&holders->tables[rank]);
        muster_process_sets_move(&holders->tables[rank], same, rank);
        holders->starts[rank + 1] =
            holders->starts[rank] +
            muster_process_sets_digests(&holders->tables[rank],
                                        &holders->digests[holders->starts[rank]]);
    }
}

/* The set of a name at a member, if it holds one of these members. */
static struct muster_process_set *held(struct holders *holders, uint32_t rank, const char *name,
                                       uint32_t mask)
{
    struct muster_process_set *set = NULL;
    muster_scope scope = MUSTER_NO_SCOPE;
    uint32_t members[MEMBERS_MAX];
    uint32_t count = members_of(mask, members);
    if (muster_process_sets_find(&holders->tables[rank], name, &scope) != MUSTER_OK ||
        muster_process_sets_get(&holders->tables[rank], scope, &set) != MUSTER_OK ||
        set->count != count || memcmp(set->members, members, count * sizeof *members) != 0) {
        return NULL;
    }
    return set;
}

static void expect_agreement(struct holders *holders, const uint32_t *held_before)
{
    uint32_t numbers[SETS] = {0};
    for (uint32_t i = 0; i < SETS; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "set%u", i % 2);
        for (uint32_t rank = 0; rank < HOLDERS; rank++) {
            const struct muster_process_set *set = held(holders, rank, name, masks[i]);
            bool by_all = held_before[i] == masks[i];
            assert_true((set != NULL) == (by_all && (masks[i] >> rank & 1) != 0));
            assert_true(set == NULL || numbers[i] == 0 || numbers[i] == set->number);
            numbers[i] = set != NULL ? set->number : numbers[i];
        }
        for (uint32_t j = 0; j < i; j++) {
            assert_true(numbers[i] == 0 || numbers[i] != numbers[j]);
        }
    }
}

static void try_holders(uint32_t code)
{
    struct holders holders = {0};
    uint32_t held_before[SETS] = {0};
    uint32_t slots[HOLDERS][SETS];
    for (uint32_t i = 0; i < SETS; i++) {
        hold(&holders, i, code >> (HOLDERS * i) & 7);
    }
    start_a_generation(&holders);
    for (uint32_t i = 0; i < SETS; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "set%u", i % 2);
        for (uint32_t rank = 0; rank < HOLDERS; rank++) {
            held_before[i] |= held(&holders, rank, name, masks[i]) != NULL ? 1U << rank : 0;
        }
    }
    for (uint32_t rank = 0; rank < HOLDERS; rank++) {
        uint32_t count = 0;
        assert_int_equal(muster_process_sets_confirm(&holders.tables[rank], HOLDERS, holders.starts,
                                                     holders.digests, slots[rank], &count),
                         MUSTER_OK);
        for (uint32_t i = 1; i < count; i++) {
            assert_true(holders.tables[rank].slots[slots[rank][i - 1]].number <
                        holders.tables[rank].slots[slots[rank][i]].number);
        }
    }
    expect_agreement(&holders, held_before);
    for (uint32_t rank = 0; rank < HOLDERS; rank++) {
        muster_process_sets_finish(&holders.tables[rank]);
    }
}

static void test_a_set_stays_if_all_its_members_hold_it(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 1 << (HOLDERS * SETS); code++) {
        try_holders(code);
    }
}

/* Wrong uses ----------------------------------------------------------------------------------- */

static void expect_refused(struct muster_process_sets *sets, const char *name,
                           const uint32_t *members, size_t count, const char *text)
{
    struct muster_set_creation creation;
    const struct muster_set_list list = list_of(name, members, count, 1);
    assert_int_equal(muster_process_sets_begin(sets, &list, &creation), MUSTER_INVALID);
    if (strstr(muster_last_error(), text) == NULL) {
        fail_msg("'%s' is not in: %s", text, muster_last_error());
    }
}

static void test_what_is_wrong_with_a_list_is_named(void **state)
{
    (void)state;
    struct muster_process_sets sets = {0};
    static const uint32_t twice[] = {1, 2, 1};
    static const uint32_t beyond[] = {1, 5};
    static const uint32_t others[] = {0, 2, 4};
    static const uint32_t good[] = {1, 0};
    static const uint32_t six[] = {0, 1, 2, 3, 4, 0};
    char longest[MUSTER_SET_NAME_SIZE + 1];
    muster_scope scope;
    memset(longest, 'n', sizeof longest);
    longest[MUSTER_SET_NAME_SIZE] = '\0';
    expect_refused(&sets, NULL, good, 2, "1 to 127 bytes");
    expect_refused(&sets, "", good, 2, "1 to 127 bytes");
    expect_refused(&sets, longest, good, 2, "1 to 127 bytes");
    expect_refused(&sets, "a\nb", good, 2, "byte 0x0a at place 1");
    expect_refused(&sets, "a", NULL, 2, "process set a: 0 members: there must be from 1 to 5");
    expect_refused(&sets, "a", good, 0, "0 members");
    expect_refused(&sets, "a", six, 6, "6 members");
    expect_refused(&sets, "a", beyond, 2, "rank 5: ranks are below 5");
    expect_refused(&sets, "a", twice, 3, "rank 1 is listed twice");
    expect_refused(&sets, "a", others, 3,
                   "rank 1, which creates it, is not among its members: "
                   "ranks 0 2 4");
    assert_int_equal(sets.slot_count, 0);
    longest[MUSTER_SET_NAME_SIZE - 1] = '\0';
    const struct muster_set_list list = list_of(longest, good, 2, 1);
    (void)create(&sets, &list);
    assert_int_equal(muster_process_sets_find(&sets, longest, &scope), MUSTER_OK);
    muster_process_sets_finish(&sets);
}

static void test_in_a_generation_a_name_stands_for_one_list(void **state)
{
    (void)state;
    static const uint32_t same[MEMBERS_MAX] = {0, 1, 2, 3, 4};
    static const uint32_t one[] = {1, 0};
    static const uint32_t other[] = {0, 1};
    struct muster_process_sets sets = {0};
    struct muster_context *context = NULL;
    struct muster_context *old = NULL;
    struct muster_set_creation creation;
    const struct muster_set_list list = list_of("a", one, 2, 1);
    const struct muster_set_list changed = list_of("a", other, 2, 1);
    muster_scope again;
    muster_scope scope = create(&sets, &list);
    expect_refused(&sets, "a", one, 2, "it exists, with ranks 1 0: muster_process_set_find()");
    assert_int_equal(muster_process_sets_free(&sets, scope, &context), MUSTER_OK);
    assert_ptr_equal(context, context_number(0));
    assert_int_equal(muster_process_sets_free(&sets, scope, &context), MUSTER_INVALID);
    assert_int_equal(muster_process_sets_find(&sets, "a", &again), MUSTER_INVALID);
    expect_refused(&sets, "a", other, 2, "stands for ranks 1 0: ranks 0 1 need another name");
    assert_int_equal(muster_process_sets_begin(&sets, &list, &creation), MUSTER_OK);
    assert_int_equal(creation.creation, 2);
    expect_refused(&sets, "a", one, 2, "another thread is creating it");
    muster_process_sets_abandon(&sets, &creation);
    assert_int_equal(muster_process_sets_find(&sets, "a", &again), MUSTER_INVALID);
    again = create(&sets, &list);
    assert_true(again != scope);

    take_contexts(&sets);
    muster_process_sets_move(&sets, same, 1);
    assert_int_equal(muster_process_sets_begin(&sets, &changed, &creation), MUSTER_OK);
    assert_int_equal(creation.creation, 1);
    assert_int_equal(creation.rank, 1);
    assert_int_equal(muster_process_sets_free(&sets, again, &context), MUSTER_INVALID);
    sets.slots[creation.slot].context = context_number(1);
    assert_int_equal(
        muster_process_sets_end(&sets, &changed, &creation, 1, context_number(2), &old, &scope),
        MUSTER_OK);
    assert_ptr_equal(old, context_number(1)); /* of the survivors' */
    assert_int_equal(scope, again);           /* the number stays the user's */
    muster_process_sets_finish(&sets);
}

static void test_a_lost_set_can_be_created_again_under_its_number(void **state)
{
    (void)state;
    static const uint32_t gone[MEMBERS_MAX] = {0, MUSTER_SET_GONE, 1, 2, 3};
    static const uint32_t one[] = {1, 0};
    struct muster_process_sets sets = {0};
    struct muster_set_creation creation;
    struct muster_process_set *set = NULL;
    const struct muster_set_list list = list_of("a", one, 2, 1);
    muster_scope scope = create(&sets, &list);
    muster_scope found;
    take_contexts(&sets);
    muster_process_sets_move(&sets, gone, 1);
    assert_int_equal(muster_process_sets_find(&sets, "a", &found), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "create it again"));
    assert_int_equal(muster_process_sets_begin(&sets, &list, &creation), MUSTER_OK);
    muster_process_sets_abandon(&sets, &creation);
    assert_int_equal(muster_process_sets_get(&sets, scope, &set), MUSTER_INVALID);
    assert_int_equal(create(&sets, &list), scope);
    assert_int_equal(muster_process_sets_get(&sets, scope, &set), MUSTER_OK);
    muster_process_sets_finish(&sets);
}

static void test_scopes_that_are_no_sets_are_named(void **state)
{
    (void)state;
    struct muster_process_sets sets = {0};
    struct muster_process_set *set = NULL;
    static const int32_t scopes[] = {-1, INT32_MIN, 3, 4095, 4096, 8192 + 7, INT32_MAX};
    static const uint32_t one[] = {1};
    const struct muster_set_list list = list_of("a", one, 1, 1);
    muster_scope scope = create(&sets, &list);
    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++) {
        assert_int_equal(muster_process_sets_get(&sets, (muster_scope)scopes[i], &set),
                         (int32_t)scope == scopes[i] ? MUSTER_OK : MUSTER_INVALID);
    }
    muster_process_sets_finish(&sets);
}

/* A number of a slot is used again only after 2^18 other uses. */
static void test_a_number_is_not_used_again_soon(void **state)
{
    (void)state;
    struct muster_process_sets sets = {0};
    static const uint32_t one[] = {1};
    static const uint32_t same[MEMBERS_MAX] = {0, 1, 2, 3, 4};
    const struct muster_set_list list = list_of("a", one, 1, 1);
    struct muster_context *context = NULL;
    muster_scope first = create(&sets, &list);
    muster_scope scope = first;
    for (uint32_t i = 0; i < MUSTER_SET_SERIAL_MAX; i++) {
        assert_true((i == 0) == (scope == first));
        assert_int_equal(muster_process_sets_free(&sets, scope, &context), MUSTER_OK);
        muster_process_sets_move(&sets, same, 1);
        scope = create(&sets, &list);
        assert_true((int32_t)scope >= MUSTER_SET_SCOPE_FIRST);
    }
    assert_int_equal(scope, first);
    muster_process_sets_finish(&sets);
}

static void test_a_process_knows_a_bounded_number_of_names(void **state)
{
    (void)state;
    struct muster_process_sets sets = {0};
    static const uint32_t one[] = {1};
    for (int i = 0; i < MUSTER_SETS_MAX; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "set%d", i);
        const struct muster_set_list list = list_of(name, one, 1, 1);
        (void)create(&sets, &list);
    }
    expect_refused(&sets, "more", one, 1, "knows 4096 process sets: no more fit");
    muster_process_sets_finish(&sets);
}

/* Numbers on the wire -------------------------------------------------------------------------- */

/* Whatever numbers other sets have, the free candidates are those that none of them has. */
static void test_candidates_that_other_sets_have_are_not_offered(void **state)
{
    (void)state;
    static const uint32_t one[] = {1};
    uint32_t candidates[MUSTER_SET_CANDIDATES];
    muster_set_candidates("a", 1, candidates);
    for (uint32_t used = 0; used < 1 << MUSTER_SET_CANDIDATES; used++) {
        struct muster_process_sets sets = {0};
        struct muster_set_creation creation;
        uint32_t numbers[MUSTER_SET_CANDIDATES];
        uint32_t count = 0;
        for (uint32_t i = 0; i < MUSTER_SET_CANDIDATES; i++) {
            if ((used >> i & 1) != 0) {
                numbers[count++] = candidates[i];
            }
        }
        sets.numbers = malloc(sizeof numbers);
        assert_non_null(sets.numbers);
        memcpy(sets.numbers, numbers, count * sizeof *numbers);
        sets.number_count = count;
        sets.number_room = MUSTER_SET_CANDIDATES;
        const struct muster_set_list list = list_of("a", one, 1, 1);
        assert_int_equal(muster_process_sets_begin(&sets, &list, &creation), MUSTER_OK);
        assert_int_equal(creation.free_candidates, (uint8_t)~used);
        assert_int_equal(sets.number_count, MUSTER_SET_CANDIDATES);
        muster_process_sets_abandon(&sets, &creation);
        assert_int_equal(sets.number_count, count);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t at = 0;
            while (at < count && sets.numbers[at] != numbers[i]) {
                at++;
            }
            assert_true(at < count);
        }
        muster_process_sets_finish(&sets);
    }
}

static void test_numbers_lie_in_their_ranges(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 20000; i++) {
        char name[16];
        uint32_t candidates[MUSTER_SET_CANDIDATES];
        uint32_t context = 0;
        uint64_t sequence = 0;
        (void)snprintf(name, sizeof name, "set%u", i);
        muster_set_candidates(name, 1 + i % 3, candidates);
        muster_set_creation_key(name, 1 + i % 3, &context, &sequence);
        for (uint32_t j = 0; j < MUSTER_SET_CANDIDATES; j++) {
            assert_int_equal(candidates[j] >> MUSTER_SET_HASH_BITS, 2);
        }
        assert_int_equal(context >> 28, 2);
        assert_int_equal(sequence & 0xff, 1 + i % 3);
        assert_true(sequence >> 63 == 0 && sequence != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_survivors_keep_their_order_whatever_ranks_they_get),
        cmocka_unit_test(test_a_set_stays_if_all_its_members_hold_it),
        cmocka_unit_test(test_what_is_wrong_with_a_list_is_named),
        cmocka_unit_test(test_in_a_generation_a_name_stands_for_one_list),
        cmocka_unit_test(test_a_lost_set_can_be_created_again_under_its_number),
        cmocka_unit_test(test_scopes_that_are_no_sets_are_named),
        cmocka_unit_test(test_a_number_is_not_used_again_soon),
        cmocka_unit_test(test_a_process_knows_a_bounded_number_of_names),
        cmocka_unit_test(test_candidates_that_other_sets_have_are_not_offered),
        cmocka_unit_test(test_numbers_lie_in_their_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
