/* The environment of a worker: that of the launcher, then the variables of the job, then --env.
 * A later value replaces an earlier one. */
#ifndef MUSTER_WORKER_CLI_RUN_ENVIRONMENT_H
#define MUSTER_WORKER_CLI_RUN_ENVIRONMENT_H

#include "worker/cli/run/run_parts.h"

struct muster_environment {
    size_t count, capacity;
    char **entries; /* owned, and each entry; ends with NULL */
};

/* MUSTER_FATAL: out of memory. */
MUSTER_CHECKED muster_status muster_environment_init(const struct muster_supervisor *supervisor,
                                                     const struct muster_worker *worker,
                                                     struct muster_environment *ret_environment);
void muster_environment_finish(struct muster_environment *environment);

#endif
