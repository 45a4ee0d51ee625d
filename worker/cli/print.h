/* What all subcommands print with: numbers and their units, and JSON, one object a line. */
#ifndef MUSTER_WORKER_CLI_PRINT_H
#define MUSTER_WORKER_CLI_PRINT_H

#include "worker/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    MUSTER_CLI_UNIT_TEXT_SIZE = 32,
    MUSTER_CLI_TIME_DIGITS = 6, /* of a measured or predicted number in JSON */
    MUSTER_CLI_ALL_DIGITS = 0,  /* as many as it takes to read the same number again */
};

/* "s" unless the count is 1. */
static inline const char *muster_cli_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static inline double muster_cli_seconds(int64_t ms)
{
    return (double)ms / 1000;
}

/* "64 KiB", "1.172 KiB"; "12.5 us", "1.00 ms". They return their last argument. */
const char *muster_cli_format_bytes(uint64_t bytes, char ret_text[MUSTER_CLI_UNIT_TEXT_SIZE]);
const char *muster_cli_format_us(double us, char ret_text[MUSTER_CLI_UNIT_TEXT_SIZE]);

/* Writes one line. False: it could not be written, or the object is NULL; errno says why. */
bool muster_cli_write_json(const json_t *object, unsigned digits, FILE *out);

/* The same to standard output; takes the object. MUSTER_FATAL: it could not be written. */
MUSTER_CHECKED muster_status muster_cli_print_json(json_t *object, unsigned digits);

/* To be called when all is printed: a full disk or a closed pipe may show only here.
 * MUSTER_FATAL: standard output could not be written. */
MUSTER_CHECKED muster_status muster_cli_flush(void);

#endif
