/*
 * The floor: options as users write them. An option is a field of a struct, an environment variable
 * or a word of a command line; numbers are decimal, without sign, blanks or unit.
 *
 * A struct that is filled from the environment cannot report an error. A variable that is not a
 * number therefore becomes MUSTER_OPTION_BAD there, which no option allows, and the check that
 * follows says what is wrong with the variable.
 *
 * Error texts name the option, its variable, the value and what is allowed.
 */
#ifndef MUSTER_WORKER_BASE_OPTION_PARSE_H
#define MUSTER_WORKER_BASE_OPTION_PARSE_H

#include "worker/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define MUSTER_OPTION_BAD UINT32_MAX

/* what: the name for the error text, "--hold-ms". MUSTER_INVALID: the text is not a number, or out
 * of its bounds. */
MUSTER_CHECKED muster_status muster_option_parse_number(const char *what, const char *text,
                                                        uint32_t least, uint32_t most,
                                                        uint32_t *ret_number);

/* The value of an environment variable; NULL if it is not set or empty. */
const char *muster_option_variable(const char *name);
/* MUSTER_OPTION_BAD if the variable is not a number. */
uint32_t muster_option_read_number(const char *name, uint32_t fallback);
/* The same for a switch, which is 0 or 1; -1 if the variable is not a number. */
int muster_option_read_switch(const char *name, int fallback);

/* A number that an option gives, and its bounds. */
struct muster_option_range {
    const char *option, *variable;
    uint32_t least, most;
};

/* MUSTER_INVALID: the number is out of its bounds, or its variable is not a number. */
MUSTER_CHECKED muster_status muster_option_check_number(uint32_t number,
                                                        struct muster_option_range range);
MUSTER_CHECKED muster_status muster_option_check_switch(int value, const char *option,
                                                        const char *variable);

/* Copies a struct of the caller's, which begins with its `size_t size`, over `known`, the same
 * struct as this library has it, filled in with the defaults. known->size becomes known_bytes.
 *   smaller  from an older header: the fields that it lacks keep their defaults
 *   larger   from a newer header: the bytes that this library does not know must be 0
 * type: for the error text, "muster_options". MUSTER_INVALID: `size` was not set, or is larger, and
 * another byte is not 0; *known is then as it was. */
MUSTER_CHECKED muster_status muster_option_copy_struct(const char *type, const void *given,
                                                       void *known, size_t known_bytes);

/* NULL stays NULL. *ret_copy is the caller's. */
MUSTER_CHECKED muster_status muster_option_copy(const char *text, char **ret_copy);

#endif
