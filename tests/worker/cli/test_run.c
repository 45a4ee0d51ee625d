/* muster run with workers that do not use the library: output, signals, ends. Growth and the life
 * of a real job are in tests/e2e. */
#include "tests/support/command.h"

#include <jansson.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { ARGUMENTS_MAX = 24 };

/* The words are split at blanks. A script, if there is one, is run by sh -c. */
static void start_run(struct command *command, const char *words, const char *script)
{
    char copy[512];
    char muster[PATH_MAX];
    char run[] = "run";
    char *argv[ARGUMENTS_MAX + 6] = {muster, run};
    int count = 2;
    (void)snprintf(copy, sizeof copy, "%s", words);
    (void)snprintf(muster, sizeof muster, "%s", command_path("muster"));
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        assert_true(count < ARGUMENTS_MAX);
        argv[count++] = word;
    }
    char end[] = "--";
    char shell[] = "sh";
    char option[] = "-c";
    if (script != NULL) {
        argv[count++] = end;
        argv[count++] = shell;
        argv[count++] = option;
        argv[count++] = (char *)(uintptr_t)script;
    }
    argv[count] = NULL;
    command_start(command, argv);
}

/* Waits for the end and compares the exit status. The caller finishes the command. */
static void expect_run(struct command *command, const char *words, const char *script, int expected)
{
    start_run(command, words, script);
    int status = command_wait(command);
    if (status != expected) {
        print_message("%s%s", command->output.bytes, command->error.bytes);
    }
    assert_int_equal(status, expected);
}

static void expect_error(const char *words, const char *script, int expected, const char *text)
{
    struct command command;
    expect_run(&command, words, script, expected);
    if (strstr(command.error.bytes, text) == NULL) {
        print_message("%s", command.error.bytes);
    }
    assert_non_null(strstr(command.error.bytes, text));
    command_finish(&command);
}

static void a_job_whose_workers_all_succeed_ends_with_status_0(void **state)
{
    (void)state;
    expect_error("-n 3", "exit 0", 0, "exit status 0");
}

static void a_worker_that_fails_is_named_and_its_status_is_the_job_s(void **state)
{
    (void)state;
    expect_error("-n 3 --hosts a:2,b:1", "test $MUSTER_ORDER != 2 || exit 3", 3,
                 "worker 2 (host b, pid ");
    expect_error("-n 3", "test $MUSTER_ORDER != 1 || exit 3", 3,
                 "failed with exit status 3; not replaced");
}

static void the_signal_that_killed_a_worker_is_in_the_exit_status(void **state)
{
    (void)state;
    expect_error("-n 2", "test $MUSTER_ORDER != 1 || kill -9 $$", 128 + SIGKILL,
                 "was killed by signal 9 (Killed); not replaced");
}

static void the_first_failure_gives_the_exit_status(void **state)
{
    (void)state;
    char folder[] = "/tmp/muster-test-XXXXXX";
    char script[512];
    assert_non_null(mkdtemp(folder));
    /* The second worker ends when the launcher has reaped the first one, whose pid is then unused.
     */
    (void)snprintf(script, sizeof script,
                   "if [ $MUSTER_ORDER = 0 ]; then echo $$ >%s/w; mv %s/w %s/pid; exit 5; fi; "
                   "until test -f %s/pid; do sleep 0.01; done; p=$(cat %s/pid); "
                   "while kill -0 $p 2>/dev/null; do sleep 0.01; done; exit 6",
                   folder, folder, folder, folder, folder);
    expect_error("-n 2", script, 5, "exit status 5");
    (void)snprintf(script, sizeof script, "%s/pid", folder);
    (void)unlink(script);
    (void)rmdir(folder);
}

static void a_command_that_cannot_be_executed_is_one_line(void **state)
{
    (void)state;
    expect_error("-n 2 -- no-such-command", NULL, 127, "cannot execute \"no-such-command\"");
    expect_error("-n 2 -- /etc/passwd", NULL, 126, "cannot execute \"/etc/passwd\"");
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"--hosts a:x,b:2 -- true", "\"x\" is not a number"},
        {"--hosts a:0 -- true", "\"0\" is not a number"},
        {"--hosts a:2,,b -- true", "--hosts: \"\""},
        {"--hosts a:2,a:1 -- true", "\"a\" is named twice"},
        {"--hosts a/b:2 -- true", "\"a/b:2\""},
        {"--hosts a:1000,b:1000 -- true", "more than 1024 slots"},
        {"-n 5 --hosts a:2,b:2 -- true", "--hosts has only 4 slots"},
        {"-n 0 -- true", "-n: \"0\""},
        {"-n 4 --max 3 -- true", "--max 3 is less than -n 4"},
        {"-n 2 --min 3 -- true", "--min 3 is more than -n 2"},
        {"-n 2 --min 3 --max 2 --rendezvous http://127.0.0.1:1 -- true", "less than --min 3"},
        {"-n 1 --job a/b -- true", "--job: \"a/b\""},
        {"-n 1 --rendezvous here -- true", "rendezvous \"here\""},
        {"-n 1 --store x --rendezvous http://127.0.0.1:1 -- true", "--store"},
        {"-n 1 --lease-ms 9 --rendezvous http://127.0.0.1:1 -- true", "--lease-ms"},
        {"-n 1 --arrive-ms soon -- true", "--arrive-ms: \"soon\""},
        {"-n 1 --env NAME -- true", "NAME=VALUE"},
        {"-n 1 --timeout never -- true", "--timeout: \"never\""},
        {"-n 1 --no-such-option -- true", "unrecognized option"},
        {"-n 1", "a command is missing"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        expect_error(wrong[i][0], NULL, 2, wrong[i][1]);
        expect_error(wrong[i][0], NULL, 2, "--help");
    }
}

static void lines_have_the_prefix_of_their_worker(void **state)
{
    (void)state;
    struct command command;
    expect_run(&command, "-n 3 --hosts a:2,b:1", "echo out $MUSTER_HOST; echo err >&2; printf end",
               0);
    const char *output = command.output.bytes;
    assert_non_null(strstr(output, "[a:0] out a\n"));
    assert_non_null(strstr(output, "[a:1] out a\n"));
    assert_non_null(strstr(output, "[b:0] out b\n"));
    assert_int_equal(command_count(output, "] end\n"), 3);
    assert_null(strstr(output, "err"));
    assert_non_null(strstr(command.error.bytes, "[b:0] err\n"));
    command_finish(&command);

    expect_run(&command, "-n 2", "echo out", 0);
    assert_non_null(strstr(command.output.bytes, "[1] out\n"));
    command_finish(&command);

    expect_run(&command, "-n 2 --no-prefix", "echo out", 0);
    assert_string_equal(command.output.bytes, "out\nout\n");
    command_finish(&command);
}

static void lines_are_not_mixed_and_long_ones_are_continued(void **state)
{
    (void)state;
    struct command command;
    /* Each worker prints a line of 50,000 of its own letter, in pieces. */
    expect_run(&command, "-n 2",
               "l=$(echo ab | cut -c$((MUSTER_ORDER+1))); "
               "for i in 1 2 3 4 5; do printf '%010000d' 0 | tr 0 $l; done; echo",
               0);
    size_t letters[2] = {0};
    for (char *line = strtok(command.output.bytes, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        assert_true(strncmp(line, "[0] ", 4) == 0 || strncmp(line, "[1] ", 4) == 0);
        int worker = line[1] - '0';
        const char mine[] = {(char)('a' + worker), '\0'};
        size_t length = strspn(line + 4, mine);
        assert_int_equal(length, strlen(line + 4));
        assert_true(length <= 16 * 1024);
        letters[worker] += length;
    }
    assert_int_equal(letters[0], 50000);
    assert_int_equal(letters[1], 50000);
    command_finish(&command);
}

static void output_after_a_flood_is_printed(void **state)
{
    (void)state;
    struct command command;
    start_run(&command, "-n 1", "yes flood | head -c 3000000; echo here; exec sleep 1000");
    assert_true(command_await(&command, "[0] here\n"));
    assert_int_equal(kill(command.pid, SIGTERM), 0);
    assert_int_equal(command_wait(&command), 128 + SIGTERM);
    command_finish(&command);
}

static void a_worker_that_floods_does_not_silence_the_others(void **state)
{
    (void)state;
    struct command command;
    start_run(&command, "-n 3",
              "if [ $MUSTER_ORDER = 0 ]; then exec yes flood; fi; echo here; exec sleep 1000");
    assert_true(command_await(&command, "[1] here\n"));
    assert_true(command_await(&command, "[2] here\n"));
    assert_int_equal(kill(command.pid, SIGTERM), 0);
    assert_int_equal(command_wait(&command), 128 + SIGTERM);
    command_finish(&command);
}

static void a_reader_that_does_not_read_delays_no_signal(void **state)
{
    (void)state;
    struct command command;
    start_run(&command, "-n 1", "echo up >&2; exec yes");
    assert_true(command_await(&command, "[0] up\n"));
    assert_int_equal(kill(command.pid, SIGTERM), 0);
    assert_true(command_gone(command.pid)); /* its standard output has not been read meanwhile */
    assert_int_equal(command_wait(&command), 128 + SIGTERM);
    command_finish(&command);
}

static void a_reader_that_ends_does_not_end_the_job(void **state)
{
    (void)state;
    struct command command;
    start_run(&command, "-n 1",
              "echo one; read x; i=0; while [ $i -lt 100 ]; do echo $i; "
              "i=$((i+1)); done; echo done >&2; exit 4");
    close(command.output.fd);
    command.output.fd = -1;
    assert_int_equal(command_wait(&command), 4);
    assert_non_null(strstr(command.error.bytes, "[0] done\n"));
    assert_non_null(strstr(command.error.bytes, "standard output: Broken pipe"));
    command_finish(&command);
}

static void workers_get_the_job_in_their_environment(void **state)
{
    (void)state;
    struct command command;
    expect_run(&command,
               "-n 2 --min 1 --max 3 --job name --timeout 7 --env A=1 --env MUSTER_LOG=info",
               "echo $MUSTER_JOB $MUSTER_MIN $MUSTER_MAX $MUSTER_TARGET $MUSTER_JOIN_TIMEOUT_MS $A "
               "$MUSTER_LOG; echo $MUSTER_RENDEZVOUS; echo order $MUSTER_ORDER",
               0);
    assert_non_null(strstr(command.output.bytes, "[0] name 1 3 2 7000 1 info\n"));
    assert_non_null(strstr(command.output.bytes, "[0] http://127.0.0.1:"));
    assert_non_null(strstr(command.output.bytes, "[1] order 1\n"));
    command_finish(&command);
}

static void the_first_signal_asks_workers_to_end_and_the_second_kills(void **state)
{
    (void)state;
    struct command command;
    start_run(&command, "-n 2",
              "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.05; "
              "done");
    assert_true(command_await(&command, "[0] up\n"));
    assert_true(command_await(&command, "[1] up\n"));
    assert_int_equal(kill(command.pid, SIGINT), 0);
    assert_int_equal(command_wait(&command), 128 + SIGINT);
    assert_int_equal(command_count(command.output.bytes, "asked"), 2);
    command_finish(&command);

    start_run(&command, "-n 2", "trap 'echo asked' TERM; echo up; while :; do sleep 0.05; done");
    assert_true(command_await(&command, "[0] up\n"));
    assert_true(command_await(&command, "[1] up\n"));
    assert_int_equal(kill(command.pid, SIGINT), 0);
    assert_true(command_await(&command, "[0] asked\n"));
    assert_true(command_await(&command, "[1] asked\n"));
    assert_int_equal(kill(command.pid, SIGINT), 0);
    assert_int_equal(command_wait(&command), 128 + SIGINT);
    assert_non_null(strstr(command.error.bytes, "killing 2 workers"));
    command_finish(&command);
}

static void a_server_that_never_answered_does_not_answer_again(void **state)
{
    (void)state;
    struct command command;
    start_run(&command, "-n 1 --rendezvous http://127.0.0.1:1", "while :; do sleep 0.05; done");
    assert_true(command_await(&command, "the job cannot grow until the server answers\n"));
    assert_int_equal(kill(command.pid, SIGTERM), 0);
    assert_int_equal(command_wait(&command), 128 + SIGTERM);
    assert_null(strstr(command.error.bytes, "answers again"));
    command_finish(&command);
}

/* The numbers after each "pid " in the text. */
static size_t read_pids(const char *text, pid_t *pids, size_t max)
{
    size_t count = 0;
    for (const char *at = strstr(text, "pid "); at != NULL && count < max;
         at = strstr(at + 4, "pid ")) {
        pids[count++] = (pid_t)strtol(at + 4, NULL, 10);
    }
    return count;
}

static void no_process_outlives_a_launcher_that_is_killed(void **state)
{
    (void)state;
    struct command command;
    /* The child of a worker is in its group; the kernel does not kill it with the launcher. */
    start_run(
        &command, "-n 2",
        "echo worker pid $$; sleep 1000 & echo child pid $!; echo up; while :; do wait; done");
    assert_true(command_await(&command, "[0] up\n"));
    assert_true(command_await(&command, "[1] up\n"));
    pid_t pids[8];
    assert_int_equal(read_pids(command.output.bytes, pids, 8), 4);
    assert_int_equal(kill(command.pid, SIGKILL), 0);
    assert_int_equal(command_wait(&command), 128 + SIGKILL);
    for (int i = 0; i < 4; i++) {
        assert_true(command_gone(pids[i]));
    }
    command_finish(&command);
}

static void a_launcher_leaves_no_temporary_folder_behind(void **state)
{
    (void)state;
    static const int signals[] = {SIGKILL, SIGTERM};
    for (size_t i = 0; i < 2; i++) {
        struct command command;
        char folder[] = "/tmp/muster-test-XXXXXX";
        assert_non_null(mkdtemp(folder));
        assert_int_equal(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
        start_run(&command, "-n 1", "echo up; exec sleep 1000");
        assert_true(command_await(&command, "[0] up\n"));
        assert_int_equal(rmdir(folder), -1); /* it has the token of the job */
        assert_int_equal(kill(command.pid, signals[i]), 0);
        assert_int_equal(command_wait(&command), 128 + signals[i]);
        command_finish(&command);
        int removed = -1;
        for (int tries = 0; removed != 0 && tries < 12000; tries++) {
            removed = rmdir(folder); /* the guard is no longer our child: its end shows only here */
            (void)usleep(5000);
        }
        assert_int_equal(removed, 0);
        assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
    }
}

static void processes_that_a_worker_leaves_behind_are_killed(void **state)
{
    (void)state;
    struct command command;
    expect_run(&command, "-n 1", "sleep 1000 & echo child pid $!; exit 0", 0);
    pid_t pid = 0;
    assert_int_equal(read_pids(command.output.bytes, &pid, 1), 1);
    assert_true(command_gone(pid));
    command_finish(&command);
}

static void the_summary_is_one_json_object(void **state)
{
    (void)state;
    struct command command;
    expect_run(&command, "-n 2 --hosts a:1,b:1 --json -",
               "echo noise; test $MUSTER_ORDER = 0 || exit 9", 9);
    json_error_t error;
    json_t *json = json_loads(command.output.bytes, 0, &error);
    assert_non_null(json);
    const char *outcome = NULL;
    int status = 0;
    json_t *workers = NULL;
    assert_int_equal(json_unpack(json, "{s:s, s:i, s:o}", "outcome", &outcome, "exit_status",
                                 &status, "workers", &workers),
                     0);
    assert_string_equal(outcome, "failed");
    assert_int_equal(status, 9);
    assert_int_equal(json_array_size(workers), 2);
    const json_t *second = json_array_get(workers, 1);
    assert_string_equal(json_string_value(json_object_get(second, "label")), "b:0");
    assert_int_equal(json_integer_value(json_object_get(second, "exit_status")), 9);
    json_decref(json);
    assert_int_equal(command_count(command.error.bytes, "noise"), 2);
    command_finish(&command);
}

static void a_summary_that_cannot_be_written_is_an_error(void **state)
{
    (void)state;
    expect_error("-n 1 --json /no/such/folder/x", "exit 0", 1, "--json /no/such/folder/x: No such");
}

static void the_token_file_is_readable_by_its_owner_alone(void **state)
{
    (void)state;
    char folder[] = "/tmp/muster-test-XXXXXX";
    char words[128];
    char path[64];
    struct command command;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/token", folder);
    (void)snprintf(words, sizeof words, "-n 1 --token-file %s", path);
    expect_run(&command, words, "echo token $MUSTER_TOKEN", 0);
    char first[64] = "";
    const char *at = strstr(command.output.bytes, "token ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "token %63s", first), 1);
    assert_int_equal(strlen(first), 32);
    command_finish(&command);
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    expect_run(&command, words, "echo token $MUSTER_TOKEN", 0);
    assert_non_null(strstr(command.output.bytes, first));
    command_finish(&command);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static int forget_job(void **state)
{
    (void)state;
    static const char *const names[] = {"MUSTER_RENDEZVOUS", "MUSTER_JOB",  "MUSTER_TOKEN",
                                        "MUSTER_MIN",        "MUSTER_MAX",  "MUSTER_HOST",
                                        "MUSTER_TARGET",     "MUSTER_ORDER"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)unsetenv(names[i]);
    }
    return 0;
}

static void the_state_of_a_job_is_stored_where_the_option_says(void **state)
{
    (void)state;
    char folder[] = "/tmp/muster-test-XXXXXX";
    char words[128];
    char path[64];
    struct command command;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/job.db", folder);
    (void)snprintf(words, sizeof words, "-n 1 --store %s", path);
    expect_run(&command, words, "exit 0", 0);
    command_finish(&command);
    assert_int_equal(access(path, F_OK), 0);
    char *remove[] = {(char *)"rm", (char *)"-r", folder, NULL};
    command_start(&command, remove);
    assert_int_equal(command_wait(&command), 0);
    command_finish(&command);
}

static void the_timings_are_those_of_the_jobs_own_musterd(void **state)
{
    (void)state;
    struct command command;
    expect_run(
        &command,
        "-n 1 --hold-ms 300 --lease-ms 2000 --settle-ms 10 --arrive-ms 5000 --suspect-ms 400",
        "exit 0", 0);
    command_finish(&command);
    expect_run(&command, "-n 1 --hold-ms 300 --lease-ms 500", "exit 0", 1);
    assert_non_null(strstr(command.error.bytes, "must be more than twice --hold-ms 300"));
    command_finish(&command);
}

static void the_environment_has_the_defaults_of_options(void **state)
{
    (void)state;
    struct command command;
    assert_int_equal(setenv("MUSTER_JOB", "other", 1), 0);
    assert_int_equal(setenv("MUSTER_MIN", "1", 1), 0);
    assert_int_equal(setenv("MUSTER_MAX", "5", 1), 0);
    expect_run(&command, "-n 2", "echo $MUSTER_JOB $MUSTER_MIN $MUSTER_MAX", 0);
    assert_non_null(strstr(command.output.bytes, "[0] other 1 5\n"));
    command_finish(&command);
    expect_run(&command, "-n 2 --job mine --min 2 --max 3",
               "echo $MUSTER_JOB $MUSTER_MIN $MUSTER_MAX", 0);
    assert_non_null(strstr(command.output.bytes, "[0] mine 2 3\n"));
    command_finish(&command);
    assert_int_equal(setenv("MUSTER_RENDEZVOUS", "ftp://x:1", 1), 0);
    expect_error("-n 2", "exit 0", 2, "rendezvous \"ftp://x:1\"");
    (void)forget_job(NULL);
}

/* script(1) gives its command a terminal. */
static void expect_on_terminal(const char *line)
{
    char words[PATH_MAX + 64];
    (void)snprintf(words, sizeof words, "%s run -n 1 -- echo hello", command_path("muster"));
    char *argv[] = {(char *)"script", (char *)"-qec", words, (char *)"/dev/null", NULL};
    struct command command;
    command_start(&command, argv);
    assert_int_equal(command_wait(&command), 0);
    assert_non_null(strstr(command.output.bytes, line));
    command_finish(&command);
}

static void prefixes_have_colours_on_a_terminal_that_wants_them(void **state)
{
    (void)state;
    if (access("/usr/bin/script", X_OK) != 0) {
        skip();
    }
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    expect_on_terminal("\n\033[31m[0]\033[0m hello\r\n");
    assert_int_equal(setenv("NO_COLOR", "1", 1), 0);
    expect_on_terminal("\n[0] hello\r\n");
    assert_int_equal(unsetenv("NO_COLOR"), 0);
    assert_int_equal(setenv("TERM", "dumb", 1), 0);
    expect_on_terminal("\n[0] hello\r\n");
}

int main(void)
{
    if (access(command_path("musterd"), X_OK) != 0) {
        print_message("SKIP: %s is not built (it needs libmicrohttpd and sqlite3)\n",
                      command_path("musterd"));
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_whose_workers_all_succeed_ends_with_status_0),
        cmocka_unit_test(a_worker_that_fails_is_named_and_its_status_is_the_job_s),
        cmocka_unit_test(the_signal_that_killed_a_worker_is_in_the_exit_status),
        cmocka_unit_test(the_first_failure_gives_the_exit_status),
        cmocka_unit_test(a_command_that_cannot_be_executed_is_one_line),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(lines_have_the_prefix_of_their_worker),
        cmocka_unit_test(lines_are_not_mixed_and_long_ones_are_continued),
        cmocka_unit_test(output_after_a_flood_is_printed),
        cmocka_unit_test(a_worker_that_floods_does_not_silence_the_others),
        cmocka_unit_test(a_reader_that_does_not_read_delays_no_signal),
        cmocka_unit_test(a_reader_that_ends_does_not_end_the_job),
        cmocka_unit_test(workers_get_the_job_in_their_environment),
        cmocka_unit_test(the_first_signal_asks_workers_to_end_and_the_second_kills),
        cmocka_unit_test(a_server_that_never_answered_does_not_answer_again),
        cmocka_unit_test(no_process_outlives_a_launcher_that_is_killed),
        cmocka_unit_test(a_launcher_leaves_no_temporary_folder_behind),
        cmocka_unit_test(processes_that_a_worker_leaves_behind_are_killed),
        cmocka_unit_test(the_summary_is_one_json_object),
        cmocka_unit_test(a_summary_that_cannot_be_written_is_an_error),
        cmocka_unit_test(the_token_file_is_readable_by_its_owner_alone),
        cmocka_unit_test(the_state_of_a_job_is_stored_where_the_option_says),
        cmocka_unit_test(the_timings_are_those_of_the_jobs_own_musterd),
        cmocka_unit_test(the_environment_has_the_defaults_of_options),
        cmocka_unit_test(prefixes_have_colours_on_a_terminal_that_wants_them),
    };
    return cmocka_run_group_tests(tests, forget_job, NULL);
}
