/* The lease: granted, kept alive, lost. */
#include "rendezvous/store/etcd/etcd_session.h"

#include "rendezvous/store/etcd/etcd_wire.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    /* The lease is renewed so many times while it runs. */
    RENEWALS = 4,
    /* For clocks that do not run alike: a lease ends for its server this part of it earlier. */
    MARGIN_SHARE = 16,
    CALL_MS = 2 * MUSTER_ETCD_ATTEMPT_MS,
    RETRY_MS = 100,
    START_LEASES = 3, /* another server of this URL may be dead: its lease must end first */
    START_LEAST_MS = 10000,
};

void muster_etcd_session_init(struct muster_etcd_session *session,
                              struct muster_etcd_client *client)
{
    session->client = client;
    atomic_store(&session->tenure, 1);
    muster_random_uuid(session->instance);
    muster_mutex_init(&session->mutex);
    muster_condition_init(&session->changed);
}

void muster_etcd_session_key(const struct muster_etcd_session *session, char *ret_key, size_t size)
{
    (void)snprintf(ret_key, size, "%sserver/%s", muster_etcd_client_prefix(session->client),
                   session->url);
}

/* The end is read before the tenure: a later lease has both, and its tenure is written first. */
muster_status muster_etcd_session_check(struct muster_etcd_session *session, uint64_t tenure)
{
    int64_t until_ns = atomic_load(&session->valid_until_ns);
    uint64_t current = atomic_load(&session->tenure);
    if ((tenure == 0 || tenure == current) && muster_clock_ns() < until_ns) {
        return MUSTER_OK;
    }
    return muster_error_set(MUSTER_RETRY,
                            "store %s: this server was cut off from it, and another one may have "
                            "its jobs",
                            muster_etcd_client_name(session->client));
}

/* A lease of ttl_s that was asked for at began_ns. */
static void set_valid(struct muster_etcd_session *session, int64_t began_ns, int64_t ttl_s)
{
    int64_t ttl_ns = ttl_s * MUSTER_NS_PER_S;
    atomic_store(&session->valid_until_ns, began_ns + ttl_ns - ttl_ns / MARGIN_SHARE);
}

/* The lease is written into the server's own key, which no other server may have. */
static muster_status register_server(struct muster_etcd_session *session, int64_t lease)
{
    char key[MUSTER_ETCD_KEY_SIZE];
    int64_t revision = 0;
    int64_t deadline_ns = muster_clock_after_ms(CALL_MS);
    muster_etcd_session_key(session, key, sizeof key);
    for (;;) {
        json_t *answer = NULL;
        json_t *put = muster_etcd_op_put(key, session->instance, strlen(session->instance), lease);
        TRY(muster_etcd_call(
            session->client, "kv/txn",
            muster_etcd_transaction(json_pack("[o]", muster_etcd_compare(key, revision)),
                                    json_pack("[o]", put),
                                    json_pack("[o]", muster_etcd_op_range(key))),
            deadline_ns, &answer));
        bool done = json_is_true(json_object_get(answer, "succeeded"));
        struct muster_etcd_pair pair = {0};
        const json_t *found = done ? NULL : muster_etcd_found(answer, 0);
        muster_status status = found != NULL ? muster_etcd_pair_read(found, &pair) : MUSTER_OK;
        bool ours = pair.value != NULL && strcmp(pair.value, session->instance) == 0;
        done = done || (ours && pair.lease == lease);
        revision = pair.revision;
        muster_etcd_pair_finish(&pair);
        json_decref(answer);
        TRY(status);
        if (done) {
            return MUSTER_OK;
        }
        if (found != NULL && !ours) {
            return muster_error_set(MUSTER_INVALID,
                                    "store %s: another musterd has the URL %s: each needs one of "
                                    "its own",
                                    muster_etcd_client_name(session->client), session->url);
        }
        if (muster_clock_left_ms(deadline_ns) == 0) {
            return muster_error_set(MUSTER_RETRY, "store %s: the key of this server changes",
                                    muster_etcd_client_name(session->client));
        }
    }
}

static muster_status grant(struct muster_etcd_session *session)
{
    json_t *answer = NULL;
    int64_t began_ns = muster_clock_ns();
    int64_t ttl_s = (session->lease_ms + 999) / 1000;
    TRY(muster_etcd_call(session->client, "lease/grant",
                         json_pack("{s:o,s:s}", "TTL", json_sprintf("%" PRId64, ttl_s), "ID", "0"),
                         muster_clock_after_ms(CALL_MS), &answer));
    int64_t lease = muster_etcd_number(answer, "ID");
    ttl_s = muster_etcd_number(answer, "TTL");
    json_decref(answer);
    TRY(register_server(session, lease));
    atomic_store(&session->lease, lease);
    set_valid(session, began_ns, ttl_s);
    return MUSTER_OK;
}

/* MUSTER_ENDED: there is no such lease any more. */
static muster_status keep_alive(struct muster_etcd_session *session)
{
    json_t *answer = NULL;
    int64_t began_ns = muster_clock_ns();
    int64_t deadline_ns = muster_clock_after_ms(CALL_MS);
    int64_t until_ns = atomic_load(&session->valid_until_ns);
    TRY(muster_etcd_call(
        session->client, "lease/keepalive",
        json_pack("{s:o}", "ID", json_sprintf("%" PRId64, atomic_load(&session->lease))),
        deadline_ns < until_ns ? deadline_ns : until_ns, &answer));
    int64_t ttl_s = muster_etcd_number(json_object_get(answer, "result"), "TTL");
    json_decref(answer);
    if (ttl_s <= 0) {
        return muster_error_set(MUSTER_ENDED, "store %s: the lease of this server has ended",
                                muster_etcd_client_name(session->client));
    }
    if (began_ns < until_ns) { /* else others may have been told that it is over */
        set_valid(session, began_ns, ttl_s);
    }
    return MUSTER_OK;
}

static void lose(struct muster_etcd_session *session)
{
    muster_log(MUSTER_LOG_WARN, "%s; all jobs are dropped here until it is back",
               muster_last_error());
    atomic_store(&session->valid_until_ns, 0);
    (void)atomic_fetch_add(&session->tenure, 1);
    session->watcher->lost(session->watcher->user);
}

uint32_t muster_etcd_session_step(struct muster_etcd_session *session)
{
    if (!session->has_lease) {
        muster_status status = grant(session);
        session->has_lease = status == MUSTER_OK;
        if (session->has_lease) {
            muster_log(MUSTER_LOG_WARN, "store %s: this server has a lease again",
                       muster_etcd_client_name(session->client));
        }
        return session->has_lease ? session->lease_ms / RENEWALS : RETRY_MS;
    }
    muster_status status = keep_alive(session);
    if (status == MUSTER_OK && muster_etcd_session_check(session, 0) == MUSTER_OK) {
        return session->lease_ms / RENEWALS;
    }
    if (status == MUSTER_ENDED || muster_etcd_session_check(session, 0) != MUSTER_OK) {
        session->has_lease = false;
        lose(session);
    }
    return RETRY_MS;
}

static void *run(void *user)
{
    struct muster_etcd_session *session = user;
    uint32_t wait_ms = session->lease_ms / RENEWALS;
    for (;;) {
        int64_t until_ns = muster_clock_after_ms(wait_ms);
        muster_mutex_lock(&session->mutex);
        while (!session->stopping &&
               muster_condition_wait(&session->changed, &session->mutex, until_ns)) {
        }
        bool stopping = session->stopping;
        muster_mutex_unlock(&session->mutex);
        if (stopping) {
            return NULL;
        }
        wait_ms = muster_etcd_session_step(session);
    }
}

/* A server that was killed and starts again finds the key of the one before, until its lease has
 * ended. */
static muster_status grant_first(struct muster_etcd_session *session)
{
    uint32_t wait_ms = START_LEASES * session->lease_ms;
    int64_t deadline_ns =
        muster_clock_after_ms(wait_ms > START_LEAST_MS ? wait_ms : START_LEAST_MS);
    for (;;) {
        muster_status status = grant(session);
        if (status == MUSTER_OK || status == MUSTER_FATAL ||
            muster_clock_left_ms(deadline_ns) == 0) {
            return status;
        }
        struct timespec wait = muster_clock_timespec((int64_t)RETRY_MS * MUSTER_NS_PER_MS);
        (void)nanosleep(&wait, NULL);
    }
}

muster_status muster_etcd_session_start(struct muster_etcd_session *session,
                                        const struct muster_store_sharing *sharing,
                                        const struct muster_store_watcher *watcher)
{
    session->watcher = watcher;
    session->lease_ms = sharing->lease_ms;
    (void)snprintf(session->url, sizeof session->url, "%s", sharing->url);
    TRY(sharing->without_threads ? grant(session) : grant_first(session));
    session->has_lease = true;
    if (sharing->without_threads) {
        return MUSTER_OK;
    }
    int failed = muster_thread_start(&session->thread, run, session);
    if (failed != 0) {
        return muster_error_set(MUSTER_FATAL, "cannot start a thread: error %d", failed);
    }
    session->runs = true;
    return MUSTER_OK;
}

void muster_etcd_session_stop(struct muster_etcd_session *session)
{
    if (session->runs) {
        muster_mutex_lock(&session->mutex);
        session->stopping = true;
        (void)pthread_cond_signal(&session->changed);
        muster_mutex_unlock(&session->mutex);
        (void)pthread_join(session->thread, NULL);
        session->runs = false;
    }
}

void muster_etcd_session_finish(struct muster_etcd_session *session)
{
    json_t *answer = NULL;
    int64_t lease = atomic_load(&session->lease);
    muster_etcd_session_stop(session);
    atomic_store(&session->valid_until_ns, 0);
    if (lease != 0 && muster_etcd_call(session->client, "lease/revoke",
                                       json_pack("{s:o}", "ID", json_sprintf("%" PRId64, lease)),
                                       muster_clock_after_ms(CALL_MS), &answer) == MUSTER_OK) {
        json_decref(answer);
    }
    (void)pthread_cond_destroy(&session->changed);
    (void)pthread_mutex_destroy(&session->mutex);
}
