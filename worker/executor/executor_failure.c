/* How a failed operation ends: which ranks it waited for, which peers learn of it, and its error
 * text. */
#include "worker/executor/executor_parts.h"

#include <stdio.h>
#include <string.h>

#include "worker/base/clock.h"

enum {
    LISTED_RANKS_MAX = 4, /* by an error text */
    ABORT_GRACE_MS = 10,  /* for aborts to leave */
    PROBE_MS = 200,       /* for a member that is cut off; others answer within a round trip */
};

/* The ranks that the operation waits for. */
struct awaited {
    uint32_t ranks[LISTED_RANKS_MAX]; /* global */
    size_t count;
    bool more;
    const struct muster_step *step; /* of the first */
};

static void add_awaited(struct awaited *awaited, uint32_t rank, const struct muster_step *step)
{
    for (size_t i = 0; i < awaited->count; i++) {
        if (awaited->ranks[i] == rank) {
            return;
        }
    }
    if (awaited->count == LISTED_RANKS_MAX) {
        awaited->more = true;
        return;
    }
    if (awaited->count == 0) {
        awaited->step = step;
    }
    awaited->ranks[awaited->count++] = rank;
}

/* First the ranks whose messages have not arrived, then the ranks that have not received this
 * rank's messages: these may only be a consequence of the first. */
static struct awaited find_awaited(const struct muster_operation *operation)
{
    struct awaited awaited = {.count = 0};
    for (int sends = 0; sends < 2; sends++) {
        for (size_t i = 0; i < operation->schedule.step_count; i++) {
            const struct muster_step_message *message = &operation->messages[i];
            bool entered = i < message->lane->next;
            if (entered && message->pending &&
                (message->step->kind == MUSTER_STEP_SEND) == (sends == 1)) {
                add_awaited(&awaited, message->transfer.peer, message->step);
            }
        }
    }
    return awaited;
}

static muster_status report_deadline(const struct muster_operation *operation,
                                     const char *own_reason, uint32_t *ret_suspect)
{
    struct awaited awaited = find_awaited(operation);
    /* In a group step, which the messages wait for. */
    if (*ret_suspect != UINT32_MAX || operation->failed_in_group) {
        return muster_error_set(MUSTER_RETRY, "%s", own_reason);
    }
    if (awaited.count == 0) {
        return muster_error_set(MUSTER_RETRY, "the deadline passed before the local work was done");
    }
    char list[16 * LISTED_RANKS_MAX] = "";
    size_t used = 0;
    for (size_t i = 0; i < awaited.count; i++) {
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%u", i == 0 ? "" : ", ",
                                 awaited.ranks[i]);
    }
    *ret_suspect = awaited.ranks[0];
    char probed[96] = "";
    enum muster_probe_verdict verdict = muster_fabric_probe(
        operation->fabric, operation->launch->generation, awaited.ranks[0], PROBE_MS);
    if (verdict != MUSTER_PROBE_UNKNOWN) {
        (void)snprintf(probed, sizeof probed, "; rank %u: %s", awaited.ranks[0],
                       muster_probe_text(verdict));
    }
    return muster_error_set(MUSTER_RETRY,
                            "the deadline passed while it waited for rank%s %s%s "
                            "(lane %u, round %u: %s)%s",
                            awaited.count == 1 ? "" : "s", list, awaited.more ? " and more" : "",
                            awaited.step->lane, awaited.step->round,
                            awaited.step->kind == MUSTER_STEP_SEND ? "send" : "receive", probed);
}

/* Whether the reason came from a peer, which has put its own rank before it. */
static bool is_from_peer(const char *reason)
{
    int used = 0;
    (void)sscanf(reason, "rank %*u says: %n", &used);
    return used > 0;
}

void muster_launch_abort(struct muster_fabric *fabric, const struct muster_launch *launch,
                         const uint32_t *ranks, size_t count, const char *reason)
{
    char text[MUSTER_ERROR_MAX];
    (void)snprintf(text, sizeof text, "%s", muster_last_error());
    for (size_t i = 0; i < count; i++) {
        muster_fabric_abort(fabric, ranks[i], launch->generation, launch->context, launch->sequence,
                            reason);
    }
    /* This caller may not wait again for long, and nothing moves while no thread waits. */
    const bool never = false;
    int64_t limit_ns = muster_clock_after_ms(ABORT_GRACE_MS);
    muster_status status =
        muster_fabric_wait(fabric, launch->generation, &never,
                           limit_ns < launch->deadline_ns ? limit_ns : launch->deadline_ns);
    (void)status; /* the failure that led here is the one that counts */
    (void)muster_error_set(MUSTER_INVALID, "%s", text);
}

/* The rank that found the failure names itself; a rank that received it from a peer passes it on
 * unchanged, once. */
static void abort_at_peers(const struct muster_operation *operation)
{
    const char *text = muster_last_error();
    char reason[MUSTER_REASON_SIZE];
    if (is_from_peer(text)) {
        (void)snprintf(reason, sizeof reason, "%.255s", text);
    } else {
        (void)snprintf(reason, sizeof reason, "rank %u says: %.230s",
                       operation->ranks[operation->schedule.rank], text);
    }
    muster_launch_abort(operation->fabric, operation->launch, operation->peers,
                        operation->peer_count, reason);
}

muster_status muster_operation_end_failed(struct muster_operation *operation, muster_status status,
                                          uint32_t *ret_suspect)
{
    const struct muster_launch *launch = operation->launch;
    char own_reason[MUSTER_ERROR_MAX];
    char lost_reason[MUSTER_REASON_SIZE];
    (void)snprintf(own_reason, sizeof own_reason, "%s", muster_last_error());
    muster_fabric_withdraw(operation->fabric, launch->generation, launch->context,
                           launch->sequence);
    if (atomic_load(&operation->failed)) {
        status = muster_error_set(operation->failure, "%s", operation->reason);
    } else if (status != MUSTER_RETRY) {
        (void)muster_error_set(status, "%s", own_reason);
    }
    if ((status == MUSTER_REJOIN || status == MUSTER_RETRY) &&
        muster_fabric_out_of_descriptors(operation->fabric, launch->generation, lost_reason)) {
        return muster_error_set(MUSTER_FATAL, "%s", lost_reason);
    }
    if (status == MUSTER_RETRY) {
        return report_deadline(operation, own_reason, ret_suspect);
    }
    if (status == MUSTER_INVALID) {
        abort_at_peers(operation);
    } else if (status == MUSTER_REJOIN) {
        (void)muster_fabric_lost_peer(operation->fabric, launch->generation, ret_suspect,
                                      lost_reason);
    }
    return status;
}
