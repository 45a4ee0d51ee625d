#include "worker/fabric/patience.h"

enum { MILLIS = 1000 }; /* in a core */

void muster_patience_begin(struct muster_patience *patience, uint32_t members_here, uint32_t cores,
                           uint64_t quota_millis)
{
    /* The library's other threads need some of the quota, too: two cores at least. */
    uint64_t needed = members_here < 2 ? 2 : members_here;
    *patience = (struct muster_patience){
        .looks_at_all = quota_millis / MILLIS >= needed,
        .looks = MUSTER_PATIENCE_LOOKS_MAX,
        .pause_max_ns = members_here <= cores ? MUSTER_PATIENCE_PAUSE_MAX_NS : 0,
        .rest = MUSTER_PATIENCE_REST_MIN};
}

bool muster_patience_looks(struct muster_patience *patience)
{
    if (patience->resting > 0) {
        patience->resting--;
        return false;
    }
    if (patience->shared >= MUSTER_PATIENCE_SHARED_MAX) {
        patience->shared = 0;
        return false;
    }
    return patience->looks_at_all;
}

void muster_patience_gave_way(struct muster_patience *patience, int64_t took_ns)
{
    if (took_ns > MUSTER_PATIENCE_ALONE_NS) {
        patience->looks = 1;
        patience->pause_ns = 0;
        patience->shared++;
    } else {
        patience->looks += patience->looks < MUSTER_PATIENCE_LOOKS_MAX;
        patience->pause_ns +=
            patience->pause_ns < patience->pause_max_ns ? MUSTER_PATIENCE_PAUSE_STEP_NS : 0;
        patience->shared = 0;
    }
    if (took_ns > MUSTER_PATIENCE_SLICE_NS) {
        patience->resting = patience->rest;
        if (patience->rest < MUSTER_PATIENCE_REST_MAX) {
            patience->rest *= 2;
        }
    }
}

void muster_patience_found(struct muster_patience *patience)
{
    if (patience->rest > MUSTER_PATIENCE_REST_MIN) {
        patience->rest -= 1;
    }
}
