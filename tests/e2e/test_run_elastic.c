/* `muster run` from the first worker to the summary: real workers, a musterd of its own, and
 * deaths, resizes and signals. */
#include "tests/support/command.h"
#include "tests/support/service.h"
#include "worker/base/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ARGUMENTS_MAX = 32, PATH_SIZE = 256, GROUP_END_MS = 10000 /* of the launcher */ };

/* A job under test, with a folder for its files. */
struct job {
    struct command run;
    char folder[64];
    char stop_file[PATH_SIZE], token_file[PATH_SIZE], json_file[PATH_SIZE];
};

static void start_job(struct job *job, const char *options, const char *worker_options)
{
    char muster[PATH_MAX];
    char worker[PATH_MAX];
    char words[4 * PATH_MAX];
    char *argv[ARGUMENTS_MAX + 1];
    int count = 0;
    (void)snprintf(job->folder, sizeof job->folder, "/tmp/muster-test-XXXXXX");
    assert_non_null(mkdtemp(job->folder));
    (void)snprintf(job->stop_file, PATH_SIZE, "%s/stop", job->folder);
    (void)snprintf(job->token_file, PATH_SIZE, "%s/token", job->folder);
    (void)snprintf(job->json_file, PATH_SIZE, "%s/json", job->folder);
    (void)snprintf(muster, sizeof muster, "%s", command_path("muster"));
    (void)snprintf(worker, sizeof worker, "%s", command_path("../tests/run_steps"));
    (void)snprintf(
        words, sizeof words, "%s run --job steps --token-file %s --json %s %s -- %s %s %s", muster,
        job->token_file, job->json_file, options, worker, job->stop_file, worker_options);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
        assert_true(count < ARGUMENTS_MAX);
        argv[count++] = word;
    }
    argv[count] = NULL;
    command_start(&job->run, argv);
}

static void await(struct job *job, const char *text)
{
    if (!command_await(&job->run, text)) {
        print_message("\"%s\" was not printed:\n%s%s", text, job->run.output.bytes,
                      job->run.error.bytes);
        fail();
    }
}

/* The number after the text, which has been printed. */
static pid_t number_after(const struct job *job, const char *text)
{
    const char *at = strstr(job->run.output.bytes, text);
    at = at != NULL ? at : strstr(job->run.error.bytes, text);
    assert_non_null(at);
    return (pid_t)strtol(at + strlen(text), NULL, 10);
}

static pid_t pid_of(struct job *job, int order)
{
    char text[64];
    (void)snprintf(text, sizeof text, "order=%d pid=", order);
    await(job, text);
    return number_after(job, text);
}

static void find_url(struct job *job, char *url, size_t size)
{
    char text[64] = "";
    const char *at = strstr(job->run.error.bytes, "--rendezvous http://");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "--rendezvous %63s", text), 1);
    (void)snprintf(url, size, "%s", text);
}

/* Returns the exit status of `muster job resize`. */
static int try_resize(struct job *job, const char *size)
{
    char url[64];
    find_url(job, url, sizeof url);
    char *argv[] = {(char *)(uintptr_t)command_path("muster"),
                    (char *)"job",
                    (char *)"resize",
                    (char *)"steps",
                    (char *)(uintptr_t)size,
                    (char *)"--rendezvous",
                    url,
                    (char *)"--token-file",
                    job->token_file,
                    NULL};
    struct command command;
    command_start(&command, argv);
    int status = command_wait(&command);
    print_message("%s%s", command.output.bytes, command.error.bytes);
    command_finish(&command);
    return status;
}

static void resize(struct job *job, const char *size)
{
    assert_int_equal(try_resize(job, size), 0);
}

/* The server may just be starting. */
static void resize_when_served(struct job *job, const char *size)
{
    int64_t deadline_ns = muster_clock_after_ms(COMMAND_TIMEOUT_MS);
    int status = 1;
    while (status != 0 && muster_clock_left_ms(deadline_ns) > 0) {
        status = try_resize(job, size);
    }
    assert_int_equal(status, 0);
}

static void create_stop_file(const struct job *job)
{
    int fd = open(job->stop_file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

/* Waits for the end; *ret_summary belongs to the caller. */
static void end_job(struct job *job, int expected, json_t **ret_summary)
{
    int status = command_wait(&job->run);
    if (status != expected) {
        print_message("%s%s", job->run.output.bytes, job->run.error.bytes);
    }
    assert_int_equal(status, expected);
    json_error_t error;
    *ret_summary = json_load_file(job->json_file, 0, &error);
    assert_non_null(*ret_summary);
    assert_int_equal(json_integer_value(json_object_get(*ret_summary, "exit_status")), expected);
}

static void finish_job(struct job *job, json_t *summary)
{
    json_decref(summary);
    command_finish(&job->run);
    (void)unlink(job->stop_file);
    (void)unlink(job->token_file);
    (void)unlink(job->json_file);
    assert_int_equal(rmdir(job->folder), 0);
}

static size_t count_departures(const json_t *summary, const char *reason)
{
    size_t count = 0;
    size_t index;
    json_t *departure;
    json_array_foreach(json_object_get(summary, "departures"), index, departure)
    {
        const char *found = json_string_value(json_object_get(departure, "reason"));
        count += found != NULL && strcmp(found, reason) == 0 ? 1 : 0;
    }
    return count;
}

static json_int_t size_of_last_generation(const json_t *summary)
{
    const json_t *generations = json_object_get(summary, "generations");
    assert_true(json_array_size(generations) > 0);
    const json_t *last = json_array_get(generations, json_array_size(generations) - 1);
    return json_integer_value(json_object_get(last, "size"));
}

static void expect_outcome(const json_t *summary, const char *expected)
{
    assert_string_equal(json_string_value(json_object_get(summary, "outcome")), expected);
}

static void a_job_grows_loses_a_worker_shrinks_and_finishes(void **state)
{
    (void)state;
    struct job job;
    json_t *summary = NULL;
    char text[128];
    start_job(&job, "-n 4 --min 2 --max 8 --hosts a:2,b:2", "");
    await(&job, ": 4 workers on 2 hosts");
    resize(&job, "6");
    await(&job, "started worker 5 (host b, ");
    await(&job, ": 6 workers on 2 hosts");
    pid_t victim = pid_of(&job, 1);
    assert_int_equal(kill(victim, SIGKILL), 0);
    (void)snprintf(text, sizeof text,
                   "worker 1 (host a, pid %d) was killed by signal 9 (Killed); not replaced",
                   (int)victim);
    await(&job, text);
    await(&job, ": 5 workers on 2 hosts");
    pid_t leaver = pid_of(&job, 2);
    assert_int_equal(kill(leaver, SIGTERM), 0);
    (void)snprintf(text, sizeof text, "worker 2 (host b, pid %d) left as asked, with exit status 0",
                   (int)leaver);
    await(&job, text);
    create_stop_file(&job);
    end_job(&job, 0, &summary);
    expect_outcome(summary, "finished");
    assert_int_equal(size_of_last_generation(summary), 4);
    assert_int_equal(count_departures(summary, "died"), 1);
    assert_int_equal(count_departures(summary, "planned"), 1);
    assert_int_equal(count_departures(summary, "finished"), 4);
    assert_int_equal(json_array_size(json_object_get(summary, "workers")), 6);
    const json_t *first = json_array_get(json_object_get(summary, "generations"), 0);
    assert_true(json_is_integer(json_object_get(first, "next_after_ms")));
    finish_job(&job, summary);
}

static void a_resize_down_ends_the_workers_of_the_highest_ranks(void **state)
{
    (void)state;
    struct job job;
    json_t *summary = NULL;
    start_job(&job, "-n 3 --min 1", "");
    await(&job, ": 3 workers on 1 host");
    resize(&job, "1");
    await(&job, "the job's target size is now 1 worker\n");
    await(&job, "worker 2 (pid ");
    await(&job, "worker 1 (pid ");
    await(&job, ": 1 worker on 1 host");
    create_stop_file(&job);
    end_job(&job, 0, &summary);
    assert_int_equal(count_departures(summary, "planned"), 2);
    assert_int_equal(command_count(job.run.error.bytes, "left as asked, with exit status 0"), 2);
    finish_job(&job, summary);
}

/* The target is the size that the job has lost: the launcher starts as many as are missing. */
static void a_resize_to_the_present_target_replaces_who_died(void **state)
{
    (void)state;
    struct job job;
    json_t *summary = NULL;
    start_job(&job, "-n 3 --min 1", "");
    await(&job, ": 3 workers on 1 host");
    assert_int_equal(kill(pid_of(&job, 1), SIGKILL), 0);
    await(&job, ": 2 workers on 1 host");
    resize(&job, "3");
    await(&job, "started worker 3 (");
    await(&job, "[3] step generation=");
    create_stop_file(&job);
    end_job(&job, 0, &summary);
    assert_int_equal(size_of_last_generation(summary), 3);
    assert_int_equal(count_departures(summary, "died"), 1);
    finish_job(&job, summary);
}

/* So a device that is chosen by slot never is that of a living worker. */
static void who_replaces_a_worker_takes_its_slot_and_the_others_keep_theirs(void **state)
{
    (void)state;
    struct job job;
    json_t *summary = NULL;
    start_job(&job, "-n 4 --min 1", "");
    await(&job, "size=4 order=0 local=0 slot=0");
    await(&job, "size=4 order=1 local=1 slot=1");
    await(&job, "size=4 order=2 local=2 slot=2");
    await(&job, "size=4 order=3 local=3 slot=3");
    assert_int_equal(kill(pid_of(&job, 1), SIGKILL), 0);
    await(&job, "size=3 order=2 local=1 slot=2");
    await(&job, "size=3 order=3 local=2 slot=3");
    resize(&job, "4");
    await(&job, "size=4 order=4 local=3 slot=1");
    await(&job, "size=4 order=0 local=0 slot=0");
    await(&job, "size=4 order=2 local=1 slot=2");
    await(&job, "size=4 order=3 local=2 slot=3");
    create_stop_file(&job);
    end_job(&job, 0, &summary);
    assert_int_equal(size_of_last_generation(summary), 4);
    finish_job(&job, summary);
}

static void a_member_of_the_last_generation_that_fails_counts(void **state)
{
    (void)state;
    struct job job;
    json_t *summary = NULL;
    start_job(&job, "-n 3", "1 7");
    await(&job, ": 3 workers on 1 host");
    create_stop_file(&job);
    end_job(&job, 7, &summary);
    expect_outcome(summary, "failed");
    finish_job(&job, summary);
}

static void a_job_below_its_minimum_that_no_other_worker_can_join_ends_at_once(void **state)
{
    (void)state;
    struct job job;
    json_t *summary = NULL;
    start_job(&job, "-n 3", "");
    await(&job, ": 3 workers on 1 host");
    assert_int_equal(kill(pid_of(&job, 1), SIGKILL), 0);
    await(&job,
          "only 2 of at least 3 workers are left (--min), and no others will join: ending the job");
    end_job(&job, 128 + SIGKILL, &summary);
    finish_job(&job, summary);
}

static void a_job_below_its_minimum_waits_for_the_given_timeout(void **state)
{
    (void)state;
    struct job job;
    json_t *summary = NULL;
    start_job(&job, "-n 2 --timeout 1", "");
    await(&job, ": 2 workers on 1 host");
    assert_int_equal(kill(pid_of(&job, 1), SIGKILL), 0);
    await(&job, "only 1 of at least 2 workers are left (--min): the job waits 1 s for more");
    end_job(&job, 128 + SIGKILL, &summary);
    expect_outcome(summary, "failed");
    finish_job(&job, summary);
}

static void the_first_signal_is_a_planned_end(void **state)
{
    (void)state;
    struct job job;
    json_t *summary = NULL;
    start_job(&job, "-n 3", "");
    await(&job, "step generation=1");
    assert_int_equal(kill(job.run.pid, SIGINT), 0);
    end_job(&job, 128 + SIGINT, &summary);
    expect_outcome(summary, "interrupted");
    assert_int_equal(count_departures(summary, "died"), 0);
    assert_int_equal(count_departures(summary, "planned"), 3);
    finish_job(&job, summary);
}

/* The launcher's own musterd: its child of that name. */
static pid_t find_musterd(pid_t launcher)
{
    char path[64];
    char children[512] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(children, sizeof children, file) == NULL) {
        children[0] = '\0';
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    for (char *word = strtok(children, " "); word != NULL; word = strtok(NULL, " ")) {
        char name[32] = "";
        (void)snprintf(path, sizeof path, "/proc/%.16s/comm", word);
        file = fopen(path, "re");
        const char *got = file != NULL ? fgets(name, sizeof name, file) : NULL;
        if (file != NULL) {
            (void)fclose(file);
        }
        if (got != NULL && strcmp(name, "musterd\n") == 0) {
            return (pid_t)strtol(word, NULL, 10);
        }
    }
    return 0;
}

static pid_t child_of(struct job *job, int order)
{
    char text[64];
    (void)snprintf(text, sizeof text, "order=%d child=", order);
    await(job, text);
    return number_after(job, text);
}

/* The children are in sessions of their own: the launcher ends no process group of theirs. They
 * have its workers' pipes open. */
static void children_that_outlive_their_workers_do_not_keep_a_job_from_ending(void **state)
{
    (void)state;
    struct job job;
    json_t *summary = NULL;
    pid_t children[3];
    assert_int_equal(setenv("RUN_STEPS_CHILD", "session", 1), 0);
    start_job(&job, "-n 3 --min 1 --max 3", "");
    assert_int_equal(unsetenv("RUN_STEPS_CHILD"), 0);
    for (int i = 0; i < 3; i++) {
        children[i] = child_of(&job, i);
    }
    assert_int_equal(kill(pid_of(&job, 1), SIGKILL), 0);
    await(&job, "step generation=2");
    create_stop_file(&job);
    int64_t stopped_ms = muster_clock_ms();
    end_job(&job, 0, &summary);
    print_message("ended %" PRId64 " ms after the stop\n", muster_clock_ms() - stopped_ms);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kill(children[i], SIGKILL), 0); /* alive until now */
    }
    finish_job(&job, summary);
}

/* The launcher waits for all processes of a worker's group, up to 10 s. */
static void a_signal_ends_children_of_workers_at_once(void **state)
{
    (void)state;
    struct job job;
    json_t *summary = NULL;
    assert_int_equal(setenv("RUN_STEPS_CHILD", "group", 1), 0);
    start_job(&job, "-n 2", "");
    assert_int_equal(unsetenv("RUN_STEPS_CHILD"), 0);
    (void)child_of(&job, 0);
    (void)child_of(&job, 1);
    int64_t stopped_ms = muster_clock_ms();
    assert_int_equal(kill(job.run.pid, SIGINT), 0);
    end_job(&job, 128 + SIGINT, &summary);
    int64_t took_ms = muster_clock_ms() - stopped_ms;
    print_message("ended %" PRId64 " ms after the signal\n", took_ms);
    assert_true(took_ms < GROUP_END_MS);
    finish_job(&job, summary);
}

/* Killed, it is started again on the same port with the same store: the job grows afterwards. */
static void the_jobs_own_server_is_started_again(void **state)
{
    (void)state;
    struct job job;
    json_t *summary = NULL;
    start_job(&job, "-n 2 --max 3", "");
    await(&job, ": 2 workers on 1 host");
    await(&job, "step generation=1");
    pid_t musterd = find_musterd(job.run.pid);
    if (musterd == 0) { /* a kernel without /proc/PID/task/TID/children */
        create_stop_file(&job);
        end_job(&job, 0, &summary);
        finish_job(&job, summary);
        skip();
    }
    assert_int_equal(kill(musterd, SIGKILL), 0);
    await(&job, "has ended (signal 9); started again (pid ");
    resize_when_served(&job, "3");
    await(&job, "size=3 order=2 local=2 slot=2");
    create_stop_file(&job);
    end_job(&job, 0, &summary);
    expect_outcome(summary, "finished");
    assert_int_equal(size_of_last_generation(summary), 3);
    finish_job(&job, summary);
}

/* A worker that a user starts by hand, with the address and the token that the launcher prints. */
static void the_server_serves_until_members_from_elsewhere_have_ended(void **state)
{
    (void)state;
    struct job job;
    json_t *summary = NULL;
    start_job(&job, "-n 1 --max 2", "");
    await(&job, "size=1 order=0");
    char url[64] = "";
    find_url(&job, url, sizeof url);
    char token[256] = "";
    FILE *file = fopen(job.token_file, "re");
    assert_non_null(file);
    assert_non_null(fgets(token, sizeof token, file));
    (void)fclose(file);
    token[strcspn(token, "\n")] = '\0';
    (void)setenv("MUSTER_RENDEZVOUS", url, 1);
    (void)setenv("MUSTER_JOB", "steps", 1);
    (void)setenv("MUSTER_TOKEN", token, 1);
    (void)setenv("MUSTER_MAX", "2", 1);
    char *argv[] = {(char *)(uintptr_t)command_path("../tests/run_steps"), job.stop_file, NULL};
    struct command other;
    command_start(&other, argv);
    assert_true(command_await(&other, "size=2"));
    assert_int_equal(kill(pid_of(&job, 0), SIGKILL), 0);
    await(&job, "no worker of this launcher is left; the job continues with 1 member started");
    assert_true(command_await(&other, "size=1"));
    create_stop_file(&job);
    assert_int_equal(command_wait(&other), 0);
    command_finish(&other);
    end_job(&job, 0, &summary);
    expect_outcome(summary, "finished");
    finish_job(&job, summary);
}

/* Three workers, each a program without muster_run(): one stops after three steps, and the others
 * would go on. */
static void who_is_ended_because_another_finished_is_told_so(void **state)
{
    (void)state;
    struct job job;
    json_t *summary = NULL;
    start_job(&job, "-n 3 --env RUN_STEPS_OF_ORDER_1=3", "");
    await(&job, "ended, not finished: rank 1 (host ");
    end_job(&job, 0, &summary);
    assert_int_equal(count_departures(summary, "finished"), 1);
    assert_non_null(strstr(job.run.error.bytes, "1 worker finished"));
    assert_null(strstr(job.run.error.bytes, "3 workers finished"));
    finish_job(&job, summary);
}

static int clear_environment(void **state)
{
    (void)state;
    static const char *const names[] = {"MUSTER_RENDEZVOUS", "MUSTER_JOB", "MUSTER_TOKEN",
                                        "MUSTER_MIN",        "MUSTER_MAX", "MUSTER_HOST"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)unsetenv(names[i]);
    }
    return 0;
}

int main(void)
{
    if (!test_service_built()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_grows_loses_a_worker_shrinks_and_finishes),
        cmocka_unit_test(a_resize_down_ends_the_workers_of_the_highest_ranks),
        cmocka_unit_test(a_resize_to_the_present_target_replaces_who_died),
        cmocka_unit_test(who_replaces_a_worker_takes_its_slot_and_the_others_keep_theirs),
        cmocka_unit_test(a_member_of_the_last_generation_that_fails_counts),
        cmocka_unit_test(a_job_below_its_minimum_that_no_other_worker_can_join_ends_at_once),
        cmocka_unit_test(a_job_below_its_minimum_waits_for_the_given_timeout),
        cmocka_unit_test(the_first_signal_is_a_planned_end),
        cmocka_unit_test(the_jobs_own_server_is_started_again),
        cmocka_unit_test_teardown(the_server_serves_until_members_from_elsewhere_have_ended,
                                  clear_environment),
        cmocka_unit_test(who_is_ended_because_another_finished_is_told_so),
        cmocka_unit_test(children_that_outlive_their_workers_do_not_keep_a_job_from_ending),
        cmocka_unit_test(a_signal_ends_children_of_workers_at_once),
    };
    return cmocka_run_group_tests(tests, clear_environment, NULL);
}
