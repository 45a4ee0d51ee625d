/* The thread that asks the service for members whose addresses are needed. */
#include "worker/session/peer_finder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/random.h"
#include "worker/base/thread.h"
#include "worker/communicator/dial_requests.h"
#include "worker/session/formed_answer.h"

enum {
    ATTEMPT_MS = 2000, /* of one request */
    FIRST_BACK_OFF_MS = 20,
    BACK_OFF_MAX_MS = 1000,
    FIRST_RANKS = 8, /* asked for at least */
};

struct muster_session_finder {
    struct muster_peer_finder slots; /* first: the fabric knows only these */
    struct muster_session *session;
    uint64_t generation;
    uint32_t rank;
    struct muster_topology topology;
    pthread_mutex_t mutex; /* the following, but for those of the thread */
    pthread_cond_t changed;
    bool wanted, ends;
    pthread_t thread;
    /* The thread's. */
    uint32_t least;       /* ranks of the next request */
    uint32_t back_off_ms; /* 0: the last request was answered */
    bool warned;
};

static void note_wanted(struct muster_peer_finder *slots)
{
    struct muster_session_finder *finder = (struct muster_session_finder *)slots;
    AUTO_LOCK(&finder->mutex);
    finder->wanted = true;
    (void)pthread_cond_broadcast(&finder->changed);
}

/* Asking --------------------------------------------------------------------------------------- */

/* NOLINTNEXTLINE(readability-non-const-parameter): the request has it */
static muster_status call_peers(struct muster_session_finder *finder, uint32_t *ranks,
                                uint32_t count, struct muster_peers_response *ret_response)
{
    struct muster_session *session = finder->session;
    struct muster_peers_request request = {
        .generation = finder->generation, .rank_count = count, .ranks = ranks};
    const struct muster_retry_policy retry_policy = {
        .attempt_ms = ATTEMPT_MS, .deadline_ns = muster_clock_after_ms(ATTEMPT_MS), .attempts = 1};
    json_t *answer = NULL;
    (void)snprintf(request.job, sizeof request.job, "%s", session->settings.job);
    memcpy(request.member, session->member, sizeof request.member);
    muster_mutex_lock(&session->client_mutex);
    muster_status status =
        muster_client_call(session->caller_client, MUSTER_RPC_PEERS,
                           muster_peers_request_encode(&request), &retry_policy, &answer, NULL);
    muster_mutex_unlock(&session->client_mutex);
    TRY(status);
    status = muster_peers_response_decode(answer, ret_response);
    json_decref(answer);
    return status;
}

/* The answer has to have what was asked for, in that order. */
static muster_status read_peers(const struct muster_session_finder *finder, const uint32_t *ranks,
                                const struct muster_peers_response *response,
                                struct muster_peer *ret_peers)
{
    for (uint32_t i = 0; i < response->peer_count; i++) {
        if (response->peers[i].rank != ranks[i]) {
            return muster_error_set(MUSTER_FATAL, "rank %u in place of rank %u",
                                    response->peers[i].rank, ranks[i]);
        }
        TRY(muster_formed_answer_read_peer(&response->peers[i], &finder->topology, finder->rank,
                                           finder->session->settings.host, &ret_peers[i]));
    }
    return MUSTER_OK;
}

static muster_status add_peers(struct muster_session_finder *finder, const uint32_t *ranks,
                               uint32_t count, const struct muster_peers_response *response)
{
    if (response->peer_count != count) {
        return muster_error_set(MUSTER_FATAL, "%u peers for %u ranks", response->peer_count, count);
    }
    struct muster_peer *peers = calloc(count, sizeof *peers);
    if (peers == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u peers", count);
    }
    muster_status status = read_peers(finder, ranks, response, peers);
    if (status == MUSTER_OK) {
        status = muster_fabric_add_peers(finder->session->fabric, finder->generation, peers, ranks,
                                         count);
    }
    free(peers);
    return status;
}

static muster_status ask(struct muster_session_finder *finder, uint32_t *ranks, uint32_t count)
{
    struct muster_peers_response response = {0};
    TRY(call_peers(finder, ranks, count, &response));
    muster_status status = add_peers(finder, ranks, count, &response);
    muster_peers_response_finish(&response);
    return status == MUSTER_OK ? MUSTER_OK : muster_error_prefix(status, "the answer to Peers");
}

/* The service does not answer: those that are sought are asked by way of the members that are
 * known. The communicator outlives this thread. ranks: room for MUSTER_PEERS_MAX. */
static void ask_neighbours(struct muster_session_finder *finder, uint32_t *ranks)
{
    struct muster_session *session = finder->session;
    uint32_t count =
        muster_fabric_list_sought(session->fabric, finder->generation, 1, MUSTER_PEERS_MAX, ranks);
    muster_mutex_lock(&session->mutex);
    const struct muster_communicator *communicator = session->generation.communicator;
    muster_mutex_unlock(&session->mutex);
    if (communicator != NULL) {
        muster_dial_requests_send(communicator->dial_requests, ranks, count);
    }
}

static void back_off(struct muster_session_finder *finder)
{
    uint32_t next_ms = finder->back_off_ms == 0 ? FIRST_BACK_OFF_MS : 2 * finder->back_off_ms;
    finder->back_off_ms = next_ms < BACK_OFF_MAX_MS ? next_ms : BACK_OFF_MAX_MS;
}

/* Each request asks for twice as many as the one before. While the service does not answer, the
 * neighbours are asked before it is tried again: the attempt may take its whole time. */
static void find_some(struct muster_session_finder *finder)
{
    AUTO_FREE uint32_t *ranks = calloc(MUSTER_PEERS_MAX, sizeof *ranks);
    if (ranks == NULL) {
        return;
    }
    bool was_away = finder->back_off_ms > 0;
    if (was_away) {
        ask_neighbours(finder, ranks);
    }
    uint32_t count = muster_fabric_list_sought(finder->session->fabric, finder->generation,
                                               finder->least, MUSTER_PEERS_MAX, ranks);
    if (count == 0) {
        finder->back_off_ms = 0;
        return;
    }
    muster_status status = ask(finder, ranks, count);
    if (status == MUSTER_OK) {
        finder->back_off_ms = 0;
        finder->least = count < MUSTER_PEERS_MAX / 2 ? 2 * count : MUSTER_PEERS_MAX;
        return;
    }
    if (!finder->warned && status != MUSTER_REJOIN) { /* else the generation is over */
        muster_log(MUSTER_LOG_WARN, "the addresses of %u members cannot be had yet: %s", count,
                   muster_last_error());
        finder->warned = true;
    }
    if (!was_away) {
        ask_neighbours(finder, ranks);
    }
    back_off(finder);
}

/* The thread ----------------------------------------------------------------------------------- */

/* Waits until something is wanted, or, after a request that failed, for a random part of the
 * back-off. False: the finder ends. */
static bool await_wish(struct muster_session_finder *finder)
{
    int64_t deadline_ns = finder->back_off_ms == 0
                              ? INT64_MAX
                              : muster_clock_after_ms(1 + muster_random_below(finder->back_off_ms));
    AUTO_LOCK(&finder->mutex);
    bool in_time = true;
    while (!finder->ends && in_time && !(finder->wanted && finder->back_off_ms == 0)) {
        in_time = muster_condition_wait(&finder->changed, &finder->mutex, deadline_ns);
    }
    finder->wanted = false;
    return !finder->ends;
}

static void *run(void *user)
{
    struct muster_session_finder *finder = user;
    while (await_wish(finder)) {
        find_some(finder);
    }
    return NULL;
}

muster_status muster_peer_finder_create(struct muster_session *session, uint64_t generation,
                                        uint32_t rank, const struct muster_topology *topology,
                                        struct muster_session_finder **ret_finder)
{
    struct muster_session_finder *finder = calloc(1, sizeof *finder);
    if (finder == NULL || muster_topology_init_copy(topology, &finder->topology) != MUSTER_OK) {
        free(finder);
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", topology->ranks);
    }
    finder->slots.wanted = note_wanted;
    finder->session = session;
    finder->generation = generation;
    finder->rank = rank;
    finder->least = FIRST_RANKS;
    muster_mutex_init(&finder->mutex);
    muster_condition_init(&finder->changed);
    int error = muster_thread_start(&finder->thread, run, finder);
    if (error != 0) {
        muster_topology_finish(&finder->topology);
        (void)pthread_mutex_destroy(&finder->mutex);
        (void)pthread_cond_destroy(&finder->changed);
        free(finder);
        return muster_error_set(MUSTER_FATAL, "no thread to find members: %s", strerror(error));
    }
    *ret_finder = finder;
    return MUSTER_OK;
}

struct muster_peer_finder *muster_peer_finder_slots(struct muster_session_finder *finder)
{
    return &finder->slots;
}

void muster_peer_finder_destroy(struct muster_session_finder *finder)
{
    if (finder == NULL) {
        return;
    }
    if (finder->session->fabric != NULL) {
        muster_fabric_forget_finder(finder->session->fabric);
    }
    muster_mutex_lock(&finder->mutex);
    finder->ends = true;
    (void)pthread_cond_broadcast(&finder->changed);
    muster_mutex_unlock(&finder->mutex);
    (void)pthread_join(finder->thread, NULL);
    muster_topology_finish(&finder->topology);
    (void)pthread_mutex_destroy(&finder->mutex);
    (void)pthread_cond_destroy(&finder->changed);
    free(finder);
}
