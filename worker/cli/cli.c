/* What the subcommands share: error messages, and numbers in options. */
#include "worker/cli/cli.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

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
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    bool whole = text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
    if (!whole || number < min || number > max) {
        return muster_error_set(MUSTER_INVALID, "%s: \"%.64s\" is not a number from %u to %u", what,
                                text, min, max);
    }
    *ret_number = (uint32_t)number;
    return MUSTER_OK;
}
