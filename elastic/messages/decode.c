/* JSON -> C values, by the table of fields; every bound is checked here. */
#include "elastic/messages/base64.h"
#include "elastic/messages/messages_parts.h"
#include "worker/base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIELD_NAME_SIZE = 40 };

struct number {
    bool negative;
    uint64_t magnitude;
};

static muster_status decode_fields(const struct muster_service_message *message, const json_t *json,
                                   void *value);

static bool parse_digits(const char *text, struct number *ret_number)
{
    bool negative = text[0] == '-';
    const char *digits = text + negative;
    if (!isdigit((unsigned char)digits[0])) {
        return false; /* strtoull accepts blanks and signs before the digits */
    }
    char *end;
    errno = 0;
    unsigned long long magnitude = strtoull(digits, &end, 10);
    if (errno != 0 || *end != '\0') {
        return false;
    }
    *ret_number = (struct number){.negative = negative && magnitude != 0, .magnitude = magnitude};
    return true;
}

static bool parse_real(double real, struct number *ret_number)
{
    const double limit = 9007199254740992.0; /* 2^53: whole numbers are exact up to here */
    if (!(real >= -limit && real <= limit) || (double)(int64_t)real != real) {
        return false;
    }
    *ret_number = (struct number){.negative = real < 0,
                                  .magnitude = (uint64_t)(int64_t)(real < 0 ? -real : real)};
    return true;
}

/* In proto3's JSON a number of any width may be a number or a string. */
static bool parse_number(const json_t *json, struct number *ret_number)
{
    if (json_is_string(json)) {
        return parse_digits(json_string_value(json), ret_number);
    }
    if (json_is_real(json)) {
        return parse_real(json_real_value(json), ret_number);
    }
    if (!json_is_integer(json)) {
        return false;
    }
    json_int_t integer = json_integer_value(json);
    *ret_number = (struct number){
        .negative = integer < 0,
        .magnitude = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer,
    };
    return true;
}

static muster_status decode_unsigned(const struct muster_field *field, const json_t *json,
                                     uint64_t type_max, uint64_t *ret_number)
{
    uint64_t max = field->max != 0 ? field->max : type_max;
    struct number number;
    if (!parse_number(json, &number) || number.negative || number.magnitude > max) {
        return muster_error_set(MUSTER_INVALID, "%s: not a whole number from 0 to %llu",
                                field->name, (unsigned long long)max);
    }
    *ret_number = number.magnitude;
    return MUSTER_OK;
}

static muster_status decode_signed(const struct muster_field *field, const json_t *json,
                                   int64_t min, int64_t max, int64_t *ret_number)
{
    struct number number = {0};
    bool good = parse_number(json, &number);
    uint64_t most = number.negative ? 0 - (uint64_t)min : (uint64_t)max;
    if (!good || number.magnitude > most) {
        return muster_error_set(MUSTER_INVALID, "%s: not a whole number from %lld to %lld",
                                field->name, (long long)min, (long long)max);
    }
    *ret_number = (int64_t)(number.negative ? 0 - number.magnitude : number.magnitude);
    return MUSTER_OK;
}

static bool is_uuid(const char *text)
{
    static const char shape[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    for (size_t i = 0; i < sizeof shape; i++) {
        if (shape[i] == 'x' ? !isxdigit((unsigned char)text[i]) : text[i] != shape[i]) {
            return false;
        }
    }
    return true;
}

static bool may_be_empty(enum muster_text_rule rule)
{
    return rule == MUSTER_TEXT_ANY || rule == MUSTER_TEXT_UUID_OR_NONE;
}

static muster_status check_text(const struct muster_field *field, const char *text)
{
    if (text[0] == '\0' && !may_be_empty(field->rule)) {
        return muster_error_set(MUSTER_INVALID, "%s: missing or empty", field->name);
    }
    for (const char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f) {
            return muster_error_set(MUSTER_INVALID, "%s: has a control character", field->name);
        }
    }
    if (field->rule == MUSTER_TEXT_JOB && !muster_job_name_valid(text)) {
        return muster_error_set(MUSTER_INVALID,
                                "%s: \"%s\": use 1 to %d letters, digits, '.', '_' and '-'",
                                field->name, text, MUSTER_JOB_NAME_SIZE - 1);
    }
    if (field->rule == MUSTER_TEXT_HOST && !muster_host_name_valid(text)) {
        return muster_error_set(MUSTER_INVALID,
                                "%s: \"%s\": use letters, digits, '.', '_', '-' and ':'",
                                field->name, text);
    }
    bool is_named = text[0] != '\0' && field->rule == MUSTER_TEXT_UUID_OR_NONE;
    if ((is_named || field->rule == MUSTER_TEXT_UUID) && !is_uuid(text)) {
        return muster_error_set(MUSTER_INVALID, "%s: \"%s\": not a UUID", field->name, text);
    }
    return MUSTER_OK;
}

static muster_status decode_text(const struct muster_field *field, const json_t *json, char *ret)
{
    if (!json_is_string(json)) {
        return muster_error_set(MUSTER_INVALID, "%s: not a string", field->name);
    }
    size_t length = json_string_length(json);
    if (length >= field->size_bytes) {
        return muster_error_set(MUSTER_INVALID, "%s: longer than %zu bytes", field->name,
                                field->size_bytes - 1);
    }
    TRY(check_text(field, json_string_value(json)));
    memcpy(ret, json_string_value(json), length + 1);
    return MUSTER_OK;
}

static muster_status decode_line(const struct muster_field *field, const json_t *json, char *ret)
{
    if (!json_is_string(json)) {
        return muster_error_set(MUSTER_INVALID, "%s: not a string", field->name);
    }
    const char *text = json_string_value(json);
    size_t length = json_string_length(json);
    if (length >= field->size_bytes) {
        length = field->size_bytes - 1;
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80) {
            length--; /* do not cut in the middle of a character */
        }
    }
    for (size_t i = 0; i < length; i++) {
        ret[i] = (char)((unsigned char)text[i] < ' ' ? ' ' : text[i]);
    }
    ret[length] = '\0';
    return MUSTER_OK;
}

static muster_status decode_word(const struct muster_field *field, const json_t *json,
                                 unsigned *ret_value)
{
    const char *text = json_string_value(json);
    for (unsigned i = 0; i <= field->max && text != NULL; i++) {
        if (field->words[i] != NULL && strcmp(field->words[i], text) == 0) {
            *ret_value = i;
            return MUSTER_OK;
        }
    }
    if (json_is_integer(json)) {
        json_int_t number = json_integer_value(json);
        if (number >= 0 && (uint64_t)number <= field->max && field->words[number] != NULL) {
            *ret_value = (unsigned)number;
            return MUSTER_OK;
        }
    }
    return muster_error_set(MUSTER_INVALID, "%s: \"%.40s\": no such value", field->name,
                            text != NULL ? text : "?");
}

static muster_status check_array(const struct muster_field *field, const json_t *json)
{
    if (!json_is_array(json)) {
        return muster_error_set(MUSTER_INVALID, "%s: not an array", field->name);
    }
    if (json_array_size(json) > field->max) {
        return muster_error_set(MUSTER_INVALID, "%s: more than %llu items", field->name,
                                (unsigned long long)field->max);
    }
    return MUSTER_OK;
}

/* Turns the error "name: text" of an item into "name[index]: text". */
static muster_status item_error(const struct muster_field *field, size_t index,
                                muster_status status)
{
    const char *message = muster_last_error();
    size_t prefix = strlen(field->name);
    if (strncmp(message, field->name, prefix) == 0) {
        message += prefix;
    }
    return muster_error_set(status, "%s[%zu]%s", field->name, index, message);
}

static muster_status decode_texts(const struct muster_field *field, const json_t *json, char *ret,
                                  uint32_t *ret_count)
{
    TRY(check_array(field, json));
    uint32_t count = (uint32_t)json_array_size(json);
    for (uint32_t i = 0; i < count; i++) {
        muster_status status =
            decode_text(field, json_array_get(json, i), ret + i * field->size_bytes);
        if (status != MUSTER_OK) {
            return item_error(field, i, status);
        }
    }
    *ret_count = count;
    return MUSTER_OK;
}

static muster_status decode_owned_texts(const struct muster_field *field, const json_t *json,
                                        char **ret, uint32_t *ret_count)
{
    TRY(check_array(field, json));
    AUTO_FREE char *texts = calloc(json_array_size(json) + 1, field->size_bytes);
    if (texts == NULL) {
        return muster_error_set(MUSTER_FATAL, "%s: no memory", field->name);
    }
    TRY(decode_texts(field, json, texts, ret_count));
    *ret = TAKE(texts);
    return MUSTER_OK;
}

static muster_status decode_numbers(const struct muster_field *field, const json_t *json,
                                    uint32_t **ret, uint32_t *ret_count)
{
    TRY(check_array(field, json));
    uint32_t count = (uint32_t)json_array_size(json);
    AUTO_FREE uint32_t *numbers = calloc(count + 1, sizeof *numbers);
    if (numbers == NULL) {
        return muster_error_set(MUSTER_FATAL, "%s: no memory", field->name);
    }
    struct muster_field item = *field;
    item.max = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t number = 0;
        muster_status status = decode_unsigned(&item, json_array_get(json, i), 0, &number);
        if (status != MUSTER_OK) {
            return item_error(field, i, status);
        }
        numbers[i] = (uint32_t)number;
    }
    *ret = TAKE(numbers);
    *ret_count = count;
    return MUSTER_OK;
}

/* After a failure the items decoded so far are in the value, which the caller finishes. */
static muster_status decode_list(const struct muster_field *field, const json_t *json, char **ret,
                                 uint32_t *ret_count)
{
    TRY(check_array(field, json));
    uint32_t count = (uint32_t)json_array_size(json);
    *ret = calloc((size_t)count + 1, field->message->size_bytes);
    if (*ret == NULL) {
        return muster_error_set(MUSTER_FATAL, "%s: no memory", field->name);
    }
    *ret_count = count;
    for (uint32_t i = 0; i < count; i++) {
        muster_status status = decode_fields(field->message, json_array_get(json, i),
                                             *ret + i * field->message->size_bytes);
        if (status != MUSTER_OK) {
            return muster_error_set(status, "%s[%u].%s", field->name, i, muster_last_error());
        }
    }
    return MUSTER_OK;
}

static muster_status decode_bytes(const struct muster_field *field, const json_t *json, void **ret,
                                  size_t *ret_size_bytes)
{
    if (!json_is_string(json)) {
        return muster_error_set(MUSTER_INVALID, "%s: not a string", field->name);
    }
    size_t length = json_string_length(json);
    AUTO_FREE char *bytes = malloc(MUSTER_BASE64_BYTES(length) + 1);
    if (bytes == NULL) {
        return muster_error_set(MUSTER_FATAL, "%s: no memory", field->name);
    }
    size_t size_bytes;
    if (muster_base64_decode(json_string_value(json), length, bytes, &size_bytes) != MUSTER_OK) {
        return muster_error_prefix(MUSTER_INVALID, "%s", field->name);
    }
    if (size_bytes > field->size_bytes) {
        return muster_error_set(MUSTER_INVALID, "%s: longer than %zu bytes", field->name,
                                field->size_bytes);
    }
    *ret = size_bytes > 0 ? TAKE(bytes) : NULL;
    *ret_size_bytes = size_bytes;
    return MUSTER_OK;
}

static muster_status decode_part(const struct muster_field *field, const json_t *json, void *value)
{
    muster_status status = decode_fields(field->message, json, value);
    if (status != MUSTER_OK) {
        return muster_error_set(status, "%s.%s", field->name, muster_last_error());
    }
    return MUSTER_OK;
}

static muster_status decode_number(const struct muster_field *field, const json_t *json, void *at)
{
    uint64_t plain = 0;
    int64_t with_sign = 0;
    switch (field->kind) {
    case MUSTER_FIELD_UINT32:
        TRY(decode_unsigned(field, json, UINT32_MAX, &plain));
        *(uint32_t *)at = (uint32_t)plain;
        return MUSTER_OK;
    case MUSTER_FIELD_UINT64:
        return decode_unsigned(field, json, UINT64_MAX, at);
    case MUSTER_FIELD_RANK:
        TRY(decode_signed(field, json, -1, INT32_MAX, &with_sign));
        *(uint32_t *)at = with_sign < 0 ? UINT32_MAX : (uint32_t)with_sign;
        return MUSTER_OK;
    case MUSTER_FIELD_INT32:
        TRY(decode_signed(field, json, INT32_MIN, INT32_MAX, &with_sign));
        *(int32_t *)at = (int32_t)with_sign;
        return MUSTER_OK;
    default:
        return decode_signed(field, json, INT64_MIN, INT64_MAX, at);
    }
}

/* One case a kind of field. */
static muster_status decode_field(const struct muster_field *field, const json_t *json, void *value)
{
    void *at = (char *)value + field->offset;
    void *count_at = (char *)value + field->count_offset;
    switch (field->kind) {
    case MUSTER_FIELD_BOOL:
        if (!json_is_boolean(json)) {
            return muster_error_set(MUSTER_INVALID, "%s: not true or false", field->name);
        }
        *(bool *)at = json_is_true(json);
        return MUSTER_OK;
    case MUSTER_FIELD_UINT32:
    case MUSTER_FIELD_RANK:
    case MUSTER_FIELD_INT32:
    case MUSTER_FIELD_UINT64:
    case MUSTER_FIELD_INT64:
        return decode_number(field, json, at);
    case MUSTER_FIELD_TEXT:
        return decode_text(field, json, at);
    case MUSTER_FIELD_LINE:
        return decode_line(field, json, at);
    case MUSTER_FIELD_WORD:
        return decode_word(field, json, at);
    case MUSTER_FIELD_PAIRS:
        return muster_pairs_decode(field, json, at);
    case MUSTER_FIELD_TEXTS:
        return decode_texts(field, json, at, count_at);
    case MUSTER_FIELD_OWNED_TEXTS:
        return decode_owned_texts(field, json, at, count_at);
    case MUSTER_FIELD_NUMBERS:
        return decode_numbers(field, json, at, count_at);
    case MUSTER_FIELD_BYTES:
        return decode_bytes(field, json, at, count_at);
    case MUSTER_FIELD_LIST:
        return decode_list(field, json, at, count_at);
    case MUSTER_FIELD_PART:
        return decode_part(field, json, value);
    }
    return muster_error_set(MUSTER_FATAL, "%s: no such kind of field", field->name);
}

/* The name of the .proto: "minSize" is "min_size" there. False: it is the same. */
static bool write_proto_name(const char *name, char ret_name[FIELD_NAME_SIZE])
{
    size_t used = 0;
    bool differs = false;
    for (const char *c = name; *c != '\0' && used + 2 < FIELD_NAME_SIZE; c++) {
        bool upper = isupper((unsigned char)*c) != 0;
        if (upper) {
            ret_name[used++] = '_';
        }
        ret_name[used++] = (char)(upper ? tolower((unsigned char)*c) : *c);
        differs = differs || upper;
    }
    ret_name[used] = '\0';
    return differs;
}

/* In proto3's JSON a field may have its name in lowerCamelCase or that of the .proto. */
static muster_status find_field(const struct muster_field *field, const json_t *json,
                                const json_t **ret_present)
{
    char proto_name[FIELD_NAME_SIZE];
    const json_t *present = json_object_get(json, field->name);
    const json_t *other =
        write_proto_name(field->name, proto_name) ? json_object_get(json, proto_name) : NULL;
    if (present != NULL && other != NULL) {
        return muster_error_set(MUSTER_INVALID, "%s: there twice, also as %s", field->name,
                                proto_name);
    }
    *ret_present = present != NULL ? present : other;
    return MUSTER_OK;
}

static muster_status decode_fields(const struct muster_service_message *message, const json_t *json,
                                   void *value)
{
    if (!json_is_object(json)) {
        return muster_error_set(MUSTER_INVALID, "not a JSON object");
    }
    for (size_t i = 0; i < message->field_count; i++) {
        const struct muster_field *field = &message->fields[i];
        const json_t *present = NULL;
        TRY(find_field(field, json, &present));
        if (present != NULL && !json_is_null(present)) {
            TRY(decode_field(field, present, value));
        } else if (field->kind == MUSTER_FIELD_TEXT) {
            TRY(check_text(field, ""));
        }
    }
    return MUSTER_OK;
}

muster_status muster_message_decode(const struct muster_service_message *message,
                                    const json_t *json, void *ret_value)
{
    AUTO_FREE void *value = calloc(1, message->size_bytes);
    if (value == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    muster_status status = decode_fields(message, json, value);
    if (status != MUSTER_OK) {
        muster_message_finish(message, value);
        return status;
    }
    memcpy(ret_value, value, message->size_bytes);
    return MUSTER_OK;
}

/* Arrays, bytes and the parts that have them; the other kinds own nothing. */
void muster_message_finish(const struct muster_service_message *message, void *value)
{
    for (size_t i = 0; i < message->field_count; i++) {
        const struct muster_field *field = &message->fields[i];
        void **at = (void **)((char *)value + field->offset);
        void *count_at = (char *)value + field->count_offset;
        switch (field->kind) {
        case MUSTER_FIELD_LIST:
        case MUSTER_FIELD_NUMBERS:
        case MUSTER_FIELD_OWNED_TEXTS:
            *(uint32_t *)count_at = 0;
            free(*at);
            *at = NULL;
            break;
        case MUSTER_FIELD_BYTES:
            *(size_t *)count_at = 0;
            free(*at);
            *at = NULL;
            break;
        case MUSTER_FIELD_PART:
            muster_message_finish(field->message, value);
            break;
        default:
            break;
        }
    }
}
