/* The engines of a session: found, made, and how they reach their contexts. */
#include "worker/session/engines.h"

#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/communicator/set_numbers.h"
#include "worker/session/engine_list.h"
#include "worker/session/failure_handling.h"
#include "worker/session/generation_guard.h"
#include "worker/session/scopes.h"

/* What the engine calls ------------------------------------------------------------------------ */

/* Holds the generation, if it is still the engine's. */
static muster_status hold(struct muster_session_engine *own)
{
    TRY(muster_session_hold_generation(own->session));
    if (own->session->generation.number == own->generation) {
        return MUSTER_OK;
    }
    muster_session_release_generation(own->session);
    return muster_error_set(MUSTER_REJOIN, "the generation of the tensors has ended");
}

static muster_status run(void *owner, const struct muster_request *request)
{
    struct muster_session_engine *own = owner;
    uint32_t suspect = UINT32_MAX;
    TRY(hold(own));
    muster_status status = muster_context_run(own->context, request, &suspect);
    muster_session_release_generation(own->session);
    /* A step that ranks make differently is no failure of the job. */
    return status == MUSTER_INVALID
               ? status
               : muster_session_handle_result(own->session, own->generation, status, suspect);
}

static muster_status prepare(void *owner)
{
    static const struct muster_tuned_list nothing;
    struct muster_session_engine *own = owner;
    struct muster_cost_model model;
    uint32_t suspect = UINT32_MAX;
    bool autotunes = false;
    TRY(hold(own));
    struct muster_communicator *communicator = own->session->generation.communicator;
    muster_status status = muster_context_share_memory(
        own->context, muster_clock_after_ms(own->session->settings.call_timeout_ms), &suspect);
    muster_communicator_copy_model(communicator, &model, &autotunes);
    muster_context_tune(own->context, autotunes ? &nothing : NULL);
    muster_session_release_generation(own->session);
    return muster_session_handle_result(own->session, own->generation, status, suspect);
}

/* Finding -------------------------------------------------------------------------------------- */

static uint32_t number_of(const struct muster_context *context, muster_scope scope)
{
    return (uint32_t)scope < MUSTER_SCOPE_COUNT
               ? (uint32_t)MUSTER_TENSOR_SCOPE_NUMBERS + (uint32_t)scope
               : MUSTER_TENSOR_NUMBERS |
                     (muster_context_number(context) & (MUSTER_SET_NUMBERS - 1));
}

static muster_status create_context(struct muster_session *session, muster_scope scope,
                                    struct muster_context **ret_context)
{
    struct muster_communicator *communicator = session->generation.communicator;
    struct muster_context *context = NULL;
    AUTO_FREE uint32_t *members = NULL;
    uint32_t count = 0;
    TRY(muster_session_context(session, scope, &context));
    TRY(muster_session_scope_members(session, scope, &members, &count));
    return muster_communicator_create_context(communicator, "tensors", number_of(context, scope),
                                              members, count, ret_context);
}

/* The generation is held. */
static muster_status create_locked(struct muster_session *session, muster_scope scope,
                                   struct muster_session_engine **ret_own)
{
    struct muster_session_engine *own = calloc(1, sizeof *own);
    if (own == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for an engine");
    }
    own->session = session;
    own->scope = scope;
    own->generation = session->generation.number;
    muster_status status = create_context(session, scope, &own->context);
    if (status == MUSTER_OK) {
        const struct muster_engine_options options = {
            .context = {.run = run, .prepare = prepare, .owner = own},
            .rank = muster_context_rank(own->context),
            .ranks = muster_context_size(own->context),
            .timeout_ms = session->settings.call_timeout_ms,
            .reproducible = session->settings.reproducible != 0,
            .timeline = session->timeline,
        };
        status = muster_engine_create(&options, &own->engine);
    }
    if (status != MUSTER_OK) {
        muster_context_destroy(own->context);
        free(own);
        return status;
    }
    own->next = session->engines.list;
    session->engines.list = own;
    if ((uint32_t)scope < MUSTER_SCOPE_COUNT) {
        atomic_store(&session->engines.by_scope[scope], own);
    }
    *ret_own = own;
    return MUSTER_OK;
}

static struct muster_session_engine *find_locked(const struct muster_session *session,
                                                 muster_scope scope, uint64_t generation)
{
    for (struct muster_session_engine *own = session->engines.list; own != NULL; own = own->next) {
        if (own->scope == scope && own->generation == generation) {
            return own;
        }
    }
    return NULL;
}

static muster_status find_held(struct muster_session *session, muster_scope scope, bool create,
                               struct muster_engine **ret_engine)
{
    struct muster_context *context = NULL;
    TRY(muster_session_context(session, scope, &context)); /* the set may have been freed */
    AUTO_LOCK(&session->engines.mutex);
    struct muster_session_engine *own = find_locked(session, scope, session->generation.number);
    if (own == NULL && create) {
        TRY(create_locked(session, scope, &own));
    }
    *ret_engine = own != NULL ? own->engine : NULL;
    return MUSTER_OK;
}

muster_status muster_session_find_engine(struct muster_session *session, muster_scope scope,
                                         bool create, struct muster_engine **ret_engine)
{
    if ((uint32_t)scope < MUSTER_SCOPE_COUNT) {
        const struct muster_session_engine *own =
            atomic_load_explicit(&session->engines.by_scope[scope], memory_order_acquire);
        if (own != NULL && own->generation == atomic_load(&session->generation_number)) {
            *ret_engine = own->engine;
            return muster_session_check_process(session);
        }
    }
    TRY(muster_session_hold_generation(session));
    muster_status status = find_held(session, scope, create, ret_engine);
    muster_session_release_generation(session);
    return status;
}
