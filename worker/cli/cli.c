/* What the subcommands share: error messages. */
#include "worker/cli/cli.h"

#include <stdio.h>

int muster_cli_fail(int exit_status)
{
    (void)fprintf(stderr, "muster: %s\n", muster_last_error());
    return exit_status;
}

int muster_cli_misuse(const char *command)
{
    (void)fprintf(stderr, "muster %s: %s\nTry `muster %s --help' for more information.\n", command,
                  muster_last_error(), command);
    return MUSTER_CLI_USAGE;
}
