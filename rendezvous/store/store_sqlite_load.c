/* Reading a SQLite store: every row is compared with its checksum before it is passed on. */
#include "rendezvous/store/row_checksum.h"
#include "rendezvous/store/store_sqlite_parts.h"

#include <inttypes.h>
#include <stdio.h>

muster_status muster_sqlite_error(const struct sqlite_store *store, muster_status status)
{
    if (store->database == NULL) {
        return muster_error_set(MUSTER_FATAL, "store %s: no memory", store->path);
    }
    return muster_error_set(status, "store %s: %s", store->path, sqlite3_errmsg(store->database));
}

struct sqlite_load {
    struct sqlite_store *store;
    const struct muster_store_reader *reader;
    struct muster_store_job job; /* that is read; borrowed from its row */
    bool damaged;                /* nothing more of the job is passed on */
    size_t rows;                 /* that were read */
};

/* Calls read for each row of a prepared statement, until the job is damaged. */
static muster_status each_row(struct sqlite_load *load, enum statement statement,
                              muster_status (*read)(struct sqlite_load *load, sqlite3_stmt *row))
{
    sqlite3_stmt *row = load->store->statements[statement];
    muster_status status = MUSTER_OK;
    int result;
    while ((result = sqlite3_step(row)) == SQLITE_ROW && status == MUSTER_OK) {
        status = read(load, row);
    }
    if (status == MUSTER_OK && result != SQLITE_DONE) {
        status = muster_sqlite_error(load->store, MUSTER_INVALID);
    }
    (void)sqlite3_reset(row);
    return status;
}

static const char *text_of(sqlite3_stmt *row, int column)
{
    const unsigned char *text = sqlite3_column_text(row, column);
    return text != NULL ? (const char *)text : "";
}

/* True if the row has this checksum. Otherwise the job is damaged, and *ret_status says whether the
 * load can go on. name: of the row. */
static bool is_as_written(struct sqlite_load *load, sqlite3_stmt *row, int column,
                          uint32_t checksum, const char *name, muster_status *ret_status)
{
    int64_t written = sqlite3_column_int64(row, column);
    if (written == checksum) {
        return true;
    }
    char what[MUSTER_ERROR_MAX];
    (void)snprintf(what, sizeof what,
                   "store %s: %s is not as it was written: its checksum is %" PRIu32
                   ", but was %" PRId64,
                   load->store->path, name, checksum, written);
    load->damaged = true;
    *ret_status = load->reader->damaged(load->reader->user, &load->job, what);
    return false;
}

static muster_status pass_on(const struct sqlite_load *load, muster_status status)
{
    return status == MUSTER_OK ? status
                               : muster_error_prefix(status, "store %s", load->store->path);
}

static muster_status read_record(struct sqlite_load *load, sqlite3_stmt *row)
{
    muster_status status = MUSTER_OK;
    load->rows++;
    if (load->damaged) {
        return status;
    }
    const char *text = text_of(row, 1);
    size_t size_bytes = (size_t)sqlite3_column_bytes(row, 1);
    uint64_t index = (uint64_t)sqlite3_column_int64(row, 0);
    uint32_t checksum =
        muster_row_checksum_record(load->job.name, load->job.snapshot, index, text, size_bytes);
    char name[64];
    (void)snprintf(name, sizeof name, "record %" PRIu64 " of its snapshot", index);
    if (!is_as_written(load, row, 2, checksum, name, &status)) {
        return status;
    }
    return pass_on(load, load->reader->record(load->reader->user, index, text, size_bytes));
}

static muster_status read_event(struct sqlite_load *load, sqlite3_stmt *row)
{
    muster_status status = MUSTER_OK;
    load->rows++;
    if (load->damaged) {
        return status;
    }
    const char *text = text_of(row, 1);
    size_t size_bytes = (size_t)sqlite3_column_bytes(row, 1);
    uint64_t sequence = (uint64_t)sqlite3_column_int64(row, 0);
    uint32_t checksum = muster_row_checksum_event(load->job.name, sequence, text, size_bytes);
    char name[64];
    (void)snprintf(name, sizeof name, "event %" PRIu64, sequence);
    if (!is_as_written(load, row, 2, checksum, name, &status)) {
        return status;
    }
    return pass_on(load, load->reader->event(load->reader->user, sequence, text, size_bytes));
}

static muster_status read_value(struct sqlite_load *load, sqlite3_stmt *row)
{
    muster_status status = MUSTER_OK;
    if (load->damaged) {
        return status;
    }
    uint64_t generation = (uint64_t)sqlite3_column_int64(row, 0);
    const char *key = text_of(row, 1);
    const void *value = sqlite3_column_blob(row, 2);
    size_t size_bytes = (size_t)sqlite3_column_bytes(row, 2);
    uint32_t checksum =
        muster_row_checksum_value(load->job.name, generation, key, value, size_bytes);
    char name[384];
    (void)snprintf(name, sizeof name, "the value of key \"%.255s\"", key);
    if (!is_as_written(load, row, 3, checksum, name, &status)) {
        return status;
    }
    return pass_on(load,
                   load->reader->value(load->reader->user, generation, key, value, size_bytes));
}

static muster_status read_job(struct sqlite_load *load, sqlite3_stmt *row)
{
    muster_status status = MUSTER_OK;
    sqlite3_int64 id = sqlite3_column_int64(row, 0);
    load->damaged = false;
    load->job = (struct muster_store_job){
        .name = text_of(row, 1),
        .token = text_of(row, 2),
        .link_token = text_of(row, 3),
        .snapshot = (uint64_t)sqlite3_column_int64(row, 5),
        .record_count = (uint64_t)sqlite3_column_int64(row, 6),
        .first_event = (uint64_t)sqlite3_column_int64(row, 7),
    };
    if (!is_as_written(load, row, 4, muster_row_checksum_job(&load->job), "its row", &status)) {
        return status;
    }
    status = pass_on(load, load->reader->job(load->reader->user, &load->job));
    sqlite3_stmt *const *statements = load->store->statements;
    (void)sqlite3_bind_int64(statements[LOAD_RECORDS], 1, id);
    (void)sqlite3_bind_int64(statements[LOAD_RECORDS], 2, (sqlite3_int64)load->job.snapshot);
    (void)sqlite3_bind_int64(statements[LOAD_EVENTS], 1, id);
    (void)sqlite3_bind_int64(statements[LOAD_EVENTS], 2, (sqlite3_int64)load->job.first_event);
    (void)sqlite3_bind_int64(statements[LOAD_VALUES], 1, id);
    if (status == MUSTER_OK) {
        status = each_row(load, LOAD_RECORDS, read_record);
    }
    if (status == MUSTER_OK) {
        status = each_row(load, LOAD_EVENTS, read_event);
    }
    if (status == MUSTER_OK) {
        status = each_row(load, LOAD_VALUES, read_value);
    }
    return status;
}

/* Without the lock: no other function is called before load has returned. */
muster_status muster_sqlite_load(struct muster_store *base,
                                 const struct muster_store_reader *reader)
{
    struct sqlite_load load = {.store = (struct sqlite_store *)base, .reader = reader};
    return each_row(&load, LOAD_JOBS, read_job);
}

muster_status muster_sqlite_read(struct muster_store *base, const struct muster_store_job *job,
                                 struct muster_store_range range,
                                 const struct muster_store_reader *reader, size_t *ret_count)
{
    struct sqlite_load load = {.store = (struct sqlite_store *)base, .reader = reader, .job = *job};
    enum statement statement = range.of_snapshot ? READ_RECORDS : READ_EVENTS;
    AUTO_LOCK(&load.store->mutex);
    sqlite3_stmt *prepared = load.store->statements[statement];
    (void)sqlite3_bind_text(prepared, 1, job->name, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(prepared, 2, (sqlite3_int64)range.from);
    (void)sqlite3_bind_int64(prepared, 3, (sqlite3_int64)range.max);
    if (range.of_snapshot) {
        (void)sqlite3_bind_int64(prepared, 4, (sqlite3_int64)job->snapshot);
    }
    muster_status status = each_row(&load, statement, range.of_snapshot ? read_record : read_event);
    (void)sqlite3_clear_bindings(prepared);
    *ret_count = load.rows;
    return status;
}
