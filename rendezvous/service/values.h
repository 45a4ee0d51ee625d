/*
 * The values of one job, by generation and key. Under the job's lock.
 *
 * A change is made in two steps, so that it can be stored in between: muster_values_prepare()
 * checks it and makes the record that a store keeps; muster_values_commit() applies it. A record
 * has the value, and the ids of the last requests that changed it: a request that is sent again
 * counts once, also after a restart of the server.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_VALUES_H
#define MUSTER_RENDEZVOUS_SERVICE_VALUES_H

#include "elastic/messages/messages.h"

enum {
    MUSTER_VALUES_MAX = 4096, /* of one job */
    MUSTER_VALUES_MAX_BYTES = 4 * 1024 * 1024,
    MUSTER_VALUE_REQUESTS_MAX = 128, /* that are remembered of a value */
};

struct muster_kept_value; /* defined in values.c */

struct muster_values {
    struct muster_kept_value *table;
    uint32_t count;
    size_t size_bytes; /* of the values alone */
};

/* What a request wants a value to be. */
struct muster_value_change {
    uint64_t generation;
    const char *key;
    const void *value;
    size_t value_size;
    const char *request_id; /* a UUID to remember; NULL or "": none */
    int64_t result;         /* remembered with it */
};

/* Makes the value as it will be. MUSTER_RETRY names the bound that it would exceed; MUSTER_FATAL:
 * no memory. */
MUSTER_CHECKED muster_status muster_values_prepare(const struct muster_values *values,
                                                   const struct muster_value_change *change,
                                                   struct muster_kept_value **ret_prepared);
/* The record of a prepared value, borrowed from it. */
const void *muster_value_record(const struct muster_kept_value *prepared, size_t *ret_size_bytes);
/* Takes the prepared value, which replaces the one of the same generation and key. MUSTER_FATAL: no
 * memory; the value is then in the store only. */
MUSTER_CHECKED muster_status muster_values_commit(struct muster_values *values,
                                                  struct muster_kept_value *prepared);
/* Of a prepared value that is not committed. Accepts NULL. */
void muster_value_destroy(struct muster_kept_value *prepared);

/* Adds a value from its record. MUSTER_INVALID: it is not as a musterd writes it. */
MUSTER_CHECKED muster_status muster_values_load(struct muster_values *values, uint64_t generation,
                                                const char *key, const void *record,
                                                size_t size_bytes);

/* False: there is none. The bytes are borrowed until the next change. */
bool muster_values_get(const struct muster_values *values, uint64_t generation, const char *key,
                       struct muster_value_response *ret_value);
/* True if a request of this id has changed the value; *ret_result is what was remembered with it.
 * False for NULL and "". */
bool muster_values_find_request(const struct muster_values *values, uint64_t generation,
                                const char *key, const char *request_id, int64_t *ret_result);
/* Keys of the generation that begin with the prefix. */
uint32_t muster_values_count(const struct muster_values *values, uint64_t generation,
                             const char *prefix);
/* False: there is none. */
bool muster_values_remove(struct muster_values *values, uint64_t generation, const char *key);
/* Removes the values of generations above 0 and below this one, and returns how many. */
uint32_t muster_values_drop(struct muster_values *values, uint64_t below_generation);
void muster_values_finish(struct muster_values *values);

#endif
