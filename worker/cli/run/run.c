/* `muster run`: its options, and its main(). */
#include "worker/cli/run/run.h"

#include "worker/base/cleanup.h"
#include "worker/cli/cli.h"
#include "worker/cli/run/run_parts.h"
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
    KEY_STORE,
    KEY_TIMEOUT,
    KEY_ENV,
    KEY_NO_PREFIX,
    KEY_NO_GROW,
    KEY_JSON,
    TIMEOUT_MAX_S = 7 * 24 * 3600,
};

static const char doc[] =
    "Starts workers on this machine and keeps them together until the job is over. Each worker "
    "finds the job in its environment (MUSTER_RENDEZVOUS, MUSTER_JOB, MUSTER_TOKEN, ...), which a "
    "program that calls muster_open() reads by itself."
    "\v"
    "Examples:\n"
    "  muster run -n 4 -- ./train --epochs 3\n"
    "  muster run -n 4 --min 2 --max 8 --hosts a:2,b:2 -- ./train\n"
    "\n"
    "Each line that a worker prints begins with [HOST:SLOT], with --hosts, or else with [WORKER]; "
    "both keep to their worker for good. A worker that dies is reported and not replaced: the "
    "others go on as long as --min are left. `muster job resize' changes the size while the job "
    "runs.\n"
    "\n"
    "The first Ctrl-C or SIGTERM sends SIGTERM to the workers, which those that use muster_run() "
    "take as a planned end; the second kills them.\n"
    "\n"
    "Exit status: 0 if the job finished, even if workers died on the way and the others went on; "
    "else that of the first worker that failed (128 + N if signal N killed it); 128 + N after "
    "Ctrl-C or SIGTERM; 127 or 126 if the command cannot be executed; 2 for wrong options; 1 if "
    "the job could not be started.\n"
    "\n"
    "Environment: MUSTER_RENDEZVOUS, MUSTER_JOB, MUSTER_TOKEN, MUSTER_MIN and MUSTER_MAX stand for "
    "the options of these names. NO_COLOR keeps prefixes plain on a terminal.";

static const struct argp_option options_table[] = {
    {"workers", 'n', "N", 0, "Start N workers [default: the slots of --hosts, else 1]", 1},
    {"min", KEY_MIN, "N", 0, "The job goes on with at least N workers [default: -n]", 1},
    {"max", KEY_MAX, "N", 0, "It never has more than N [default: -n, or --min if larger]", 1},
    {"hosts", KEY_HOSTS, "a:2,b:2", 0,
     "Pretend that the workers run on these hosts, so many on each", 1},
    {"env", KEY_ENV, "NAME=VALUE", 0, "Set a variable for the workers; may be repeated", 1},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0,
     "How long the job waits for --min workers [default: 60; but if a worker dies, nobody else "
     "can come, and too few are left, the job ends at once]",
     1},
    {"rendezvous", KEY_RENDEZVOUS, "URL", 0,
     "Use this server, http://HOST:PORT [default: start a musterd for this job alone]", 2},
    {"job", KEY_JOB, "NAME", 0, "The job's name [default: the command's]", 2},
    {"token-file", KEY_TOKEN_FILE, "PATH", 0,
     "The file whose first line is the job's secret token; made, with a random one, if it is not "
     "there [default: MUSTER_TOKEN, else a random token in a temporary file]",
     2},
    {"store", KEY_STORE, "PATH", 0,
     "Where the job's own musterd keeps what happened [default: memory]", 2},
    {"no-grow", KEY_NO_GROW, NULL, 0,
     "Start no more workers when the job is resized: another launcher does", 2},
    {"no-prefix", KEY_NO_PREFIX, NULL, 0, "Print the workers' lines as they are", 3},
    {"json", KEY_JSON, "PATH", 0,
     "Write the summary as one JSON object to PATH; to standard output if it is -, and then all "
     "that workers print goes to standard error",
     3},
    {0},
};

struct parsing {
    struct muster_run_options options;
    const char *min, *max, *job, *hosts;
    const char *size;
};

static error_t parse_repeated(int key, char *argument, struct argp_state *state)
{
    struct muster_run_options *options = &((struct parsing *)state->input)->options;
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
    case KEY_STORE:
        options->store = argument;
        return 0;
    case KEY_TIMEOUT:
        if (muster_cli_parse_number("--timeout", argument, 1, TIMEOUT_MAX_S, &options->timeout_s) !=
            MUSTER_OK) {
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

/* NULL for a variable that is not set, or empty. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* The command's name, so far as it can be a job's. */
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

static muster_status resolve_sizes(struct parsing *parsing)
{
    struct muster_run_options *options = &parsing->options;
    if (parsing->hosts != NULL) {
        TRY(muster_hosts_parse(parsing->hosts, &options->hosts));
    }
    options->size = options->hosts.count > 0 ? options->hosts.slots : 1;
    if (parsing->size != NULL) {
        TRY(muster_cli_parse_number("-n", parsing->size, 1, MUSTER_RUN_SIZE_MAX, &options->size));
    }
    if (options->hosts.count > 0 && options->size > options->hosts.slots) {
        return muster_error_set(MUSTER_INVALID, "-n %u: --hosts has only %u slots", options->size,
                                options->hosts.slots);
    }
    options->min_size = options->size;
    if (parsing->min != NULL) {
        TRY(muster_cli_parse_number("--min", parsing->min, 1, MUSTER_MEMBERS_MAX,
                                    &options->min_size));
    }
    options->target_size = options->min_size > options->size ? options->min_size : options->size;
    options->max_size = options->target_size;
    if (parsing->max != NULL) {
        TRY(muster_cli_parse_number("--max", parsing->max, 1, MUSTER_MEMBERS_MAX,
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
                                "--min %u is more than -n %u, and without --rendezvous nobody else "
                                "can join",
                                options->min_size, options->size);
    }
    return MUSTER_OK;
}

static muster_status resolve_options(struct parsing *parsing)
{
    TRY(resolve_job(parsing));
    TRY(resolve_sizes(parsing));
    if (parsing->options.rendezvous != NULL) {
        TRY(muster_client_check_url(parsing->options.rendezvous));
        if (parsing->options.store != NULL) {
            return muster_error_set(MUSTER_INVALID,
                                    "--store is for a musterd of the job's own, and --rendezvous "
                                    "%s is given",
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
    parsing->options.rendezvous = variable("MUSTER_RENDEZVOUS");
    parsing->options.token = variable("MUSTER_TOKEN");
    parsing->job = variable("MUSTER_JOB");
    parsing->min = variable("MUSTER_MIN");
    parsing->max = variable("MUSTER_MAX");
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
