/* The link figures of a job: measured when it begins, stored with it, used by later members, and
 * the basis of the choice of algorithms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"
#include "worker/base/clock.h"
#include "worker/session/formed_answer.h"
#include "worker/session/generation.h"
#include "worker/session/rejoin.h"
#include "worker/session/stored_figures.h"

enum { SIZE = 4, TIMEOUT_MS = 20000 };

static struct muster_figures seen[SIZE];

static struct crew crew_for(const char *job, crew_function function)
{
    return (struct crew){
        .url = group_service.url, .job = job, .count = SIZE, .hosts = 2, .function = function};
}

static void record(struct crew_member *member)
{
    double one = 1;
    double sum = 0;
    seen[member->index] = member->session->figures;
    MEMBER_OK(member, muster_allreduce(member->session, MUSTER_GLOBAL, &one, &sum, 1,
                                       MUSTER_FLOAT64, MUSTER_SUM, NULL));
    MEMBER_CHECK(member, sum == SIZE);
}

static void expect_alike(void)
{
    for (int i = 1; i < SIZE; i++) {
        assert_memory_equal(&seen[i].model, &seen[0].model, sizeof seen[0].model);
        assert_int_equal(seen[i].levels, seen[0].levels);
        assert_int_equal(seen[i].hosts_digest, seen[0].hosts_digest);
        assert_int_equal(seen[i].shape_digest, seen[0].shape_digest);
    }
}

/* The digests of the hosts that a crew has. */
static void digests_of_crew(uint32_t *ret_hosts, uint32_t *ret_shape)
{
    struct muster_wire_host hosts[2] = {{.name = "host-a", .size = SIZE / 2},
                                        {.name = "host-b", .size = SIZE / 2}};
    const struct muster_join_response response = {.host_count = 2, .hosts = hosts};
    muster_formed_answer_digest(&response, ret_hosts, ret_shape);
}

static uint32_t hosts_digest_of_crew(void)
{
    uint32_t hosts;
    uint32_t shape;
    digests_of_crew(&hosts, &shape);
    return hosts;
}

/* What the job has stored under the key, once that has so many tuned algorithms: the lease thread
 * of rank 0 stores it. */
static void get_stored(struct crew_member *member, struct muster_client *client, const char *key,
                       uint32_t tuned, struct muster_figures *ret_stored)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    int64_t deadline_ns = muster_clock_after_ms(TIMEOUT_MS);
    do {
        (void)nanosleep(&pause, NULL);
        MEMBER_OK(member,
                  muster_figures_get(client, member->crew->job, key, TIMEOUT_MS, ret_stored));
    } while ((ret_stored->levels == 0 || ret_stored->tuned.count != tuned) &&
             muster_clock_left_ms(deadline_ns) > 0);
}

/* The job has the figures of its members stored under both keys. */
static void compare_with_stored(struct crew_member *member)
{
    char key[MUSTER_FIGURES_KEY_SIZE];
    struct muster_client *client = NULL;
    muster_figures_key(hosts_digest_of_crew(), key);
    const char *const keys[] = {key, MUSTER_FIGURES_NEWEST};
    MEMBER_OK(member, muster_client_create(group_service.url, NULL, &client));
    for (int i = 0; i < 2; i++) {
        struct muster_figures stored;
        const struct muster_figures *here = &member->session->figures;
        get_stored(member, client, keys[i], 0, &stored);
        MEMBER_CHECK(member,
                     stored.levels == here->levels && stored.hosts_digest == here->hosts_digest);
        MEMBER_CHECK(member,
                     fabs(stored.model.links[0].latency_us / here->model.links[0].latency_us - 1) <
                         1e-6);
    }
    muster_client_destroy(client);
    record(member);
}

static void switch_measuring_off(struct crew_member *member)
{
    member->options.measure = 0;
}

static void a_job_that_begins_measures_and_stores_the_figures(void **state)
{
    (void)state;
    struct crew crew = crew_for("measures", compare_with_stored);
    assert_int_equal(crew_run(&crew), 0);
    expect_alike();
    assert_int_equal(seen[0].levels, 1U << MUSTER_LEVEL_HOST | 1U << MUSTER_LEVEL_RACK);
    assert_int_equal(seen[0].hosts_digest, hosts_digest_of_crew());
    assert_memory_not_equal(&seen[0].model, &muster_cost_model_default, sizeof seen[0].model);
}

static void a_job_without_measuring_has_the_default_figures(void **state)
{
    (void)state;
    struct crew crew = crew_for("ordinary", record);
    crew.prepare = switch_measuring_off;
    assert_int_equal(crew_run(&crew), 0);
    expect_alike();
    assert_int_equal(seen[0].levels, 0);
    assert_memory_equal(&seen[0].model, &muster_cost_model_default, sizeof seen[0].model);
}

/* Figures with which only the number of consecutive messages matters. */
static void put_figures(struct crew_member *member)
{
    struct muster_figures figures;
    char key[MUSTER_FIGURES_KEY_SIZE];
    struct muster_client *client = NULL;
    muster_figures_init(&figures);
    digests_of_crew(&figures.hosts_digest, &figures.shape_digest);
    figures.levels = 1U << MUSTER_LEVEL_HOST | 1U << MUSTER_LEVEL_RACK;
    for (int level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        figures.model.links[level].latency_us = 1e6;
    }
    muster_figures_key(figures.hosts_digest, key);
    MEMBER_OK(member, muster_client_create(group_service.url, NULL, &client));
    MEMBER_OK(member, muster_figures_put(client, member->crew->job, key, TIMEOUT_MS, &figures));
    muster_client_destroy(client);
}

static size_t chosen[SIZE];

static void choose(struct crew_member *member)
{
    static float data[SIZE][1 << 16];
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = data[member->index],
                                           .out = data[member->index],
                                           .count = 1 << 16,
                                           .type = MUSTER_FLOAT32,
                                           .op = MUSTER_SUM};
    if (member->index == 0) {
        put_figures(member);
    }
    crew_barrier(member);
    member->session->settings.measure = true;
    MEMBER_OK(member, muster_session_rejoin(member->session, true));
    record(member);
    MEMBER_OK(member, muster_context_algorithm(
                          member->session->generation.communicator->contexts[MUSTER_GLOBAL],
                          &request, &chosen[member->index]));
}

/* The best algorithm for these figures, by simulation of each. */
static size_t best_by_simulation(const struct muster_cost_model *model)
{
    struct muster_topology topology;
    assert_int_equal(muster_topology_init_even(SIZE, 2, &topology), MUSTER_OK);
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = 1 << 16, .in_place = true};
    size_t best = SIZE_MAX;
    double best_us = 0;
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        double us = 0;
        char why[MUSTER_ERROR_MAX];
        if (muster_algorithms[i].collective != MUSTER_ALLREDUCE ||
            !muster_algorithm_fits(i, &plan, why, sizeof why)) {
            continue;
        }
        assert_int_equal(muster_select_cost_us(i, &plan, sizeof(float), model, &us), MUSTER_OK);
        if (best == SIZE_MAX || us < best_us) {
            best = i;
            best_us = us;
        }
    }
    muster_topology_finish(&topology);
    return best;
}

static void figures_stored_for_the_hosts_decide_the_choice_of_algorithms(void **state)
{
    (void)state;
    struct crew crew = crew_for("keeps", choose);
    crew.prepare = switch_measuring_off;
    assert_int_equal(crew_run(&crew), 0);
    expect_alike();
    assert_true(seen[0].model.links[MUSTER_LEVEL_HOST].latency_us == 1e6);
    double best_us = 0;
    double chosen_us = 0;
    struct muster_topology topology;
    assert_int_equal(muster_topology_init_even(SIZE, 2, &topology), MUSTER_OK);
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = 1 << 16, .in_place = true};
    size_t best = best_by_simulation(&seen[0].model);
    assert_int_equal(muster_select_cost_us(best, &plan, sizeof(float), &seen[0].model, &best_us),
                     MUSTER_OK);
    for (int i = 0; i < SIZE; i++) {
        assert_int_equal(chosen[i], chosen[0]);
    }
    assert_int_equal(
        muster_select_cost_us(chosen[0], &plan, sizeof(float), &seen[0].model, &chosen_us),
        MUSTER_OK);
    assert_true(chosen_us <= best_us * 1.04); /* selection may stop within 4% of the best */
    muster_topology_finish(&topology);
}

/* Impossible figures --------------------------------------------------------------------------- */

/* The two numbers are the digests of the crew's hosts, so that nothing else is wrong. */
#define CORE(rate)                                                                        \
    "{\"core\":{\"reduce_GBps\":" rate                                                    \
    ",\"copy_GBps\":1,\"cores\":0,\"one_machine\":false},\"eager_bytes\":1,\"hosts\":%u," \
    "\"shape\":%u"
#define LINK(level, latency)                  \
    ",\"" level "\":{\"latency_us\":" latency \
    ",\"posting_us\":1,\"bandwidth_GBps\":1,\"shared_GBps\":1}"

static const char negative[] = CORE("1") LINK("host", "-5") LINK("rack", "5") "}";
static const char huge[] = CORE("1e300") "}";
static const char *const absurd[] = {"", "nonsense", negative, huge};

/* Stores the text as the job's link figures. A %u in it stands for a digest of the crew's hosts. */
static void put_text(struct crew_member *member, const char *text)
{
    struct muster_value_request request = {0};
    const struct muster_retry_policy retry_policy = {
        .attempt_ms = TIMEOUT_MS, .deadline_ns = muster_clock_after_ms(TIMEOUT_MS), .attempts = 1};
    struct muster_client *client = NULL;
    json_t *answer = NULL;
    char value[1024];
    uint32_t hosts;
    uint32_t shape;
    digests_of_crew(&hosts, &shape);
    (void)snprintf(request.job, sizeof request.job, "%s", member->crew->job);
    muster_figures_key(hosts_digest_of_crew(), request.key);
    const char *number = strstr(text, "%u");
    if (number == NULL) {
        (void)snprintf(value, sizeof value, "%s", text);
    } else {
        const char *rest = strstr(number + 2, "%u");
        (void)snprintf(value, sizeof value, "%.*s%u%.*s%u%s", (int)(number - text), text, hosts,
                       (int)(rest - number - 2), number + 2, shape, rest + 2);
    }
    request.value = value;
    request.value_size = strlen(value);
    MEMBER_OK(member, muster_client_create(group_service.url, NULL, &client));
    MEMBER_OK(member,
              muster_client_call(client, MUSTER_RPC_PUT, muster_value_request_encode(&request),
                                 &retry_policy, &answer, NULL));
    json_decref(answer);
    muster_client_destroy(client);
}

static void rejoin_among_absurd_figures(struct crew_member *member)
{
    for (size_t i = 0; i < sizeof absurd / sizeof absurd[0]; i++) {
        if (member->index == 0) {
            put_text(member, absurd[i]);
        }
        crew_barrier(member);
        member->session->settings.measure = true;
        muster_figures_init(&member->session->figures);
        MEMBER_OK(member, muster_session_rejoin(member->session, true));
        MEMBER_CHECK(member, muster_figures_check(&member->session->figures) == MUSTER_OK);
        record(member);
    }
}

static void invalid_stored_figures_are_measured_again(void **state)
{
    (void)state;
    struct crew crew = crew_for("absurd", rejoin_among_absurd_figures);
    crew.prepare = switch_measuring_off;
    assert_int_equal(crew_run(&crew), 0);
    expect_alike();
    assert_int_equal(seen[0].levels, 1U << MUSTER_LEVEL_HOST | 1U << MUSTER_LEVEL_RACK);
}

/* As if rank 0 had another version of the library, or corrupted memory. */
static void rejoin_with_an_absurd_rank(struct crew_member *member)
{
    member->session->figures.model.links[MUSTER_LEVEL_HOST].latency_us = NAN;
    member->session->figures.model.core.reduce_GBps = -1;
    MEMBER_OK(member, muster_session_rejoin(member->session, true));
    record(member);
}

static void invalid_figures_of_rank_0_are_replaced_by_all_members_alike(void **state)
{
    (void)state;
    struct crew crew = crew_for("absurd-rank", rejoin_with_an_absurd_rank);
    crew.prepare = switch_measuring_off;
    assert_int_equal(crew_run(&crew), 0);
    expect_alike();
    assert_int_equal(seen[0].levels, 0);
    assert_memory_equal(&seen[0].model, &muster_cost_model_default, sizeof seen[0].model);
}

/* After a death -------------------------------------------------------------------------------- */

enum { VICTIM = SIZE - 1, COMMITS_MAX = 1000000 };

static void allow_one_less(struct crew_member *member)
{
    member->options.min_size = SIZE - 1;
}

/* The survivors go on with the figures that they had, and have new ones after the next commit. */
static void lose_one_and_commit(struct crew_member *member)
{
    struct muster_session *session = member->session;
    record(member);
    crew_barrier(member);
    if (member->index == VICTIM) {
        atomic_store(&session->last_status,
                     (int)MUSTER_FATAL); /* so that it does not leave as planned */
        return;
    }
    double one = 1;
    double sum = 0;
    while (muster_allreduce(session, MUSTER_GLOBAL, &one, &sum, 1, MUSTER_FLOAT64, MUSTER_SUM,
                            NULL) == MUSTER_OK) {
    }
    MEMBER_OK(member, muster_rejoin(session));
    MEMBER_CHECK(member, muster_size(session, MUSTER_GLOBAL) == SIZE - 1);
    MEMBER_CHECK(member, session->generation.communicator->figures_outdated);
    MEMBER_CHECK(member, session->figures.shape_digest == seen[member->index].shape_digest);
    for (int i = 0; session->generation.communicator->figures_outdated && i < COMMITS_MAX; i++) {
        MEMBER_OK(member, muster_commit(session)); /* once the service has said that it has none */
    }
    MEMBER_CHECK(member, !session->generation.communicator->figures_outdated);
    MEMBER_CHECK(member,
                 session->figures.shape_digest == session->generation.communicator->shape_digest);
    MEMBER_CHECK(member, session->figures.shape_digest != seen[member->index].shape_digest);
    seen[member->index] = session->figures;
    MEMBER_OK(member, muster_commit(session)); /* does not measure again */
    MEMBER_CHECK(member, memcmp(&session->figures.model, &seen[member->index].model,
                                sizeof session->figures.model) == 0);
    MEMBER_OK(member, muster_allreduce(session, MUSTER_GLOBAL, &one, &sum, 1, MUSTER_FLOAT64,
                                       MUSTER_SUM, NULL));
    MEMBER_CHECK(member, sum == SIZE - 1);
}

static void after_a_death_the_next_commit_measures(void **state)
{
    (void)state;
    struct crew crew = crew_for("loses", lose_one_and_commit);
    crew.prepare = allow_one_less;
    assert_int_equal(crew_run(&crew), 0);
    for (int i = 1; i < VICTIM; i++) {
        assert_memory_equal(&seen[i].model, &seen[0].model, sizeof seen[0].model);
    }
}

/* Tuned algorithms ----------------------------------------------------------------------------- */

enum { CALLS = 130 }; /* more than an autotune run takes */

static struct muster_tuned_list tuned_of(const struct crew_member *member)
{
    struct muster_tuned_list list;
    memset(&list, 0, sizeof list);
    muster_context_tuned(member->session->generation.communicator->contexts[MUSTER_GLOBAL], &list);
    return list;
}

static void call_often(struct crew_member *member)
{
    double one = 1;
    double sum = 0;
    for (int i = 0; i < CALLS; i++) {
        MEMBER_OK(member, muster_allreduce(member->session, MUSTER_GLOBAL, &one, &sum, 1,
                                           MUSTER_FLOAT64, MUSTER_SUM, NULL));
        MEMBER_CHECK(member, sum == SIZE);
    }
}

static void tune_and_rejoin(struct crew_member *member)
{
    char key[MUSTER_FIGURES_KEY_SIZE];
    struct muster_client *client = NULL;
    struct muster_figures stored;
    MEMBER_CHECK(member, tuned_of(member).count == 0);
    call_often(member);
    MEMBER_CHECK(member, tuned_of(member).count == 1);
    MEMBER_OK(member, muster_commit(member->session));
    muster_figures_key(hosts_digest_of_crew(), key);
    MEMBER_OK(member, muster_client_create(group_service.url, NULL, &client));
    get_stored(member, client, key, 1, &stored);
    muster_client_destroy(client);
    struct muster_tuned_list before = tuned_of(member);
    MEMBER_CHECK(member, memcmp(&stored.tuned, &before, sizeof before) == 0);
    seen[member->index] = member->session->figures;
    crew_barrier(member);
    MEMBER_OK(member, muster_session_rejoin(member->session, true));
    struct muster_tuned_list after = tuned_of(member);
    MEMBER_CHECK(member, memcmp(&after, &before, sizeof before) == 0);
    call_often(member);
}

static void tuned_algorithms_are_stored_with_the_job_and_passed_on(void **state)
{
    (void)state;
    struct crew crew = crew_for("finds", tune_and_rejoin);
    assert_int_equal(crew_run(&crew), 0);
    expect_alike();
}

/* Other members on the same hosts, which took no part in the autotune run. */
static void use_stored(struct crew_member *member)
{
    MEMBER_CHECK(member, tuned_of(member).count == 1);
    MEMBER_CHECK(
        member, memcmp(&member->session->figures.tuned, &seen[0].tuned, sizeof seen[0].tuned) == 0);
    call_often(member);
}

static void store_tuned(struct crew_member *member)
{
    char key[MUSTER_FIGURES_KEY_SIZE];
    struct muster_client *client = NULL;
    if (member->index != 0) {
        return;
    }
    muster_figures_init(&seen[0]);
    digests_of_crew(&seen[0].hosts_digest, &seen[0].shape_digest);
    seen[0].levels = 1U << MUSTER_LEVEL_HOST | 1U << MUSTER_LEVEL_RACK;
    seen[0].tuned.count = 1;
    seen[0].tuned.items[0] = (struct muster_tuned){
        .collective = MUSTER_ALLREDUCE, .size_class = 1, .element_size_bytes = sizeof(double)};
    muster_figures_key(seen[0].hosts_digest, key);
    MEMBER_OK(member, muster_client_create(group_service.url, NULL, &client));
    MEMBER_OK(member, muster_figures_put(client, member->crew->job, key, TIMEOUT_MS, &seen[0]));
    muster_client_destroy(client);
}

static void store_and_use(struct crew_member *member)
{
    store_tuned(member);
    crew_barrier(member);
    member->session->settings.measure = true;
    MEMBER_OK(member, muster_session_rejoin(member->session, true));
    use_stored(member);
}

static void tuned_algorithms_stored_with_the_job_are_used(void **state)
{
    (void)state;
    struct crew crew = crew_for("takes", store_and_use);
    crew.prepare = switch_measuring_off;
    assert_int_equal(crew_run(&crew), 0);
}

/* Rank 0's option decides for all members. */
static void let_one_tune(struct crew_member *member)
{
    member->options.tune = member->index == 1;
}

static void call_and_check_tuning(struct crew_member *member)
{
    bool autotunes = member->session->generation.communicator->autotunes;
    call_often(member);
    MEMBER_CHECK(member, tuned_of(member).count == (autotunes ? 1 : 0));
    seen[member->index].levels = autotunes;
}

static void rank_0_decides_whether_the_job_tunes(void **state)
{
    (void)state;
    struct crew crew = crew_for("word", call_and_check_tuning);
    crew.prepare = let_one_tune;
    assert_int_equal(crew_run(&crew), 0);
    for (int i = 1; i < SIZE; i++) {
        assert_int_equal(seen[i].levels, seen[0].levels);
    }
}

#define TUNED(fields) CORE("1") ",\"tuned\":[{" fields "}]}"
#define ITEM(algorithm, size_class)                                                           \
    "\"collective\":\"allreduce\",\"algorithm\":\"" algorithm "\",\"size_class\":" size_class \
    ",\"element_size_bytes\":4,\"ordered\":false"

static muster_status decode(const char *format, struct muster_figures *ret_figures)
{
    char text[1024];
    int length = snprintf(text, sizeof text, format, 1U, 2U);
    return muster_figures_decode(text, (size_t)length, ret_figures);
}

static void tuned_algorithms_of_another_version_are_checked(void **state)
{
    (void)state;
    struct muster_figures figures;
    assert_int_equal(decode(TUNED(ITEM("ring", "7")), &figures), MUSTER_OK);
    assert_int_equal(figures.tuned.count, 1);
    assert_int_equal(decode(TUNED(ITEM("from_the_future", "7")), &figures), MUSTER_OK);
    assert_int_equal(figures.tuned.count, 0);
    assert_int_equal(decode(CORE("1") "}", &figures), MUSTER_OK);
    assert_int_equal(figures.tuned.count, 0);
    assert_int_equal(decode(TUNED(ITEM("ring", "128")), &figures), MUSTER_INVALID);
    assert_int_equal(decode(TUNED(ITEM("ring", "-1")), &figures), MUSTER_INVALID);
    assert_int_equal(decode(TUNED("\"collective\":7"), &figures), MUSTER_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_begins_measures_and_stores_the_figures),
        cmocka_unit_test(a_job_without_measuring_has_the_default_figures),
        cmocka_unit_test(figures_stored_for_the_hosts_decide_the_choice_of_algorithms),
        cmocka_unit_test(invalid_stored_figures_are_measured_again),
        cmocka_unit_test(invalid_figures_of_rank_0_are_replaced_by_all_members_alike),
        cmocka_unit_test(after_a_death_the_next_commit_measures),
        cmocka_unit_test(tuned_algorithms_are_stored_with_the_job_and_passed_on),
        cmocka_unit_test(tuned_algorithms_stored_with_the_job_are_used),
        cmocka_unit_test(rank_0_decides_whether_the_job_tunes),
        cmocka_unit_test(tuned_algorithms_of_another_version_are_checked),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup_patient, test_service_teardown);
}
