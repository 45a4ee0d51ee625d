/* A `musterd` of the launcher's own, for a job that is given no server. */
#ifndef MUSTER_WORKER_CLI_RUN_SERVER_H
#define MUSTER_WORKER_CLI_RUN_SERVER_H

#include "worker/cli/output.h"
#include "worker/cli/run/process.h"

#include <limits.h>

enum { MUSTER_SERVER_URL_SIZE = 64 };

struct muster_server {
    struct muster_process process; /* its pipe belongs to the stream */
    bool running;
    char url[MUSTER_SERVER_URL_SIZE];
    struct muster_stream error; /* what it says there; its output is dropped */
};

/* Starts it on a free port of 127.0.0.1 and waits until it serves. What it says goes to `sink`;
 * folder is one of our own, for its port file; store may be NULL: memory. MUSTER_INVALID: it cannot
 * be found or does not start, and why. */
MUSTER_CHECKED muster_status muster_server_start(struct muster_guard *guard, const char *folder,
                                                 const char *store, const sigset_t *signals,
                                                 struct muster_sink *sink,
                                                 struct muster_server *ret_server);

/* Ends it, by force if it takes too long. Accepts zeroed storage and one that has ended. */
void muster_server_stop(struct muster_server *server, struct muster_guard *guard);

#endif
