/*
 * The values of a job in a hash table. Each holds its record as the store has it:
 *
 *   offset  bytes  what
 *   0       1      number of requests, R, that are remembered
 *   1       24 R   for each, the oldest first: its UUID, and its result, little-endian
 *   1+24R   rest   the value
 */
#include "rendezvous/service/values.h"

#include "worker/base/cleanup.h"

#include <endian.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

enum { ID_BYTES = 16, REQUEST_BYTES = ID_BYTES + 8, HEAD_BYTES = 1 };
_Static_assert(MUSTER_VALUE_REQUESTS_MAX <= UINT8_MAX, "the number is one byte");

/* What a value is found by: the generation, then the key without its terminator. */
struct value_name {
    uint64_t generation;
    char key[MUSTER_KEY_MAX_BYTES + 1];
};

struct muster_kept_value {
    UT_hash_handle hh;
    struct value_name name;
    size_t record_size;
    unsigned char record[];
};

static size_t name_of(uint64_t generation, const char *key, struct value_name *ret_name)
{
    size_t length = strnlen(key, MUSTER_KEY_MAX_BYTES);
    *ret_name = (struct value_name){.generation = generation};
    memcpy(ret_name->key, key, length);
    return offsetof(struct value_name, key) + length;
}

static struct muster_kept_value *find(const struct muster_values *values, uint64_t generation,
                                      const char *key)
{
    struct value_name name;
    size_t size_bytes = name_of(generation, key, &name);
    struct muster_kept_value *value = NULL;
    HASH_FIND(hh, values->table, &name, size_bytes, value);
    return value;
}

static size_t head_size(const struct muster_kept_value *value)
{
    return HEAD_BYTES + (size_t)value->record[0] * REQUEST_BYTES;
}

static size_t value_size(const struct muster_kept_value *value)
{
    return value->record_size - head_size(value);
}

static void drop(struct muster_values *values, struct muster_kept_value *value)
{
    HASH_DEL(values->table, value);
    values->count--;
    values->size_bytes -= value_size(value);
    free(value);
}

/* Requests ------------------------------------------------------------------------------------ */

static unsigned digit(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
}

/* The 16 bytes of a UUID in its usual form, which the decoder of the request has checked. */
static void id_of(const char *uuid, unsigned char ret_id[ID_BYTES])
{
    size_t at = 0;
    for (const char *c = uuid; *c != '\0' && at < 2 * (size_t)ID_BYTES; c++) {
        if (*c != '-') {
            unsigned high = at % 2 == 0 ? digit(*c) << 4 : ret_id[at / 2] | digit(*c);
            ret_id[at / 2] = (unsigned char)high;
            at++;
        }
    }
}

bool muster_values_find_request(const struct muster_values *values, uint64_t generation,
                                const char *key, const char *request_id, int64_t *ret_result)
{
    struct muster_kept_value *value = find(values, generation, key);
    if (value == NULL || request_id == NULL || request_id[0] == '\0') {
        return false;
    }
    unsigned char id[ID_BYTES] = {0};
    id_of(request_id, id);
    for (const unsigned char *at = value->record + HEAD_BYTES;
         at < value->record + head_size(value); at += REQUEST_BYTES) {
        uint64_t result;
        if (memcmp(at, id, ID_BYTES) == 0) {
            memcpy(&result, at + ID_BYTES, sizeof result);
            *ret_result = (int64_t)le64toh(result);
            return true;
        }
    }
    return false;
}

/* Changes ------------------------------------------------------------------------------------- */

static muster_status check_bounds(const struct muster_values *values,
                                  const struct muster_kept_value *old, size_t size_bytes)
{
    size_t old_size = old != NULL ? value_size(old) : 0;
    if (old == NULL && values->count >= MUSTER_VALUES_MAX) {
        return muster_error_set(MUSTER_RETRY, "the job has %d values already", MUSTER_VALUES_MAX);
    }
    if (values->size_bytes - old_size + size_bytes > MUSTER_VALUES_MAX_BYTES) {
        return muster_error_set(MUSTER_RETRY, "the job's values would have more than %d bytes",
                                MUSTER_VALUES_MAX_BYTES);
    }
    return MUSTER_OK;
}

static struct muster_kept_value *create(uint64_t generation, const char *key, size_t record_size)
{
    struct muster_kept_value *value = calloc(1, sizeof *value + record_size);
    if (value != NULL) {
        (void)name_of(generation, key, &value->name);
        value->record_size = record_size;
    }
    return value;
}

/* The requests of the value before, without the oldest if there are too many, and the new one. */
static void write_requests(struct muster_kept_value *value, const struct muster_kept_value *old,
                           const struct muster_value_change *change, bool has_id)
{
    size_t kept = value->record[0] - (has_id ? 1U : 0U);
    unsigned char *at = value->record + HEAD_BYTES;
    if (kept > 0) {
        size_t skipped = old->record[0] - kept;
        memcpy(at, old->record + HEAD_BYTES + skipped * REQUEST_BYTES, kept * REQUEST_BYTES);
        at += kept * REQUEST_BYTES;
    }
    if (has_id) {
        uint64_t result = htole64((uint64_t)change->result);
        id_of(change->request_id, at);
        memcpy(at + ID_BYTES, &result, sizeof result);
    }
}

muster_status muster_values_prepare(const struct muster_values *values,
                                    const struct muster_value_change *change,
                                    struct muster_kept_value **ret_prepared)
{
    const struct muster_kept_value *old = find(values, change->generation, change->key);
    TRY(check_bounds(values, old, change->value_size));
    bool has_id = change->request_id != NULL && change->request_id[0] != '\0';
    size_t requests = (old != NULL ? old->record[0] : 0U) + (has_id ? 1U : 0U);
    requests = requests < MUSTER_VALUE_REQUESTS_MAX ? requests : MUSTER_VALUE_REQUESTS_MAX;
    struct muster_kept_value *value =
        create(change->generation, change->key,
               HEAD_BYTES + requests * REQUEST_BYTES + change->value_size);
    if (value == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    value->record[0] = (unsigned char)requests;
    write_requests(value, old, change, has_id);
    if (change->value_size > 0) {
        memcpy(value->record + head_size(value), change->value, change->value_size);
    }
    *ret_prepared = value;
    return MUSTER_OK;
}

const void *muster_value_record(const struct muster_kept_value *prepared, size_t *ret_size_bytes)
{
    *ret_size_bytes = prepared->record_size;
    return prepared->record;
}

void muster_value_destroy(struct muster_kept_value *prepared)
{
    free(prepared);
}

/* False: no memory for the table; the value is freed. */
static bool enter(struct muster_values *values, struct muster_kept_value *value)
{
    struct muster_kept_value *old = find(values, value->name.generation, value->name.key);
    if (old != NULL) {
        drop(values, old);
    }
    size_t size_bytes = offsetof(struct value_name, key) + strlen(value->name.key);
    HASH_ADD_KEYPTR(hh, values->table, &value->name, size_bytes, value);
    if (value->hh.tbl == NULL) {
        free(value);
        return false;
    }
    values->count++;
    values->size_bytes += value_size(value);
    return true;
}

muster_status muster_values_commit(struct muster_values *values, struct muster_kept_value *prepared)
{
    return enter(values, prepared) ? MUSTER_OK : muster_error_set(MUSTER_FATAL, "no memory");
}

muster_status muster_values_load(struct muster_values *values, uint64_t generation, const char *key,
                                 const void *record, size_t size_bytes)
{
    struct muster_kept_value *value = create(generation, key, size_bytes);
    if (value == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    if (size_bytes > 0) {
        memcpy(value->record, record, size_bytes);
    }
    if (size_bytes < HEAD_BYTES || value->record[0] > MUSTER_VALUE_REQUESTS_MAX ||
        head_size(value) > size_bytes || value_size(value) > MUSTER_VALUE_MAX_BYTES ||
        strlen(key) > MUSTER_KEY_MAX_BYTES) {
        free(value);
        return muster_error_set(MUSTER_INVALID,
                                "value of key \"%.80s\": not as a musterd writes it", key);
    }
    return muster_values_commit(values, value);
}

bool muster_values_remove(struct muster_values *values, uint64_t generation, const char *key)
{
    struct muster_kept_value *value = find(values, generation, key);
    if (value != NULL) {
        drop(values, value);
    }
    return value != NULL;
}

uint32_t muster_values_drop(struct muster_values *values, uint64_t below_generation)
{
    uint32_t dropped = 0;
    struct muster_kept_value *value = NULL;
    struct muster_kept_value *next = NULL;
    HASH_ITER(hh, values->table, value, next)
    {
        if (value->name.generation > 0 && value->name.generation < below_generation) {
            drop(values, value);
            dropped++;
        }
    }
    return dropped;
}

void muster_values_finish(struct muster_values *values)
{
    struct muster_kept_value *value = NULL;
    struct muster_kept_value *next = NULL;
    HASH_ITER(hh, values->table, value, next)
    {
        drop(values, value);
    }
}

/* Reading ------------------------------------------------------------------------------------- */

bool muster_values_get(const struct muster_values *values, uint64_t generation, const char *key,
                       struct muster_value_response *ret_value)
{
    struct muster_kept_value *value = find(values, generation, key);
    if (value != NULL) {
        *ret_value = (struct muster_value_response){.value_size = value_size(value),
                                                    .value = value->record + head_size(value)};
    }
    return value != NULL;
}

uint32_t muster_values_count(const struct muster_values *values, uint64_t generation,
                             const char *prefix)
{
    uint32_t count = 0;
    size_t length = strlen(prefix);
    for (const struct muster_kept_value *value = values->table; value != NULL;
         value = value->hh.next) {
        count +=
            value->name.generation == generation && strncmp(value->name.key, prefix, length) == 0
                ? 1
                : 0;
    }
    return count;
}
