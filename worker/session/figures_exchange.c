/* Fetches and stores link figures in the background. */
#include "worker/session/figures_exchange.h"

#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/session/session_parts.h"
#include "worker/session/stored_figures.h"

enum {
    FETCH_MS = 2000, /* then the members measure */
    ATTEMPT_MS = 500,
    FLUSH_ATTEMPT_MS = 100, /* muster_close() may not take long */
};

void muster_session_store_figures(struct muster_session *session,
                                  const struct muster_figures *figures)
{
    AUTO_LOCK(&session->mutex);
    session->exchange.stored = *figures;
    session->exchange.stores = !session->without_service;
}

void muster_session_want_figures(struct muster_session *session, uint32_t hosts_digest)
{
    AUTO_LOCK(&session->mutex);
    struct muster_figures_exchange *exchange = &session->exchange;
    exchange->fetches = !session->without_service;
    exchange->fetched = false;
    exchange->hosts_digest = hosts_digest;
    exchange->fetch_until_ns = muster_clock_after_ms(FETCH_MS);
}

bool muster_session_take_figures(struct muster_session *session, uint32_t hosts_digest,
                                 struct muster_figures *ret_figures)
{
    AUTO_LOCK(&session->mutex);
    struct muster_figures_exchange *exchange = &session->exchange;
    bool wanted = exchange->hosts_digest == hosts_digest;
    if (wanted && exchange->fetches && muster_clock_left_ms(exchange->fetch_until_ns) > 0) {
        return false;
    }
    muster_figures_init(ret_figures);
    if (wanted && exchange->fetched) {
        *ret_figures = exchange->result;
    }
    exchange->fetches = false;
    exchange->fetched = false;
    return true;
}

/* Under the key of their hosts, and as the newest, for people. */
static void store_held(struct muster_session *session, const struct muster_figures *figures,
                       uint32_t attempt_ms)
{
    char key[MUSTER_FIGURES_KEY_SIZE];
    const char *job = session->settings.job;
    struct muster_client *client = session->caller_client;
    muster_figures_key(figures->hosts_digest, key);
    if (muster_figures_put(client, job, key, attempt_ms, figures) != MUSTER_OK ||
        muster_figures_put(client, job, MUSTER_FIGURES_NEWEST, attempt_ms, figures) != MUSTER_OK) {
        muster_log(MUSTER_LOG_INFO, "the link figures are not stored: %s", muster_last_error());
    }
}

static void fetch_held(struct muster_session *session, uint32_t hosts_digest)
{
    char key[MUSTER_FIGURES_KEY_SIZE];
    struct muster_figures figures;
    muster_figures_key(hosts_digest, key);
    muster_figures_init(&figures);
    if (muster_figures_get(session->caller_client, session->settings.job, key, ATTEMPT_MS,
                           &figures) != MUSTER_OK) {
        muster_log(MUSTER_LOG_WARN, "the link figures stored as %s are not used: %s", key,
                   muster_last_error());
    }
    AUTO_LOCK(&session->mutex);
    struct muster_figures_exchange *exchange = &session->exchange;
    if (exchange->fetches && exchange->hosts_digest == hosts_digest) {
        exchange->fetches = false;
        exchange->fetched = true;
        exchange->result = figures;
    }
}

/* Copies what is to be stored. False: nothing is. */
static bool take_stored(struct muster_session *session, struct muster_figures *ret_figures)
{
    AUTO_LOCK(&session->mutex);
    bool stores = session->exchange.stores;
    session->exchange.stores = false;
    if (stores) {
        *ret_figures = session->exchange.stored;
    }
    return stores;
}

/* A client that is in use joins or reports: there is another time. */
void muster_session_exchange_figures(struct muster_session *session)
{
    struct muster_figures figures;
    if (pthread_mutex_trylock(&session->client_mutex) != 0) {
        return;
    }
    muster_mutex_lock(&session->mutex);
    bool fetches = session->exchange.fetches;
    uint32_t hosts_digest = session->exchange.hosts_digest;
    muster_mutex_unlock(&session->mutex);
    if (fetches) {
        fetch_held(session, hosts_digest);
    } else if (take_stored(session, &figures)) {
        store_held(session, &figures, ATTEMPT_MS);
    }
    muster_mutex_unlock(&session->client_mutex);
}

void muster_session_flush_figures(struct muster_session *session)
{
    struct muster_figures figures;
    AUTO_LOCK(&session->client_mutex);
    if (take_stored(session, &figures)) {
        store_held(session, &figures, FLUSH_ATTEMPT_MS);
    }
}
