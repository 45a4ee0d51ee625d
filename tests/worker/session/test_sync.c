/* Which members receive which state. There is no service: the sessions are filled in by hand, with
 * the contexts of a group. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/support/group.h"
#include "worker/base/thread.h"
#include "worker/session/generation_guard.h"
#include "worker/session/session_parts.h"

enum { MEMBERS = 4, WEIGHTS = 300 };

/* What one member has when the sync begins. */
struct holding {
    uint64_t version;
    uint64_t committed; /* the generation in which the version was committed */
    int64_t copied;     /* the value that fills the committed copy */
    int64_t live;       /* the value that fills the registered memory */
    bool stale;         /* as the service says */
};

static const struct holding newest = {.version = 6, .committed = 5, .copied = 60, .live = 60};

/* A sync and what is expected of it. */
struct scene {
    const struct holding *holdings; /* [MEMBERS] */
    uint32_t source;
    uint64_t newest;
    uint32_t odd_one; /* registers a buffer of another size; UINT32_MAX: none */
    uint32_t absent;  /* does not take part, and its links break; UINT32_MAX: none */
    muster_status expected;
    const char *expected_text;
    muster_status expected_odd; /* of odd_one */
    const char *expected_odd_text;
    int64_t expected_live[MEMBERS]; /* afterwards; -1: as before */
    uint64_t expected_version;
};

struct stage {
    struct scene scene;
    struct muster_session sessions[MEMBERS];
    int64_t steps[MEMBERS];
    int64_t weights[MEMBERS][WEIGHTS];
};

static void fill(struct stage *stage, uint32_t i, int64_t value)
{
    stage->steps[i] = value;
    for (int j = 0; j < WEIGHTS; j++) {
        stage->weights[i][j] = value * 1000 + j;
    }
}

static bool is_filled(const struct stage *stage, uint32_t i, int64_t value)
{
    for (int j = 0; j < WEIGHTS; j++) {
        if (stage->weights[i][j] != value * 1000 + j) {
            return false;
        }
    }
    return stage->steps[i] == value;
}

static void set_state(struct stage *stage, uint32_t i)
{
    const struct holding *holding = &stage->scene.holdings[i];
    struct muster_state *state = &stage->sessions[i].state;
    size_t weights = sizeof stage->weights[i] - (i == stage->scene.odd_one ? 8 : 0);
    muster_state_init(state);
    assert_int_equal(muster_state_register(state, "step", &stage->steps[i], 8), MUSTER_OK);
    assert_int_equal(muster_state_register(state, "nothing", NULL, 0), MUSTER_OK);
    assert_int_equal(muster_state_register(state, "weights", stage->weights[i], weights),
                     MUSTER_OK);
    if (holding->version > 0) {
        fill(stage, i, holding->copied);
        assert_int_equal(muster_state_reserve(state), MUSTER_OK);
        muster_state_copy_commit(state, holding->version, holding->committed);
    }
    fill(stage, i, holding->live);
}

/* Fills in the session as if it had joined a generation with the scene's state. */
static void set_session(struct stage *stage, struct group *group, uint32_t i)
{
    struct muster_session *session = &stage->sessions[i];
    struct muster_generation *generation = &session->generation;
    muster_mutex_init(&session->mutex);
    muster_mutex_init(&session->client_mutex);
    assert_int_equal(pthread_cond_init(&session->changed, NULL), 0);
    muster_session_set_stage_locked(session, MUSTER_STAGE_RUNNING);
    muster_figures_init(&session->figures);
    session->finished = true; /* there is no service to report to */
    session->settings.call_timeout_ms = 20000;
    session->fabric = group->members[i].fabric;
    generation->communicator = group->members[i].communicator;
    generation->number = group->generation;
    generation->state_version = stage->scene.newest;
    generation->state_source = stage->scene.source;
    generation->stale_ranks = calloc(MEMBERS, sizeof *generation->stale_ranks);
    assert_non_null(generation->stale_ranks);
    for (uint32_t j = 0; j < MEMBERS; j++) {
        if (stage->scene.holdings[j].stale) {
            generation->stale_ranks[generation->stale_count++] = j;
        }
    }
    set_state(stage, i);
}

/* One member's sync, and all that the scene expects of it: status, text, memory, version and
 * committed copy. */
static void sync_one(struct group_member *member, void *argument)
{
    struct stage *stage = argument;
    const struct scene *scene = &stage->scene;
    uint32_t i = member->rank;
    struct muster_session *session = &stage->sessions[i];
    if (i == scene->absent) {
        for (uint32_t other = 0; other < MEMBERS; other++) {
            muster_fabric_revoke(member->group->members[other].fabric, member->group->generation,
                                 "rank 3 died");
        }
        return;
    }
    bool odd = i == scene->odd_one;
    const char *text = odd ? scene->expected_odd_text : scene->expected_text;
    muster_status status = muster_sync(session);
    if (status != (odd ? scene->expected_odd : scene->expected)) {
        group_fail(member, "sync returned %s: %s", muster_status_name(status), muster_last_error());
        return;
    }
    if (status != MUSTER_OK && strstr(muster_last_error(), text) == NULL) {
        group_fail(member, "\"%s\" does not contain \"%s\"", muster_last_error(), text);
    }
    int64_t live = scene->expected_live[i];
    if (!is_filled(stage, i, live)) {
        group_fail(member, "registered memory has %lld, not %lld", (long long)stage->steps[i],
                   (long long)live);
    }
    if (status != MUSTER_OK) {
        return;
    }
    if (muster_version_of_state(session) != scene->expected_version) {
        group_fail(member, "version %llu", (unsigned long long)muster_version_of_state(session));
    }
    fill(stage, i, -1);
    if (muster_restore(session) != MUSTER_OK || !is_filled(stage, i, live)) {
        group_fail(member, "the copy has %lld, not %lld", (long long)stage->steps[i],
                   (long long)live);
    }
}

static void run_scene(const struct scene *scene)
{
    static const uint32_t hosts[] = {3, 1};
    struct stage *stage = calloc(1, sizeof *stage);
    struct group group = {.generation = 9};
    assert_non_null(stage);
    stage->scene = *scene;
    group_start(&group, GROUP_INPROC, 2, hosts, NULL);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        set_session(stage, &group, i);
    }
    group_each(&group, sync_one, stage);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        struct muster_session *session = &stage->sessions[i];
        assert_false(muster_session_has_calls(session));
        free(session->generation.stale_ranks);
        muster_state_finish(&session->state);
        (void)pthread_cond_destroy(&session->changed);
        (void)pthread_mutex_destroy(&session->client_mutex);
        (void)pthread_mutex_destroy(&session->mutex);
    }
    group_finish(&group);
    free(stage);
}

static void the_first_state_is_the_registered_memory_of_the_source(void **state)
{
    (void)state;
    const struct holding holdings[MEMBERS] = {{.live = 5},
                                              {.live = 1, .stale = true},
                                              {.live = 2, .stale = true},
                                              {.live = 3, .stale = true}};
    run_scene(&(struct scene){.holdings = holdings,
                              .odd_one = UINT32_MAX,
                              .absent = UINT32_MAX,
                              .expected_live = {5, 5, 5, 5},
                              .expected_version = 1});
}

static void only_stale_members_receive_the_state_and_the_others_keep_theirs(void **state)
{
    (void)state;
    /* Rank 1 has changed its memory since its commit: sync overwrites that with the newest commit.
     */
    const struct holding holdings[MEMBERS] = {
        newest,
        {.version = 5, .committed = 5, .copied = 50, .live = 51, .stale = true},
        newest,
        {.live = 3, .stale = true}};
    run_scene(&(struct scene){.holdings = holdings,
                              .newest = 6,
                              .odd_one = UINT32_MAX,
                              .absent = UINT32_MAX,
                              .expected_live = {60, 60, 60, 60},
                              .expected_version = 6});
}

static void without_stale_members_no_data_moves(void **state)
{
    (void)state;
    const struct holding holdings[MEMBERS] = {newest, newest, newest, newest};
    run_scene(&(struct scene){.holdings = holdings,
                              .newest = 6,
                              .odd_one = UINT32_MAX,
                              .absent = UINT32_MAX,
                              .expected_live = {60, 60, 60, 60},
                              .expected_version = 6});
}

static void the_same_version_committed_in_another_generation_is_another_state(void **state)
{
    (void)state;
    /* Rank 2 was cut off right after its commit in generation 4; the others went on in 5. */
    const struct holding holdings[MEMBERS] = {
        newest,
        newest,
        {.version = 6, .committed = 4, .copied = 66, .live = 66},
        {.version = 5, .committed = 4, .copied = 50, .live = 50, .stale = true}};
    run_scene(&(struct scene){.holdings = holdings,
                              .newest = 6,
                              .odd_one = UINT32_MAX,
                              .absent = UINT32_MAX,
                              .expected_live = {60, 60, 60, 60},
                              .expected_version = 6});
}

static void
a_member_with_another_layout_than_the_job_gets_the_error_and_the_others_go_on(void **state)
{
    (void)state;
    const struct holding holdings[MEMBERS] = {
        newest, newest, {.live = 2, .stale = true}, {.live = 3, .stale = true}};
    run_scene(&(struct scene){.holdings = holdings,
                              .newest = 6,
                              .odd_one = 2,
                              .absent = UINT32_MAX,
                              .expected = MUSTER_REJOIN,
                              .expected_text = "going on without rank 2",
                              .expected_odd = MUSTER_INVALID,
                              .expected_odd_text =
                                  "\"weights\" with 2400 bytes on rank 0 and differs "
                                  "on rank 2: here it is \"weights\" with 2392 bytes",
                              .expected_live = {60, 60, 2, 3}});
}

static void in_the_first_generation_all_members_get_the_error_of_another_layout(void **state)
{
    (void)state;
    const struct holding holdings[MEMBERS] = {{.live = 5},
                                              {.live = 1, .stale = true},
                                              {.live = 2, .stale = true},
                                              {.live = 3, .stale = true}};
    run_scene(&(struct scene){.holdings = holdings,
                              .odd_one = 3,
                              .absent = UINT32_MAX,
                              .expected = MUSTER_INVALID,
                              .expected_text =
                                  "\"weights\" with 2400 bytes on rank 0 and differs on "
                                  "rank 3",
                              .expected_odd = MUSTER_INVALID,
                              .expected_odd_text = "here it is \"weights\" with 2392 bytes",
                              .expected_live = {5, 1, 2, 3}});
}

static void a_sync_that_fails_leaves_the_old_state(void **state)
{
    (void)state;
    const struct holding holdings[MEMBERS] = {
        newest,
        {.version = 5, .committed = 5, .copied = 50, .live = 50, .stale = true},
        {.live = 2, .stale = true},
        {.live = 3, .stale = true}};
    run_scene(&(struct scene){.holdings = holdings,
                              .newest = 6,
                              .odd_one = UINT32_MAX,
                              .absent = 3,
                              .expected = MUSTER_REJOIN,
                              .expected_live = {60, 50, 2, 3},
                              .expected_text = "rank 3 died"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_state_is_the_registered_memory_of_the_source),
        cmocka_unit_test(only_stale_members_receive_the_state_and_the_others_keep_theirs),
        cmocka_unit_test(without_stale_members_no_data_moves),
        cmocka_unit_test(the_same_version_committed_in_another_generation_is_another_state),
        cmocka_unit_test(
            a_member_with_another_layout_than_the_job_gets_the_error_and_the_others_go_on),
        cmocka_unit_test(in_the_first_generation_all_members_get_the_error_of_another_layout),
        cmocka_unit_test(a_sync_that_fails_leaves_the_old_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
