/* The epoch of a cluster: one key, which each start of a server raises. */
#include "rendezvous/store/etcd/etcd_changes.h"
#include "rendezvous/store/etcd/store_etcd_parts.h"

#include "worker/base/clock.h"
#include "worker/base/epoch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EPOCH_TRIES = 100 }; /* each but the last was overtaken by another server that starts */

struct found_epoch {
    uint32_t epoch;   /* 0: none */
    int64_t revision; /* of its key */
};

static muster_status read_pair(const struct muster_etcd_pair *pair, struct found_epoch *ret_found)
{
    const char *data = NULL;
    size_t size_bytes = 0;
    TRY(muster_etcd_unseal(pair, &data, &size_bytes));
    char *end = NULL;
    unsigned long epoch = strtoul(data, &end, 10);
    if (size_bytes == 0 || *end != '\0' || epoch == 0 || epoch >= MUSTER_EPOCH_MAX) {
        return muster_error_set(MUSTER_INVALID,
                                "the epoch in key %s is \"%.32s\", not a number from 1 to %d",
                                pair->key, data, MUSTER_EPOCH_MAX - 1);
    }
    *ret_found = (struct found_epoch){.epoch = (uint32_t)epoch, .revision = pair->revision};
    return MUSTER_OK;
}

static muster_status read_epoch(const struct etcd_store *store, const char *key,
                                struct found_epoch *ret_found)
{
    const struct muster_etcd_keys keys = {.key = key};
    json_t *answer = NULL;
    *ret_found = (struct found_epoch){0};
    TRY(muster_etcd_call(store->client, "kv/range", muster_etcd_range(&keys),
                         muster_clock_after_ms(MUSTER_ETCD_CALL_MS), &answer));
    const json_t *json = json_array_get(json_object_get(answer, "kvs"), 0);
    struct muster_etcd_pair pair = {0};
    muster_status status = json != NULL ? muster_etcd_pair_read(json, &pair) : MUSTER_OK;
    if (status == MUSTER_OK && json != NULL) {
        status = read_pair(&pair, ret_found);
    }
    muster_etcd_pair_finish(&pair);
    json_decref(answer);
    return status == MUSTER_OK
               ? MUSTER_OK
               : muster_error_prefix(status, "store %s", muster_etcd_client_name(store->client));
}

/* *ret_done: false if another server has written it since it was read. */
static muster_status write_epoch(const struct etcd_store *store, const char *key, uint32_t epoch,
                                 int64_t revision, bool *ret_done)
{
    char text[16];
    size_t size_bytes = 0;
    (void)snprintf(text, sizeof text, "%" PRIu32, epoch);
    char *value = muster_etcd_seal(key, text, strlen(text), &size_bytes);
    if (value == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    json_t *request = muster_etcd_transaction(
        json_pack("[o]", muster_etcd_compare(key, revision)),
        json_pack("[o]", muster_etcd_op_put(key, value, size_bytes, 0)), json_array());
    free(value);
    json_t *answer = NULL;
    TRY(muster_etcd_call(store->client, "kv/txn", request,
                         muster_clock_after_ms(MUSTER_ETCD_CALL_MS), &answer));
    *ret_done = json_is_true(json_object_get(answer, "succeeded"));
    json_decref(answer);
    return MUSTER_OK;
}

/* A transaction that was carried out although its answer was lost costs a number, no more. */
muster_status muster_etcd_begin_epoch(struct muster_store *base, uint32_t now_s,
                                      uint32_t *ret_epoch, bool *ret_first)
{
    const struct etcd_store *store = (const struct etcd_store *)base; /* its first member */
    char key[MUSTER_ETCD_KEY_SIZE];
    (void)snprintf(key, sizeof key, "%sepoch", muster_etcd_client_prefix(store->client));
    for (int i = 0; i < EPOCH_TRIES; i++) {
        struct found_epoch last;
        bool done = false;
        TRY(read_epoch(store, key, &last));
        uint32_t epoch = now_s > last.epoch ? now_s : last.epoch + 1;
        TRY(write_epoch(store, key, epoch, last.revision, &done));
        if (done) {
            *ret_epoch = epoch;
            *ret_first = last.epoch == 0;
            return MUSTER_OK;
        }
    }
    return muster_error_set(MUSTER_RETRY,
                            "store %s: other servers raised the epoch %d times while this one "
                            "tried to",
                            muster_etcd_client_name(store->client), EPOCH_TRIES);
}
