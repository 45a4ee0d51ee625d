/* Pending tensors: whether the agreed order performs them, or they are ready, or to be described.
 */
#include "worker/engine/agree/agreement_parts.h"

const struct muster_alternative *
muster_agreement_alternative(const struct muster_agree_tensor *tensor, uint32_t rank)
{
    for (uint32_t i = 0; i < tensor->alternative_count; i++) {
        if (tensor->alternatives[i].rank == rank) {
            return &tensor->alternatives[i];
        }
    }
    return NULL;
}

static void set_covered(struct muster_agreement *agreement, struct muster_agree_tensor *tensor,
                        bool covered)
{
    if (tensor->covered == covered) {
        return;
    }
    tensor->covered = covered;
    agreement->covered += covered ? 1 : UINT32_MAX;
    agreement->order.missing[tensor->operation] += covered ? UINT32_MAX : 1;
}

void muster_agreement_place(struct muster_agreement *agreement, struct muster_agree_tensor *tensor)
{
    if (!tensor->pending) {
        return;
    }
    bool known = tensor->number != MUSTER_AGREEMENT_NONE;
    bool matches = known && muster_descriptions_match(&tensor->described, &tensor->own);
    bool told = known && muster_agreement_alternative(tensor, agreement->options.rank) != NULL;
    set_covered(agreement, tensor,
                matches && !tensor->held && tensor->operation != MUSTER_AGREEMENT_NONE);
    if (matches || told) {
        agreement->ready[tensor->number / 64] |= UINT64_C(1) << (tensor->number % 64);
        if (tensor->waits_to_describe) {
            TAILQ_REMOVE(&agreement->to_describe, tensor, order);
            tensor->waits_to_describe = false;
        }
    } else if (!tensor->waits_to_describe) {
        TAILQ_INSERT_TAIL(&agreement->to_describe, tensor, order);
        tensor->waits_to_describe = true;
    }
}

void muster_agreement_release(struct muster_agreement *agreement,
                              struct muster_agree_tensor *tensor)
{
    if (!tensor->pending) {
        return;
    }
    set_covered(agreement, tensor, false);
    tensor->pending = tensor->held = false;
    tensor->token = 0;
    agreement->pending--;
    if (tensor->number != MUSTER_AGREEMENT_NONE) {
        agreement->ready[tensor->number / 64] &= ~(UINT64_C(1) << (tensor->number % 64));
    }
    if (tensor->waits_to_describe) {
        TAILQ_REMOVE(&agreement->to_describe, tensor, order);
        tensor->waits_to_describe = false;
    }
}

/* Groups --------------------------------------------------------------------------------------- */

/* Whether a tensor of this group is pending that the agreed order does not perform. */
static bool is_group_outside(const struct muster_agreement *agreement, uint64_t group)
{
    const struct muster_agree_tensor *tensor = NULL;
    TAILQ_FOREACH(tensor, &agreement->to_describe, order)
    {
        if (tensor->own.group == group) {
            return true;
        }
    }
    for (uint32_t i = 0; i < agreement->number_count; i++) {
        tensor = agreement->numbered[i];
        if (tensor != NULL && tensor->pending && tensor->own.group == group && !tensor->covered) {
            return true;
        }
    }
    return false;
}

void muster_agreement_close_group(struct muster_agreement *agreement, uint64_t group)
{
    if (!agreement->order.exists || !is_group_outside(agreement, group)) {
        return;
    }
    for (uint32_t i = 0; i < agreement->number_count; i++) {
        struct muster_agree_tensor *tensor = agreement->numbered[i];
        if (tensor != NULL && tensor->pending && tensor->own.group == group) {
            tensor->held = true;
            set_covered(agreement, tensor, false);
            agreement->uncovered_fresh++;
        }
    }
}

void muster_agreement_hide_groups(const struct muster_agreement *agreement, uint64_t *words)
{
    const struct muster_agree_tensor *missing = NULL;
    TAILQ_FOREACH(missing, &agreement->to_describe, order)
    {
        for (uint32_t i = 0; missing->own.group != 0 && i < agreement->number_count; i++) {
            const struct muster_agree_tensor *tensor = agreement->numbered[i];
            if (tensor != NULL && tensor->pending && tensor->own.group == missing->own.group) {
                words[i / 64] &= ~(UINT64_C(1) << (i % 64));
            }
        }
    }
}
