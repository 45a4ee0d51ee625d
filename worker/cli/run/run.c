/* `muster run`: parses its options and starts the launcher. */
#include "worker/cli/run/run.h"

#include "worker/base/cleanup.h"
#include "worker/base/option_parse.h"
#include "worker/cli/cli.h"
#include "worker/cli/run/run_parts.h"
#include "worker/cli/service.h"
#include "worker/session/rendezvous_client.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_MIN = 256,
    KEY_MAX,
    KEY_HOSTS,
    KEY_RENDEZVOUS,
    KEY_JOB,
    KEY_TOKEN_FILE,
    KEY_SERVER_TOKEN_FILE,
    KEY_STORE,
    KEY_TIMEOUT,
    KEY_ENV,
    KEY_NO_PREFIX,
    KEY_NO_GROW,
    KEY_JSON,
    KEY_TIMINGS, /* and those that follow, in the order of muster_server_timings */
    TIMEOUT_MAX_S = 7 * 24 * 3600,
};

static const char doc[] =
    "Starts the workers of a job on this machine and supervises them until the job ends. Each "
    "worker finds the job in its environment (MUSTER_RENDEZVOUS, MUSTER_JOB, MUSTER_TOKEN, ...), "
    "which muster_open() reads."
    "\v"
    "Examples:\n"
    "  muster run -n 4 -- ./train --epochs 3\n"
    "  muster run -n 4 --min 2 --max 8 --hosts a:2,b:2 -- ./train\n"
    "\n"
    "Each line that a worker prints gets a prefix: with --hosts [HOST:SLOT], else the number of "
    "the "
    "worker, [3]. A worker keeps its prefix as long as it lives. A worker that dies is reported "
    "and "
    "not replaced: the job continues as long as --min workers are left. `muster job resize' "
    "changes "
    "the size while the job runs.\n"
    "\n"
    "The first Ctrl-C or SIGTERM sends SIGTERM to the workers; a worker that uses muster_run() "
    "then "
    "leaves without losing work. The second one kills them.\n"
    "\n"
    "Exit status: 0 if the job finished, even if workers died and the others continued; otherwise "
    "that of the first worker that failed (128 + N if signal N killed it); 128 + N after Ctrl-C or "
    "SIGTERM; 127 or 126 if the command cannot be executed; 2 for wrong options; 1 if the job "
    "could "
    "not be started.\n"
    "\n"
    "Environment: MUSTER_RENDEZVOUS, MUSTER_JOB, MUSTER_MIN and MUSTER_MAX are the defaults of the "
    "options with these names, MUSTER_TOKEN is the token if there is no --token-file. With "
    "NO_COLOR "
    "prefixes have no colours on a terminal.";

static const struct argp_option options_table[] = {
    {NULL, 0, NULL, 0, "Workers:", 1},
    {"workers", 'n', "N", 0, "Start N workers [default: the slots of --hosts, else 1]", 1},
    {"min", KEY_MIN, "N", 0, "The job continues while it has at least N workers [default: -n]", 1},
    {"max", KEY_MAX, "N", 0,
     "The job never has more than N workers [default: -n, or --min if larger]", 1},
    {"hosts", KEY_HOSTS, "a:2,b:2", 0,
     "Pretend that the workers run on several hosts: here two on host a and two on host b. All of "
     "them run on this machine",
     1},
    {"env", KEY_ENV, "NAME=VALUE", 0,
     "Set an environment variable of the workers; may be given several times", 1},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0,
     "How long the job waits until it has --min workers [default: 60; but if workers die and too "
     "few are left of a job with a musterd of its own, the job ends at once]",
     1},
    {NULL, 0, NULL, 0, "Job and server:", 2},
    {"rendezvous", KEY_RENDEZVOUS, "URL", 0,
     "Use this server, http://HOST:PORT [default: start a musterd for this job alone]", 2},
    {"job", KEY_JOB, "NAME", 0, "The name of the job [default: the name of the command]", 2},
    {"token-file", KEY_TOKEN_FILE, "PATH", 0,
     "The first line of this file is the secret token of the job. A file that does not exist is "
     "created with a random token [default: MUSTER_TOKEN, else a random token in a temporary file]",
     2},
    {"server-token-file", KEY_SERVER_TOKEN_FILE, "PATH", 0,
     "The first line of this file is a worker's token of the server of --rendezvous [default: "
     "MUSTER_SERVER_TOKEN]",
     2},
    {"store", KEY_STORE, "PATH", 0,
     "The file in which the job's own musterd stores the state of the job [default: a temporary "
     "one]",
     2},
    {"hold-ms", KEY_TIMINGS, "MS", 0, "As the options of the job's own musterd:", 2},
    {"lease-ms", KEY_TIMINGS + 1, "MS", 0, NULL, 2},
    {"settle-ms", KEY_TIMINGS + 2, "MS", 0, NULL, 2},
    {"arrive-ms", KEY_TIMINGS + 3, "MS", 0, NULL, 2},
    {"suspect-ms", KEY_TIMINGS + 4, "MS", 0, "see `musterd --help'", 2},
    {"no-grow", KEY_NO_GROW, NULL, 0,
     "Do not start workers when the job is resized, because another launcher does", 2},
    {NULL, 0, NULL, 0, "Output:", 3},
    {"no-prefix", KEY_NO_PREFIX, NULL, 0, "Print the lines of workers without a prefix", 3},
    {"json", KEY_JSON, "PATH", 0,
     "Write the summary to PATH as one JSON object. If PATH is -, it goes to standard output, and "
     "the workers' standard output goes to standard error",
     3},
    {0},
};

struct parsing {
    struct muster_run_options options;
    const char *min, *max, *job, *hosts;
    const char *size;
};

/* --env, the timings, and the command after the options. */
static error_t parse_repeated(int key, char *argument, struct argp_state *state)
{
    struct muster_run_options *options = &((struct parsing *)state->input)->options;
    if (key >= KEY_TIMINGS && key < KEY_TIMINGS + MUSTER_SERVER_TIMINGS) {
        options->timings[key - KEY_TIMINGS] = argument;
        return 0;
    }
    switch (key) {
    case KEY_ENV:
        if (argument[0] == '=' || strchr(argument, '=') == NULL) {
            argp_error(state, "--env: \"%.80s\" is not NAME=VALUE", argument);
        } else if (options->env_count == MUSTER_RUN_ENV_MAX) {
            argp_error(state, "--env: more than %d variables", MUSTER_RUN_ENV_MAX);
        } else {
            options->env[options->env_count++] = argument;
        }
        return 0;
    case ARGP_KEY_ARG:
        options->command = state->argv + state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "a command is missing: muster run -n 4 -- COMMAND");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Keeps the texts of options that depend on others: they are parsed when all are known. */
static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct parsing *parsing = state->input;
    struct muster_run_options *options = &parsing->options;
    switch (key) {
    case 'n':
        parsing->size = argument;
        return 0;
    case KEY_MIN:
        parsing->min = argument;
        return 0;
    case KEY_MAX:
        parsing->max = argument;
        return 0;
    case KEY_HOSTS:
        parsing->hosts = argument;
        return 0;
    case KEY_RENDEZVOUS:
        options->rendezvous = argument;
        return 0;
    case KEY_JOB:
        parsing->job = argument;
        return 0;
    case KEY_TOKEN_FILE:
        options->token_file = argument;
        return 0;
    case KEY_SERVER_TOKEN_FILE:
        if (muster_service_use_server_token(argument) != MUSTER_OK) {
            argp_error(state, "%s", muster_last_error());
        }
        return 0;
    case KEY_STORE:
        options->store = argument;
        return 0;
    case KEY_TIMEOUT:
        if (muster_option_parse_number("--timeout", argument, 1, TIMEOUT_MAX_S,
                                       &options->timeout_s) != MUSTER_OK) {
            argp_error(state, "%s", muster_last_error());
        }
        return 0;
    case KEY_NO_PREFIX:
        options->prefix = false;
        return 0;
    case KEY_NO_GROW:
        options->grow = false;
        return 0;
    case KEY_JSON:
        options->json = argument;
        return 0;
    default:
        return parse_repeated(key, argument, state);
    }
}

/* The name of the command, with '-' for characters that the name of a job cannot have. */
static void job_name_of_command(const char *command, char ret_job[MUSTER_JOB_NAME_SIZE])
{
    const char *slash = strrchr(command, '/');
    const char *name = slash != NULL ? slash + 1 : command;
    size_t used = 0;
    for (; *name != '\0' && used < MUSTER_JOB_NAME_SIZE - 1; name++) {
        bool good = isalnum((unsigned char)*name) || strchr("._-", *name) != NULL;
        ret_job[used++] = '-';
        if (good) {
            ret_job[used - 1] = *name;
        }
    }
    ret_job[used] = '\0';
    if (used == 0) {
        (void)snprintf(ret_job, MUSTER_JOB_NAME_SIZE, "job");
    }
}

static muster_status resolve_job(struct parsing *parsing)
{
    if (parsing->job == NULL) {
        job_name_of_command(parsing->options.command[0], parsing->options.job);
        return MUSTER_OK;
    }
    if (!muster_job_name_valid(parsing->job)) {
        return muster_error_set(MUSTER_INVALID,
                                "--job: \"%.80s\" is not 1 to %d letters, digits, '.', '_' or '-'",
                                parsing->job, MUSTER_JOB_NAME_SIZE - 1);
    }
    (void)snprintf(parsing->options.job, sizeof parsing->options.job, "%s", parsing->job);
    return MUSTER_OK;
}

/* Works out the sizes that are not given, in the order in which they depend on each other (-n,
 * --min, --max), and refuses those that contradict each other. */
static muster_status resolve_sizes(struct parsing *parsing)
{
    struct muster_run_options *options = &parsing->options;
    if (parsing->hosts != NULL) {
        TRY(muster_hosts_parse(parsing->hosts, &options->hosts));
    }
    options->size = options->hosts.count > 0 ? options->hosts.slots : 1;
    if (parsing->size != NULL) {
        TRY(muster_option_parse_number("-n", parsing->size, 1, MUSTER_RUN_SIZE_MAX,
                                       &options->size));
    }
    if (options->hosts.count > 0 && options->size > options->hosts.slots) {
        return muster_error_set(MUSTER_INVALID, "-n %u: --hosts has only %u slots", options->size,
                                options->hosts.slots);
    }
    options->min_size = options->size;
    if (parsing->min != NULL) {
        TRY(muster_option_parse_number("--min", parsing->min, 1, MUSTER_MEMBERS_MAX,
                                       &options->min_size));
    }
    options->target_size = options->min_size > options->size ? options->min_size : options->size;
    options->max_size = options->target_size;
    if (parsing->max != NULL) {
        TRY(muster_option_parse_number("--max", parsing->max, 1, MUSTER_MEMBERS_MAX,
                                       &options->max_size));
    }
    if (options->max_size < options->min_size || options->max_size < options->size) {
        return muster_error_set(MUSTER_INVALID, "--max %u is less than %s %u", options->max_size,
                                options->max_size < options->size ? "-n" : "--min",
                                options->max_size < options->size ? options->size
                                                                  : options->min_size);
    }
    if (options->rendezvous == NULL && options->min_size > options->size) {
        return muster_error_set(MUSTER_INVALID,
                                "--min %u is more than -n %u, and without --rendezvous no others "
                                "can join",
                                options->min_size, options->size);
    }
    return MUSTER_OK;
}

static muster_status check_timings(const struct muster_run_options *options)
{
    for (size_t i = 0; i < MUSTER_SERVER_TIMINGS; i++) {
        char what[32];
        uint32_t unused;
        (void)snprintf(what, sizeof what, "--%s", muster_server_timings[i]);
        if (options->timings[i] == NULL) {
            continue;
        }
        TRY(muster_option_parse_number(what, options->timings[i], 0, INT32_MAX, &unused));
        if (options->rendezvous != NULL) {
            return muster_error_set(MUSTER_INVALID,
                                    "%s is for the job's own musterd, but --rendezvous %s is given",
                                    what, options->rendezvous);
        }
    }
    return MUSTER_OK;
}

static muster_status resolve_options(struct parsing *parsing)
{
    TRY(resolve_job(parsing));
    TRY(resolve_sizes(parsing));
    TRY(check_timings(&parsing->options));
    if (parsing->options.rendezvous != NULL) {
        TRY(muster_client_check_url(parsing->options.rendezvous));
        if (parsing->options.store != NULL) {
            return muster_error_set(MUSTER_INVALID,
                                    "--store is for the job's own musterd, but --rendezvous %s is "
                                    "given",
                                    parsing->options.rendezvous);
        }
    }
    return MUSTER_OK;
}

muster_status muster_run_options_parse(int argc, char **argv,
                                       struct muster_run_options *ret_options)
{
    static const struct argp argp = {options_table, parse, "COMMAND [ARGS...]", doc, NULL,
                                     NULL,          NULL};
    AUTO_FREE struct parsing *parsing = calloc(1, sizeof *parsing);
    if (parsing == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    parsing->options.prefix = true;
    parsing->options.grow = true;
    parsing->options.rendezvous = muster_option_variable("MUSTER_RENDEZVOUS");
    parsing->options.token = muster_option_variable("MUSTER_TOKEN");
    parsing->job = muster_option_variable("MUSTER_JOB");
    parsing->min = muster_option_variable("MUSTER_MIN");
    parsing->max = muster_option_variable("MUSTER_MAX");
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, parsing) != 0) {
        return muster_error_set(MUSTER_INVALID, "the options cannot be read");
    }
    TRY(resolve_options(parsing));
    *ret_options = parsing->options;
    return MUSTER_OK;
}

int muster_cli_run(int argc, char **argv)
{
    AUTO_FREE struct muster_run_options *options = calloc(1, sizeof *options);
    if (options == NULL) {
        (void)muster_error_set(MUSTER_FATAL, "out of memory");
        return muster_cli_fail(MUSTER_CLI_FAILED);
    }
    if (muster_run_options_parse(argc, argv, options) != MUSTER_OK) {
        return muster_cli_misuse("run");
    }
    return muster_supervise(options);
}
