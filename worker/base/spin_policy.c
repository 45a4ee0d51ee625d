#include "worker/base/spin_policy.h"

enum { MILLIS = 1000 }; /* in a core */

void muster_patience_begin(struct muster_patience *patience,
                           const struct muster_patience_place *place)
{
    /* The library's other threads need some of the quota, too: two cores at least. */
    uint64_t needed = place->members_here < 2 ? 2 : place->members_here;
    bool cores_for_all = place->members_here <= place->cores;
    *patience = (struct muster_patience){
        .looks_at_all = place->quota_millis / MILLIS >= needed,
        .look_ns =
            place->has_device && cores_for_all ? MUSTER_PATIENCE_DEVICE_NS : MUSTER_PATIENCE_NS,
        .looks = MUSTER_PATIENCE_LOOKS_MAX,
        .cores_for_all = cores_for_all,
        .place = place->index,
        .shared_max = cores_for_all ? MUSTER_PATIENCE_SHARED_MIN : MUSTER_PATIENCE_SHARED_MAX,
        .rest = MUSTER_PATIENCE_REST_MIN,
    };
}

bool muster_patience_looks(struct muster_patience *patience)
{
    if (patience->resting > 0) {
        patience->resting--;
        return false;
    }
    bool moves = patience->cores_for_all && patience->slept > patience->moved;
    if (patience->shared >= patience->shared_max && !moves) {
        patience->shared = 0;
        patience->slept++;
        return false;
    }
    return patience->looks_at_all;
}

bool muster_patience_moves(struct muster_patience *patience, uint32_t *ret_place)
{
    if (patience->shared < patience->shared_max || !patience->cores_for_all ||
        patience->slept <= patience->moved) {
        return false;
    }
    *ret_place = patience->place;
    patience->moved++;
    patience->shared = 0;
    if (patience->shared_max < MUSTER_PATIENCE_SHARED_MAX) {
        patience->shared_max *= 2;
    }
    return true;
}

static void found_alone(struct muster_patience *patience)
{
    patience->looks += patience->looks < MUSTER_PATIENCE_LOOKS_MAX;
    patience->shared = 0;
    if (!patience->cores_for_all) {
        return;
    }
    if (patience->pause_ns < MUSTER_PATIENCE_PAUSE_MAX_NS) {
        patience->pause_ns += MUSTER_PATIENCE_PAUSE_STEP_NS;
    }
    if (patience->pause_ns >= MUSTER_PATIENCE_PAUSE_SURE_NS) {
        patience->shared_max = MUSTER_PATIENCE_SHARED_MIN;
        patience->moved = patience->slept = 0;
    }
}

void muster_patience_gave_way(struct muster_patience *patience, int64_t took_ns)
{
    if (took_ns > MUSTER_PATIENCE_ALONE_NS) {
        patience->looks = 1;
        patience->pause_ns = 0;
        patience->shared += took_ns <= MUSTER_PATIENCE_SLICE_NS;
    } else {
        found_alone(patience);
    }
    if (took_ns > MUSTER_PATIENCE_SLICE_NS) {
        patience->resting = patience->rest;
        patience->rest = patience->rest < MUSTER_PATIENCE_REST_MAX / 2 ? 2 * patience->rest
                                                                       : MUSTER_PATIENCE_REST_MAX;
    }
}

void muster_patience_found(struct muster_patience *patience)
{
    if (patience->rest > MUSTER_PATIENCE_REST_MIN) {
        patience->rest -= 1;
    }
}
