/* What to do where links over RDMA are asked for and cannot be. */
#ifndef MUSTER_WORKER_FABRIC_VERBS_VERBS_OFF_H
#define MUSTER_WORKER_FABRIC_VERBS_VERBS_OFF_H

#include "worker/base/status.h"

#include <stdbool.h>

/* The thread's error text says why. An error if they are required, else a line in the log. */
MUSTER_CHECKED muster_status muster_verbs_is_off(bool required, muster_status status);

#endif
