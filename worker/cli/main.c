/* The `muster` command: finds the subcommand and calls it. */
#include "worker/cli/cli.h"

#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct command {
    const char *name;
    int (*main)(int argc, char **argv);
};

enum { NAME_MAX_BYTES = 32 };

struct choice {
    const struct command *command;
    int first; /* index of the command's name in argv */
};

static const char doc[] =
    "Runs jobs whose workers may join and leave, shows and resizes them, and measures collectives."
    "\v"
    "Commands:\n"
    "  run      start the workers of a job and supervise them until it ends\n"
    "             muster run -n 4 -- ./train --epochs 3\n"
    "  job      list, show, resize or end the jobs of a rendezvous server\n"
    "             muster job resize train 6 --rendezvous http://127.0.0.1:7070\n"
    "  bench    measure collectives\n"
    "             muster bench allreduce -n 4 --bytes 1K,1M --transport tcp\n"
    "  plan     draw, check and compare the schedules of a collective\n"
    "             muster plan allreduce --ranks 8 --algorithm ring\n"
    "  timeline show what the members of a job spent their time on\n"
    "             muster timeline /tmp/t.1.0.json\n"
    "\n"
    "`muster COMMAND --help' describes a command and its options.";

static const struct command *find_command(const char *name)
{
    static const struct command commands[] = {
        {"run", muster_cli_run},   {"job", muster_cli_job},           {"bench", muster_cli_bench},
        {"plan", muster_cli_plan}, {"timeline", muster_cli_timeline},
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct choice *choice = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        choice->command = find_command(argument);
        if (choice->command == NULL) {
            argp_error(state,
                       "there is no command \"%.64s\": use run, job, bench, plan or timeline",
                       argument);
            return EINVAL;
        }
        choice->first = state->next - 1;
        state->next = state->argc; /* the remaining arguments are the subcommand's */
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "a command is missing: run, job, bench, plan or timeline");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    (void)fprintf(stream, "muster %s\n", muster_version());
}

int main(int argc, char **argv)
{
    static const struct argp argp = {.parser = parse, .args_doc = "COMMAND [ARGS...]", .doc = doc};
    argp_program_version_hook = print_version;
    argp_err_exit_status = MUSTER_CLI_USAGE;
    (void)signal(SIGXFSZ, SIG_IGN); /* a file beyond `ulimit -f` is an error, as on a full disk */
    struct choice choice = {0};
    char me[] = "muster"; /* in messages, whatever path the command was started by */
    argv[0] = me;
    error_t failed = argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &choice);
    if (failed != 0 || choice.command == NULL) {
        return MUSTER_CLI_USAGE;
    }
    char name[NAME_MAX_BYTES];
    (void)snprintf(name, sizeof name, "muster %s", choice.command->name);
    argv[choice.first] = name;
    return choice.command->main(argc - choice.first, argv + choice.first);
}
