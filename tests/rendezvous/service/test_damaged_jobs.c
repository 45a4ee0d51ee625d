/* A job of which a row was edited in the store: the row is named, every other job is served, and
 * EndJob makes its name free. */
#include "rendezvous/service/damaged_jobs.h"
#include "tests/support/caller.h"
#include "tests/support/part.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include <cmocka.h>

static char folder[64];
static char path[128];
static struct muster_store *store;
static struct muster_service *service;

static void start(void)
{
    struct muster_service_config config;
    muster_service_config_init(&config);
    config.settings.settle_ms = 0;
    config.settings.lease_ms = 3600000; /* no member dies, however slow the machine is */
    if (muster_store_sqlite_open(path, &store) != MUSTER_OK ||
        muster_service_create(&config, store, &service) != MUSTER_OK) {
        fail_msg("%s", muster_last_error());
    }
}

static void stop(void)
{
    muster_service_quiesce(service);
    muster_service_destroy(service);
    muster_store_close(store);
}

static void expect(enum muster_rpc_method method, const char *token, enum muster_rpc_code code,
                   const char *part, const char *job)
{
    struct test_call call;
    test_call_start(&call, service, method, token,
                    "{'job':'%s','member':'%s','host':'h','maxSize':1,'key':'k','value':'AAEC'}",
                    job, test_member(0));
    test_call_expect(&call, code, part);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/muster-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/jobs.db", folder);
    start();
    expect(MUSTER_RPC_JOIN, "secret", MUSTER_RPC_OK, "", "hurt");
    expect(MUSTER_RPC_PUT, "secret", MUSTER_RPC_OK, "", "hurt");
    expect(MUSTER_RPC_JOIN, NULL, MUSTER_RPC_OK, "", "sound");
    expect(MUSTER_RPC_PUT, NULL, MUSTER_RPC_OK, "", "sound");
    stop();
    return 0;
}

static int tear_down(void **state)
{
    static const char *const ends[] = {"", "-wal", "-journal"};
    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char file[160];
        (void)snprintf(file, sizeof file, "%s%s", path, ends[i]);
        (void)remove(file);
    }
    return rmdir(folder);
}

static void edit(const char *text)
{
    sqlite3 *database;
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    assert_int_equal(sqlite3_exec(database, text, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_changes(database), 1);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
}

#define OF_HURT " WHERE job = (SELECT id FROM jobs WHERE name = 'hurt')"
static const struct {
    const char *edit, *part;
    bool of_job; /* the row of the job itself: its token is not known any more */
} edits[] = {
    {"UPDATE events SET event = replace(event, '\"h\"', '\"g\"')" OF_HURT " AND sequence = 0",
     "event 0 is not as it was written: its checksum is ", false},
    {"DELETE FROM events" OF_HURT " AND sequence = 0", "event 0 in the store: missing", false},
    {"UPDATE events SET sequence = 7" OF_HURT " AND sequence = 0", "event", false},
    {"UPDATE events SET checksum = checksum + 1" OF_HURT " AND sequence = 0",
     "event 0 is not as it was written", false},
    {"UPDATE value SET value = zeroblob(4)" OF_HURT, "the value of key \"k\" is not as it was",
     false},
    {"UPDATE value SET key = 'other'" OF_HURT, "the value of key \"other\" is not as it was",
     false},
    {"UPDATE value SET job = (SELECT id FROM jobs WHERE name = 'hurt'), key = 'moved'"
     " WHERE job = (SELECT id FROM jobs WHERE name = 'sound')",
     "the value of key \"moved\" is not as it was", false},
    {"UPDATE jobs SET token = 'mine' WHERE name = 'hurt'", "its row is not as it was", true},
    {"UPDATE jobs SET link_token = '' WHERE name = 'hurt'", "its row is not as it was", true},
};

static void an_edited_row_is_named_and_other_jobs_are_served(void **state)
{
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        static const enum muster_rpc_method methods[] = {MUSTER_RPC_JOIN, MUSTER_RPC_GET,
                                                         MUSTER_RPC_GET_JOB, MUSTER_RPC_PUT};
        edit(edits[i].edit);
        start();
        assert_int_equal(muster_damaged_jobs_count(service), 1);
        for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
            expect(methods[m], "secret", MUSTER_RPC_UNAVAILABLE, edits[i].part, "hurt");
            expect(methods[m], "secret", MUSTER_RPC_UNAVAILABLE, "job hurt", "hurt");
        }
        expect(MUSTER_RPC_JOIN, NULL, MUSTER_RPC_OK, "", "sound");
        expect(MUSTER_RPC_GET_JOB, NULL, MUSTER_RPC_OK, "", "sound");
        stop();
        (void)tear_down(state);
        (void)set_up(state);
    }
}

static void a_damaged_job_can_be_ended_and_begins_anew(void **state)
{
    (void)state;
    edit(edits[0].edit);
    start();
    expect(MUSTER_RPC_END_JOB, NULL, MUSTER_RPC_UNAUTHENTICATED, "job hurt", "hurt");
    expect(MUSTER_RPC_GET_JOB, "secret", MUSTER_RPC_UNAVAILABLE, "event 0", "hurt");
    stop();
    start(); /* nothing was written over it */
    expect(MUSTER_RPC_GET_JOB, "secret", MUSTER_RPC_UNAVAILABLE, "event 0", "hurt");
    expect(MUSTER_RPC_END_JOB, "secret", MUSTER_RPC_OK, "", "hurt");
    assert_int_equal(muster_damaged_jobs_count(service), 0);
    expect(MUSTER_RPC_GET_JOB, "secret", MUSTER_RPC_NOT_FOUND, "job hurt", "hurt");
    expect(MUSTER_RPC_JOIN, "secret", MUSTER_RPC_OK, "", "hurt");
    expect(MUSTER_RPC_GET, "secret", MUSTER_RPC_NOT_FOUND, "k", "hurt");
    stop();
    start();
    expect(MUSTER_RPC_GET_JOB, "secret", MUSTER_RPC_OK, "", "hurt");
    assert_int_equal(muster_damaged_jobs_count(service), 0);
    stop();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(an_edited_row_is_named_and_other_jobs_are_served),
        TEST(a_damaged_job_can_be_ended_and_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
