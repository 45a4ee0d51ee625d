/* The small values of one job, by generation and key. Under the job's lock. */
#ifndef MUSTER_RENDEZVOUS_SERVICE_VALUES_H
#define MUSTER_RENDEZVOUS_SERVICE_VALUES_H

#include "elastic/messages/messages.h"

enum {
    MUSTER_VALUES_MAX = 1024, /* of one job */
    MUSTER_VALUES_MAX_BYTES = 4 * 1024 * 1024,
};

struct muster_value; /* private */

struct muster_values {
    struct muster_value *first;
    uint32_t count;
    size_t size_bytes;
};

/* Would it still fit? MUSTER_RETRY names the bound. */
MUSTER_CHECKED muster_status muster_values_check(const struct muster_values *values,
                                                 uint64_t generation, const char *key,
                                                 size_t size_bytes);
/* Copies the value, in place of an older one. */
MUSTER_CHECKED muster_status muster_values_put(struct muster_values *values, uint64_t generation,
                                               const char *key, const void *value,
                                               size_t size_bytes);
/* False: not there. The bytes are borrowed until the next change. */
bool muster_values_get(const struct muster_values *values, uint64_t generation, const char *key,
                       struct muster_value_response *ret_value);
/* Those of generations above 0 and below this one. Returns how many went. */
uint32_t muster_values_drop(struct muster_values *values, uint64_t below_generation);
void muster_values_finish(struct muster_values *values);

#endif
