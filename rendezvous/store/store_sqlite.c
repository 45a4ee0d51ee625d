/*
 * The store in a SQLite file: one connection under one lock. It uses the write-ahead log with
 * synchronous=NORMAL: a commit is a write(2), which survives the process, and sync() makes all
 * commits before it survive a power loss, as synchronous=FULL would do for each. Every thousand
 * pages the log is copied into the file and begins anew, so that neither grows with time. The file
 * is locked while it is open; the lock ends with the process, however that ends.
 */
#include "rendezvous/store/row_checksum.h"
#include "rendezvous/store/store_sqlite_parts.h"

#include "worker/base/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes the page that has the version: as much as SQLite needs for an event at least. */
#define PROBE_TEXT "PRAGMA user_version = 3"
_Static_assert(SCHEMA_VERSION == 3, "PROBE_TEXT has the number");

#define JOB_ID "(SELECT id FROM jobs WHERE name = ?1)"
static const char *const statement_texts[STATEMENT_COUNT] = {
    [BEGIN] = "BEGIN",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
    [INSERT_JOB] =
        "INSERT INTO jobs (name, token, link_token, snapshot, record_count, first_event, checksum) "
        "VALUES (?1, ?2, ?3, 0, 0, 0, ?4)",
    [INSERT_EVENT] =
        "INSERT INTO events (job, sequence, event, checksum) VALUES (" JOB_ID ", ?2, ?3, ?4)",
    [PUT_VALUE] =
        "INSERT OR REPLACE INTO value (job, generation, key, value, checksum) "
        "VALUES (" JOB_ID ", ?2, ?3, ?4, ?5)",
    [REMOVE_VALUE] = "DELETE FROM value WHERE job = " JOB_ID " AND generation = ?2 AND key = ?3",
    [DROP_VALUES] =
        "DELETE FROM value WHERE job = " JOB_ID " AND generation > 0 AND generation < ?2",
    [REMOVE_VALUES] = "DELETE FROM value WHERE job = " JOB_ID,
    [REMOVE_EVENTS] = "DELETE FROM events WHERE job = " JOB_ID,
    [REMOVE_RECORDS] = "DELETE FROM records WHERE job = " JOB_ID,
    [STAGE_RECORD] =
        "INSERT INTO records (job, snapshot, number, record, checksum) "
        "VALUES (" JOB_ID ", ?2, ?3, ?4, ?5)",
    [INSTALL_SNAPSHOT] =
        "UPDATE jobs SET snapshot = ?2, record_count = ?3, first_event = ?4, checksum = ?5 "
        "WHERE name = ?1",
    [TRIM_EVENTS] =
        "DELETE FROM events WHERE (job, sequence) IN (SELECT job, sequence FROM events "
        "WHERE job = " JOB_ID " AND sequence < ?2 LIMIT ?3)",
    [TRIM_RECORDS] =
        "DELETE FROM records WHERE (job, snapshot, number) IN (SELECT job, snapshot, number "
        "FROM records WHERE job = " JOB_ID " AND snapshot <> ?2 LIMIT ?3)",
    [READ_EVENTS] =
        "SELECT sequence, event, checksum FROM events "
        "WHERE job = " JOB_ID " AND sequence >= ?2 ORDER BY sequence LIMIT ?3",
    [READ_RECORDS] =
        "SELECT number, record, checksum FROM records "
        "WHERE job = " JOB_ID " AND snapshot = ?4 AND number >= ?2 ORDER BY number LIMIT ?3",
    [REMOVE_JOB] = "DELETE FROM jobs WHERE name = ?1",
    [PROBE] = PROBE_TEXT,
    [LOAD_JOBS] =
        "SELECT id, name, token, link_token, checksum, snapshot, record_count, first_event FROM "
        "jobs "
        "ORDER BY id",
    [LOAD_RECORDS] =
        "SELECT number, record, checksum FROM records WHERE job = ?1 AND snapshot = ?2 "
        "ORDER BY number",
    [LOAD_EVENTS] =
        "SELECT sequence, event, checksum FROM events WHERE job = ?1 AND sequence >= ?2 "
        "ORDER BY sequence",
    [LOAD_VALUES] = "SELECT generation, key, value, checksum FROM value WHERE job = ?1",
};

static struct sqlite_store *sqlite_store_of(struct muster_store *store)
{
    return (struct sqlite_store *)store;
}

/* Runs a statement that returns no rows and whose parameters are bound. */
static muster_status run(struct sqlite_store *store, enum statement statement)
{
    sqlite3_stmt *prepared = store->statements[statement];
    int result = sqlite3_step(prepared);
    muster_status status = MUSTER_OK;
    if (result != SQLITE_DONE) {
        status = muster_sqlite_error(store, MUSTER_RETRY);
    }
    (void)sqlite3_reset(prepared);
    (void)sqlite3_clear_bindings(prepared);
    return status;
}

static bool bind_text(struct sqlite_store *store, enum statement statement, int index,
                      const char *text)
{
    return sqlite3_bind_text(store->statements[statement], index, text, -1, SQLITE_STATIC) ==
           SQLITE_OK;
}

static bool bind_number(struct sqlite_store *store, enum statement statement, int index,
                        uint64_t number)
{
    return sqlite3_bind_int64(store->statements[statement], index, (sqlite3_int64)number) ==
           SQLITE_OK;
}

/* Writes to a file that was removed would be lost with the process, and another musterd could
 * create a new file by the same path. */
static muster_status check_file_unchanged(const struct sqlite_store *store)
{
    if (atomic_load(&store->sync_failed)) {
        return muster_error_set(MUSTER_RETRY,
                                "store %s: a sync has failed, and what the disk has is not "
                                "certain: start the server anew",
                                store->path);
    }
    struct stat status;
    if (stat(store->path, &status) != 0) {
        return muster_error_errno(MUSTER_RETRY, "store %s", store->path);
    }
    if (status.st_dev != store->device || status.st_ino != store->inode) {
        return muster_error_set(MUSTER_RETRY, "store %s: it was replaced by another file",
                                store->path);
    }
    return MUSTER_OK;
}

/* Binding fails only if memory is out; the statement then fails, and run() returns its error. */
static muster_status insert_job(struct sqlite_store *store, const struct muster_store_job *job)
{
    (void)bind_text(store, INSERT_JOB, 1, job->name);
    (void)bind_text(store, INSERT_JOB, 2, job->token);
    (void)bind_text(store, INSERT_JOB, 3, job->link_token);
    (void)bind_number(store, INSERT_JOB, 4, muster_row_checksum_job(job));
    return run(store, INSERT_JOB);
}

static muster_status insert_event(struct sqlite_store *store, const char *job, uint64_t sequence,
                                  const char *text)
{
    (void)bind_text(store, INSERT_EVENT, 1, job);
    (void)bind_number(store, INSERT_EVENT, 2, sequence);
    (void)bind_text(store, INSERT_EVENT, 3, text);
    (void)bind_number(store, INSERT_EVENT, 4,
                      muster_row_checksum_event(job, sequence, text, strlen(text)));
    return run(store, INSERT_EVENT);
}

static void roll_back(struct sqlite_store *store)
{
    char error[MUSTER_ERROR_MAX]; /* of the statement that failed, not of the roll-back */
    (void)snprintf(error, sizeof error, "%s", muster_last_error());
    /* A full disk may have ended the transaction already. */
    if (sqlite3_get_autocommit(store->database) == 0) {
        (void)run(store, ROLLBACK);
    }
    (void)muster_error_set(MUSTER_RETRY, "%s", error);
}

/* Commits if status is MUSTER_OK, otherwise rolls back; returns the status of both. */
static muster_status end_transaction(struct sqlite_store *store, muster_status status)
{
    if (status == MUSTER_OK) {
        status = run(store, COMMIT);
    }
    if (status != MUSTER_OK) {
        roll_back(store);
    }
    return status;
}

static muster_status append(struct muster_store *base, const struct muster_store_job *job,
                            uint64_t sequence, const char *text)
{
    struct sqlite_store *store = sqlite_store_of(base);
    if (sequence - job->first_event >= MUSTER_STORE_EVENTS_MAX) {
        return muster_error_set(
            MUSTER_RETRY, "store %s: job %s has %d events, the most that are stored: use a new job",
            store->path, job->name, MUSTER_STORE_EVENTS_MAX);
    }
    TRY(check_file_unchanged(store));
    AUTO_LOCK(&store->mutex);
    if (sequence > 0) {
        return insert_event(store, job->name, sequence, text);
    }
    TRY(run(store, BEGIN));
    muster_status status = insert_job(store, job);
    if (status == MUSTER_OK) {
        status = insert_event(store, job->name, sequence, text);
    }
    return end_transaction(store, status);
}

static muster_status stage_record(struct sqlite_store *store, const struct muster_store_job *job,
                                  uint64_t index, const char *text)
{
    (void)bind_text(store, STAGE_RECORD, 1, job->name);
    (void)bind_number(store, STAGE_RECORD, 2, job->snapshot);
    (void)bind_number(store, STAGE_RECORD, 3, index);
    (void)bind_text(store, STAGE_RECORD, 4, text);
    (void)bind_number(
        store, STAGE_RECORD, 5,
        muster_row_checksum_record(job->name, job->snapshot, index, text, strlen(text)));
    return run(store, STAGE_RECORD);
}

static muster_status stage(struct muster_store *base, const struct muster_store_job *job,
                           uint64_t first_index, char *const *texts, size_t count)
{
    struct sqlite_store *store = sqlite_store_of(base);
    TRY(check_file_unchanged(store));
    AUTO_LOCK(&store->mutex);
    TRY(run(store, BEGIN));
    muster_status status = MUSTER_OK;
    for (size_t i = 0; i < count && status == MUSTER_OK; i++) {
        status = stage_record(store, job, first_index + i, texts[i]);
    }
    return end_transaction(store, status);
}

static muster_status install(struct muster_store *base, const struct muster_store_job *job)
{
    struct sqlite_store *store = sqlite_store_of(base);
    TRY(check_file_unchanged(store));
    AUTO_LOCK(&store->mutex);
    (void)bind_text(store, INSTALL_SNAPSHOT, 1, job->name);
    (void)bind_number(store, INSTALL_SNAPSHOT, 2, job->snapshot);
    (void)bind_number(store, INSTALL_SNAPSHOT, 3, job->record_count);
    (void)bind_number(store, INSTALL_SNAPSHOT, 4, job->first_event);
    (void)bind_number(store, INSTALL_SNAPSHOT, 5, muster_row_checksum_job(job));
    return run(store, INSTALL_SNAPSHOT);
}

static muster_status trim_one(struct sqlite_store *store, enum statement statement, const char *job,
                              uint64_t bound, size_t max, size_t *ret_count)
{
    (void)bind_text(store, statement, 1, job);
    (void)bind_number(store, statement, 2, bound);
    (void)bind_number(store, statement, 3, max);
    TRY(run(store, statement));
    *ret_count = (size_t)sqlite3_changes(store->database);
    return MUSTER_OK;
}

static muster_status trim(struct muster_store *base, const struct muster_store_job *job, size_t max,
                          size_t *ret_count)
{
    struct sqlite_store *store = sqlite_store_of(base);
    size_t events = 0;
    size_t records = 0;
    TRY(check_file_unchanged(store));
    AUTO_LOCK(&store->mutex);
    TRY(trim_one(store, TRIM_EVENTS, job->name, job->first_event, max, &events));
    if (events < max) {
        TRY(trim_one(store, TRIM_RECORDS, job->name, job->snapshot, max - events, &records));
    }
    *ret_count = events + records;
    return MUSTER_OK;
}

static muster_status put(struct muster_store *base, const char *job, uint64_t generation,
                         const char *key, const void *value, size_t size_bytes)
{
    struct sqlite_store *store = sqlite_store_of(base);
    TRY(check_file_unchanged(store));
    AUTO_LOCK(&store->mutex);
    (void)bind_text(store, PUT_VALUE, 1, job);
    (void)bind_number(store, PUT_VALUE, 2, generation);
    (void)bind_text(store, PUT_VALUE, 3, key);
    (void)sqlite3_bind_blob64(store->statements[PUT_VALUE], 4, size_bytes > 0 ? value : "",
                              size_bytes, SQLITE_STATIC);
    (void)bind_number(store, PUT_VALUE, 5,
                      muster_row_checksum_value(job, generation, key, value, size_bytes));
    return run(store, PUT_VALUE);
}

static muster_status remove_value(struct muster_store *base, const char *job, uint64_t generation,
                                  const char *key)
{
    struct sqlite_store *store = sqlite_store_of(base);
    TRY(check_file_unchanged(store));
    AUTO_LOCK(&store->mutex);
    (void)bind_text(store, REMOVE_VALUE, 1, job);
    (void)bind_number(store, REMOVE_VALUE, 2, generation);
    (void)bind_text(store, REMOVE_VALUE, 3, key);
    return run(store, REMOVE_VALUE);
}

static muster_status drop_values(struct muster_store *base, const char *job,
                                 uint64_t below_generation)
{
    struct sqlite_store *store = sqlite_store_of(base);
    AUTO_LOCK(&store->mutex);
    (void)bind_text(store, DROP_VALUES, 1, job);
    (void)bind_number(store, DROP_VALUES, 2, below_generation);
    return run(store, DROP_VALUES);
}

static muster_status remove_job(struct muster_store *base, const char *job)
{
    static const enum statement parts[] = {REMOVE_VALUES, REMOVE_EVENTS, REMOVE_RECORDS,
                                           REMOVE_JOB};
    struct sqlite_store *store = sqlite_store_of(base);
    AUTO_LOCK(&store->mutex);
    muster_status status = run(store, BEGIN);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && status == MUSTER_OK; i++) {
        (void)bind_text(store, parts[i], 1, job);
        status = run(store, parts[i]);
    }
    return end_transaction(store, status);
}

/* Without the lock: others write meanwhile. After a failure the kernel may have dropped what it
 * could not write, so that a second sync would succeed without it. */
static muster_status sync_log(struct muster_store *base)
{
    struct sqlite_store *store = sqlite_store_of(base);
    if (atomic_load(&store->sync_failed) ||
        store->log->pMethods->xSync(store->log, SQLITE_SYNC_NORMAL) != SQLITE_OK) {
        atomic_store(&store->sync_failed, true);
        return check_file_unchanged(store);
    }
    return MUSTER_OK;
}

static muster_status probe(struct muster_store *base)
{
    struct sqlite_store *store = sqlite_store_of(base);
    AUTO_LOCK(&store->mutex);
    TRY(check_file_unchanged(store));
    return run(store, PROBE);
}

static void close_store(struct muster_store *base)
{
    struct sqlite_store *store = sqlite_store_of(base);
    for (int i = 0; i < STATEMENT_COUNT; i++) {
        (void)sqlite3_finalize(store->statements[i]);
    }
    (void)sqlite3_close(store->database);
    (void)pthread_mutex_destroy(&store->mutex);
    free(store->path);
    free(store);
}

const struct muster_store_ops muster_sqlite_ops = {
    .kind = "sqlite",
    .append = append,
    .read = muster_sqlite_read,
    .stage = stage,
    .install = install,
    .trim = trim,
    .put = put,
    .remove_value = remove_value,
    .drop_values = drop_values,
    .remove = remove_job,
    .syncs = true,
    .sync = sync_log,
    .probe = probe,
    .load = muster_sqlite_load,
    .close = close_store,
};

muster_status muster_sqlite_prepare(struct sqlite_store *store)
{
    for (int i = 0; i < STATEMENT_COUNT; i++) {
        if (sqlite3_prepare_v3(store->database, statement_texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &store->statements[i], NULL) != SQLITE_OK) {
            return muster_sqlite_error(store, MUSTER_INVALID);
        }
    }
    return MUSTER_OK;
}
