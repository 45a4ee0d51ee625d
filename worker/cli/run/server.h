/* A `musterd` that the launcher starts for its job if no --rendezvous is given. */
#ifndef MUSTER_WORKER_CLI_RUN_SERVER_H
#define MUSTER_WORKER_CLI_RUN_SERVER_H

#include "worker/cli/output.h"
#include "worker/cli/run/process.h"

#include <limits.h>

enum { MUSTER_SERVER_URL_SIZE = 64 };

struct muster_server {
    struct muster_process process; /* its error pipe is owned by the stream */
    bool running;
    char url[MUSTER_SERVER_URL_SIZE];
    struct muster_stream error; /* its standard error; its standard output is dropped */
};

/* Starts it on a free port of 127.0.0.1 and blocks until it serves. Its standard error goes to
 * `sink`, its port file into `folder`. store is a path; NULL: memory. MUSTER_INVALID says why it
 * cannot be found or started. */
MUSTER_CHECKED muster_status muster_server_start(struct muster_guard *guard, const char *folder,
                                                 const char *store, const sigset_t *signals,
                                                 struct muster_sink *sink,
                                                 struct muster_server *ret_server);

/* Sends SIGTERM, and SIGKILL if that takes too long. Accepts zeroed storage, and a server that has
 * ended. */
void muster_server_stop(struct muster_server *server, struct muster_guard *guard);

#endif
