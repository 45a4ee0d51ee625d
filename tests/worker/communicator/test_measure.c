/* Link figures: all members get the same ones, for the levels that exist, and a death ends the
 * measurement. The values themselves depend on the machine and are not checked. */
#include "tests/support/group.h"
#include "tests/support/schedules.h"
#include "worker/base/clock.h"
#include "worker/communicator/measure.h"
#include "worker/communicator/measure_link.h"
#include "worker/session/stored_figures.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { FIRST_CONTEXT = 7, NO_RANK = UINT32_MAX };

struct measurement {
    uint32_t victim; /* dies instead of measuring */
    struct muster_cost_model models[GROUP_SIZE_MAX];
    muster_status statuses[GROUP_SIZE_MAX];
    uint32_t suspects[GROUP_SIZE_MAX];
};

static void take_part(struct group_member *member, void *argument)
{
    struct measurement *measurement = argument;
    const struct muster_measure_options options = {
        .fabric = member->fabric,
        .generation = member->group->generation,
        .context = FIRST_CONTEXT,
        .topology = &member->group->topology,
        .rank = member->rank,
        .peers = member->communicator->callers,
        .deadline_ns = group_deadline(),
    };
    struct muster_cost_model *model = &measurement->models[member->rank];
    *model = muster_cost_model_default;
    if (member->rank == measurement->victim) {
        muster_fabric_kill(member->fabric);
        return;
    }
    measurement->statuses[member->rank] =
        muster_measure(&options, model, &measurement->suspects[member->rank]);
    if (measurement->victim == NO_RANK && measurement->statuses[member->rank] != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
}

static bool is_default(const struct muster_cost_model *model, enum muster_link_level level)
{
    return memcmp(&model->links[level], &muster_cost_model_default.links[level],
                  sizeof model->links[level]) == 0;
}

static void measure_on(enum group_transport transport, uint32_t hosts, const uint32_t *host_sizes,
                       uint32_t racks, const uint32_t *rack_sizes)
{
    struct group group;
    struct measurement *measurement = calloc(1, sizeof *measurement);
    assert_non_null(measurement);
    measurement->victim = NO_RANK;
    group_start(&group, transport, hosts, host_sizes, NULL);
    if (racks > 0) {
        assert_int_equal(muster_topology_set_racks(&group.topology, racks, rack_sizes), MUSTER_OK);
    }
    unsigned levels = muster_measure_levels(&group.topology);
    group_each(&group, take_part, measurement);
    const struct muster_cost_model *first = &measurement->models[0];
    assert_int_equal(muster_cost_model_check(first), MUSTER_OK);
    for (uint32_t rank = 1; rank < group.size; rank++) {
        assert_memory_equal(&measurement->models[rank], first, sizeof *first);
    }
    for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        assert_int_equal(is_default(first, level), (levels & 1U << level) == 0);
    }
    group_finish(&group);
    free(measurement);
}

static void all_members_have_the_same_figures(void **state)
{
    (void)state;
    measure_on(GROUP_TCP, 1, (uint32_t[]){2}, 0, NULL);
    measure_on(GROUP_TCP, 3, (uint32_t[]){1, 1, 1}, 0, NULL);
    measure_on(GROUP_TCP, 2, (uint32_t[]){2, 2}, 0, NULL);
    measure_on(GROUP_INPROC, 3, (uint32_t[]){3, 1, 2}, 0, NULL);
}

static void racks_have_a_level_of_their_own(void **state)
{
    (void)state;
    measure_on(GROUP_INPROC, 3, (uint32_t[]){1, 2, 1}, 2, (uint32_t[]){2, 1});
    measure_on(GROUP_INPROC, 2, (uint32_t[]){1, 1}, 2, (uint32_t[]){1, 1});
}

/* Few ranks measure, and all wait for them. */
static void large_jobs_measure_too(void **state)
{
    (void)state;
    uint32_t sizes[16];
    for (int i = 0; i < 16; i++) {
        sizes[i] = 4;
    }
    measure_on(GROUP_INPROC, 16, sizes, 4, (uint32_t[]){4, 4, 4, 4});
    measure_on(GROUP_TCP, 4, sizes, 0, NULL);
}

static void one_rank_measures_its_core(void **state)
{
    (void)state;
    measure_on(GROUP_INPROC, 1, (uint32_t[]){1}, 0, NULL);
}

static void a_death_ends_the_measurement_and_is_named(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < 2; victim++) {
        struct group group;
        struct measurement *measurement = calloc(1, sizeof *measurement);
        assert_non_null(measurement);
        measurement->victim = victim;
        group_start(&group, GROUP_TCP, 2, (uint32_t[]){1, 1}, NULL);
        group_each(&group, take_part, measurement);
        uint32_t other = 1 - victim;
        assert_int_equal(measurement->statuses[other], MUSTER_REJOIN);
        assert_int_equal(measurement->suspects[other], victim);
        assert_memory_equal(&measurement->models[other], &muster_cost_model_default,
                            sizeof muster_cost_model_default);
        group_finish(&group);
        free(measurement);
    }
}

/* During the measurement ----------------------------------------------------------------------- */

enum { DEATHS = 12, FREEZES = 4, FROZEN_DEADLINE_MS = 300 };

struct killing {
    struct muster_fabric *fabric;
    uint32_t after_us;
};

/* A measurement in which one member dies or freezes, and the results of the others. */
struct lossy_measurement {
    struct measurement measurement;
    uint32_t victim;
    uint32_t after_us; /* counted from the victim's own start */
    bool kills;        /* its links break; otherwise it stops answering */
    int64_t deadline_ns;
};

static void *kill_later(void *argument)
{
    const struct killing *killing = argument;
    const struct timespec wait = {.tv_nsec = killing->after_us * 1000L};
    (void)nanosleep(&wait, NULL); /* a random time; nothing is synchronised by it */
    muster_fabric_kill(killing->fabric);
    return NULL;
}

/* Stands in for the service, which revokes the generation after a report. */
static void revoke_all(struct group *group)
{
    for (uint32_t rank = 0; rank < group->size; rank++) {
        muster_fabric_revoke(group->members[rank].fabric, group->generation, "a member is lost");
    }
}

/* Measures with the others. The victim's links are killed by another thread, or its own deadline
 * ends it early. */
static void measure_with_loss(struct group_member *member, void *argument)
{
    struct lossy_measurement *lossy = argument;
    bool victim = member->rank == lossy->victim;
    const struct muster_measure_options options = {
        .fabric = member->fabric,
        .generation = member->group->generation,
        .context = FIRST_CONTEXT,
        .topology = &member->group->topology,
        .rank = member->rank,
        .peers = member->communicator->callers,
        /* The victim freezes at its own deadline: it answers no member afterwards. */
        .deadline_ns = victim && !lossy->kills ? muster_clock_ns() + lossy->after_us * 1000L
                                               : lossy->deadline_ns,
    };
    struct killing killing = {member->fabric, lossy->after_us};
    pthread_t killer;
    if (victim && lossy->kills && pthread_create(&killer, NULL, kill_later, &killing) != 0) {
        group_fail(member, "no thread");
        return;
    }
    struct muster_cost_model *model = &lossy->measurement.models[member->rank];
    *model = muster_cost_model_default;
    muster_status status =
        muster_measure(&options, model, &lossy->measurement.suspects[member->rank]);
    lossy->measurement.statuses[member->rank] = status;
    if (status != MUSTER_OK && !victim) {
        revoke_all(member->group);
    }
    if (victim && lossy->kills) {
        (void)pthread_join(killer, NULL);
    }
}

/* All members return, the survivors with figures or with MUSTER_REJOIN and an unchanged model. */
static void lose_one(uint64_t *random, bool kills)
{
    const uint32_t sizes[] = {2, 1, 2};
    struct group group;
    struct lossy_measurement *lossy = calloc(1, sizeof *lossy);
    assert_non_null(lossy);
    group_start(&group, test_random_below(random, 2) == 0 ? GROUP_TCP : GROUP_INPROC, 3, sizes,
                NULL);
    lossy->victim = test_random_below(random, group.size);
    lossy->after_us = test_random_below(random, 20000);
    lossy->kills = kills;
    lossy->deadline_ns = kills ? group_deadline() : muster_clock_after_ms(FROZEN_DEADLINE_MS);
    group_each(&group, measure_with_loss, lossy);
    for (uint32_t rank = 0; rank < group.size; rank++) {
        muster_status status = lossy->measurement.statuses[rank];
        uint32_t suspect = lossy->measurement.suspects[rank];
        assert_true(status == MUSTER_OK || status == MUSTER_REJOIN);
        assert_true(suspect == NO_RANK || suspect < group.size);
        if (status != MUSTER_OK) {
            assert_memory_equal(&lossy->measurement.models[rank], &muster_cost_model_default,
                                sizeof muster_cost_model_default);
        }
    }
    group_finish(&group);
    free(lossy);
}

static void whenever_a_member_dies_the_others_end(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < DEATHS; i++) {
        lose_one(&random, true);
    }
}

static void whenever_a_member_stops_answering_the_others_end_in_time(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < FREEZES; i++) {
        lose_one(&random, false);
    }
}

/* Rank 1 plays a peer that requests more bytes than a measurement ever sends: rank 0 must refuse.
 */
static void request_too_much(struct group_member *member, void *argument)
{
    (void)argument;
    char in[16];
    char *out = calloc(MUSTER_MEASURE_IN_FLIGHT, MUSTER_MEASURE_MESSAGE_BYTES);
    const struct muster_call call = {.collective = MUSTER_PAIRWISE_EXCHANGE, .type = MUSTER_UINT8};
    uint64_t too_much = UINT64_MAX;
    uint32_t suspect = NO_RANK;
    struct muster_measure_pair pair = {.fabric = member->fabric,
                                       .generation = member->group->generation,
                                       .context = FIRST_CONTEXT,
                                       .ranks = {0, 1},
                                       .index = member->rank,
                                       .in = in,
                                       .out = out,
                                       .deadline_ns = group_deadline()};
    struct muster_transfer request = {
        .key = {.generation = pair.generation, .sequence = 1, .context = FIRST_CONTEXT, .lane = 2},
        .call = &call,
        .direction = MUSTER_SEND,
        .peer = 0,
        .data = &too_much,
        .size_bytes = sizeof too_much,
        .element_size_bytes = 1};
    double rate_GBps = 17;
    if (member->rank == 0) {
        muster_status status = muster_measure_rate(&pair, false, &rate_GBps, &suspect);
        if (status != MUSTER_FATAL || rate_GBps != 17) {
            group_fail(member, "status %d", (int)status);
        }
    } else if (muster_fabric_post(member->fabric, &request) != MUSTER_OK ||
               muster_fabric_wait(member->fabric, pair.generation, &(const bool){false},
                                  muster_clock_after_ms(100)) != MUSTER_RETRY) {
        group_fail(member, "%s", muster_last_error());
    }
    muster_fabric_withdraw(member->fabric, pair.generation, FIRST_CONTEXT, 1);
    free(out);
}

static void a_request_for_too_large_a_message_is_refused(void **state)
{
    (void)state;
    struct group group;
    group_start(&group, GROUP_TCP, 2, (uint32_t[]){1, 1}, NULL);
    group_each(&group, request_too_much, NULL);
    group_finish(&group);
}

/* As JSON -------------------------------------------------------------------------------------- */

static void figures_survive_encoding_and_decoding(void **state)
{
    (void)state;
    struct muster_figures figures;
    struct muster_figures decoded;
    muster_figures_init(&figures);
    figures.hosts_digest = 0xfedcba98;
    figures.shape_digest = 0x89abcdef;
    figures.levels = 1U << MUSTER_LEVEL_HOST | 1U << MUSTER_LEVEL_WORLD;
    figures.model.core.cores = 3;
    figures.model.core.one_machine = 1;
    figures.model.links[MUSTER_LEVEL_HOST] = (struct muster_link_figures){1.5, 0.25, 3.75, 12.125};
    figures.model.links[MUSTER_LEVEL_WORLD].latency_us = 1234.5;
    json_t *json = muster_figures_encode(&figures);
    char *text = json_dumps(json, JSON_COMPACT);
    assert_non_null(text);
    assert_int_equal(muster_figures_decode(text, strlen(text), &decoded), MUSTER_OK);
    assert_int_equal(decoded.hosts_digest, figures.hosts_digest);
    assert_int_equal(decoded.shape_digest, figures.shape_digest);
    assert_int_equal(decoded.levels, figures.levels);
    assert_memory_equal(&decoded.model, &figures.model, sizeof decoded.model);
    json_decref(json);
    free(text);
}

static void expect_refused(const char *text)
{
    struct muster_figures figures = {.hosts_digest = 17};
    if (muster_figures_decode(text, strlen(text), &figures) != MUSTER_INVALID) {
        fail_msg("accepted: %s", text);
    }
    assert_int_equal(figures.hosts_digest, 17);
    assert_null(strchr(muster_last_error(), '\n'));
}

/* A valid value with one member replaced, or left out (NULL), is refused. */
static void expect_refused_with(const char *part, const char *name, json_t *value)
{
    struct muster_figures figures;
    muster_figures_init(&figures);
    figures.levels = 7;
    json_t *json = muster_figures_encode(&figures);
    json_t *object = part != NULL ? json_object_get(json, part) : json;
    assert_non_null(object);
    if (value != NULL) {
        assert_int_equal(json_object_set_new(object, name, value), 0);
    } else {
        assert_int_equal(json_object_del(object, name), 0);
    }
    char *text = json_dumps(json, JSON_COMPACT);
    assert_non_null(text);
    expect_refused(text);
    free(text);
    json_decref(json);
}

static void malformed_and_impossible_figures_are_refused(void **state)
{
    (void)state;
    static const char *const no_json[] = {"", "[]", "{}", "null", "{\"core\":", "\xff\xfe"};
    for (size_t i = 0; i < sizeof no_json / sizeof no_json[0]; i++) {
        expect_refused(no_json[i]);
    }
    static const double no_time[] = {-1, -1e-300, 1e9, 1e300};
    static const double no_rate[] = {0, -1, 1e-9, 1e9, 1e300};
    static const char *const levels[] = {"host", "rack", "world"};
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = 0; j < sizeof no_time / sizeof no_time[0]; j++) {
            expect_refused_with(levels[i], "latency_us", json_real(no_time[j]));
            expect_refused_with(levels[i], "posting_us", json_real(no_time[j]));
        }
        for (size_t j = 0; j < sizeof no_rate / sizeof no_rate[0]; j++) {
            expect_refused_with(levels[i], "bandwidth_GBps", json_real(no_rate[j]));
            expect_refused_with(levels[i], "shared_GBps", json_real(no_rate[j]));
            expect_refused_with("core", "reduce_GBps", json_real(no_rate[j]));
            expect_refused_with("core", "copy_GBps", json_real(no_rate[j]));
        }
        expect_refused_with(levels[i], "latency_us", NULL);
        expect_refused_with(levels[i], "latency_us", json_string("1"));
        expect_refused_with(levels[i], "colour", json_real(1));
    }
    expect_refused_with("core", "cores", json_integer(-1));
    expect_refused_with("core", "cores", json_integer(INT64_MAX));
    expect_refused_with("core", "cores", json_integer(1000000));
    expect_refused_with(NULL, "eager_bytes", json_integer(-1));
    expect_refused_with(NULL, "eager_bytes", json_integer(INT64_MAX));
    expect_refused_with(NULL, "hosts", json_integer(INT64_MAX));
    expect_refused_with(NULL, "hosts", NULL);
    expect_refused_with(NULL, "shape", NULL); /* of an older version */
    expect_refused_with(NULL, "core", NULL);
}

static void figures_that_are_not_numbers_are_refused(void **state)
{
    (void)state;
    struct muster_figures figures;
    muster_figures_init(&figures);
    assert_int_equal(muster_figures_check(&figures), MUSTER_OK);
    figures.model.links[MUSTER_LEVEL_RACK].latency_us = NAN;
    assert_int_equal(muster_figures_check(&figures), MUSTER_INVALID);
    memset(&figures, 0, sizeof figures);
    assert_int_equal(muster_figures_check(&figures), MUSTER_INVALID);
    memset(&figures, 0xff, sizeof figures);
    assert_int_equal(muster_figures_check(&figures), MUSTER_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_members_have_the_same_figures),
        cmocka_unit_test(racks_have_a_level_of_their_own),
        cmocka_unit_test(large_jobs_measure_too),
        cmocka_unit_test(one_rank_measures_its_core),
        cmocka_unit_test(a_death_ends_the_measurement_and_is_named),
        cmocka_unit_test(whenever_a_member_dies_the_others_end),
        cmocka_unit_test(whenever_a_member_stops_answering_the_others_end_in_time),
        cmocka_unit_test(a_request_for_too_large_a_message_is_refused),
        cmocka_unit_test(figures_survive_encoding_and_decoding),
        cmocka_unit_test(malformed_and_impossible_figures_are_refused),
        cmocka_unit_test(figures_that_are_not_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
