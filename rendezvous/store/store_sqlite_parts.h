/* What the files of the SQLite store share: its state, its statements, and its errors. */
#ifndef MUSTER_RENDEZVOUS_STORE_STORE_SQLITE_PARTS_H
#define MUSTER_RENDEZVOUS_STORE_STORE_SQLITE_PARTS_H

#include "rendezvous/store/store.h"

#include "worker/base/thread.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/stat.h>

enum {
    APPLICATION_ID = 0x6d757374, /* "must", in the file's header */
    SCHEMA_VERSION = 3,
};

enum statement {
    BEGIN,
    COMMIT,
    ROLLBACK,
    INSERT_JOB,
    INSERT_EVENT,
    PUT_VALUE,
    REMOVE_VALUE,
    DROP_VALUES,
    REMOVE_VALUES,
    REMOVE_EVENTS,
    REMOVE_RECORDS,
    STAGE_RECORD,
    INSTALL_SNAPSHOT,
    TRIM_EVENTS,
    TRIM_RECORDS,
    READ_EVENTS,
    READ_RECORDS,
    REMOVE_JOB,
    PROBE,
    LOAD_JOBS,
    LOAD_RECORDS,
    LOAD_EVENTS,
    LOAD_VALUES,
    STATEMENT_COUNT,
};

struct sqlite_store {
    struct muster_store store; /* first */
    char *path;
    dev_t device; /* of the file that was opened by that path */
    ino_t inode;
    pthread_mutex_t mutex;
    sqlite3 *database;
    sqlite3_file *log; /* the write-ahead log, SQLite's, open until the database is closed */
    atomic_bool sync_failed;
    sqlite3_stmt *statements[STATEMENT_COUNT];
};

extern const struct muster_store_ops muster_sqlite_ops;

/* Sets an error with the text of SQLite's last one; returns status, or MUSTER_FATAL if there is no
 * database. */
muster_status muster_sqlite_error(const struct sqlite_store *store, muster_status status);

/* The store's load(). */
MUSTER_CHECKED muster_status muster_sqlite_load(struct muster_store *base,
                                                const struct muster_store_reader *reader);

/* The store's read(). */
MUSTER_CHECKED muster_status muster_sqlite_read(struct muster_store *base,
                                                const struct muster_store_job *job,
                                                struct muster_store_range range,
                                                const struct muster_store_reader *reader,
                                                size_t *ret_count);

/* Prepares every statement. The tables are there. */
MUSTER_CHECKED muster_status muster_sqlite_prepare(struct sqlite_store *store);

#endif
