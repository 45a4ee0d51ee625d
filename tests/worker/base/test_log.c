/* Which lines MUSTER_LOG lets through. Each check is a child process, as the variable is read once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/base/log.h"

/* What a process with this MUSTER_LOG (NULL: unset) prints when it logs one line of each level. */
static void log_with(const char *value, char *ret_text, size_t size)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int status = value != NULL ? setenv("MUSTER_LOG", value, 1) : unsetenv("MUSTER_LOG");
        (void)dup2(pipes[1], STDERR_FILENO);
        muster_log(MUSTER_LOG_ERROR, "one");
        muster_log(MUSTER_LOG_WARN, "two");
        muster_log(MUSTER_LOG_INFO, "three");
        muster_log_set_identity(3, 7);
        muster_log(MUSTER_LOG_DEBUG, "four");
        _exit(status);
    }
    (void)close(pipes[1]);
    size_t used = 0;
    ssize_t got = 0;
    while ((got = read(pipes[0], ret_text + used, size - 1 - used)) > 0) {
        used += (size_t)got;
    }
    ret_text[used] = '\0';
    (void)close(pipes[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void each_level_lets_through_itself_and_the_more_severe_ones(void **state)
{
    (void)state;
    char text[512];
    log_with("error", text, sizeof text);
    assert_string_equal(text, "muster error one\n");
    log_with("warn", text, sizeof text);
    assert_string_equal(text, "muster error one\nmuster warn two\n");
    log_with("info", text, sizeof text);
    assert_string_equal(text, "muster error one\nmuster warn two\nmuster info three\n");
    log_with("debug", text, sizeof text);
    assert_string_equal(text,
                        "muster error one\nmuster warn two\nmuster info three\n"
                        "muster debug rank=3 generation=7 four\n");
}

static void without_the_variable_or_with_another_word_the_level_is_warn(void **state)
{
    (void)state;
    char text[512];
    log_with(NULL, text, sizeof text);
    assert_string_equal(text, "muster error one\nmuster warn two\n");
    log_with("verbose", text, sizeof text);
    assert_string_equal(text, "muster error one\nmuster warn two\n");
}

static char written[64];

static void keep(enum muster_log_level level, const char *text)
{
    (void)snprintf(written, sizeof written, "%s: %s", muster_log_level_name(level), text);
}

static void a_writer_gets_the_text_of_the_lines_that_pass(void **state)
{
    (void)state;
    muster_log_set_level(MUSTER_LOG_WARN);
    muster_log_set_writer(keep);
    muster_log(MUSTER_LOG_WARN, "job=%s two", "a");
    assert_string_equal(written, "warn: job=a two");
    muster_log(MUSTER_LOG_INFO, "three");
    assert_string_equal(written, "warn: job=a two");
    muster_log_set_writer(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_level_lets_through_itself_and_the_more_severe_ones),
        cmocka_unit_test(without_the_variable_or_with_another_word_the_level_is_warn),
        /* Last: it sets the level of this process. */
        cmocka_unit_test(a_writer_gets_the_text_of_the_lines_that_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
