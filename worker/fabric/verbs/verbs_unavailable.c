/* Reports that links over RDMA are impossible. */
#include "worker/fabric/verbs/verbs_unavailable.h"

#include "worker/base/log.h"

muster_status muster_verbs_unavailable(bool required, muster_status status)
{
    if (required) {
        return muster_error_prefix(status, "RDMA (MUSTER_VERBS)");
    }
    muster_log(MUSTER_LOG_WARN, "no links over RDMA (MUSTER_VERBS): %s", muster_last_error());
    return MUSTER_OK;
}
