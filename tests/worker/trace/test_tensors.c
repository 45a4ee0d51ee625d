/* A timeline of named tensors, and timelines that are started and stopped while the job runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/timeline_reading.h"
#include "worker/trace/timeline.h"

enum { PATH_SIZE = 128, DEADLINE_MS = 20000 };

static char folder[PATH_SIZE / 2];
static char prefix[PATH_SIZE - 32];
static char path[PATH_SIZE]; /* of the file of generation 3, rank 2 */

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/test_tensors_XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(prefix, sizeof prefix, "%s/t", folder);
    (void)snprintf(path, sizeof path, "%s.3.2.json", prefix);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static struct muster_timeline *begin(void)
{
    const struct muster_timeline_options options = {.prefix = prefix};
    struct muster_timeline *timeline = muster_timeline_create(&options);
    assert_non_null(timeline);
    muster_timeline_begin(timeline, 3, 2, 5);
    return timeline;
}

static struct muster_timeline *begin_without_a_file(void)
{
    const struct muster_timeline_options options = {.startable = true};
    struct muster_timeline *timeline = muster_timeline_create(&options);
    assert_non_null(timeline);
    muster_timeline_begin(timeline, 3, 2, 5);
    return timeline;
}

static void pause_ms(long ms)
{
    const struct timespec wait = {.tv_nsec = ms * 1000000};
    (void)nanosleep(&wait, NULL);
}

static void add_many(struct muster_timeline *timeline, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        muster_timeline_add_local(timeline, MUSTER_TIMELINE_COPY, muster_clock_ns(), 8,
                                  (struct muster_timeline_operation){.sequence = 7});
    }
}

static void *add_in_thread(void *timeline)
{
    add_many(timeline, 5000);
    return NULL;
}

/* Tensors ------------------------------------------------------------------------------------- */

static struct muster_timeline_tensor life_of(struct muster_timeline *timeline, const char *name)
{
    int64_t start_ns = muster_timeline_tensor_clock(timeline);
    return (struct muster_timeline_tensor){.name = muster_timeline_tensor_name(timeline, name),
                                           .last_rank = 4,
                                           .submitted_ns = start_ns,
                                           .ready_ns = start_ns + 1000,
                                           .started_ns = start_ns + 3000,
                                           .done_ns = start_ns + 10000,
                                           .bytes = 4096,
                                           .sequence = 7,
                                           .context = 1,
                                           .fused = 2};
}

static void assert_span(const json_t *event, const char *name, double from_us, double lasts_us)
{
    assert_string_equal(timeline_text(event, "name"), name);
    assert_true(timeline_number(event, "ts") - from_us < 0.002);
    assert_true(from_us - timeline_number(event, "ts") < 0.002);
    assert_true(timeline_number(event, "dur") - lasts_us < 0.002);
    assert_true(lasts_us - timeline_number(event, "dur") < 0.002);
}

static void a_tensor_is_written_with_its_stages_on_a_track_of_its_own(void **state)
{
    (void)state;
    struct muster_timeline *timeline = begin();
    struct muster_timeline_tensor two[] = {life_of(timeline, "fc.bias"),
                                           life_of(timeline, "odd \"\\name\" \xC3\xA9")};
    two[1].ready_ns = 0; /* not known */
    two[1].last_rank = MUSTER_TIMELINE_NO_PEER;
    muster_timeline_add_tensors(timeline, two, 2);
    muster_timeline_add_tensors(timeline, two, 1);
    muster_timeline_destroy(timeline);
    json_t *events = timeline_load(path);
    double start_us = (double)two[0].submitted_ns / 1000;
    const json_t *whole = timeline_find(events, "X", 0);
    assert_span(whole, "fc.bias", start_us, 10);
    assert_string_equal(timeline_text(whole, "cat"), "tensor");
    assert_int_equal(timeline_argument(whole, "bytes"), 4096);
    assert_int_equal(timeline_argument(whole, "sequence"), 7);
    assert_int_equal(timeline_argument(whole, "context"), 1);
    assert_int_equal(timeline_argument(whole, "fused"), 2);
    assert_int_equal(timeline_argument(whole, "last_rank"), 4);
    assert_span(timeline_find(events, "X", 1), "tensor pending", start_us, 1);
    assert_span(timeline_find(events, "X", 2), "tensor on wire", start_us + 3, 7);
    const json_t *odd = timeline_find(events, "X", 3);
    assert_string_equal(timeline_text(odd, "name"), "odd \"\\name\" \xC3\xA9");
    assert_null(json_object_get(json_object_get(odd, "args"), "last_rank"));
    assert_span(timeline_find(events, "X", 4), "tensor on wire",
                (double)two[1].submitted_ns / 1000 + 3, 7);
    assert_true(timeline_number(odd, "tid") != timeline_number(whole, "tid"));
    assert_true(timeline_number(timeline_find(events, "X", 5), "tid") ==
                timeline_number(whole, "tid"));
    /* The process's name, and two metadata events for each of the two tracks. */
    assert_int_equal(timeline_count(events, "M"), 5);
    json_decref(events);
}

static void names_that_are_no_utf8_are_shown_with_question_marks(void **state)
{
    (void)state;
    struct muster_timeline *timeline = begin();
    char name[256];
    memset(name, '"', sizeof name - 1);
    name[0] = '\xFF';
    name[255] = '\0';
    assert_int_equal(muster_timeline_tensor_name(timeline, name),
                     muster_timeline_tensor_name(timeline, name));
    const struct muster_timeline_tensor tensor = life_of(timeline, name);
    muster_timeline_add_tensors(timeline, &tensor, 1);
    muster_timeline_destroy(timeline);
    json_t *events = timeline_load(path);
    assert_int_equal(strlen(timeline_text(timeline_find(events, "X", 0), "name")), 255);
    assert_int_equal(timeline_text(timeline_find(events, "X", 0), "name")[0], '?');
    json_decref(events);
}

static uint64_t count_dropped_tensors(const json_t *events)
{
    uint64_t dropped = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *arguments = json_object_get(json_array_get(events, i), "args");
        dropped += (uint64_t)json_integer_value(json_object_get(arguments, "tensors"));
    }
    return dropped;
}

/* Each step has 100 tensors. */
static void very_many_tensors_are_counted_and_wanted_again_later(void **state)
{
    (void)state;
    enum { STEPS = 50, TENSORS = 100 };
    struct muster_timeline *timeline = begin();
    struct muster_timeline_tensor tensors[TENSORS];
    size_t unwanted = 0;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < TENSORS; i++) {
            tensors[i] = life_of(timeline, "a");
            unwanted += tensors[i].submitted_ns == 0;
        }
        muster_timeline_add_tensors(timeline, tensors, TENSORS);
    }
    int64_t deadline_ns = muster_clock_after_ms(DEADLINE_MS);
    while (muster_timeline_tensor_clock(timeline) == 0) {
        assert_true(muster_clock_ns() < deadline_ns);
        pause_ms(1);
    }
    muster_timeline_miss_tensors(timeline, 3);
    tensors[0] = life_of(timeline, "last");
    muster_timeline_add_tensors(timeline, tensors, 1);
    muster_timeline_destroy(timeline);
    json_t *events = timeline_load(path);
    assert_true(unwanted > 0 && count_dropped_tensors(events) >= unwanted);
    assert_int_equal(timeline_count(events, "X") / 3 + count_dropped_tensors(events),
                     STEPS * TENSORS + 3 + 1);
    json_decref(events);
}

/* Starting and stopping ----------------------------------------------------------------------- */

static void a_timeline_is_started_and_stopped_while_the_job_runs(void **state)
{
    (void)state;
    struct muster_timeline *timeline = begin_without_a_file();
    (void)unlink(path); /* of another test */
    assert_false(muster_timeline_records(timeline));
    assert_int_equal(muster_timeline_stop(timeline), MUSTER_INVALID);
    add_many(timeline, 1);
    assert_int_equal(muster_timeline_tensor_clock(timeline), 0);
    assert_int_not_equal(access(path, F_OK), 0);
    for (size_t i = 1; i < 4; i++) {
        assert_int_equal(muster_timeline_start(timeline, prefix), MUSTER_OK);
        assert_int_equal(muster_timeline_start(timeline, prefix), MUSTER_INVALID);
        assert_true(muster_timeline_records(timeline));
        const struct muster_timeline_tensor tensor = life_of(timeline, "a");
        muster_timeline_add_tensors(timeline, &tensor, 1);
        add_many(timeline, (uint32_t)i);
        assert_int_equal(muster_timeline_stop(timeline), MUSTER_OK);
        add_many(timeline, 1);
        muster_timeline_add_tensors(timeline, &tensor, 1);
        json_t *events = timeline_load(path);
        assert_int_equal(timeline_count(events, "X"), i + 3);
        assert_int_equal(timeline_argument(timeline_find(events, "i", 0), "generation"), 3);
        assert_string_equal(
            timeline_text(json_object_get(timeline_find(events, "M", 1), "args"), "name"), "a");
        json_decref(events);
    }
    muster_timeline_destroy(timeline);
}

static void a_timeline_that_cannot_start_says_why(void **state)
{
    (void)state;
    struct muster_timeline *timeline = begin_without_a_file();
    char nowhere[PATH_SIZE];
    (void)snprintf(nowhere, sizeof nowhere, "%s/no/t", folder);
    assert_int_equal(muster_timeline_start(timeline, nowhere), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), nowhere));
    assert_false(muster_timeline_records(timeline));
    assert_int_equal(muster_timeline_start(timeline, prefix), MUSTER_OK);
    muster_timeline_destroy(timeline);
    json_decref(timeline_load(path));
}

static void *start_and_stop(void *timeline)
{
    for (int i = 0; i < 20; i++) {
        assert_int_equal(muster_timeline_start(timeline, prefix), MUSTER_OK);
        pause_ms(1);
        assert_int_equal(muster_timeline_stop(timeline), MUSTER_OK);
    }
    return NULL;
}

static void threads_add_while_it_is_started_and_stopped(void **state)
{
    (void)state;
    struct muster_timeline *timeline = begin_without_a_file();
    pthread_t threads[3];
    assert_int_equal(pthread_create(&threads[0], NULL, start_and_stop, timeline), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, add_in_thread, timeline), 0);
    assert_int_equal(pthread_create(&threads[2], NULL, add_in_thread, timeline), 0);
    for (int i = 0; i < 2000; i++) {
        const struct muster_timeline_tensor tensor = life_of(timeline, "a");
        muster_timeline_add_tensors(timeline, &tensor, 1);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    muster_timeline_destroy(timeline);
    json_decref(timeline_load(path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_is_written_with_its_stages_on_a_track_of_its_own),
        cmocka_unit_test(names_that_are_no_utf8_are_shown_with_question_marks),
        cmocka_unit_test(very_many_tensors_are_counted_and_wanted_again_later),
        cmocka_unit_test(a_timeline_is_started_and_stopped_while_the_job_runs),
        cmocka_unit_test(a_timeline_that_cannot_start_says_why),
        cmocka_unit_test(threads_add_while_it_is_started_and_stopped),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
