/* The values of one job, by generation and key. Under the job's lock. */
#ifndef MUSTER_RENDEZVOUS_SERVICE_VALUES_H
#define MUSTER_RENDEZVOUS_SERVICE_VALUES_H

#include "elastic/messages/messages.h"

enum {
    MUSTER_VALUES_MAX = 1024, /* of one job */
    MUSTER_VALUES_MAX_BYTES = 4 * 1024 * 1024,
};

struct muster_value; /* defined in values.c */

struct muster_values {
    struct muster_value *first;
    uint32_t count;
    size_t size_bytes;
};

/* Whether a value of this size fits. MUSTER_RETRY names the bound that it would exceed. */
MUSTER_CHECKED muster_status muster_values_check(const struct muster_values *values,
                                                 uint64_t generation, const char *key,
                                                 size_t size_bytes);
/* Adds a copy of the value, or replaces the one of the same generation and key. MUSTER_FATAL: no
 * memory, nothing changed. */
MUSTER_CHECKED muster_status muster_values_put(struct muster_values *values, uint64_t generation,
                                               const char *key, const void *value,
                                               size_t size_bytes);
/* False: there is none. The bytes are borrowed until the next change. */
bool muster_values_get(const struct muster_values *values, uint64_t generation, const char *key,
                       struct muster_value_response *ret_value);
/* Removes the values of generations above 0 and below this one, and returns how many. */
uint32_t muster_values_drop(struct muster_values *values, uint64_t below_generation);
void muster_values_finish(struct muster_values *values);

#endif
