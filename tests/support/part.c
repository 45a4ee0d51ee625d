/* Follows a path through objects and arrays of a JSON answer. */
#include "tests/support/part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const json_t *test_part(const json_t *json, const char *path)
{
    char parts[128];
    char *rest = NULL;
    (void)snprintf(parts, sizeof parts, "%s", path);
    for (char *part = strtok_r(parts, ".", &rest); part != NULL && json != NULL;
         part = strtok_r(NULL, ".", &rest)) {
        json = json_is_array(json) ? json_array_get(json, strtoul(part, NULL, 10))
                                   : json_object_get(json, part);
    }
    return json;
}

const char *test_part_text(const json_t *json, const char *path)
{
    const char *text = json_string_value(test_part(json, path));
    return text != NULL ? text : "";
}

long long test_part_number(const json_t *json, const char *path)
{
    const json_t *part = test_part(json, path);
    if (json_is_string(part)) {
        return strtoll(json_string_value(part), NULL, 10);
    }
    return json_is_integer(part) ? json_integer_value(part) : -1;
}
