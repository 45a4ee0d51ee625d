/* C values -> JSON, by the table of fields. */
#include "elastic/messages/base64.h"
#include "elastic/messages/messages_parts.h"
#include "worker/base/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_SIZE = 24 }; /* of a 64-bit number */

/* jansson refuses text that is not UTF-8. Text that was cut in the middle of a character, or that
 * comes from another locale, must not make a response impossible: its bytes above ASCII become '?'.
 */
static json_t *encode_text(const char *text)
{
    json_t *json = json_string(text);
    if (json != NULL) {
        return json;
    }
    AUTO_FREE char *ascii = strdup(text);
    if (ascii == NULL) {
        return NULL;
    }
    for (char *c = ascii; *c != '\0'; c++) {
        if ((unsigned char)*c >= 0x80) {
            *c = '?';
        }
    }
    return json_string(ascii);
}

static json_t *encode_word(const struct muster_field *field, unsigned value)
{
    const char *word = value <= field->max ? field->words[value] : NULL;
    return word != NULL ? json_string(word) : json_integer((json_int_t)value);
}

static json_t *encode_rank(uint32_t rank)
{
    return json_integer(rank == UINT32_MAX ? (json_int_t)-1 : (json_int_t)rank);
}

static json_t *encode_texts(const struct muster_field *field, const char *texts, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count && array != NULL; i++) {
        if (json_array_append_new(array, encode_text(texts + i * field->size_bytes)) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *encode_numbers(const uint32_t *numbers, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count && array != NULL; i++) {
        if (json_array_append_new(array, json_integer((json_int_t)numbers[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *encode_list(const struct muster_service_message *message, const char *items,
                           uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count && array != NULL; i++) {
        json_t *item = muster_message_encode(message, items + i * message->size_bytes);
        if (json_array_append_new(array, item) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *encode_bytes(const void *bytes, size_t size_bytes)
{
    AUTO_FREE char *text = malloc(MUSTER_BASE64_SIZE(size_bytes));
    if (text == NULL) {
        return NULL;
    }
    muster_base64_encode(bytes, size_bytes, text);
    return json_string(text);
}

/* One case a kind of field; NULL: memory is out. */
static json_t *encode_field(const struct muster_field *field, const void *value)
{
    const void *at = (const char *)value + field->offset;
    const void *count_at = (const char *)value + field->count_offset;
    char digits[DIGITS_SIZE];
    switch (field->kind) {
    case MUSTER_FIELD_BOOL:
        return json_boolean(*(const bool *)at);
    case MUSTER_FIELD_UINT32:
        return json_integer(*(const uint32_t *)at);
    case MUSTER_FIELD_RANK:
        return encode_rank(*(const uint32_t *)at);
    case MUSTER_FIELD_INT32:
        return json_integer(*(const int32_t *)at);
    case MUSTER_FIELD_UINT64:
        (void)snprintf(digits, sizeof digits, "%llu", (unsigned long long)*(const uint64_t *)at);
        return json_string(digits);
    case MUSTER_FIELD_INT64:
        (void)snprintf(digits, sizeof digits, "%lld", (long long)*(const int64_t *)at);
        return json_string(digits);
    case MUSTER_FIELD_TEXT:
    case MUSTER_FIELD_LINE:
        return encode_text(at);
    case MUSTER_FIELD_WORD:
        return encode_word(field, *(const unsigned *)at);
    case MUSTER_FIELD_PAIRS:
        return muster_pairs_encode(at);
    case MUSTER_FIELD_TEXTS:
        return encode_texts(field, at, *(const uint32_t *)count_at);
    case MUSTER_FIELD_OWNED_TEXTS:
        return encode_texts(field, *(const char *const *)at, *(const uint32_t *)count_at);
    case MUSTER_FIELD_NUMBERS:
        return encode_numbers(*(const uint32_t *const *)at, *(const uint32_t *)count_at);
    case MUSTER_FIELD_BYTES:
        return encode_bytes(*(const void *const *)at, *(const size_t *)count_at);
    case MUSTER_FIELD_LIST:
        return encode_list(field->message, *(const char *const *)at, *(const uint32_t *)count_at);
    case MUSTER_FIELD_PART:
        return muster_message_encode(field->message, value);
    }
    return NULL;
}

/* True for the value that a proto3 reader assumes for an absent field. */
static bool is_default(const struct muster_field *field, const json_t *json)
{
    const char *text = json_string_value(json);
    if (text != NULL) {
        bool digits = field->kind == MUSTER_FIELD_UINT64 || field->kind == MUSTER_FIELD_INT64;
        bool word = field->kind == MUSTER_FIELD_WORD && field->words[0] != NULL;
        return text[0] == '\0' || (digits && strcmp(text, "0") == 0) ||
               (word && strcmp(text, field->words[0]) == 0);
    }
    return json_is_false(json) || (json_is_integer(json) && json_integer_value(json) == 0) ||
           (json_is_array(json) && json_array_size(json) == 0) ||
           (field->kind == MUSTER_FIELD_PAIRS && json_object_size(json) == 0);
}

json_t *muster_message_encode(const struct muster_service_message *message, const void *value)
{
    json_t *object = json_object();
    for (size_t i = 0; i < message->field_count && object != NULL; i++) {
        const struct muster_field *field = &message->fields[i];
        json_t *json = encode_field(field, value);
        if (json != NULL && message->sparse && is_default(field, json)) {
            json_decref(json);
            continue;
        }
        if (json_object_set_new(object, field->name, json) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}
