/* The SQLite store: contents are read back, a wrong file is refused in one line, a full disk harms
 * nothing. */
#include "rendezvous/store/store.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

#include <cmocka.h>

static char folder[64];
static char path[128];

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/muster-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/jobs.db", folder);
    return 0;
}

static int tear_down(void **state)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char file[160];
        (void)snprintf(file, sizeof file, "%s%s", path, ends[i]);
        (void)remove(file);
    }
    assert_int_equal(rmdir(folder), 0);
    return 0;
}

static void refused(const char *file, const char *part)
{
    struct muster_store *store = NULL;
    assert_int_equal(muster_store_sqlite_open(file, &store), MUSTER_INVALID);
    assert_null(store);
    if (strstr(muster_last_error(), part) == NULL || strstr(muster_last_error(), file) == NULL) {
        fail_msg("%s: \"%s\"", file, muster_last_error());
    }
}

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void execute(const char *text)
{
    sqlite3 *database;
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    assert_int_equal(sqlite3_exec(database, text, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
}

static struct muster_store *open_store(void)
{
    struct muster_store *store = NULL;
    if (muster_store_sqlite_open(path, &store) != MUSTER_OK) {
        fail_msg("%s", muster_last_error());
    }
    return store;
}

static void a_file_that_is_no_store_is_named(void **state)
{
    (void)state;
    refused(folder, "Is a directory");
    refused("/no/such/folder/jobs.db", "No such file");
    refused("/dev/null", "not a file");
    write_file(
        "This is a text of more than a hundred bytes, so that it could be the header of a "
        "file of SQLite's, which it is not.\n");
    refused(path, "not a database");
    assert_int_equal(remove(path), 0);
    execute("CREATE TABLE notes (text TEXT)");
    refused(path, "not a musterd's");
    assert_int_equal(remove(path), 0);
    muster_store_close(open_store());
    execute("PRAGMA user_version = 99");
    refused(path, "version 99");
}

static void a_file_without_permission_is_named(void **state)
{
    (void)state;
    write_file("");
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct muster_store *store = NULL;
        if (geteuid() == 0 && setuid(65534) != 0) { /* root may open any file */
            _exit(2);
        }
        muster_status status = muster_store_sqlite_open(path, &store);
        bool named = strstr(muster_last_error(), "Permission denied") != NULL;
        _exit(status == MUSTER_INVALID && named ? 0 : 1);
    }
    int how = -1;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
}

static void two_cannot_use_one_file(void **state)
{
    (void)state;
    struct muster_store *store = open_store();
    /* Locks belong to a process: another process must try. */
    pid_t pid = fork();
    if (pid == 0) {
        struct muster_store *second = NULL;
        muster_status status = muster_store_sqlite_open(path, &second);
        _exit(status == MUSTER_INVALID &&
                      strstr(muster_last_error(), "another musterd is using it") != NULL
                  ? 0
                  : 1);
    }
    int how = -1;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
    muster_store_close(store);
    muster_store_close(open_store());
}

/* Lists what load reads, in its order. */
struct recorded {
    char text[1024];
};

static void record(struct recorded *found, const char *what)
{
    size_t used = strlen(found->text);
    (void)snprintf(found->text + used, sizeof found->text - used, "%s;", what);
}

static muster_status record_job(void *user, const struct muster_store_job *job)
{
    char what[128];
    (void)snprintf(what, sizeof what, "job %s %s %s", job->name, job->token, job->link_token);
    record(user, what);
    return MUSTER_OK;
}

static muster_status record_event(void *user, uint64_t sequence, const char *text,
                                  size_t size_bytes)
{
    char what[128];
    (void)snprintf(what, sizeof what, "%d %.*s", (int)sequence, (int)size_bytes, text);
    record(user, what);
    return MUSTER_OK;
}

static muster_status record_record(void *user, uint64_t index, const char *text, size_t size_bytes)
{
    char what[128];
    (void)snprintf(what, sizeof what, "snapshot %d %.*s", (int)index, (int)size_bytes, text);
    record(user, what);
    return MUSTER_OK;
}

static muster_status record_value(void *user, uint64_t generation, const char *key,
                                  const void *value, size_t size_bytes)
{
    char what[128];
    (void)snprintf(what, sizeof what, "%s@%d=%.*s", key, (int)generation, (int)size_bytes,
                   size_bytes > 0 ? (const char *)value : "");
    record(user, what);
    return MUSTER_OK;
}

static muster_status record_damaged(void *user, const struct muster_store_job *job,
                                    const char *what)
{
    (void)user;
    fail_msg("job %s: %s", job->name, what);
    return MUSTER_OK;
}

static void expect_content(struct muster_store *store, const char *content)
{
    struct recorded found = {0};
    const struct muster_store_reader reader = {.job = record_job,
                                               .record = record_record,
                                               .event = record_event,
                                               .value = record_value,
                                               .damaged = record_damaged,
                                               .user = &found};
    assert_int_equal(store->ops->load(store, &reader), MUSTER_OK);
    assert_string_equal(found.text, content);
}

static void what_was_stored_is_read_back(void **state)
{
    (void)state;
    const struct muster_store_job a = {.name = "a", .token = "secret", .link_token = "link"};
    const struct muster_store_job b = {.name = "b", .token = "", .link_token = "knil"};
    struct muster_store *store = open_store();
    const struct muster_store_ops *ops = store->ops;
    assert_int_equal(ops->append(store, &a, 0, "first"), MUSTER_OK);
    assert_int_equal(ops->append(store, &b, 0, "other"), MUSTER_OK);
    assert_int_equal(ops->append(store, &a, 1, "second"), MUSTER_OK);
    assert_int_equal(ops->put(store, "a", 0, "k", "v", 1), MUSTER_OK);
    assert_int_equal(ops->put(store, "a", 1, "k", "old", 3), MUSTER_OK);
    assert_int_equal(ops->put(store, "a", 2, "k", NULL, 0), MUSTER_OK);
    assert_int_equal(ops->put(store, "a", 0, "k", "w", 1), MUSTER_OK);
    assert_int_equal(ops->put(store, "a", 0, "gone", "x", 1), MUSTER_OK);
    assert_int_equal(ops->remove_value(store, "a", 0, "gone"), MUSTER_OK);
    assert_int_equal(ops->remove_value(store, "a", 0, "never"), MUSTER_OK);
    assert_int_equal(ops->drop_values(store, "a", 2), MUSTER_OK);
    /* An event is not stored twice. */
    assert_int_equal(ops->append(store, &a, 1, "again"), MUSTER_RETRY);
    muster_store_close(store);
    store = open_store();
    expect_content(store, "job a secret link;0 first;1 second;k@0=w;k@2=;job b  knil;0 other;");
    assert_int_equal(store->ops->remove(store, "a"), MUSTER_OK);
    expect_content(store, "job b  knil;0 other;");
    muster_store_close(store);
}

/* What compaction does, with a life of the server between any two steps. */
static void a_snapshot_takes_the_place_of_events(void **state)
{
    (void)state;
    struct muster_store_job job = {.name = "a", .token = "secret", .link_token = "link"};
    struct muster_store_job after = job;
    char *texts[] = {(char[]){"one"}, (char[]){"two"}};
    size_t count = 0;
    struct muster_store *store = open_store();
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(store->ops->append(store, &job, i, "event"), MUSTER_OK);
    }
    after.snapshot = 1;
    after.record_count = 2;
    after.first_event = 3;
    assert_int_equal(store->ops->stage(store, &after, 0, &texts[0], 1), MUSTER_OK);
    assert_int_equal(store->ops->stage(store, &after, 0, &texts[0], 1), MUSTER_RETRY);
    muster_store_close(store);
    store = open_store();
    expect_content(store, "job a secret link;0 event;1 event;2 event;3 event;4 event;");
    assert_int_equal(store->ops->trim(store, &job, 10, &count), MUSTER_OK); /* it did not end */
    assert_int_equal(count, 1);
    assert_int_equal(store->ops->stage(store, &after, 0, &texts[0], 1), MUSTER_OK);
    assert_int_equal(store->ops->stage(store, &after, 1, &texts[1], 1), MUSTER_OK);
    assert_int_equal(store->ops->append(store, &job, 5, "last"), MUSTER_OK);
    assert_int_equal(store->ops->install(store, &after), MUSTER_OK);
    muster_store_close(store);
    store = open_store();
    expect_content(store,
                   "job a secret link;snapshot 0 one;snapshot 1 two;3 event;4 event;5 last;");
    assert_int_equal(store->ops->trim(store, &after, 2, &count), MUSTER_OK);
    assert_int_equal(count, 2);
    assert_int_equal(store->ops->trim(store, &after, 2, &count), MUSTER_OK);
    assert_int_equal(count, 1);
    struct recorded found = {0};
    const struct muster_store_reader reader = {
        .record = record_record, .event = record_event, .damaged = record_damaged, .user = &found};
    const struct muster_store_range events = {.from = 4, .max = 9};
    const struct muster_store_range records = {.of_snapshot = true, .from = 1, .max = 1};
    assert_int_equal(store->ops->read(store, &after, events, &reader, &count), MUSTER_OK);
    assert_int_equal(count, 2);
    assert_int_equal(store->ops->read(store, &after, records, &reader, &count), MUSTER_OK);
    assert_string_equal(found.text, "4 event;5 last;snapshot 1 two;");
    assert_int_equal(store->ops->remove(store, "a"), MUSTER_OK);
    expect_content(store, "");
    muster_store_close(store);
}

struct contents {
    uint64_t count;
    bool whole;
    char last[16];
};

static muster_status count_job(void *user, const struct muster_store_job *job)
{
    (void)job;
    ((struct contents *)user)->whole = true;
    return MUSTER_OK;
}

static muster_status count_event(void *user, uint64_t sequence, const char *text, size_t size_bytes)
{
    struct contents *contents = user;
    contents->whole = contents->whole && sequence == contents->count && strlen(text) == size_bytes;
    contents->count++;
    (void)snprintf(contents->last, sizeof contents->last, "%.15s", text);
    return MUSTER_OK;
}

/* In a process of its own: files cannot grow beyond 256 KiB. Returns 0 if all is as expected. */
static int fill_the_disk(void)
{
    const struct muster_store_job job = {.name = "j", .token = "", .link_token = "link"};
    struct rlimit limit = {.rlim_cur = 256 * 1024, .rlim_max = RLIM_INFINITY};
    char text[1025];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)signal(SIGXFSZ, SIG_IGN);
    struct muster_store *store = NULL;
    if (muster_store_sqlite_open(path, &store) != MUSTER_OK ||
        setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        return 1;
    }
    uint64_t stored = 0;
    while (stored < 10000 && store->ops->append(store, &job, stored, text) == MUSTER_OK) {
        stored++;
    }
    if (stored < 10 || stored == 10000 || strstr(muster_last_error(), path) == NULL) {
        return 2;
    }
    (void)fprintf(stderr, "after %d events: %s\n", (int)stored, muster_last_error());
    if (store->ops->append(store, &job, stored, text) != MUSTER_RETRY) {
        return 3;
    }
    limit.rlim_cur = RLIM_INFINITY; /* there is room again */
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 ||
        store->ops->append(store, &job, stored, "after") != MUSTER_OK) {
        return 4;
    }
    muster_store_close(store);
    return 0;
}

static void a_full_disk_is_reported_and_harms_nothing(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(fill_the_disk());
    }
    int how = -1;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(WIFEXITED(how) ? WEXITSTATUS(how) : -1, 0);
    struct muster_store *store = open_store();
    struct contents contents = {0};
    const struct muster_store_reader reader = {.job = count_job,
                                               .event = count_event,
                                               .value = record_value,
                                               .damaged = record_damaged,
                                               .user = &contents};
    assert_int_equal(store->ops->load(store, &reader), MUSTER_OK);
    assert_true(contents.whole && contents.count > 10);
    assert_string_equal(contents.last, "after");
    muster_store_close(store);
}

static void a_file_that_was_removed_or_replaced_is_not_written(void **state)
{
    (void)state;
    const struct muster_store_job job = {.name = "j", .token = "", .link_token = ""};
    char away[sizeof path + 8];
    (void)snprintf(away, sizeof away, "%s.away", path);
    struct muster_store *store = open_store();
    assert_int_equal(store->ops->append(store, &job, 0, "before"), MUSTER_OK);
    assert_int_equal(rename(path, away), 0);
    assert_int_equal(store->ops->append(store, &job, 1, "lost"), MUSTER_RETRY);
    assert_non_null(strstr(muster_last_error(), "No such file"));
    assert_int_equal(store->ops->put(store, job.name, 0, "k", "v", 1), MUSTER_RETRY);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(store->ops->append(store, &job, 1, "lost"), MUSTER_RETRY);
    assert_non_null(strstr(muster_last_error(), "replaced"));
    assert_int_equal(rename(away, path), 0);
    assert_int_equal(store->ops->append(store, &job, 1, "after"), MUSTER_OK);
    muster_store_close(store);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_file_that_is_no_store_is_named),
        TEST(a_file_without_permission_is_named),
        TEST(two_cannot_use_one_file),
        TEST(a_file_that_was_removed_or_replaced_is_not_written),
        TEST(what_was_stored_is_read_back),
        TEST(a_snapshot_takes_the_place_of_events),
        TEST(a_full_disk_is_reported_and_harms_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
