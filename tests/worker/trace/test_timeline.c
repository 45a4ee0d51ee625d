/* The timeline's file: its events, and that it can be read whatever happens to the process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/timeline_reading.h"
#include "worker/base/random.h"
#include "worker/trace/timeline.h"

enum { PATH_SIZE = 128, DEADLINE_MS = 20000, KILLS = 20, KILL_WITHIN_BYTES = 1 << 20 };

static char folder[PATH_SIZE / 2];
static char prefix[PATH_SIZE - 32];
static char path[PATH_SIZE];   /* of the file of generation 3, rank 2 */
static char errors[PATH_SIZE]; /* where standard error goes for a while */

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/test_timeline_XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(prefix, sizeof prefix, "%s/t", folder);
    (void)snprintf(path, sizeof path, "%s.3.2.json", prefix);
    (void)snprintf(errors, sizeof errors, "%s/errors", folder);
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    (void)unlink(path);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    (void)unlink(errors);
    return rmdir(folder);
}

/* Reading ------------------------------------------------------------------------------------- */

/* Reads the file as a viewer does, which adds the end of the list if it is missing. *ret_whole: it
 * was there. */
static json_t *load_as_viewer(bool *ret_whole)
{
    json_error_t error;
    char *text = timeline_read_text(path);
    json_t *events = json_loads(text, 0, &error);
    *ret_whole = events != NULL;
    if (events == NULL) {
        text[strlen(text)] = ']';
        events = json_loads(text, 0, &error);
    }
    if (events == NULL) {
        fail_msg("line %d: %s; it ends with \"%s\"", error.line, error.text,
                 text + (strlen(text) > 300 ? strlen(text) - 300 : 0));
    }
    free(text);
    return events;
}

static uint64_t count_dropped(const json_t *events)
{
    uint64_t dropped = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strstr(timeline_text(event, "name"), "missing") != NULL) {
            dropped += (uint64_t)timeline_argument(event, "spans");
        }
    }
    return dropped;
}

/* Writing ------------------------------------------------------------------------------------- */

static void print_algorithm(size_t algorithm, char *ret_name, size_t size)
{
    (void)snprintf(ret_name, size, "number %zu", algorithm);
}

static struct muster_timeline *begin(struct muster_timeline_options options)
{
    options.prefix = prefix;
    options.print_algorithm = print_algorithm;
    struct muster_timeline *timeline = muster_timeline_create(&options);
    assert_non_null(timeline);
    muster_timeline_begin(timeline, 3, 2, 5);
    return timeline;
}

static struct muster_timeline_event event_since(int64_t start_ns)
{
    return (struct muster_timeline_event){.stage = MUSTER_TIMELINE_SEND,
                                          .peer = 4,
                                          .start_ns = start_ns,
                                          .waited_ns = 1500,
                                          .bytes = 4096,
                                          .sequence = 7,
                                          .context = 1,
                                          .message = 9};
}

static void add_many(struct muster_timeline *timeline, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct muster_timeline_event event = event_since(muster_clock_ns());
        muster_timeline_add(timeline, &event);
    }
}

/* Standard error goes into a file until errors_end(), which returns how many lines have come. */
static int errors_begin(void)
{
    int before = dup(STDERR_FILENO);
    int file = open(errors, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    assert_true(before >= 0 && file >= 0);
    assert_true(dup2(file, STDERR_FILENO) >= 0);
    (void)close(file);
    return before;
}

static size_t errors_end(int before, const char *word)
{
    size_t lines = 0;
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    (void)close(before);
    char *text = timeline_read_text(errors);
    if (strstr(text, word) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", text, word);
    }
    for (const char *end = strchr(text, '\n'); end != NULL; end = strchr(end + 1, '\n')) {
        lines++;
    }
    free(text);
    return lines;
}

static void pause_ms(long ms)
{
    const struct timespec wait = {.tv_nsec = ms * 1000000};
    (void)nanosleep(&wait, NULL);
}

static void await_size(uint64_t more_than)
{
    int64_t deadline_ns = muster_clock_after_ms(DEADLINE_MS);
    while (timeline_file_size(path) <= more_than) {
        if (muster_clock_ns() > deadline_ns) {
            fail_msg("%s does not grow", path);
        }
        pause_ms(1);
    }
}

/* Tests --------------------------------------------------------------------------------------- */

static void an_event_is_written_with_all_its_fields(void **state)
{
    (void)state;
    struct muster_timeline *timeline = begin((struct muster_timeline_options){0});
    int64_t start_ns = muster_clock_ns();
    struct muster_timeline_event event = event_since(start_ns);
    muster_timeline_add(timeline, &event);
    event.stage = MUSTER_TIMELINE_CALL;
    event.peer = MUSTER_TIMELINE_NO_PEER;
    event.name = "allreduce";
    event.algorithm = 11;
    muster_timeline_add(timeline, &event);
    muster_timeline_destroy(timeline);
    json_t *events = timeline_load(path);
    const json_t *mark = timeline_find(events, "i", 0);
    assert_int_equal(timeline_argument(mark, "generation"), 3);
    assert_int_equal(timeline_argument(mark, "rank"), 2);
    assert_int_equal(timeline_argument(mark, "size"), 5);
    const json_t *send = timeline_find(events, "X", 0);
    assert_string_equal(timeline_text(send, "cat"), "send");
    assert_int_equal(timeline_number(send, "pid"), 2);
    assert_true(timeline_number(send, "ts") * 1000 - (double)start_ns < 1);
    assert_true((double)start_ns - timeline_number(send, "ts") * 1000 < 1);
    assert_true(timeline_number(send, "dur") > 0);
    assert_int_equal(timeline_argument(send, "peer"), 4);
    assert_int_equal(timeline_argument(send, "bytes"), 4096);
    assert_int_equal(timeline_argument(send, "context"), 1);
    assert_int_equal(timeline_argument(send, "sequence"), 7);
    assert_int_equal(timeline_argument(send, "message"), 9);
    assert_true(timeline_argument(send, "waited_us") == 1.5);
    const json_t *call = timeline_find(events, "X", 1);
    assert_string_equal(timeline_text(call, "name"), "allreduce");
    assert_string_equal(timeline_text(call, "cat"), "call");
    assert_string_equal(timeline_text(json_object_get(call, "args"), "algorithm"), "number 11");
    json_decref(events);
}

/* Viewers show events of one track that overlap as one inside the other. */
static void events_that_overlap_are_on_tracks_of_their_own(void **state)
{
    (void)state;
    struct muster_timeline *timeline = begin((struct muster_timeline_options){0});
    int64_t start_ns = muster_clock_ns();
    struct muster_timeline_event event = event_since(start_ns);
    muster_timeline_add(timeline, &event); /* these two overlap */
    muster_timeline_add(timeline, &event);
    event.peer = 1;
    muster_timeline_add(timeline, &event);
    while (muster_clock_ns() < start_ns + 1000000) {
    }
    event = event_since(muster_clock_ns());
    muster_timeline_add(timeline, &event); /* this one comes after them */
    muster_timeline_destroy(timeline);
    json_t *events = timeline_load(path);
    double tracks[4];
    for (size_t i = 0; i < 4; i++) {
        tracks[i] = timeline_number(timeline_find(events, "X", i), "tid");
    }
    assert_true(tracks[0] != tracks[1] && tracks[0] != tracks[2] && tracks[1] != tracks[2]);
    assert_true(tracks[0] == tracks[3]);
    /* Each of the three tracks has a name. */
    const char *const names[] = {"send to 4", "send to 4 (2)", "send to 1"};
    for (size_t i = 0; i < 3; i++) {
        const json_t *name = timeline_find(events, "M", 1 + 2 * i);
        assert_string_equal(timeline_text(json_object_get(name, "args"), "name"), names[i]);
        assert_true(timeline_number(name, "tid") == tracks[i]);
    }
    json_decref(events);
}

static void the_file_is_valid_json_after_each_write(void **state)
{
    (void)state;
    struct muster_timeline *timeline = begin((struct muster_timeline_options){0});
    for (size_t i = 0; i < 5; i++) {
        uint64_t before = i == 0 ? 0 : timeline_file_size(path);
        if (i > 0) {
            add_many(timeline, 1);
        }
        await_size(before);
        json_t *events = timeline_load(path);
        assert_true(timeline_count(events, "X") <= i);
        json_decref(events);
    }
    muster_timeline_destroy(timeline);
    json_t *events = timeline_load(path);
    assert_int_equal(timeline_count(events, "X"), 4);
    json_decref(events);
}

static void run_until_killed(void)
{
    struct muster_timeline *timeline = begin((struct muster_timeline_options){0});
    for (;;) {
        add_many(timeline, 1000);
    }
}

static void the_file_of_a_member_that_was_killed_can_be_read(void **state)
{
    (void)state;
    const char *given = getenv("MUSTER_SEED");
    uint64_t random = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)muster_clock_ns();
    size_t whole_count = 0;
    printf("MUSTER_SEED=%llu\n", (unsigned long long)random);
    (void)fflush(stdout);
    for (int i = 0; i < KILLS; i++) {
        (void)remove_file(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            run_until_killed();
        }
        random = random * 6364136223846793005U + 1442695040888963407U;
        await_size((random >> 33) % KILL_WITHIN_BYTES);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        bool whole = false;
        json_t *events = load_as_viewer(&whole);
        whole_count += whole;
        json_decref(events);
    }
    printf("%zu of %d files had the end of the list\n", whole_count, KILLS);
}

static void events_without_room_in_the_ring_are_counted(void **state)
{
    (void)state;
    struct muster_timeline *timeline = begin((struct muster_timeline_options){.ring_events = 16});
    add_many(timeline, 20000);
    muster_timeline_destroy(timeline);
    json_t *events = timeline_load(path);
    assert_true(count_dropped(events) > 0);
    assert_int_equal(timeline_count(events, "X") + count_dropped(events), 20000);
    json_decref(events);
}

static void *add_in_thread(void *timeline)
{
    add_many(timeline, 5000);
    return NULL;
}

static void several_threads_add_at_once(void **state)
{
    (void)state;
    struct muster_timeline *timeline = begin((struct muster_timeline_options){0});
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, add_in_thread, timeline), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    muster_timeline_destroy(timeline);
    json_t *events = timeline_load(path);
    assert_int_equal(timeline_count(events, "X") + count_dropped(events), 20000);
    json_decref(events);
}

static void the_file_has_a_bound_and_a_mark_where_it_is_reached(void **state)
{
    (void)state;
    int before = errors_begin();
    struct muster_timeline *timeline =
        begin((struct muster_timeline_options){.file_bytes_max = 100000});
    add_many(timeline, 5000);
    muster_timeline_destroy(timeline);
    assert_int_equal(errors_end(before, "it is full"), 1);
    assert_in_range(timeline_file_size(path), 80000, 100000);
    json_t *events = timeline_load(path);
    const json_t *last = json_array_get(events, json_array_size(events) - 1);
    assert_non_null(strstr(timeline_text(last, "name"), "full"));
    json_decref(events);
}

static void a_file_that_cannot_be_made_is_one_line_of_the_log(void **state)
{
    (void)state;
    const struct muster_timeline_options options = {.prefix = "/proc/no/t"};
    int before = errors_begin();
    struct muster_timeline *timeline = muster_timeline_create(&options);
    muster_timeline_begin(timeline, 1, 0, 1);
    add_many(timeline, 1000);
    muster_timeline_begin(timeline, 2, 0, 1);
    add_many(timeline, 1000);
    muster_timeline_destroy(timeline);
    assert_int_equal(errors_end(before, "/proc/no/t.1.0.json: No such file"), 1);
}

/* The file must not grow beyond a limit: writes fail as on a full disk. Other than there, the
 * kernel also sends a signal (SIGXFSZ). */
static void a_file_that_cannot_grow_keeps_what_it_has(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    int error = errors_begin();
    struct muster_timeline *timeline = begin((struct muster_timeline_options){0});
    add_many(timeline, 10);
    await_size(1000);
    struct rlimit small = {.rlim_cur = 10000, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    add_many(timeline, 1000);
    muster_timeline_destroy(timeline);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(errors_end(error, "t.3.2.json: File too large"), 1);
    json_t *events = timeline_load(path);
    assert_true(timeline_count(events, "X") >= 10);
    json_decref(events);
}

static void an_older_file_is_replaced_and_not_followed(void **state)
{
    (void)state;
    assert_int_equal(symlink("/dev/full", path), 0);
    struct muster_timeline *timeline = begin((struct muster_timeline_options){0});
    muster_timeline_destroy(timeline);
    json_decref(timeline_load(path));
    struct stat status;
    assert_int_equal(lstat(path, &status), 0);
    assert_true(S_ISREG(status.st_mode));
}

static void without_a_timeline_nothing_is_done(void **state)
{
    (void)state;
    struct muster_timeline_options none = {.prefix = NULL};
    struct muster_timeline *timeline = muster_timeline_create(&none);
    assert_null(timeline);
    assert_int_equal(muster_timeline_clock(timeline), 0);
    muster_timeline_begin(timeline, 1, 0, 1);
    add_many(timeline, 1);
    muster_timeline_destroy(timeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_event_is_written_with_all_its_fields, remove_file),
        cmocka_unit_test_setup(events_that_overlap_are_on_tracks_of_their_own, remove_file),
        cmocka_unit_test_setup(the_file_is_valid_json_after_each_write, remove_file),
        cmocka_unit_test_setup(the_file_of_a_member_that_was_killed_can_be_read, remove_file),
        cmocka_unit_test_setup(events_without_room_in_the_ring_are_counted, remove_file),
        cmocka_unit_test_setup(several_threads_add_at_once, remove_file),
        cmocka_unit_test_setup(the_file_has_a_bound_and_a_mark_where_it_is_reached, remove_file),
        cmocka_unit_test_setup(a_file_that_cannot_be_made_is_one_line_of_the_log, remove_file),
        cmocka_unit_test_setup(a_file_that_cannot_grow_keeps_what_it_has, remove_file),
        cmocka_unit_test_setup(an_older_file_is_replaced_and_not_followed, remove_file),
        cmocka_unit_test_setup(without_a_timeline_nothing_is_done, remove_file),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
