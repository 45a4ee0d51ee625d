/* Opening a SQLite store: the file is checked and locked, a new one gets its tables. Every error is
 * one line that names the file. */
#include "rendezvous/store/store_sqlite_parts.h"

#include "worker/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char schema[] =
    "CREATE TABLE jobs (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, token TEXT NOT NULL,"
    " link_token TEXT NOT NULL, snapshot INTEGER NOT NULL, record_count INTEGER NOT NULL,"
    " first_event INTEGER NOT NULL, checksum INTEGER NOT NULL);"
    "CREATE TABLE server (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL,"
    " checksum INTEGER NOT NULL);"
    "CREATE TABLE records (job INTEGER NOT NULL, snapshot INTEGER NOT NULL, number INTEGER NOT "
    "NULL,"
    " record TEXT NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (job, snapshot, number))"
    " WITHOUT ROWID;"
    "CREATE TABLE events (job INTEGER NOT NULL, sequence INTEGER NOT NULL, event TEXT NOT NULL,"
    " checksum INTEGER NOT NULL, PRIMARY KEY (job, sequence)) WITHOUT ROWID;"
    "CREATE TABLE value (job INTEGER NOT NULL, generation INTEGER NOT NULL, key TEXT NOT NULL,"
    " value BLOB NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (job, generation, key)) WITHOUT "
    "ROWID;";

/* Creates the file if it is missing. SQLite would say "unable to open database file" for most of
 * these errors. */
static muster_status check_file(const char *path, struct stat *ret_status)
{
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd < 0) {
        return muster_error_errno(MUSTER_INVALID, "store %s", path);
    }
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        return muster_error_set(MUSTER_INVALID, "store %s: not a file", path);
    }
    *ret_status = status;
    return MUSTER_OK;
}

/* SQLite creates files beside this one: its log, and for a moment a journal. */
static muster_status check_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    AUTO_FREE char *folder =
        slash != NULL ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    if (folder == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    if (faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) != 0) {
        return muster_error_errno(MUSTER_INVALID, "store %s: folder %s cannot be written", path,
                                  folder);
    }
    return MUSTER_OK;
}

static int read_first_text(void *user, int count, char **texts, char **names)
{
    (void)names;
    (void)snprintf(user, MUSTER_ERROR_MAX, "%s", count > 0 && texts[0] != NULL ? texts[0] : "?");
    return 0;
}

/* Reads the whole file: SQLite would otherwise notice damage where it comes across it, or show
 * fewer rows than there are. */
static muster_status check_integrity(struct sqlite_store *store)
{
    char found[MUSTER_ERROR_MAX] = "?";
    int result =
        sqlite3_exec(store->database, "PRAGMA integrity_check(1)", read_first_text, found, NULL);
    if (result != SQLITE_OK) {
        return muster_sqlite_error(store, MUSTER_INVALID);
    }
    if (strcmp(found, "ok") != 0) {
        found[strcspn(found, "\n")] = ' ';
        return muster_error_set(MUSTER_INVALID, "store %s: the file is damaged: %.300s",
                                store->path, found);
    }
    return MUSTER_OK;
}

static int compare_schema(void *user, int count, char **texts, char **names)
{
    (void)names;
    *(bool *)user = count == 1 && texts[0] != NULL && strcmp(texts[0], schema) == 0;
    return 0;
}

/* The text by which the tables were made says how their rows are read, and nothing in the file
 * notices when it changes: a key of another type, for example, makes every look-up miss. */
static muster_status check_schema(struct sqlite_store *store)
{
    bool is_equal = false;
    int result =
        sqlite3_exec(store->database,
                     "SELECT group_concat(sql || ';', '') FROM"
                     " (SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid)",
                     compare_schema, &is_equal, NULL);
    if (result != SQLITE_OK) {
        return muster_sqlite_error(store, MUSTER_INVALID);
    }
    if (!is_equal) {
        return muster_error_set(MUSTER_INVALID,
                                "store %s: the file is damaged: its tables are not defined as"
                                " version %d of the store defines them",
                                store->path, SCHEMA_VERSION);
    }
    return MUSTER_OK;
}

static int read_number(void *user, int count, char **texts, char **names)
{
    (void)names;
    *(long *)user = count == 1 && texts[0] != NULL ? strtol(texts[0], NULL, 10) : -1;
    return 0;
}

static muster_status execute(struct sqlite_store *store, const char *text, long *ret_number)
{
    int result = sqlite3_exec(store->database, text, ret_number != NULL ? read_number : NULL,
                              ret_number, NULL);
    if (result == SQLITE_BUSY) {
        return muster_error_set(MUSTER_INVALID, "store %s: another musterd is using it",
                                store->path);
    }
    return result == SQLITE_OK ? MUSTER_OK : muster_sqlite_error(store, MUSTER_INVALID);
}

/* Locks the file: in this mode the first write takes the lock and does not release it. Then creates
 * the schema in an empty file, and checks that any other is a musterd's of this version. */
static muster_status lock_and_check(struct sqlite_store *store)
{
    TRY(execute(store, "PRAGMA locking_mode = EXCLUSIVE", NULL));
    TRY(execute(store, "BEGIN EXCLUSIVE", NULL));
    long tables = -1;
    long application = -1;
    long version = -1;
    TRY(execute(store, "SELECT count(*) FROM sqlite_master", &tables));
    TRY(execute(store, "PRAGMA application_id", &application));
    TRY(execute(store, "PRAGMA user_version", &version));
    if (tables == 0 && application == 0 && version == 0) {
        char marks[128];
        (void)snprintf(marks, sizeof marks, "PRAGMA application_id = %d; PRAGMA user_version = %d",
                       APPLICATION_ID, SCHEMA_VERSION);
        TRY(execute(store, schema, NULL));
        TRY(execute(store, marks, NULL));
    } else if (application != APPLICATION_ID) {
        return muster_error_set(MUSTER_INVALID, "store %s: a database, but not a musterd's",
                                store->path);
    } else if (version != SCHEMA_VERSION) {
        return muster_error_set(MUSTER_INVALID,
                                "store %s: version %ld, but this musterd reads version %d",
                                store->path, version, SCHEMA_VERSION);
    }
    TRY(check_integrity(store));
    TRY(check_schema(store));
    TRY(execute(store, "COMMIT", NULL));
    TRY(execute(store, "PRAGMA journal_mode = WAL", NULL));
    return execute(store, "PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 4194304", NULL);
}

/* The first sync also makes the name of the log survive, which a new file has in no other way. */
static muster_status open_log(struct sqlite_store *store)
{
    long jobs = 0;
    TRY(execute(store, "SELECT count(*) FROM jobs", &jobs)); /* the first read opens the log */
    if (sqlite3_file_control(store->database, "main", SQLITE_FCNTL_JOURNAL_POINTER, &store->log) !=
            SQLITE_OK ||
        store->log->pMethods == NULL) {
        return muster_error_set(MUSTER_INVALID, "store %s: has no write-ahead log", store->path);
    }
    return store->store.ops->sync(&store->store);
}

/* Checks the file, opens and locks the database, prepares every statement. */
muster_status muster_store_sqlite_open(const char *path, struct muster_store **ret_store)
{
    struct stat file = {0};
    TRY(check_file(path, &file));
    TRY(check_folder(path));
    struct sqlite_store *store = calloc(1, sizeof *store);
    char *copy = strdup(path);
    if (store == NULL || copy == NULL) {
        free(copy);
        free(store);
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    store->store.ops = &muster_sqlite_ops;
    store->path = copy;
    store->device = file.st_dev;
    store->inode = file.st_ino;
    muster_mutex_init(&store->mutex);
    muster_status status = MUSTER_OK;
    if (sqlite3_open_v2(path, &store->database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
                        NULL) != SQLITE_OK) {
        status = muster_sqlite_error(store, MUSTER_INVALID);
    }
    if (status == MUSTER_OK) {
        status = lock_and_check(store);
    }
    if (status == MUSTER_OK) {
        status = muster_sqlite_prepare(store);
    }
    if (status == MUSTER_OK) {
        status = open_log(store);
    }
    if (status != MUSTER_OK) {
        muster_store_close(&store->store);
        return status;
    }
    *ret_store = &store->store;
    return MUSTER_OK;
}
