/* What the transports make of the options: which are used, with what, and what is wrong. */
#include "worker/fabric/tcp/tcp_settings.h"
#include "worker/fabric/transports.h"
#include "worker/fabric/verbs/verbs_settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const variables[] = {
    "MUSTER_LISTEN",          "MUSTER_INTERFACE",         "MUSTER_SHARED_MEMORY",
    "MUSTER_TCP_CONNECTIONS", "MUSTER_TLS_CERTIFICATE",   "MUSTER_TLS_KEY",
    "MUSTER_TLS_AUTHORITY",   "MUSTER_TLS_NAME",          "MUSTER_VERBS",
    "MUSTER_VERBS_DEVICE",    "MUSTER_VERBS_CONNECTIONS", "MUSTER_VERBS_PORT",
    "MUSTER_VERBS_GID",
};

static int clean_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        (void)unsetenv(variables[i]);
    }
    return 0;
}

static void set(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

static muster_status parse(const char *only, struct muster_transport_settings **ret_settings)
{
    muster_options options;
    memset(&options, 0, sizeof options);
    muster_transports_read_environment(&options);
    return muster_transports_parse(&options, only, ret_settings);
}

static void expect_refusal(const char *first, const char *second)
{
    struct muster_transport_settings *settings = NULL;
    assert_int_equal(parse(NULL, &settings), MUSTER_INVALID);
    assert_null(settings);
    if (strstr(muster_last_error(), first) == NULL || strstr(muster_last_error(), second) == NULL) {
        fail_msg("\"%s\" names neither %s nor %s", muster_last_error(), first, second);
    }
}

/* The names, best first. */
static void expect_used(const char *only, const char *names)
{
    struct muster_transport_settings *settings = NULL;
    char text[64] = "";
    assert_int_equal(parse(only, &settings), MUSTER_OK);
    for (uint32_t i = 0; i < settings->count; i++) {
        (void)strncat(text, i > 0 ? "," : "", sizeof text - strlen(text) - 1);
        (void)strncat(text, settings->rows[i].transport->name, sizeof text - strlen(text) - 1);
    }
    assert_string_equal(text, names);
    muster_transport_settings_destroy(settings);
}

static void the_options_ask_for_transports_or_their_names_do(void **state)
{
    (void)state;
    expect_used(NULL, "shm,tcp");
    expect_used("tcp,inproc", "inproc,tcp");
    expect_used("verbs", "verbs");
    set("MUSTER_VERBS", "1");
    set("MUSTER_SHARED_MEMORY", "0");
    expect_used(NULL, "verbs,tcp");
    expect_used("shm,tcp", "shm,tcp");
}

static void what_is_not_used_is_not_parsed_where_others_are_named(void **state)
{
    (void)state;
    set("MUSTER_VERBS_GID", "fe80::1");
    expect_used("tcp", "tcp");
    expect_refusal("verbs_gid (MUSTER_VERBS_GID)", "\"fe80::1\" is not a number from 0 to 255");
}

static void tcp_has_its_connections_and_files_of_tls(void **state)
{
    (void)state;
    struct muster_transport_settings *settings = NULL;
    set("MUSTER_TLS_CERTIFICATE", "/etc/job/tls.crt");
    set("MUSTER_TLS_NAME", "job.x");
    set("MUSTER_TCP_CONNECTIONS", "3");
    assert_int_equal(parse(NULL, &settings), MUSTER_OK);
    const struct muster_tcp_settings *tcp = muster_transport_settings_find(settings, "tcp");
    assert_non_null(tcp);
    assert_int_equal(tcp->connections, 3);
    const struct muster_tls_files files = muster_tcp_tls_files(tcp);
    assert_string_equal(files.certificate, "/etc/job/tls.crt");
    assert_null(files.key);
    assert_null(files.authority);
    assert_string_equal(files.name, "job.x");
    assert_null(tcp->listen.listen);
    assert_null(tcp->listen.interfaces);
    muster_transport_settings_destroy(settings);
    set("MUSTER_TCP_CONNECTIONS", "0");
    expect_refusal("tcp_connections (MUSTER_TCP_CONNECTIONS) 0", "from 1 to 16");
}

static void interfaces_choose_among_all_addresses(void **state)
{
    (void)state;
    struct muster_transport_settings *settings = NULL;
    set("MUSTER_INTERFACE", "^docker,10.0.0.0/8");
    assert_int_equal(parse(NULL, &settings), MUSTER_OK);
    const struct muster_tcp_settings *tcp = muster_transport_settings_find(settings, "tcp");
    assert_string_equal(tcp->listen.interfaces, "^docker,10.0.0.0/8");
    muster_transport_settings_destroy(settings);
    set("MUSTER_LISTEN", "*:7000-7015");
    expect_used(NULL, "shm,tcp");
    set("MUSTER_LISTEN", "10.0.0.1");
    expect_refusal("MUSTER_INTERFACE", "MUSTER_LISTEN");
    set("MUSTER_LISTEN", "");
    set("MUSTER_INTERFACE", "eth0,,eth1");
    expect_refusal("MUSTER_INTERFACE", "is no interface");
}

static void a_member_whose_first_address_is_of_loopback_listens_there_alone(void **state)
{
    (void)state;
    struct muster_listen_settings settings = {NULL, NULL};
    assert_string_equal(muster_listen_at(&settings, "127.0.0.1"), "127.0.0.1");
    assert_string_equal(muster_listen_at(&settings, "::1"), "::1");
    assert_string_equal(muster_listen_at(&settings, "10.0.0.1"), "*");
    assert_string_equal(muster_listen_at(&settings, ""), "*");
    char interfaces[] = "lo";
    char listen[] = "*:7000";
    settings.interfaces = interfaces;
    assert_string_equal(muster_listen_at(&settings, "127.0.0.1"), "*");
    settings.listen = listen;
    assert_string_equal(muster_listen_at(&settings, "127.0.0.1"), "*:7000");
}

static void shared_memory_is_a_switch(void **state)
{
    (void)state;
    set("MUSTER_SHARED_MEMORY", "2");
    expect_refusal("MUSTER_SHARED_MEMORY", "from 0 to 1");
    set("MUSTER_SHARED_MEMORY", "yes");
    expect_refusal("MUSTER_SHARED_MEMORY=\"yes\"", "from 0 to 1");
}

static void rdma_is_asked_for_and_narrowed(void **state)
{
    (void)state;
    struct muster_transport_settings *settings = NULL;
    assert_int_equal(parse("verbs", &settings), MUSTER_OK);
    const struct muster_verbs_settings *verbs = muster_transport_settings_find(settings, "verbs");
    assert_true(verbs->required);
    assert_null(verbs->device);
    assert_int_equal(verbs->gid, -1);
    muster_transport_settings_destroy(settings);
    set("MUSTER_VERBS", "1");
    set("MUSTER_VERBS_DEVICE", "mlx5_1");
    set("MUSTER_VERBS_PORT", "2");
    set("MUSTER_VERBS_CONNECTIONS", "4");
    set("MUSTER_VERBS_GID", "0");
    assert_int_equal(parse(NULL, &settings), MUSTER_OK);
    verbs = muster_transport_settings_find(settings, "verbs");
    assert_false(verbs->required);
    assert_false(verbs->encrypted);
    assert_int_equal(verbs->connections, 4);
    assert_string_equal(verbs->device, "mlx5_1");
    assert_int_equal(verbs->port, 2);
    assert_int_equal(verbs->gid, 0);
    muster_transport_settings_destroy(settings);
    set("MUSTER_VERBS_PORT", "256");
    expect_refusal("MUSTER_VERBS_PORT", "from 0 to 255");
    set("MUSTER_VERBS_PORT", "1");
    set("MUSTER_VERBS_CONNECTIONS", "9");
    expect_refusal("verbs_connections (MUSTER_VERBS_CONNECTIONS) 9", "from 0 to 8");
    set("MUSTER_VERBS_CONNECTIONS", "1");
    set("MUSTER_VERBS", "yes");
    expect_refusal("MUSTER_VERBS", "from 0 to 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_options_ask_for_transports_or_their_names_do, clean_environment),
        cmocka_unit_test_setup(what_is_not_used_is_not_parsed_where_others_are_named,
                               clean_environment),
        cmocka_unit_test_setup(tcp_has_its_connections_and_files_of_tls, clean_environment),
        cmocka_unit_test_setup(interfaces_choose_among_all_addresses, clean_environment),
        cmocka_unit_test(a_member_whose_first_address_is_of_loopback_listens_there_alone),
        cmocka_unit_test_setup(shared_memory_is_a_switch, clean_environment),
        cmocka_unit_test_setup(rdma_is_asked_for_and_narrowed, clean_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
