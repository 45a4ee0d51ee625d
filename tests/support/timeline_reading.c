/* Reads the files of timelines, for tests. */
#include "tests/support/timeline_reading.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

uint64_t timeline_file_size(const char *name)
{
    struct stat status;
    return stat(name, &status) == 0 ? (uint64_t)status.st_size : 0;
}

char *timeline_read_text(const char *name)
{
    size_t size = timeline_file_size(name);
    char *text = calloc(1, size + 2);
    FILE *file = fopen(name, "re");
    assert_non_null(file);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, size, file), size);
    (void)fclose(file);
    return text;
}

json_t *timeline_load(const char *path)
{
    json_error_t error;
    json_t *events = json_load_file(path, 0, &error);
    if (events == NULL) {
        fail_msg("line %d: %s", error.line, error.text);
    }
    return events;
}

const char *timeline_text(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    assert_non_null(text);
    return text;
}

double timeline_number(const json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

double timeline_argument(const json_t *event, const char *key)
{
    const json_t *number = json_object_get(json_object_get(event, "args"), key);
    assert_true(json_is_number(number));
    return json_number_value(number);
}

const json_t *timeline_find(const json_t *events, const char *phase, size_t index)
{
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strcmp(timeline_text(event, "ph"), phase) == 0 && index-- == 0) {
            return event;
        }
    }
    return NULL;
}

size_t timeline_count(const json_t *events, const char *phase)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        count += strcmp(timeline_text(json_array_get(events, i), "ph"), phase) == 0;
    }
    return count;
}
