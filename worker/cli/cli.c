/* What the subcommands share: error messages, and numbers in options. */
#include "worker/cli/cli.h"

#include "worker/base/option_parse.h"

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

muster_status muster_cli_parse_number(const char *what, const char *text, uint32_t min,
                                      uint32_t max, uint32_t *ret_number)
{
    return muster_option_parse_number(what, text, min, max, ret_number);
}
