/* The communicator: from a list of members to contexts that collectives can use. */
#include "worker/communicator/communicator.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/call/host_order.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/communicator/dial_requests.h"
#include "worker/communicator/scope_group.h"
#include "worker/communicator/set_lists.h"
#include "worker/executor/progress_engine.h"

/* Creating ------------------------------------------------------------------------------------- */

/* Of the global scope callers see the order that they gave; the local and the cross one are in the
 * order of the topology. */
static muster_status create_scope(struct muster_communicator *communicator, muster_scope scope,
                                  const char *algorithm)
{
    static const char *const names[MUSTER_SCOPE_COUNT] = {"global", "local", "cross"};
    struct muster_scope_group group;
    TRY(muster_scope_group_init(&communicator->topology, communicator->contribution_numbers,
                                communicator->topology_ranks[communicator->rank], scope, &group));
    for (uint32_t i = 0; i < group.topology.ranks; i++) {
        group.ranks[i] = communicator->callers[group.ranks[i]];
    }
    const struct muster_context_options options = {
        .fabric = communicator->fabric,
        .engine = communicator->engine,
        .generation = communicator->generation,
        .number = (uint32_t)scope,
        .name = names[scope],
        .topology = &group.topology,
        .ranks = group.ranks,
        .rank = group.rank,
        .callers = scope == MUSTER_GLOBAL ? communicator->callers : NULL,
        .model = &communicator->figures.model,
        .algorithm = algorithm,
        .member_orders = group.contribution_numbers,
    };
    muster_status status = muster_context_create(&options, &communicator->contexts[scope]);
    muster_scope_group_finish(&group);
    return status;
}

static muster_status fill_ranks(struct muster_communicator *communicator,
                                const struct muster_communicator_options *options)
{
    uint32_t ranks = options->topology->ranks;
    communicator->contribution_numbers = calloc(ranks, sizeof *communicator->contribution_numbers);
    communicator->callers = calloc(ranks, sizeof *communicator->callers);
    communicator->topology_ranks = calloc(ranks, sizeof *communicator->topology_ranks);
    if (communicator->contribution_numbers == NULL || communicator->callers == NULL ||
        communicator->topology_ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", ranks);
    }
    for (uint32_t i = 0; i < ranks; i++) {
        uint32_t rank = options->callers != NULL ? options->callers[i] : i;
        communicator->callers[i] = rank;
        communicator->topology_ranks[rank] = i;
        communicator->contribution_numbers[i] =
            options->contribution_numbers != NULL ? options->contribution_numbers[rank] : rank;
    }
    return MUSTER_OK;
}

static muster_status begin_links(const struct muster_communicator_options *options)
{
    if (options->peer_ranks == NULL) {
        return muster_fabric_begin_generation(options->fabric, options->generation, options->peers,
                                              options->topology->ranks);
    }
    const struct muster_position here = muster_topology_locate(options->topology, options->rank);
    const struct muster_fabric_generation generation = {
        .number = options->generation,
        .rank = options->rank,
        .size = options->topology->ranks,
        .host = options->host,
        .local_rank = here.local_rank,
        .local_size = here.local_size,
        .peers = options->peers,
        .ranks = options->peer_ranks,
        .peer_count = options->peer_count,
        .finder = options->finder,
    };
    return muster_fabric_begin_partly_known(options->fabric, &generation);
}

static muster_status fill(struct muster_communicator *communicator,
                          const struct muster_communicator_options *options)
{
    uint32_t ranks = options->topology->ranks;
    *communicator = (struct muster_communicator){
        .fabric = options->fabric,
        .generation = options->generation,
        .rank = options->rank,
        .hosts_digest = options->hosts_digest,
        .shape_digest = options->shape_digest,
        .timeout_ms = options->timeout_ms,
        .next_context = MUSTER_SCOPE_COUNT,
    };
    muster_mutex_init(&communicator->figures_mutex);
    muster_figures_init(&communicator->figures);
    TRY(fill_ranks(communicator, options));
    if (options->algorithm != NULL &&
        (communicator->algorithm = strdup(options->algorithm)) == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a communicator");
    }
    TRY(muster_topology_init_copy(options->topology, &communicator->topology));
    TRY(muster_progress_engine_create(options->fabric, &communicator->engine));
    if (options->keeps_watch) {
        TRY(muster_progress_engine_keep_watch(communicator->engine));
    }
    TRY(begin_links(options));
    TRY(muster_set_lists_create(options->fabric, options->generation, options->rank, ranks,
                                &communicator->set_lists));
    if (options->peer_ranks != NULL) {
        TRY(muster_dial_requests_create(options->fabric, options->generation, options->rank,
                                        &communicator->topology, &communicator->dial_requests));
    }
    for (int scope = 0; scope < MUSTER_SCOPE_COUNT; scope++) {
        TRY(create_scope(communicator, (muster_scope)scope, options->algorithm));
    }
    return MUSTER_OK;
}

muster_status muster_communicator_create(const struct muster_communicator_options *options,
                                         struct muster_communicator **ret_communicator)
{
    struct muster_communicator *communicator = malloc(sizeof *communicator);
    if (communicator == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a communicator");
    }
    muster_status status = fill(communicator, options);
    if (status != MUSTER_OK) {
        muster_communicator_destroy(communicator);
        return status;
    }
    *ret_communicator = communicator;
    return MUSTER_OK;
}

void muster_communicator_destroy(struct muster_communicator *communicator)
{
    if (communicator == NULL) {
        return;
    }
    for (int scope = 0; scope < MUSTER_SCOPE_COUNT; scope++) {
        muster_context_destroy(communicator->contexts[scope]);
    }
    muster_progress_engine_destroy(communicator->engine);
    muster_set_lists_destroy(communicator->set_lists);
    muster_dial_requests_destroy(communicator->dial_requests);
    muster_topology_finish(&communicator->topology);
    (void)pthread_mutex_destroy(&communicator->figures_mutex);
    free(communicator->contribution_numbers);
    free(communicator->algorithm);
    free(communicator->callers);
    free(communicator->topology_ranks);
    free(communicator);
}

void muster_communicator_copy_model(struct muster_communicator *communicator,
                                    struct muster_cost_model *ret_model, bool *ret_autotunes)
{
    AUTO_LOCK(&communicator->figures_mutex);
    *ret_model = communicator->figures.model;
    *ret_autotunes = communicator->autotunes;
}

/* The topology of some members, and their order in it. hosts: room for [2 * count]. */
static muster_status order_members(const struct muster_communicator *communicator,
                                   const uint32_t *ranks, uint32_t count, uint32_t *hosts,
                                   uint32_t *ret_callers, struct muster_topology *ret_topology)
{
    const struct muster_topology *all = &communicator->topology;
    AUTO_FREE uint32_t *numbers = calloc(all->ranks, 2 * sizeof *numbers);
    AUTO_FREE bool *is_listed = calloc(all->ranks, sizeof *is_listed);
    if (numbers == NULL || is_listed == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a context of %u ranks", count);
    }
    /* Numbers below `count`, as muster_host_order() takes them, of the hosts and racks that occur.
     */
    uint32_t *host_numbers = numbers;
    uint32_t *rack_numbers = numbers + all->ranks;
    uint32_t hosts_used = 0;
    uint32_t racks_used = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (ranks[i] >= all->ranks) {
            return muster_error_set(MUSTER_INVALID, "rank %u of %u does not exist", ranks[i],
                                    all->ranks);
        }
        if (is_listed[ranks[i]]) {
            return muster_error_set(MUSTER_INVALID, "rank %u stands there twice", ranks[i]);
        }
        is_listed[ranks[i]] = true;
        uint32_t host = muster_topology_host(all, communicator->topology_ranks[ranks[i]]);
        uint32_t rack = muster_topology_rack(all, host);
        host_numbers[host] = host_numbers[host] != 0 ? host_numbers[host] : ++hosts_used;
        rack_numbers[rack] = rack_numbers[rack] != 0 ? rack_numbers[rack] : ++racks_used;
        hosts[i] = host_numbers[host] - 1;
        hosts[count + i] = rack_numbers[rack] - 1;
    }
    return muster_host_order(count, hosts, hosts + count, ret_callers, ret_topology);
}

muster_status muster_communicator_create_context(struct muster_communicator *communicator,
                                                 const char *name, uint32_t number,
                                                 const uint32_t *ranks, uint32_t count,
                                                 struct muster_context **ret_context)
{
    struct muster_cost_model model;
    bool unused;
    struct muster_topology topology = {0};
    AUTO_FREE uint32_t *room = calloc((size_t)count + 1, 5 * sizeof *room);
    if (room == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a context of %u ranks", count);
    }
    uint32_t *callers = room;
    uint32_t *members = room + count;
    uint32_t *orders = room + 2 * (size_t)count;
    TRY(order_members(communicator, ranks, count, room + 3 * (size_t)count, callers, &topology));
    uint32_t rank = count;
    for (uint32_t i = 0; i < count; i++) {
        members[i] = ranks[callers[i]];
        orders[i] = communicator->contribution_numbers[communicator->topology_ranks[members[i]]];
        rank = members[i] == communicator->rank ? i : rank;
    }
    muster_communicator_copy_model(communicator, &model, &unused);
    const struct muster_context_options options = {
        .fabric = communicator->fabric,
        .engine = communicator->engine,
        .generation = communicator->generation,
        .number = number,
        .name = name,
        .topology = &topology,
        .ranks = members,
        .rank = rank,
        .callers = callers,
        .model = &model,
        .algorithm = communicator->algorithm,
        .member_orders = orders,
    };
    muster_status status = muster_context_create(&options, ret_context);
    muster_topology_finish(&topology);
    return status;
}

/* Exchanges before the first collective -------------------------------------------------------- */

static void adopt(struct muster_communicator *communicator, const struct muster_figures *figures,
                  bool autotunes)
{
    AUTO_LOCK(&communicator->figures_mutex);
    communicator->figures = *figures;
    communicator->autotunes = autotunes;
}

muster_status muster_communicator_agree_figures(struct muster_communicator *communicator,
                                                struct muster_figures_choice *choice,
                                                uint32_t *ret_suspect)
{
    const struct muster_figures_group group = {
        .fabric = communicator->fabric,
        .generation = communicator->generation,
        .context = communicator->next_context,
        .topology = &communicator->topology,
        .rank = communicator->topology_ranks[communicator->rank],
        .peers = communicator->callers,
        .hosts_digest = communicator->hosts_digest,
        .shape_digest = communicator->shape_digest,
        .timeout_ms = communicator->timeout_ms,
    };
    communicator->next_context += MUSTER_FIGURES_CONTEXTS;
    communicator->figures_outdated = false;
    if (communicator->topology.ranks == 1) { /* there is nobody to agree with */
        adopt(communicator, &choice->figures, false);
        return MUSTER_OK;
    }
    TRY(muster_figures_agree(&group, choice, ret_suspect));
    adopt(communicator, &choice->figures, choice->autotune);
    communicator->figures_outdated = choice->outdated;
    return MUSTER_OK;
}

/* The scopes that may lie within one host. */
muster_status muster_communicator_share_memory(struct muster_communicator *communicator,
                                               uint32_t *ret_suspect)
{
    static const muster_scope scopes[] = {MUSTER_GLOBAL, MUSTER_LOCAL};
    if (communicator->topology.ranks == 1) {
        return MUSTER_OK;
    }
    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++) {
        TRY(muster_context_share_memory(communicator->contexts[scopes[i]],
                                        muster_clock_after_ms(communicator->timeout_ms),
                                        ret_suspect));
    }
    return MUSTER_OK;
}

/* Local and cross groups differ from member to member, so they begin to tune without a list. */
void muster_communicator_apply_figures_to(struct muster_communicator *communicator,
                                          muster_scope scope)
{
    static const struct muster_tuned_list nothing;
    struct muster_context *context = communicator->contexts[scope];
    muster_context_set_model(context, &communicator->figures.model);
    if (communicator->autotunes) {
        muster_context_tune(context,
                            scope == MUSTER_GLOBAL ? &communicator->figures.tuned : &nothing);
    }
}

void muster_communicator_apply_figures(struct muster_communicator *communicator)
{
    for (int scope = 0; scope < MUSTER_SCOPE_COUNT; scope++) {
        muster_communicator_apply_figures_to(communicator, (muster_scope)scope);
    }
}

bool muster_communicator_wait_all(const struct muster_communicator *communicator, int64_t until_ns)
{
    return muster_progress_engine_wait_all(communicator->engine, until_ns);
}

uint64_t muster_communicator_progress(const struct muster_communicator *communicator)
{
    uint64_t finished = 0;
    for (int scope = 0; scope < MUSTER_SCOPE_COUNT; scope++) {
        finished += muster_context_progress(communicator->contexts[scope]);
    }
    return finished;
}

void muster_peer_remove_local_addresses(struct muster_peer *peer)
{
    uint32_t remaining = 0;
    for (uint32_t i = 0; i < peer->address_count; i++) {
        if (!muster_fabric_address_is_local(peer->addresses[i])) {
            memmove(peer->addresses[remaining++], peer->addresses[i], sizeof peer->addresses[i]);
        }
    }
    peer->address_count = remaining;
}
