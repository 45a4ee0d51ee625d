/*
 * Sends changes. A transaction has those of several jobs, and is carried out only if this server
 * still owns each of them and each head is the one that this server has written or read last. After
 * an attempt without an answer nobody knows whether it was carried out: it is sent again, and if
 * etcd then refuses it, the heads tell.
 */
#include "rendezvous/store/etcd/store_etcd_parts.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    GROUP_MAX = 16, /* jobs of one transaction */
    FLUSH_CALL_MS = 2000,
    BATCH_SIZE = 96,
};

/* A job's part of a transaction. */
struct flush_part {
    struct etcd_job *job;
    struct muster_etcd_changes changes;
    bool removes;
    struct muster_etcd_head head; /* its strings are borrowed from the job */
    int64_t owner_revision, head_revision;
};

struct flush_group {
    struct flush_part parts[GROUP_MAX];
    size_t count;
    char batch[BATCH_SIZE]; /* names the transaction in the heads */
};

/* Putting together ------------------------------------------------------------------------------
 */

static bool is_live_locked(struct etcd_job *job, uint64_t tenure)
{
    return !job->lost && job->tenure == tenure;
}

/* Takes the changes of jobs, as many as fit into one transaction. only: NULL, or one job's name. */
static void take_group(struct etcd_store *store, const char *only, struct flush_group *group)
{
    size_t ops = 0;
    size_t bytes = 0;
    uint64_t tenure = atomic_load(&store->session.tenure);
    AUTO_LOCK(&store->mutex);
    for (struct etcd_job *job = store->by_name; job != NULL && group->count < GROUP_MAX;
         job = job->by_name.next) {
        if (job->changes.first == NULL || !is_live_locked(job, tenure) ||
            (only != NULL && strcmp(only, job->name) != 0)) {
            continue;
        }
        struct flush_part *part = &group->parts[group->count];
        size_t before = job->changes.size_bytes;
        muster_etcd_changes_take(&job->changes, ops, bytes, &part->changes, &part->removes);
        if (part->changes.first == NULL) {
            return; /* full */
        }
        store->pending_bytes -= before - job->changes.size_bytes;
        part->job = job;
        part->head = job->head;
        part->owner_revision = job->owner_revision;
        part->head_revision = job->head_revision;
        group->count++;
        ops += muster_etcd_changes_count(&part->changes) + 3;
        bytes += part->changes.size_bytes + 512;
    }
}

/* The deletion of all that a job has. */
static bool write_removal(const struct etcd_store *store, const struct flush_part *part,
                          json_t *success)
{
    char key[MUSTER_ETCD_KEY_SIZE];
    char end[MUSTER_ETCD_KEY_SIZE];
    muster_etcd_folder(store, part->job->name, key);
    muster_etcd_end_of(key, end);
    bool written = muster_etcd_add(success, muster_etcd_op_delete(key, end));
    muster_etcd_key(store, "job", part->job->name, key);
    written = written && muster_etcd_add(success, muster_etcd_op_delete(key, NULL));
    muster_etcd_key(store, "owner", part->job->name, key);
    return written && muster_etcd_add(success, muster_etcd_op_delete(key, NULL));
}

static bool write_head(const char *key, struct flush_part *part, const char *batch, json_t *success)
{
    size_t size = 0;
    AUTO_FREE char *text = muster_etcd_head_encode(&part->head, batch);
    AUTO_FREE char *sealed = text != NULL ? muster_etcd_seal(key, text, strlen(text), &size) : NULL;
    return sealed != NULL && muster_etcd_add(success, muster_etcd_op_put(key, sealed, size, 0));
}

static bool write_part(const struct etcd_store *store, struct flush_part *part, const char *batch,
                       json_t *lists[3])
{
    char owner[MUSTER_ETCD_KEY_SIZE];
    char head[MUSTER_ETCD_KEY_SIZE];
    muster_etcd_key(store, "owner", part->job->name, owner);
    muster_etcd_key(store, "job", part->job->name, head);
    const struct muster_etcd_head *old = &part->job->head;
    part->head = *old;
    return muster_etcd_add(lists[0], muster_etcd_compare(owner, part->owner_revision)) &&
           muster_etcd_add(lists[0], muster_etcd_compare(head, part->head_revision)) &&
           muster_etcd_add(lists[2], muster_etcd_op_range(owner)) &&
           muster_etcd_add(lists[2], muster_etcd_op_range(head)) &&
           (part->removes ? write_removal(store, part, lists[1])
                          : muster_etcd_changes_write(&part->changes, lists[1], &part->head) &&
                                write_head(head, part, batch, lists[1]));
}

/* NULL: no memory. */
static json_t *write_group(const struct etcd_store *store, struct flush_group *group)
{
    json_t *lists[3] = {json_array(), json_array(), json_array()};
    bool written = true;
    for (size_t i = 0; i < group->count; i++) {
        written = written && write_part(store, &group->parts[i], group->batch, lists);
    }
    if (!written) {
        for (size_t i = 0; i < 3; i++) {
            json_decref(lists[i]);
        }
        return NULL;
    }
    return muster_etcd_transaction(lists[0], lists[1], lists[2]);
}

/* Outcomes --------------------------------------------------------------------------------------
 */

static void lose(struct etcd_store *store, struct etcd_job *job, bool *ret_lost)
{
    muster_log(MUSTER_LOG_WARN, "job=%s is dropped here, and read again when it is asked for: %s",
               job->name, muster_last_error());
    AUTO_LOCK(&store->mutex);
    job->lost = true;
    store->pending_bytes -= job->changes.size_bytes;
    muster_etcd_changes_clear(&job->changes);
    *ret_lost = true;
}

/* The transaction was carried out in this revision. */
static void conclude(struct etcd_store *store, struct flush_group *group, int64_t revision)
{
    AUTO_LOCK(&store->mutex);
    for (size_t i = 0; i < group->count; i++) {
        struct flush_part *part = &group->parts[i];
        struct etcd_job *job = part->job;
        muster_etcd_changes_clear(&part->changes);
        if (part->removes) {
            muster_etcd_forget_locked(store, job);
            continue;
        }
        job->head_revision = revision;
        job->head.snapshot = part->head.snapshot;
        job->head.record_count = part->head.record_count;
        job->head.first_event = part->head.first_event;
        job->head.events = part->head.events;
    }
    group->count = 0;
}

/* What the failed transaction has found of one part. */
static muster_status judge(const struct flush_part *part, const json_t *answer, size_t index,
                           const char *batch, int64_t *ret_done)
{
    struct muster_etcd_pair owner = {0};
    struct muster_etcd_pair head = {0};
    char wanted[BATCH_SIZE + 2];
    (void)snprintf(wanted, sizeof wanted, "%s\"", batch); /* as the head's JSON has it */
    const json_t *found = muster_etcd_found(answer, 2 * index);
    if (found != NULL) {
        TRY(muster_etcd_pair_read(found, &owner));
    }
    found = muster_etcd_found(answer, 2 * index + 1);
    muster_status status = found != NULL ? muster_etcd_pair_read(found, &head) : MUSTER_OK;
    bool ours = owner.key != NULL && owner.revision == part->owner_revision;
    bool same = head.revision == part->head_revision;
    if (head.value != NULL && strstr(head.value, wanted) != NULL) {
        *ret_done = head.revision;
    } else if (part->removes && owner.key == NULL && head.key == NULL) {
        *ret_done = part->head_revision;
    } else if (status == MUSTER_OK && (!ours || !same)) {
        status = muster_error_set(MUSTER_RETRY, "%s",
                                  ours ? "its head was changed by another one"
                                       : "another server owns it");
    }
    muster_etcd_pair_finish(&owner);
    muster_etcd_pair_finish(&head);
    return status;
}

static void drop_part(struct flush_group *group, size_t index)
{
    muster_etcd_changes_clear(&group->parts[index].changes);
    group->parts[index] = group->parts[--group->count];
}

/* The transaction was refused. It was carried out by an earlier attempt, or jobs of it are lost;
 * the others are tried again. If none is lost, all are: it would be refused for ever. */
static void sort_out(struct etcd_store *store, struct flush_group *group, const json_t *answer,
                     bool *ret_lost)
{
    int64_t done = 0;
    bool lost[GROUP_MAX] = {false};
    size_t count = group->count;
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        lost[i] = judge(&group->parts[i], answer, i, group->batch, &done) != MUSTER_OK;
        any = any || lost[i];
    }
    if (done != 0) {
        conclude(store, group, done);
        return;
    }
    for (size_t i = count; i > 0; i--) {
        if (lost[i - 1] || !any) {
            (void)judge(&group->parts[i - 1], answer, i - 1, group->batch, &done);
            lose(store, group->parts[i - 1].job, ret_lost);
            drop_part(group, i - 1);
        }
    }
}

/* Sends the group until it is carried out, or its jobs are lost. */
static void send_group(struct etcd_store *store, struct flush_group *group, bool *ret_lost)
{
    uint64_t tenure = atomic_load(&store->session.tenure);
    while (group->count > 0) {
        json_t *answer = NULL;
        (void)snprintf(group->batch, sizeof group->batch, "%s.%" PRIu64, store->session.instance,
                       ++store->batches);
        json_t *request = write_group(store, group);
        muster_status status = MUSTER_RETRY;
        while (status == MUSTER_RETRY && request != NULL &&
               muster_etcd_session_check(&store->session, tenure) == MUSTER_OK) {
            status = muster_etcd_call(store->client, "kv/txn", json_incref(request),
                                      muster_clock_after_ms(FLUSH_CALL_MS), &answer);
        }
        json_decref(request);
        if (status != MUSTER_OK) {
            for (; group->count > 0; drop_part(group, 0)) {
                lose(store, group->parts[0].job, ret_lost);
            }
        } else if (json_is_true(json_object_get(answer, "succeeded"))) {
            conclude(store, group, muster_etcd_revision(answer));
        } else {
            sort_out(store, group, answer, ret_lost);
        }
        json_decref(answer);
    }
}

/* Flushing --------------------------------------------------------------------------------------
 */

/* What is left of earlier tenures, and of jobs that are lost. */
static void sweep(struct etcd_store *store)
{
    uint64_t tenure = atomic_load(&store->session.tenure);
    struct etcd_job *job = NULL;
    struct etcd_job *next = NULL;
    AUTO_LOCK(&store->mutex);
    HASH_ITER(by_name, store->by_name, job, next)
    {
        if (!is_live_locked(job, tenure)) {
            muster_etcd_forget_locked(store, job);
        }
    }
}

/* flush_mutex is held. */
static void flush_locked(struct etcd_store *store, const char *only, bool *ret_lost)
{
    struct flush_group group = {.count = 0};
    sweep(store);
    do {
        take_group(store, only, &group);
        if (group.count == 0) {
            return;
        }
        send_group(store, &group, ret_lost);
    } while (true);
}

void muster_etcd_flush(struct etcd_store *store)
{
    bool lost = false;
    muster_mutex_lock(&store->flush_mutex);
    flush_locked(store, NULL, &lost);
    muster_mutex_unlock(&store->flush_mutex);
    if (lost && store->watcher != NULL) {
        store->watcher->lost(store->watcher->user);
    }
}

/* The watcher is not told: the caller has the job's lock, and finds out by itself. */
muster_status muster_etcd_flush_job(struct etcd_store *store, const char *name)
{
    bool lost = false;
    muster_mutex_lock(&store->flush_mutex);
    flush_locked(store, name, &lost);
    muster_mutex_unlock(&store->flush_mutex);
    AUTO_LOCK(&store->mutex);
    return muster_etcd_find_locked(store, name) != NULL ? MUSTER_OK
                                                        : muster_etcd_not_claimed(store, name);
}
