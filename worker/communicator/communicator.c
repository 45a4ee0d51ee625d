/* The communicator: from a list of members to contexts that collectives can use. */
#include "worker/communicator/communicator.h"

#include <stdlib.h>
#include <string.h>

#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/communicator/scope_group.h"
#include "worker/executor/progress_engine.h"

/* Creating ------------------------------------------------------------------------------------- */

static muster_status create_scope(struct muster_communicator *communicator, muster_scope scope,
                                  const char *algorithm)
{
    static const char *const names[MUSTER_SCOPE_COUNT] = {"global", "local", "cross"};
    struct muster_scope_group group;
    TRY(muster_scope_group_init(&communicator->topology, communicator->contribution_numbers,
                                communicator->rank, scope, &group));
    const struct muster_context_options options = {
        .fabric = communicator->fabric,
        .engine = communicator->engine,
        .generation = communicator->generation,
        .number = (uint32_t)scope,
        .name = names[scope],
        .topology = &group.topology,
        .ranks = group.ranks,
        .rank = group.rank,
        .model = &communicator->figures.model,
        .algorithm = algorithm,
        .member_orders = group.contribution_numbers,
    };
    muster_status status = muster_context_create(&options, &communicator->contexts[scope]);
    muster_scope_group_finish(&group);
    return status;
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
        .contribution_numbers = calloc(ranks, sizeof *communicator->contribution_numbers),
        .next_context = MUSTER_SCOPE_COUNT,
    };
    muster_mutex_init(&communicator->figures_mutex);
    muster_figures_init(&communicator->figures);
    if (communicator->contribution_numbers == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", ranks);
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        communicator->contribution_numbers[rank] =
            options->contribution_numbers != NULL ? options->contribution_numbers[rank] : rank;
    }
    TRY(muster_topology_init_copy(options->topology, &communicator->topology));
    TRY(muster_progress_engine_create(options->fabric, &communicator->engine));
    TRY(muster_fabric_begin_generation(options->fabric, options->generation, options->peers,
                                       ranks));
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
    muster_topology_finish(&communicator->topology);
    (void)pthread_mutex_destroy(&communicator->figures_mutex);
    free(communicator->contribution_numbers);
    free(communicator);
}

void muster_communicator_copy_model(struct muster_communicator *communicator,
                                    struct muster_cost_model *ret_model, bool *ret_autotunes)
{
    AUTO_LOCK(&communicator->figures_mutex);
    *ret_model = communicator->figures.model;
    *ret_autotunes = communicator->autotunes;
}

muster_status muster_communicator_create_context(struct muster_communicator *communicator,
                                                 const char *name, uint32_t number,
                                                 const uint32_t *ranks, uint32_t count,
                                                 struct muster_context **ret_context)
{
    struct muster_cost_model model;
    bool unused;
    struct muster_topology topology = {0};
    uint32_t rank = 0;
    while (rank < count && ranks[rank] != communicator->rank) {
        rank++;
    }
    muster_communicator_copy_model(communicator, &model, &unused);
    TRY(muster_topology_init_some(&communicator->topology, ranks, count, &topology));
    const struct muster_context_options options = {
        .fabric = communicator->fabric,
        .engine = communicator->engine,
        .generation = communicator->generation,
        .number = number,
        .name = name,
        .topology = &topology,
        .ranks = ranks,
        .rank = rank,
        .model = &model,
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
        .rank = communicator->rank,
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
