/* JSON -> binary proto. What a length stands before is written first, and moved by the bytes of the
 * length: messages are nested four deep at most. */
#include "elastic/messages/base64.h"
#include "rendezvous/coding/proto_parts.h"
#include "worker/base/cleanup.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { VARINT_SIZE = 10, FIRST_CAPACITY = 256 };

struct writer {
    char *bytes; /* owned */
    size_t size_bytes, capacity;
};

static bool reserve(struct writer *writer, size_t more_bytes)
{
    size_t needed = writer->size_bytes + more_bytes;
    if (needed <= writer->capacity) {
        return true;
    }
    size_t capacity = 2 * needed > FIRST_CAPACITY ? 2 * needed : FIRST_CAPACITY;
    char *grown = realloc(writer->bytes, capacity);
    if (grown != NULL) {
        writer->bytes = grown;
        writer->capacity = capacity;
    }
    return grown != NULL;
}

static size_t format_varint(uint64_t value, uint8_t bytes[VARINT_SIZE])
{
    size_t size_bytes = 0;
    do {
        bytes[size_bytes++] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value != 0);
    return size_bytes;
}

static muster_status write_bytes(struct writer *writer, const void *bytes, size_t size_bytes)
{
    if (!reserve(writer, size_bytes)) {
        return muster_error_set(MUSTER_FATAL, "no memory for a message");
    }
    if (size_bytes > 0) {
        memcpy(writer->bytes + writer->size_bytes, bytes, size_bytes);
        writer->size_bytes += size_bytes;
    }
    return MUSTER_OK;
}

static muster_status write_varint(struct writer *writer, uint64_t value)
{
    uint8_t bytes[VARINT_SIZE];
    return write_bytes(writer, bytes, format_varint(value, bytes));
}

static muster_status write_tag(struct writer *writer, const struct muster_proto_field *field,
                               enum muster_proto_wire wire)
{
    return write_varint(writer, (uint64_t)field->number << 3 | (uint64_t)wire);
}

/* Puts the length of all that follows `begin` before it. */
static muster_status insert_length(struct writer *writer, size_t begin)
{
    uint8_t bytes[VARINT_SIZE];
    size_t length = writer->size_bytes - begin;
    size_t size_bytes = format_varint(length, bytes);
    if (!reserve(writer, size_bytes)) {
        return muster_error_set(MUSTER_FATAL, "no memory for a message");
    }
    memmove(writer->bytes + begin + size_bytes, writer->bytes + begin, length);
    memcpy(writer->bytes + begin, bytes, size_bytes);
    writer->size_bytes += size_bytes;
    return MUSTER_OK;
}

static muster_status wrong_type(const struct muster_proto_field *field)
{
    return muster_error_set(MUSTER_FATAL, "%s: its JSON is not of the contract's type",
                            field->name);
}

/* Values -------------------------------------------------------------------------------------- */

static bool find_word(const struct muster_proto_enum *words, const char *name, uint64_t *ret_value)
{
    for (size_t i = 0; i < words->count; i++) {
        if (strcmp(words->values[i], name) == 0) {
            *ret_value = i;
            return true;
        }
    }
    return false;
}

static bool parse_decimal(const struct muster_proto_field *field, const char *text,
                          uint64_t *ret_value)
{
    char *end = NULL;
    errno = 0;
    uint64_t value = field->type == MUSTER_PROTO_INT64 ? (uint64_t)strtoll(text, &end, 10)
                                                       : strtoull(text, &end, 10);
    *ret_value = value;
    return errno == 0 && end != text && *end == '\0';
}

static muster_status parse_number(const struct muster_proto_field *field, const json_t *json,
                                  uint64_t *ret_value)
{
    bool is_64 = field->type == MUSTER_PROTO_INT64 || field->type == MUSTER_PROTO_UINT64;
    const char *text = json_string_value(json);
    bool right = false;
    if (field->type == MUSTER_PROTO_BOOL) {
        *ret_value = json_is_true(json) ? 1 : 0;
        right = json_is_boolean(json);
    } else if (field->type == MUSTER_PROTO_ENUM) {
        right = text != NULL && find_word(field->words, text, ret_value);
    } else if (is_64 && text != NULL) {
        right = parse_decimal(field, text, ret_value);
    } else {
        *ret_value = (uint64_t)json_integer_value(json);
        right = json_is_integer(json);
    }
    return right ? MUSTER_OK : wrong_type(field);
}

static muster_status write_message(struct writer *writer,
                                   const struct muster_proto_message *message, const json_t *json);

static muster_status write_base64(struct writer *writer, const struct muster_proto_field *field,
                                  const json_t *json)
{
    size_t length = json_string_length(json);
    size_t size_bytes = 0;
    AUTO_FREE char *bytes = malloc(MUSTER_BASE64_BYTES(length) + 1);
    if (bytes == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a message");
    }
    if (!json_is_string(json) ||
        muster_base64_decode(json_string_value(json), length, bytes, &size_bytes) != MUSTER_OK) {
        return wrong_type(field);
    }
    return write_bytes(writer, bytes, size_bytes);
}

/* Tag, length and value of what is no number. */
static muster_status write_long(struct writer *writer, const struct muster_proto_field *field,
                                const json_t *json)
{
    TRY(write_tag(writer, field, MUSTER_PROTO_LENGTH));
    size_t begin = writer->size_bytes;
    if (field->type == MUSTER_PROTO_MESSAGE) {
        muster_status status = write_message(writer, field->message, json);
        if (status != MUSTER_OK) {
            return muster_error_set(status, "%s.%s", field->name, muster_last_error());
        }
    } else if (field->type == MUSTER_PROTO_BYTES) {
        TRY(write_base64(writer, field, json));
    } else if (json_is_string(json)) {
        TRY(write_bytes(writer, json_string_value(json), json_string_length(json)));
    } else {
        return wrong_type(field);
    }
    return insert_length(writer, begin);
}

/* Fields -------------------------------------------------------------------------------------- */

static muster_status write_repeated(struct writer *writer, const struct muster_proto_field *field,
                                    const json_t *json)
{
    size_t index;
    json_t *element;
    if (!json_is_array(json)) {
        return wrong_type(field);
    }
    if (!muster_proto_is_number(field->type)) {
        json_array_foreach(json, index, element)
        {
            TRY(write_long(writer, field, element));
        }
        return MUSTER_OK;
    }
    if (json_array_size(json) == 0) {
        return MUSTER_OK;
    }
    TRY(write_tag(writer, field, MUSTER_PROTO_LENGTH));
    size_t begin = writer->size_bytes;
    json_array_foreach(json, index, element)
    {
        uint64_t value = 0;
        TRY(parse_number(field, element, &value));
        TRY(write_varint(writer, value));
    }
    return insert_length(writer, begin);
}

static muster_status write_map(struct writer *writer, const struct muster_proto_field *field,
                               json_t *json)
{
    const char *key;
    json_t *value;
    if (!json_is_object(json)) {
        return wrong_type(field);
    }
    json_object_foreach(json, key, value)
    {
        const struct muster_proto_field key_field = {
            .name = field->name, .number = 1, .type = MUSTER_PROTO_STRING};
        const struct muster_proto_field value_field = {
            .name = field->name, .number = 2, .type = MUSTER_PROTO_STRING};
        TRY(write_tag(writer, field, MUSTER_PROTO_LENGTH));
        size_t begin = writer->size_bytes;
        TRY(write_tag(writer, &key_field, MUSTER_PROTO_LENGTH));
        TRY(write_varint(writer, strlen(key)));
        TRY(write_bytes(writer, key, strlen(key)));
        TRY(write_long(writer, &value_field, value));
        TRY(insert_length(writer, begin));
    }
    return MUSTER_OK;
}

/* A value that is 0 or empty is left out, but for messages: that one is there says something. */
static muster_status write_one(struct writer *writer, const struct muster_proto_field *field,
                               const json_t *json)
{
    if (!muster_proto_is_number(field->type)) {
        bool empty = json_is_string(json) && json_string_length(json) == 0;
        return empty ? MUSTER_OK : write_long(writer, field, json);
    }
    uint64_t value = 0;
    TRY(parse_number(field, json, &value));
    if (value == 0) {
        return MUSTER_OK;
    }
    TRY(write_tag(writer, field, MUSTER_PROTO_VARINT));
    return write_varint(writer, value);
}

static muster_status write_field(struct writer *writer, const struct muster_proto_message *message,
                                 const char *name, json_t *json)
{
    const struct muster_proto_field *field = NULL;
    for (size_t i = 0; i < message->field_count && field == NULL; i++) {
        field = strcmp(message->fields[i].name, name) == 0 ? &message->fields[i] : NULL;
    }
    if (field == NULL) {
        return muster_error_set(MUSTER_FATAL, "%s: the contract's %s has no such field", name,
                                message->name);
    }
    switch (field->label) {
    case MUSTER_PROTO_REPEATED:
        return write_repeated(writer, field, json);
    case MUSTER_PROTO_MAP:
        return write_map(writer, field, json);
    default:
        return write_one(writer, field, json);
    }
}

static muster_status write_message(struct writer *writer,
                                   const struct muster_proto_message *message, const json_t *json)
{
    if (!json_is_object(json)) {
        return muster_error_set(MUSTER_FATAL, "a %s is not an object", message->name);
    }
    for (void *at = json_object_iter((json_t *)json); at != NULL;
         at = json_object_iter_next((json_t *)json, at)) {
        TRY(write_field(writer, message, json_object_iter_key(at), json_object_iter_value(at)));
    }
    return MUSTER_OK;
}

muster_status muster_proto_encode(const struct muster_proto_message *message, const json_t *json,
                                  char **ret_bytes, size_t *ret_size_bytes)
{
    struct writer writer = {0};
    muster_status status = reserve(&writer, 1)
                               ? write_message(&writer, message, json)
                               : muster_error_set(MUSTER_FATAL, "no memory for a message");
    if (status != MUSTER_OK) {
        free(writer.bytes);
        return status;
    }
    *ret_bytes = writer.bytes;
    *ret_size_bytes = writer.size_bytes;
    return MUSTER_OK;
}
