/* The rules of the spin policy, and the parameters of its two users. */
#include "worker/base/spin_policy.h"

#include "worker/base/cores.h"

const struct muster_spin_parameters muster_spin_on_links = {
    .poll_ns = 200 * 1000,
    .poll_device_ns = 2000 * 1000,
    .polls_max = 100,
    /* Longer than most waits of small calls, and short beside the whole time of polling. */
    .pause_max = 50 * 1000,
    .pause_factor = 1,
    .pause_step = 1000,
    .pause_alone = 4000,
    .shared_max = 16,
    .shared_max_crowded = 256,
    .rests_min = 16,
};

const struct muster_spin_parameters muster_spin_on_memory = {
    .poll_ns = 200 * 1000,
    .poll_device_ns = 200 * 1000,
    .polls_max = 1,
    .pause_min = 16,  /* some 300 ns */
    .pause_max = 512, /* some 5 to 20 us */
    .pause_factor = 2,
    .pause_halves = true,
    .pause_alone = 512,
    .shared_max = 64,
    .shared_max_crowded = UINT32_MAX, /* never */
};

void muster_spin_policy_init(struct muster_spin_policy *policy,
                             const struct muster_spin_parameters *parameters,
                             const struct muster_spin_host *host)
{
    /* The library's other threads need some of the quota, too: two cores at least. */
    uint64_t needed = host->members < 2 ? 2 : host->members;
    bool crowded = host->members > host->cores;
    *policy = (struct muster_spin_policy){
        .parameters = parameters,
        .polls = host->quota_millis / MUSTER_CORE_MILLIS >= needed,
        .crowded = crowded,
        .index = host->index,
        .poll_ns = host->has_device && !crowded ? parameters->poll_device_ns : parameters->poll_ns,
        .polls_of_memory = parameters->polls_max,
        .rests = parameters->rests_min,
    };
}

static uint32_t shared_max(const struct muster_spin_policy *policy)
{
    uint32_t doublings = policy->steps / 2;
    return policy->crowded
               ? policy->parameters->shared_max_crowded
               : policy->parameters->shared_max
                     << (doublings < MUSTER_SPIN_DOUBLINGS ? doublings : MUSTER_SPIN_DOUBLINGS);
}

enum muster_spin_action muster_spin_policy_begin_wait(struct muster_spin_policy *policy)
{
    if (policy->rests_left > 0) {
        policy->rests_left--;
        return MUSTER_SPIN_SLEEP;
    }
    if (policy->shared < shared_max(policy)) {
        return policy->polls ? MUSTER_SPIN_POLL : MUSTER_SPIN_SLEEP;
    }
    policy->shared = 0;
    return policy->steps++ % 2 == 0 || policy->crowded ? MUSTER_SPIN_SLEEP : MUSTER_SPIN_MOVE;
}

static uint32_t bound_pause(const struct muster_spin_parameters *parameters, uint32_t pause)
{
    return pause < parameters->pause_min   ? parameters->pause_min
           : pause > parameters->pause_max ? parameters->pause_max
                                           : pause;
}

static void note_alone(struct muster_spin_policy *policy)
{
    const struct muster_spin_parameters *parameters = policy->parameters;
    policy->polls_of_memory += policy->polls_of_memory < parameters->polls_max;
    policy->shared = 0;
    if (policy->crowded) {
        return;
    }
    policy->pause =
        bound_pause(parameters, policy->pause * parameters->pause_factor + parameters->pause_step);
    if (policy->pause >= parameters->pause_alone) {
        policy->steps = 0;
    }
}

static void note_others(struct muster_spin_policy *policy)
{
    const struct muster_spin_parameters *parameters = policy->parameters;
    policy->polls_of_memory = 1;
    if (!policy->crowded) {
        policy->pause = bound_pause(parameters, parameters->pause_halves ? policy->pause / 2 : 0);
    }
}

static void note_lost_slice(struct muster_spin_policy *policy)
{
    policy->rests_left = policy->rests;
    policy->rests =
        policy->rests < MUSTER_SPIN_RESTS_MAX / 2 ? 2 * policy->rests : MUSTER_SPIN_RESTS_MAX;
}

void muster_spin_policy_note_yield(struct muster_spin_policy *policy, int64_t took_ns)
{
    if (took_ns <= MUSTER_SPIN_ALONE_NS) {
        note_alone(policy);
        return;
    }
    note_others(policy);
    if (took_ns <= MUSTER_SPIN_SLICE_NS) {
        policy->shared++;
    } else {
        note_lost_slice(policy);
    }
}

void muster_spin_policy_note_success(struct muster_spin_policy *policy)
{
    if (policy->rests > policy->parameters->rests_min) {
        policy->rests--;
    }
}
