/* The steps of one rank: which comes next, and what follows from its result. */
#include "worker/engine/agree/agreement_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/cleanup.h"

/* Bits of the first word of a ROUND; set by each rank for which they hold. */
enum { NOTHING_TO_DESCRIBE = 1 };

struct muster_agreement_options muster_agreement_defaults(uint32_t rank, uint32_t ranks)
{
    return (struct muster_agreement_options){
        .rank = rank,
        .ranks = ranks,
        .names_max = 16384,
        .learn_after = 2,
        .limit_bytes = UINT64_C(32) << 20,
        .burst_bytes = UINT64_C(128) << 20,
        .blob_bytes = UINT64_C(1) << 20,
        .retry_least_ns = INT64_C(100) * 1000,
        .retry_most_ns = INT64_C(5) * 1000 * 1000,
        .grace_ns = INT64_C(2) * 1000 * 1000,
        .late_ns = INT64_C(1000) * 1000 * 1000,
    };
}

muster_status muster_agreement_create(const struct muster_agreement_options *options,
                                      struct muster_agreement **ret_agreement)
{
    struct muster_agreement *agreement = calloc(1, sizeof *agreement);
    if (agreement == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the agreement of an engine");
    }
    agreement->options = *options;
    agreement->learner.step = 2;
    agreement->retry_after_ns = options->retry_least_ns;
    agreement->patience_ns = options->grace_ns;
    agreement->words = calloc(1, sizeof *agreement->words);
    TAILQ_INIT(&agreement->to_describe);
    if (agreement->words == NULL) {
        free(agreement);
        return muster_error_set(MUSTER_FATAL, "no memory for the agreement of an engine");
    }
    *ret_agreement = agreement;
    return MUSTER_OK;
}

void muster_agreement_destroy(struct muster_agreement *agreement)
{
    struct muster_agree_tensor *tensor = NULL;
    struct muster_agree_tensor *next = NULL;
    if (agreement == NULL) {
        return;
    }
    HASH_ITER(by_name, agreement->names, tensor, next)
    {
        muster_agreement_forget_tensor(agreement, tensor);
    }
    for (size_t i = 0; i < agreement->ended_count; i++) {
        free(agreement->ended[i].text);
    }
    free(agreement->ended);
    free(agreement->ended_text);
    muster_fusion_plan_finish(&agreement->queue);
    muster_agreed_order_finish(&agreement->order);
    free(agreement->learner.sequence);
    free(agreement->numbered);
    free((void *)agreement->descriptions);
    free(agreement->common);
    free(agreement->ready);
    free(agreement->words);
    free(agreement->blob);
    free(agreement);
}

/* Submissions ---------------------------------------------------------------------------------- */

muster_status muster_agreement_submit(struct muster_agreement *agreement, const char *name,
                                      const struct muster_description *description, uint64_t token,
                                      int64_t now_ns)
{
    struct muster_agree_tensor *tensor = muster_agreement_name_tensor(agreement, name);
    if (tensor == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for tensor %s", name);
    }
    if (tensor->pending) {
        return muster_error_set(MUSTER_INVALID, "tensor %s is in flight already", name);
    }
    tensor->pending = true;
    tensor->token = token;
    tensor->own = *description;
    agreement->pending++;
    agreement->submitted_ns = now_ns;
    agreement->fresh = true;
    muster_agreement_place(agreement, tensor);
    agreement->uncovered_fresh += !tensor->covered;
    return MUSTER_OK;
}

void muster_agreement_withdraw(struct muster_agreement *agreement, const char *name)
{
    struct muster_agree_tensor *tensor = muster_agreement_name_tensor(agreement, name);
    if (tensor != NULL) {
        muster_agreement_release(agreement, tensor);
    }
}

/* The next step -------------------------------------------------------------------------------- */

/* When this rank gives up the agreed order, if nothing is submitted. */
static int64_t deviation_time(const struct muster_agreement *agreement)
{
    const struct muster_agreement_options *options = &agreement->options;
    int64_t when = INT64_MAX;
    if (agreement->pending == 0) {
        return when;
    }
    if (agreement->covered > 0) {
        when = agreement->submitted_ns + options->late_ns;
    }
    if (agreement->pending > agreement->covered) {
        int64_t other = agreement->retry_ns;
        if (agreement->uncovered_fresh > 0) {
            other = agreement->covered == 0 ? 0 : agreement->submitted_ns + options->grace_ns;
        }
        when = other < when ? other : when;
    }
    return when;
}

/* Of a ROUND, while there is no active order. */
static int64_t round_time(const struct muster_agreement *agreement)
{
    if (agreement->forced) {
        return 0;
    }
    if (agreement->pending == 0) {
        return INT64_MAX;
    }
    return agreement->fresh ? 0 : agreement->retry_ns;
}

int64_t muster_agreement_due_ns(const struct muster_agreement *agreement)
{
    const struct muster_agreed_order *order = &agreement->order;
    if (agreement->queue_next < agreement->queue.operations || agreement->describing) {
        return 0;
    }
    if (!order->active) {
        return round_time(agreement);
    }
    return order->missing[order->position] == 0 ? 0 : deviation_time(agreement);
}

static void begin_round(struct muster_agreement *agreement, struct muster_agreement_step *ret_step)
{
    size_t words = (agreement->number_count + 63) / 64;
    agreement->words[0] = TAILQ_EMPTY(&agreement->to_describe) ? NOTHING_TO_DESCRIBE : 0;
    if (words > 0) {
        memcpy(agreement->words + 1, agreement->ready, words * sizeof *agreement->words);
    }
    muster_agreement_hide_groups(agreement, agreement->words + 1);
    agreement->fresh = false;
    agreement->forced = false;
    agreement->uncovered_fresh = 0;
    agreement->counts.rounds++;
    ret_step->action = MUSTER_AGREEMENT_ROUND;
    ret_step->words = agreement->words;
    ret_step->word_count = words + 1;
    ret_step->ordered = agreement->order.active;
}

static void begin_run(const struct muster_fusion_plan *plan, uint32_t operation,
                      struct muster_agreement_step *ret_step)
{
    ret_step->action = MUSTER_AGREEMENT_RUN;
    ret_step->tensors = plan->tensors + plan->starts[operation];
    ret_step->tensor_count = plan->starts[operation + 1] - plan->starts[operation];
    ret_step->last = operation + 1 == plan->operations;
}

void muster_agreement_next(struct muster_agreement *agreement, int64_t now_ns,
                           struct muster_agreement_step *ret_step)
{
    struct muster_agreed_order *order = &agreement->order;
    *ret_step = (struct muster_agreement_step){.until_ns = muster_agreement_due_ns(agreement)};
    if (now_ns < ret_step->until_ns) {
        return;
    }
    if (agreement->queue_next < agreement->queue.operations) {
        begin_run(&agreement->queue, agreement->queue_next, ret_step);
    } else if (agreement->describing) {
        ret_step->action = MUSTER_AGREEMENT_DESCRIBE;
        ret_step->first_rank = (uint32_t)(agreement->counts.describes % agreement->options.ranks);
        agreement->counts.describes++;
    } else if (order->active && order->missing[order->position] == 0) {
        begin_run(&order->plan, order->position, ret_step);
        ret_step->ordered = true;
    } else {
        begin_round(agreement, ret_step);
    }
    agreement->begun = ret_step->action;
}

/* Results -------------------------------------------------------------------------------------- */

/* Higher priorities first, then in the order of the numbers. Few tensors have a priority at all, so
 * that insertion is fast enough. */
static void sort_common(const struct muster_agreement *agreement, uint32_t *numbers, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint32_t number = numbers[i];
        int32_t priority = agreement->numbered[number]->described.priority;
        uint32_t at = i;
        while (at > 0 && agreement->numbered[numbers[at - 1]]->described.priority < priority) {
            numbers[at] = numbers[at - 1];
            at--;
        }
        numbers[at] = number;
    }
}

/* A tensor of a group has ended: so do the others, which are all ready everywhere. */
static muster_status end_group(struct muster_agreement *agreement, uint64_t group, const char *name)
{
    char text[MUSTER_ERROR_MAX];
    (void)snprintf(text, sizeof text, "tensor %s, of the same group, has failed", name);
    for (uint32_t i = 0; i < agreement->number_count; i++) {
        struct muster_agree_tensor *tensor = agreement->numbered[i];
        if (tensor != NULL && tensor->pending && tensor->own.group == group) {
            TRY(muster_agreement_end_tensor(agreement, tensor, text));
        }
    }
    return MUSTER_OK;
}

/* Whether a tensor that has failed has ended the group of this one. */
static bool is_of_failed_group(const struct muster_agreement *agreement, uint64_t group,
                               const uint32_t *failed, uint32_t failed_count)
{
    for (uint32_t i = 0; i < failed_count && group != 0; i++) {
        const struct muster_agree_tensor *tensor = agreement->numbered[failed[i]];
        if (tensor->described.group == group) {
            return true;
        }
    }
    return false;
}

/* The tensors of common[] whose descriptions agree are moved to its front; *ret_count: how many
 * these are. The others have ended. */
static muster_status settle_common(struct muster_agreement *agreement, uint32_t count,
                                   uint32_t *ret_count)
{
    uint32_t *common = agreement->common;
    AUTO_FREE uint32_t *failed = calloc((size_t)count + 1, sizeof *failed);
    uint32_t failed_count = 0;
    uint32_t kept = 0;
    if (failed == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u tensors", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct muster_agree_tensor *tensor = agreement->numbered[common[i]];
        bool agreed = false;
        TRY(muster_agreement_settle(agreement, tensor, &agreed));
        if (agreed) {
            common[kept++] = common[i];
            continue;
        }
        failed[failed_count++] = common[i];
    }
    for (uint32_t i = 0; i < failed_count; i++) {
        const struct muster_agree_tensor *tensor = agreement->numbered[failed[i]];
        if (tensor->described.group != 0) {
            TRY(end_group(agreement, tensor->described.group, tensor->name));
        }
    }
    count = kept;
    kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t group = agreement->numbered[common[i]]->described.group;
        if (!is_of_failed_group(agreement, group, failed, failed_count)) {
            common[kept++] = common[i];
        }
    }
    *ret_count = kept;
    return MUSTER_OK;
}

/* Plans what is ready everywhere. */
static muster_status agree(struct muster_agreement *agreement, uint32_t count)
{
    TRY(settle_common(agreement, count, &count));
    sort_common(agreement, agreement->common, count);
    for (uint32_t i = 0; i < count; i++) {
        agreement->descriptions[i] = &agreement->numbered[agreement->common[i]]->described;
    }
    TRY(muster_fusion_plan_make(&agreement->queue, agreement->common, agreement->descriptions,
                                count, agreement->options.burst_bytes));
    agreement->queue_next = 0;
    for (uint32_t i = 0; i < agreement->queue.count; i++) {
        TRY(muster_agreement_note(agreement, agreement->numbered[agreement->queue.tensors[i]]));
    }
    return MUSTER_OK;
}

static uint32_t list_common(struct muster_agreement *agreement)
{
    uint32_t count = 0;
    for (uint32_t word = 0; word * 64 < agreement->number_count; word++) {
        uint64_t bits = agreement->words[1 + word];
        while (bits != 0) {
            agreement->common[count++] = word * 64 + (uint32_t)__builtin_ctzll(bits);
            bits &= bits - 1;
        }
    }
    return count;
}

static void retry_later(struct muster_agreement *agreement, bool progress, int64_t now_ns)
{
    const struct muster_agreement_options *options = &agreement->options;
    if (progress) {
        agreement->retry_ns = now_ns;
        agreement->retry_after_ns = options->retry_least_ns;
        return;
    }
    agreement->retry_ns = now_ns + agreement->retry_after_ns;
    agreement->retry_after_ns *= 2;
    if (agreement->retry_after_ns > options->retry_most_ns) {
        agreement->retry_after_ns = options->retry_most_ns;
    }
}

muster_status muster_agreement_round_done(struct muster_agreement *agreement, int64_t now_ns)
{
    agreement->begun = MUSTER_AGREEMENT_SLEEP;
    if (agreement->order.active) { /* all ranks have deviated */
        muster_agreement_suspend(agreement);
        agreement->counts.deviations++;
    }
    if ((agreement->words[0] & NOTHING_TO_DESCRIBE) == 0) {
        agreement->describing = true;
    }
    uint32_t count = list_common(agreement);
    retry_later(agreement, count > 0 || agreement->describing, now_ns);
    if (count > 0) {
        TRY(agree(agreement, count));
        if (agreement->queue.operations == 0) {
            muster_agreement_try_resume(agreement, now_ns);
        }
    }
    return MUSTER_OK;
}

void muster_agreement_describe_done(struct muster_agreement *agreement)
{
    agreement->begun = MUSTER_AGREEMENT_SLEEP;
    agreement->describing = false;
    agreement->forced = true; /* what is known now may be ready */
}

static void release_all(struct muster_agreement *agreement, const uint32_t *tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        muster_agreement_release(agreement, agreement->numbered[tensors[i]]);
    }
}

void muster_agreement_run_done(struct muster_agreement *agreement, int64_t now_ns)
{
    struct muster_agreed_order *order = &agreement->order;
    struct muster_agreement_step done = {.action = MUSTER_AGREEMENT_SLEEP};
    agreement->begun = MUSTER_AGREEMENT_SLEEP;
    if (agreement->queue_next < agreement->queue.operations) {
        begin_run(&agreement->queue, agreement->queue_next++, &done);
        release_all(agreement, done.tensors, done.tensor_count);
        if (agreement->queue_next == agreement->queue.operations) {
            retry_later(agreement, true, now_ns);
            muster_agreement_try_resume(agreement, now_ns);
        }
        return;
    }
    begin_run(&order->plan, order->position, &done);
    release_all(agreement, done.tensors, done.tensor_count);
    order->position = done.last ? 0 : order->position + 1;
    order->pass += done.last;
}

bool muster_agreement_deviated(struct muster_agreement *agreement)
{
    bool in_queue = agreement->queue_next < agreement->queue.operations;
    if (in_queue || !agreement->order.active || agreement->begun == MUSTER_AGREEMENT_DESCRIBE) {
        return false;
    }
    agreement->begun = MUSTER_AGREEMENT_SLEEP;
    muster_agreement_suspend(agreement);
    agreement->forced = true;
    agreement->counts.deviations++;
    return true;
}

/* Reading -------------------------------------------------------------------------------------- */

uint64_t muster_agreement_token(const struct muster_agreement *agreement, uint32_t number)
{
    return agreement->numbered[number]->token;
}

const struct muster_description *
muster_agreement_description(const struct muster_agreement *agreement, uint32_t number)
{
    return &agreement->numbered[number]->described;
}

const char *muster_agreement_name(const struct muster_agreement *agreement, uint32_t number)
{
    return agreement->numbered[number]->name;
}

bool muster_agreement_take_ended(struct muster_agreement *agreement, uint64_t *ret_token,
                                 const char **ret_text)
{
    if (agreement->ended_count == 0) {
        return false;
    }
    struct muster_ended_tensor ended = agreement->ended[--agreement->ended_count];
    free(agreement->ended_text);
    agreement->ended_text = ended.text;
    *ret_token = ended.token;
    *ret_text = ended.text != NULL ? ended.text : "";
    return true;
}

uint64_t muster_agreement_take_pending(struct muster_agreement *agreement)
{
    struct muster_agree_tensor *tensor = NULL;
    struct muster_agree_tensor *next = NULL;
    HASH_ITER(by_name, agreement->names, tensor, next)
    {
        if (tensor->pending) {
            uint64_t token = tensor->token;
            muster_agreement_release(agreement, tensor);
            return token;
        }
    }
    return 0;
}

uint32_t muster_agreement_pending(const struct muster_agreement *agreement)
{
    return agreement->pending;
}

struct muster_agreement_counts muster_agreement_count(const struct muster_agreement *agreement)
{
    return agreement->counts;
}
