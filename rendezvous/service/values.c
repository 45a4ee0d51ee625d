/* The values of a job as a list: there are at most MUSTER_VALUES_MAX. */
#include "rendezvous/service/values.h"

#include "worker/base/cleanup.h"

#include <string.h>

struct muster_value {
    struct muster_value *next;
    uint64_t generation;
    size_t size_bytes;
    char *key;
    unsigned char bytes[];
};

static struct muster_value **find(struct muster_values *values, uint64_t generation,
                                  const char *key)
{
    struct muster_value **at = &values->first;
    while (*at != NULL && ((*at)->generation != generation || strcmp((*at)->key, key) != 0)) {
        at = &(*at)->next;
    }
    return at;
}

static void drop(struct muster_values *values, struct muster_value **at)
{
    struct muster_value *value = *at;
    *at = value->next;
    values->count--;
    values->size_bytes -= value->size_bytes;
    free(value->key);
    free(value);
}

muster_status muster_values_check(const struct muster_values *values, uint64_t generation,
                                  const char *key, size_t size_bytes)
{
    struct muster_value_response old = {0};
    bool replaces = muster_values_get(values, generation, key, &old);
    if (!replaces && values->count >= MUSTER_VALUES_MAX) {
        return muster_error_set(MUSTER_RETRY, "the job has %d values already", MUSTER_VALUES_MAX);
    }
    if (values->size_bytes - old.value_size + size_bytes > MUSTER_VALUES_MAX_BYTES) {
        return muster_error_set(MUSTER_RETRY, "the job's values would have more than %d bytes",
                                MUSTER_VALUES_MAX_BYTES);
    }
    return MUSTER_OK;
}

muster_status muster_values_put(struct muster_values *values, uint64_t generation, const char *key,
                                const void *value, size_t size_bytes)
{
    AUTO_FREE struct muster_value *added = malloc(sizeof *added + size_bytes);
    AUTO_FREE char *name = strdup(key);
    if (added == NULL || name == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    struct muster_value **at = find(values, generation, key);
    if (*at != NULL) {
        drop(values, at);
    }
    *added = (struct muster_value){
        .next = values->first, .generation = generation, .size_bytes = size_bytes};
    added->key = TAKE(name);
    if (size_bytes > 0) {
        memcpy(added->bytes, value, size_bytes);
    }
    values->count++;
    values->size_bytes += size_bytes;
    values->first = TAKE(added);
    return MUSTER_OK;
}

bool muster_values_get(const struct muster_values *values, uint64_t generation, const char *key,
                       struct muster_value_response *ret_value)
{
    for (struct muster_value *value = values->first; value != NULL; value = value->next) {
        if (value->generation == generation && strcmp(value->key, key) == 0) {
            *ret_value = (struct muster_value_response){.value_size = value->size_bytes,
                                                        .value = value->bytes};
            return true;
        }
    }
    return false;
}

uint32_t muster_values_drop(struct muster_values *values, uint64_t below_generation)
{
    uint32_t dropped = 0;
    struct muster_value **at = &values->first;
    while (*at != NULL) {
        if ((*at)->generation > 0 && (*at)->generation < below_generation) {
            drop(values, at);
            dropped++;
        } else {
            at = &(*at)->next;
        }
    }
    return dropped;
}

void muster_values_finish(struct muster_values *values)
{
    while (values->first != NULL) {
        drop(values, &values->first);
    }
}
