/*
 * Link figures for a generation, agreed by its members before anybody can call a collective, and
 * the memory that those of one host share.
 *
 * Rank 0 decides and tells the others in one small broadcast: the figures that it has, those that
 * the job keeps for these hosts, or that all are to measure now. It measures when the job has no
 * figures for these hosts, for as many members on each, or for a level that there is now; but after
 * a death, when the job is in haste and what it knows is good enough, only at the next commit.
 *
 * With the figures goes what former generations of the same shape have found out about algorithms.
 * The contexts go on to find out more; a member keeps that when its generation ends, so that
 * whoever is rank 0 next can hand it on, and rank 0 puts it with the job at commits.
 *
 * A death meanwhile ends the generation, as in any collective: the first call of the user says so.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/communicator/measure.h"
#include "worker/session/session_parts.h"

/* For a question to the service that can do without an answer. One that is down refuses at once; so
 * long only one that hangs is waited for, once a generation. */
enum { KEEPING_MS = 2000 };

/* What rank 0 says. */
struct notice {
    struct muster_figures figures;
    uint32_t measure; /* or 0 */
    uint32_t tune;    /* 1: contexts find out what is fast; or 0 */
    uint32_t later;   /* 1: they are of other hosts, to be measured at the next commit; or 0 */
};

void muster_tune_place(const struct muster_join_response *response, uint32_t *ret_hosts,
                       uint32_t *ret_shape)
{
    uLong hosts = crc32(0, NULL, 0);
    uLong shape = hosts;
    for (uint32_t i = 0; i < response->host_count; i++) {
        const struct muster_wire_host *host = &response->hosts[i];
        hosts = crc32(hosts, (const Bytef *)host->name, (uInt)strlen(host->name) + 1);
        hosts = crc32(hosts, (const Bytef *)host->rack, (uInt)strlen(host->rack) + 1);
        shape = crc32(shape, (const Bytef *)&host->size, sizeof host->size);
    }
    *ret_hosts = (uint32_t)hosts;
    *ret_shape = (uint32_t)shape;
}

/* With the job -----------------------------------------------------------------------------------
 */

/* Without levels where there are none, or none that can be read. */
static void fetch(struct muster_session *session, uint32_t hosts,
                  struct muster_figures *ret_figures)
{
    char key[MUSTER_FIGURES_KEY_SIZE];
    muster_figures_key(hosts, key);
    AUTO_LOCK(&session->calling);
    muster_figures_init(ret_figures);
    if (muster_figures_get(session->caller, session->settings.job, key, KEEPING_MS, ret_figures) !=
        MUSTER_OK) {
        muster_log(MUSTER_LOG_WARN, "what the job keeps as %s is not used: %s", key,
                   muster_last_error());
    }
}

/* Under the key of its hosts, and as the newest, for people. False: it could not be done. */
static bool keep(struct muster_session *session, const struct muster_figures *figures)
{
    char key[MUSTER_FIGURES_KEY_SIZE];
    const char *job = session->settings.job;
    muster_figures_key(figures->hosts, key);
    AUTO_LOCK(&session->calling);
    if (muster_figures_put(session->caller, job, key, KEEPING_MS, figures) != MUSTER_OK ||
        muster_figures_put(session->caller, job, MUSTER_FIGURES_NEWEST, KEEPING_MS, figures) !=
            MUSTER_OK) {
        muster_log(MUSTER_LOG_INFO, "link figures are not kept: %s", muster_last_error());
        return false;
    }
    return true;
}

/* Deciding ------------------------------------------------------------------------------------- */

static bool suit(const struct muster_figures *figures, const struct muster_generation *generation)
{
    unsigned levels = muster_measure_levels(&generation->topology);
    return figures->hosts == generation->hosts && figures->shape == generation->shape &&
           (levels & ~figures->levels) == 0;
}

static void decide(struct muster_session *session, bool in_haste, struct notice *notice)
{
    const struct muster_generation *generation = &session->generation;
    notice->figures = session->figures;
    notice->tune = session->settings.tune;
    if (!session->settings.measure || suit(&session->figures, generation)) {
        return;
    }
    if (in_haste && session->figures.levels != 0) {
        notice->later = 1;
        return;
    }
    struct muster_figures kept;
    fetch(session, generation->hosts, &kept);
    if (suit(&kept, generation)) {
        notice->figures = kept;
    } else {
        notice->measure = 1;
    }
}

/* Together ------------------------------------------------------------------------------------- */

static muster_status hear(struct muster_session *session, uint32_t number, struct notice *notice,
                          uint32_t *ret_suspect)
{
    const struct muster_generation *generation = &session->generation;
    AUTO_FREE uint32_t *ranks = calloc(generation->topology.ranks, sizeof *ranks);
    if (ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    for (uint32_t i = 0; i < generation->topology.ranks; i++) {
        ranks[i] = i;
    }
    const struct muster_context_options options = {
        .fabric = session->fabric,
        .generation = generation->number,
        .number = number,
        .name = "figures",
        .topology = &generation->topology,
        .ranks = ranks,
        .rank = generation->rank,
        .model = &muster_cost_model_default,
    };
    const struct muster_request request = {
        .collective = MUSTER_BROADCAST,
        .algorithm = "binomial", /* to choose by cost would take longer than to do it */
        .in = notice,
        .out = notice,
        .count = sizeof *notice,
        .type = MUSTER_UINT8,
        .deadline_ns = muster_clock_after_ms(session->settings.call_timeout_ms),
    };
    struct muster_context *context;
    TRY(muster_context_create(&options, &context));
    muster_status status = muster_context_run(context, &request, ret_suspect);
    muster_context_destroy(context);
    return status;
}

/* All hold the same bytes, so all refuse them or none does. */
static void refuse_absurd(const struct muster_session *session, struct muster_figures *figures)
{
    if (muster_figures_check(figures) == MUSTER_OK) {
        return;
    }
    muster_figures_init(figures);
    if (session->generation.rank == 0) {
        muster_log(MUSTER_LOG_WARN, "%s: those of an ordinary machine are used",
                   muster_last_error());
    }
}

static muster_status measure(struct muster_session *session, uint32_t number,
                             struct muster_figures *figures, uint32_t *ret_suspect)
{
    const struct muster_generation *generation = &session->generation;
    const struct muster_measure_options options = {
        .fabric = session->fabric,
        .generation = generation->number,
        .context = number,
        .topology = &generation->topology,
        .rank = generation->rank,
        .deadline_ns = muster_clock_after_ms(session->settings.call_timeout_ms),
    };
    int64_t start_ns = muster_clock_ns();
    TRY(muster_measure(&options, &figures->model, ret_suspect));
    figures->hosts = generation->hosts;
    figures->shape = generation->shape;
    figures->levels = muster_measure_levels(&generation->topology);
    figures->tuned.count = 0;
    refuse_absurd(session, figures);
    if (generation->rank == 0) {
        muster_log(MUSTER_LOG_INFO, "links measured in %.1f ms",
                   (double)(muster_clock_ns() - start_ns) / 1e6);
        session->generation.keeps = keep(session, figures);
    }
    return MUSTER_OK;
}

/* Members of one host come to memory that they share; the others go without. */
static muster_status share_memory(struct muster_session *session, uint32_t *ret_suspect)
{
    static const muster_scope scopes[] = {MUSTER_GLOBAL, MUSTER_LOCAL};
    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++) {
        int64_t deadline_ns = muster_clock_after_ms(session->settings.call_timeout_ms);
        TRY(muster_context_share_memory(session->generation.contexts[scopes[i]], deadline_ns,
                                        ret_suspect));
    }
    return MUSTER_OK;
}

static muster_status agree(struct muster_session *session, bool in_haste, uint32_t *ret_suspect)
{
    struct muster_generation *generation = &session->generation;
    uint32_t number = generation->contexts_made;
    generation->contexts_made += 1 + MUSTER_MEASURE_CONTEXTS;
    generation->tune_later = false;
    generation->tunes = false;
    generation->keeps = true;
    if (generation->topology.ranks == 1) {
        return MUSTER_OK; /* nobody to agree with, no links */
    }
    struct notice notice;
    memset(&notice, 0, sizeof notice); /* its padding travels, too */
    if (generation->rank == 0) {
        decide(session, in_haste, &notice);
    }
    TRY(hear(session, number, &notice, ret_suspect));
    refuse_absurd(session, &notice.figures);
    if (notice.measure != 0) {
        TRY(measure(session, number + 1, &notice.figures, ret_suspect));
    }
    if (!suit(&notice.figures, generation)) {
        notice.figures.tuned.count = 0; /* it was found out elsewhere */
    }
    session->figures = notice.figures;
    generation->tunes = notice.tune != 0;
    generation->tune_later = notice.later != 0;
    return MUSTER_OK;
}

/* Local and cross groups differ from member to member: each begins anew. */
static void give(struct muster_session *session, muster_scope scope)
{
    static const struct muster_tuned_list nothing;
    struct muster_generation *generation = &session->generation;
    struct muster_context *context = generation->contexts[scope];
    muster_context_set_model(context, &session->figures.model);
    if (generation->tunes) {
        muster_context_tune(context, scope == MUSTER_GLOBAL ? &session->figures.tuned : &nothing);
    }
}

void muster_session_note_tuned(struct muster_session *session, struct muster_context *global)
{
    const struct muster_generation *generation = &session->generation;
    if (global != NULL && generation->tunes && suit(&session->figures, generation)) {
        muster_context_tuned(global, &session->figures.tuned);
    }
}

/* If there is anything new. */
static void keep_tuned(struct muster_session *session)
{
    struct muster_generation *generation = &session->generation;
    uint32_t before = session->figures.tuned.count;
    muster_session_note_tuned(session, generation->contexts[MUSTER_GLOBAL]);
    if (generation->keeps && session->figures.tuned.count > before) {
        generation->keeps = keep(session, &session->figures);
    }
}

muster_status muster_session_tune(struct muster_session *session)
{
    uint32_t suspect = UINT32_MAX;
    struct muster_generation *generation = &session->generation;
    bool in_haste = session->tuned && !atomic_load(&session->planned);
    muster_status status = agree(session, in_haste, &suspect);
    if (status == MUSTER_OK && generation->topology.ranks > 1) {
        status = share_memory(session, &suspect);
    }
    session->tuned = true;
    atomic_store(&session->planned, false);
    if (status == MUSTER_OK) {
        for (int scope = 0; scope < MUSTER_SCOPE_COUNT; scope++) {
            give(session, (muster_scope)scope);
        }
        return MUSTER_OK;
    }
    if (status != MUSTER_REJOIN) {
        return status;
    }
    char text[MUSTER_ERROR_MAX];
    (void)snprintf(text, sizeof text, "%s", muster_last_error());
    status = muster_session_settle(session, generation->number, MUSTER_REJOIN, suspect);
    (void)status; /* the next collective finds it again */
    AUTO_LOCK(&session->mutex);
    muster_session_revoke_locked(session, text);
    return MUSTER_OK;
}

/* Between the same calls of the global scope on all members, as the commit is one of them; what
 * other threads do meanwhile in other scopes has no order that all share, so those keep their
 * figures until the next generation. */
muster_status muster_session_tune_late(struct muster_session *session)
{
    uint32_t suspect = UINT32_MAX;
    TRY(muster_session_enter(session));
    struct muster_generation *generation = &session->generation;
    uint64_t number = generation->number;
    muster_status status = MUSTER_OK;
    if (generation->tune_later) {
        status = agree(session, false, &suspect);
        if (status == MUSTER_OK) {
            give(session, MUSTER_GLOBAL);
        }
    } else if (generation->rank == 0) {
        keep_tuned(session);
    }
    muster_session_exit(session);
    return muster_session_settle(session, number, status, suspect);
}
