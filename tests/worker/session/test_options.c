/* Options: from the environment, checked, and copied to the settings of a session. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/session/options.h"

/* Each variable, a value that is not its default, and the option that has to become that value. */
enum kind { TEXT, NUMBER, SWITCH };
#define TEXT_OPTION(variable, field, value)                    \
    {                                                          \
        variable, value, TEXT, offsetof(muster_options, field) \
    }
#define NUMBER_OPTION(variable, field, value)                    \
    {                                                            \
        variable, value, NUMBER, offsetof(muster_options, field) \
    }
#define SWITCH_OPTION(variable, field, value)                    \
    {                                                            \
        variable, value, SWITCH, offsetof(muster_options, field) \
    }
static const struct variable {
    const char *name, *value;
    enum kind kind;
    size_t offset;
} variables[] = {
    TEXT_OPTION("MUSTER_RENDEZVOUS", rendezvous, "http://127.0.0.1:7070"),
    TEXT_OPTION("MUSTER_JOB", job, "night.run-1"),
    TEXT_OPTION("MUSTER_TOKEN", token, "secret"),
    TEXT_OPTION("MUSTER_HOST", host, "host-a"),
    TEXT_OPTION("MUSTER_RACK", rack, "rack-2"),
    TEXT_OPTION("MUSTER_LISTEN", listen, "*:7000-7015"),
    TEXT_OPTION("MUSTER_INTERFACE", interface, "^docker,virbr"),
    NUMBER_OPTION("MUSTER_MIN", min_size, "2"),
    NUMBER_OPTION("MUSTER_MAX", max_size, "8"),
    NUMBER_OPTION("MUSTER_TARGET", target_size, "4"),
    NUMBER_OPTION("MUSTER_ORDER", order, "11"),
    TEXT_OPTION("MUSTER_ALGORITHM", algorithm, "allreduce=ring"),
    NUMBER_OPTION("MUSTER_JOIN_TIMEOUT_MS", join_timeout_ms, "1234"),
    NUMBER_OPTION("MUSTER_CALL_TIMEOUT_MS", call_timeout_ms, "2345"),
    TEXT_OPTION("MUSTER_SPILL", spill, "/states"),
    NUMBER_OPTION("MUSTER_SPILL_KEEP", spill_keep, "7"),
    NUMBER_OPTION("MUSTER_SPILL_EVERY_MS", spill_every_ms, "3456"),
    SWITCH_OPTION("MUSTER_LEAVE_ON_SIGTERM", leave_on_sigterm, "0"),
    SWITCH_OPTION("MUSTER_MEASURE", measure, "0"),
    SWITCH_OPTION("MUSTER_TUNE", tune, "0"),
    SWITCH_OPTION("MUSTER_REPRODUCIBLE", reproducible, "1"),
    SWITCH_OPTION("MUSTER_SHARED_MEMORY", shared_memory, "0"),
    NUMBER_OPTION("MUSTER_TCP_CONNECTIONS", tcp_connections, "3"),
    TEXT_OPTION("MUSTER_TLS_CERTIFICATE", tls_certificate, "/etc/job/tls.crt"),
    TEXT_OPTION("MUSTER_TLS_KEY", tls_key, "/etc/job/tls.key"),
    TEXT_OPTION("MUSTER_TLS_AUTHORITY", tls_authority, "/etc/job/ca.crt"),
    TEXT_OPTION("MUSTER_TLS_NAME", tls_name, "job.x"),
    SWITCH_OPTION("MUSTER_VERBS", verbs, "1"),
    TEXT_OPTION("MUSTER_VERBS_DEVICE", verbs_device, "mlx5_1"),
    NUMBER_OPTION("MUSTER_VERBS_PORT", verbs_port, "2"),
    NUMBER_OPTION("MUSTER_VERBS_CONNECTIONS", verbs_connections, "4"),
    TEXT_OPTION("MUSTER_VERBS_GID", verbs_gid, "3"),
    TEXT_OPTION("MUSTER_TIMELINE", timeline, "/tmp/night"),
    TEXT_OPTION("MUSTER_COMPRESSION", compression, "int8"),
    TEXT_OPTION("MUSTER_SERVER_TOKEN", server_token, "0123456789abcdef"),
    TEXT_OPTION("MUSTER_RENDEZVOUS_AUTHORITY", rendezvous_authority, "/etc/server/ca.crt"),
    TEXT_OPTION("MUSTER_RENDEZVOUS_CERTIFICATE", rendezvous_certificate, "/etc/job/me.crt"),
    TEXT_OPTION("MUSTER_RENDEZVOUS_KEY", rendezvous_key, "/etc/job/me.key"),
};
enum { VARIABLES = sizeof variables / sizeof variables[0] };

static int clean_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < VARIABLES; i++) {
        (void)unsetenv(variables[i].name);
    }
    (void)unsetenv("MUSTER_NEIGHBOURS_ABOVE"); /* it has no option */
    return 0;
}

static void set(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

static void expect_refusal(const muster_options *options, const char *first, const char *second)
{
    struct muster_settings settings;
    assert_int_equal(muster_settings_init(options, &settings), MUSTER_INVALID);
    if (strstr(muster_last_error(), first) == NULL || strstr(muster_last_error(), second) == NULL) {
        fail_msg("\"%s\" does not name %s and %s", muster_last_error(), first, second);
    }
    assert_null(strchr(muster_last_error(), '\n'));
}

static bool has_value(const muster_options *options, const struct variable *variable)
{
    const char *field = (const char *)options + variable->offset;
    const char *text = NULL;
    uint32_t number = 0;
    int on = 0;
    switch (variable->kind) {
    case TEXT:
        memcpy(&text, field, sizeof text);
        return text != NULL && strcmp(text, variable->value) == 0;
    case NUMBER:
        memcpy(&number, field, sizeof number);
        return number == strtoul(variable->value, NULL, 10);
    case SWITCH:
        break;
    }
    memcpy(&on, field, sizeof on);
    return on == (variable->value[0] == '1');
}

static void each_variable_sets_its_option_and_no_other(void **state)
{
    for (size_t i = 0; i < VARIABLES; i++) {
        muster_options options;
        (void)clean_environment(state);
        set(variables[i].name, variables[i].value);
        muster_options_init(&options);
        for (size_t j = 0; j < VARIABLES; j++) {
            if (has_value(&options, &variables[j]) != (i == j)) {
                fail_msg("%s is set to \"%s\": %s", variables[i].name, variables[i].value,
                         variables[j].name);
            }
        }
    }
}

static void an_empty_variable_counts_as_unset(void **state)
{
    (void)state;
    muster_options unset;
    muster_options empty;
    memset(&unset, 0, sizeof unset);
    memset(&empty, 0, sizeof empty);
    muster_options_init(&unset);
    for (size_t i = 0; i < VARIABLES; i++) {
        set(variables[i].name, "");
    }
    muster_options_init(&empty);
    assert_memory_equal(&unset, &empty, sizeof unset);
}

static void the_environment_alone_is_enough(void **state)
{
    (void)state;
    struct muster_settings settings;
    set("MUSTER_RENDEZVOUS", "http://127.0.0.1:7070");
    set("MUSTER_JOB", "night.run-1");
    set("MUSTER_MIN", "2");
    set("MUSTER_MAX", "8");
    set("MUSTER_TARGET", "4");
    set("MUSTER_LEAVE_ON_SIGTERM", "0");
    set("MUSTER_TIMELINE", "/tmp/night");
    assert_int_equal(muster_settings_init(NULL, &settings), MUSTER_OK);
    assert_string_equal(settings.rendezvous, "http://127.0.0.1:7070");
    assert_string_equal(settings.timeline, "/tmp/night");
    assert_string_equal(settings.job, "night.run-1");
    assert_string_equal(settings.token, "");
    assert_true(strlen(settings.host) > 0);
    assert_non_null(settings.transports);
    assert_int_equal(settings.min_size, 2);
    assert_int_equal(settings.max_size, 8);
    assert_int_equal(settings.target_size, 4);
    assert_int_equal(settings.join_timeout_ms, 60000);
    assert_int_equal(settings.call_timeout_ms, 600000);
    assert_false(settings.leave_on_sigterm);
    muster_settings_finish(&settings);
}

static void an_option_overrides_its_variable(void **state)
{
    (void)state;
    struct muster_settings settings;
    muster_options options;
    set("MUSTER_RENDEZVOUS", "http://127.0.0.1:7070");
    set("MUSTER_MIN", "2");
    muster_options_init(&options);
    assert_int_equal(options.min_size, 2);
    options.min_size = 3;
    options.job = "mine";
    assert_int_equal(muster_settings_init(&options, &settings), MUSTER_OK);
    assert_int_equal(settings.min_size, 3);
    assert_string_equal(settings.job, "mine");
    muster_settings_finish(&settings);
}

/* A program of an older header: its struct ends before order, and other data follows. */
static void what_an_older_header_lacks_comes_from_the_environment(void **state)
{
    (void)state;
    enum { OLD_SIZE = offsetof(muster_options, order) };
    struct muster_settings settings;
    muster_options options;
    set("MUSTER_RENDEZVOUS", "http://127.0.0.1:7070");
    set("MUSTER_MIN", "2");
    set("MUSTER_ORDER", "11");
    memset(&options, 0xee, sizeof options);
    muster_options_init_sized(&options, OLD_SIZE);
    assert_int_equal(options.size, OLD_SIZE);
    assert_int_equal(options.min_size, 2);
    assert_int_equal(options.order, 0xeeeeeeee); /* not written */
    options.min_size = 3;
    assert_int_equal(muster_settings_init(&options, &settings), MUSTER_OK);
    assert_int_equal(settings.min_size, 3);
    assert_int_equal(settings.order, 11); /* not read either */
    assert_true(settings.tune);
    muster_settings_finish(&settings);
}

static void what_only_a_newer_header_has_must_be_0(void **state)
{
    (void)state;
    struct {
        muster_options known;
        uint64_t unknown;
    } options;
    struct muster_settings settings;
    set("MUSTER_RENDEZVOUS", "http://127.0.0.1:7070");
    memset(&options, 0xee, sizeof options);
    muster_options_init_sized(&options.known, sizeof options);
    assert_int_equal(options.unknown, 0);
    assert_int_equal(muster_settings_init(&options.known, &settings), MUSTER_OK);
    muster_settings_finish(&settings);
    options.unknown = 1;
    expect_refusal(&options.known, "muster_options", "an option is set that this library does not");
}

static void options_without_a_size_are_refused(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 5000, SIZE_MAX};
    muster_options options;
    set("MUSTER_RENDEZVOUS", "http://127.0.0.1:7070");
    muster_options_init(&options);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char text[40];
        options.size = sizes[i];
        (void)snprintf(text, sizeof text, "size is %zu:", sizes[i]);
        expect_refusal(&options, text, "muster_options_init() sets it");
    }
}

static void an_unknown_compression_is_refused(void **state)
{
    (void)state;
    struct muster_settings settings;
    set("MUSTER_RENDEZVOUS", "http://127.0.0.1:7070");
    set("MUSTER_COMPRESSION", "zip");
    expect_refusal(NULL, "compression (MUSTER_COMPRESSION): no compression is called \"zip\"",
                   "none, bfloat16, float16, int8");
    set("MUSTER_COMPRESSION", "float16");
    assert_int_equal(muster_settings_init(NULL, &settings), MUSTER_OK);
    assert_int_equal(settings.compression, MUSTER_COMPRESSION_FLOAT16);
    muster_settings_finish(&settings);
}

static void measuring_can_be_switched_off(void **state)
{
    (void)state;
    struct muster_settings settings;
    set("MUSTER_RENDEZVOUS", "http://127.0.0.1:7070");
    assert_int_equal(muster_settings_init(NULL, &settings), MUSTER_OK);
    assert_true(settings.measure);
    muster_settings_finish(&settings);
    set("MUSTER_MEASURE", "0");
    assert_int_equal(muster_settings_init(NULL, &settings), MUSTER_OK);
    assert_false(settings.measure);
    muster_settings_finish(&settings);
    set("MUSTER_MEASURE", "yes");
    expect_refusal(NULL, "MUSTER_MEASURE", "\"yes\"");
}

static void transports_say_what_is_wrong_with_their_options(void **state)
{
    (void)state;
    set("MUSTER_RENDEZVOUS", "http://127.0.0.1:7070");
    set("MUSTER_SHARED_MEMORY", "2");
    expect_refusal(NULL, "MUSTER_SHARED_MEMORY", "from 0 to 1");
    set("MUSTER_SHARED_MEMORY", "1");
    set("MUSTER_INTERFACE", "eth0,,eth1");
    expect_refusal(NULL, "MUSTER_INTERFACE", "is no interface");
    set("MUSTER_INTERFACE", "");
    set("MUSTER_VERBS_GID", "fe80::1");
    expect_refusal(NULL, "MUSTER_VERBS_GID", "from 0 to 255");
}

static void an_unknown_algorithm_is_refused(void **state)
{
    (void)state;
    struct muster_settings settings;
    muster_options options;
    set("MUSTER_RENDEZVOUS", "http://127.0.0.1:7070");
    set("MUSTER_ALGORITHM", "allreduce=ring,broadcast=binomial");
    muster_options_init(&options);
    assert_int_equal(muster_settings_init(&options, &settings), MUSTER_OK);
    assert_string_equal(settings.algorithm, "allreduce=ring,broadcast=binomial");
    muster_settings_finish(&settings);
    options.algorithm = "rign";
    expect_refusal(&options, "MUSTER_ALGORITHM", "halving_doubling");
    set("MUSTER_ALGORITHM", "broadcast=ring");
    expect_refusal(NULL, "MUSTER_ALGORITHM", "binomial");
}

static void without_a_rendezvous_the_variable_is_named(void **state)
{
    (void)state;
    expect_refusal(NULL, "MUSTER_RENDEZVOUS", "http://HOST:PORT");
}

static void a_bad_url_is_shown(void **state)
{
    (void)state;
    static const char *const urls[] = {
        "127.0.0.1:7070",         "ftp://127.0.0.1:7070",       "http://127.0.0.1",
        "http://127.0.0.1:99999", "http://127.0.0.1:7070/path", "http://",
        "http://user@host:1",     "http://host:1?query",
    };
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        set("MUSTER_RENDEZVOUS", urls[i]);
        expect_refusal(NULL, "rendezvous", urls[i]);
    }
}

static void a_variable_that_is_no_number_is_shown(void **state)
{
    (void)state;
    static const char *const names[] = {"MUSTER_MIN",
                                        "MUSTER_MAX",
                                        "MUSTER_TARGET",
                                        "MUSTER_ORDER",
                                        "MUSTER_NEIGHBOURS_ABOVE",
                                        "MUSTER_JOIN_TIMEOUT_MS",
                                        "MUSTER_CALL_TIMEOUT_MS",
                                        "MUSTER_SPILL_KEEP",
                                        "MUSTER_SPILL_EVERY_MS",
                                        "MUSTER_LEAVE_ON_SIGTERM"};
    static const char *const values[] = {"many", "-1", "4x", " 4", "99999999999999999999", "0x4"};
    set("MUSTER_RENDEZVOUS", "http://127.0.0.1:7070");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (size_t j = 0; j < sizeof values / sizeof values[0]; j++) {
            set(names[i], values[j]);
            expect_refusal(NULL, names[i], values[j]);
        }
        assert_int_equal(unsetenv(names[i]), 0);
    }
}

static void jobs_above_64_members_begin_with_neighbours(void **state)
{
    struct muster_settings settings;
    (void)state;
    set("MUSTER_RENDEZVOUS", "http://127.0.0.1:7070");
    assert_int_equal(muster_settings_init(NULL, &settings), MUSTER_OK);
    assert_int_equal(settings.neighbours_above, 64);
    muster_settings_finish(&settings);
    set("MUSTER_NEIGHBOURS_ABOVE", "4");
    assert_int_equal(muster_settings_init(NULL, &settings), MUSTER_OK);
    assert_int_equal(settings.neighbours_above, 4);
    muster_settings_finish(&settings);
    set("MUSTER_NEIGHBOURS_ABOVE", "0");
    expect_refusal(NULL, "neighbours above (MUSTER_NEIGHBOURS_ABOVE) 0", "from 1");
}

static void sizes_must_fit_each_other(void **state)
{
    (void)state;
    set("MUSTER_RENDEZVOUS", "http://127.0.0.1:7070");
    set("MUSTER_MIN", "4");
    set("MUSTER_MAX", "2");
    expect_refusal(NULL, "max_size (MUSTER_MAX) 2", "from 4");
    set("MUSTER_MAX", "8");
    set("MUSTER_TARGET", "9");
    expect_refusal(NULL, "target_size (MUSTER_TARGET) 9", "from 4 to 8");
    set("MUSTER_MIN", "0");
    expect_refusal(NULL, "min_size (MUSTER_MIN) 0", "from 1");
}

static void names_have_bounds(void **state)
{
    (void)state;
    char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    set("MUSTER_RENDEZVOUS", "http://127.0.0.1:7070");
    set("MUSTER_JOB", "a b");
    expect_refusal(NULL, "job (MUSTER_JOB)", "a b");
    set("MUSTER_JOB", longest);
    expect_refusal(NULL, "job (MUSTER_JOB)", "aaa");
    set("MUSTER_JOB", "fine");
    set("MUSTER_HOST", longest);
    expect_refusal(NULL, "host (MUSTER_HOST)", "aaa");
    set("MUSTER_HOST", "two words");
    expect_refusal(NULL, "host (MUSTER_HOST)", "two words");
    set("MUSTER_HOST", "../etc");
    expect_refusal(NULL, "host (MUSTER_HOST)", "../etc");
    set("MUSTER_HOST", "h");
    set("MUSTER_REPRODUCIBLE", "yes");
    expect_refusal(NULL, "MUSTER_REPRODUCIBLE", "yes");
    set("MUSTER_REPRODUCIBLE", "1");
    set("MUSTER_TCP_CONNECTIONS", "0");
    expect_refusal(NULL, "tcp_connections (MUSTER_TCP_CONNECTIONS)", "from 1 to 16");
    set("MUSTER_TCP_CONNECTIONS", "16");
    set("MUSTER_RACK", "two words");
    expect_refusal(NULL, "rack (MUSTER_RACK)", "two words");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_variable_sets_its_option_and_no_other, clean_environment),
        cmocka_unit_test_setup(an_empty_variable_counts_as_unset, clean_environment),
        cmocka_unit_test_setup(the_environment_alone_is_enough, clean_environment),
        cmocka_unit_test_setup(an_option_overrides_its_variable, clean_environment),
        cmocka_unit_test_setup(what_an_older_header_lacks_comes_from_the_environment,
                               clean_environment),
        cmocka_unit_test_setup(what_only_a_newer_header_has_must_be_0, clean_environment),
        cmocka_unit_test_setup(options_without_a_size_are_refused, clean_environment),
        cmocka_unit_test_setup(measuring_can_be_switched_off, clean_environment),
        cmocka_unit_test_setup(transports_say_what_is_wrong_with_their_options, clean_environment),
        cmocka_unit_test_setup(an_unknown_algorithm_is_refused, clean_environment),
        cmocka_unit_test_setup(an_unknown_compression_is_refused, clean_environment),
        cmocka_unit_test_setup(without_a_rendezvous_the_variable_is_named, clean_environment),
        cmocka_unit_test_setup(a_bad_url_is_shown, clean_environment),
        cmocka_unit_test_setup(a_variable_that_is_no_number_is_shown, clean_environment),
        cmocka_unit_test_setup(jobs_above_64_members_begin_with_neighbours, clean_environment),
        cmocka_unit_test_setup(sizes_must_fit_each_other, clean_environment),
        cmocka_unit_test_setup(names_have_bounds, clean_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
