/* The agreed order: learned from equal steps of the program, suspended, resumed and dropped. */
#include <stdlib.h>
#include <string.h>

#include "worker/engine/agree/agreement_parts.h"

enum {
    SEQUENCE_FIRST = 256,
    BURST_ROUNDS = 3, /* a step whose tensors were all ready within so many ROUNDs came at once */
    RARE_MAX = 1024,  /* tensors outside the order, one after the other, until it is dropped */
};

void muster_agreed_order_finish(struct muster_agreed_order *order)
{
    muster_fusion_plan_finish(&order->plan);
    free(order->done);
    free(order->missing);
    *order = (struct muster_agreed_order){.exists = false};
}

/* What pending tensors wait for has changed. */
static void place_pending(struct muster_agreement *agreement)
{
    for (uint32_t i = 0; i < agreement->number_count; i++) {
        if (agreement->numbered[i] != NULL) {
            muster_agreement_place(agreement, agreement->numbered[i]);
        }
    }
}

void muster_agreement_drop_order(struct muster_agreement *agreement)
{
    struct muster_agreed_order *order = &agreement->order;
    uint64_t pass = order->pass;
    for (uint32_t i = 0; i < order->plan.count; i++) {
        struct muster_agree_tensor *tensor = agreement->numbered[order->plan.tensors[i]];
        tensor->operation = MUSTER_AGREEMENT_NONE;
        tensor->covered = false;
    }
    agreement->covered = 0;
    muster_agreed_order_finish(order);
    order->pass = pass + 1;
    agreement->learner.step += 2; /* no tensor was performed in the step before the next one */
    agreement->learner.count = agreement->learner.repeated = 0;
    agreement->learner.before = agreement->learner.equal = 0;
    agreement->counts.ordered = false;
}

/* Learning ------------------------------------------------------------------------------------- */

/* The sequence of the step that has ended becomes the order. It is suspended at first: the ROUND
 * that has brought the end of the step may have brought tensors of the next one. */
static muster_status make_order(struct muster_agreement *agreement)
{
    struct muster_agreed_order *order = &agreement->order;
    const struct muster_learner *learner = &agreement->learner;
    bool burst = learner->last_round - learner->first_round < BURST_ROUNDS;
    uint64_t limit = burst ? agreement->options.burst_bytes : agreement->options.limit_bytes;
    for (uint32_t i = 0; i < learner->count; i++) {
        agreement->descriptions[i] = &agreement->numbered[learner->sequence[i]]->described;
    }
    TRY(muster_fusion_plan_make(&order->plan, learner->sequence, agreement->descriptions,
                                learner->count, limit));
    order->done = calloc(order->plan.operations, sizeof *order->done);
    order->missing = calloc(order->plan.operations, sizeof *order->missing);
    if (order->done == NULL || order->missing == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for an agreed order");
    }
    for (uint32_t b = 0; b < order->plan.operations; b++) {
        order->missing[b] = order->plan.starts[b + 1] - order->plan.starts[b];
        for (uint32_t i = order->plan.starts[b]; i < order->plan.starts[b + 1]; i++) {
            agreement->numbered[order->plan.tensors[i]]->operation = b;
        }
    }
    order->exists = true;
    order->rare = 0;
    order->pass++;
    place_pending(agreement);
    agreement->counts.orders++;
    return MUSTER_OK;
}

static void close_step(struct muster_learner *learner)
{
    learner->equal = learner->before > 0 && learner->before == learner->count &&
                             learner->repeated == learner->count
                         ? learner->equal + 1
                         : 0;
    learner->before = learner->count;
    learner->count = learner->repeated = 0;
    learner->step++;
}

static muster_status learn(struct muster_agreement *agreement, struct muster_agree_tensor *tensor)
{
    struct muster_learner *learner = &agreement->learner;
    if (tensor->last_step == learner->step) {
        close_step(learner); /* it begins the next one */
    }
    if (learner->count == learner->room) {
        uint32_t room = learner->room == 0 ? SEQUENCE_FIRST : 2 * learner->room;
        uint32_t *sequence = realloc(learner->sequence, room * sizeof *sequence);
        if (sequence == NULL) {
            return muster_error_set(MUSTER_FATAL, "no memory for a step of %u tensors", room);
        }
        learner->sequence = sequence;
        learner->room = room;
    }
    if (learner->count == 0) {
        learner->first_round = agreement->counts.rounds;
    }
    learner->last_round = agreement->counts.rounds;
    learner->repeated += tensor->last_step == learner->step - 1;
    learner->sequence[learner->count++] = tensor->number;
    tensor->last_step = learner->step;
    if (learner->count != learner->before || learner->repeated != learner->count) {
        return MUSTER_OK;
    }
    if (learner->equal + 1 >= agreement->options.learn_after) {
        TRY(make_order(agreement));
    }
    close_step(learner);
    return MUSTER_OK;
}

/* While there is an order ---------------------------------------------------------------------- */

/* A tensor is performed by agreement while the order is suspended. */
static muster_status follow(struct muster_agreement *agreement, struct muster_agree_tensor *tensor)
{
    struct muster_agreed_order *order = &agreement->order;
    bool inside = tensor->operation != MUSTER_AGREEMENT_NONE;
    order->rare = inside ? 0 : order->rare + 1;
    if (order->rare > RARE_MAX || (inside && tensor->pass == order->pass)) {
        muster_agreement_drop_order(agreement);
        return learn(agreement, tensor);
    }
    if (!inside) {
        agreement->patience_ns = agreement->options.grace_ns;
    } else {
        tensor->pass = order->pass;
        order->done[tensor->operation]++;
    }
    return MUSTER_OK;
}

muster_status muster_agreement_note(struct muster_agreement *agreement,
                                    struct muster_agree_tensor *tensor)
{
    tensor->last_use = ++agreement->uses;
    if (agreement->order.exists) {
        return follow(agreement, tensor);
    }
    return agreement->options.learn_after > 0 ? learn(agreement, tensor) : MUSTER_OK;
}

static uint32_t size_of(const struct muster_agreed_order *order, uint32_t operation)
{
    return order->plan.starts[operation + 1] - order->plan.starts[operation];
}

void muster_agreement_try_resume(struct muster_agreement *agreement, int64_t now_ns)
{
    struct muster_agreed_order *order = &agreement->order;
    uint32_t next = 0;
    if (!order->exists || order->active) {
        return;
    }
    while (next < order->plan.operations && order->done[next] == size_of(order, next)) {
        next++;
    }
    for (uint32_t b = next; b < order->plan.operations; b++) {
        if (order->done[b] != 0) {
            return;
        }
    }
    order->active = true;
    order->position = next == order->plan.operations ? 0 : next;
    order->pass += order->position == 0;
    agreement->counts.ordered = true;
    agreement->retry_ns = now_ns + agreement->patience_ns;
    agreement->patience_ns *= 2;
    if (agreement->patience_ns > agreement->options.late_ns) {
        agreement->patience_ns = agreement->options.late_ns;
    }
}

void muster_agreement_suspend(struct muster_agreement *agreement)
{
    struct muster_agreed_order *order = &agreement->order;
    order->active = false;
    agreement->counts.ordered = false;
    for (uint32_t b = 0; b < order->plan.operations; b++) {
        order->done[b] = b < order->position ? size_of(order, b) : 0;
        for (uint32_t i = order->plan.starts[b]; i < order->plan.starts[b + 1]; i++) {
            struct muster_agree_tensor *tensor = agreement->numbered[order->plan.tensors[i]];
            tensor->pass = b < order->position ? order->pass : tensor->pass;
        }
    }
}
