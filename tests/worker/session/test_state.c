/* Registered memory: commit, restore, sync; and planned leaves, which a commit agrees on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/gpu_pretend.h"
#include "tests/support/service.h"
#include "worker/session/state.h"

static void registered_buffers_are_checked(void **state)
{
    (void)state;
    struct muster_state registered = {0};
    int value = 0;
    char longest[MUSTER_REGISTERED_BUFFER_NAME_SIZE + 1];
    muster_state_init(&registered);
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(muster_state_register(&registered, "step", &value, sizeof value), MUSTER_OK);
    assert_int_equal(muster_state_register(&registered, "step", &value, 4), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "\"step\": registered twice"));
    assert_int_equal(muster_state_register(&registered, "", &value, 4), MUSTER_INVALID);
    assert_int_equal(muster_state_register(&registered, NULL, &value, 4), MUSTER_INVALID);
    assert_int_equal(muster_state_register(&registered, longest, &value, 4), MUSTER_INVALID);
    assert_int_equal(muster_state_register(&registered, "none", NULL, 4), MUSTER_INVALID);
    assert_int_equal(muster_state_register(&registered, "huge", &value, SIZE_MAX), MUSTER_INVALID);
    assert_int_equal(muster_state_register(&registered, "empty", NULL, 0), MUSTER_OK);
    for (int i = 2; i < MUSTER_REGISTERED_BUFFERS_MAX; i++) {
        (void)snprintf(longest, sizeof longest, "buffer %d", i);
        assert_int_equal(muster_state_register(&registered, longest, &value, 4), MUSTER_OK);
    }
    assert_int_equal(muster_state_register(&registered, "more", &value, 4), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "1024"));
    assert_int_equal(muster_state_reserve(&registered), MUSTER_OK);
    assert_int_equal(muster_state_register(&registered, "late", &value, 4), MUSTER_INVALID);
    muster_state_finish(&registered);
}

static void memory_of_a_gpu_is_refused(void **state)
{
    (void)state;
    const struct gpu_pretend *gpu = gpu_pretend_load(false);
    struct muster_state registered = {0};
    void *of_gpu = gpu->allocate(4, 0);
    muster_state_init(&registered);
    assert_int_equal(muster_state_register(&registered, "weights", of_gpu, 4), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "\"weights\": data is memory of a device (cuda)"));
    muster_state_finish(&registered);
    gpu->release(of_gpu);
}

static void different_layouts_have_different_digests(void **state)
{
    (void)state;
    struct muster_state one = {0};
    struct muster_state other = {0};
    int value = 0;
    muster_state_init(&one);
    muster_state_init(&other);
    assert_int_equal(muster_state_digest(&one), muster_state_digest(&other));
    assert_int_equal(muster_state_register(&one, "a", &value, 4), MUSTER_OK);
    assert_int_not_equal(muster_state_digest(&one), muster_state_digest(&other));
    assert_int_equal(muster_state_register(&other, "a", &value, 3), MUSTER_OK);
    assert_int_not_equal(muster_state_digest(&one), muster_state_digest(&other));
    muster_state_finish(&one);
    muster_state_finish(&other);
}

/* The registered state of one member of a test. */
struct model {
    int64_t step;
    float weights[1000];
};

static void register_model(struct crew_member *member, struct model *model)
{
    MEMBER_OK(member, muster_register(member->session, "step", &model->step, sizeof model->step));
    MEMBER_OK(member,
              muster_register(member->session, "weights", model->weights, sizeof model->weights));
}

static void fill(struct model *model, int64_t step)
{
    model->step = step;
    for (int i = 0; i < 1000; i++) {
        model->weights[i] = (float)step + (float)i;
    }
}

static bool is_filled(const struct model *model, int64_t step)
{
    for (int i = 0; i < 1000; i++) {
        if (model->weights[i] != (float)step + (float)i) {
            return false;
        }
    }
    return model->step == step;
}

static void commit_and_restore(struct crew_member *member)
{
    muster_session *session = member->session;
    struct model model;
    fill(&model, 100 + muster_rank(session, MUSTER_GLOBAL));
    register_model(member, &model);
    MEMBER_CHECK(member, muster_restore(session) == MUSTER_INVALID);
    MEMBER_CHECK(member, muster_version_of_state(session) == 0);
    MEMBER_OK(member, muster_sync(session));
    MEMBER_CHECK(member, is_filled(&model, 100)); /* rank 0's */
    MEMBER_CHECK(member, muster_version_of_state(session) == 1);
    MEMBER_CHECK(member, muster_register(session, "late", &model, 1) == MUSTER_INVALID);
    fill(&model, 7);
    MEMBER_OK(member, muster_restore(session));
    MEMBER_CHECK(member, is_filled(&model, 100));
    fill(&model, 8);
    MEMBER_OK(member, muster_commit(session));
    MEMBER_CHECK(member, muster_version_of_state(session) == 2);
    fill(&model, 9);
    MEMBER_OK(member, muster_restore(session));
    MEMBER_CHECK(member, is_filled(&model, 8));
    MEMBER_OK(member, muster_sync(session)); /* all members are up to date */
    MEMBER_CHECK(member, is_filled(&model, 8));
}

static void the_first_sync_gives_all_members_the_state_of_rank_0(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "commit",
                        .count = 4,
                        .hosts = 2,
                        .function = commit_and_restore};
    assert_int_equal(crew_run(&crew), 0);
}

/* What is written after the end of a commit in two parts does not belong to it. */
static void commit_in_two_parts(struct crew_member *member)
{
    static struct model models[CREW_MAX]; /* they outlive the session */
    muster_session *session = member->session;
    struct model *model = &models[member->index];
    fill(model, 1);
    MEMBER_CHECK(member, muster_commit_begin(session) == MUSTER_INVALID); /* nothing registered */
    register_model(member, model);
    MEMBER_OK(member, muster_sync(session));
    MEMBER_CHECK(member, muster_commit_end(session) == MUSTER_INVALID);
    for (int64_t step = 2; step < 20; step++) {
        fill(model, step);
        MEMBER_OK(member, muster_commit_begin(session));
        MEMBER_CHECK(member, muster_commit_begin(session) == MUSTER_INVALID);
        MEMBER_OK(member, muster_barrier(session, MUSTER_GLOBAL, NULL));
        MEMBER_OK(member, muster_commit_end(session));
        MEMBER_CHECK(member, muster_version_of_state(session) == (uint64_t)step);
        fill(model, -1);
        MEMBER_OK(member, muster_restore(session));
        MEMBER_CHECK(member, is_filled(model, step));
    }
    fill(model, 20);
    MEMBER_OK(member, muster_commit_begin(session));
    MEMBER_OK(member, muster_restore(session)); /* what was begun is forgotten */
    MEMBER_CHECK(member, is_filled(model, 19));
    MEMBER_CHECK(member, muster_commit_end(session) == MUSTER_INVALID);
    MEMBER_OK(member, muster_commit_begin(session)); /* closed before its end */
}

static void a_commit_in_two_parts_is_of_the_memory_between_them(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "parts",
                        .count = 3,
                        .hosts = 1,
                        .function = commit_in_two_parts};
    assert_int_equal(crew_run(&crew), 0);
}

static void register_differently(struct crew_member *member)
{
    struct model model = {0};
    size_t size = member->index == 2 ? 3996 : 4000;
    MEMBER_OK(member, muster_register(member->session, "step", &model.step, sizeof model.step));
    MEMBER_OK(member, muster_register(member->session, "weights", model.weights, size));
    MEMBER_CHECK(member, muster_sync(member->session) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "\"weights\"") != NULL);
    MEMBER_CHECK(member, strstr(muster_last_error(), "4000") != NULL);
}

static void a_different_layout_is_named_on_every_member(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "layout",
                        .count = 3,
                        .hosts = 1,
                        .function = register_differently};
    assert_int_equal(crew_run(&crew), 0);
}

/* The highest rank leaves in each round; the others keep their uncommitted state in the next
 * generation. */
static void leave_one_by_one(struct crew_member *member)
{
    muster_session *session = member->session;
    struct model model;
    fill(&model, 1);
    register_model(member, &model);
    MEMBER_OK(member, muster_sync(session));
    for (uint32_t leaver = 3; leaver > 0; leaver--) {
        fill(&model, 10 + leaver);
        if (muster_rank(session, MUSTER_GLOBAL) == leaver) {
            muster_leave(session);
        }
        MEMBER_CHECK(member, muster_commit(session) == MUSTER_REJOIN);
        muster_status status = muster_rejoin(session);
        if (muster_rank(session, MUSTER_GLOBAL) == leaver) {
            MEMBER_CHECK(member, status == MUSTER_ENDED);
            MEMBER_CHECK(member, muster_commit(session) == MUSTER_ENDED);
            MEMBER_CHECK(member, muster_rejoin(session) == MUSTER_ENDED);
            return;
        }
        MEMBER_CHECK(member, status == MUSTER_OK);
        MEMBER_CHECK(member, muster_size(session, MUSTER_GLOBAL) == leaver);
        MEMBER_OK(member, muster_sync(session));
        MEMBER_CHECK(member, is_filled(&model, 10 + leaver));
    }
    uint64_t generation = muster_generation(session);
    MEMBER_CHECK(member, (uint32_t)generation == 4);
    MEMBER_OK(member, muster_rejoin(session)); /* without a reason it does nothing */
    MEMBER_CHECK(member, muster_generation(session) == generation);
}

static void allow_fewer(struct crew_member *member)
{
    member->options.min_size = 1;
}

static void a_member_that_wants_to_leave_leaves_at_the_next_commit_and_nothing_is_lost(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "leave",
                        .count = 4,
                        .hosts = 2,
                        .function = leave_one_by_one,
                        .prepare = allow_fewer};
    assert_int_equal(crew_run(&crew), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registered_buffers_are_checked),
        cmocka_unit_test(memory_of_a_gpu_is_refused),
        cmocka_unit_test(different_layouts_have_different_digests),
        cmocka_unit_test(the_first_sync_gives_all_members_the_state_of_rank_0),
        cmocka_unit_test(a_commit_in_two_parts_is_of_the_memory_between_them),
        cmocka_unit_test(a_different_layout_is_named_on_every_member),
        cmocka_unit_test(
            a_member_that_wants_to_leave_leaves_at_the_next_commit_and_nothing_is_lost),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup_patient, test_service_teardown);
}
