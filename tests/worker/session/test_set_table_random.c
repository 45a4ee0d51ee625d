/* Random uses of the table of process sets, beside a plain model of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/support/schedules.h"
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

/* As the session does at the end of a generation. */
static void take_contexts(struct muster_process_sets *sets)
{
    for (uint32_t i = 0; i < sets->slot_count; i++) {
        sets->slots[i].context = NULL;
    }
}

enum { NAMES = 6, STEPS = 4000, ROUNDS = 50 };

/* What a name is, kept plainly. */
struct plain_set {
    enum muster_set_stage stage;
    bool listed;
    uint32_t list_mask, mask; /* what it stands for; who is in it */
    muster_scope scope;
};

static uint64_t seed;

/* Any set with rank 0, ascending. */
static uint32_t random_members(uint32_t *members)
{
    uint32_t mask = 1 | test_random_below(&seed, 1 << MEMBERS_MAX);
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < MEMBERS_MAX; rank++) {
        if ((mask >> rank & 1) != 0) {
            members[count++] = rank;
        }
    }
    return mask;
}

static void use_name(struct muster_process_sets *sets, struct plain_set *plain, const char *name)
{
    uint32_t members[MEMBERS_MAX];
    uint32_t mask = random_members(members);
    struct muster_set_creation creation;
    struct muster_context *context = NULL;
    muster_scope scope = MUSTER_NO_SCOPE;
    const struct muster_set_list list = list_of(name, members, (size_t)__builtin_popcount(mask), 0);
    bool may = !plain->listed || (plain->stage != MUSTER_SET_HELD && plain->list_mask == mask);
    assert_int_equal(muster_process_sets_begin(sets, &list, &creation),
                     may ? MUSTER_OK : MUSTER_INVALID);
    if (!may) {
        return;
    }
    if (test_random_below(&seed, 4) == 0) {
        muster_process_sets_abandon(sets, &creation);
        return;
    }
    assert_int_equal(
        muster_process_sets_end(sets, &list, &creation, 0, context_number(1), &context, &scope),
        MUSTER_OK);
    bool keeps_number = plain->stage == MUSTER_SET_HELD || plain->stage == MUSTER_SET_LOST;
    assert_true(!keeps_number || plain->scope == scope);
    *plain = (struct plain_set){
        .stage = MUSTER_SET_HELD, .listed = true, .list_mask = mask, .mask = mask, .scope = scope};
}

static void free_name(struct muster_process_sets *sets, struct plain_set *plain)
{
    struct muster_context *context = NULL;
    bool exists = plain->stage == MUSTER_SET_HELD || plain->stage == MUSTER_SET_LOST;
    if (plain->stage == MUSTER_SET_NONE) {
        return; /* its number may be another's by now */
    }
    assert_int_equal(muster_process_sets_free(sets, plain->scope, &context),
                     exists ? MUSTER_OK : MUSTER_INVALID);
    plain->stage = MUSTER_SET_NAMED;
}

/* Some members are replaced by newcomers under the same ranks; rarely this process. */
static void begin_generation(struct muster_process_sets *sets, struct plain_set *plain)
{
    uint32_t new_ranks[MEMBERS_MAX];
    uint32_t survivors = 0;
    for (uint32_t rank = 0; rank < MEMBERS_MAX; rank++) {
        bool stays = test_random_below(&seed, rank == 0 ? 10 : 3) != 0;
        new_ranks[rank] = stays ? rank : MUSTER_SET_GONE;
        survivors |= stays ? 1U << rank : 0;
    }
    take_contexts(sets);
    muster_process_sets_move(sets, new_ranks, 0);
    for (uint32_t i = 0; i < NAMES; i++) {
        plain[i].listed = false;
        if (plain[i].stage == MUSTER_SET_NAMED) {
            plain[i].stage = MUSTER_SET_NONE;
        } else if (plain[i].stage == MUSTER_SET_HELD) {
            plain[i].mask &= survivors;
            plain[i].stage = (survivors & 1) != 0 ? MUSTER_SET_HELD : MUSTER_SET_LOST;
        }
    }
}

static void expect_plain(struct muster_process_sets *sets, const struct plain_set *plain,
                         const char *name)
{
    struct muster_process_set *set = NULL;
    muster_scope scope = MUSTER_NO_SCOPE;
    bool is_held = plain->stage == MUSTER_SET_HELD;
    assert_int_equal(muster_process_sets_find(sets, name, &scope),
                     is_held ? MUSTER_OK : MUSTER_INVALID);
    if (is_held) {
        assert_int_equal(scope, plain->scope);
        assert_int_equal(muster_process_sets_get(sets, scope, &set), MUSTER_OK);
        assert_int_equal(set->count, __builtin_popcount(plain->mask));
        assert_string_equal(set->name, name);
        assert_int_equal(set->members[set->rank], 0);
    }
}

static void test_random_uses_do_what_a_plain_model_does(void **state)
{
    static const char *const names[NAMES] = {"a", "b", "c", "d", "e", "f"};
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct muster_process_sets sets = {0};
        struct plain_set plain[NAMES] = {{0}};
        for (int step = 0; step < STEPS; step++) {
            uint32_t name = test_random_below(&seed, NAMES);
            switch (test_random_below(&seed, 12)) {
            case 0:
                begin_generation(&sets, plain);
                break;
            case 1:
            case 2:
            case 3:
                free_name(&sets, &plain[name]);
                break;
            default:
                use_name(&sets, &plain[name], names[name]);
            }
            for (uint32_t i = 0; i < NAMES; i++) {
                expect_plain(&sets, &plain[i], names[i]);
            }
        }
        muster_process_sets_finish(&sets);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_uses_do_what_a_plain_model_does),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
