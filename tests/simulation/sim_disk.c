/* A disk in memory, as a VFS of SQLite. Each file has what programs read, and what a power loss
 * leaves: the writes since its last sync are kept in a list, and each of their sectors may be lost.
 */
#include "tests/simulation/sim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

enum { FILES_MAX = 8, NAME_SIZE = 256, SECTOR_SIZE = 512 };

/* Since the last sync. data NULL: the file was cut to `at`. */
struct unsynced_write {
    size_t at, size_bytes;
    unsigned char *data; /* owned */
};

struct image {
    unsigned char *bytes; /* owned */
    size_t size_bytes, capacity;
};

struct disk_file {
    char name[NAME_SIZE]; /* "": a free place */
    bool was_synced;      /* else its name does not survive, either */
    struct image now, synced;
    struct unsynced_write *writes; /* owned */
    size_t write_count, write_capacity;
};

struct open_file {
    sqlite3_file base; /* first */
    struct disk_file *file;
    uint64_t process;
};

static struct disk_file files[FILES_MAX];
static struct sim_disk_faults faults;
static uint64_t process; /* files that were opened by an earlier one give errors */
static sqlite3_vfs vfs;

struct sim_disk_faults *sim_disk_faults(void)
{
    return &faults;
}

/* Images --------------------------------------------------------------------------------------- */

static void resize(struct image *image, size_t size_bytes)
{
    if (size_bytes > image->capacity) {
        image->capacity = 2 * size_bytes;
        image->bytes = realloc(image->bytes, image->capacity);
        assert(image->bytes != NULL);
    }
    if (size_bytes > image->size_bytes) {
        memset(image->bytes + image->size_bytes, 0, size_bytes - image->size_bytes);
    }
    image->size_bytes = size_bytes;
}

static void put(struct image *image, size_t at, const void *data, size_t size_bytes)
{
    if (size_bytes == 0) {
        return;
    }
    if (at + size_bytes > image->size_bytes) {
        resize(image, at + size_bytes);
    }
    memcpy(image->bytes + at, data, size_bytes);
}

static void remember(struct disk_file *file, size_t at, const void *data, size_t size_bytes)
{
    if (file->write_count == file->write_capacity) {
        file->write_capacity = file->write_capacity > 0 ? 2 * file->write_capacity : 64;
        file->writes = reallocarray(file->writes, file->write_capacity, sizeof *file->writes);
        assert(file->writes != NULL);
    }
    struct unsynced_write *write = &file->writes[file->write_count++];
    *write = (struct unsynced_write){.at = at, .size_bytes = size_bytes};
    if (data != NULL) {
        write->data = malloc(size_bytes > 0 ? size_bytes : 1);
        assert(write->data != NULL);
        memcpy(write->data, data, size_bytes);
    }
}

/* What of the write has reached the disk; of a thousand sectors so many have. */
static void persist(struct disk_file *file, struct unsynced_write *write, uint32_t keeps)
{
    if (write->data == NULL) {
        if (sim_chance(keeps)) {
            resize(&file->synced, write->at);
        }
        return;
    }
    for (size_t done = 0; done < write->size_bytes;) {
        size_t to_edge = SECTOR_SIZE - (write->at + done) % SECTOR_SIZE;
        size_t left = write->size_bytes - done;
        size_t size = to_edge < left ? to_edge : left;
        if (keeps == 1000 || sim_chance(keeps)) {
            put(&file->synced, write->at + done, write->data + done, size);
        }
        done += size;
    }
}

static void persist_all(struct disk_file *file, uint32_t keeps)
{
    for (size_t i = 0; i < file->write_count; i++) {
        persist(file, &file->writes[i], keeps);
        free(file->writes[i].data);
    }
    file->write_count = 0;
}

static void remove_file(struct disk_file *file)
{
    for (size_t i = 0; i < file->write_count; i++) {
        free(file->writes[i].data);
    }
    free(file->writes);
    free(file->now.bytes);
    free(file->synced.bytes);
    *file = (struct disk_file){0};
}

static struct disk_file *find(const char *name)
{
    for (int i = 0; i < FILES_MAX; i++) {
        if (strcmp(files[i].name, name) == 0) {
            return &files[i];
        }
    }
    return NULL;
}

/* The methods of a file ------------------------------------------------------------------------ */

/* NULL: the process that opened it is gone. */
static struct disk_file *file_of(sqlite3_file *base)
{
    struct open_file *open = (struct open_file *)base;
    return open->process == process ? open->file : NULL;
}

static int close_file(sqlite3_file *base)
{
    (void)base;
    return SQLITE_OK;
}

static int read_file(sqlite3_file *base, void *to, int size, sqlite3_int64 at)
{
    const struct disk_file *file = file_of(base);
    if (file == NULL) {
        return SQLITE_IOERR_READ;
    }
    size_t begin = (size_t)at < file->now.size_bytes ? (size_t)at : file->now.size_bytes;
    size_t left = file->now.size_bytes - begin;
    size_t got = (size_t)size < left ? (size_t)size : left;
    if (got > 0) {
        memcpy(to, file->now.bytes + begin, got);
    }
    memset((char *)to + got, 0, (size_t)size - got);
    return got == (size_t)size ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

static int write_file(sqlite3_file *base, const void *from, int size, sqlite3_int64 at)
{
    struct disk_file *file = file_of(base);
    if (file == NULL) {
        return SQLITE_IOERR_WRITE;
    }
    if (faults.full) {
        return SQLITE_FULL;
    }
    put(&file->now, (size_t)at, from, (size_t)size);
    remember(file, (size_t)at, from, (size_t)size);
    return SQLITE_OK;
}

static int truncate_file(sqlite3_file *base, sqlite3_int64 size)
{
    struct disk_file *file = file_of(base);
    if (file == NULL) {
        return SQLITE_IOERR_TRUNCATE;
    }
    resize(&file->now, (size_t)size);
    remember(file, (size_t)size, NULL, 0);
    return SQLITE_OK;
}

static int sync_file(sqlite3_file *base, int flags)
{
    struct disk_file *file = file_of(base);
    (void)flags;
    if (file == NULL || faults.sync_fails) {
        return SQLITE_IOERR_FSYNC;
    }
    persist_all(file, 1000);
    resize(&file->synced, file->now.size_bytes);
    file->was_synced = true;
    return SQLITE_OK;
}

static int file_size(sqlite3_file *base, sqlite3_int64 *ret_size)
{
    const struct disk_file *file = file_of(base);
    *ret_size = file != NULL ? (sqlite3_int64)file->now.size_bytes : 0;
    return file != NULL ? SQLITE_OK : SQLITE_IOERR_FSTAT;
}

static int lock_file(sqlite3_file *base, int lock)
{
    (void)lock;
    return file_of(base) != NULL ? SQLITE_OK : SQLITE_IOERR_LOCK;
}

static int check_lock(sqlite3_file *base, int *ret_reserved)
{
    (void)base;
    *ret_reserved = 0;
    return SQLITE_OK;
}

static int control_file(sqlite3_file *base, int operation, void *argument)
{
    (void)base;
    (void)operation;
    (void)argument;
    return SQLITE_NOTFOUND;
}

static int sector_size(sqlite3_file *base)
{
    (void)base;
    return SECTOR_SIZE;
}

static int no_properties(sqlite3_file *base)
{
    (void)base;
    return 0;
}

static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = close_file,
    .xRead = read_file,
    .xWrite = write_file,
    .xTruncate = truncate_file,
    .xSync = sync_file,
    .xFileSize = file_size,
    .xLock = lock_file,
    .xUnlock = lock_file,
    .xCheckReservedLock = check_lock,
    .xFileControl = control_file,
    .xSectorSize = sector_size,
    .xDeviceCharacteristics = no_properties,
};

/* The methods of the disk ---------------------------------------------------------------------- */

static int open_file(sqlite3_vfs *disk, sqlite3_filename name, sqlite3_file *base, int flags,
                     int *ret_flags)
{
    struct open_file *open = (struct open_file *)base;
    (void)disk;
    base->pMethods = NULL;
    if (name == NULL || strlen(name) >= NAME_SIZE) {
        return SQLITE_CANTOPEN;
    }
    struct disk_file *file = find(name);
    if (file == NULL) {
        file = find("");
        assert(file != NULL);
        (void)strcpy(file->name, name);
    }
    *open = (struct open_file){.base.pMethods = &methods, .file = file, .process = process};
    if (ret_flags != NULL) {
        *ret_flags = flags;
    }
    return SQLITE_OK;
}

static int delete_file(sqlite3_vfs *disk, const char *name, int sync_folder)
{
    struct disk_file *file = find(name);
    (void)disk;
    (void)sync_folder;
    if (file != NULL) {
        remove_file(file);
    }
    return SQLITE_OK;
}

static int access_file(sqlite3_vfs *disk, const char *name, int flags, int *ret_there)
{
    const struct disk_file *file = find(name);
    (void)disk;
    (void)flags;
    *ret_there = file != NULL && file->now.size_bytes > 0;
    return SQLITE_OK;
}

static int full_name(sqlite3_vfs *disk, const char *name, int size, char *ret_name)
{
    (void)disk;
    (void)sqlite3_snprintf(size, ret_name, "%s", name);
    return SQLITE_OK;
}

void sim_disk_begin(void)
{
    if (vfs.zName == NULL) {
        vfs = *sqlite3_vfs_find(NULL);
        vfs.iVersion = 1;
        vfs.pNext = NULL;
        vfs.zName = "simulated";
        vfs.szOsFile = sizeof(struct open_file);
        vfs.xOpen = open_file;
        vfs.xDelete = delete_file;
        vfs.xAccess = access_file;
        vfs.xFullPathname = full_name;
        int status = sqlite3_vfs_register(&vfs, 1);
        assert(status == SQLITE_OK);
        (void)status;
    }
    sim_disk_end();
}

void sim_disk_crash(bool power_lost)
{
    process++;
    for (int i = 0; i < FILES_MAX && power_lost; i++) {
        struct disk_file *file = &files[i];
        if (file->name[0] != '\0' && !file->was_synced) {
            remove_file(file);
        } else if (file->name[0] != '\0') {
            persist_all(file, faults.keeps);
            resize(&file->now, 0);
            put(&file->now, 0, file->synced.bytes, file->synced.size_bytes);
        }
    }
}

void sim_disk_end(void)
{
    process++;
    faults = (struct sim_disk_faults){0};
    for (int i = 0; i < FILES_MAX; i++) {
        remove_file(&files[i]);
    }
}
