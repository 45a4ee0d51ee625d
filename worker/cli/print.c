/* What all subcommands print with: numbers and their units, and JSON, one object a line. */
#include "worker/cli/print.h"

#include <errno.h>
#include <inttypes.h>

const char *muster_cli_format_bytes(uint64_t bytes, char ret_text[MUSTER_CLI_UNIT_TEXT_SIZE])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    double scaled = (double)bytes;
    size_t unit = 0;
    for (; scaled >= 1024 && unit < 3; unit++) {
        scaled /= 1024;
    }
    (void)snprintf(ret_text, MUSTER_CLI_UNIT_TEXT_SIZE, "%.4g %s", scaled, units[unit]);
    return ret_text;
}

const char *muster_cli_format_us(double us, char ret_text[MUSTER_CLI_UNIT_TEXT_SIZE])
{
    static const char *const units[] = {"us", "ms", "s"};
    size_t unit = 0;
    for (; us >= 999.5 && unit < 2; unit++) {
        us /= 1000;
    }
    int decimals = us < 9.995 ? 2 : us < 99.95 ? 1 : 0; /* three digits */
    (void)snprintf(ret_text, MUSTER_CLI_UNIT_TEXT_SIZE, "%.*f %s", decimals, us, units[unit]);
    return ret_text;
}

bool muster_cli_write_json(const json_t *object, unsigned digits, FILE *out)
{
    if (object == NULL) {
        errno = ENOMEM; /* jansson's only reason */
        return false;
    }
    return json_dumpf(object, out, JSON_COMPACT | JSON_REAL_PRECISION(digits)) == 0 &&
           fputc('\n', out) != EOF;
}

muster_status muster_cli_print_json(json_t *object, unsigned digits)
{
    bool written = muster_cli_write_json(object, digits, stdout);
    muster_status status =
        written ? MUSTER_OK : muster_error_errno(MUSTER_FATAL, "standard output");
    json_decref(object);
    return status;
}

muster_status muster_cli_flush(void)
{
    return fflush(stdout) == 0 && ferror(stdout) == 0
               ? MUSTER_OK
               : muster_error_errno(MUSTER_FATAL, "standard output");
}
