/*
 * The store in an etcd cluster, which several servers share. Changes are collected in memory and
 * sent by sync; a change of a job that another server has claimed meanwhile is refused by etcd.
 */
#include "rendezvous/store/etcd/store_etcd_parts.h"

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct etcd_store *of(struct muster_store *base)
{
    return (struct etcd_store *)base;
}

/* The job, if this server owns it and there is room for its changes; NULL: the error says why not,
 * which is MUSTER_RETRY. */
static struct etcd_job *find_writable_locked(struct etcd_store *store, const char *name)
{
    struct etcd_job *job = muster_etcd_find_locked(store, name);
    if (job == NULL || job->removed) {
        (void)muster_error_set(MUSTER_RETRY, "%s: this server does not own job %s any more",
                               muster_etcd_client_name(store->client), name);
        return NULL;
    }
    if (store->pending_bytes >= MUSTER_ETCD_PENDING_MAX_BYTES) {
        (void)muster_error_set(MUSTER_RETRY, "store %s: %d bytes wait to be sent already",
                               muster_etcd_client_name(store->client),
                               MUSTER_ETCD_PENDING_MAX_BYTES);
        return NULL;
    }
    return muster_etcd_session_check(&store->session, job->tenure) == MUSTER_OK ? job : NULL;
}

/* Counts what a change has added. Called last. */
static void count_locked(struct etcd_store *store, const struct etcd_job *job, size_t before)
{
    store->pending_bytes += job->changes.size_bytes - before;
}

/* Writing ---------------------------------------------------------------------------------------
 */

static muster_status append(struct muster_store *base, const struct muster_store_job *stored,
                            uint64_t sequence, const char *text)
{
    struct etcd_store *store = of(base);
    char folder[MUSTER_ETCD_KEY_SIZE];
    muster_etcd_folder(store, stored->name, folder);
    AUTO_LOCK(&store->mutex);
    struct etcd_job *job = find_writable_locked(store, stored->name);
    if (job == NULL) {
        return MUSTER_RETRY;
    }
    if (job->head.token == NULL) {
        TRY(muster_etcd_head_copy(stored, &job->head));
    }
    size_t before = job->changes.size_bytes;
    TRY(muster_etcd_changes_event(&job->changes, folder, sequence, text));
    count_locked(store, job, before);
    return MUSTER_OK;
}

/* Lines, without the last line end, as one text; NULL: no memory. */
static char *join_lines(char *const *texts, size_t count, size_t *ret_size)
{
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        size += strlen(texts[i]) + 1;
    }
    char *lines = malloc(size + 1);
    char *at = lines;
    for (size_t i = 0; lines != NULL && i < count; i++) {
        at = stpcpy(at, texts[i]);
        *at++ = '\n';
    }
    *ret_size = size;
    return lines;
}

static muster_status put_sealed(struct etcd_store *store, const char *name, const char *key,
                                const void *data, size_t size_bytes)
{
    size_t size = 0;
    AUTO_FREE char *sealed = muster_etcd_seal(key, data, size_bytes, &size);
    if (sealed == NULL) {
        return muster_error_set(MUSTER_RETRY, "no memory");
    }
    AUTO_LOCK(&store->mutex);
    struct etcd_job *job = find_writable_locked(store, name);
    if (job == NULL) {
        return MUSTER_RETRY;
    }
    size_t before = job->changes.size_bytes;
    TRY(muster_etcd_changes_put(&job->changes, key, TAKE(sealed), size));
    count_locked(store, job, before);
    return MUSTER_OK;
}

static muster_status stage(struct muster_store *base, const struct muster_store_job *stored,
                           uint64_t first_index, char *const *texts, size_t count)
{
    struct etcd_store *store = of(base);
    char folder[MUSTER_ETCD_KEY_SIZE];
    char key[MUSTER_ETCD_KEY_SIZE];
    size_t size = 0;
    AUTO_FREE char *lines = join_lines(texts, count, &size);
    if (lines == NULL) {
        return muster_error_set(MUSTER_RETRY, "no memory");
    }
    muster_etcd_folder(store, stored->name, folder);
    (void)snprintf(key, sizeof key, "%.500ssnapshot/%016" PRIx64 "/%016" PRIx64, folder,
                   stored->snapshot, first_index);
    return put_sealed(store, stored->name, key, lines, size);
}

static muster_status install(struct muster_store *base, const struct muster_store_job *stored)
{
    struct etcd_store *store = of(base);
    AUTO_LOCK(&store->mutex);
    struct etcd_job *job = find_writable_locked(store, stored->name);
    if (job == NULL) {
        return MUSTER_RETRY;
    }
    return muster_etcd_changes_install(&job->changes, stored);
}

static muster_status delete_range(struct etcd_store *store, const char *name, const char *key,
                                  const char *end)
{
    AUTO_LOCK(&store->mutex);
    struct etcd_job *job = find_writable_locked(store, name);
    if (job == NULL) {
        return MUSTER_RETRY;
    }
    return muster_etcd_changes_delete(&job->changes, key, end);
}

/* The lines of which some are needed stay as a whole. */
static muster_status trim_events(struct etcd_store *store, const struct muster_store_job *stored)
{
    char from[MUSTER_ETCD_KEY_SIZE];
    char folder[MUSTER_ETCD_KEY_SIZE];
    char end[MUSTER_ETCD_KEY_SIZE];
    if (stored->first_event == 0) {
        return MUSTER_OK;
    }
    TRY(muster_etcd_find_chunk(store, stored->name, stored->first_event, end));
    muster_etcd_folder(store, stored->name, folder);
    (void)snprintf(from, sizeof from, "%.500sevent/", folder);
    return delete_range(store, stored->name, from, end);
}

/* Ranges are deleted as a whole, however many rows they have. */
static muster_status trim(struct muster_store *base, const struct muster_store_job *stored,
                          size_t max, size_t *ret_count)
{
    struct etcd_store *store = of(base);
    char folder[MUSTER_ETCD_KEY_SIZE];
    char from[MUSTER_ETCD_KEY_SIZE];
    char end[MUSTER_ETCD_KEY_SIZE];
    (void)max;
    *ret_count = 0;
    TRY(muster_etcd_flush_job(store, stored->name));
    TRY(trim_events(store, stored));
    muster_etcd_folder(store, stored->name, folder);
    (void)snprintf(from, sizeof from, "%.500ssnapshot/", folder);
    (void)snprintf(end, sizeof end, "%.500ssnapshot/%016" PRIx64 "/", folder, stored->snapshot);
    TRY(delete_range(store, stored->name, from, end));
    (void)snprintf(from, sizeof from, "%.500ssnapshot/%016" PRIx64 "0", folder, stored->snapshot);
    (void)snprintf(end, sizeof end, "%.500ssnapshot0", folder); /* '0' comes after '/' */
    TRY(delete_range(store, stored->name, from, end));
    return muster_etcd_flush_job(store, stored->name);
}

static void value_key(struct etcd_store *store, const char *job, uint64_t generation,
                      const char *key, char ret_key[MUSTER_ETCD_KEY_SIZE])
{
    char folder[MUSTER_ETCD_KEY_SIZE];
    muster_etcd_folder(store, job, folder);
    (void)snprintf(ret_key, MUSTER_ETCD_KEY_SIZE, "%.300svalue/%016" PRIx64 "/%.300s", folder,
                   generation, key);
}

static muster_status put(struct muster_store *base, const char *job, uint64_t generation,
                         const char *key, const void *value, size_t size_bytes)
{
    char full[MUSTER_ETCD_KEY_SIZE];
    value_key(of(base), job, generation, key, full);
    return put_sealed(of(base), job, full, value, size_bytes);
}

static muster_status remove_value(struct muster_store *base, const char *job, uint64_t generation,
                                  const char *key)
{
    char full[MUSTER_ETCD_KEY_SIZE];
    value_key(of(base), job, generation, key, full);
    return delete_range(of(base), job, full, NULL);
}

static muster_status drop_values(struct muster_store *base, const char *job,
                                 uint64_t below_generation)
{
    char from[MUSTER_ETCD_KEY_SIZE];
    char end[MUSTER_ETCD_KEY_SIZE];
    if (below_generation <= 1) {
        return MUSTER_OK;
    }
    value_key(of(base), job, 1, "", from);
    value_key(of(base), job, below_generation, "", end);
    return delete_range(of(base), job, from, end);
}

/* Changes that were not sent yet are not sent any more. */
static muster_status remove_job(struct muster_store *base, const char *name)
{
    struct etcd_store *store = of(base);
    AUTO_LOCK(&store->mutex);
    struct etcd_job *job = find_writable_locked(store, name);
    if (job == NULL) {
        return MUSTER_RETRY;
    }
    store->pending_bytes -= job->changes.size_bytes;
    muster_etcd_changes_clear(&job->changes);
    TRY(muster_etcd_changes_remove(&job->changes));
    job->removed = true;
    return MUSTER_OK;
}

static muster_status sync_changes(struct muster_store *base)
{
    muster_etcd_flush(of(base)); /* jobs that cannot be synced are lost, and check says so */
    return MUSTER_OK;
}

/* Asks what only a member that is not cut off from the others can answer. */
static muster_status probe(struct muster_store *base)
{
    struct etcd_store *store = of(base);
    char key[MUSTER_ETCD_KEY_SIZE];
    json_t *answer = NULL;
    TRY(muster_etcd_session_check(&store->session, 0));
    muster_etcd_session_key(&store->session, key, sizeof key);
    const struct muster_etcd_keys keys = {.key = key, .keys_only = true};
    TRY(muster_etcd_call(store->client, "kv/range", muster_etcd_range(&keys),
                         muster_clock_after_ms(MUSTER_ETCD_CALL_MS), &answer));
    json_decref(answer);
    return MUSTER_OK;
}

/* Jobs are read one by one, when they are claimed. */
static muster_status load(struct muster_store *base, const struct muster_store_reader *reader)
{
    (void)base;
    (void)reader;
    return MUSTER_OK;
}

/* Sharing ---------------------------------------------------------------------------------------
 */

static void stop_sharing(struct muster_store *base)
{
    muster_etcd_watch_stop(of(base));
    muster_etcd_session_stop(&of(base)->session);
}

static muster_status start_sharing(struct muster_store *base,
                                   const struct muster_store_sharing *sharing,
                                   const struct muster_store_watcher *watcher)
{
    struct etcd_store *store = of(base);
    store->watcher = watcher;
    TRY(muster_etcd_session_start(&store->session, sharing, watcher));
    return sharing->without_threads ? MUSTER_OK : muster_etcd_watch_start(store);
}

static muster_status check(struct muster_store *base, uint64_t claim)
{
    struct etcd_store *store = of(base);
    if (claim == 0) {
        return muster_etcd_session_check(&store->session, 0);
    }
    struct etcd_job *job = NULL;
    AUTO_LOCK(&store->mutex);
    HASH_FIND(by_claim, store->by_claim, &claim, sizeof claim, job);
    if (job == NULL || job->lost) {
        TRY(muster_etcd_session_check(&store->session, 0));
        return muster_error_set(MUSTER_RETRY,
                                "store %s: this server does not own the job any more: try again",
                                muster_etcd_client_name(store->client));
    }
    return muster_etcd_session_check(&store->session, job->tenure);
}

/* The owner's key is deleted by the removal of a job that never had an event. One whose head cannot
 * be read has some. */
static void release(struct muster_store *base, uint64_t claim)
{
    struct etcd_store *store = of(base);
    struct etcd_job *job = NULL;
    AUTO_LOCK(&store->mutex);
    HASH_FIND(by_claim, store->by_claim, &claim, sizeof claim, job);
    if (job != NULL && !job->lost && !job->removed && job->head_revision == 0 &&
        job->head.token == NULL && muster_etcd_changes_remove(&job->changes) == MUSTER_OK) {
        job->removed = true;
    }
}

/* Life ------------------------------------------------------------------------------------------
 */

static void close_store(struct muster_store *base)
{
    struct etcd_store *store = of(base);
    stop_sharing(base);
    if (store->watcher != NULL) {
        store->watcher = NULL;
        muster_etcd_flush(store);
    }
    muster_etcd_session_finish(&store->session);
    while (store->by_name != NULL) {
        muster_etcd_forget_locked(store, store->by_name);
    }
    muster_etcd_client_destroy(store->client);
    (void)pthread_mutex_destroy(&store->flush_mutex);
    (void)pthread_mutex_destroy(&store->mutex);
    free(store);
}

static const struct muster_store_ops etcd_ops = {
    .kind = "etcd",
    .append = append,
    .read = muster_etcd_read_rows,
    .stage = stage,
    .install = install,
    .trim = trim,
    .put = put,
    .remove_value = remove_value,
    .drop_values = drop_values,
    .remove = remove_job,
    .syncs = true,
    .sync = sync_changes,
    .probe = probe,
    .begin_epoch = muster_etcd_begin_epoch,
    .load = load,
    .close = close_store,
};

static const struct muster_store_shared_ops etcd_shared_ops = {
    .start = start_sharing,
    .stop = stop_sharing,
    .claim = muster_etcd_claim,
    .check = check,
    .release = release,
};

muster_status muster_store_etcd_open(const char *place, const struct muster_call_files *files,
                                     struct muster_store **ret_store)
{
    struct etcd_store *store = calloc(1, sizeof *store);
    if (store == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    muster_status status = muster_etcd_client_create(place, files, &store->client);
    if (status != MUSTER_OK) {
        free(store);
        return status;
    }
    store->base.ops = &etcd_ops;
    store->base.shared = &etcd_shared_ops;
    muster_mutex_init(&store->flush_mutex);
    muster_mutex_init(&store->mutex);
    muster_etcd_session_init(&store->session, store->client);
    *ret_store = &store->base;
    return MUSTER_OK;
}
