/* Binary proto -> JSON. Every length is checked against what is left before it is used. */
#include "elastic/messages/base64.h"
#include "rendezvous/coding/proto_parts.h"
#include "worker/base/cleanup.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    VARINT_MAX_BYTES = 10,
    FIELD_NUMBER_MAX = (1 << 29) - 1,
    GROUPS_MAX = 16, /* that are nested in a field which is skipped */
    NUMBER_SIZE = 24,
};

struct reader {
    const uint8_t *at, *end;
};

const struct muster_proto_method *muster_proto_find(const char *name)
{
    for (size_t i = 0; i < muster_proto_method_count; i++) {
        if (strcmp(muster_proto_methods[i].name, name) == 0) {
            return &muster_proto_methods[i];
        }
    }
    return NULL;
}

static muster_status cut_off(const char *name)
{
    return muster_error_set(MUSTER_INVALID, "%s: the message is cut off in it", name);
}

static muster_status no_memory(void)
{
    return muster_error_set(MUSTER_FATAL, "no memory for a message");
}

static muster_status read_varint(struct reader *reader, const char *name, uint64_t *ret_value)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < VARINT_MAX_BYTES; i++) {
        if (reader->at == reader->end) {
            return cut_off(name);
        }
        uint8_t byte = *reader->at++;
        if (i == VARINT_MAX_BYTES - 1 && byte > 1) {
            break;
        }
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if ((byte & 0x80) == 0) {
            *ret_value = value;
            return MUSTER_OK;
        }
    }
    return muster_error_set(MUSTER_INVALID, "%s: a number of more than 64 bits", name);
}

/* The bytes that a length stands before. */
static muster_status read_part(struct reader *reader, const char *name, struct reader *ret_part)
{
    uint64_t length = 0;
    TRY(read_varint(reader, name, &length));
    if (length > (uint64_t)(reader->end - reader->at)) {
        return cut_off(name);
    }
    *ret_part = (struct reader){reader->at, reader->at + length};
    reader->at += length;
    return MUSTER_OK;
}

static muster_status skip_bytes(struct reader *reader, const char *name, size_t size_bytes)
{
    if (size_bytes > (size_t)(reader->end - reader->at)) {
        return cut_off(name);
    }
    reader->at += size_bytes;
    return MUSTER_OK;
}

static muster_status read_tag(struct reader *reader, const char *message, uint32_t *ret_number,
                              enum muster_proto_wire *ret_wire)
{
    uint64_t tag = 0;
    TRY(read_varint(reader, message, &tag));
    if (tag >> 3 == 0 || tag >> 3 > FIELD_NUMBER_MAX || (tag & 7) > MUSTER_PROTO_FIXED32) {
        return muster_error_set(MUSTER_INVALID, "%s: no field begins with %" PRIu64, message, tag);
    }
    *ret_number = (uint32_t)(tag >> 3);
    *ret_wire = (enum muster_proto_wire)(tag & 7);
    return MUSTER_OK;
}

/* One field but a group. */
static muster_status skip_plain(struct reader *reader, const char *name,
                                enum muster_proto_wire wire)
{
    uint64_t number = 0;
    struct reader part = {NULL, NULL};
    switch (wire) {
    case MUSTER_PROTO_VARINT:
        return read_varint(reader, name, &number);
    case MUSTER_PROTO_FIXED64:
        return skip_bytes(reader, name, sizeof(uint64_t));
    case MUSTER_PROTO_LENGTH:
        return read_part(reader, name, &part);
    case MUSTER_PROTO_FIXED32:
        return skip_bytes(reader, name, sizeof(uint32_t));
    default:
        return muster_error_set(MUSTER_INVALID, "%s: a group ends that has not begun", name);
    }
}

/* A field that the contract does not have. A group, which proto3 has no more, ends with a tag of
 * its own number. */
static muster_status skip_field(struct reader *reader, uint32_t number, enum muster_proto_wire wire)
{
    uint32_t open[GROUPS_MAX] = {0};
    unsigned depth = 0;
    char name[NUMBER_SIZE];
    (void)snprintf(name, sizeof name, "field %u", number);
    for (;;) {
        if (wire == MUSTER_PROTO_GROUP && depth == GROUPS_MAX) {
            return muster_error_set(MUSTER_INVALID, "%s: more than %d nested groups", name,
                                    GROUPS_MAX);
        }
        if (wire == MUSTER_PROTO_GROUP) {
            open[depth++] = number;
        } else if (wire == MUSTER_PROTO_GROUP_END && depth > 0 && open[depth - 1] == number) {
            depth--;
        } else {
            TRY(skip_plain(reader, name, wire));
        }
        if (depth == 0) {
            return MUSTER_OK;
        }
        TRY(read_tag(reader, name, &number, &wire));
    }
}

/* Values -------------------------------------------------------------------------------------- */

/* magnitude: without its sign. */
static json_t *decimal(const char *sign, uint64_t magnitude)
{
    char text[NUMBER_SIZE];
    (void)snprintf(text, sizeof text, "%s%" PRIu64, sign, magnitude);
    return json_string(text);
}

/* A number as JSON; NULL: out of range (or no memory). */
static json_t *number_json(const struct muster_proto_field *field, uint64_t value)
{
    int64_t with_sign = (int64_t)value;
    switch (field->type) {
    case MUSTER_PROTO_BOOL:
        return json_boolean(value != 0);
    case MUSTER_PROTO_INT32:
        return with_sign >= INT32_MIN && with_sign <= INT32_MAX ? json_integer(with_sign) : NULL;
    case MUSTER_PROTO_UINT32:
        return value <= UINT32_MAX ? json_integer(with_sign) : NULL;
    case MUSTER_PROTO_INT64:
        return with_sign < 0 ? decimal("-", 0 - value) : decimal("", value);
    case MUSTER_PROTO_UINT64:
        return decimal("", value);
    default:
        return value < field->words->count ? json_string(field->words->values[value]) : NULL;
    }
}

static muster_status read_number(struct reader *reader, const struct muster_proto_field *field,
                                 json_t **ret_json)
{
    uint64_t value = 0;
    TRY(read_varint(reader, field->name, &value));
    *ret_json = number_json(field, value);
    if (*ret_json == NULL) {
        return muster_error_set(MUSTER_INVALID, "%s: %" PRId64 " is out of range", field->name,
                                (int64_t)value);
    }
    return MUSTER_OK;
}

static muster_status text_json(const struct reader *part, const char *name, json_t **ret_json)
{
    size_t length = (size_t)(part->end - part->at);
    if (length > 0 && memchr(part->at, '\0', length) != NULL) {
        return muster_error_set(MUSTER_INVALID, "%s: has a NUL character", name);
    }
    *ret_json = json_stringn((const char *)part->at, length);
    return *ret_json != NULL ? MUSTER_OK : muster_error_set(MUSTER_INVALID, "%s: not UTF-8", name);
}

static muster_status bytes_json(const struct reader *part, json_t **ret_json)
{
    size_t length = (size_t)(part->end - part->at);
    AUTO_FREE char *text = malloc(MUSTER_BASE64_SIZE(length));
    if (text == NULL) {
        return no_memory();
    }
    muster_base64_encode(part->at, length, text);
    *ret_json = json_string(text);
    return *ret_json != NULL ? MUSTER_OK : no_memory();
}

static muster_status read_message(const struct muster_proto_message *message, struct reader *reader,
                                  json_t *json);

/* An element whose length stands before it. `before`: the value that a message is merged into. */
static muster_status read_long(struct reader *reader, const struct muster_proto_field *field,
                               json_t *before, json_t **ret_json)
{
    struct reader part = {NULL, NULL};
    TRY(read_part(reader, field->name, &part));
    if (field->type == MUSTER_PROTO_STRING) {
        return text_json(&part, field->name, ret_json);
    }
    if (field->type == MUSTER_PROTO_BYTES) {
        return bytes_json(&part, ret_json);
    }
    json_t *json = before != NULL ? json_incref(before) : json_object();
    if (json == NULL) {
        return no_memory();
    }
    muster_status status = read_message(field->message, &part, json);
    if (status != MUSTER_OK) {
        json_decref(json);
        return muster_error_set(status, "%s.%s", field->name, muster_last_error());
    }
    *ret_json = json;
    return MUSTER_OK;
}

/* Fields ------------------------------------------------------------------------------------- */

/* Takes the element. */
static muster_status append(json_t *array, const char *name, json_t *element)
{
    if (json_array_size(array) == MUSTER_PROTO_ELEMENTS_MAX) {
        json_decref(element);
        return muster_error_set(MUSTER_INVALID, "%s: more than %d elements", name,
                                MUSTER_PROTO_ELEMENTS_MAX);
    }
    return json_array_append_new(array, element) == 0 ? MUSTER_OK : no_memory();
}

/* Numbers come one by one, or packed into one field. */
static muster_status read_repeated(struct reader *reader, const struct muster_proto_field *field,
                                   enum muster_proto_wire wire, json_t *array)
{
    json_t *element = NULL;
    bool number = muster_proto_is_number(field->type);
    if (number && wire == MUSTER_PROTO_LENGTH) {
        struct reader part = {NULL, NULL};
        TRY(read_part(reader, field->name, &part));
        while (part.at < part.end) {
            TRY(read_number(&part, field, &element));
            TRY(append(array, field->name, element));
        }
        return MUSTER_OK;
    }
    TRY(number ? read_number(reader, field, &element) : read_long(reader, field, NULL, &element));
    return append(array, field->name, element);
}

/* An entry is a message of its own: 1 is the key, 2 the value. */
static muster_status read_entry(struct reader *reader, const struct muster_proto_field *field,
                                json_t *object)
{
    static const struct muster_proto_field pair[] = {
        {"key", 1, MUSTER_PROTO_ONE, MUSTER_PROTO_STRING, NULL, NULL},
        {"value", 2, MUSTER_PROTO_ONE, MUSTER_PROTO_STRING, NULL, NULL},
    };
    static const struct muster_proto_message entry = {"entry", pair, 2};
    const struct muster_proto_field as_message = {
        .name = field->name, .type = MUSTER_PROTO_MESSAGE, .message = &entry};
    json_t *json = NULL;
    TRY(read_long(reader, &as_message, NULL, &json));
    const char *key = json_string_value(json_object_get(json, "key"));
    json_t *value = json_object_get(json, "value");
    value = value != NULL ? json_incref(value) : json_string("");
    bool full = json_object_size(object) == MUSTER_PROTO_ELEMENTS_MAX;
    muster_status status = full ? muster_error_set(MUSTER_INVALID, "%s: more than %d entries",
                                                   field->name, MUSTER_PROTO_ELEMENTS_MAX)
                           : json_object_set(object, key != NULL ? key : "", value) == 0
                               ? MUSTER_OK
                               : no_memory();
    json_decref(value);
    json_decref(json);
    return status;
}

/* The array or the object of a field that occurs several times. NULL: no memory. */
static json_t *collection(json_t *json, const struct muster_proto_field *field)
{
    json_t *found = json_object_get(json, field->name);
    if (found == NULL) {
        found = field->label == MUSTER_PROTO_MAP ? json_object() : json_array();
        if (json_object_set_new(json, field->name, found) != 0) {
            return NULL;
        }
    }
    return found;
}

static muster_status read_field(struct reader *reader, const struct muster_proto_field *field,
                                enum muster_proto_wire wire, json_t *json)
{
    bool number = muster_proto_is_number(field->type);
    bool packed = number && field->label == MUSTER_PROTO_REPEATED && wire == MUSTER_PROTO_LENGTH;
    enum muster_proto_wire wanted = number ? MUSTER_PROTO_VARINT : MUSTER_PROTO_LENGTH;
    if (wire != wanted && !packed) {
        return muster_error_set(MUSTER_INVALID, "%s: has wire type %d, not %d", field->name,
                                (int)wire, (int)wanted);
    }
    if (field->label != MUSTER_PROTO_ONE) {
        json_t *several = collection(json, field);
        if (several == NULL) {
            return no_memory();
        }
        return field->label == MUSTER_PROTO_MAP ? read_entry(reader, field, several)
                                                : read_repeated(reader, field, wire, several);
    }
    json_t *value = NULL;
    json_t *before = json_object_get(json, field->name);
    TRY(number ? read_number(reader, field, &value) : read_long(reader, field, before, &value));
    return json_object_set_new(json, field->name, value) == 0 ? MUSTER_OK : no_memory();
}

static muster_status read_message(const struct muster_proto_message *message, struct reader *reader,
                                  json_t *json)
{
    while (reader->at < reader->end) {
        uint32_t number = 0;
        enum muster_proto_wire wire = MUSTER_PROTO_VARINT;
        const struct muster_proto_field *field = NULL;
        TRY(read_tag(reader, message->name, &number, &wire));
        for (size_t i = 0; i < message->field_count && field == NULL; i++) {
            field = message->fields[i].number == number ? &message->fields[i] : NULL;
        }
        TRY(field != NULL ? read_field(reader, field, wire, json)
                          : skip_field(reader, number, wire));
    }
    return MUSTER_OK;
}

muster_status muster_proto_decode(const struct muster_proto_message *message, const void *bytes,
                                  size_t size_bytes, json_t **ret_json)
{
    const uint8_t *first = bytes;
    struct reader reader = {first, first + size_bytes};
    json_t *json = json_object();
    if (json == NULL) {
        return no_memory();
    }
    muster_status status = read_message(message, &reader, json);
    if (status != MUSTER_OK) {
        json_decref(json);
        return status;
    }
    *ret_json = json;
    return MUSTER_OK;
}
