/* Options as users write them: numbers, switches and strings, and what is wrong with them. */
#include "worker/base/option_parse.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool read_number(const char *text, uint32_t *ret_number)
{
    if (text[0] < '0' || text[0] > '9') {
        return false; /* strtoull takes signs and spaces */
    }
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || number >= MUSTER_OPTION_BAD) {
        return false;
    }
    *ret_number = (uint32_t)number;
    return true;
}

muster_status muster_option_parse_number(const char *what, const char *text, uint32_t least,
                                         uint32_t most, uint32_t *ret_number)
{
    uint32_t number = 0;
    if (!read_number(text, &number) || number < least || number > most) {
        return muster_error_set(MUSTER_INVALID, "%s: \"%.64s\" is not a number from %u to %u", what,
                                text, least, most);
    }
    *ret_number = number;
    return MUSTER_OK;
}

const char *muster_option_variable(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

uint32_t muster_option_read_number(const char *name, uint32_t fallback)
{
    const char *text = muster_option_variable(name);
    uint32_t number = fallback;
    return text == NULL || read_number(text, &number) ? number : MUSTER_OPTION_BAD;
}

int muster_option_read_switch(const char *name, int fallback)
{
    uint32_t number = muster_option_read_number(name, (uint32_t)fallback);
    return number == MUSTER_OPTION_BAD ? -1 : (int)(number & INT32_MAX);
}

muster_status muster_option_check_number(uint32_t number, struct muster_option_range range)
{
    if (number >= range.least && number <= range.most) {
        return MUSTER_OK;
    }
    const char *text = muster_option_variable(range.variable);
    uint32_t unused = 0;
    if (number == MUSTER_OPTION_BAD && text != NULL && !read_number(text, &unused)) {
        return muster_error_set(MUSTER_INVALID, "%s=\"%.64s\": must be a number from %u to %u",
                                range.variable, text, range.least, range.most);
    }
    return muster_error_set(MUSTER_INVALID, "%s (%s) %u: must be from %u to %u", range.option,
                            range.variable, number, range.least, range.most);
}

muster_status muster_option_check_switch(int value, const char *option, const char *variable)
{
    uint32_t number = value < 0 ? MUSTER_OPTION_BAD : (uint32_t)value;
    return muster_option_check_number(number, (struct muster_option_range){option, variable, 0, 1});
}

muster_status muster_option_copy(const char *text, char **ret_copy)
{
    char *copied = text != NULL ? strdup(text) : NULL;
    if (text != NULL && copied == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    *ret_copy = copied;
    return MUSTER_OK;
}

/* No struct of options is larger: such a size was not set, but found in memory. */
enum { STRUCT_BYTES_MAX = 4096 };

muster_status muster_option_copy_struct(const char *type, const void *given, void *known,
                                        size_t known_bytes)
{
    size_t given_bytes;
    memcpy(&given_bytes, given, sizeof given_bytes);
    if (given_bytes < sizeof given_bytes || given_bytes > STRUCT_BYTES_MAX) {
        return muster_error_set(MUSTER_INVALID, "%s: size is %zu: %s_init() sets it", type,
                                given_bytes, type);
    }
    for (size_t i = known_bytes; i < given_bytes; i++) {
        if (((const unsigned char *)given)[i] != 0) {
            return muster_error_set(MUSTER_INVALID,
                                    "%s: an option is set that this library does not have: it "
                                    "knows %zu bytes of %zu",
                                    type, known_bytes, given_bytes);
        }
    }
    memcpy(known, given, given_bytes < known_bytes ? given_bytes : known_bytes);
    memcpy(known, &known_bytes, sizeof known_bytes);
    return MUSTER_OK;
}
