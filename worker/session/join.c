/* Join until a generation has formed, and what is built from its answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/session/session_parts.h"

enum {
    JOIN_ATTEMPT_MS = MUSTER_WAIT_MAX_MS + 5000, /* before the service's hold time is known */
    JOIN_MARGIN_MS = 5000,
    ATTEMPTS_AT_ONCE = 8, /* then the session looks whether it is still wanted */
    HOLD_LEAST_MS = 50,
    PAUSE_MAX_MS = 200, /* between tries that the client does not space out */
};

void muster_session_take_down(struct muster_session *session)
{
    struct muster_generation *generation = &session->generation;
    struct muster_context *contexts[MUSTER_SCOPE_COUNT];
    muster_mutex_lock(&session->mutex);
    while (session->users > 0) {
        (void)pthread_cond_wait(&session->changed, &session->mutex);
    }
    memcpy(contexts, generation->contexts, sizeof contexts);
    memset(generation->contexts, 0, sizeof contexts);
    muster_mutex_unlock(&session->mutex);
    muster_session_note_tuned(session, contexts[MUSTER_GLOBAL]);
    for (int i = 0; i < MUSTER_SCOPE_COUNT; i++) {
        muster_context_destroy(contexts[i]);
    }
    muster_topology_finish(&generation->topology);
    free(generation->orders);
    generation->orders = NULL;
    free(generation->stale);
    generation->stale = NULL;
    generation->stale_count = 0;
}

/* The member's links ----------------------------------------------------------------------------
 */

/* The address that reaches the rendezvous is the likeliest to reach the peers. */
static muster_status make_fabric(struct muster_session *session)
{
    char way[MUSTER_ADDRESS_SIZE];
    TRY(muster_client_local_address(session->caller, way, sizeof way));
    const struct muster_fabric_options options = {.member = session->member,
                                                  .link_token = "",
                                                  .transports = session->settings.transports,
                                                  .first_address = way,
                                                  .timeline = session->timeline};
    struct muster_fabric *fabric = NULL;
    TRY(muster_fabric_create(&options, &fabric));
    AUTO_LOCK(&session->mutex);
    session->fabric = fabric;
    return MUSTER_OK;
}

/* Asking ----------------------------------------------------------------------------------------
 */

static void fill_request(struct muster_session *session, struct muster_join_request *request)
{
    const struct muster_settings *settings = &session->settings;
    struct muster_member_info *info = &request->info;
    *request = (struct muster_join_request){
        .min_size = settings->min_size,
        .max_size = settings->max_size,
        .target_size = settings->target_size,
    };
    (void)snprintf(request->job, sizeof request->job, "%s", settings->job);
    memcpy(info->id, session->member, sizeof info->id);
    (void)snprintf(info->host, sizeof info->host, "%s", settings->host);
    (void)snprintf(info->rack, sizeof info->rack, "%s", settings->rack);
    info->state_version = atomic_load(&session->state.version);
    info->generation = session->generation.number;
    info->order = settings->order;
    info->pid = (uint32_t)getpid();
    uint32_t count = muster_fabric_address_count(session->fabric);
    for (uint32_t i = 0; i < count && i < MUSTER_MEMBER_ADDRESSES_MAX; i++) {
        (void)snprintf(info->addresses[i], sizeof info->addresses[i], "%s",
                       muster_fabric_address(session->fabric, i));
        info->address_count = i + 1;
    }
}

/* Written under the mutex, like its neighbours: compilers read several flags as one word. */
static void become_known(struct muster_session *session)
{
    AUTO_LOCK(&session->mutex);
    session->known = true;
}

/* One Join; the answer may be `waiting`. */
static muster_status ask(struct muster_session *session, int64_t deadline_ns,
                         struct muster_join_response *ret_response)
{
    struct muster_join_request *request = malloc(sizeof *request);
    if (request == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    fill_request(session, request);
    uint32_t hold_ms = session->hold_ms;
    struct muster_retry_policy retry_policy = {
        .attempt_ms = hold_ms > 0 ? hold_ms + JOIN_MARGIN_MS : JOIN_ATTEMPT_MS,
        .deadline_ns = deadline_ns,
        .attempts = ATTEMPTS_AT_ONCE,
    };
    enum muster_rpc_code code = MUSTER_RPC_OK;
    json_t *answer = NULL;
    muster_mutex_lock(&session->calling);
    muster_status status =
        muster_client_call(session->caller, MUSTER_RPC_JOIN, muster_join_request_encode(request),
                           &retry_policy, &answer, &code);
    muster_mutex_unlock(&session->calling);
    free(request);
    if (status == MUSTER_OK) {
        become_known(session);
        status = muster_join_response_decode(answer, ret_response);
        json_decref(answer);
        return status == MUSTER_OK ? MUSTER_OK
                                   : muster_error_prefix(MUSTER_FATAL, "the answer to Join");
    }
    if (session->known) {
        muster_session_heed(session, session->generation.number, code, muster_last_error());
    }
    return status;
}

/* "job x: 2 of at least 4 members after 10 s; missing rank 3 (host b, pid 12)". */
static muster_status too_few(const struct muster_session *session,
                             const struct muster_join_response *waiting)
{
    char missing[MUSTER_ERROR_MAX] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < waiting->missing_count && used < sizeof missing; i++) {
        int added = snprintf(missing + used, sizeof missing - used, "%s%s",
                             i == 0 ? "; missing " : ", ", waiting->missing[i]);
        used += added > 0 ? (size_t)added : 0;
    }
    uint32_t timeout_ms = session->settings.join_timeout_ms;
    char target[48] = "";
    if (waiting->target_size > 0) {
        (void)snprintf(target, sizeof target, " (target %u)", waiting->target_size);
    }
    return muster_error_set(MUSTER_RETRY, "job %s: %u of at least %u members%s after %u.%u s%s",
                            session->settings.job, waiting->members, waiting->min_size, target,
                            timeout_ms / 1000, timeout_ms % 1000 / 100, missing);
}

static void pause_briefly(void)
{
    uint32_t wait_ms = 1 + muster_random_below(PAUSE_MAX_MS);
    struct timespec wait = {.tv_nsec = (long)wait_ms * 1000 * 1000};
    (void)nanosleep(&wait, NULL);
}

/* What a try that formed nothing leads to: MUSTER_OK is another try. */
static muster_status after_failure(struct muster_session *session, muster_status status,
                                   bool *warned)
{
    if (status != MUSTER_RETRY && status != MUSTER_REJOIN) {
        return status;
    }
    if (!*warned) {
        muster_log(MUSTER_LOG_WARN, "still trying to join: %s", muster_last_error());
        *warned = true;
    }
    if (session->fabric == NULL || status == MUSTER_REJOIN) {
        pause_briefly();
    }
    return MUSTER_OK;
}

static muster_status ask_until_formed(struct muster_session *session, int64_t deadline_ns,
                                      struct muster_join_response *ret_response)
{
    bool warned = false;
    struct muster_join_response response = {0};
    muster_status status = MUSTER_RETRY;
    bool waiting = false;
    do {
        if (muster_session_leaving(session)) {
            return muster_error_set(MUSTER_ENDED, "asked to leave while joining");
        }
        status = session->fabric != NULL ? MUSTER_OK : make_fabric(session);
        if (status == MUSTER_OK) {
            struct muster_join_response next = {0};
            status = ask(session, deadline_ns, &next);
            if (status == MUSTER_OK && next.formed) {
                *ret_response = next;
                return MUSTER_OK;
            }
            if (status == MUSTER_OK) {
                waiting = true;
                response = next;
                continue;
            }
        }
        TRY(after_failure(session, status, &warned));
    } while (muster_clock_left_ms(deadline_ns) > 0);
    return waiting ? too_few(session, &response) : status;
}

/* Building ------------------------------------------------------------------------------------ */

/* The group of one scope: its members' global ranks, and their hosts. */
struct group {
    uint32_t *ranks;  /* owned */
    uint32_t *orders; /* owned: of those ranks */
    uint32_t rank;    /* this member's */
    struct muster_topology topology;
};

static void group_finish(struct group *group)
{
    free(group->ranks);
    free(group->orders);
    muster_topology_finish(&group->topology);
}

static uint32_t local_ranks(const struct muster_topology *all, const struct muster_position *here,
                            uint32_t *ranks)
{
    for (uint32_t i = 0; i < here->local_size; i++) {
        ranks[i] = muster_topology_rank(all, here->host, i);
    }
    return here->local_size;
}

static uint32_t cross_ranks(const struct muster_topology *all, const struct muster_position *here,
                            uint32_t *ranks)
{
    uint32_t count = 0;
    for (uint32_t host = 0; host < all->hosts; host++) {
        if (all->host_sizes[host] > here->local_rank) {
            ranks[count++] = muster_topology_rank(all, host, here->local_rank);
        }
    }
    return count;
}

static uint32_t global_ranks(const struct muster_topology *all, uint32_t *ranks)
{
    for (uint32_t i = 0; i < all->ranks; i++) {
        ranks[i] = i;
    }
    return all->ranks;
}

static muster_status group_of(const struct muster_generation *generation, muster_scope scope,
                              struct group *group)
{
    const struct muster_topology *all = &generation->topology;
    struct muster_position here = muster_topology_locate(all, generation->rank);
    group->ranks = calloc(all->ranks, sizeof *group->ranks);
    group->orders = calloc(all->ranks, sizeof *group->orders);
    if (group->ranks == NULL || group->orders == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    uint32_t count = 0;
    switch (scope) {
    case MUSTER_LOCAL:
        count = local_ranks(all, &here, group->ranks);
        group->rank = here.local_rank;
        break;
    case MUSTER_CROSS:
        count = cross_ranks(all, &here, group->ranks);
        group->rank = here.cross_rank;
        break;
    case MUSTER_GLOBAL:
        count = global_ranks(all, group->ranks);
        group->rank = generation->rank;
        break;
    }
    for (uint32_t i = 0; i < count; i++) {
        group->orders[i] = generation->orders[group->ranks[i]];
    }
    return muster_topology_init_some(all, group->ranks, count, &group->topology);
}

static muster_status make_context(struct muster_session *session, muster_scope scope)
{
    static const char *const names[MUSTER_SCOPE_COUNT] = {"global", "local", "cross"};
    struct muster_generation *generation = &session->generation;
    struct group group = {0};
    muster_status status = group_of(generation, scope, &group);
    if (status == MUSTER_OK) {
        struct muster_context_options options = {
            .fabric = session->fabric,
            .generation = generation->number,
            .number = (uint32_t)scope,
            .name = names[scope],
            .topology = &group.topology,
            .ranks = group.ranks,
            .rank = group.rank,
            .model = &muster_cost_model_default,
            .algorithm = session->settings.algorithm,
            .orders = group.orders,
        };
        status = muster_context_create(&options, &generation->contexts[scope]);
        atomic_store(&session->ranks[scope], group.rank);
        atomic_store(&session->sizes[scope], group.topology.ranks);
    }
    group_finish(&group);
    return status;
}

/* Neighbours of one name are a rack; sizes has room for both. */
static muster_status lay_out(const struct muster_join_response *response, uint32_t *sizes,
                             struct muster_topology *ret_topology)
{
    const struct muster_wire_host *hosts = response->hosts;
    for (uint32_t i = 0; i < response->host_count; i++) {
        sizes[i] = hosts[i].size;
    }
    struct muster_topology topology = {0};
    TRY(muster_topology_init(response->host_count, sizes, &topology));
    uint32_t racks = 0;
    for (uint32_t i = 0; i < response->host_count; i++) {
        if (i == 0 || strcmp(hosts[i].rack, hosts[i - 1].rack) != 0) {
            sizes[racks++] = 0;
        }
        sizes[racks - 1]++;
    }
    muster_status status = muster_topology_set_racks(&topology, racks, sizes);
    if (status != MUSTER_OK) {
        muster_topology_finish(&topology);
        return status;
    }
    *ret_topology = topology;
    return MUSTER_OK;
}

static muster_status take_topology(struct muster_generation *generation,
                                   const struct muster_join_response *response)
{
    uint32_t *sizes = calloc(response->host_count + (size_t)1, sizeof *sizes);
    if (sizes == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    muster_status status = lay_out(response, sizes, &generation->topology);
    free(sizes);
    if (status != MUSTER_OK) {
        return muster_error_prefix(MUSTER_FATAL, "the answer to Join");
    }
    if (generation->topology.ranks != response->size || response->rank >= response->size ||
        response->state_source >= response->size) {
        muster_topology_finish(&generation->topology);
        return muster_error_set(MUSTER_FATAL,
                                "the answer to Join: rank %u, size %u and source %u on hosts "
                                "that hold %u do not fit",
                                response->rank, response->size, response->state_source,
                                generation->topology.ranks);
    }
    return MUSTER_OK;
}

static muster_status take_orders(struct muster_generation *generation,
                                 const struct muster_join_response *response)
{
    generation->orders = calloc(response->size, sizeof *generation->orders);
    if (generation->orders == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    for (uint32_t rank = 0; rank < response->size; rank++) {
        generation->orders[rank] = response->peers[rank].order;
    }
    return MUSTER_OK;
}

/* Members of hosts of different names do not share memory, even if they could. */
static void take_addresses(const struct muster_wire_peer *wire, bool same_host,
                           struct muster_peer *peer)
{
    peer->address_count = 0;
    for (uint32_t i = 0; i < wire->address_count; i++) {
        if (same_host || !muster_fabric_address_is_local(wire->addresses[i])) {
            (void)snprintf(peer->addresses[peer->address_count++], sizeof peer->addresses[0], "%s",
                           wire->addresses[i]);
        }
    }
}

static struct muster_peer *peers_of(const struct muster_session *session,
                                    const struct muster_join_response *response)
{
    struct muster_peer *peers = calloc(response->size, sizeof *peers);
    if (peers == NULL) {
        return NULL;
    }
    uint32_t rank = 0;
    for (uint32_t host = 0; host < response->host_count; host++) {
        for (uint32_t i = 0; i < response->hosts[host].size; i++, rank++) {
            const struct muster_wire_peer *wire = &response->peers[rank];
            struct muster_peer *peer = &peers[rank];
            memcpy(peer->member, wire->member, sizeof peer->member);
            (void)snprintf(peer->host, sizeof peer->host, "%s", response->hosts[host].name);
            take_addresses(wire, strcmp(peer->host, session->settings.host) == 0, peer);
        }
    }
    return peers;
}

static muster_status open_links(struct muster_session *session,
                                const struct muster_join_response *response)
{
    struct muster_peer *peers = peers_of(session, response);
    if (peers == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    muster_fabric_set_token(session->fabric, response->link_token);
    muster_status status = muster_fabric_begin_generation(session->fabric, response->generation,
                                                          peers, response->size);
    free(peers);
    return status;
}

/* From now on the session is in this generation, for its thread: a death is noticed. */
static void publish(struct muster_session *session, const struct muster_join_response *response)
{
    AUTO_LOCK(&session->mutex);
    session->stage = MUSTER_STAGE_TUNING;
    session->rejoin_due = false;
    session->hold_ms = response->hold_ms < HOLD_LEAST_MS ? HOLD_LEAST_MS : response->hold_ms;
    session->hold_ms =
        session->hold_ms > MUSTER_WAIT_MAX_MS ? MUSTER_WAIT_MAX_MS : session->hold_ms;
    session->lease_ms = response->lease_ms;
    atomic_store(&session->pending, false);
    atomic_store(&session->leave_asked, false);
    atomic_store(&session->last_status, (int)MUSTER_OK);
    atomic_store(&session->number, response->generation);
    muster_log_set_identity(response->rank, response->generation);
    muster_log(MUSTER_LOG_INFO, "size=%u hosts=%u joined job %s", response->size,
               response->host_count, session->settings.job);
    (void)pthread_cond_broadcast(&session->changed);
}

static muster_status open_gate(struct muster_session *session)
{
    muster_session_look_around(session);
    muster_status status = muster_session_tune(session);
    AUTO_LOCK(&session->mutex);
    session->stage = status == MUSTER_OK ? MUSTER_STAGE_RUNNING : MUSTER_STAGE_JOINING;
    (void)pthread_cond_broadcast(&session->changed);
    return status;
}

/* Takes the lists that the generation keeps out of the response. */
static muster_status build(struct muster_session *session, struct muster_join_response *response)
{
    struct muster_generation *generation = &session->generation;
    TRY(take_topology(generation, response));
    if (response->peers == NULL ||
        strcmp(response->peers[response->rank].member, session->member) != 0) {
        return muster_error_set(MUSTER_FATAL, "the answer to Join: rank %u is another member",
                                response->rank);
    }
    muster_mutex_lock(&session->mutex);
    generation->number = response->generation;
    muster_mutex_unlock(&session->mutex);
    generation->rank = response->rank;
    muster_tune_place(response, &generation->hosts, &generation->shape);
    generation->state_version = response->state_version;
    generation->state_source = response->state_source;
    generation->stale_count = response->stale_count;
    generation->stale = TAKE(response->stale);
    generation->contexts_made = MUSTER_SCOPE_COUNT;
    TRY(take_orders(generation, response));
    TRY(open_links(session, response));
    for (int scope = 0; scope < MUSTER_SCOPE_COUNT; scope++) {
        TRY(make_context(session, (muster_scope)scope));
    }
    return MUSTER_OK;
}

muster_status muster_session_join(struct muster_session *session, int64_t deadline_ns)
{
    struct muster_join_response response = {0};
    TRY(ask_until_formed(session, deadline_ns, &response));
    muster_status status = build(session, &response);
    if (status == MUSTER_OK) {
        publish(session, &response);
        status = open_gate(session);
    }
    if (status != MUSTER_OK) {
        muster_session_take_down(session);
    }
    muster_join_response_finish(&response);
    return status;
}
