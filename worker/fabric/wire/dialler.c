/* Computes when a member dials next after a failure. */
#include "worker/fabric/wire/dialler.h"

#include "worker/base/clock.h"

bool muster_dialler_retry(struct muster_dialler *dialler)
{
    if (++dialler->failed_dials >= MUSTER_DIALS_MAX) {
        return false;
    }
    dialler->redial_ns = muster_clock_after_ms((uint32_t)MUSTER_REDIAL_MS << dialler->failed_dials);
    return true;
}

void muster_dialler_crossed(struct muster_dialler *dialler)
{
    dialler->redial_ns = muster_clock_after_ms(MUSTER_CROSSED_MS);
}

void muster_dialler_retry_path(struct muster_dialler *dialler)
{
    if (dialler->redial_ns == MUSTER_NEVER) {
        dialler->redial_ns =
            muster_clock_after_ms((uint32_t)MUSTER_PATH_RETRY_MS << dialler->failed_path_dials);
        dialler->failed_path_dials += dialler->failed_path_dials < MUSTER_PATH_RETRY_DOUBLINGS;
    }
}

void muster_dialler_path_lost(struct muster_dialler *dialler)
{
    dialler->failed_path_dials = 0;
    dialler->redial_ns = MUSTER_NEVER;
    muster_dialler_retry_path(dialler);
}
