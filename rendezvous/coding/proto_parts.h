/* The tables of the contract, which proto_tables.cmake writes, and how they are read. */
#ifndef MUSTER_RENDEZVOUS_CODING_PROTO_PARTS_H
#define MUSTER_RENDEZVOUS_CODING_PROTO_PARTS_H

#include "rendezvous/coding/proto.h"

#include <stdint.h>

enum muster_proto_label {
    MUSTER_PROTO_ONE,
    MUSTER_PROTO_REPEATED,
    MUSTER_PROTO_MAP, /* from text to text */
};

enum muster_proto_type {
    MUSTER_PROTO_BOOL,
    MUSTER_PROTO_INT32,
    MUSTER_PROTO_UINT32,
    MUSTER_PROTO_INT64,
    MUSTER_PROTO_UINT64,
    MUSTER_PROTO_ENUM,
    MUSTER_PROTO_STRING,
    MUSTER_PROTO_BYTES,
    MUSTER_PROTO_MESSAGE,
};

enum muster_proto_wire { /* of a field, as the encoding numbers them */
                         MUSTER_PROTO_VARINT = 0,
                         MUSTER_PROTO_FIXED64 = 1,
                         MUSTER_PROTO_LENGTH = 2,
                         MUSTER_PROTO_GROUP = 3,
                         MUSTER_PROTO_GROUP_END = 4,
                         MUSTER_PROTO_FIXED32 = 5,
};

struct muster_proto_enum {
    const char *name;
    const char *const *values; /* [count], by number */
    size_t count;
};

struct muster_proto_field {
    const char *name; /* in JSON */
    uint32_t number;
    enum muster_proto_label label;
    enum muster_proto_type type;
    const struct muster_proto_message *message; /* of a MESSAGE */
    const struct muster_proto_enum *words;      /* of an ENUM */
};

struct muster_proto_message {
    const char *name;
    const struct muster_proto_field *fields; /* [field_count] */
    size_t field_count;
};

extern const struct muster_proto_method muster_proto_methods[];
extern const size_t muster_proto_method_count;

static inline bool muster_proto_is_number(enum muster_proto_type type)
{
    return type <= MUSTER_PROTO_ENUM;
}

#endif
