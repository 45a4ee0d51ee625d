/* A `musterd` that the launcher starts for its job if no --rendezvous is given. */
#ifndef MUSTER_WORKER_CLI_RUN_SERVER_H
#define MUSTER_WORKER_CLI_RUN_SERVER_H

#include "worker/cli/output.h"
#include "worker/cli/run/process.h"

#include <limits.h>

enum { MUSTER_SERVER_URL_SIZE = 64, MUSTER_SERVER_TIMINGS = 5 };

/* The options of musterd that say how long it waits for what, without the dashes: "lease-ms". */
extern const char *const muster_server_timings[MUSTER_SERVER_TIMINGS];

struct muster_server_options {
    const char *folder; /* for its port file, and its store if `store` is NULL */
    const char *store;  /* a path, or "memory" */
    const char *timings[MUSTER_SERVER_TIMINGS]; /* milliseconds; NULL: musterd's default */
    const sigset_t *signals;
    struct muster_sink *sink; /* for its standard error */
};

struct muster_server {
    struct muster_process process; /* its error pipe is owned by the stream */
    bool running;
    unsigned port;
    char url[MUSTER_SERVER_URL_SIZE];
    struct muster_stream error; /* its standard error; its standard output is dropped */
    int64_t started_ns;
    uint32_t early_ends; /* in a row, soon after a start */
};

/* Starts it on a free port of 127.0.0.1 and blocks until it serves. MUSTER_INVALID says why it
 * cannot be found or started. */
MUSTER_CHECKED muster_status muster_server_start(struct muster_guard *guard,
                                                 const struct muster_server_options *options,
                                                 struct muster_server *ret_server);

/* Starts it again, after it has ended and was reaped, on the same port and with the same store, so
 * that the job goes on as after any restart. Does not wait until it serves. MUSTER_RETRY: it has
 * ended soon after its start several times in a row. */
MUSTER_CHECKED muster_status muster_server_restart(struct muster_guard *guard,
                                                   const struct muster_server_options *options,
                                                   struct muster_server *server);

/* Sends SIGTERM, and SIGKILL if that takes too long. Accepts zeroed storage, and a server that has
 * ended. */
void muster_server_stop(struct muster_server *server, struct muster_guard *guard);

#endif
