/* The options of `muster run`. */
#ifndef MUSTER_WORKER_CLI_RUN_RUN_H
#define MUSTER_WORKER_CLI_RUN_RUN_H

#include "elastic/messages/messages.h"
#include "worker/cli/run/hosts.h"
#include "worker/cli/run/server.h"

#include <stdbool.h>

enum { MUSTER_RUN_ENV_MAX = 256 };

/* The strings are borrowed from argv and the environment. */
struct muster_run_options {
    uint32_t size, min_size, max_size;
    uint32_t target_size; /* of the job at its start */
    struct muster_hosts hosts;
    const char *rendezvous; /* NULL: the job gets a server of its own */
    char job[MUSTER_JOB_NAME_SIZE];
    const char *token;      /* NULL: not given */
    const char *token_file; /* NULL: not given */
    const char *store;      /* NULL: a temporary file */
    const char *timings[MUSTER_SERVER_TIMINGS];
    uint32_t timeout_s; /* 0: not given */
    bool prefix, grow;
    const char *json; /* NULL: no JSON; "-": standard output */
    uint32_t env_count;
    char *env[MUSTER_RUN_ENV_MAX]; /* "NAME=VALUE" */
    char **command;                /* ends with NULL */
};

/* argv[0] is "muster run". Does not return for --help and for options that argp refuses.
 * MUSTER_INVALID names the option that contradicts another. */
MUSTER_CHECKED muster_status muster_run_options_parse(int argc, char **argv,
                                                      struct muster_run_options *ret_options);

#endif
