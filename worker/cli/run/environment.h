/* The environment that a worker is started with: ours, then what tells it of its job, then --env;
 * the later wins. */
#ifndef MUSTER_WORKER_CLI_RUN_ENVIRONMENT_H
#define MUSTER_WORKER_CLI_RUN_ENVIRONMENT_H

#include "worker/cli/run/run_parts.h"

struct muster_environment {
    size_t count, capacity;
    char **entries; /* owned, each too; NULL at its end */
};

/* MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_environment_init(const struct muster_supervisor *supervisor,
                                                     const struct muster_worker *worker,
                                                     struct muster_environment *ret_environment);
void muster_environment_finish(struct muster_environment *environment);

#endif
