/* Jobs and their store: what is stored, what a server knows after a restart, what is bounded. */
#include "rendezvous/service/compactor.h"
#include "tests/support/caller.h"
#include "tests/support/part.h"
#include "worker/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { BATCH = 64 };

/* A store that can be full. */
struct full_store {
    struct muster_store store; /* first */
    struct muster_store *under;
    bool full;                /* for everything */
    atomic_bool crowded;      /* to stage a snapshot */
    atomic_bool unsynced;     /* writes, but does not sync */
    size_t events;            /* ever, of the job that was last written to */
    atomic_bool staged;       /* a snapshot was staged, or was to be */
    _Atomic uint64_t removed; /* events that the last snapshot has replaced */
};

static struct muster_store *under(struct muster_store *store)
{
    return ((struct full_store *)store)->under;
}

static bool is_full(struct muster_store *store)
{
    return ((struct full_store *)store)->full;
}

static muster_status append(struct muster_store *store, const struct muster_store_job *job,
                            uint64_t sequence, const char *text)
{
    if (is_full(store)) {
        return muster_error_set(MUSTER_RETRY, "store test: no space");
    }
    ((struct full_store *)store)->events = sequence + 1;
    return under(store)->ops->append(under(store), job, sequence, text);
}

static muster_status read_rows(struct muster_store *store, const struct muster_store_job *job,
                               struct muster_store_range range,
                               const struct muster_store_reader *reader, size_t *ret_count)
{
    return under(store)->ops->read(under(store), job, range, reader, ret_count);
}

static muster_status stage(struct muster_store *store, const struct muster_store_job *job,
                           uint64_t first_index, char *const *texts, size_t count)
{
    atomic_store(&((struct full_store *)store)->staged, true);
    if (atomic_load(&((struct full_store *)store)->crowded)) {
        return muster_error_set(MUSTER_RETRY, "store test: no space");
    }
    return under(store)->ops->stage(under(store), job, first_index, texts, count);
}

static muster_status install(struct muster_store *store, const struct muster_store_job *job)
{
    atomic_store(&((struct full_store *)store)->removed, job->first_event);
    return under(store)->ops->install(under(store), job);
}

static muster_status trim(struct muster_store *store, const struct muster_store_job *job,
                          size_t max, size_t *ret_count)
{
    return under(store)->ops->trim(under(store), job, max, ret_count);
}

static muster_status put(struct muster_store *store, const char *job, uint64_t generation,
                         const char *key, const void *value, size_t size_bytes)
{
    return is_full(store)
               ? muster_error_set(MUSTER_RETRY, "store test: no space")
               : under(store)->ops->put(under(store), job, generation, key, value, size_bytes);
}

static muster_status remove_value(struct muster_store *store, const char *job, uint64_t generation,
                                  const char *key)
{
    return is_full(store) ? muster_error_set(MUSTER_RETRY, "store test: no space")
                          : under(store)->ops->remove_value(under(store), job, generation, key);
}

static muster_status drop_values(struct muster_store *store, const char *job,
                                 uint64_t below_generation)
{
    return under(store)->ops->drop_values(under(store), job, below_generation);
}

static muster_status remove_job(struct muster_store *store, const char *job)
{
    return under(store)->ops->remove(under(store), job);
}

static muster_status sync_under(struct muster_store *store)
{
    return atomic_load(&((struct full_store *)store)->unsynced)
               ? muster_error_set(MUSTER_RETRY, "store test: not synced")
               : under(store)->ops->sync(under(store));
}

static muster_status probe(struct muster_store *store)
{
    return is_full(store) ? muster_error_set(MUSTER_RETRY, "store test: no space")
                          : under(store)->ops->probe(under(store));
}

static muster_status load(struct muster_store *store, const struct muster_store_reader *reader)
{
    return under(store)->ops->load(under(store), reader);
}

static void close_store(struct muster_store *store)
{
    muster_store_close(under(store));
}

static const struct muster_store_ops full_ops = {
    .kind = "full",
    .append = append,
    .read = read_rows,
    .stage = stage,
    .install = install,
    .trim = trim,
    .put = put,
    .remove_value = remove_value,
    .drop_values = drop_values,
    .remove = remove_job,
    .syncs = true,
    .sync = sync_under,
    .probe = probe,
    .load = load,
    .close = close_store,
};

struct fixture {
    char folder[64];
    char path[128];
    struct full_store store;
    struct muster_service *service;
    uint32_t keep_ended_ms;
};

static void start(struct fixture *fixture)
{
    struct muster_service_config config;
    muster_service_config_init(&config);
    config.hold_ms = 15000;
    config.keep_ended_ms = fixture->keep_ended_ms;
    config.settings.settle_ms = 20;
    config.settings.lease_ms = 3600000; /* no member dies, however slow the machine is */
    fixture->store.store.ops = &full_ops;
    assert_int_equal(muster_store_sqlite_open(fixture->path, &fixture->store.under), MUSTER_OK);
    assert_int_equal(muster_service_create(&config, &fixture->store.store, &fixture->service),
                     MUSTER_OK);
}

static void stop(struct fixture *fixture)
{
    muster_service_quiesce(fixture->service);
    muster_service_destroy(fixture->service);
    muster_store_close(&fixture->store.store);
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    (void)snprintf(fixture->folder, sizeof fixture->folder, "/tmp/muster-test-XXXXXX");
    assert_non_null(mkdtemp(fixture->folder));
    (void)snprintf(fixture->path, sizeof fixture->path, "%s/jobs.db", fixture->folder);
    fixture->keep_ended_ms = 3600000;
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    struct fixture *fixture = *state;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char path[160];
        (void)snprintf(path, sizeof path, "%s%s", fixture->path, ends[i]);
        (void)remove(path);
    }
    assert_int_equal(rmdir(fixture->folder), 0);
    free(fixture);
    return 0;
}

static void form(struct fixture *fixture, const char *job, const char *token, unsigned count,
                 unsigned generation)
{
    struct test_call calls[4];
    for (unsigned i = 0; i < count; i++) {
        test_call_start(&calls[i], fixture->service, MUSTER_RPC_JOIN, token,
                        "{'job':'%s','member':'%s','host':'h','addresses':['tcp://a'],"
                        "'generation':%u,'order':%u,'minSize':%u,'maxSize':4,'targetSize':%u}",
                        job, test_member(i), generation, i, count, count);
    }
    for (unsigned i = 0; i < count; i++) {
        assert_true(test_call_wait(&calls[i]));
        assert_int_equal(calls[i].code, MUSTER_RPC_OK);
        assert_int_equal(test_part_number(calls[i].json, "formed.rank"), i);
        test_call_finish(&calls[i]);
    }
}

static void a_server_that_restarts_knows_its_jobs(void **state)
{
    struct fixture *fixture = *state;
    struct test_call call;
    char link_token[64];
    start(fixture);
    form(fixture, "j", "secret", 3, 0);
    form(fixture, "j", "secret", 3, 1);
    form(fixture, "other", NULL, 1, 0);
    test_call_start(&call, fixture->service, MUSTER_RPC_PUT, "secret",
                    "{'job':'j','generation':2,'key':'id','value':'AAEC'}");
    test_call_expect(&call, MUSTER_RPC_OK, "");
    test_call_start(&call, fixture->service, MUSTER_RPC_JOIN, "secret",
                    "{'job':'j','member':'%s','host':'h','generation':1}", test_member(1));
    assert_true(test_call_wait(&call));
    (void)snprintf(link_token, sizeof link_token, "%s",
                   test_part_text(call.json, "formed.linkToken"));
    test_call_finish(&call);
    stop(fixture);

    start(fixture);
    test_call_start(&call, fixture->service, MUSTER_RPC_GET_JOB, NULL, "{'job':'j'}");
    test_call_expect(&call, MUSTER_RPC_UNAUTHENTICATED, "job j");
    test_call_start(&call, fixture->service, MUSTER_RPC_GET_JOB, "secret", "{'job':'j'}");
    assert_true(test_call_wait(&call));
    assert_int_equal(test_part_number(call.json, "job.generation"), 2);
    assert_string_equal(test_part_text(call.json, "job.phase"), "JOB_PHASE_RUNNING");
    assert_int_equal(json_array_size(test_part(call.json, "job.members")), 3);
    assert_int_equal(json_array_size(test_part(call.json, "job.generations")), 2);
    test_call_finish(&call);
    test_call_start(&call, fixture->service, MUSTER_RPC_GET, "secret",
                    "{'job':'j','generation':2,'key':'id'}");
    assert_true(test_call_wait(&call));
    assert_string_equal(test_part_text(call.json, "value"), "AAEC");
    test_call_finish(&call);
    /* A member whose response was lost gets it from the new server, with the same link token. */
    test_call_start(&call, fixture->service, MUSTER_RPC_JOIN, "secret",
                    "{'job':'j','member':'%s','host':'h','generation':1}", test_member(1));
    assert_true(test_call_wait(&call));
    assert_int_equal(test_part_number(call.json, "formed.generation"), 2);
    assert_string_equal(test_part_text(call.json, "formed.linkToken"), link_token);
    test_call_finish(&call);
    /* A Watch is held as before. */
    struct test_call watch;
    test_call_start(&watch, fixture->service, MUSTER_RPC_WATCH, "secret",
                    "{'job':'j','member':'%s','generation':2}", test_member(0));
    assert_true(watch.held);
    test_call_start(&call, fixture->service, MUSTER_RPC_END_JOB, "secret", "{'job':'j'}");
    test_call_expect(&call, MUSTER_RPC_OK, "");
    test_call_expect(&watch, MUSTER_RPC_FAILED_PRECONDITION, "ended");
    stop(fixture);

    start(fixture);
    test_call_start(&call, fixture->service, MUSTER_RPC_GET_JOB, "secret", "{'job':'j'}");
    assert_true(test_call_wait(&call));
    assert_string_equal(test_part_text(call.json, "job.phase"), "JOB_PHASE_ENDED");
    test_call_finish(&call);
    stop(fixture);
}

/* Each call is an event; those of a batch share a sync. */
static void resize(struct fixture *fixture, unsigned times)
{
    static struct test_call batch[BATCH];
    for (unsigned done = 0; done < times;) {
        unsigned count = times - done < BATCH ? times - done : BATCH;
        for (unsigned i = 0; i < count; i++) {
            test_call_start(&batch[i], fixture->service, MUSTER_RPC_RESIZE, NULL,
                            "{'job':'j','targetSize':%u}", 3 + (done + i) % 2);
        }
        for (unsigned i = 0; i < count; i++) {
            test_call_expect(&batch[i], MUSTER_RPC_OK, "");
        }
        done += count;
    }
}

static void must_know_the_job(struct fixture *fixture)
{
    struct test_call call;
    test_call_start(&call, fixture->service, MUSTER_RPC_GET_JOB, NULL, "{'job':'j'}");
    assert_true(test_call_wait(&call));
    assert_int_equal(test_part_number(call.json, "job.generation"), 2);
    assert_string_equal(test_part_text(call.json, "job.phase"), "JOB_PHASE_RUNNING");
    assert_int_equal(json_array_size(test_part(call.json, "job.members")), 3);
    assert_int_equal(json_array_size(test_part(call.json, "job.generations")), 2);
    test_call_finish(&call);
}

/* Compaction has a thread of its own. */
static void wait_until_staged(struct fixture *fixture)
{
    int64_t deadline_ns = muster_clock_after_ms(20000);
    while (!atomic_load(&fixture->store.staged)) {
        assert_true(muster_clock_left_ms(deadline_ns) > 0);
        (void)usleep(1000);
    }
}

static void wait_until_few(struct fixture *fixture, uint64_t bound)
{
    int64_t deadline_ns = muster_clock_after_ms(20000);
    while (fixture->store.events - atomic_load(&fixture->store.removed) >= bound) {
        assert_true(muster_clock_left_ms(deadline_ns) > 0);
        (void)usleep(1000);
    }
}

static void the_events_of_a_job_that_lives_long_are_bounded(void **state)
{
    struct fixture *fixture = *state;
    const unsigned bound = MUSTER_EVENTS_TO_COMPACT + 100;
    start(fixture);
    form(fixture, "j", NULL, 3, 0);
    form(fixture, "j", NULL, 3, 1);
    atomic_store(&fixture->store.crowded, true); /* this costs space only */
    resize(fixture, bound);
    wait_until_staged(fixture);
    assert_int_equal(fixture->store.removed, 0);
    atomic_store(&fixture->store.crowded, false);
    resize(fixture, bound);
    wait_until_few(fixture, bound);
    must_know_the_job(fixture);
    stop(fixture);
    start(fixture); /* from a snapshot and the events after it */
    must_know_the_job(fixture);
    resize(fixture, MUSTER_EVENTS_TO_COMPACT);
    wait_until_few(fixture, bound);
    stop(fixture);
    start(fixture);
    must_know_the_job(fixture);
    stop(fixture);
}

static void the_file_is_readable_by_its_owner_only(void **state)
{
    struct fixture *fixture = *state;
    struct stat status;
    start(fixture);
    assert_int_equal(stat(fixture->path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600); /* tokens are in it */
    stop(fixture);
}

static void what_is_not_synced_is_not_answered(void **state)
{
    struct fixture *fixture = *state;
    struct test_call call;
    struct test_call wait;
    start(fixture);
    form(fixture, "j", NULL, 1, 0);
    form(fixture, "other", NULL, 1, 0);
    test_call_start(&wait, fixture->service, MUSTER_RPC_WAIT, NULL,
                    "{'job':'j','key':'k','timeoutMs':15000}");
    atomic_store(&fixture->store.unsynced, true);
    test_call_start(&call, fixture->service, MUSTER_RPC_PUT, NULL,
                    "{'job':'j','key':'k','value':'AA=='}");
    test_call_expect(&call, MUSTER_RPC_UNAVAILABLE, "store test: not synced");
    test_call_expect(&wait, MUSTER_RPC_UNAVAILABLE, "store test: not synced");
    test_call_start(&call, fixture->service, MUSTER_RPC_GET, NULL, "{'job':'j','key':'k'}");
    test_call_expect(&call, MUSTER_RPC_UNAVAILABLE, "store test: not synced");
    test_call_start(&call, fixture->service, MUSTER_RPC_GET_JOB, NULL, "{'job':'other'}");
    test_call_expect(&call, MUSTER_RPC_OK, ""); /* it has written nothing since */
    atomic_store(&fixture->store.unsynced, false);
    test_call_start(&call, fixture->service, MUSTER_RPC_GET, NULL, "{'job':'j','key':'k'}");
    test_call_expect(&call, MUSTER_RPC_OK, "");
    stop(fixture);
}

static void what_the_store_refuses_has_not_happened(void **state)
{
    struct fixture *fixture = *state;
    struct test_call call;
    start(fixture);
    fixture->store.full = true;
    test_call_start(&call, fixture->service, MUSTER_RPC_JOIN, NULL,
                    "{'job':'j','member':'%s','host':'h'}", test_member(0));
    test_call_expect(&call, MUSTER_RPC_UNAVAILABLE, "store test: no space");
    test_call_start(&call, fixture->service, MUSTER_RPC_GET_JOB, NULL, "{'job':'j'}");
    test_call_expect(&call, MUSTER_RPC_NOT_FOUND, "j");

    fixture->store.full = false;
    form(fixture, "j", NULL, 2, 0);
    fixture->store.full = true;
    struct test_call watch;
    test_call_start(&watch, fixture->service, MUSTER_RPC_WATCH, NULL,
                    "{'job':'j','member':'%s','generation':1}", test_member(0));
    assert_true(watch.held); /* nothing is stored for it */
    test_call_start(&call, fixture->service, MUSTER_RPC_PUT, NULL,
                    "{'job':'j','key':'k','value':'AA=='}");
    test_call_expect(&call, MUSTER_RPC_UNAVAILABLE, "no space");
    test_call_start(&call, fixture->service, MUSTER_RPC_GET, NULL, "{'job':'j','key':'k'}");
    test_call_expect(&call, MUSTER_RPC_NOT_FOUND, "k");
    test_call_start(&call, fixture->service, MUSTER_RPC_LEAVE, NULL,
                    "{'job':'j','member':'%s','generation':1,'reason':'LEAVE_REASON_PLANNED'}",
                    test_member(1));
    test_call_expect(&call, MUSTER_RPC_UNAVAILABLE, "no space");
    test_call_start(&call, fixture->service, MUSTER_RPC_GET_JOB, NULL, "{'job':'j'}");
    assert_true(test_call_wait(&call));
    assert_string_equal(test_part_text(call.json, "job.phase"), "JOB_PHASE_RUNNING");
    assert_int_equal(json_array_size(test_part(call.json, "job.members")), 2);
    test_call_finish(&call);

    fixture->store.full = false;
    test_call_start(&call, fixture->service, MUSTER_RPC_LEAVE, NULL,
                    "{'job':'j','member':'%s','generation':1,'reason':'LEAVE_REASON_PLANNED'}",
                    test_member(1));
    test_call_expect(&call, MUSTER_RPC_OK, "");
    assert_true(test_call_wait(&watch));
    assert_true(json_is_true(test_part(watch.json, "revoked")));
    test_call_finish(&watch);
    stop(fixture);
}

static void a_job_that_has_ended_is_forgotten(void **state)
{
    struct fixture *fixture = *state;
    struct test_call call;
    fixture->keep_ended_ms = 0;
    start(fixture);
    form(fixture, "j", NULL, 1, 0);
    test_call_start(&call, fixture->service, MUSTER_RPC_END_JOB, NULL, "{'job':'j'}");
    test_call_expect(&call, MUSTER_RPC_OK, "");
    int64_t deadline_ns = muster_clock_after_ms(20000);
    enum muster_rpc_code code = MUSTER_RPC_OK;
    while (code == MUSTER_RPC_OK && muster_clock_left_ms(deadline_ns) > 0) {
        test_call_start(&call, fixture->service, MUSTER_RPC_GET_JOB, NULL, "{'job':'j'}");
        assert_true(test_call_wait(&call));
        code = call.code;
        test_call_finish(&call);
    }
    assert_int_equal(code, MUSTER_RPC_NOT_FOUND);
    stop(fixture);
    start(fixture);
    test_call_start(&call, fixture->service, MUSTER_RPC_LIST_JOBS, NULL, "{}");
    assert_true(test_call_wait(&call));
    assert_int_equal(json_array_size(test_part(call.json, "jobs")), 0);
    test_call_finish(&call);
    stop(fixture);
}

static void jobs_are_bounded_and_ended_ones_make_room(void **state)
{
    struct fixture *fixture = *state;
    struct test_call call;
    char name[32];
    start(fixture);
    for (unsigned i = 0; i < MUSTER_JOBS_MAX; i++) {
        (void)snprintf(name, sizeof name, "job-%u", i);
        form(fixture, name, NULL, 1, 0);
    }
    static const char join[] = "{'job':'one-more','member':'%s','host':'h','maxSize':1}";
    test_call_start(&call, fixture->service, MUSTER_RPC_JOIN, NULL, join, test_member(0));
    test_call_expect(&call, MUSTER_RPC_RESOURCE_EXHAUSTED, "1024 jobs");
    test_call_start(&call, fixture->service, MUSTER_RPC_END_JOB, NULL, "{'job':'job-7'}");
    test_call_expect(&call, MUSTER_RPC_OK, "");
    test_call_start(&call, fixture->service, MUSTER_RPC_JOIN, NULL, join, test_member(0));
    test_call_expect(&call, MUSTER_RPC_OK, "");
    test_call_start(&call, fixture->service, MUSTER_RPC_GET_JOB, NULL, "{'job':'job-7'}");
    test_call_expect(&call, MUSTER_RPC_NOT_FOUND, "job-7");
    test_call_start(&call, fixture->service, MUSTER_RPC_LIST_JOBS, NULL, "{}");
    assert_true(test_call_wait(&call));
    assert_int_equal(json_array_size(test_part(call.json, "jobs")), MUSTER_JOBS_MAX);
    test_call_finish(&call);
    stop(fixture);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_server_that_restarts_knows_its_jobs),
        TEST(the_file_is_readable_by_its_owner_only),
        TEST(what_is_not_synced_is_not_answered),
        TEST(what_the_store_refuses_has_not_happened),
        TEST(a_job_that_has_ended_is_forgotten),
        TEST(jobs_are_bounded_and_ended_ones_make_room),
        TEST(the_events_of_a_job_that_lives_long_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
