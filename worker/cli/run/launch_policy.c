/* What the launcher does about its job: the decisions, without the processes. */
#include "worker/cli/run/launch_policy.h"

void muster_launch_policy_init(struct muster_launch_policy *policy, uint32_t target_size)
{
    *policy = (struct muster_launch_policy){.target_size = target_size};
}

/* Workers are started only by a resize, to a larger target or once more to the same one: a worker
 * that has died is not replaced. */
static void follow_target(struct muster_launch_policy *policy,
                          const struct muster_launch_view *view,
                          struct muster_launch_decision *decision)
{
    uint32_t before = policy->target_size;
    bool asked_again = policy->viewed && view->resizes != policy->resizes;
    policy->target_size = view->target_size;
    policy->resizes = view->resizes;
    policy->viewed = true;
    if ((view->target_size == before && !asked_again) || view->target_size == 0 || view->stopping ||
        view->phase == MUSTER_JOB_ENDED) {
        return;
    }
    decision->resized = true;
    if (!view->may_grow || view->target_size < before || view->target_size <= decision->present) {
        return;
    }
    uint32_t missing = view->target_size - decision->present;
    uint32_t room = view->running_max - view->running;
    decision->start = missing < room ? missing : room;
}

/* True if fewer than min_size workers are left and no other launcher starts more. A view that is
 * older than the last end of a worker proves nothing: the job may have been complete before that
 * end. */
static bool is_short(const struct muster_launch_view *view, uint32_t running)
{
    return view->only_launcher && !view->stopping && view->phase == MUSTER_JOB_FORMING &&
           view->polled_ns > view->last_end_ns && running > 0 &&
           running + view->others < view->min_size;
}

struct muster_launch_decision muster_launch_policy_decide(struct muster_launch_policy *policy,
                                                          const struct muster_launch_view *view)
{
    struct muster_launch_decision decision = {.present = view->running + view->others};
    follow_target(policy, view, &decision);
    if (!policy->shortage && is_short(view, view->running + decision.start)) {
        policy->shortage = decision.shortage = true;
    }
    return decision;
}
