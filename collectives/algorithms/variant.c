/* Variants of algorithms that are one number in brackets (generators.h). */
#include "collectives/algorithms/generators.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/status.h"

muster_status muster_variant_parse(const char *text, const char *key, uint32_t least, uint32_t most,
                                   uint32_t *ret_number)
{
    size_t length = strlen(key);
    bool named = strncmp(text, key, length) == 0 && text[length] == '=';
    const char *digits = named ? text + length + 1 : "";
    char *end = NULL;
    unsigned long number = digits[0] >= '0' && digits[0] <= '9' ? strtoul(digits, &end, 10) : 0;
    if (end == NULL || *end != '\0' || number < least || number > most) {
        return muster_error_set(MUSTER_INVALID,
                                "\"%.64s\": must be %s= and a number from %" PRIu32 " to %" PRIu32,
                                text, key, least, most);
    }
    *ret_number = (uint32_t)number;
    return MUSTER_OK;
}
