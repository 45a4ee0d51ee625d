/*
 * The watch: a thread that lists the jobs without an owner when it connects, and then reads from
 * etcd which owners go. It tells the watcher of each. What it misses is found when the job is asked
 * for, and once a connection lasts no longer.
 */
#include "rendezvous/store/etcd/store_etcd_parts.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    PAGE_NAMES = 512, /* of one range */
    PAUSE_MS = 200,   /* between connections */
};

struct job_name {
    UT_hash_handle hh;
    unsigned order;
    char name[MUSTER_ETCD_JOB_SIZE];
};

static bool goes_on(void *user)
{
    const struct etcd_store *store = user;
    return !atomic_load(&store->stopping);
}

static void free_names(struct job_name **names)
{
    struct job_name *job = NULL;
    struct job_name *next = NULL;
    HASH_ITER(hh, *names, job, next)
    {
        HASH_DEL(*names, job);
        free(job);
    }
}

static muster_status add_name(struct job_name **names, const char *name)
{
    struct job_name *job = calloc(1, sizeof *job);
    if (job != NULL) {
        (void)snprintf(job->name, sizeof job->name, "%s", name);
        job->hh.tbl = NULL;
        HASH_ADD_STR(*names, name, job);
    }
    if (job == NULL || job->hh.tbl == NULL) {
        free(job);
        return muster_error_set(MUSTER_RETRY, "no memory");
    }
    return MUSTER_OK;
}

static muster_status add_page(const json_t *answer, size_t prefix_size, struct job_name **names,
                              char at[MUSTER_ETCD_KEY_SIZE])
{
    size_t index = 0;
    const json_t *item = NULL;
    const json_t *list = json_object_get(answer, "kvs");
    json_array_foreach(list, index, item)
    {
        struct muster_etcd_pair pair = {0};
        TRY(muster_etcd_pair_read(item, &pair));
        muster_status status =
            pair.key_size > prefix_size && pair.key_size < MUSTER_ETCD_KEY_SIZE - 1
                ? add_name(names, pair.key + prefix_size)
                : MUSTER_OK;
        (void)snprintf(at, MUSTER_ETCD_KEY_SIZE, "%.600s\x01", pair.key);
        muster_etcd_pair_finish(&pair);
        TRY(status);
    }
    return MUSTER_OK;
}

/* The names that stand behind "PREFIXkind/", and the revision in which they were read. */
static muster_status list_names(struct etcd_store *store, const char *kind,
                                struct job_name **ret_names, int64_t *ret_revision)
{
    char prefix[MUSTER_ETCD_KEY_SIZE];
    char at[MUSTER_ETCD_KEY_SIZE];
    char end[MUSTER_ETCD_KEY_SIZE];
    bool more = true;
    muster_etcd_key(store, kind, "", prefix);
    muster_etcd_end_of(prefix, end);
    (void)snprintf(at, sizeof at, "%s", prefix);
    *ret_revision = 0;
    while (more) {
        json_t *answer = NULL;
        const struct muster_etcd_keys keys = {
            .key = at, .end = end, .limit = PAGE_NAMES, .keys_only = true};
        TRY(muster_etcd_call(store->client, "kv/range", muster_etcd_range(&keys),
                             muster_clock_after_ms(MUSTER_ETCD_CALL_MS), &answer));
        *ret_revision = *ret_revision == 0 ? muster_etcd_revision(answer) : *ret_revision;
        more = json_is_true(json_object_get(answer, "more"));
        muster_status status = add_page(answer, strlen(prefix), ret_names, at);
        json_decref(answer);
        TRY(status);
    }
    return MUSTER_OK;
}

/* Servers begin at different jobs, so that each gets some. */
static unsigned order_of(const struct etcd_store *store, const char *name)
{
    unsigned hash = 0;
    char text[MUSTER_STORE_URL_SIZE + MUSTER_ETCD_JOB_SIZE];
    (void)snprintf(text, sizeof text, "%s %s", store->session.url, name);
    HASH_JEN(text, strlen(text), hash);
    return hash;
}

static int compare_orders(const struct job_name *a, const struct job_name *b)
{
    return a->order < b->order ? -1 : a->order > b->order;
}

/* Tells the watcher of all jobs that have no owner. Owners are listed first: a job that is made
 * meanwhile has one. */
muster_status muster_etcd_watch_look(struct etcd_store *store)
{
    struct job_name *owners = NULL;
    struct job_name *jobs = NULL;
    struct job_name *job = NULL;
    int64_t revision = 0;
    muster_status status = list_names(store, "owner", &owners, &store->watch_revision);
    if (status == MUSTER_OK) {
        status = list_names(store, "job", &jobs, &revision);
    }
    for (job = jobs; job != NULL; job = job->hh.next) {
        job->order = order_of(store, job->name);
    }
    HASH_SRT(hh, jobs, compare_orders);
    for (job = jobs; status == MUSTER_OK && job != NULL && goes_on(store); job = job->hh.next) {
        struct job_name *owner = NULL;
        HASH_FIND_STR(owners, job->name, owner);
        if (owner == NULL) {
            store->watcher->ownerless(store->watcher->user, job->name);
        }
    }
    free_names(&owners);
    free_names(&jobs);
    return status;
}

static bool see_line(void *user, const char *line, size_t size_bytes)
{
    struct etcd_store *store = user;
    json_t *json = json_loadb(line, size_bytes, 0, NULL);
    const json_t *result = json_object_get(json, "result");
    const json_t *events = json_object_get(result, "events");
    bool goes = result != NULL && !json_is_true(json_object_get(result, "canceled"));
    bool any = json_array_size(events) > 0;
    json_decref(json);
    /* The next connection begins with a list of all jobs without an owner. When a server goes, it
     * goes with hundreds of jobs. */
    return goes && !any && goes_on(store);
}

static muster_status watch(struct etcd_store *store)
{
    char prefix[MUSTER_ETCD_KEY_SIZE];
    char end[MUSTER_ETCD_KEY_SIZE];
    muster_etcd_key(store, "owner", "", prefix);
    muster_etcd_end_of(prefix, end);
    const struct muster_etcd_keys keys = {.key = prefix, .end = end};
    json_t *create = muster_etcd_range(&keys);
    if (create == NULL || json_object_del(create, "sort_target") != 0 ||
        json_object_del(create, "sort_order") != 0 ||
        json_object_set_new(create, "start_revision",
                            json_sprintf("%" PRId64, store->watch_revision + 1)) != 0 ||
        json_object_set_new(create, "filters", json_pack("[s]", "NOPUT")) != 0) {
        json_decref(create);
        return muster_error_set(MUSTER_RETRY, "no memory");
    }
    return muster_etcd_stream(store->client, "watch", json_pack("{s:o}", "create_request", create),
                              see_line, goes_on, store);
}

static void *run(void *user)
{
    struct etcd_store *store = user;
    while (goes_on(store)) {
        muster_status status = muster_etcd_session_check(&store->session, 0);
        if (status == MUSTER_OK) {
            status = muster_etcd_watch_look(store);
        }
        if (status == MUSTER_OK && watch(store) == MUSTER_FATAL) {
            muster_log(MUSTER_LOG_ERROR, "%s", muster_last_error());
        }
        muster_log(MUSTER_LOG_DEBUG, "%s", muster_last_error());
        struct timespec wait = muster_clock_timespec((int64_t)PAUSE_MS * MUSTER_NS_PER_MS);
        (void)nanosleep(&wait, NULL);
    }
    return NULL;
}

muster_status muster_etcd_watch_start(struct etcd_store *store)
{
    int failed = muster_thread_start(&store->watch_thread, run, store);
    if (failed != 0) {
        return muster_error_set(MUSTER_FATAL, "cannot start a thread: error %d", failed);
    }
    store->watch_runs = true;
    return MUSTER_OK;
}

void muster_etcd_watch_stop(struct etcd_store *store)
{
    atomic_store(&store->stopping, true);
    if (store->watch_runs) {
        (void)pthread_join(store->watch_thread, NULL);
        store->watch_runs = false;
    }
}
