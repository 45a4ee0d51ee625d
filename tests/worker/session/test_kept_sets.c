/* Process sets from generation to generation, against a real musterd: members die and come back as
 * newcomers; two threads of each member use random sets beside the global scope, until one dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/schedules.h"
#include "tests/support/service.h"
#include "worker/session/session_parts.h"

enum { MEMBERS = 4 };

static void prepare_for_deaths(struct crew_member *member)
{
    member->options.min_size = 1;
}

/* Its links close without a goodbye. A call afterwards: a session that closes after a success has
 * finished the job. */
static bool die(struct crew_member *member)
{
    muster_fabric_kill(member->session->fabric);
    return muster_barrier(member->session, MUSTER_GLOBAL, NULL) == MUSTER_REJOIN;
}

/* Death and newcomers -------------------------------------------------------------------------- */

/* The members of a scope, by their indices in the crew, in order: as digits, "210". -1: an error.
 */
static int order_of(struct crew_member *member, muster_scope scope)
{
    int32_t own = (int32_t)member->index;
    int32_t all[CREW_MAX];
    int order = 0;
    if (muster_allgather(member->session, scope, &own, all, 1, MUSTER_INT32, NULL) != MUSTER_OK) {
        return -1;
    }
    for (uint32_t i = 0; i < muster_size(member->session, scope); i++) {
        order = 10 * order + all[i] + 1;
    }
    return order;
}

/* Commits until the membership is to change, and goes to the next generation. */
static bool move_on(struct crew_member *member)
{
    muster_status status = MUSTER_OK;
    while (status == MUSTER_OK) {
        status = muster_commit(member->session);
    }
    return status == MUSTER_REJOIN && muster_rejoin(member->session) == MUSTER_OK;
}

/* As one member is enough for a generation, the first one may be without those that are slow. */
static bool await_all(struct crew_member *member)
{
    while (muster_size(member->session, MUSTER_GLOBAL) < MEMBERS) {
        if (!move_on(member)) {
            return false;
        }
    }
    return true;
}

/* Everybody's rank, by the index in the crew. */
static bool share_ranks(struct crew_member *member, uint32_t *ranks)
{
    uint32_t own = member->index;
    uint32_t indices[CREW_MAX];
    if (muster_allgather(member->session, MUSTER_GLOBAL, &own, indices, 1, MUSTER_UINT32, NULL) !=
        MUSTER_OK) {
        return false;
    }
    for (uint32_t i = 0; i < muster_size(member->session, MUSTER_GLOBAL); i++) {
        ranks[indices[i]] = i;
    }
    return true;
}

/* All of them, the two with even and odd indices, and the last one alone. */
struct held_sets {
    muster_scope all, parity, last;
};

static void create_sets(struct crew_member *member, struct held_sets *sets)
{
    uint32_t ranks[MEMBERS];
    MEMBER_CHECK(member, share_ranks(member, ranks));
    const uint32_t all[] = {ranks[3], ranks[1], ranks[2], ranks[0]};
    const uint32_t parity[] = {ranks[2 + member->index % 2], ranks[member->index % 2]};
    MEMBER_OK(member, muster_process_set(member->session, "all", all, 4, &sets->all));
    MEMBER_OK(member, muster_process_set(member->session, "parity", parity, 2, &sets->parity));
    if (member->index == 3) {
        MEMBER_OK(member, muster_process_set(member->session, "last", &ranks[3], 1, &sets->last));
    }
    MEMBER_CHECK(member, order_of(member, sets->all) == 4231);
    MEMBER_CHECK(member, order_of(member, sets->parity) == (member->index % 2 == 0 ? 31 : 42));
}

/* Index 3 has died. */
static void check_survivors(struct crew_member *member, const struct held_sets *sets)
{
    muster_session *session = member->session;
    muster_scope found = MUSTER_NO_SCOPE;
    MEMBER_CHECK(member, muster_size(session, MUSTER_GLOBAL) == 3);
    MEMBER_CHECK(member, muster_size(session, sets->all) == 3);
    MEMBER_CHECK(member, order_of(member, sets->all) == 231);
    MEMBER_CHECK(member, order_of(member, sets->parity) == (member->index % 2 == 0 ? 31 : 2));
    MEMBER_OK(member, muster_process_set_find(session, "all", &found));
    MEMBER_CHECK(member, found == sets->all);
    MEMBER_CHECK(member, muster_process_set_find(session, "last", &found) == MUSTER_INVALID);
}

/* Index 3 has come back as a newcomer: it is in none of them. */
static void check_survivors_beside_a_newcomer(struct crew_member *member,
                                              const struct held_sets *sets)
{
    MEMBER_CHECK(member, muster_size(member->session, MUSTER_GLOBAL) == MEMBERS);
    MEMBER_CHECK(member, order_of(member, sets->all) == 231);
    MEMBER_CHECK(member, order_of(member, sets->parity) == (member->index % 2 == 0 ? 31 : 2));
}

static void die_and_come_back(struct crew_member *member, struct held_sets *sets)
{
    muster_scope found = MUSTER_NO_SCOPE;
    MEMBER_CHECK(member, die(member));
    muster_close(member->session);
    member->session = NULL;
    crew_barrier(member); /* the others have checked what was left */
    MEMBER_OK(member, muster_open(&member->options, &member->session));
    MEMBER_CHECK(member, muster_size(member->session, MUSTER_GLOBAL) == MEMBERS);
    MEMBER_CHECK(member, muster_process_set_find(member->session, "all", &found) == MUSTER_INVALID);
    MEMBER_CHECK(member, muster_barrier(member->session, sets->all, NULL) == MUSTER_INVALID);
}

static void lose_a_member_and_get_it_back(struct crew_member *member)
{
    struct held_sets sets = {MUSTER_NO_SCOPE, MUSTER_NO_SCOPE, MUSTER_NO_SCOPE};
    MEMBER_CHECK(member, await_all(member));
    create_sets(member, &sets);
    const struct held_sets before = sets;
    crew_barrier(member);
    if (member->index == 3) {
        die_and_come_back(member, &sets);
    } else {
        MEMBER_CHECK(member, move_on(member));
        check_survivors(member, &sets);
        crew_barrier(member);
        MEMBER_CHECK(member, move_on(member));
        check_survivors_beside_a_newcomer(member, &sets);
    }
    /* Those who still hold the sets, and the newcomer, create them. */
    create_sets(member, &sets);
    MEMBER_CHECK(member, member->index == 3 || sets.all == before.all);
    MEMBER_CHECK(member, member->index == 3 || sets.parity == before.parity);
    MEMBER_OK(member, muster_barrier(member->session, MUSTER_GLOBAL, NULL));
}

static void test_sets_have_the_survivors_until_all_create_them_again(void **state)
{
    (void)state;
    for (uint32_t hosts = 1; hosts <= 2; hosts++) {
        char job[16];
        (void)snprintf(job, sizeof job, "survive%u", hosts);
        struct crew crew = {.url = group_service.url,
                            .job = job,
                            .count = MEMBERS,
                            .hosts = hosts,
                            .prepare = prepare_for_deaths,
                            .function = lose_a_member_and_get_it_back};
        assert_int_equal(crew_run(&crew), 0);
    }
}

/* One member gives up a set that the others keep; then another one dies. */
static void disagree_about_holding(struct crew_member *member)
{
    muster_session *session = member->session;
    struct held_sets sets = {MUSTER_NO_SCOPE, MUSTER_NO_SCOPE, MUSTER_NO_SCOPE};
    muster_scope again = MUSTER_NO_SCOPE;
    muster_operation operation = 0;
    int32_t value = 1;
    int32_t sum = 0;
    MEMBER_CHECK(member, await_all(member));
    create_sets(member, &sets);
    if (member->index == 0) {
        MEMBER_OK(member, muster_process_set_free(session, sets.all));
    }
    crew_barrier(member);
    if (member->index == 3) {
        MEMBER_CHECK(member, die(member));
        return;
    }
    if (member->index == 2) { /* nobody else will */
        MEMBER_OK(member, muster_allreduce_start(session, sets.all, &value, &sum, 1, MUSTER_INT32,
                                                 MUSTER_SUM, NULL, &operation));
    }
    MEMBER_CHECK(member, move_on(member));
    MEMBER_CHECK(member, member->index != 2 || muster_wait(operation) == MUSTER_REJOIN);
    MEMBER_CHECK(member, order_of(member, sets.parity) == (member->index % 2 == 0 ? 31 : 2));
    MEMBER_CHECK(member, muster_barrier(session, sets.all, NULL) == MUSTER_INVALID);
    MEMBER_CHECK(member, muster_size(session, sets.all) == 0);
    MEMBER_CHECK(member, muster_process_set_find(session, "all", &again) == MUSTER_INVALID);
    if (member->index != 0) {
        MEMBER_CHECK(member, strstr(muster_last_error(), "create it again") != NULL);
    }
    uint32_t ranks[MEMBERS];
    MEMBER_CHECK(member, share_ranks(member, ranks));
    MEMBER_OK(member, muster_process_set(session, "all", ranks, 3, &again));
    MEMBER_CHECK(member, member->index == 0 || again == sets.all);
    MEMBER_CHECK(member, order_of(member, again) == 123);
}

static void test_a_set_that_not_all_survivors_hold_ends(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "disagree",
                        .count = MEMBERS,
                        .hosts = 2,
                        .prepare = prepare_for_deaths,
                        .function = disagree_about_holding};
    assert_int_equal(crew_run(&crew), 0);
}

/* A member dies while the others wait for it to create a set. */
static void die_before_creating(struct crew_member *member)
{
    static const uint32_t all[] = {0, 1, 2, 3};
    muster_scope scope = MUSTER_NO_SCOPE;
    MEMBER_CHECK(member, await_all(member));
    crew_barrier(member);
    if (muster_rank(member->session, MUSTER_GLOBAL) == 2) {
        MEMBER_CHECK(member, die(member));
        return;
    }
    MEMBER_CHECK(member,
                 muster_process_set(member->session, "all", all, 4, &scope) == MUSTER_REJOIN);
    MEMBER_CHECK(member, strstr(muster_last_error(), "process set all") != NULL);
    MEMBER_OK(member, muster_rejoin(member->session));
    MEMBER_CHECK(member, muster_process_set_find(member->session, "all", &scope) == MUSTER_INVALID);
    MEMBER_OK(member, muster_process_set(member->session, "all", all, 3, &scope));
    MEMBER_OK(member, muster_barrier(member->session, scope, NULL));
}

static void test_a_death_ends_a_creation(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "die_first",
                        .count = MEMBERS,
                        .hosts = 2,
                        .prepare = prepare_for_deaths,
                        .function = die_before_creating};
    assert_int_equal(crew_run(&crew), 0);
}

/* Random sets and collectives ------------------------------------------------------------------ */

enum { THREADS = 2, SETS = 4, STEPS = 120, ROUNDS = 6, COUNT_MAX = 3000 };

static uint64_t seed;

/* A set of this generation as all members know it. */
struct plain_set {
    char name[16];
    uint32_t members[MEMBERS]; /* ranks */
    uint32_t count;
    uint32_t rank;  /* of this member; count: it is not in it */
    bool is_global; /* not created */
    muster_scope scope;
};

/* One of the threads of a member, with sets of its own. */
struct set_user {
    struct crew_member *member;
    uint32_t thread; /* its number */
    struct plain_set sets[SETS];
    uint64_t random;  /* the same on all members */
    uint32_t dies_at; /* step */
    bool over;        /* its generation */
    char why[256];    /* the first error then */
    char failure[256];
};

static struct set_user set_users[MEMBERS][THREADS];

static void user_failed(struct set_user *user, const char *what, muster_status status)
{
    if (user->failure[0] == '\0') {
        (void)snprintf(user->failure, sizeof user->failure, "%s: status %d: %.180s", what, status,
                       muster_last_error());
    }
}

/* Whether it succeeded. */
static bool passes(struct set_user *user, const char *what, muster_status status)
{
    if (status == MUSTER_REJOIN || status == MUSTER_ENDED) {
        user->over = true;
        (void)snprintf(user->why, sizeof user->why, "%s: %.200s", what, muster_last_error());
    } else if (status != MUSTER_OK) {
        user_failed(user, what, status);
    }
    return status == MUSTER_OK;
}

/* A random part of the members in a random order; the same on all members. */
static void draw_members(struct set_user *user, struct plain_set *set)
{
    uint32_t own = muster_rank(user->member->session, MUSTER_GLOBAL);
    uint32_t size = muster_size(user->member->session, MUSTER_GLOBAL);
    uint32_t ranks[MEMBERS];
    for (uint32_t i = 0; i < size; i++) {
        uint32_t at = test_random_below(&user->random, i + 1);
        ranks[i] = ranks[at];
        ranks[at] = i;
    }
    set->count = 1 + test_random_below(&user->random, size);
    memcpy(set->members, ranks, sizeof ranks);
    set->rank = 0;
    while (set->rank < set->count && set->members[set->rank] != own) {
        set->rank++;
    }
}

static void create_random(struct set_user *user, uint32_t number, uint32_t step)
{
    struct plain_set *set = &user->sets[number];
    draw_members(user, set);
    (void)snprintf(set->name, sizeof set->name, "t%u.%u.%u", user->thread, number, step);
    if (set->rank < set->count) {
        (void)passes(user, "create",
                     muster_process_set(user->member->session, set->name, set->members, set->count,
                                        &set->scope));
    }
}

static int64_t value_of(uint32_t rank, uint32_t i)
{
    return (int64_t)(rank + 1) * 1000000 + i;
}

static bool run_allreduce(struct set_user *user, const struct plain_set *set, uint32_t count,
                          bool starts)
{
    static __thread int64_t in[COUNT_MAX], out[COUNT_MAX];
    muster_session *session = user->member->session;
    muster_operation operation = 0;
    for (uint32_t i = 0; i < count; i++) {
        in[i] = value_of(set->members[set->rank], i);
    }
    if (!starts) {
        if (!passes(user, "allreduce",
                    muster_allreduce(session, set->scope, in, out, count, MUSTER_INT64, MUSTER_SUM,
                                     NULL))) {
            return false;
        }
    } else if (!passes(user, "start",
                       muster_allreduce_start(session, set->scope, in, out, count, MUSTER_INT64,
                                              MUSTER_SUM, NULL, &operation)) ||
               !passes(user, "wait", muster_wait(operation))) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        int64_t sum = 0;
        for (uint32_t rank = 0; rank < set->count; rank++) {
            sum += value_of(set->members[rank], i);
        }
        if (out[i] != sum) {
            user_failed(user, "a wrong sum", MUSTER_OK);
            return false;
        }
    }
    return true;
}

static bool run_allgather(struct set_user *user, const struct plain_set *set, uint32_t count)
{
    static __thread int64_t in[COUNT_MAX / MEMBERS], out[COUNT_MAX];
    uint32_t block = count / MEMBERS;
    for (uint32_t i = 0; i < block; i++) {
        in[i] = value_of(set->members[set->rank], i);
    }
    if (!passes(user, "allgather",
                muster_allgather(user->member->session, set->scope, in, out, block, MUSTER_INT64,
                                 NULL))) {
        return false;
    }
    for (uint32_t i = 0; i < block * set->count; i++) {
        if (out[i] != value_of(set->members[i / block], i % block)) {
            user_failed(user, "a wrong block", MUSTER_OK);
            return false;
        }
    }
    return true;
}

static bool run_broadcast(struct set_user *user, const struct plain_set *set, uint32_t count,
                          uint32_t root)
{
    static __thread int64_t data[COUNT_MAX];
    for (uint32_t i = 0; i < count; i++) {
        data[i] = value_of(set->members[set->rank], i);
    }
    if (!passes(user, "broadcast",
                muster_broadcast(user->member->session, set->scope, data, count, MUSTER_INT64, root,
                                 NULL))) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (data[i] != value_of(set->members[root], i)) {
            user_failed(user, "another root's data", MUSTER_OK);
            return false;
        }
    }
    return true;
}

/* All members draw the same; those that are not in the set go on. */
static void step_of(struct set_user *user, uint32_t step)
{
    uint32_t number = test_random_below(&user->random, SETS);
    uint32_t what = test_random_below(&user->random, 8);
    uint32_t count = 1 + test_random_below(&user->random, what < 4 ? 50 : COUNT_MAX);
    uint32_t root = test_random_below(&user->random, 1000);
    struct plain_set *set = &user->sets[number];
    if (what == 0 && !set->is_global) {
        if (set->rank < set->count) {
            (void)passes(user, "free", muster_process_set_free(user->member->session, set->scope));
        }
        create_random(user, number, step);
    } else if (set->rank < set->count && what < 4) {
        (void)run_allreduce(user, set, count, what % 2 == 1);
    } else if (set->rank < set->count && what < 6) {
        (void)run_allgather(user, set, count);
    } else if (set->rank < set->count) {
        (void)run_broadcast(user, set, count, root % set->count);
    }
}

static void *use_random_sets(void *argument)
{
    struct set_user *user = argument;
    for (uint32_t step = 0; step < STEPS && !user->over && user->failure[0] == '\0'; step++) {
        if (step == user->dies_at) {
            muster_fabric_kill(user->member->session->fabric);
        }
        step_of(user, step);
    }
    return NULL;
}

static void begin_user(struct crew_member *member, uint32_t thread, uint64_t random)
{
    struct set_user *user = &set_users[member->index][thread];
    *user = (struct set_user){
        .member = member, .thread = thread, .random = random, .dies_at = UINT32_MAX};
    for (uint32_t i = 0; i < SETS; i++) {
        struct plain_set *set = &user->sets[i];
        if (i == 0 && thread == 0) {
            set->count = muster_size(member->session, MUSTER_GLOBAL);
            set->rank = muster_rank(member->session, MUSTER_GLOBAL);
            for (uint32_t rank = 0; rank < set->count; rank++) {
                set->members[rank] = rank;
            }
            set->is_global = true;
            set->scope = MUSTER_GLOBAL;
        } else if (!user->over) {
            create_random(user, i, STEPS + i);
        }
    }
}

/* Both threads in one generation; the last member dies if it is to. */
static void use_a_generation(struct crew_member *member, uint64_t random, bool dies)
{
    struct set_user *users = set_users[member->index];
    pthread_t thread;
    for (uint32_t i = 0; i < THREADS; i++) {
        begin_user(member, i, random + i);
    }
    if (dies) {
        users[random % THREADS].dies_at = (uint32_t)(random % STEPS);
    }
    MEMBER_CHECK(member, pthread_create(&thread, NULL, use_random_sets, &users[1]) == 0);
    (void)use_random_sets(&users[0]);
    MEMBER_CHECK(member, pthread_join(thread, NULL) == 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        if (users[i].failure[0] != '\0') {
            crew_fail(member, __FILE__, __LINE__, users[i].failure);
        }
    }
}

static int compare_numbers(const void *left, const void *right)
{
    const struct muster_process_set *a = left;
    const struct muster_process_set *b = right;
    return (a->number > b->number) - (a->number < b->number);
}

/* Which of its sets a survivor still holds depends on when the other died: all survivors have to
 * agree about that, and the sets have to work. */
static void use_kept_sets(struct crew_member *member)
{
    const struct muster_process_sets *table = &member->session->sets.table;
    struct muster_process_set sets[64];
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->slot_count; i++) {
        if (table->slots[i].stage == MUSTER_SET_HELD) {
            MEMBER_CHECK(member, count < 64);
            sets[count++] = table->slots[i];
        }
    }
    qsort(sets, count, sizeof *sets, compare_numbers);
    for (uint32_t i = 0; i < count; i++) {
        muster_scope scope = MUSTER_NO_SCOPE;
        uint32_t gathered[MEMBERS];
        uint32_t own = muster_rank(member->session, MUSTER_GLOBAL);
        MEMBER_OK(member, muster_process_set_find(member->session, sets[i].name, &scope));
        MEMBER_OK(member,
                  muster_allgather(member->session, scope, &own, gathered, 1, MUSTER_UINT32, NULL));
        MEMBER_CHECK(member, muster_size(member->session, scope) == sets[i].count);
        MEMBER_CHECK(member, memcmp(gathered, sets[i].members, sets[i].count * sizeof own) == 0);
    }
}

static void use_two_generations(struct crew_member *member)
{
    bool dies = member->index == MEMBERS - 1;
    MEMBER_CHECK(member, await_all(member));
    use_a_generation(member, seed, dies);
    if (dies || member->failure[0] != '\0') {
        MEMBER_CHECK(member, !dies || die(member));
        return;
    }
    bool over = set_users[member->index][0].over || set_users[member->index][1].over;
    MEMBER_CHECK(member, over ? muster_rejoin(member->session) == MUSTER_OK : move_on(member));
    use_kept_sets(member);
    use_a_generation(member, seed + 77, false);
    for (uint32_t i = 0; i < THREADS; i++) {
        if (set_users[member->index][i].over) {
            crew_fail(member, __FILE__, __LINE__, set_users[member->index][i].why);
            return;
        }
    }
    MEMBER_OK(member, muster_barrier(member->session, MUSTER_GLOBAL, NULL));
}

static void test_random_sets_and_collectives_do_what_a_plain_model_does(void **state)
{
    (void)state;
    const char *rounds = getenv("MUSTER_RUNS");
    seed = test_seed();
    for (int round = 0; round < (rounds != NULL ? atoi(rounds) : ROUNDS); round++, seed++) {
        char job[32];
        (void)snprintf(job, sizeof job, "random%d", round);
        struct crew crew = {.url = group_service.url,
                            .job = job,
                            .count = MEMBERS,
                            .hosts = 1 + (uint32_t)round % 3,
                            .prepare = prepare_for_deaths,
                            .function = use_two_generations};
        assert_int_equal(crew_run(&crew), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets_have_the_survivors_until_all_create_them_again),
        cmocka_unit_test(test_a_set_that_not_all_survivors_hold_ends),
        cmocka_unit_test(test_a_death_ends_a_creation),
        cmocka_unit_test(test_random_sets_and_collectives_do_what_a_plain_model_does),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
