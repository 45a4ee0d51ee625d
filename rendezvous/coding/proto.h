/*
 * Messages of the contract as binary proto (the encoding of protocol buffers) <-> the JSON that the
 * routes speak. The tables of messages and fields are generated from muster/v1/rendezvous.proto
 * when Muster is built, so that a field of the contract works in both at once.
 */
#ifndef MUSTER_RENDEZVOUS_CODING_PROTO_H
#define MUSTER_RENDEZVOUS_CODING_PROTO_H

#include "worker/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    /* Of one repeated field: more than any field of a request may have, and few enough that the
     * JSON of a short message stays small. */
    MUSTER_PROTO_ELEMENTS_MAX = 65536,
};

struct muster_proto_message;

struct muster_proto_method {
    const char *name; /* the last part of the path: "Join" */
    const struct muster_proto_message *request, *response;
    bool safe;    /* NO_SIDE_EFFECTS */
    bool streams; /* its responses are a stream */
};

/* NULL: the contract has no such method. */
const struct muster_proto_method *muster_proto_find(const char *name);

/* Binary proto -> a new JSON object. Fields that the contract does not have are skipped; of one
 * that occurs twice the last counts, and messages are merged. MUSTER_INVALID names the field: a
 * wrong wire type, a number out of range, a text that is not UTF-8 or has a NUL, input that is cut
 * off. */
MUSTER_CHECKED muster_status muster_proto_decode(const struct muster_proto_message *message,
                                                 const void *bytes, size_t size_bytes,
                                                 json_t **ret_json);

/* JSON of a response -> binary proto, owned by the caller (not NULL, also if it is empty). A field
 * that the contract does not have, or of another type, is MUSTER_FATAL: a bug of the service. */
MUSTER_CHECKED muster_status muster_proto_encode(const struct muster_proto_message *message,
                                                 const json_t *json, char **ret_bytes,
                                                 size_t *ret_size_bytes);

#endif
