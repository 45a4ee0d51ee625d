/* The outcome where links over RDMA are requested and impossible. */
#ifndef MUSTER_WORKER_FABRIC_VERBS_VERBS_UNAVAILABLE_H
#define MUSTER_WORKER_FABRIC_VERBS_VERBS_UNAVAILABLE_H

#include "worker/base/status.h"

#include <stdbool.h>

/* The thread's error text has the reason. Returns an error if RDMA is required; otherwise logs it.
 */
MUSTER_CHECKED muster_status muster_verbs_unavailable(bool required, muster_status status);

#endif
