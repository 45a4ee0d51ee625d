/* A server that keeps its jobs in memory is killed and started anew while newcomers arrive: it
 * knows nothing, and yet no two groups of members compute with equal numbers of generations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"

enum { MEMBERS = 4, FIRST_HALF = 2, ALL = (1 << MEMBERS) - 1, RESTARTS = 3, SEEN_MAX = 64 };

static const char *const in_memory[] = {"--store=memory", NULL};
static struct test_service service;

/* What members computed, in all of a crew: the numbers of generations with the members in them. */
struct seen {
    pthread_mutex_t mutex;
    uint32_t count;
    struct {
        uint64_t generation;
        int32_t members;
    } list[SEEN_MAX];
};

/* False: others have computed with the same number. */
static bool note(struct seen *seen, uint64_t generation, int32_t members)
{
    bool same = true;
    uint32_t at = 0;
    (void)pthread_mutex_lock(&seen->mutex);
    while (at < seen->count && seen->list[at].generation != generation) {
        at++;
    }
    if (at < seen->count) {
        same = seen->list[at].members == members;
        if (!same) {
            print_message("generation %llx has members %x, and members %x\n",
                          (unsigned long long)generation, (unsigned)seen->list[at].members,
                          (unsigned)members);
        }
    } else if (at < SEEN_MAX) {
        seen->list[seen->count].generation = generation;
        seen->list[seen->count++].members = members;
    }
    (void)pthread_mutex_unlock(&seen->mutex);
    return same && at < SEEN_MAX;
}

/* Computes until all members do so together, in a generation after this one. */
static void compute_until_all(struct crew_member *member, uint64_t after)
{
    const int32_t mine = 1 << member->index;
    int32_t members = 0;
    uint64_t before = 0;
    while (members != ALL || before <= after) {
        uint64_t generation = muster_generation(member->session);
        muster_status status = muster_allreduce(member->session, MUSTER_GLOBAL, &mine, &members, 1,
                                                MUSTER_INT32, MUSTER_SUM, NULL);
        if (status == MUSTER_OK) {
            MEMBER_CHECK(member, generation >= before);
            MEMBER_CHECK(member, note(member->crew->user, generation, members));
            before = generation;
        } else {
            members = 0;
        }
        if (status == MUSTER_OK && (members != ALL || before <= after)) {
            status = muster_commit(member->session);
        }
        if (status == MUSTER_REJOIN) {
            status = muster_rejoin(member->session);
        }
        MEMBER_CHECK(member, status == MUSTER_OK);
    }
}

static void restart_service(struct crew_member *member)
{
    test_service_kill(&service);
    MEMBER_CHECK(member, test_service_restart(&service, in_memory));
}

/* The second half is new at the first server that is started anew, where the first half is unknown.
 */
static void go_on_without_the_store(struct crew_member *member)
{
    if (member->index >= FIRST_HALF) {
        muster_close(member->session);
        member->session = NULL;
    } else {
        int32_t members = 0;
        const int32_t mine = 1 << member->index;
        MEMBER_OK(member, muster_allreduce(member->session, MUSTER_GLOBAL, &mine, &members, 1,
                                           MUSTER_INT32, MUSTER_SUM, NULL));
        MEMBER_CHECK(member, note(member->crew->user, muster_generation(member->session), members));
    }
    crew_barrier(member);
    if (member->index == FIRST_HALF) {
        restart_service(member);
    }
    if (member->index >= FIRST_HALF) {
        member->options.job = "halves";
        MEMBER_OK(member, muster_open(&member->options, &member->session));
    }
    compute_until_all(member, 0);
    for (int i = 1; i < RESTARTS; i++) {
        uint64_t generation = muster_generation(member->session);
        crew_barrier(member);
        if (member->index == 0) {
            restart_service(member);
        }
        compute_until_all(member, generation);
    }
    crew_barrier(member);
}

static void begin_apart(struct crew_member *member)
{
    member->options.min_size = FIRST_HALF;
    member->options.target_size = 0;
    member->options.job = member->index < FIRST_HALF ? "halves" : "elsewhere";
}

static void no_two_groups_compute_with_equal_numbers(void **state)
{
    (void)state;
    static struct seen seen = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    struct crew crew = {.url = service.url,
                        .job = "halves",
                        .count = MEMBERS,
                        .hosts = 2,
                        .function = go_on_without_the_store,
                        .prepare = begin_apart,
                        .user = &seen};
    assert_int_equal(crew_run(&crew), 0);
    assert_true(seen.count > RESTARTS);
    for (uint32_t i = 0; i < seen.count; i++) {
        print_message("epoch %u, generation %u: members %x\n",
                      (uint32_t)(seen.list[i].generation >> 32), (uint32_t)seen.list[i].generation,
                      (unsigned)seen.list[i].members);
        assert_true(seen.list[i].generation < UINT64_C(1) << 63);
    }
}

static int start_service(void **state)
{
    (void)state;
    return test_service_start(&service, in_memory) ? 0 : -1;
}

static int stop_service(void **state)
{
    (void)state;
    return test_service_stop(&service) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_groups_compute_with_equal_numbers),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, start_service, stop_service);
}
