/*
 * Groups of GPUs: one communicator of NCCL for the ranks of a context. All its calls are
 * non-blocking ones, so that every wait has a limit and ends when a rank is lost: NCCL itself does
 * not notice that a process of the same host has died.
 *
 * A step that has begun cannot be taken back, so a rank whose step fails ends its communicator
 * before it returns: then nothing writes to the caller's buffers any more.
 */
#include "worker/device/cuda/nccl_groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/status.h"
#include "worker/base/thread.h"
#include "worker/device/cuda/nccl_parts.h"
#include "worker/device/device.h"

enum {
    MEMBERS_MAX = 65536,
    FLUSH_MS = 1000,      /* of the last step, when all ranks leave */
    ABORT_MS = 2000,      /* of a step that has failed; it takes half a second */
    VERDICT_MS = 300,     /* until somebody knows which rank has died, after NCCL has failed */
    PRICE_MS = 20 * 1000, /* for all measurements */
    PAUSE_NS = 200 * 1000,
    PRICED_BYTES = 4 << 20,
    PRICED_CALLS = 2, /* the same on all ranks */
};

/* Whether there can be one --------------------------------------------------------------------- */

static muster_status offer(const struct muster_device_memory *memory, int *ret_version)
{
    const struct muster_cuda *cuda = muster_cuda_library();
    const struct muster_nccl *nccl = NULL;
    if (cuda == NULL || !cuda->has_streams) {
        return muster_error_set(MUSTER_INVALID, "NCCL is off: libcuda.so.1 is %s",
                                cuda == NULL ? "not loaded" : "too old");
    }
    if (memory->context == NULL) {
        return muster_error_set(MUSTER_INVALID, "NCCL is off: the memory has no context");
    }
    TRY(muster_nccl_check_usable());
    TRY(muster_nccl_library(&nccl));
    *ret_version = nccl->version;
    return MUSTER_OK;
}

static void print_version(int version, char *ret_text, size_t size)
{
    char text[MUSTER_NCCL_VERSION_SIZE];
    muster_nccl_print_version(version, text);
    (void)snprintf(ret_text, size, "NCCL %s", text);
}

/* What is only copied has no type for NCCL. */
static bool performs(enum muster_collective collective, muster_type type, muster_op op)
{
    int unused = 0;
    switch (collective) {
    case MUSTER_ALLREDUCE:
    case MUSTER_REDUCE_SCATTER:
    case MUSTER_REDUCE:
        return muster_nccl_type_of(type, &unused) && muster_nccl_op_of(op, &unused);
    case MUSTER_ALLGATHER:
    case MUSTER_ALLGATHERV:
    case MUSTER_BROADCAST:
    case MUSTER_BARRIER:
        return true;
    default:
        return false;
    }
}

static bool holds(void *group, const struct muster_device_memory *memory)
{
    const struct muster_nccl_group *own = group;
    return memory->context == own->context;
}

/* Opening -------------------------------------------------------------------------------------- */

static muster_status invite(const struct muster_group_options *options,
                            struct muster_group_invitation *ret_invitation)
{
    const struct muster_nccl *nccl = NULL;
    struct muster_nccl_id id;
    (void)options;
    TRY(muster_nccl_library(&nccl));
    int error = nccl->get_unique_id(&id);
    if (error != 0) {
        return muster_error_set(MUSTER_INVALID, "NCCL makes no unique id: %s: %.160s",
                                nccl->get_error_string(error), nccl->get_last_error(NULL));
    }
    memcpy(ret_invitation->bytes, &id, sizeof id);
    return MUSTER_OK;
}

/* With the GPU's context. */
static int make_streams(struct muster_nccl_group *group)
{
    const struct muster_cuda *cuda = group->cuda;
    int error = cuda->stream_create(&group->stream, MUSTER_CUDA_NON_BLOCKING);
    error = error != 0 ? error : cuda->event_create(&group->before, MUSTER_CUDA_NO_TIMING);
    error = error != 0 ? error : cuda->event_create(&group->done, MUSTER_CUDA_NO_TIMING);
    return error != 0 ? error : cuda->mem_alloc(&group->spare, MUSTER_NCCL_SPARE_BYTES);
}

static muster_status pause_opening(void *user, uint32_t *ret_suspect)
{
    const struct muster_group_options *options = user;
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    return options->check != NULL ? options->check(options->user, ret_suspect) : MUSTER_OK;
}

/* With the GPU's context: NCCL takes the current one. */
static muster_status connect(struct muster_nccl_group *group,
                             const struct muster_group_options *options,
                             const struct muster_group_invitation *invitation)
{
    struct muster_nccl_config config = muster_nccl_config_default();
    const struct muster_nccl_wait wait = {
        .deadline_ns = options->deadline_ns, .check = pause_opening, .user = (void *)options};
    struct muster_nccl_id id;
    uint32_t unused = 0;
    int error = make_streams(group);
    if (error != 0) {
        return muster_error_set(MUSTER_FATAL, "a stream of the GPU: %s",
                                muster_cuda_error_name(group->cuda, error));
    }
    config.blocking = 0;
    memcpy(&id, invitation->bytes, sizeof id);
    error = group->nccl->comm_init_rank_config(&group->comm, (int)group->ranks, id,
                                               (int)group->rank, &config);
    if (error != 0 && error != MUSTER_NCCL_IN_PROGRESS) {
        return muster_nccl_failed(group, MUSTER_INVALID, error, "opening a communicator");
    }
    muster_status status = muster_nccl_settle(group, &wait, &unused);
    return status == MUSTER_OK ? MUSTER_OK : muster_error_prefix(status, "opening a communicator");
}

/* With the GPU's context, if there is one still. */
static void destroy_parts(struct muster_nccl_group *group)
{
    const struct muster_cuda *cuda = group->cuda;
    if (group->stream != NULL) {
        (void)cuda->stream_destroy(group->stream);
        (void)(group->before != NULL ? cuda->event_destroy(group->before) : 0);
        (void)(group->done != NULL ? cuda->event_destroy(group->done) : 0);
        (void)(group->spare != 0 && !muster_nccl_is_hanging() ? cuda->mem_free(group->spare) : 0);
    }
}

/* Other ranks may still be taking what this rank has sent in the last step. */
static void flush(struct muster_nccl_group *group)
{
    const struct muster_group_options nobody = {.check = NULL};
    const struct muster_nccl_wait wait = {.deadline_ns = muster_clock_after_ms(FLUSH_MS),
                                          .check = pause_opening,
                                          .user = (void *)&nobody};
    uint32_t unused = 0;
    void *context = NULL;
    if (group->cuda->ctx_push_current(group->context) == 0) {
        (void)group->nccl->comm_finalize(group->comm);
        if (muster_nccl_settle(group, &wait, &unused) != MUSTER_OK) {
            muster_log(MUSTER_LOG_DEBUG, "closing a communicator of NCCL: %s", muster_last_error());
        }
        (void)group->cuda->ctx_pop_current(&context);
    }
}

static void close_group(void *group)
{
    struct muster_nccl_group *own = group;
    void *unused = NULL;
    if (own == NULL) {
        return;
    }
    if (own->comm != NULL && !own->failed_itself && !atomic_load(&own->aborted)) {
        flush(own);
    }
    muster_nccl_abort(own, muster_clock_after_ms(ABORT_MS));
    if (own->cuda->ctx_push_current(own->context) == 0) {
        destroy_parts(own);
        (void)own->cuda->ctx_pop_current(&unused);
    }
    free(own);
}

static muster_status open_group(const struct muster_group_options *options,
                                const struct muster_group_invitation *invitation, void **ret_group)
{
    const struct muster_nccl *nccl = NULL;
    void *unused = NULL;
    TRY(muster_nccl_library(&nccl));
    struct muster_nccl_group *group = calloc(1, sizeof *group);
    if (group == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a group of GPUs");
    }
    group->nccl = nccl;
    group->cuda = muster_cuda_library();
    group->context = options->memory->context;
    group->rank = options->rank;
    group->ranks = options->ranks;
    group->names = options->names;
    group->check = options->check;
    group->user = options->user;
    muster_status status = MUSTER_INVALID;
    int error = group->cuda->ctx_push_current(group->context);
    if (error == 0) {
        status = connect(group, options, invitation);
        (void)group->cuda->ctx_pop_current(&unused);
    } else {
        status =
            muster_error_set(MUSTER_INVALID, "rank %u's GPU: %s", options->names[options->rank],
                             muster_cuda_error_name(group->cuda, error));
    }
    if (status != MUSTER_OK) {
        close_group(group);
        return status;
    }
    *ret_group = group;
    return MUSTER_OK;
}

static muster_status open_channel(void *group, uint32_t number, void **ret_channel)
{
    (void)group;
    (void)number;
    (void)ret_channel;
    return muster_error_set(MUSTER_INVALID, "a group of GPUs has no channels");
}

/* Prices --------------------------------------------------------------------------------------- */

struct priced {
    struct muster_nccl_group *group;
    struct muster_device_memory memory;
    uint64_t address;
    struct muster_nccl_wait wait;
};

/* The shortest of some allreduces of so many bytes, in microseconds; 0: they failed. */
static double time_steps(const struct priced *priced, uint64_t size_bytes)
{
    void *at = (void *)(uintptr_t)priced->address; /* NOLINT(performance-no-int-to-ptr) */
    const struct muster_launch launch = {
        .shape = {.collective = MUSTER_ALLREDUCE,
                  .rank = priced->group->rank,
                  .ranks = priced->group->ranks,
                  .count = size_bytes / sizeof(float)},
        .sizes = {.in_count = size_bytes / sizeof(float), .out_count = size_bytes / sizeof(float)},
        .call = {.type = MUSTER_FLOAT32, .op = MUSTER_SUM},
        .in = at,
        .out = at};
    double least = 0;
    uint32_t unused = 0;
    for (int i = 0; i < PRICED_CALLS; i++) {
        int64_t start_ns = muster_clock_ns();
        if (muster_nccl_perform(priced->group, &launch, &priced->wait, &unused) != MUSTER_OK) {
            return 0;
        }
        double us = (double)(muster_clock_ns() - start_ns) / 1e3;
        least = least == 0 || us < least ? us : least;
    }
    return least;
}

/* Of a copy to the host and back. */
static double time_copies(const struct priced *priced, void *host, size_t size_bytes)
{
    void *at = (void *)(uintptr_t)priced->address; /* NOLINT(performance-no-int-to-ptr) */
    const struct muster_device *device = priced->memory.device;
    double least = 0;
    for (int i = 0; i < PRICED_CALLS; i++) {
        int64_t start_ns = muster_clock_ns();
        if (device->copy(&priced->memory, host, at, size_bytes) != MUSTER_OK ||
            device->copy(&priced->memory, at, host, size_bytes) != MUSTER_OK) {
            return 0;
        }
        double us = (double)(muster_clock_ns() - start_ns) / 1e3;
        least = least == 0 || us < least ? us : least;
    }
    return least;
}

/* Of the bytes alone; where both times are about the same, at least as if nothing were fixed. */
static double rate_GBps(size_t size_bytes, double fixed_us, double us)
{
    double bytes_us = us > 1.1 * fixed_us ? us - fixed_us : us;
    return (double)size_bytes / bytes_us / 1e3;
}

extern const struct muster_device muster_cuda_device;

/* Only an allreduce is measured. The others move half as much data at most (Thakur et al. 2005),
 * so that they take half as long for the larger buffer. */
static void measure(const struct priced *priced, struct muster_group_prices *prices)
{
    char *host = calloc(1, PRICED_BYTES);
    double fixed_us = host != NULL ? time_steps(priced, sizeof(float)) : 0;
    double us = fixed_us > 0 ? time_steps(priced, PRICED_BYTES) : 0;
    double copy_us = us > 0 ? time_copies(priced, host, sizeof(float)) : 0;
    double copies_us = copy_us > 0 ? time_copies(priced, host, PRICED_BYTES) : 0;
    free(host);
    if (copies_us <= 0) {
        return;
    }
    double rate = rate_GBps(PRICED_BYTES, fixed_us, us);
    prices->staging_us = copy_us;
    prices->staging_GBps = rate_GBps(PRICED_BYTES, copy_us, copies_us);
    for (unsigned i = 0; i < MUSTER_COLLECTIVE_END; i++) {
        if (performs((enum muster_collective)i, MUSTER_FLOAT32, MUSTER_SUM)) {
            prices->fixed_us[i] = fixed_us;
            prices->GBps[i] = i == MUSTER_ALLREDUCE ? rate : 2 * rate;
        }
    }
}

static void price(void *group, struct muster_memory_reach *ret_reach)
{
    *ret_reach = (struct muster_memory_reach){.priced = true, .spoils_input = true};
    if (group == NULL) {
        return;
    }
    struct muster_nccl_group *own = group;
    struct priced priced = {.group = own,
                            .wait = {.deadline_ns = muster_clock_after_ms(PRICE_MS),
                                     .check = own->check,
                                     .user = own->user}};
    void *unused = NULL;
    const struct muster_cuda *cuda = priced.group->cuda;
    priced.memory = (struct muster_device_memory){.device = &muster_cuda_device,
                                                  .context = priced.group->context};
    if (cuda->ctx_push_current(priced.group->context) != 0) {
        return;
    }
    bool allocated = cuda->mem_alloc(&priced.address, PRICED_BYTES) == 0;
    (void)cuda->ctx_pop_current(&unused);
    if (!allocated) {
        return;
    }
    measure(&priced, &ret_reach->prices);
    own->check = NULL;
    if (ret_reach->prices.staging_us <= 0) { /* a step may be under way, for which to free waits */
        muster_nccl_abort(own, muster_clock_after_ms(ABORT_MS));
    }
    if (muster_nccl_is_hanging()) {
        return;
    }
    if (cuda->ctx_push_current(priced.group->context) == 0) {
        (void)cuda->mem_free(priced.address);
        (void)cuda->ctx_pop_current(&unused);
    }
}

/* Steps ---------------------------------------------------------------------------------------- */

static void start(void *group, uint64_t sequence, bool parts)
{
    (void)group;
    (void)sequence;
    (void)parts;
}

static void abort_group(void *group, int64_t until_ns)
{
    struct muster_nccl_group *own = group;
    atomic_store(&own->aborted, true);
    muster_nccl_abort(own, until_ns);
}

/* NCCL has failed, most likely because a rank has died, which somebody else may know better. */
static muster_status await_verdict(const struct muster_nccl_wait *wait, uint32_t *ret_suspect)
{
    char text[MUSTER_ERROR_MAX];
    int64_t until_ns = muster_clock_after_ms(VERDICT_MS);
    (void)snprintf(text, sizeof text, "%s", muster_last_error());
    while (wait->check != NULL && muster_clock_ns() < until_ns) {
        TRY(wait->check(wait->user, ret_suspect));
    }
    muster_nccl_note_failure(text);
    return muster_error_set(MUSTER_REJOIN, "%s", text);
}

/* A step has failed here: the communicator has to go, so that nothing touches the buffers. */
static muster_status leave_comm(struct muster_nccl_group *group, muster_status status,
                                const struct muster_nccl_wait *wait, uint32_t *ret_suspect)
{
    char text[MUSTER_ERROR_MAX];
    status = group->failed_itself ? await_verdict(wait, ret_suspect) : status;
    (void)snprintf(text, sizeof text, "%s", muster_last_error());
    muster_nccl_abort(group, muster_clock_after_ms(ABORT_MS));
    return muster_error_set(status, "%s", text);
}

static muster_status run(void *group, const struct muster_group_launch *step, uint32_t *ret_suspect)
{
    const struct muster_nccl_wait wait = {
        .deadline_ns = step->launch->deadline_ns, .check = step->check, .user = step->user};
    muster_status status = muster_nccl_perform(group, step->launch, &wait, ret_suspect);
    return status == MUSTER_OK ? MUSTER_OK : leave_comm(group, status, &wait, ret_suspect);
}

/* Ranks that call differently have found out before a step begins: see whole_device.c. */
/* NOLINTBEGIN(readability-non-const-parameter): the type of the slot */
static muster_status announce(void *group, const struct muster_group_launch *step,
                              uint32_t *ret_suspect)
{
    (void)group;
    (void)step;
    (void)ret_suspect;
    return MUSTER_OK;
}
/* NOLINTEND(readability-non-const-parameter) */

/* The start of a step waits for NCCL only. */
static void begin(void *group, const struct muster_group_launch *step, bool announces)
{
    struct muster_nccl_group *own = group;
    const struct muster_nccl_wait wait = {.deadline_ns = muster_clock_after_ms(PRICE_MS)};
    uint32_t unused = 0;
    own->step = *step;
    own->announces = announces;
    own->failed = announces ? MUSTER_OK : muster_nccl_begin(own, step->launch, &wait, &unused);
}

static muster_status poll_step(void *group, int64_t spin_ns, bool *ret_advanced)
{
    struct muster_nccl_group *own = group;
    (void)spin_ns;
    *ret_advanced = false;
    if (own->announces || own->failed != MUSTER_OK) {
        return own->failed;
    }
    muster_status status = muster_nccl_poll(own);
    *ret_advanced = status != MUSTER_RETRY;
    return status;
}

static muster_status check_step(void *group)
{
    const struct muster_nccl_group *own = group;
    return atomic_load(&own->aborted) ? muster_error_set(MUSTER_REJOIN, "the group was aborted")
                                      : MUSTER_OK;
}

static muster_status end_step(void *group, muster_status status, uint32_t *ret_suspect)
{
    const struct muster_nccl_wait wait = {.check = NULL};
    return status == MUSTER_OK ? MUSTER_OK : leave_comm(group, status, &wait, ret_suspect);
}

static void note(void *group, uint64_t number)
{
    (void)group;
    (void)number;
}

const struct muster_group_ops muster_nccl_groups = {.members_max = MEMBERS_MAX,
                                                    .priced = true,
                                                    .offer = offer,
                                                    .print_version = print_version,
                                                    .performs = performs,
                                                    .holds = holds,
                                                    .invite = invite,
                                                    .open = open_group,
                                                    .open_channel = open_channel,
                                                    .price = price,
                                                    .start = start,
                                                    .abort = abort_group,
                                                    .close = close_group,
                                                    .run = run,
                                                    .announce = announce,
                                                    .begin = begin,
                                                    .poll = poll_step,
                                                    .check = check_step,
                                                    .end = end_step,
                                                    .withdraw = note,
                                                    .leave = note};
