/* Creating the contexts of process sets without a service: members that are ahead, that disagree,
 * that are missing, and numbers that collide. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/algorithms/algorithm.h"
#include "tests/support/group.h"
#include "worker/base/clock.h"
#include "worker/communicator/process_set.h"
#include "worker/communicator/set_difference.h"
#include "worker/communicator/set_lists.h"
#include "worker/communicator/set_numbers.h"

enum { ALL_FREE = 0xff };

/* The set as this member creates it. */
struct set {
    const char *name;
    const uint32_t *members;
    uint32_t count;
    uint8_t free_candidates;
};

static uint32_t place_of(const struct set *set, uint32_t rank)
{
    uint32_t place = 0;
    while (place < set->count && set->members[place] != rank) {
        place++;
    }
    return place;
}

static muster_status create(struct group_member *member, const struct set *set,
                            uint32_t *ret_candidate, struct muster_context **ret_context,
                            uint32_t *ret_suspect)
{
    const struct muster_set_exchange exchange = {.name = set->name,
                                                 .creation = 1,
                                                 .members = set->members,
                                                 .count = set->count,
                                                 .rank = place_of(set, member->rank)};
    return muster_communicator_create_set(member->communicator, exchange, set->free_candidates,
                                          ret_candidate, ret_context, ret_suspect);
}

/* The members' global ranks, in the order of the set. */
static void expect_order(struct group_member *member, const struct set *set,
                         struct muster_context *context)
{
    uint32_t gathered[GROUP_SIZE_MAX];
    const struct muster_request request = {.collective = MUSTER_ALLGATHER,
                                           .in = &member->rank,
                                           .out = gathered,
                                           .count = 1,
                                           .type = MUSTER_UINT32,
                                           .deadline_ns = group_deadline()};
    if (muster_context_rank(context) != place_of(set, member->rank) ||
        muster_context_size(context) != set->count) {
        group_fail(member, "rank %u of %u", muster_context_rank(context),
                   muster_context_size(context));
    } else if (muster_context_run(context, &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    } else if (memcmp(gathered, set->members, set->count * sizeof *gathered) != 0) {
        group_fail(member, "the members are in another order");
    }
}

static void create_and_use(struct group_member *member, const struct set *set)
{
    struct muster_context *context = NULL;
    uint32_t candidate = 0;
    uint32_t suspect = 0;
    if (create(member, set, &candidate, &context, &suspect) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
        return;
    }
    expect_order(member, set, context);
    muster_context_destroy(context);
}

/* Orders and hosts ----------------------------------------------------------------------------- */

static void create_sets(struct group_member *member, void *argument)
{
    static const uint32_t lists[][5] = {{0, 1, 2, 3, 4}, {4, 0, 3, 1, 2}, {2, 1}, {1, 3}, {4}};
    static const uint32_t counts[] = {5, 5, 2, 2, 1};
    (void)argument;
    for (uint32_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "set%u", i);
        const struct set set = {name, lists[i], counts[i], ALL_FREE};
        if (place_of(&set, member->rank) < set.count) {
            create_and_use(member, &set);
        }
    }
}

static void test_members_are_in_the_order_of_the_list(void **state)
{
    (void)state;
    static const uint32_t hosts[] = {3, 2};
    static const enum group_transport transports[] = {GROUP_INPROC, GROUP_TCP, GROUP_MEMORY};
    for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++) {
        struct group group;
        group_start(&group, transports[i], 2, hosts, NULL);
        group_each(&group, create_sets, NULL);
        group_finish(&group);
    }
}

/* Members that are ahead ----------------------------------------------------------------------- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool open;
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void open_gate(bool open)
{
    (void)pthread_mutex_lock(&gate.mutex);
    gate.open = open;
    (void)pthread_cond_broadcast(&gate.changed);
    (void)pthread_mutex_unlock(&gate.mutex);
}

static void pass_gate(void)
{
    (void)pthread_mutex_lock(&gate.mutex);
    while (!gate.open) {
        (void)pthread_cond_wait(&gate.changed, &gate.mutex);
    }
    (void)pthread_mutex_unlock(&gate.mutex);
}

/* Rank 1 uses the set while rank 0, which only sends to it, has not created the next one. */
static void be_ahead(struct group_member *member, void *argument)
{
    static const uint32_t pair[] = {0, 1};
    static const uint32_t others[] = {1, 2};
    const struct set first = {"first", pair, 2, ALL_FREE};
    const struct set second = {"second", others, 2, ALL_FREE};
    (void)argument;
    if (member->rank == 2) {
        create_and_use(member, &second);
        open_gate(true);
    } else if (member->rank == 1) {
        create_and_use(member, &second); /* messages of rank 0 for the first set wait meanwhile */
        create_and_use(member, &first);
    } else {
        struct muster_context *context = NULL;
        uint32_t candidate = 0;
        uint32_t suspect = 0;
        if (create(member, &first, &candidate, &context, &suspect) != MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
            return;
        }
        expect_order(member, &first, context);
        muster_context_destroy(context);
        pass_gate();
    }
}

static void test_messages_of_members_that_are_ahead_wait(void **state)
{
    (void)state;
    struct group group;
    open_gate(false);
    group_start_flat(&group, GROUP_TCP, 3);
    group_each(&group, be_ahead, NULL);
    group_finish(&group);
}

/* Two threads of each member create two sets, in any order. */
struct creator {
    struct group_member *member;
    struct set set;
};

static void *create_in_thread(void *argument)
{
    struct creator *creator = argument;
    create_and_use(creator->member, &creator->set);
    return NULL;
}

static void create_from_two_threads(struct group_member *member, void *argument)
{
    static const uint32_t all[] = {0, 1, 2, 3};
    static const uint32_t reversed[] = {3, 2, 1, 0};
    struct creator creators[] = {{member, {"one", all, 4, ALL_FREE}},
                                 {member, {"two", reversed, 4, ALL_FREE}}};
    pthread_t thread;
    (void)argument;
    if (pthread_create(&thread, NULL, create_in_thread, &creators[member->rank % 2]) != 0) {
        group_fail(member, "no thread");
        return;
    }
    (void)create_in_thread(&creators[1 - member->rank % 2]);
    (void)pthread_join(thread, NULL);
}

static void test_threads_create_sets_in_any_order(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct group group;
        group_start_flat(&group, i % 2 == 0 ? GROUP_MEMORY : GROUP_TCP, 4);
        group_each(&group, create_from_two_threads, NULL);
        group_finish(&group);
    }
}

/* Disagreement --------------------------------------------------------------------------------- */

/* The lists of the members, all under one name. */
struct lists {
    uint32_t lists[4][4];
    uint32_t counts[4];
    bool late;     /* rank 1 comes when the others have created theirs, and much later */
    uint32_t fine; /* bits: ranks that may create theirs */
};

/* Whether the text says in what this member's list and that of another one differ. */
static bool names_difference(const struct lists *lists, uint32_t own, const char *text)
{
    const struct muster_named_list mine = {own, lists->lists[own], lists->counts[own]};
    for (uint32_t i = 0; i < 4; i++) {
        const struct muster_named_list other = {i, lists->lists[i], lists->counts[i]};
        char wanted[MUSTER_ERROR_MAX];
        if (i != own && other.count > 0 &&
            muster_set_difference(&mine, &other, wanted, sizeof wanted) &&
            strcmp(text, wanted) == 0) {
            return true;
        }
    }
    return false;
}

static void expect_disagreement(struct group_member *member, const struct lists *lists)
{
    const struct set set = {"same", lists->lists[member->rank], lists->counts[member->rank],
                            ALL_FREE};
    struct muster_context *context = NULL;
    uint32_t candidate = 0;
    uint32_t suspect = 0;
    muster_status status = create(member, &set, &candidate, &context, &suspect);
    if ((lists->fine >> member->rank & 1) != 0) {
        if (status != MUSTER_OK) {
            group_fail(member, "status %d: %s", status, muster_last_error());
        }
        muster_context_destroy(context);
        return;
    }
    if (status != MUSTER_INVALID || !names_difference(lists, member->rank, muster_last_error())) {
        group_fail(member, "status %d: %s", status, muster_last_error());
    }
}

static void use_global(struct group_member *member)
{
    for (int i = 0; i < 300; i++) { /* more than there are slots for signatures */
        const struct muster_request request = {.collective = MUSTER_BARRIER,
                                               .deadline_ns = group_deadline()};
        if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
        }
    }
}

static void disagree(struct group_member *member, void *argument)
{
    const struct lists *lists = argument;
    bool waits = lists->late && member->rank == 1;
    if (waits) {
        use_global(member);
    }
    if (lists->counts[member->rank] > 0) {
        expect_disagreement(member, lists);
    }
    if (lists->late && !waits) {
        use_global(member);
    }
    /* Members of a set that is fine serve the others' questions here. */
    const struct muster_request request = {.collective = MUSTER_BARRIER,
                                           .deadline_ns = group_deadline()};
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
}

static void test_members_with_different_lists_get_an_error(void **state)
{
    (void)state;
    static const struct lists cases[] = {
        {.lists = {{0, 1}, {0, 1, 2}, {0, 1, 2}}, .counts = {2, 3, 3}},
        {.lists = {{0, 1}, {1, 0}}, .counts = {2, 2}}, /* another order */
        {.lists = {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 3}}, .counts = {4, 4, 4, 3}},
        {.lists = {{0, 1}, {1, 2}, {0, 2}}, .counts = {2, 2, 2}},
        {.lists = {{0, 2}, {0, 1, 2}, {0, 2}}, .counts = {2, 3, 2}, .late = true, .fine = 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int transport = GROUP_INPROC; transport <= GROUP_SHM; transport++) {
            struct group group;
            struct lists lists = cases[i];
            int64_t start_ns = muster_clock_ns();
            group_start_flat(&group, (enum group_transport)transport, 4);
            group_each(&group, disagree, &lists);
            group_finish(&group);
            assert_true(muster_clock_ns() - start_ns < GROUP_DEADLINE_MS * INT64_C(1000000));
        }
    }
}

/* Members that get wrong questions and answers in place of those of set_lists.h: of a list that
 * nobody has, with data, of a wrong type, longer than there are ranks. Then they disagree as usual.
 */
enum { WRONG_MESSAGES = 5 };

static void send_wrong_messages(struct group_member *member, void *argument)
{
    static const struct {
        uint8_t type;
        uint32_t bytes;
    } wrong[WRONG_MESSAGES] = {
        {MUSTER_UINT8, 0}, {MUSTER_UINT8, 4}, {MUSTER_FLOAT32, 4}, {MUSTER_UINT32, 64}, {99, 3}};
    static const struct lists lists = {.lists = {{0, 1}, {1, 0}}, .counts = {2, 2}};
    static uint32_t data[16];
    struct {
        struct muster_transfer transfer;
        struct muster_call call;
    } sends[WRONG_MESSAGES];
    (void)argument;
    for (uint32_t i = 0; i < WRONG_MESSAGES && member->rank == 0; i++) {
        sends[i].call = (struct muster_call){.type = wrong[i].type, .root = 7, .count = 8};
        sends[i].transfer = (struct muster_transfer){
            .key = {.generation = member->group->generation,
                    .sequence = MUSTER_ANNOUNCED_SEQUENCE,
                    .context = (MUSTER_SET_NUMBERS - 1) | MUSTER_ANNOUNCED_CONTEXT,
                    .ordinal = 1000 + i},
            .call = &sends[i].call,
            .direction = MUSTER_SEND,
            .peer = 1,
            .data = data,
            .size_bytes = wrong[i].bytes,
            .element_size_bytes = 1};
        if (muster_fabric_post(member->fabric, &sends[i].transfer) != MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
        }
    }
    expect_disagreement(member, &lists);
    const struct muster_request barrier = {.collective = MUSTER_BARRIER,
                                           .deadline_ns = group_deadline()};
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &barrier, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
    muster_fabric_withdraw(member->fabric, member->group->generation,
                           (MUSTER_SET_NUMBERS - 1) | MUSTER_ANNOUNCED_CONTEXT,
                           MUSTER_ANNOUNCED_SEQUENCE);
}

static void test_wrong_questions_change_nothing(void **state)
{
    (void)state;
    for (int transport = GROUP_INPROC; transport <= GROUP_SHM; transport++) {
        struct group group;
        group_start_flat(&group, (enum group_transport)transport, 2);
        group_each(&group, send_wrong_messages, NULL);
        group_finish(&group);
    }
}

/* Disjoint sets may have the same name. */
static void share_a_name(struct group_member *member, void *argument)
{
    static const uint32_t lists[2][2] = {{0, 1}, {3, 2}};
    const struct set set = {"same", lists[member->rank / 2], 2, ALL_FREE};
    (void)argument;
    create_and_use(member, &set);
}

static void test_sets_without_a_common_member_may_have_one_name(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, 4);
    group_each(&group, share_a_name, NULL);
    group_finish(&group);
}

/* A missing member ----------------------------------------------------------------------------- */

static void wait_for_rank_2(struct group_member *member, void *argument)
{
    static const uint32_t members[] = {0, 1, 2};
    const struct set set = {"late", members, 3, ALL_FREE};
    struct muster_context *context = NULL;
    uint32_t candidate = 0;
    uint32_t suspect = 0;
    (void)argument;
    if (member->rank == 2) {
        return;
    }
    member->communicator->timeout_ms = 200;
    muster_status status = create(member, &set, &candidate, &context, &suspect);
    if (status != MUSTER_REJOIN || strstr(muster_last_error(), "the deadline passed") == NULL ||
        suspect > 2 || suspect == member->rank) {
        group_fail(member, "status %d, suspect %u: %s", status, suspect, muster_last_error());
    }
}

static void test_a_member_that_does_not_come_is_named_at_the_deadline(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_TCP, 3);
    group_each(&group, wait_for_rank_2, NULL);
    group_finish(&group);
}

/* Numbers -------------------------------------------------------------------------------------- */

/* What is free at each member, by rank, and the candidate that all must get; none: an error. */
struct free_candidates {
    uint8_t at[3];
    uint32_t expected;
};

static void agree_on_a_candidate(struct group_member *member, void *argument)
{
    static const uint32_t members[] = {2, 0, 1};
    const struct free_candidates *candidates = argument;
    const struct set set = {"set", members, 3, candidates->at[member->rank]};
    struct muster_context *context = NULL;
    uint32_t candidate = MUSTER_SET_CANDIDATES;
    uint32_t suspect = 0;
    muster_status status = create(member, &set, &candidate, &context, &suspect);
    bool agreed = candidates->expected < MUSTER_SET_CANDIDATES;
    if (status != (agreed ? MUSTER_OK : MUSTER_INVALID) || candidate != candidates->expected) {
        group_fail(member, "status %d, candidate %u: %s", status, candidate, muster_last_error());
    } else if (agreed) {
        expect_order(member, &set, context);
    } else if (strstr(muster_last_error(), "numbers belongs to another set") == NULL) {
        group_fail(member, "%s", muster_last_error());
    }
    muster_context_destroy(context);
}

static void test_a_set_gets_a_number_that_is_free_at_all_members(void **state)
{
    (void)state;
    struct free_candidates cases[] = {{{0xff, 0xff, 0xff}, 0},
                                      {{0xfe, 0xff, 0xff}, 1},
                                      {{0xfe, 0xfd, 0xfb}, 3},
                                      {{0x80, 0xff, 0xc0}, 7},
                                      {{0x0f, 0xf0, 0xff}, MUSTER_SET_CANDIDATES},
                                      {{0, 0xff, 0xff}, MUSTER_SET_CANDIDATES}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct group group;
        group_start_flat(&group, GROUP_INPROC, 3);
        group_each(&group, agree_on_a_candidate, &cases[i]);
        group_finish(&group);
    }
}

/* The first member's model counts, whatever the others have. */
static void bring_figures(struct group_member *member, void *argument)
{
    static const uint32_t members[] = {1, 0, 2};
    struct muster_set_exchange exchange = {.fabric = member->fabric,
                                           .generation = member->communicator->generation,
                                           .name = "figures",
                                           .creation = 1,
                                           .members = members,
                                           .count = 3,
                                           .deadline_ns = group_deadline()};
    struct muster_set_terms terms = {.free_candidates = ALL_FREE,
                                     .model = muster_cost_model_default,
                                     .autotunes = member->rank == 1};
    uint32_t suspect = 0;
    (void)argument;
    exchange.rank = member->rank < 2 ? 1 - member->rank : 2;
    terms.model.burst_bytes = 1000 + member->rank;
    if (muster_set_agree(&exchange, &terms, &suspect) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    } else if (terms.model.burst_bytes != 1001 || !terms.autotunes) {
        group_fail(member, "burst %g, autotunes %d", (double)terms.model.burst_bytes,
                   terms.autotunes);
    }
}

static void test_the_figures_of_the_first_member_count(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, 3);
    group_each(&group, bring_figures, NULL);
    group_finish(&group);
}

/* The algorithm that was named for all contexts is that of sets, too. */
static void expect_algorithm(struct group_member *member, void *argument)
{
    static const uint32_t members[] = {1, 0, 2};
    const struct set set = {"set", members, 3, ALL_FREE};
    static float buffer[1000]; /* only asked about */
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = buffer,
                                           .out = buffer,
                                           .count = 1000,
                                           .type = MUSTER_FLOAT32,
                                           .op = MUSTER_SUM};
    struct muster_context *context = NULL;
    char name[MUSTER_ALGORITHM_NAME_SIZE] = "";
    size_t algorithm = 0;
    uint32_t candidate = 0;
    uint32_t suspect = 0;
    (void)argument;
    if (create(member, &set, &candidate, &context, &suspect) != MUSTER_OK ||
        muster_context_algorithm(context, &request, &algorithm) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    } else {
        muster_algorithm_print(algorithm, name, sizeof name);
    }
    if (strcmp(name, "ring_whole") != 0) {
        group_fail(member, "algorithm %s", name);
    }
    muster_context_destroy(context);
}

static void test_sets_follow_the_named_algorithm(void **state)
{
    (void)state;
    static const uint32_t hosts[] = {3};
    struct group group;
    group_start(&group, GROUP_INPROC, 1, hosts, "allreduce=ring_whole");
    group_each(&group, expect_algorithm, NULL);
    group_finish(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_are_in_the_order_of_the_list),
        cmocka_unit_test(test_messages_of_members_that_are_ahead_wait),
        cmocka_unit_test(test_threads_create_sets_in_any_order),
        cmocka_unit_test(test_members_with_different_lists_get_an_error),
        cmocka_unit_test(test_wrong_questions_change_nothing),
        cmocka_unit_test(test_sets_without_a_common_member_may_have_one_name),
        cmocka_unit_test(test_a_member_that_does_not_come_is_named_at_the_deadline),
        cmocka_unit_test(test_a_set_gets_a_number_that_is_free_at_all_members),
        cmocka_unit_test(test_the_figures_of_the_first_member_count),
        cmocka_unit_test(test_sets_follow_the_named_algorithm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
