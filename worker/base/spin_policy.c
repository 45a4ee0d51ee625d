#include "worker/base/spin_policy.h"

enum { MILLIS = 1000 }; /* in a core */

void muster_spin_policy_begin(struct muster_spin_policy *spin_policy,
                              const struct muster_spin_policy_place *place)
{
    /* The library's other threads need some of the quota, too: two cores at least. */
    uint64_t needed = place->members_here < 2 ? 2 : place->members_here;
    bool cores_for_all = place->members_here <= place->cores;
    *spin_policy = (struct muster_spin_policy){
        .looks_at_all = place->quota_millis / MILLIS >= needed,
        .look_ns = place->has_device && cores_for_all ? MUSTER_SPIN_POLICY_DEVICE_NS
                                                      : MUSTER_SPIN_POLICY_NS,
        .looks = MUSTER_SPIN_POLICY_LOOKS_MAX,
        .cores_for_all = cores_for_all,
        .place = place->index,
        .shared_max = cores_for_all ? MUSTER_SPIN_POLICY_SHARED_MIN : MUSTER_SPIN_POLICY_SHARED_MAX,
        .rest = MUSTER_SPIN_POLICY_REST_MIN,
    };
}

bool muster_spin_policy_looks(struct muster_spin_policy *spin_policy)
{
    if (spin_policy->resting > 0) {
        spin_policy->resting--;
        return false;
    }
    bool moves = spin_policy->cores_for_all && spin_policy->slept > spin_policy->moved;
    if (spin_policy->shared >= spin_policy->shared_max && !moves) {
        spin_policy->shared = 0;
        spin_policy->slept++;
        return false;
    }
    return spin_policy->looks_at_all;
}

bool muster_spin_policy_moves(struct muster_spin_policy *spin_policy, uint32_t *ret_place)
{
    if (spin_policy->shared < spin_policy->shared_max || !spin_policy->cores_for_all ||
        spin_policy->slept <= spin_policy->moved) {
        return false;
    }
    *ret_place = spin_policy->place;
    spin_policy->moved++;
    spin_policy->shared = 0;
    if (spin_policy->shared_max < MUSTER_SPIN_POLICY_SHARED_MAX) {
        spin_policy->shared_max *= 2;
    }
    return true;
}

static void found_alone(struct muster_spin_policy *spin_policy)
{
    spin_policy->looks += spin_policy->looks < MUSTER_SPIN_POLICY_LOOKS_MAX;
    spin_policy->shared = 0;
    if (!spin_policy->cores_for_all) {
        return;
    }
    if (spin_policy->pause_ns < MUSTER_SPIN_POLICY_PAUSE_MAX_NS) {
        spin_policy->pause_ns += MUSTER_SPIN_POLICY_PAUSE_STEP_NS;
    }
    if (spin_policy->pause_ns >= MUSTER_SPIN_POLICY_PAUSE_SURE_NS) {
        spin_policy->shared_max = MUSTER_SPIN_POLICY_SHARED_MIN;
        spin_policy->moved = spin_policy->slept = 0;
    }
}

void muster_spin_policy_gave_way(struct muster_spin_policy *spin_policy, int64_t took_ns)
{
    if (took_ns > MUSTER_SPIN_POLICY_ALONE_NS) {
        spin_policy->looks = 1;
        spin_policy->pause_ns = 0;
        spin_policy->shared += took_ns <= MUSTER_SPIN_POLICY_SLICE_NS;
    } else {
        found_alone(spin_policy);
    }
    if (took_ns > MUSTER_SPIN_POLICY_SLICE_NS) {
        spin_policy->resting = spin_policy->rest;
        spin_policy->rest = spin_policy->rest < MUSTER_SPIN_POLICY_REST_MAX / 2
                                ? 2 * spin_policy->rest
                                : MUSTER_SPIN_POLICY_REST_MAX;
    }
}

void muster_spin_policy_found(struct muster_spin_policy *spin_policy)
{
    if (spin_policy->rest > MUSTER_SPIN_POLICY_REST_MIN) {
        spin_policy->rest -= 1;
    }
}
