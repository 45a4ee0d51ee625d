/*
 * The `muster` command: its subcommands, and what they share. Nothing in here is installed.
 *
 * A subcommand gets its own arguments and returns the exit status of the process. argv[0] is
 * "muster NAME", which argp prints in usage and error lines. argp parses the options: a wrong one
 * prints one line and a hint, and the exit status is MUSTER_CLI_USAGE.
 */
#ifndef MUSTER_WORKER_CLI_CLI_H
#define MUSTER_WORKER_CLI_CLI_H

#include "worker/base/status.h"

enum muster_cli_exit {
    MUSTER_CLI_DONE = 0,
    MUSTER_CLI_FAILED = 1,
    MUSTER_CLI_USAGE = 2,
    MUSTER_CLI_NOT_EXECUTABLE = 126, /* the command exists but cannot be executed */
    MUSTER_CLI_NOT_FOUND = 127,
};

int muster_cli_run(int argc, char **argv);
int muster_cli_bench(int argc, char **argv);
int muster_cli_plan(int argc, char **argv);
int muster_cli_job(int argc, char **argv);
int muster_cli_timeline(int argc, char **argv);

/* Prints "muster: " and the last error on standard error, and returns `exit_status`. */
int muster_cli_fail(int exit_status);

/* The same with a hint at `muster COMMAND --help', for options that contradict each other. Returns
 * MUSTER_CLI_USAGE. */
int muster_cli_misuse(const char *command);

#endif
