/* Opens the group of a device for a context in the background, and says which calls use it. */
#include "worker/context/device_group.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/context/context_parts.h"
#include "worker/context/quiet_exchange.h"
#include "worker/device/devices.h"

enum {
    OPEN_MS = 180 * 1000,  /* for all members to open the group */
    NUMBERS_OF_A_CALL = 8, /* operations that one call uses at most, with its agreements */
};

struct muster_device_setup {
    struct muster_context *context; /* of which the thread reads only what never changes */
    struct muster_device_memory memory;
    struct muster_quiet_exchange exchange;
    atomic_bool cancelled;
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    uint64_t begun;       /* no call of this rank has begun a later operation */
    bool holds;           /* calls wait before they begin */
    bool decided;         /* `opened` is there, or there will be no group */
    bool taken;           /* the context has it */
    uint64_t first_after; /* calls that begin after this operation use it */
    struct muster_context_memory opened;
};

/* The thread ----------------------------------------------------------------------------------- */

static bool is_cancelled(const struct muster_device_setup *setup)
{
    return atomic_load(&setup->cancelled);
}

/* A muster_group_check. */
static muster_status check_alive(void *user, uint32_t *ret_suspect)
{
    const struct muster_device_setup *setup = user;
    char reason[MUSTER_REASON_SIZE];
    if (is_cancelled(setup)) {
        return muster_error_set(MUSTER_REJOIN, "the context is being destroyed");
    }
    return muster_fabric_lost_peer(setup->context->fabric, setup->context->generation, ret_suspect,
                                   reason)
               ? muster_error_set(MUSTER_REJOIN, "%s", reason)
               : muster_fabric_check(setup->context->fabric, setup->context->generation);
}

static uint32_t name_of(const struct muster_device_setup *setup, uint64_t rank)
{
    return setup->context->ranks[rank % setup->context->topology.ranks];
}

/* The smallest values of all ranks, in place. */
static muster_status find_least(struct muster_device_setup *setup, uint64_t *values, uint64_t count)
{
    return muster_quiet_exchange_run(&setup->exchange, values, count, MUSTER_UINT64, MUSTER_MIN);
}

/* A process that cannot use its GPUs so says why, once. */
static void log_refusal(const struct muster_device_setup *setup, const char *what)
{
    static atomic_bool logged;
    bool again = atomic_exchange(&logged, true);
    muster_log(again ? MUSTER_LOG_DEBUG : MUSTER_LOG_WARN, "context=%s %s: %s",
               setup->context->name, what, muster_last_error());
}

/* Whether all ranks succeeded; where not, says which one did not. The reason is in that rank's log.
 */
static muster_status agree(struct muster_device_setup *setup, bool here, const char *what)
{
    uint64_t failed = here ? UINT64_MAX : setup->context->rank;
    if (!here && !is_cancelled(setup)) {
        log_refusal(setup, what);
    }
    TRY(find_least(setup, &failed, 1));
    return failed == UINT64_MAX ? MUSTER_OK
                                : muster_error_set(MUSTER_INVALID, "%s: rank %u could not", what,
                                                   name_of(setup, failed));
}

/* The lowest and the highest version, with a rank that has it. */
static muster_status compare_versions(struct muster_device_setup *setup, int version)
{
    const struct muster_group_ops *groups = setup->memory.device->groups;
    uint64_t mine = (uint64_t)(uint32_t)version << 32 | setup->context->rank;
    uint64_t values[] = {mine, ~mine};
    char low[64];
    char high[64];
    TRY(find_least(setup, values, 2));
    uint64_t highest = ~values[1];
    if (values[0] >> 32 == highest >> 32) {
        return MUSTER_OK;
    }
    groups->print_version((int)(values[0] >> 32), low, sizeof low);
    groups->print_version((int)(highest >> 32), high, sizeof high);
    (void)muster_error_set(MUSTER_INVALID, "rank %u has %s, rank %u has %s",
                           name_of(setup, values[0] & UINT32_MAX), low,
                           name_of(setup, highest & UINT32_MAX), high);
    muster_log(MUSTER_LOG_WARN,
               "context=%s %s; it is not used, and data in memory of GPUs goes through the host",
               setup->context->name, muster_last_error());
    return MUSTER_INVALID;
}

/* Rank 0's, for all. */
static muster_status pass_invitation(struct muster_device_setup *setup,
                                     const struct muster_group_options *options,
                                     struct muster_group_invitation *invitation)
{
    bool here = options->rank != 0 ||
                setup->memory.device->groups->invite(options, invitation) == MUSTER_OK;
    TRY(agree(setup, here, "inviting GPUs"));
    return muster_quiet_exchange_run(&setup->exchange, invitation->bytes, sizeof invitation->bytes,
                                     MUSTER_UINT8, MUSTER_MAX);
}

/* The highest prices of all ranks. */
static muster_status agree_on_prices(struct muster_device_setup *setup,
                                     struct muster_group_prices *prices)
{
    enum { KINDS = MUSTER_COLLECTIVE_END + 1 };
    double values[2 * KINDS];
    for (unsigned i = 0; i < KINDS; i++) {
        bool last = i + 1 == KINDS;
        values[i] = last ? prices->staging_us : prices->fixed_us[i];
        values[KINDS + i] = -(last ? prices->staging_GBps : prices->GBps[i]);
    }
    TRY(muster_quiet_exchange_run(&setup->exchange, values, (uint64_t)2 * KINDS, MUSTER_FLOAT64,
                                  MUSTER_MAX));
    for (unsigned i = 0; i + 1 < KINDS; i++) {
        prices->fixed_us[i] = values[i];
        prices->GBps[i] = -values[KINDS + i];
    }
    prices->staging_us = values[KINDS - 1];
    prices->staging_GBps = -values[2 * KINDS - 1];
    return MUSTER_OK;
}

static muster_status open_group(struct muster_device_setup *setup)
{
    struct muster_context *context = setup->context;
    const struct muster_group_ops *groups = setup->memory.device->groups;
    struct muster_context_memory *opened = &setup->opened;
    struct muster_group_invitation invitation = {.fd = -1};
    struct muster_group_options options = {.rank = context->rank,
                                           .ranks = context->topology.ranks,
                                           .names = context->ranks,
                                           .order = context->reduction_order,
                                           .memory = &setup->memory,
                                           .check = check_alive,
                                           .user = setup};
    TRY(pass_invitation(setup, &options, &invitation));
    options.deadline_ns = muster_clock_after_ms(OPEN_MS);
    opened->group.device = setup->memory.device;
    bool here = groups->open(&options, &invitation, &opened->memory) == MUSTER_OK;
    TRY(agree(setup, here, "opening a group of GPUs"));
    groups->price(opened->memory, &opened->reach);
    here = opened->reach.prices.staging_us > 0;
    TRY(agree(setup, here, "measuring a group of GPUs"));
    TRY(agree_on_prices(setup, &opened->reach.prices));
    groups->start(opened->memory, 0, true);
    return MUSTER_OK;
}

/* Calls that have begun on any rank, or begin meanwhile, do not use the group. */
static muster_status agree_on_first(struct muster_device_setup *setup)
{
    muster_mutex_lock(&setup->mutex);
    setup->holds = true;
    uint64_t first_after = setup->begun;
    muster_mutex_unlock(&setup->mutex);
    TRY(muster_quiet_exchange_run(&setup->exchange, &first_after, 1, MUSTER_UINT64, MUSTER_MAX));
    muster_mutex_lock(&setup->mutex);
    setup->first_after = first_after;
    muster_mutex_unlock(&setup->mutex);
    return MUSTER_OK;
}

static muster_status set_up(struct muster_device_setup *setup)
{
    int version = 0;
    bool here = setup->memory.device->groups->offer(&setup->memory, &version) == MUSTER_OK;
    TRY(agree(setup, here, "group steps on GPUs"));
    TRY(compare_versions(setup, version));
    TRY(open_group(setup));
    return agree_on_first(setup);
}

static void *run_setup(void *user)
{
    struct muster_device_setup *setup = user;
    const struct muster_group_prices *prices = &setup->opened.reach.prices;
    muster_status status = set_up(setup);
    if (status != MUSTER_OK) {
        muster_log(MUSTER_LOG_INFO, "context=%s without group steps on GPUs: %s",
                   setup->context->name, muster_last_error());
        muster_context_memory_finish(&setup->opened, true);
    } else {
        muster_log(MUSTER_LOG_INFO,
                   "context=%s group steps on GPUs after operation #%" PRIu64
                   ": an allreduce takes %.0f us and its bytes at %.1f GB/s; through the host %.0f "
                   "us more and %.1f GB/s",
                   setup->context->name, setup->first_after, prices->fixed_us[MUSTER_ALLREDUCE],
                   prices->GBps[MUSTER_ALLREDUCE], prices->staging_us, prices->staging_GBps);
    }
    muster_mutex_lock(&setup->mutex);
    setup->holds = false;
    setup->decided = true;
    (void)pthread_cond_broadcast(&setup->changed);
    muster_mutex_unlock(&setup->mutex);
    return NULL;
}

/* Where buffers are ---------------------------------------------------------------------------- */

/* One or two buffers, on which nothing is to be done before the step. */
static bool is_plain(const struct muster_request *request)
{
    return request->stream == 0 && request->buffer_count == 0 && !request->no_buffers &&
           request->ranges == NULL && request->in_ranges == NULL && request->out_ranges == NULL &&
           !request->counts_alone && !muster_compresses(request->compression) &&
           muster_request_prescale(request) == 1;
}

/* Adds where a buffer is to what is known; NULL is nowhere. */
static void look(const struct muster_context *context, const void *buffer, bool *device, bool *host)
{
    const struct muster_operation_group *group = &context->device_group.group;
    struct muster_device_memory memory;
    if (buffer == NULL) {
        return;
    }
    bool found = muster_device_find(buffer, &memory) && memory.device == group->device &&
                 group->device->groups->holds(group->state, &memory);
    *(found ? device : host) = true;
}

enum muster_call_memory muster_device_group_memory(const struct muster_context *context,
                                                   const struct muster_request *request)
{
    bool device = false;
    bool host = false;
    if (context->device_group.memory == NULL || !is_plain(request)) {
        return MUSTER_CALL_ANYWHERE;
    }
    const struct muster_group_ops *groups = context->device_group.group.device->groups;
    if (!groups->performs(request->collective, request->type, request->op)) {
        return MUSTER_CALL_ANYWHERE;
    }
    look(context, request->collective == MUSTER_BROADCAST ? NULL : request->in, &device, &host);
    look(context, request->out, &device, &host);
    return !device ? MUSTER_CALL_ANYWHERE : host ? MUSTER_CALL_MIXED : MUSTER_CALL_ON_DEVICE;
}

/* Calls ---------------------------------------------------------------------------------------- */

static void take_locked(struct muster_context *context, struct muster_device_setup *setup)
{
    setup->taken = true;
    context->device_group = setup->opened;
    setup->opened = (struct muster_context_memory){.memory = NULL};
    context->device_group.group =
        (struct muster_operation_group){.device = setup->memory.device,
                                        .state = context->device_group.memory,
                                        .fabric = context->fabric,
                                        .ranks = context->ranks};
    context->repeated.cached = NULL;
    muster_operation_cache_clear(&context->cache); /* chosen without it */
    muster_choices_clear(&context->choices);
}

static bool can_have(const struct muster_context *context, const struct muster_request *request,
                     const struct muster_group_ops *groups)
{
    uint32_t ranks = context->topology.ranks;
    return groups->offer != NULL && ranks > 1 && ranks <= groups->members_max &&
           context->order.callers == NULL &&
           groups->performs(request->collective, request->type, request->op);
}

static void make_setup(struct muster_context *context, const struct muster_request *request,
                       const struct muster_device_memory *memory)
{
    if (!can_have(context, request, memory->device->groups)) {
        return;
    }
    struct muster_device_setup *setup = calloc(1, sizeof *setup);
    if (setup == NULL) {
        return; /* the call goes on without */
    }
    setup->context = context;
    setup->memory = *memory;
    setup->exchange =
        (struct muster_quiet_exchange){.context = context, .cancelled = &setup->cancelled};
    setup->begun = context->sequence + NUMBERS_OF_A_CALL;
    muster_mutex_init(&setup->mutex);
    muster_condition_init(&setup->changed);
    setup->started = true;
    if (muster_thread_start(&setup->thread, run_setup, setup) != 0) {
        setup->started = false;
        setup->decided = true;
    }
    context->device_setup = setup;
}

void muster_device_group_want(struct muster_context *context, const struct muster_request *request,
                              const struct muster_device_pair *buffers)
{
    if (context->device_setup == NULL && (buffers->out_on_device || buffers->in_on_device)) {
        make_setup(context, request,
                   buffers->out_on_device ? &buffers->out_memory : &buffers->in_memory);
    }
}

muster_status muster_device_group_enter(struct muster_context *context, int64_t deadline_ns)
{
    struct muster_device_setup *setup = context->device_setup;
    if (setup == NULL) {
        return MUSTER_OK;
    }
    AUTO_LOCK(&setup->mutex);
    while (setup->holds) {
        if (!muster_condition_wait(&setup->changed, &setup->mutex, deadline_ns)) {
            return muster_error_set(
                MUSTER_RETRY, "the deadline passed while the ranks agreed on a first call by GPUs");
        }
    }
    if (setup->decided && !setup->taken && setup->opened.memory != NULL &&
        context->sequence >= setup->first_after) {
        take_locked(context, setup);
    }
    setup->begun = context->sequence + NUMBERS_OF_A_CALL;
    return MUSTER_OK;
}

void muster_device_group_leave(struct muster_context *context)
{
    struct muster_device_setup *setup = context->device_setup;
    if (setup != NULL) {
        AUTO_LOCK(&setup->mutex);
        setup->begun = context->sequence;
    }
}

void muster_device_group_finish(struct muster_context *context, bool failed)
{
    struct muster_device_setup *setup = context->device_setup;
    if (setup == NULL) {
        return;
    }
    atomic_store(&setup->cancelled, true);
    if (setup->started) {
        (void)pthread_join(setup->thread, NULL);
    }
    muster_context_memory_finish(&setup->opened, failed);
    muster_context_memory_finish(&context->device_group, failed);
    (void)pthread_mutex_destroy(&setup->mutex);
    (void)pthread_cond_destroy(&setup->changed);
    free(setup);
    context->device_setup = NULL;
}
