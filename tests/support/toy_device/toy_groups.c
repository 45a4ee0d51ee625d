/*
 * Groups of the toy device: members are threads of one process, which find each other by an
 * identifier. The last member that comes to a step performs it for all of them, under one lock. It
 * shows what a device with groups has to do itself, by a way that has nothing in common with the
 * host's.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/reduce/reduce.h"
#include "tests/support/toy_device/toy_device.h"
#include "tests/support/toy_device/toy_parts.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/status.h"
#include "worker/base/thread.h"

enum { MEMBERS_MAX = 8, PARTS = 1 + MUSTER_GROUP_CHANNELS, CHECK_MS = 1 };

/* What a member has last come to, of even and of odd operations. */
struct record {
    uint64_t sequence;
    struct muster_call call;
    const struct muster_launch *launch; /* NULL: the operation is only announced */
};

struct member {
    struct record records[2];
    uint64_t come;      /* the last operation that it has come to */
    uint64_t withdrawn; /* takes part in none from this one on; 0: it does */
    uint64_t left;      /* the last call that it has left */
    bool gone;
};

/* What the members share: the group and its channels. */
struct part {
    struct member members[MEMBERS_MAX];
    uint64_t done; /* the last step that was performed, or refused with this status */
    muster_status status;
    char text[256];
};

struct shared {
    uint64_t id;
    uint32_t ranks, users;
    struct part parts[PARTS];
    struct shared *next;
};

/* This rank's part of a group, or of a channel. */
struct toy_group {
    struct shared *shared;
    struct part *part;
    struct muster_group_options options;
    bool aborted;
    struct muster_group_launch step; /* of the polled step */
    bool announces;
    uint32_t awaited;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards all groups */
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct shared *all;
static uint64_t last_id;
static atomic_ullong performed;

static void init_condition(void)
{
    muster_condition_init(&changed);
}

uint64_t toy_groups_performed(void)
{
    return atomic_load(&performed);
}

/* Opening -------------------------------------------------------------------------------------- */

static muster_status invite(const struct muster_group_options *options,
                            struct muster_group_invitation *ret_invitation)
{
    struct shared *shared = calloc(1, sizeof *shared);
    if (shared == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    AUTO_LOCK(&mutex);
    *shared = (struct shared){.id = ++last_id, .ranks = options->ranks, .next = all};
    all = shared;
    *ret_invitation = (struct muster_group_invitation){.fd = -1};
    memcpy(ret_invitation->bytes, &shared->id, sizeof shared->id);
    return MUSTER_OK;
}

static struct toy_group *make_locked(struct shared *shared,
                                     const struct muster_group_options *options, uint32_t number)
{
    struct toy_group *group = calloc(1, sizeof *group);
    if (group != NULL) {
        group->shared = shared;
        group->part = &shared->parts[number];
        group->options = *options;
        shared->users++;
    }
    return group;
}

/* As a device does that needs all members to open a group: waits for them. */
static muster_status open_group(const struct muster_group_options *options,
                                const struct muster_group_invitation *invitation, void **ret_group)
{
    uint64_t id = 0;
    memcpy(&id, invitation->bytes, sizeof id);
    (void)pthread_once(&once, init_condition);
    AUTO_LOCK(&mutex);
    struct shared *shared = all;
    while (shared != NULL && shared->id != id) {
        shared = shared->next;
    }
    if (shared == NULL || options->ranks != shared->ranks) {
        return muster_error_set(MUSTER_INVALID, "there is no toy group %llu of %u",
                                (unsigned long long)id, options->ranks);
    }
    struct toy_group *group = make_locked(shared, options, 0);
    if (group == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    (void)pthread_cond_broadcast(&changed);
    while (shared->users < shared->ranks) {
        if (!muster_condition_wait(&changed, &mutex, options->deadline_ns)) {
            shared->users--;
            free(group);
            return muster_error_set(MUSTER_INVALID, "%u of %u members have opened toy group %llu",
                                    shared->users, shared->ranks, (unsigned long long)id);
        }
    }
    *ret_group = group;
    return MUSTER_OK;
}

static muster_status open_channel(void *group, uint32_t number, void **ret_channel)
{
    const struct toy_group *first = group;
    AUTO_LOCK(&mutex);
    struct toy_group *channel = make_locked(first->shared, &first->options, number);
    if (channel == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    *ret_channel = channel;
    return MUSTER_OK;
}

static void price(void *group, struct muster_memory_reach *ret_reach)
{
    (void)group;
    *ret_reach = (struct muster_memory_reach){.priced = true};
    for (unsigned i = 0; i < MUSTER_COLLECTIVE_END; i++) {
        ret_reach->prices.fixed_us[i] = 1;
        ret_reach->prices.GBps[i] = 10;
    }
}

static struct member *own_of(const struct toy_group *group)
{
    return &group->part->members[group->options.rank];
}

static void start(void *group, uint64_t sequence, bool parts)
{
    AUTO_LOCK(&mutex);
    struct member *own = own_of(group);
    own->come = parts ? MUSTER_PART_SEQUENCE(sequence, MUSTER_PARTS_MAX - 1) : sequence;
    own->left = sequence;
}

static void abort_group(void *group, int64_t until_ns)
{
    struct toy_group *own = group;
    (void)until_ns;
    AUTO_LOCK(&mutex);
    own->aborted = true;
    own_of(own)->gone = true;
    (void)pthread_cond_broadcast(&changed);
}

static void close_group(void *group)
{
    struct toy_group *own = group;
    if (own == NULL) {
        return;
    }
    AUTO_LOCK(&mutex);
    own_of(own)->gone = true;
    (void)pthread_cond_broadcast(&changed);
    if (--own->shared->users == 0) {
        struct shared **at = &all;
        while (*at != own->shared) {
            at = &(*at)->next;
        }
        *at = own->shared->next;
        free(own->shared);
    }
    free(own);
}

/* Performing ----------------------------------------------------------------------------------- */

static const struct muster_launch *launch_of(const struct part *part, uint32_t rank,
                                             uint64_t sequence)
{
    return part->members[rank].records[sequence % 2].launch;
}

static struct muster_place input_of(const struct muster_launch *launch)
{
    return (struct muster_place){.base = toy_reach(launch->in), .ranges = launch->in_ranges};
}

static void write_output(const struct muster_launch *launch, const char *data, size_t size)
{
    const struct muster_place to = {.base = toy_reach(launch->out), .ranges = launch->out_ranges};
    muster_place_copy(to, (struct muster_place){.base = (char *)data}, size);
}

/* The inputs of 2^level members of the order, from place `first` on, along the tree of
 * collectives/check/terms.h. */
static char *reduce(const struct toy_group *group, uint64_t sequence, uint32_t first,
                    uint32_t level, uint64_t count)
{
    const struct muster_launch *launch =
        launch_of(group->part, group->options.order[first], sequence);
    size_t size = count * muster_type_size_bytes((muster_type)launch->call.type);
    if (level == 0) {
        char *leaf = malloc(size + 1);
        muster_place_copy((struct muster_place){.base = leaf}, input_of(launch), size);
        return leaf;
    }
    char *left = reduce(group, sequence, first, level - 1, count);
    uint32_t second = first + (UINT32_C(1) << (level - 1));
    if (second < group->shared->ranks) {
        AUTO_FREE char *right = reduce(group, sequence, second, level - 1, count);
        muster_reduction_combine(&launch->reduction, left, left, right, count);
    }
    return left;
}

/* All inputs one behind the other. */
static char *gather(const struct toy_group *group, uint64_t sequence, size_t element)
{
    const struct muster_shape shape = launch_of(group->part, 0, sequence)->shape;
    char *whole = malloc(muster_shape_output_count(&shape) * element + 1);
    for (uint32_t rank = 0; rank < group->shared->ranks; rank++) {
        const struct muster_span block = muster_shape_output_block(&shape, rank);
        muster_place_copy((struct muster_place){.base = whole + block.offset * element},
                          input_of(launch_of(group->part, rank, sequence)), block.count * element);
    }
    return whole;
}

/* What the root, or everybody, gets; a rank of a reduce_scatter gets its block of it. */
static char *result_of(const struct toy_group *group, uint64_t sequence,
                       const struct muster_shape *shape, size_t element)
{
    uint32_t top = 0;
    while (UINT32_C(1) << top < group->shared->ranks) {
        top++;
    }
    if (shape->collective == MUSTER_BROADCAST) {
        char *data = malloc(shape->count * element + 1);
        muster_place_copy((struct muster_place){.base = data},
                          input_of(launch_of(group->part, shape->root, sequence)),
                          shape->count * element);
        return data;
    }
    return muster_collective_reduces(shape->collective)
               ? reduce(group, sequence, 0, top, muster_shape_input_count(shape))
               : gather(group, sequence, element);
}

static void perform(const struct toy_group *group, uint64_t sequence)
{
    const struct muster_launch *first = launch_of(group->part, 0, sequence);
    const struct muster_shape shape = first->shape;
    size_t element = muster_type_size_bytes((muster_type)first->call.type);
    if (shape.collective == MUSTER_BARRIER) {
        return;
    }
    AUTO_FREE char *result = result_of(group, sequence, &shape, element);
    for (uint32_t rank = 0; rank < group->shared->ranks; rank++) {
        const struct muster_launch *launch = launch_of(group->part, rank, sequence);
        uint64_t from = shape.collective == MUSTER_REDUCE_SCATTER
                            ? muster_shape_input_block(&shape, rank).offset
                            : 0;
        if (shape.collective != MUSTER_REDUCE || rank == shape.root) {
            write_output(launch, result + from * element, launch->sizes.out_bytes);
        }
    }
    atomic_fetch_add(&performed, 1);
}

/* Steps ---------------------------------------------------------------------------------------- */

static void come_locked(struct toy_group *group, const struct muster_launch *launch, bool announces)
{
    struct member *own = own_of(group);
    own->records[launch->sequence % 2] = (struct record){
        .sequence = launch->sequence, .call = launch->call, .launch = announces ? NULL : launch};
    own->come = launch->sequence;
    (void)pthread_cond_broadcast(&changed);
}

/* A member that has given up has taken its buffers with it. */
static bool has_come(const struct member *member, uint64_t sequence)
{
    return member->come >= sequence && (member->withdrawn == 0 || member->withdrawn > sequence);
}

/* The first member that has not come to this operation; `ranks`: all have. */
static uint32_t missing_locked(const struct toy_group *group, uint64_t sequence)
{
    uint32_t rank = 0;
    while (rank < group->shared->ranks && has_come(&group->part->members[rank], sequence)) {
        rank++;
    }
    return rank;
}

static void finish_locked(struct toy_group *group, uint64_t sequence, muster_status status)
{
    group->part->done = sequence;
    group->part->status = status;
    (void)snprintf(group->part->text, sizeof group->part->text, "%s",
                   status == MUSTER_OK ? "" : muster_last_error());
    (void)pthread_cond_broadcast(&changed);
}

/* All have come: performs the step, or finds that they call differently. */
static void meet_locked(struct toy_group *group, uint64_t sequence)
{
    const struct muster_call *here = &own_of(group)->records[sequence % 2].call;
    char text[128] = "it goes by messages there";
    for (uint32_t rank = 0; rank < group->shared->ranks; rank++) {
        const struct record *there = &group->part->members[rank].records[sequence % 2];
        if (there->sequence != sequence || there->launch == NULL ||
            !muster_call_matches(here, &there->call, text, sizeof text)) {
            finish_locked(group, sequence,
                          muster_error_set(MUSTER_INVALID, "rank %u calls differently: %s",
                                           group->options.names[rank], text));
            return;
        }
    }
    perform(group, sequence);
    finish_locked(group, sequence, MUSTER_OK);
}

/* Whether the member that is missing will not come. */
static muster_status check_locked(const struct toy_group *group, uint32_t rank, uint64_t sequence,
                                  bool part)
{
    const struct member *member = &group->part->members[rank];
    if (group->aborted) {
        return muster_error_set(MUSTER_REJOIN, "the group was aborted");
    }
    if (member->gone || (member->withdrawn != 0 && member->withdrawn <= sequence)) {
        return muster_error_set(MUSTER_REJOIN, "rank %u has left the group",
                                group->options.names[rank]);
    }
    if (part && member->left >= sequence / MUSTER_PARTS_MAX) {
        return muster_error_set(MUSTER_INVALID, "rank %u calls differently: it has ended the call",
                                group->options.names[rank]);
    }
    return MUSTER_OK;
}

/* MUSTER_RETRY: it is not done. */
static muster_status try_locked(struct toy_group *group, const struct muster_launch *launch,
                                bool announces, bool part)
{
    uint64_t sequence = launch->sequence;
    uint32_t missing = missing_locked(group, announces ? sequence - 1 : sequence);
    group->awaited = missing;
    if (group->part->done < sequence && missing < group->shared->ranks) {
        TRY(check_locked(group, missing, sequence, part));
        return MUSTER_RETRY;
    }
    if (announces) {
        come_locked(group, launch, true);
        return MUSTER_OK;
    }
    if (group->part->done < sequence) {
        meet_locked(group, sequence);
    }
    return group->part->status == MUSTER_OK
               ? MUSTER_OK
               : muster_error_set(group->part->status, "%s", group->part->text);
}

static muster_status end_locked(struct toy_group *group, muster_status status, uint64_t sequence,
                                uint32_t *ret_suspect)
{
    struct member *own = own_of(group);
    if (status == MUSTER_RETRY) {
        *ret_suspect = group->options.names[group->awaited % group->shared->ranks];
        status = muster_error_set(MUSTER_RETRY, "the deadline passed while it waited for rank %u",
                                  *ret_suspect);
    }
    if (status != MUSTER_OK && status != MUSTER_INVALID &&
        (own->withdrawn == 0 || sequence < own->withdrawn)) {
        own->withdrawn = sequence;
        (void)pthread_cond_broadcast(&changed);
    }
    return status;
}

static muster_status block(struct toy_group *group, const struct muster_group_launch *step,
                           bool announces, uint32_t *ret_suspect)
{
    const struct muster_launch *launch = step->launch;
    AUTO_LOCK(&mutex);
    if (!announces) {
        come_locked(group, launch, false);
    }
    muster_status status = MUSTER_RETRY;
    while ((status = try_locked(group, launch, announces, step->part)) == MUSTER_RETRY &&
           muster_clock_ns() < launch->deadline_ns) {
        (void)muster_condition_wait(&changed, &mutex, muster_clock_after_ms(CHECK_MS));
        muster_mutex_unlock(&mutex);
        muster_status checked = step->check(step->user, ret_suspect);
        muster_mutex_lock(&mutex);
        if (checked != MUSTER_OK) {
            status = group->part->done >= launch->sequence ? MUSTER_RETRY : checked;
            if (status != MUSTER_RETRY) {
                break;
            }
        }
    }
    return end_locked(group, status, launch->sequence, ret_suspect);
}

static muster_status run(void *group, const struct muster_group_launch *step, uint32_t *ret_suspect)
{
    return block(group, step, false, ret_suspect);
}

static muster_status announce(void *group, const struct muster_group_launch *step,
                              uint32_t *ret_suspect)
{
    return block(group, step, true, ret_suspect);
}

static void begin(void *group, const struct muster_group_launch *step, bool announces)
{
    struct toy_group *own = group;
    AUTO_LOCK(&mutex);
    own->step = *step;
    own->announces = announces;
    if (!announces) {
        come_locked(own, step->launch, false);
    }
}

static muster_status poll_step(void *group, int64_t spin_ns, bool *ret_advanced)
{
    struct toy_group *own = group;
    (void)spin_ns;
    AUTO_LOCK(&mutex);
    muster_status status = try_locked(own, own->step.launch, own->announces, own->step.part);
    *ret_advanced = status != MUSTER_RETRY;
    return status;
}

static muster_status check_step(void *group)
{
    (void)group; /* each poll has checked */
    return MUSTER_OK;
}

static muster_status end_step(void *group, muster_status status, uint32_t *ret_suspect)
{
    struct toy_group *own = group;
    AUTO_LOCK(&mutex);
    return end_locked(own, status, own->step.launch->sequence, ret_suspect);
}

static void withdraw(void *group, uint64_t sequence)
{
    AUTO_LOCK(&mutex);
    struct member *own = own_of(group);
    if (own->withdrawn == 0 || sequence < own->withdrawn) {
        own->withdrawn = sequence;
    }
    (void)pthread_cond_broadcast(&changed);
}

static void leave(void *group, uint64_t call)
{
    AUTO_LOCK(&mutex);
    own_of(group)->left = call;
    (void)pthread_cond_broadcast(&changed);
}

const struct muster_group_ops toy_group_ops = {.members_max = MEMBERS_MAX,
                                               .priced = true,
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
                                               .withdraw = withdraw,
                                               .leave = leave};
