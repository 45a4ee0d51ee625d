/*
 * A message as a table of fields. One piece of code encodes, decodes, bounds and frees every
 * message.
 */
#ifndef MUSTER_ELASTIC_MESSAGES_MESSAGES_PARTS_H
#define MUSTER_ELASTIC_MESSAGES_MESSAGES_PARTS_H

#include "elastic/messages/messages.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum muster_field_kind {                      /* C type in the value; JSON */
                         MUSTER_FIELD_BOOL,   /* bool */
                         MUSTER_FIELD_UINT32, /* uint32_t; number */
                         MUSTER_FIELD_RANK,   /* uint32_t, UINT32_MAX: none; number, -1: none */
                         MUSTER_FIELD_INT32,  /* int32_t; number */
                         MUSTER_FIELD_UINT64, /* uint64_t; string of digits */
                         MUSTER_FIELD_INT64,  /* int64_t; string of digits */
                         MUSTER_FIELD_TEXT,   /* char[size] */
                         MUSTER_FIELD_LINE,   /* char[size]; too long a text is cut, control
                                                 characters become blanks */
                         MUSTER_FIELD_WORD,   /* an enum; its name in words */
                         MUSTER_FIELD_PAIRS, /* char[size]: lines "name=value"; object of strings */
                         MUSTER_FIELD_TEXTS, /* char[max][size], and its uint32_t count; array */
                         MUSTER_FIELD_NUMBERS, /* owned uint32_t *, and its uint32_t count; array */
                         MUSTER_FIELD_OWNED_TEXTS, /* owned char (*)[size], and its uint32_t count;
                                                      array */
                         MUSTER_FIELD_BYTES,       /* owned void *, and its size_t size; base64 */
                         MUSTER_FIELD_LIST, /* owned array of structs, and its uint32_t count; array
                                               of objects */
                         MUSTER_FIELD_PART, /* fields of the same struct; object */
};

enum muster_text_rule {
    MUSTER_TEXT_ANY = 0,
    MUSTER_TEXT_REQUIRED, /* not empty */
    MUSTER_TEXT_JOB,
    MUSTER_TEXT_HOST,
    MUSTER_TEXT_UUID,
    MUSTER_TEXT_UUID_OR_NONE,
};

struct muster_service_message;

struct muster_field {
    const char *name;
    enum muster_field_kind kind;
    enum muster_text_rule rule;
    size_t offset;
    size_t count_offset;
    size_t size_bytes;        /* TEXT, LINE, TEXTS: of the storage; BYTES: the most bytes */
    uint64_t max;             /* of a number (0: the most of its type); of an array's count */
    const char *const *words; /* WORD: [max + 1], by value; NULL: no such value */
    const struct muster_service_message *message; /* LIST, PART */
};

struct muster_service_message {
    const struct muster_field *fields;
    size_t field_count;
    size_t size_bytes; /* of the struct */
    bool sparse;       /* fields that are 0 or empty are left out */
};

/* An object of at most MUSTER_PAIRS_MAX strings -> lines "name=value", in the order of their names.
 */
MUSTER_CHECKED muster_status muster_pairs_decode(const struct muster_field *field,
                                                 const json_t *json, char *ret_text);

json_t *muster_message_encode(const struct muster_service_message *message, const void *value);

/* MUSTER_INVALID names the field; MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_message_decode(const struct muster_service_message *message,
                                                   const json_t *json, void *ret_value);

/* Frees what the fields own, and sets them to 0. */
void muster_message_finish(const struct muster_service_message *message, void *value);

/* Rows of a table. */
#define FIELD(type_, json_name, kind_, member, ...)           \
    {                                                         \
        .name = (json_name), .kind = MUSTER_FIELD_##kind_,    \
        .offset = offsetof(struct type_, member), __VA_ARGS__ \
    }
#define TEXT_FIELD(type_, json_name, member, rule_)                    \
    FIELD(type_, json_name, TEXT, member, .rule = MUSTER_TEXT_##rule_, \
          .size_bytes = sizeof(((struct type_ *)0)->member))
#define WORD_FIELD(type_, json_name, member, words_)         \
    FIELD(type_, json_name, WORD, member, .words = (words_), \
          .max = sizeof(words_) / sizeof(words_)[0] - 1)
#define LIST_FIELD(type_, json_name, member, count, message_)        \
    FIELD(type_, json_name, LIST, member, .max = MUSTER_MEMBERS_MAX, \
          .count_offset = offsetof(struct type_, count), .message = &(message_))
#define ADDRESSES_FIELD(type_, member, count)                                     \
    FIELD(type_, "addresses", TEXTS, member, .max = MUSTER_MEMBER_ADDRESSES_MAX,  \
          .rule = MUSTER_TEXT_REQUIRED, .size_bytes = MUSTER_MEMBER_ADDRESS_SIZE, \
          .count_offset = offsetof(struct type_, count))

/* Rows that requests, events and snapshot records share: those of a member, in `info`, and of a
 * job, in `settings`. */
#define INFO_FIELDS(type_, host_rule_)                                                           \
    TEXT_FIELD(type_, "host", info.host, host_rule_), TEXT_FIELD(type_, "rack", info.rack, ANY), \
        ADDRESSES_FIELD(type_, info.addresses, info.address_count),                              \
        FIELD(type_, "stateVersion", UINT64, info.state_version),                                \
        FIELD(type_, "generation", UINT64, info.generation),                                     \
        FIELD(type_, "order", UINT32, info.order), FIELD(type_, "pid", UINT32, info.pid),        \
        FIELD(type_, "done", BOOL, info.done), FIELD(type_, "hasSlot", BOOL, info.has_slot),     \
        FIELD(type_, "slotAny", BOOL, info.slot_any),                                            \
        FIELD(type_, "slot", UINT32, info.slot, .max = MUSTER_MEMBERS_MAX - 1),                  \
        TEXT_FIELD(type_, "slotLock", info.slot_lock, ANY),                                      \
        TEXT_FIELD(type_, "libraryVersion", info.library, ANY),                                  \
        FIELD(type_, "capabilities", PAIRS, info.capabilities,                                   \
              .size_bytes = MUSTER_CAPABILITIES_SIZE)
#define SETTINGS_FIELDS(type_)                                      \
    FIELD(type_, "minSize", UINT32, settings.min_size),             \
        FIELD(type_, "maxSize", UINT32, settings.max_size),         \
        FIELD(type_, "targetSize", UINT32, settings.target_size),   \
        FIELD(type_, "wireVersion", UINT32, settings.wire_version), \
        FIELD(type_, "settleMs", UINT32, settings.settle_ms),       \
        FIELD(type_, "leaseMs", UINT32, settings.lease_ms),         \
        FIELD(type_, "arriveMs", UINT32, settings.arrive_ms),       \
        FIELD(type_, "suspectMs", UINT32, settings.suspect_ms)

#define MESSAGE(type_, fields_, ...)                                              \
    {                                                                             \
        .fields = (fields_), .field_count = sizeof(fields_) / sizeof(fields_)[0], \
        .size_bytes = sizeof(struct type_), __VA_ARGS__                           \
    }
#define DEFINE_MESSAGE(name, type_, message_)                                         \
    json_t *muster_##name##_encode(const struct type_ *value)                         \
    {                                                                                 \
        return muster_message_encode(&(message_), value);                             \
    }                                                                                 \
    muster_status muster_##name##_decode(const json_t *json, struct type_ *ret_value) \
    {                                                                                 \
        return muster_message_decode(&(message_), json, ret_value);                   \
    }

#endif
