/* muster job, and muster run with a server that other launchers use too, against a real musterd.
 * This test is itself a member of the job: it sends a Join of its own. */
#include "tests/support/command.h"
#include "tests/support/service.h"
#include "worker/base/clock.h"
#include "worker/session/rendezvous_client.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { ARGUMENTS_MAX = 24, HELD_MS = 20000 };

/* The words are split at blanks; "URL" is replaced by the server's. */
static void start_muster(struct command *command, const char *words)
{
    char copy[512];
    char *argv[ARGUMENTS_MAX + 1] = {(char *)(uintptr_t)command_path("muster")};
    int count = 1;
    (void)snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        assert_true(count < ARGUMENTS_MAX);
        argv[count++] = strcmp(word, "URL") == 0 ? group_service.url : word;
    }
    argv[count] = NULL;
    command_start(command, argv);
}

static void expect(struct command *command, const char *words, int expected)
{
    start_muster(command, words);
    int status = command_wait(command);
    if (status != expected) {
        print_message("muster %s: %s%s", words, command->output.bytes, command->error.bytes);
    }
    assert_int_equal(status, expected);
}

static void expect_error(const char *words, int expected, const char *text)
{
    struct command command;
    expect(&command, words, expected);
    if (strstr(command.error.bytes, text) == NULL) {
        print_message("muster %s: %s", words, command.error.bytes);
    }
    assert_non_null(strstr(command.error.bytes, text));
    command_finish(&command);
}

/* Makes this test the one member of a new job. */
static void join(const char *job, const char *token, uint32_t max_size, uint32_t target_size)
{
    struct muster_client *client = NULL;
    assert_int_equal(muster_client_create(group_service.url, token, &client), MUSTER_OK);
    struct muster_join_request request = {
        .min_size = 1, .max_size = max_size, .target_size = target_size};
    (void)snprintf(request.job, sizeof request.job, "%s", job);
    muster_random_uuid(request.info.id);
    (void)snprintf(request.info.host, sizeof request.info.host, "elsewhere");
    (void)snprintf(request.info.capabilities, sizeof request.info.capabilities,
                   "nccl=2.19.3\ntransports=tcp\n");
    request.info.pid = 1;
    request.info.address_count = 1;
    (void)snprintf(request.info.addresses[0], sizeof request.info.addresses[0],
                   "tcp://127.0.0.1:1");
    const struct muster_retry_policy retry_policy = {.attempt_ms = HELD_MS,
                                                     .deadline_ns = muster_clock_after_ms(HELD_MS)};
    struct muster_join_response response = {0};
    while (!response.formed) {
        json_t *answer = NULL;
        muster_status status =
            muster_client_call(client, MUSTER_RPC_JOIN, muster_join_request_encode(&request),
                               &retry_policy, &answer, NULL);
        if (status != MUSTER_OK) {
            print_message("%s\n", muster_last_error());
        }
        assert_int_equal(status, MUSTER_OK);
        muster_join_response_finish(&response);
        assert_int_equal(muster_join_response_decode(answer, &response), MUSTER_OK);
        json_decref(answer);
    }
    muster_join_response_finish(&response);
    muster_client_destroy(client);
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"job", "an action is missing"},
        {"job list", "no \"muster job list\""},
        {"job show --rendezvous URL", "muster job show JOB"},
        {"job show a b --rendezvous URL", "muster job show JOB"},
        {"job resize a 1 2 --rendezvous URL", "\"2\" is one argument too many"},
        {"job show a/b --rendezvous URL", "\"a/b\""},
        {"job ls", "a server is missing"},
        {"job ls --rendezvous ftp://x:1", "rendezvous \"ftp://x:1\""},
        {"job ls --colour", "unrecognized option"},
        {"jobs", "no command \"jobs\""},
        {"", "a command is missing"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        expect_error(wrong[i][0], 2, wrong[i][1]);
        expect_error(wrong[i][0], 2, "--help");
    }
    expect_error("job resize a many --rendezvous URL", 1, "\"many\"");
    expect_error("job ls --rendezvous URL --token-file /no/such/file", 1, "/no/such/file");
}

/* The socket is bound but does not listen. */
static void a_server_that_does_not_answer_is_named(void **state)
{
    (void)state;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    char words[128];
    char url[64];
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", ntohs(address.sin_port));
    (void)snprintf(words, sizeof words, "job ls --rendezvous %s", url);
    expect_error(words, 1, url);
    close(fd);
}

static void an_unknown_job_is_named(void **state)
{
    (void)state;
    expect_error("job show nobody --rendezvous URL", 1, "nobody");
    expect_error("job show nobody --rendezvous URL", 1, group_service.url);
    expect_error("job resize nobody 3 --rendezvous URL", 1, "nobody");
    expect_error("job end nobody --rendezvous URL", 1, "nobody");
}

static json_t *expect_json(const char *words)
{
    struct command command;
    json_error_t error;
    expect(&command, words, 0);
    json_t *json = json_loads(command.output.bytes, 0, &error);
    assert_non_null(json);
    command_finish(&command);
    return json;
}

static void a_job_is_listed_shown_resized_and_ended(void **state)
{
    (void)state;
    struct command command;
    join("shown", NULL, 4, 1);
    expect(&command, "job ls --rendezvous URL", 0);
    assert_non_null(strstr(command.output.bytes, "shown "));
    command_finish(&command);
    expect(&command, "job show shown --rendezvous URL", 0);
    assert_non_null(strstr(command.output.bytes, "job shown: running"));
    assert_non_null(strstr(command.output.bytes, "elsewhere"));
    assert_non_null(
        strstr(command.output.bytes, "capabilities of 1 members: nccl=2.19.3, transports=tcp\n"));
    command_finish(&command);

    expect_error("job resize shown 9 --rendezvous URL", 1, "9");
    expect(&command, "job resize shown 2 --rendezvous URL", 0);
    command_finish(&command);
    json_t *json = expect_json("job show shown --json --rendezvous URL");
    const char *phase = NULL;
    int target = 0;
    json_t *members = NULL;
    assert_int_equal(json_unpack(json, "{s:s, s:i, s:o}", "phase", &phase, "target_size", &target,
                                 "members", &members),
                     0);
    assert_string_equal(phase, "running");
    assert_int_equal(target, 2);
    assert_int_equal(json_array_size(members), 1);
    json_decref(json);

    json_decref(expect_json("job end shown --why enough --json --rendezvous URL"));
    expect(&command, "job show shown --rendezvous URL", 0);
    assert_non_null(strstr(command.output.bytes, "job shown: ended: enough"));
    command_finish(&command);
}

static void a_watched_job_is_shown_at_each_change_until_it_ends(void **state)
{
    (void)state;
    struct command watch;
    struct command other;
    expect_error("job ls --watch --rendezvous URL", 2, "--watch goes with `show'");
    join("followed", NULL, 4, 1);
    start_muster(&watch, "job show followed --watch --json --rendezvous URL");
    assert_true(command_await(&watch, "\"running\""));
    expect(&other, "job resize followed 3 --rendezvous URL", 0);
    command_finish(&other);
    assert_true(command_await(&watch, "\"running\"")); /* of a second line */
    expect(&other, "job end followed --why enough --rendezvous URL", 0);
    command_finish(&other);
    assert_int_equal(command_wait(&watch), 0);
    json_t *last = NULL;
    const char *why = "";
    int target = 0;
    for (char *rest = NULL, *line = strtok_r(watch.output.bytes, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        json_decref(last);
        last = json_loads(line, 0, NULL);
        assert_non_null(last);
    }
    assert_int_equal(json_unpack(last, "{s:s, s:i}", "why", &why, "target_size", &target), 0);
    assert_string_equal(why, "enough");
    assert_int_equal(target, 3);
    json_decref(last);
    command_finish(&watch);
}

static void each_listed_job_is_a_json_object_on_its_line(void **state)
{
    (void)state;
    struct command command;
    join("listed-1", NULL, 4, 1);
    join("listed-2", NULL, 4, 1);
    expect(&command, "job ls --json --rendezvous URL", 0);
    size_t listed = 0;
    for (char *line = strtok(command.output.bytes, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        json_t *json = json_loads(line, 0, NULL);
        assert_non_null(json);
        const char *name = json_string_value(json_object_get(json, "job"));
        assert_non_null(name);
        listed += strncmp(name, "listed-", 7) == 0 ? 1 : 0;
        json_decref(json);
    }
    assert_int_equal(listed, 2);
    command_finish(&command);
}

static void a_job_with_a_token_is_shown_only_with_it(void **state)
{
    (void)state;
    struct command command;
    join("secret", "open-sesame", 4, 1);
    expect_error("job show secret --rendezvous URL", 1, "secret");
    assert_int_equal(setenv("MUSTER_TOKEN", "open-barley", 1), 0);
    expect_error("job end secret --rendezvous URL", 1, "secret");
    assert_int_equal(setenv("MUSTER_TOKEN", "open-sesame", 1), 0);
    expect(&command, "job show secret --rendezvous URL", 0);
    command_finish(&command);
    assert_int_equal(unsetenv("MUSTER_TOKEN"), 0);
    char path[] = "/tmp/muster-test-XXXXXX";
    char words[128];
    int fd = mkstemp(path);
    assert_true(fd >= 0 && dprintf(fd, "open-sesame\n") > 0 && close(fd) == 0);
    (void)snprintf(words, sizeof words, "job show secret --rendezvous URL --token-file %s", path);
    expect(&command, words, 0);
    command_finish(&command);
    assert_int_equal(unlink(path), 0);
}

static void the_environment_may_name_the_server(void **state)
{
    (void)state;
    struct command command;
    assert_int_equal(setenv("MUSTER_RENDEZVOUS", group_service.url, 1), 0);
    expect(&command, "job ls", 0);
    command_finish(&command);
    assert_int_equal(unsetenv("MUSTER_RENDEZVOUS"), 0);
}

static void a_resize_starts_as_many_workers_as_are_missing(void **state)
{
    (void)state;
    struct command run;
    struct command resize;
    join("grown", NULL, 6, 3);
    /* With the member of this test there are 3. */
    start_muster(&run, "run -n 2 --min 1 --max 6 --rendezvous URL --job grown -- sleep 1000");
    assert_true(command_await(&run, "job grown: 2 workers"));
    expect(&resize, "job resize grown 4 --rendezvous URL", 0);
    command_finish(&resize);
    assert_true(
        command_await(&run, "the job's target size is now 4 workers; it has 3: starting 1\n"));
    assert_true(command_await(&run, "started worker 2"));
    expect(&resize, "job resize grown 6 --rendezvous URL", 0);
    command_finish(&resize);
    assert_true(command_await(&run, "started worker 4"));
    assert_int_equal(kill(run.pid, SIGTERM), 0);
    assert_int_equal(command_wait(&run), 128 + SIGTERM);
    assert_int_equal(command_count(run.error.bytes, "started worker"), 3);
    command_finish(&run);
}

static void a_resize_to_the_same_size_starts_what_has_died_since(void **state)
{
    (void)state;
    struct command run;
    struct command resize;
    join("again", NULL, 6, 3);
    start_muster(&run, "run -n 2 --min 1 --max 6 --rendezvous URL --job again -- sleep 1000");
    assert_true(command_await(&run, "job again: 2 workers"));
    expect(&resize, "job resize again 4 --rendezvous URL", 0);
    command_finish(&resize);
    assert_true(command_await(&run, "started worker 2 (pid "));
    static const char begin[] = "started worker 2 (pid ";
    const char *started = strstr(run.error.bytes, begin);
    assert_non_null(started);
    pid_t pid = (pid_t)strtol(started + sizeof begin - 1, NULL, 10);
    assert_true(pid > 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_true(command_await(&run, "not replaced"));
    expect(&resize, "job resize again 4 --rendezvous URL", 0);
    command_finish(&resize);
    assert_true(command_await(&run, "started worker 3 (pid "));
    assert_int_equal(kill(run.pid, SIGTERM), 0);
    assert_int_equal(command_wait(&run), 128 + SIGTERM);
    command_finish(&run);
}

static void a_launcher_with_no_grow_starts_nothing(void **state)
{
    (void)state;
    struct command run;
    struct command resize;
    join("left", NULL, 6, 3);
    start_muster(&run,
                 "run -n 2 --no-grow --min 1 --max 6 --rendezvous URL --job left -- sleep 1000");
    assert_true(command_await(&run, "job left: 2 workers"));
    expect(&resize, "job resize left 4 --rendezvous URL", 0);
    command_finish(&resize);
    assert_true(command_await(&run, "the job's target size is now 4 workers\n"));
    assert_int_equal(kill(run.pid, SIGTERM), 0);
    assert_int_equal(command_wait(&run), 128 + SIGTERM);
    assert_int_equal(command_count(run.error.bytes, "started worker"), 0);
    command_finish(&run);
}

int main(void)
{
    if (access(command_path("musterd"), X_OK) != 0) {
        print_message("SKIP: %s is not built (it needs libmicrohttpd and sqlite3)\n",
                      command_path("musterd"));
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(a_server_that_does_not_answer_is_named),
        cmocka_unit_test(an_unknown_job_is_named),
        cmocka_unit_test(a_job_is_listed_shown_resized_and_ended),
        cmocka_unit_test(a_watched_job_is_shown_at_each_change_until_it_ends),
        cmocka_unit_test(each_listed_job_is_a_json_object_on_its_line),
        cmocka_unit_test(a_job_with_a_token_is_shown_only_with_it),
        cmocka_unit_test(the_environment_may_name_the_server),
        cmocka_unit_test(a_resize_starts_as_many_workers_as_are_missing),
        cmocka_unit_test(a_resize_to_the_same_size_starts_what_has_died_since),
        cmocka_unit_test(a_launcher_with_no_grow_starts_nothing),
    };
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
