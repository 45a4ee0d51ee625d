/*
 * What was answered is there after kill -9, and after a power loss on a disk that loses everything
 * that was not synced. A child serves and tells what it has answered; it is killed at a random
 * point; with a power loss, its files then go back to what they were when each was synced last.
 * MUSTER_SEED runs one seed; the argument "all" runs 1,000.
 */
#include "rendezvous/store/store.h"
#include "tests/support/caller.h"
#include "tests/support/part.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

#include <cmocka.h>

enum {
    SEEDS = 12,
    SEEDS_ALL = 1000,
    LIVES = 4,     /* of a server in one seed */
    TOLD_MAX = 60, /* answers of one life */
    JOBS = 3,
    KEYS = 8,
    KINDS = 16, /* of calls, by chance */
    PATH_MAX_BYTES = 512,
};

static unsigned seed_count = SEEDS;

/* The disk: SQLite's own, but a sync also copies the file to FILE.synced -------------------------
 */

struct lossy_file {
    sqlite3_file base; /* first */
    char path[PATH_MAX_BYTES];
    sqlite3_file *real; /* in the storage that follows */
};

static sqlite3_vfs lossy_vfs;
static sqlite3_io_methods lossy_methods;
static sqlite3_vfs *real_vfs;

static sqlite3_file *real_of(sqlite3_file *file)
{
    return ((struct lossy_file *)file)->real;
}

static bool copy_file(const char *from, const char *to)
{
    char block[65536];
    char draft[PATH_MAX_BYTES + 16];
    (void)snprintf(draft, sizeof draft, "%s.draft", to);
    FILE *in = fopen(from, "re");
    FILE *out = in != NULL ? fopen(draft, "we") : NULL;
    size_t size = 1;
    bool copied = out != NULL;
    while (copied && (size = fread(block, 1, sizeof block, in)) > 0) {
        copied = fwrite(block, 1, size, out) == size;
    }
    copied = (out == NULL || fclose(out) == 0) && copied;
    if (in != NULL) {
        (void)fclose(in);
    }
    return copied && rename(draft, to) == 0;
}

/* A writer may add to the file while it is copied: of that nothing was promised, and a log ends at
 * the first record that is not whole. */
static int lossy_sync(sqlite3_file *file, int flags)
{
    char synced[PATH_MAX_BYTES + 8];
    const char *path = ((struct lossy_file *)file)->path;
    int result = real_of(file)->pMethods->xSync(real_of(file), flags);
    (void)snprintf(synced, sizeof synced, "%s.synced", path);
    return result == SQLITE_OK && !copy_file(path, synced) ? SQLITE_IOERR_FSYNC : result;
}

static int lossy_close(sqlite3_file *file)
{
    return real_of(file)->pMethods->xClose(real_of(file));
}
static int lossy_read(sqlite3_file *file, void *to, int size, sqlite3_int64 at)
{
    return real_of(file)->pMethods->xRead(real_of(file), to, size, at);
}
static int lossy_write(sqlite3_file *file, const void *from, int size, sqlite3_int64 at)
{
    return real_of(file)->pMethods->xWrite(real_of(file), from, size, at);
}
static int lossy_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    return real_of(file)->pMethods->xTruncate(real_of(file), size);
}
static int lossy_size(sqlite3_file *file, sqlite3_int64 *ret_size)
{
    return real_of(file)->pMethods->xFileSize(real_of(file), ret_size);
}
static int lossy_lock(sqlite3_file *file, int lock)
{
    return real_of(file)->pMethods->xLock(real_of(file), lock);
}
static int lossy_unlock(sqlite3_file *file, int lock)
{
    return real_of(file)->pMethods->xUnlock(real_of(file), lock);
}
static int lossy_reserved(sqlite3_file *file, int *ret_reserved)
{
    return real_of(file)->pMethods->xCheckReservedLock(real_of(file), ret_reserved);
}
static int lossy_control(sqlite3_file *file, int operation, void *argument)
{
    return real_of(file)->pMethods->xFileControl(real_of(file), operation, argument);
}
static int lossy_sector(sqlite3_file *file)
{
    return real_of(file)->pMethods->xSectorSize(real_of(file));
}
static int lossy_properties(sqlite3_file *file)
{
    return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}

static int lossy_open(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *file, int flags,
                      int *ret_flags)
{
    (void)vfs;
    struct lossy_file *lossy = (struct lossy_file *)file;
    lossy->real = (sqlite3_file *)(lossy + 1);
    (void)snprintf(lossy->path, sizeof lossy->path, "%s", name != NULL ? name : "");
    int result = real_vfs->xOpen(real_vfs, name, lossy->real, flags, ret_flags);
    lossy->base.pMethods = result == SQLITE_OK ? &lossy_methods : NULL;
    return result;
}

/* From now on SQLite's files are on this disk. Version 1 of the methods: no shared memory, which a
 * database that one process locks does not need. */
static void use_lossy_disk(void)
{
    real_vfs = sqlite3_vfs_find(NULL);
    lossy_vfs = *real_vfs;
    lossy_vfs.pNext = NULL;
    lossy_vfs.zName = "lossy";
    lossy_vfs.szOsFile = (int)sizeof(struct lossy_file) + real_vfs->szOsFile;
    lossy_vfs.xOpen = lossy_open;
    lossy_methods = (sqlite3_io_methods){
        .iVersion = 1,
        .xClose = lossy_close,
        .xRead = lossy_read,
        .xWrite = lossy_write,
        .xTruncate = lossy_truncate,
        .xSync = lossy_sync,
        .xFileSize = lossy_size,
        .xLock = lossy_lock,
        .xUnlock = lossy_unlock,
        .xCheckReservedLock = lossy_reserved,
        .xFileControl = lossy_control,
        .xSectorSize = lossy_sector,
        .xDeviceCharacteristics = lossy_properties,
    };
    assert_int_equal(sqlite3_vfs_register(&lossy_vfs, 1), SQLITE_OK);
}

/* What a child tells ------------------------------------------------------------------------------
 */

/* In place of a key's number: the call was no Put. */
enum { FORMED = KEYS, ADDED, SWAPPED, DELETED };

struct told {
    uint32_t job;
    uint32_t key;        /* of a Put, or one of the above */
    uint64_t generation; /* or the number that the key has; or which of these calls it was */
    uint32_t ranks[2];   /* FORMED: of the two members */
};

struct known {
    uint64_t generation[JOBS];
    uint32_t ranks[JOBS][2];
    uint64_t values[JOBS][KEYS];
    uint64_t adds[JOBS], swaps[JOBS], deletes[JOBS]; /* of the key of that name; in order */
};

static struct muster_service *start(const char *path, struct muster_store **ret_store)
{
    struct muster_service_config config;
    struct muster_service *service = NULL;
    muster_service_config_init(&config);
    config.hold_ms = 15000;
    config.settings.lease_ms = 3600000;
    if (muster_store_sqlite_open(path, ret_store) != MUSTER_OK ||
        muster_service_create(&config, *ret_store, &service) != MUSTER_OK) {
        fail_msg("%s", muster_last_error());
    }
    return service;
}

/* Both members join with the last generation that they know, and are in the next one. */
static void form(struct muster_service *service, uint32_t job, uint64_t generation,
                 struct told *ret_told)
{
    struct test_call calls[2];
    for (unsigned i = 0; i < 2; i++) {
        test_call_start(&calls[i], service, MUSTER_RPC_JOIN, NULL,
                        "{'job':'j%u','member':'%s','host':'h%u','generation':'%llu','order':%u,"
                        "'minSize':2,'maxSize':2}",
                        job, test_member(job * 2 + i), i, (unsigned long long)generation,
                        (unsigned)(generation + i) % 2);
    }
    *ret_told = (struct told){.job = job, .key = FORMED};
    for (unsigned i = 0; i < 2; i++) {
        assert_true(test_call_wait(&calls[i]));
        assert_int_equal(calls[i].code, MUSTER_RPC_OK);
        ret_told->generation =
            strtoull(test_part_text(calls[i].json, "formed.generation"), NULL, 10);
        ret_told->ranks[i] = (uint32_t)test_part_number(calls[i].json, "formed.rank");
        test_call_finish(&calls[i]);
    }
}

static void put(struct muster_service *service, uint32_t job, uint32_t key, uint64_t number)
{
    struct test_call call;
    char text[24];
    (void)snprintf(text, sizeof text, "%012llu", (unsigned long long)number); /* valid base64 */
    test_call_start(&call, service, MUSTER_RPC_PUT, NULL, "{'job':'j%u','key':'k%u','value':'%s'}",
                    job, key, text);
    test_call_expect(&call, MUSTER_RPC_OK, "");
}

/* The request that is number such of its kind. A life that begins repeats the one after the last
 * that it knows: the life before may have made it, and could not tell any more. */
static void request_id(char kind, uint32_t job, uint64_t number, char ret_id[MUSTER_UUID_SIZE])
{
    (void)snprintf(ret_id, MUSTER_UUID_SIZE, "%08x-0000-4000-800%c-%012llx", job, kind,
                   (unsigned long long)number);
}

/* Each request adds 1, and counts once however often it is sent: its number is the sum. */
static void add(struct muster_service *service, uint32_t job, uint64_t number)
{
    struct test_call call;
    char id[MUSTER_UUID_SIZE];
    request_id('a', job, number, id);
    test_call_start(&call, service, MUSTER_RPC_ADD, NULL,
                    "{'job':'j%u','key':'sum','amount':1,'requestId':'%s'}", job, id);
    assert_true(test_call_wait(&call));
    assert_int_equal(call.code, MUSTER_RPC_OK);
    assert_int_equal(strtoull(test_part_text(call.json, "value"), NULL, 10), number);
    test_call_finish(&call);
}

/* From number - 1 to number; made once, and "made" is the answer each time. */
static void swap(struct muster_service *service, uint32_t job, uint64_t number)
{
    struct test_call call;
    char id[MUSTER_UUID_SIZE];
    char before[24] = "";
    request_id('b', job, number, id);
    if (number > 1) {
        (void)snprintf(before, sizeof before, "%012llu", (unsigned long long)number - 1);
    }
    test_call_start(&call, service, MUSTER_RPC_COMPARE_AND_SWAP, NULL,
                    "{'job':'j%u','key':'swapped','expected':'%s','value':'%012llu',"
                    "'requestId':'%s'}",
                    job, before, (unsigned long long)number, id);
    assert_true(test_call_wait(&call));
    assert_int_equal(call.code, MUSTER_RPC_OK);
    assert_true(json_is_true(test_part(call.json, "swapped")));
    test_call_finish(&call);
}

/* Odd numbers put the key, even ones delete it. */
static void put_or_delete(struct muster_service *service, uint32_t job, uint64_t number)
{
    struct test_call call;
    test_call_start(&call, service, number % 2 == 1 ? MUSTER_RPC_PUT : MUSTER_RPC_DELETE, NULL,
                    "{'job':'j%u','key':'deleted','value':'AAEC'}", job);
    test_call_expect(&call, MUSTER_RPC_OK, "");
}

/* One call, drawn by chance; the first in a job forms its first generation. */
static void serve_one(struct muster_service *service, struct known *known, unsigned draw,
                      struct told *told)
{
    uint32_t job = told->job;
    if (known->generation[job] == 0 || draw >= 10) {
        form(service, job, known->generation[job], told);
        known->generation[job] = told->generation;
    } else if (draw < 4) {
        told->key %= KEYS;
        told->generation = ++known->values[job][told->key];
        put(service, job, told->key, told->generation);
    } else if (draw < 6) {
        *told = (struct told){.job = job, .key = ADDED, .generation = ++known->adds[job]};
        add(service, job, told->generation);
    } else if (draw < 8) {
        *told = (struct told){.job = job, .key = SWAPPED, .generation = ++known->swaps[job]};
        swap(service, job, told->generation);
    } else {
        *told = (struct told){.job = job, .key = DELETED, .generation = ++known->deletes[job]};
        put_or_delete(service, job, told->generation);
    }
}

/* Serves until it is killed. */
static void live(const char *path, unsigned seed, struct known known, int told_fd)
{
    struct muster_store *store = NULL;
    struct muster_service *service = start(path, &store);
    for (;;) {
        struct told told = {.job = (uint32_t)rand_r(&seed) % JOBS, .key = (uint32_t)rand_r(&seed)};
        serve_one(service, &known, (unsigned)rand_r(&seed) % KINDS, &told);
        if (write(told_fd, &told, sizeof told) != sizeof told) {
            _exit(1);
        }
    }
}

/* Each file is as it was at its last sync, and one that never was is gone. */
static void lose_power(const char *path)
{
    static const char *const ends[] = {"", "-wal", "-journal"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char file[PATH_MAX_BYTES];
        char synced[PATH_MAX_BYTES + 8];
        (void)snprintf(file, sizeof file, "%s%s", path, ends[i]);
        (void)snprintf(synced, sizeof synced, "%s.synced", file);
        if (access(synced, F_OK) == 0) {
            assert_true(copy_file(synced, file));
        } else {
            (void)unlink(file);
        }
    }
}

static void learn(struct known *known, const struct told *told)
{
    uint64_t *const counts[] = {[ADDED] = &known->adds[told->job],
                                [SWAPPED] = &known->swaps[told->job],
                                [DELETED] = &known->deletes[told->job]};
    if (told->key != FORMED) {
        *(told->key < KEYS ? &known->values[told->job][told->key] : counts[told->key]) =
            told->generation;
        return;
    }
    /* No number is given twice: each is above all that were told. */
    if (told->generation <= known->generation[told->job]) {
        fail_msg("job j%u: generation %llu after %llu", told->job,
                 (unsigned long long)told->generation,
                 (unsigned long long)known->generation[told->job]);
    }
    known->generation[told->job] = told->generation;
    memcpy(known->ranks[told->job], told->ranks, sizeof told->ranks);
}

static void check_job(struct muster_service *service, const struct known *known, uint32_t job)
{
    struct test_call call;
    test_call_start(&call, service, MUSTER_RPC_GET_JOB, NULL, "{'job':'j%u'}", job);
    assert_true(test_call_wait(&call));
    assert_int_equal(call.code, MUSTER_RPC_OK);
    uint64_t generation = strtoull(test_part_text(call.json, "job.generation"), NULL, 10);
    assert_true(generation >= known->generation[job]);
    for (unsigned i = 0; i < 2 && generation == known->generation[job]; i++) {
        const json_t *member = json_array_get(test_part(call.json, "job.members"), i);
        const char *id = json_string_value(json_object_get(member, "member"));
        json_int_t rank = json_integer_value(json_object_get(member, "rank"));
        unsigned which = strcmp(id, test_member(job * 2)) == 0 ? 0 : 1;
        assert_true(rank == -1 || rank == known->ranks[job][which]); /* -1: it joins again */
    }
    test_call_finish(&call);
}

static void check_value(struct muster_service *service, const struct known *known, uint32_t job,
                        uint32_t key)
{
    struct test_call call;
    test_call_start(&call, service, MUSTER_RPC_GET, NULL, "{'job':'j%u','key':'k%u'}", job, key);
    assert_true(test_call_wait(&call));
    uint64_t number = strtoull(test_part_text(call.json, "value"), NULL, 10);
    assert_true(call.code == MUSTER_RPC_OK && number >= known->values[job][key]);
    test_call_finish(&call);
}

/* The key is as the last call that was told left it, or the one after that. */
static void check_deleted(struct muster_service *service, const struct known *known, uint32_t job)
{
    struct test_call call;
    test_call_start(&call, service, MUSTER_RPC_GET, NULL, "{'job':'j%u','key':'deleted'}", job);
    assert_true(test_call_wait(&call));
    assert_true(call.code == MUSTER_RPC_OK || call.code == MUSTER_RPC_NOT_FOUND);
    bool is_there = call.code == MUSTER_RPC_OK;
    test_call_finish(&call);
    if (is_there != (known->deletes[job] % 2 == 1)) { /* then the next call was made: once more */
        put_or_delete(service, job, known->deletes[job] + 1);
    }
}

/* The last Add and the last swap that were answered are sent again: they count once. */
static void check_retries(struct muster_service *service, const struct known *known, uint32_t job)
{
    if (known->adds[job] > 0) {
        add(service, job, known->adds[job]);
    }
    if (known->swaps[job] > 0) {
        swap(service, job, known->swaps[job]);
    }
}

/* All that was told is there; a little more may be, of which the child could not tell any more. */
static void check(const char *path, const struct known *known)
{
    struct muster_store *store = NULL;
    struct muster_service *service = start(path, &store);
    for (uint32_t job = 0; job < JOBS; job++) {
        if (known->generation[job] > 0) {
            check_job(service, known, job);
            check_retries(service, known, job);
            check_deleted(service, known, job);
        }
        for (uint32_t key = 0; key < KEYS; key++) {
            if (known->values[job][key] > 0) {
                check_value(service, known, job, key);
            }
        }
    }
    muster_service_destroy(service);
    muster_store_close(store);
}

static void run_life(const char *path, unsigned *seed, struct known *known, bool loses_power)
{
    int fds[2];
    unsigned answers = (unsigned)rand_r(seed) % TOLD_MAX;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(fds[0]);
        live(path, *seed, *known, fds[1]);
    }
    (void)close(fds[1]);
    struct told told;
    for (unsigned i = 0; i < answers && read(fds[0], &told, sizeof told) == sizeof told; i++) {
        learn(known, &told);
    }
    if (rand_r(seed) % 2 == 0) { /* in the middle of what follows an answer */
        (void)usleep((useconds_t)rand_r(seed) % 3000);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    while (read(fds[0], &told, sizeof told) == sizeof told) {
        learn(known, &told);
    }
    (void)close(fds[0]);
    if (loses_power) {
        lose_power(path);
    }
}

static void run_seed(unsigned seed, bool loses_power)
{
    static const char *const ends[] = {
        "", "-wal", "-journal", ".synced", "-wal.synced", ".synced.draft", "-wal.synced.draft"};
    char folder[] = "/tmp/muster-test-XXXXXX";
    char path[PATH_MAX_BYTES];
    struct known known = {0};
    unsigned state = seed;
    print_message("seed %u%s\n", seed, loses_power ? ", power loss" : "");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/jobs.db", folder);
    for (int life = 0; life < LIVES; life++) {
        run_life(path, &state, &known, loses_power);
        check(path, &known);
    }
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char file[PATH_MAX_BYTES + 16];
        (void)snprintf(file, sizeof file, "%s%s", path, ends[i]);
        (void)unlink(file);
    }
    (void)rmdir(folder);
}

static void run_seeds(bool loses_power)
{
    const char *given = getenv("MUSTER_SEED");
    if (given != NULL) {
        run_seed((unsigned)strtoul(given, NULL, 10), loses_power);
        return;
    }
    unsigned first = (unsigned)getpid() * 1000;
    for (unsigned i = 0; i < seed_count; i++) {
        run_seed(first + i, loses_power);
    }
}

static void what_was_answered_survives_kill_9(void **state)
{
    (void)state;
    run_seeds(false);
}

static void what_was_answered_survives_a_power_loss(void **state)
{
    (void)state;
    use_lossy_disk();
    run_seeds(true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_answered_survives_kill_9),
        cmocka_unit_test(what_was_answered_survives_a_power_loss),
    };
    seed_count = argc > 1 && strcmp(argv[1], "all") == 0 ? SEEDS_ALL : SEEDS;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
