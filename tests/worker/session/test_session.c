/* Sessions against a real musterd: ranks, scopes, collectives and their errors. Members are threads
 * with host names of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"
#include "worker/session/session_parts.h"

enum { COUNT = 1000 };

/* Ranks are contiguous on a host; the cross scope has the members with equal local ranks. */
static void check_ranks(struct crew_member *member)
{
    muster_session *session = member->session;
    uint32_t size = muster_size(session, MUSTER_GLOBAL);
    int32_t mine[3] = {(int32_t)muster_rank(session, MUSTER_GLOBAL),
                       (int32_t)muster_rank(session, MUSTER_LOCAL),
                       (int32_t)(member->options.host[5])}; /* "host-a" */
    int32_t all[CREW_MAX * 3];
    MEMBER_CHECK(member, size == member->crew->count);
    MEMBER_OK(member, muster_allgather(session, MUSTER_GLOBAL, mine, all, 3, MUSTER_INT32, NULL));
    uint32_t local = 0;
    uint32_t cross = 0;
    for (uint32_t i = 0; i < size; i++) {
        const int32_t *other = &all[(size_t)i * 3];
        MEMBER_CHECK(member, other[0] == (int32_t)i);
        local += other[2] == mine[2];
        cross += other[1] == mine[1];
        MEMBER_CHECK(member, i == 0 || other[2] == other[-1] || other[1] == 0);
        MEMBER_CHECK(member, i == 0 || other[2] != other[-1] || other[1] == other[-2] + 1);
    }
    MEMBER_CHECK(member, muster_size(session, MUSTER_LOCAL) == local);
    MEMBER_CHECK(member, muster_size(session, MUSTER_CROSS) == cross);
}

static void check_allreduce(struct crew_member *member, muster_scope scope)
{
    int64_t n = muster_size(member->session, scope);
    int64_t rank = muster_rank(member->session, scope);
    int64_t in[COUNT];
    int64_t out[COUNT];
    double average = (double)rank;
    for (int64_t i = 0; i < COUNT; i++) {
        in[i] = (rank + 1) * 1000 + i;
    }
    MEMBER_OK(member, muster_allreduce(member->session, scope, in, out, COUNT, MUSTER_INT64,
                                       MUSTER_SUM, NULL));
    for (int64_t i = 0; i < COUNT; i++) {
        MEMBER_CHECK(member, out[i] == n * (n + 1) / 2 * 1000 + n * i);
    }
    MEMBER_OK(member, muster_allreduce(member->session, scope, &average, &average, 1,
                                       MUSTER_FLOAT64, MUSTER_AVERAGE, NULL));
    MEMBER_CHECK(member, average == (double)(n - 1) / 2);
}

static void check_scatter_and_gather(struct crew_member *member, muster_scope scope)
{
    uint32_t n = muster_size(member->session, scope);
    uint32_t rank = muster_rank(member->session, scope);
    int32_t in[CREW_MAX * 7];
    int32_t block[7];
    for (uint32_t i = 0; i < n * 7; i++) {
        in[i] = (int32_t)(i * 100 + rank);
    }
    MEMBER_OK(member, muster_reduce_scatter(member->session, scope, in, block, 7, MUSTER_INT32,
                                            MUSTER_MAX, NULL));
    for (uint32_t i = 0; i < 7; i++) {
        MEMBER_CHECK(member, block[i] == (int32_t)((rank * 7 + i) * 100 + n - 1));
    }
    MEMBER_OK(member, muster_allgather(member->session, scope, block, in, 7, MUSTER_INT32, NULL));
    for (uint32_t i = 0; i < n * 7; i++) {
        MEMBER_CHECK(member, in[i] == (int32_t)(i * 100 + n - 1));
    }
}

static void subtract_from_nine(void *out, const void *left, const void *right, size_t count,
                               muster_type type, void *user_data)
{
    (void)type;
    for (size_t i = 0; i < count; i++) { /* nine minus the distances of both from nine */
        int16_t nine = *(const int16_t *)user_data;
        int l = ((const int16_t *)left)[i];
        int r = ((const int16_t *)right)[i];
        ((int16_t *)out)[i] = (int16_t)(nine - (nine - l) - (nine - r));
    }
}

/* Factors, a user's operation, and collectives on several buffers, by the public functions. */
static void check_options_and_buffers(struct crew_member *member, muster_scope scope)
{
    int n = (int)muster_size(member->session, scope);
    int16_t nine = 9;
    int16_t one[3] = {8, 8, 8};
    int16_t two[3] = {1, 2, 3};
    muster_call_options options;
    muster_call_options_init(&options);
    options.prescale = 2;
    options.postscale = -1;
    options.user_function = subtract_from_nine;
    options.user_data = &nine;
    MEMBER_OK(member, muster_allreduce(member->session, scope, one, one, 3, MUSTER_INT16,
                                       MUSTER_USER, &options));
    MEMBER_CHECK(member, one[0] == -(16 * n - 9 * (n - 1)) && one[2] == one[0]);
    int16_t out[2][3];
    const void *ins[] = {two, two};
    void *outs[] = {out[0], out[1]};
    MEMBER_OK(member, muster_allreduce_buffers(member->session, scope, ins, outs, 2, 3,
                                               MUSTER_INT16, MUSTER_SUM, NULL));
    MEMBER_CHECK(member, out[0][2] == 6 * n && out[1][0] == 2 * n);
    int16_t wide[5][2] = {{0}}; /* no scope has more members */
    int16_t block[2][2];
    for (int i = 0; i < n; i++) {
        wide[i][0] = (int16_t)i;
        wide[i][1] = (int16_t)(10 * i);
    }
    const void *wides[] = {wide, wide};
    void *blocks[] = {block[0], block[1]};
    MEMBER_OK(member, muster_reduce_scatter_buffers(member->session, scope, wides, blocks, 2, 2,
                                                    MUSTER_INT16, MUSTER_SUM, NULL));
    int rank = (int)muster_rank(member->session, scope);
    MEMBER_CHECK(member, block[0][0] == 2 * n * rank && block[1][1] == 20 * n * rank);
    MEMBER_CHECK(member,
                 muster_reduce_scatter_buffers(member->session, scope, wides, NULL, 2, 2,
                                               MUSTER_INT16, MUSTER_SUM, NULL) == MUSTER_INVALID);
    MEMBER_OK(member,
              muster_broadcast_buffers(member->session, scope, outs, 2, 1, MUSTER_INT16, 0, NULL));
    MEMBER_CHECK(member, out[1][0] == 2 * n && out[1][1] == 4 * n);
    MEMBER_CHECK(member,
                 muster_allreduce_buffers(member->session, scope, ins, outs, 65, 3, MUSTER_INT16,
                                          MUSTER_SUM, NULL) == MUSTER_INVALID);
    MEMBER_CHECK(member, muster_broadcast_buffers(member->session, scope, NULL, 2, 3, MUSTER_INT16,
                                                  0, NULL) == MUSTER_INVALID);
}

static void check_broadcast(struct crew_member *member, muster_scope scope)
{
    uint32_t n = muster_size(member->session, scope);
    uint32_t rank = muster_rank(member->session, scope);
    for (uint32_t root = 0; root < n; root++) {
        uint8_t data[33];
        memset(data, rank == root ? (int)(100 + root) : 0, sizeof data);
        MEMBER_OK(member, muster_broadcast(member->session, scope, data, sizeof data, MUSTER_UINT8,
                                           root, NULL));
        MEMBER_CHECK(member, data[0] == 100 + root && data[32] == 100 + root);
    }
    MEMBER_OK(member, muster_barrier(member->session, scope, NULL));
}

static void do_everything(struct crew_member *member)
{
    uint64_t generation = muster_generation(member->session);
    MEMBER_CHECK(member, (uint32_t)generation == 1); /* it counts from 1 */
    check_ranks(member);
    for (int scope = MUSTER_GLOBAL; scope <= MUSTER_CROSS; scope++) {
        check_allreduce(member, (muster_scope)scope);
        check_scatter_and_gather(member, (muster_scope)scope);
        check_broadcast(member, (muster_scope)scope);
        check_options_and_buffers(member, (muster_scope)scope);
    }
    MEMBER_CHECK(member, muster_generation(member->session) == generation);
}

static void all_collectives_work_in_all_scopes(void **state)
{
    (void)state;
    struct crew crew = {
        .url = group_service.url, .job = "even", .count = 4, .hosts = 2, .function = do_everything};
    assert_int_equal(crew_run(&crew), 0);
}

static void hosts_may_have_different_numbers_of_members(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "ragged",
                        .count = 5,
                        .hosts = 3,
                        .function = do_everything};
    assert_int_equal(crew_run(&crew), 0);
}

static void a_job_of_one_works(void **state)
{
    (void)state;
    struct crew crew = {
        .url = group_service.url, .job = "one", .count = 1, .hosts = 1, .function = do_everything};
    assert_int_equal(crew_run(&crew), 0);
}

/* Two threads of each member at once, each in its own scope. */
static void *reduce_locally(void *argument)
{
    struct crew_member *member = argument;
    for (int i = 0; i < 50 && member->failure[0] == '\0'; i++) {
        check_allreduce(member, MUSTER_LOCAL);
    }
    return NULL;
}

static void use_two_scopes_at_once(struct crew_member *member)
{
    struct crew_member twin = *member; /* records its own failures */
    pthread_t thread;
    MEMBER_CHECK(member, pthread_create(&thread, NULL, reduce_locally, &twin) == 0);
    for (int i = 0; i < 50 && member->failure[0] == '\0'; i++) {
        check_allreduce(member, MUSTER_GLOBAL);
    }
    (void)pthread_join(thread, NULL);
    MEMBER_CHECK(member, twin.failure[0] == '\0');
}

static void scopes_do_not_wait_for_each_other(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "threads",
                        .count = 4,
                        .hosts = 2,
                        .function = use_two_scopes_at_once};
    assert_int_equal(crew_run(&crew), 0);
}

static void disagree(struct crew_member *member)
{
    int32_t data[16] = {0};
    size_t count = member->index == 1 ? 12 : 10;
    muster_status status = muster_allreduce(member->session, MUSTER_GLOBAL, data, data, count,
                                            MUSTER_INT32, MUSTER_SUM, NULL);
    MEMBER_CHECK(member, status == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "10") != NULL);
    MEMBER_CHECK(member, strstr(muster_last_error(), "12") != NULL);
    MEMBER_CHECK(member, strstr(muster_last_error(), "rank") != NULL);
    check_allreduce(member, MUSTER_GLOBAL); /* the session can still be used */
}

static void a_different_count_is_an_error_on_all_members_and_the_session_goes_on(void **state)
{
    (void)state;
    struct crew crew = {
        .url = group_service.url, .job = "disagree", .count = 3, .hosts = 1, .function = disagree};
    assert_int_equal(crew_run(&crew), 0);
}

static void call_badly(struct crew_member *member)
{
    muster_session *session = member->session;
    int32_t data[8] = {0};
    MEMBER_CHECK(member, muster_allreduce(session, (muster_scope)7, data, data, 1, MUSTER_INT32,
                                          MUSTER_SUM, NULL) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "scope 7") != NULL);
    MEMBER_CHECK(member, muster_allreduce(session, MUSTER_GLOBAL, NULL, data, 1, MUSTER_INT32,
                                          MUSTER_SUM, NULL) == MUSTER_INVALID);
    MEMBER_CHECK(member, muster_allreduce(session, MUSTER_GLOBAL, data, data + 1, 4, MUSTER_INT32,
                                          MUSTER_SUM, NULL) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "overlap") != NULL);
    MEMBER_CHECK(member, muster_broadcast(session, MUSTER_GLOBAL, data, 1, MUSTER_INT32, 9, NULL) ==
                             MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "root 9") != NULL);
    muster_call_options options = {.algorithm = "magic"};
    MEMBER_CHECK(member, muster_allreduce(session, MUSTER_GLOBAL, data, data, 1, MUSTER_INT32,
                                          MUSTER_SUM, &options) == MUSTER_INVALID);
    MEMBER_CHECK(member, strcmp(muster_last_error(),
                                "allreduce: muster_call_options: size is 0: "
                                "muster_call_options_init() sets it") == 0);
    options.size = sizeof options;
    MEMBER_CHECK(member, muster_allreduce(session, MUSTER_GLOBAL, data, data, 1, MUSTER_INT32,
                                          MUSTER_SUM, &options) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "magic") != NULL);
    options.algorithm = "ring";
    MEMBER_OK(member, muster_allreduce(session, MUSTER_GLOBAL, data, data, 8, MUSTER_INT32,
                                       MUSTER_SUM, &options));
    options.size = offsetof(muster_call_options, timeout_ms); /* an older header */
    options.reproducible = 1;
    options.prescale = 100;
    data[0] = 1;
    MEMBER_OK(member, muster_allreduce(session, MUSTER_GLOBAL, data, data, 1, MUSTER_INT32,
                                       MUSTER_SUM, &options));
    MEMBER_CHECK(member, data[0] == 2); /* neither option is read */
    options.size = offsetof(muster_call_options, factors_set);
    options.prescale = 0;
    options.factors_set = MUSTER_PRESCALE_SET;
    MEMBER_OK(member, muster_allreduce(session, MUSTER_GLOBAL, data, data, 1, MUSTER_INT32,
                                       MUSTER_SUM, &options));
    MEMBER_CHECK(member, data[0] == 4); /* 0 is no factor in the older header */
    options.size = sizeof options;
    MEMBER_OK(member, muster_allreduce(session, MUSTER_GLOBAL, data, data, 1, MUSTER_INT32,
                                       MUSTER_SUM, &options));
    MEMBER_CHECK(member, data[0] == 0);
    MEMBER_CHECK(member, muster_rank(session, (muster_scope)7) == UINT32_MAX);
    MEMBER_CHECK(member, muster_size(session, (muster_scope)7) == 0);
}

static void bad_arguments_are_named(void **state)
{
    (void)state;
    struct crew crew = {
        .url = group_service.url, .job = "badly", .count = 2, .hosts = 1, .function = call_badly};
    assert_int_equal(crew_run(&crew), 0);
}

static void be_late(struct crew_member *member)
{
    muster_call_options options = {.size = sizeof options, .timeout_ms = 200};
    if (member->index == 1) {
        crew_barrier(member); /* instead of the barrier */
        return;
    }
    muster_status status = muster_barrier(member->session, MUSTER_GLOBAL, &options);
    crew_barrier(member);
    MEMBER_CHECK(member, status == MUSTER_REJOIN);
    MEMBER_CHECK(member, strstr(muster_last_error(), "rank") != NULL);
}

static void a_call_that_waits_too_long_names_the_rank_that_it_waits_for(void **state)
{
    (void)state;
    struct crew crew = {
        .url = group_service.url, .job = "late", .count = 2, .hosts = 1, .function = be_late};
    assert_int_equal(crew_run(&crew), 0);
}

/* Only member 0 asks for a promise, and then both do. */
static void ask_for_promises(struct crew_member *member)
{
    muster_session *session = member->session;
    int32_t data = 1;
    muster_call_options options = {.size = sizeof options};
    options.keep_input = member->index == 0;
    MEMBER_CHECK(member, muster_allreduce(session, MUSTER_GLOBAL, &data, &data, 1, MUSTER_INT32,
                                          MUSTER_SUM, &options) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "keep_input ") != NULL);
    options.keep_input = 0;
    options.finish_together = member->index == 0;
    MEMBER_CHECK(member, muster_broadcast(session, MUSTER_GLOBAL, &data, 1, MUSTER_INT32, 0,
                                          &options) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "finish_together ") != NULL);
    options.keep_input = options.finish_together = 1;
    data = (int32_t)member->index + 1;
    MEMBER_OK(member, muster_allreduce(session, MUSTER_GLOBAL, &data, &data, 1, MUSTER_INT32,
                                       MUSTER_SUM, &options));
    MEMBER_OK(member,
              muster_broadcast(session, MUSTER_GLOBAL, &data, 1, MUSTER_INT32, 1, &options));
    MEMBER_CHECK(member, data == 3);
}

static void members_agree_on_promises(void **state)
{
    (void)state;
    for (uint32_t hosts = 1; hosts <= 2; hosts++) {
        struct crew crew = {.url = group_service.url,
                            .job = hosts == 1 ? "promises-1" : "promises-2",
                            .count = 2,
                            .hosts = hosts,
                            .function = ask_for_promises};
        assert_int_equal(crew_run(&crew), 0);
    }
}

/* Hosts a and c are in one rack, b is in another. */
static void choose_rack(struct crew_member *member)
{
    member->options.rack = member->options.host[5] == 'b' ? "rack-2" : "rack-1";
}

static void check_racks(struct crew_member *member)
{
    const struct muster_topology *topology = &member->session->generation.communicator->topology;
    int32_t host = member->options.host[5];
    int32_t hosts[4];
    MEMBER_CHECK(member, topology->racks == 2 && topology->hosts == 3);
    MEMBER_CHECK(member, topology->rack_sizes[0] == 2 && topology->rack_sizes[1] == 1);
    MEMBER_OK(member, muster_allgather(member->session, MUSTER_GLOBAL, &host, hosts, 1,
                                       MUSTER_INT32, NULL));
    MEMBER_CHECK(member, hosts[0] == 'a' && hosts[1] == 'a' && hosts[2] == 'c' && hosts[3] == 'b');
}

static void all_members_know_the_racks(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "racks",
                        .count = 4,
                        .hosts = 3,
                        .prepare = choose_rack,
                        .function = check_racks};
    assert_int_equal(crew_run(&crew), 0);
}

/* The data of a member depends on its contribution number, and so do the bits of the sum. */
struct sum_of_floats {
    bool spread; /* the members over three hosts, in turn */
    float sum;
};

static void choose_order(struct crew_member *member)
{
    static const char *const hosts[] = {"host-z", "host-y", "host-x"};
    const struct sum_of_floats *sum = member->crew->user;
    member->options.reproducible = 1;
    if (sum->spread) {
        member->options.order = (member->index + 2) % member->crew->count;
        member->options.host = hosts[member->options.order % 3];
    }
}

static void add_floats(struct crew_member *member)
{
    static const float numbers[] = {1e8F, 3.0F, -1e8F, 5.0F, 1.25F};
    struct sum_of_floats *sum = member->crew->user;
    float number = numbers[member->options.order];
    float all = 0;
    MEMBER_OK(member, muster_allreduce(member->session, MUSTER_GLOBAL, &number, &all, 1,
                                       MUSTER_FLOAT32, MUSTER_SUM, NULL));
    if (muster_rank(member->session, MUSTER_GLOBAL) == 0) {
        sum->sum = all;
    }
}

static void a_reproducible_sum_depends_on_the_contribution_numbers_only(void **state)
{
    (void)state;
    struct sum_of_floats sums[] = {{.spread = false}, {.spread = true}};
    for (int i = 0; i < 2; i++) {
        struct crew crew = {.url = group_service.url,
                            .job = i == 0 ? "orders-0" : "orders-1",
                            .count = 5,
                            .hosts = 1,
                            .prepare = choose_order,
                            .function = add_floats,
                            .user = &sums[i]};
        assert_int_equal(crew_run(&crew), 0);
    }
    /* ((0 + 1) + (2 + 3)) + 4, each sum rounded to float32. */
    float lower = 1e8F + 3.0F;
    float upper = -1e8F + 5.0F;
    float expected = lower + upper;
    expected += 1.25F;
    assert_memory_equal(&sums[0].sum, &expected, sizeof expected);
    assert_memory_equal(&sums[1].sum, &expected, sizeof expected);
}

static void choose_compression(struct crew_member *member)
{
    member->options.compression = "bfloat16";
}

/* The largest of equal numbers, rounded as often as you like, is the number rounded once. */
static void compress(struct crew_member *member)
{
    muster_session *session = member->session;
    float exact = 1.01F;
    float rounded = 1.0078125F;
    float out[2] = {0};
    const size_t counts[] = {1, 1};
    muster_call_options options;
    muster_call_options_init(&options);
    options.algorithm = "ring"; /* a named algorithm is compressed whatever it costs */
    MEMBER_OK(member, muster_allreduce(session, MUSTER_GLOBAL, &exact, out, 1, MUSTER_FLOAT32,
                                       MUSTER_MAX, &options));
    MEMBER_CHECK(member, out[0] == rounded);
    MEMBER_OK(member,
              muster_allgather(session, MUSTER_GLOBAL, &exact, out, 1, MUSTER_FLOAT32, &options));
    MEMBER_CHECK(member, out[0] == rounded && out[1] == rounded);
    options.compression = MUSTER_COMPRESSION_NONE;
    MEMBER_OK(member, muster_allreduce(session, MUSTER_GLOBAL, &exact, out, 1, MUSTER_FLOAT32,
                                       MUSTER_MAX, &options));
    MEMBER_CHECK(member, out[0] == exact);
    /* The session's option concerns only calls that can be compressed. */
    options.compression = MUSTER_COMPRESSION_DEFAULT;
    MEMBER_OK(member, muster_allgatherv(session, MUSTER_GLOBAL, &exact, out, counts, MUSTER_FLOAT32,
                                        &options));
    MEMBER_CHECK(member, out[0] == exact && out[1] == exact);
    options.reproducible = 1;
    options.algorithm = NULL;
    MEMBER_OK(member, muster_allreduce(session, MUSTER_GLOBAL, &exact, out, 1, MUSTER_FLOAT32,
                                       MUSTER_SUM, &options));
    MEMBER_CHECK(member, out[0] == exact + exact);
    options.compression = MUSTER_COMPRESSION_INT8;
    MEMBER_CHECK(member, muster_allreduce(session, MUSTER_GLOBAL, &exact, out, 1, MUSTER_FLOAT32,
                                          MUSTER_SUM, &options) == MUSTER_INVALID);
    options.compression = MUSTER_COMPRESSION_DEFAULT;
    options.reserved = 7;
    MEMBER_CHECK(member, muster_allreduce(session, MUSTER_GLOBAL, &exact, out, 1, MUSTER_FLOAT32,
                                          MUSTER_SUM, &options) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "reserved is 7, not 0") != NULL);
    MEMBER_OK(member, muster_barrier(session, MUSTER_GLOBAL, NULL)); /* the others are as far */
}

static void calls_are_compressed_as_the_options_say(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "compression",
                        .count = 2,
                        .hosts = 2,
                        .prepare = choose_compression,
                        .function = compress};
    assert_int_equal(crew_run(&crew), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_collectives_work_in_all_scopes),
        cmocka_unit_test(hosts_may_have_different_numbers_of_members),
        cmocka_unit_test(a_job_of_one_works),
        cmocka_unit_test(scopes_do_not_wait_for_each_other),
        cmocka_unit_test(a_different_count_is_an_error_on_all_members_and_the_session_goes_on),
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(a_call_that_waits_too_long_names_the_rank_that_it_waits_for),
        cmocka_unit_test(members_agree_on_promises),
        cmocka_unit_test(all_members_know_the_racks),
        cmocka_unit_test(a_reproducible_sum_depends_on_the_contribution_numbers_only),
        cmocka_unit_test(calls_are_compressed_as_the_options_say),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
