/* A disk that cannot sync: nothing that it may have lost is answered, the server says that it is
 * not ready, counts the failure, and has all that was answered after a new start. */
#include "rendezvous/routes/status_paths.h"
#include "rendezvous/store/store.h"
#include "tests/support/caller.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include <cmocka.h>

/* SQLite's own disk, but that syncs can fail. */
static sqlite3_vfs failing_vfs;
static sqlite3_io_methods failing_methods[2]; /* of other files, of the database, which is locked */
static sqlite3_vfs *real_vfs;
static int (*real_sync)(sqlite3_file *file, int flags);
static atomic_bool fails;

static int sync_or_fail(sqlite3_file *file, int flags)
{
    return atomic_load(&fails) ? SQLITE_IOERR_FSYNC : real_sync(file, flags);
}

static int open_file(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *file, int flags,
                     int *ret_flags)
{
    (void)vfs;
    int result = real_vfs->xOpen(real_vfs, name, file, flags, ret_flags);
    if (result == SQLITE_OK) {
        sqlite3_io_methods *methods = &failing_methods[(flags & SQLITE_OPEN_MAIN_DB) != 0];
        *methods = *file->pMethods;
        real_sync = methods->xSync;
        methods->xSync = sync_or_fail;
        file->pMethods = methods;
    }
    return result;
}

static struct muster_store *store;
static struct muster_service *service;

static void start(const char *path)
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

static void expect(enum muster_rpc_method method, enum muster_rpc_code code, const char *part,
                   const char *key)
{
    struct test_call call;
    test_call_start(&call, service, method, NULL,
                    "{'job':'j','member':'%s','host':'h','maxSize':1,'key':'%s','value':'AAEC'}",
                    test_member(0), key);
    test_call_expect(&call, code, part);
}

static void expect_page(enum muster_status_path path, unsigned http, const char *part)
{
    const struct muster_status_sockets sockets = {0};
    struct muster_status_response response = muster_status_get(service, path, &sockets);
    assert_int_equal(response.http, http);
    if (strstr(response.text, part) == NULL) {
        fail_msg("no \"%s\" in: %s", part, response.text);
    }
    free(response.owned);
}

static void a_failed_sync_is_told_and_harms_nothing(void **state)
{
    (void)state;
    static const char *const ends[] = {"", "-wal", "-journal"};
    char folder[] = "/tmp/muster-test-XXXXXX";
    char path[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/jobs.db", folder);
    start(path);
    expect(MUSTER_RPC_JOIN, MUSTER_RPC_OK, "", "");
    expect(MUSTER_RPC_PUT, MUSTER_RPC_OK, "", "before");
    expect_page(MUSTER_STATUS_READYZ, 200, "ready\n");
    expect_page(MUSTER_STATUS_METRICS, 200, "\nmusterd_store_sync_failures_total 0\n");
    stop();

    start(path); /* also because readiness is asked once a second */
    atomic_store(&fails, true);
    expect(MUSTER_RPC_PUT, MUSTER_RPC_UNAVAILABLE, path, "lost");
    expect(MUSTER_RPC_GET, MUSTER_RPC_UNAVAILABLE, "sync", "lost");
    atomic_store(&fails, false); /* a sync that succeeds later proves nothing */
    expect(MUSTER_RPC_PUT, MUSTER_RPC_UNAVAILABLE, "start the server anew", "after");
    expect_page(MUSTER_STATUS_READYZ, 503, "not ready: store ");
    expect_page(MUSTER_STATUS_METRICS, 200, "\nmusterd_store_sync_seconds_count ");
    expect_page(MUSTER_STATUS_METRICS, 200, "\nmusterd_store_sync_failures_total 3\n");
    expect_page(MUSTER_STATUS_HEALTHZ, 200, "ok");
    stop();

    start(path);
    expect(MUSTER_RPC_GET, MUSTER_RPC_OK, "", "before");
    expect(MUSTER_RPC_GET, MUSTER_RPC_NOT_FOUND, "after", "after");
    expect(MUSTER_RPC_PUT, MUSTER_RPC_OK, "", "after");
    expect_page(MUSTER_STATUS_READYZ, 200, "ready\n");
    stop();
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char file[80];
        (void)snprintf(file, sizeof file, "%s%s", path, ends[i]);
        (void)remove(file);
    }
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    real_vfs = sqlite3_vfs_find(NULL);
    failing_vfs = *real_vfs;
    failing_vfs.pNext = NULL;
    failing_vfs.zName = "failing";
    failing_vfs.xOpen = open_file;
    if (sqlite3_vfs_register(&failing_vfs, 1) != SQLITE_OK) {
        return 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_failed_sync_is_told_and_harms_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
