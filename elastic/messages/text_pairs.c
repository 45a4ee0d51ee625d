/* A map of texts in a message: lines "name=value" in the value, an object of strings in JSON. */
#include "elastic/messages/messages_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAIR_SIZE = MUSTER_PAIR_NAME_MAX_BYTES + MUSTER_PAIR_VALUE_MAX_BYTES + 3 };

json_t *muster_pairs_encode(const char *text)
{
    json_t *object = json_object();
    while (*text != '\0' && object != NULL) {
        char name[MUSTER_PAIR_NAME_MAX_BYTES + 1];
        size_t line = strcspn(text, "\n");
        size_t length = strcspn(text, "=\n");
        const char *value = text + length + (length < line ? 1 : 0);
        (void)snprintf(name, sizeof name, "%.*s", (int)length, text);
        if (json_object_set_new(object, name, json_stringn(value, (size_t)(text + line - value))) !=
            0) {
            json_decref(object);
            return NULL;
        }
        text += line + (text[line] == '\n' ? 1 : 0);
    }
    return object;
}

static bool name_valid(const char *name)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t length = strspn(name, allowed);
    return name[length] == '\0' && length > 0 && length <= MUSTER_PAIR_NAME_MAX_BYTES;
}

static bool value_valid(const char *value)
{
    for (const char *c = value; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f) {
            return false;
        }
    }
    return true;
}

static muster_status format_pair(const struct muster_field *field, const char *name,
                                 const json_t *json, char ret_line[PAIR_SIZE])
{
    const char *value = json_string_value(json);
    if (!name_valid(name)) {
        return muster_error_set(MUSTER_INVALID,
                                "%s: a name: use 1 to %d letters, digits, '.', '_' and '-'",
                                field->name, MUSTER_PAIR_NAME_MAX_BYTES);
    }
    if (value == NULL || strlen(value) > MUSTER_PAIR_VALUE_MAX_BYTES || !value_valid(value)) {
        return muster_error_set(MUSTER_INVALID,
                                "%s.%s: not a string of at most %d bytes without control "
                                "characters",
                                field->name, name, MUSTER_PAIR_VALUE_MAX_BYTES);
    }
    (void)snprintf(ret_line, PAIR_SIZE, "%s=%s\n", name, value);
    return MUSTER_OK;
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(a, b);
}

muster_status muster_pairs_decode(const struct muster_field *field, const json_t *json,
                                  char *ret_text)
{
    char lines[MUSTER_PAIRS_MAX][PAIR_SIZE];
    size_t count = 0;
    size_t used = 0;
    if (!json_is_object(json) || json_object_size(json) > MUSTER_PAIRS_MAX) {
        return muster_error_set(MUSTER_INVALID, "%s: not an object of at most %d strings",
                                field->name, MUSTER_PAIRS_MAX);
    }
    for (void *at = json_object_iter((json_t *)json); at != NULL;
         at = json_object_iter_next((json_t *)json, at)) {
        TRY(format_pair(field, json_object_iter_key(at), json_object_iter_value(at), lines[count]));
        used += strlen(lines[count++]);
    }
    if (used >= field->size_bytes) {
        return muster_error_set(MUSTER_INVALID, "%s: %zu bytes in all, and %zu are the most",
                                field->name, used, field->size_bytes - 1);
    }
    qsort(lines, count, sizeof lines[0], compare_lines);
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(lines[i]);
        memcpy(ret_text, lines[i], length);
        ret_text += length;
    }
    *ret_text = '\0';
    return MUSTER_OK;
}
