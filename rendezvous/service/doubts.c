/* Who is asked to dial whom. */
#include "rendezvous/service/doubts.h"

#include "elastic/messages/messages.h"
#include "rendezvous/service/transactions.h"
#include "worker/base/clock.h"

#include <stdio.h>
#include <string.h>

enum {
    AGAIN_MS = 20, /* after the first round; then four times as long each */
    ROUNDS_MAX = 5,
    UNHEARD_MAX = 16, /* awaited members, from which on those that are not heard of are doubted */
    LOOKED_AT_MAX = 4 * MUSTER_WITNESSES + MUSTER_DOUBTS_MAX, /* held requests */
};

bool muster_doubts_dials(const struct muster_member_info *info)
{
    const char *at = strstr(info->capabilities, MUSTER_CAPABILITY_DIALS);
    return at != NULL && (at == info->capabilities || at[-1] == '\n');
}

static bool is_doubted(const struct muster_membership *membership, const char *member,
                       struct muster_member_view *ret_view)
{
    return muster_membership_find(membership, member, ret_view) && ret_view->doubted;
}

/* A witness that is doubted itself, or gone, will not answer. */
static uint32_t count_witnesses(const struct muster_doubt *doubt,
                                const struct muster_membership *membership)
{
    uint32_t count = 0;
    struct muster_member_view view;
    for (uint32_t i = 0; i < doubt->witness_count; i++) {
        count += muster_membership_find(membership, doubt->witnesses[i], &view) && !view.doubted;
    }
    return count;
}

static bool has_witness(const struct muster_doubt *doubt, const char *member)
{
    for (uint32_t i = 0; i < doubt->witness_count; i++) {
        if (strcmp(doubt->witnesses[i], member) == 0) {
            return true;
        }
    }
    return false;
}

static bool needs(const struct muster_doubt *doubt, const struct muster_membership *membership,
                  const char *witness, struct muster_member_view *ret_view)
{
    return strcmp(doubt->member, witness) != 0 && !has_witness(doubt, witness) &&
           is_doubted(membership, doubt->member, ret_view) &&
           count_witnesses(doubt, membership) < MUSTER_WITNESSES;
}

static void add_witness(struct muster_doubt *doubt, const struct muster_membership *membership,
                        const char *witness)
{
    uint32_t kept = 0;
    struct muster_member_view view;
    for (uint32_t i = 0; i < doubt->witness_count; i++) {
        if (muster_membership_find(membership, doubt->witnesses[i], &view) && !view.doubted) {
            memmove(doubt->witnesses[kept++], doubt->witnesses[i], MUSTER_UUID_SIZE);
        }
    }
    (void)snprintf(doubt->witnesses[kept++], MUSTER_UUID_SIZE, "%s", witness);
    doubt->witness_count = kept;
    if (doubt->again_ns == 0) {
        doubt->again_ns = muster_clock_after_ms((uint32_t)AGAIN_MS << (2 * doubt->rounds));
    }
}

static void forget_those_over(struct muster_doubts *doubts,
                              const struct muster_membership *membership)
{
    uint32_t kept = 0;
    struct muster_member_view view;
    for (uint32_t i = 0; i < doubts->count; i++) {
        if (is_doubted(membership, doubts->items[i].member, &view)) {
            doubts->items[kept++] = doubts->items[i];
        }
    }
    doubts->count = kept;
}

bool muster_doubts_add(struct muster_doubts *doubts, const struct muster_membership *membership,
                       const char *member)
{
    struct muster_member_view view;
    forget_those_over(doubts, membership);
    for (uint32_t i = 0; i < doubts->count; i++) {
        if (strcmp(doubts->items[i].member, member) == 0) {
            return false;
        }
    }
    if (doubts->count == MUSTER_DOUBTS_MAX || !is_doubted(membership, member, &view) ||
        view.info->address_count == 0) {
        return false;
    }
    struct muster_doubt *doubt = &doubts->items[doubts->count++];
    *doubt = (struct muster_doubt){0};
    (void)snprintf(doubt->member, sizeof doubt->member, "%s", member);
    return true;
}

void muster_doubts_add_unheard(struct muster_doubts *doubts,
                               const struct muster_membership *membership)
{
    struct muster_member_view view;
    if (muster_membership_phase(membership) != MUSTER_JOB_FORMING ||
        muster_membership_awaited(membership) > UNHEARD_MAX) {
        return;
    }
    for (uint32_t i = 0; muster_membership_member(membership, i, &view); i++) {
        if (view.doubted) {
            (void)muster_doubts_add(doubts, membership, view.info->id);
        }
    }
}

bool muster_doubts_need(const struct muster_doubts *doubts,
                        const struct muster_membership *membership, const char *witness)
{
    struct muster_member_view view;
    bool found = false;
    for (uint32_t i = 0; i < doubts->count && !found; i++) {
        found = needs(&doubts->items[i], membership, witness, &view);
    }
    return found && muster_membership_find(membership, witness, &view) &&
           muster_doubts_dials(view.info);
}

uint32_t muster_doubts_ask(struct muster_doubts *doubts, const struct muster_membership *membership,
                           const char *witness,
                           struct muster_member_view ret_views[MUSTER_DOUBTS_ASKED_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < doubts->count && count < MUSTER_DOUBTS_ASKED_MAX; i++) {
        if (needs(&doubts->items[i], membership, witness, &ret_views[count])) {
            add_witness(&doubts->items[i], membership, witness);
            count++;
        }
    }
    return count;
}

static bool comes_again(const struct muster_doubt *doubt)
{
    return doubt->again_ns != 0 && doubt->rounds + 1 < ROUNDS_MAX;
}

int64_t muster_doubts_next_ns(const struct muster_doubts *doubts)
{
    int64_t next_ns = MUSTER_NEVER;
    for (uint32_t i = 0; i < doubts->count; i++) {
        const struct muster_doubt *doubt = &doubts->items[i];
        if (comes_again(doubt) && doubt->again_ns < next_ns) {
            next_ns = doubt->again_ns;
        }
    }
    return next_ns;
}

bool muster_doubts_renew(struct muster_doubts *doubts, const struct muster_membership *membership,
                         int64_t now_ns)
{
    bool any = false;
    forget_those_over(doubts, membership);
    for (uint32_t i = 0; i < doubts->count; i++) {
        struct muster_doubt *doubt = &doubts->items[i];
        if (comes_again(doubt) && doubt->again_ns <= now_ns) {
            doubt->again_ns = 0;
            doubt->rounds++;
            doubt->witness_count = 0;
            any = true;
        }
    }
    return any;
}

void muster_doubts_ask_held(struct muster_transaction *transaction)
{
    struct muster_job *job = transaction->job;
    struct muster_held_request *held = job->held_requests.members;
    for (uint32_t looked_at = 0; held != NULL && looked_at < LOOKED_AT_MAX; looked_at++) {
        struct muster_held_request *next = held->next;
        struct muster_rpc_response response;
        if (muster_doubts_need(&job->doubts, job->membership, held->id.member) &&
            held->kind->ready(transaction, held, &response)) {
            muster_transaction_respond(transaction, held, response);
        }
        held = next;
    }
}
