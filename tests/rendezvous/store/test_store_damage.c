/*
 * A SQLite store whose bytes were changed: it is refused, or the job with the changed row is named,
 * and what is read is what was written. MUSTER_SEED runs one seed.
 */
#include "rendezvous/store/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SEEDS = 300, JOBS = 3, EVENTS = 40, VALUES = 12, TEXT_MAX = 400 };

static char folder[64];
static char path[128];
static char log_path[160];

static const char *const ends[] = {"", "-wal", "-shm", "-journal"};

static void remove_files(void)
{
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char file[160];
        (void)snprintf(file, sizeof file, "%s%s", path, ends[i]);
        (void)remove(file);
    }
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/muster-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/jobs.db", folder);
    (void)snprintf(log_path, sizeof log_path, "%s-wal", path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_files();
    assert_int_equal(rmdir(folder), 0);
    return 0;
}

/* What is written, from the number of a job and that of a row. ------------------------------- */

static struct muster_store_job the_job(unsigned job)
{
    static const char *const names[JOBS] = {"first", "second", "third"};
    return (struct muster_store_job){.name = names[job], .token = "secret", .link_token = "link"};
}

static void event_text(unsigned job, unsigned sequence, char text[TEXT_MAX])
{
    unsigned size = 20 + (sequence * 37 + job * 11) % (TEXT_MAX - 40);
    int used = snprintf(text, TEXT_MAX, "event %u of %u ", sequence, job);
    memset(text + used, 'a' + (int)(sequence % 26), size);
    text[used + (int)size < TEXT_MAX ? used + (int)size : TEXT_MAX - 1] = '\0';
}

static struct muster_store *write_store(void)
{
    struct muster_store *store = NULL;
    assert_int_equal(muster_store_sqlite_open(path, &store), MUSTER_OK);
    for (unsigned i = 0; i < EVENTS; i++) {
        for (unsigned job = 0; job < JOBS; job++) {
            const struct muster_store_job stored = the_job(job);
            char text[TEXT_MAX];
            event_text(job, i, text);
            assert_int_equal(store->ops->append(store, &stored, i, text), MUSTER_OK);
            if (i < VALUES) {
                char key[16];
                (void)snprintf(key, sizeof key, "key%u", i);
                assert_int_equal(store->ops->put(store, stored.name, i, key, text, strlen(text)),
                                 MUSTER_OK);
            }
        }
    }
    return store;
}

/* What is read. Each row must be as written; missing ones are counted by the caller. ----------- */

struct seen {
    unsigned job, jobs; /* the one that is read; how many were read or named as damaged */
    unsigned events[JOBS], values[JOBS];
    bool damaged[JOBS];
};

static muster_status see_job(void *user, const struct muster_store_job *job)
{
    struct seen *seen = user;
    seen->job = seen->jobs++;
    assert_true(seen->job < JOBS);
    const struct muster_store_job wanted = the_job(seen->job);
    assert_string_equal(job->name, wanted.name);
    assert_string_equal(job->token, wanted.token);
    assert_string_equal(job->link_token, wanted.link_token);
    return MUSTER_OK;
}

static muster_status see_event(void *user, uint64_t sequence, const char *text, size_t size_bytes)
{
    struct seen *seen = user;
    char wanted[TEXT_MAX];
    assert_int_equal(sequence, seen->events[seen->job]);
    event_text(seen->job, seen->events[seen->job]++, wanted);
    assert_int_equal(size_bytes, strlen(wanted));
    assert_memory_equal(text, wanted, size_bytes);
    return MUSTER_OK;
}

static muster_status see_value(void *user, uint64_t generation, const char *key, const void *value,
                               size_t size_bytes)
{
    struct seen *seen = user;
    char wanted[TEXT_MAX];
    char name[16];
    assert_true(generation < VALUES);
    event_text(seen->job, (unsigned)generation, wanted);
    (void)snprintf(name, sizeof name, "key%u", (unsigned)generation);
    assert_string_equal(key, name);
    assert_int_equal(size_bytes, strlen(wanted));
    assert_memory_equal(value, wanted, size_bytes);
    seen->values[seen->job]++;
    return MUSTER_OK;
}

/* A job that see_job() has not seen before is damaged in its own row, and its name may be wrong. */
static muster_status see_damage(void *user, const struct muster_store_job *job, const char *what)
{
    struct seen *seen = user;
    bool named = seen->jobs > 0 && strcmp(job->name, the_job(seen->job).name) == 0;
    if (!named || strstr(what, "its row") != NULL) {
        seen->job = seen->jobs++;
        assert_true(seen->job < JOBS);
    }
    assert_false(seen->damaged[seen->job]);
    seen->damaged[seen->job] = true;
    assert_non_null(strstr(what, path));
    assert_non_null(strstr(what, "checksum"));
    return MUSTER_OK;
}

/* False: it was refused, in one line that names the file. */
static bool read_store(struct seen *seen)
{
    const struct muster_store_reader reader = {.job = see_job,
                                               .event = see_event,
                                               .value = see_value,
                                               .damaged = see_damage,
                                               .user = seen};
    struct muster_store *store = NULL;
    *seen = (struct seen){0};
    muster_status status = muster_store_sqlite_open(path, &store);
    if (status == MUSTER_OK) {
        status = store->ops->load(store, &reader);
    }
    if (status != MUSTER_OK) {
        assert_int_equal(status, MUSTER_INVALID);
        assert_non_null(strstr(muster_last_error(), path));
        assert_null(strchr(muster_last_error(), '\n'));
    }
    muster_store_close(store);
    return status == MUSTER_OK;
}

/* Files ---------------------------------------------------------------------------------------- */

struct bytes {
    unsigned char *at;
    size_t size;
};

static struct bytes read_bytes(const char *file_path)
{
    FILE *file = fopen(file_path, "re");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    struct bytes bytes = {.size = (size_t)ftell(file)};
    bytes.at = malloc(bytes.size + 1);
    assert_non_null(bytes.at);
    rewind(file);
    assert_int_equal(fread(bytes.at, 1, bytes.size, file), bytes.size);
    (void)fclose(file);
    return bytes;
}

static void write_bytes(const char *file_path, struct bytes bytes)
{
    FILE *file = fopen(file_path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes.at, 1, bytes.size, file), bytes.size);
    assert_int_equal(fclose(file), 0);
}

/* One to four bytes become others. */
static void damage(struct bytes bytes, unsigned *seed)
{
    unsigned count = 1 + (unsigned)rand_r(seed) % 4;
    size_t at = (size_t)rand_r(seed) % bytes.size;
    for (unsigned i = 0; i < count && at + i < bytes.size; i++) {
        bytes.at[at + i] ^= (unsigned char)(1 + rand_r(seed) % 255);
    }
}

struct counts {
    unsigned refused, named, harmless;
};

static void run_file_seed(struct bytes whole, unsigned seed, struct counts *counts)
{
    unsigned state = seed;
    struct seen seen;
    struct bytes bytes = {.at = malloc(whole.size), .size = whole.size};
    assert_non_null(bytes.at);
    memcpy(bytes.at, whole.at, whole.size);
    damage(bytes, &state);
    remove_files();
    write_bytes(path, bytes);
    free(bytes.at);
    if (!read_store(&seen)) {
        counts->refused++;
        return;
    }
    bool named = false;
    for (unsigned job = 0; job < JOBS; job++) {
        named = named || seen.damaged[job];
        if (!seen.damaged[job] && (seen.events[job] != EVENTS || seen.values[job] != VALUES)) {
            fail_msg("seed %u: %u events and %u values of job %u, and no error", seed,
                     seen.events[job], seen.values[job], job);
        }
    }
    assert_int_equal(seen.jobs, JOBS);
    counts->named += named;
    counts->harmless += !named;
}

static unsigned first_seed(unsigned *ret_count)
{
    const char *given = getenv("MUSTER_SEED");
    *ret_count = given != NULL ? 1 : SEEDS;
    unsigned seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : (unsigned)getpid() * 1000;
    print_message("seeds from %u\n", seed);
    return seed;
}

static void a_changed_file_is_refused_or_the_job_is_named(void **state)
{
    (void)state;
    struct counts counts = {0};
    unsigned count;
    unsigned first = first_seed(&count);
    muster_store_close(write_store());
    struct bytes whole = read_bytes(path);
    for (unsigned i = 0; i < count; i++) {
        run_file_seed(whole, first + i, &counts);
    }
    print_message("%u refused, %u with a damaged job, %u harmless\n", counts.refused, counts.named,
                  counts.harmless);
    assert_true(count == 1 || (counts.refused > 0 && counts.named > 0));
    free(whole.at);
}

/* With INTEGER_PRIMARY KEY, jobs have no id, and no look-up of an event finds one. */
static void a_changed_definition_of_a_table_is_refused(void **state)
{
    (void)state;
    static const char key[] = "CREATE TABLE jobs (id INTEGER";
    struct seen seen;
    muster_store_close(write_store());
    struct bytes bytes = read_bytes(path);
    char *found = memmem(bytes.at, bytes.size, key, strlen(key));
    assert_non_null(found);
    found[strlen(key)] = '_';
    remove_files();
    write_bytes(path, bytes);
    free(bytes.at);
    assert_false(read_store(&seen));
    assert_non_null(strstr(muster_last_error(), "not defined as"));
}

/* The log of a server that was killed. It ends where it is damaged, as it does where the power
 * failed: what is read is a beginning of what was written, and in no row a mixture. */
static void a_changed_log_ends_there(void **state)
{
    (void)state;
    unsigned count;
    unsigned first = first_seed(&count);
    struct muster_store *store = write_store();
    struct bytes file = read_bytes(path);
    struct bytes log = read_bytes(log_path);
    muster_store_close(store);
    for (unsigned i = 0; i < count; i += 3) {
        unsigned seed = first + i;
        struct seen seen;
        struct bytes bytes = {.at = malloc(log.size), .size = log.size};
        assert_non_null(bytes.at);
        memcpy(bytes.at, log.at, log.size);
        damage(bytes, &seed);
        remove_files();
        write_bytes(path, file);
        write_bytes(log_path, bytes);
        free(bytes.at);
        if (read_store(&seen)) {
            for (unsigned job = 0; job < seen.jobs; job++) {
                assert_false(seen.damaged[job]);
                assert_true(seen.events[job] <= EVENTS && seen.values[job] <= seen.events[job]);
            }
        }
    }
    free(file.at);
    free(log.at);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_changed_file_is_refused_or_the_job_is_named),
        TEST(a_changed_definition_of_a_table_is_refused),
        TEST(a_changed_log_ends_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
