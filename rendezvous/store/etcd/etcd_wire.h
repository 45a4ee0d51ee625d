/* The requests of etcd's transactions as JSON, and its answers. Keys and values are bytes, which
 * travel as base64; 64-bit numbers travel as strings. */
#ifndef MUSTER_RENDEZVOUS_STORE_ETCD_ETCD_WIRE_H
#define MUSTER_RENDEZVOUS_STORE_ETCD_ETCD_WIRE_H

#include "worker/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* "PREFIX/data/JOB/value/GENERATION/KEY": a key of a value may have 256 bytes. */
    MUSTER_ETCD_KEY_SIZE = 640,
};

/* Every function that makes JSON returns NULL if there is no memory, and takes what it is given. */

/* end: of a range, which does not belong to it; NULL: the key alone. */
struct muster_etcd_keys {
    const char *key, *end;
    size_t limit;   /* 0: none */
    bool last;      /* from the end backwards */
    bool keys_only; /* without values */
};
/* The body of a range request. */
json_t *muster_etcd_range(const struct muster_etcd_keys *keys);
/* Operations of a transaction. lease 0: none. */
json_t *muster_etcd_op_range(const char *key);
json_t *muster_etcd_op_put(const char *key, const void *value, size_t size_bytes, int64_t lease);
json_t *muster_etcd_op_delete(const char *key, const char *end);
/* That the key was changed last in this revision; 0: that it is not there. */
json_t *muster_etcd_compare(const char *key, int64_t revision);
/* That the key is there. */
json_t *muster_etcd_compare_there(const char *key);
json_t *muster_etcd_transaction(json_t *compare, json_t *success, json_t *failure);

/* Appends to a list; false: no memory. Takes the item. */
bool muster_etcd_add(json_t *list, json_t *item);

/* A number that is a string, or 0. */
int64_t muster_etcd_number(const json_t *object, const char *member);
/* The revision of the answer. */
int64_t muster_etcd_revision(const json_t *answer);

struct muster_etcd_pair {
    char *key, *value; /* owned, terminated */
    size_t key_size, value_size;
    int64_t revision; /* of its last change */
    int64_t lease;
};
void muster_etcd_pair_finish(struct muster_etcd_pair *pair);
/* One of the "kvs" of a range. MUSTER_INVALID: not as etcd writes it. */
MUSTER_CHECKED muster_status muster_etcd_pair_read(const json_t *json,
                                                   struct muster_etcd_pair *ret_pair);
/* The list of pairs that the range number `index` of a transaction found; NULL: none. */
const json_t *muster_etcd_found(const json_t *answer, size_t index);

/* The end of the range of all keys that begin so: the last byte plus one. */
void muster_etcd_end_of(const char *prefix, char ret_end[MUSTER_ETCD_KEY_SIZE]);

#endif
