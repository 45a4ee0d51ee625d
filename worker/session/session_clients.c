/* Creates clients; counts the calls about values that are under way, and keeps a few clients. */
#include "worker/session/session_clients.h"

#include "worker/base/thread.h"

muster_status muster_session_create_client(const struct muster_settings *settings,
                                           struct muster_client **ret_client)
{
    const struct muster_client_security security = {
        .server_token = settings->server_token,
        .authority = settings->rendezvous_authority,
        .certificate = settings->rendezvous_certificate,
        .key = settings->rendezvous_key,
    };
    struct muster_client *client = NULL;
    TRY(muster_client_create(settings->rendezvous, settings->token, &client));
    muster_status status = muster_client_secure(client, &security);
    if (status != MUSTER_OK) {
        muster_client_destroy(client);
        return status;
    }
    *ret_client = client;
    return MUSTER_OK;
}

void muster_session_clients_init(struct muster_session_clients *clients)
{
    muster_mutex_init(&clients->mutex);
    muster_condition_init(&clients->given_back);
}

void muster_session_clients_finish(struct muster_session_clients *clients)
{
    while (clients->kept_count > 0) {
        muster_client_destroy(clients->kept[--clients->kept_count]);
    }
    (void)pthread_cond_destroy(&clients->given_back);
    (void)pthread_mutex_destroy(&clients->mutex);
}

static bool has_room_locked(const struct muster_session_clients *clients, bool waits)
{
    return clients->calls < MUSTER_VALUE_CALLS_MAX &&
           (!waits || clients->waits < MUSTER_VALUE_WAITS_MAX);
}

muster_status muster_session_clients_take(struct muster_session_clients *clients, bool waits,
                                          int64_t deadline_ns, struct muster_client **ret_client)
{
    AUTO_LOCK(&clients->mutex);
    while (!has_room_locked(clients, waits)) {
        if (!muster_condition_wait(&clients->given_back, &clients->mutex, deadline_ns) &&
            !has_room_locked(clients, waits)) {
            return muster_error_set(MUSTER_RETRY,
                                    "%u calls of this session are under way, %u of "
                                    "which wait for keys",
                                    clients->calls, clients->waits);
        }
    }
    clients->calls++;
    clients->waits += waits ? 1 : 0;
    *ret_client = clients->kept_count > 0 ? clients->kept[--clients->kept_count] : NULL;
    return MUSTER_OK;
}

void muster_session_clients_give_back(struct muster_session_clients *clients, bool waits,
                                      struct muster_client *client)
{
    muster_mutex_lock(&clients->mutex);
    clients->calls--;
    clients->waits -= waits ? 1 : 0;
    bool kept = client != NULL && clients->kept_count < MUSTER_VALUE_CLIENTS_KEPT;
    if (kept) {
        clients->kept[clients->kept_count++] = client;
    }
    (void)pthread_cond_broadcast(&clients->given_back);
    muster_mutex_unlock(&clients->mutex);
    if (!kept) {
        muster_client_destroy(client);
    }
}
