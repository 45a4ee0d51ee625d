/* JSON of etcd's gateway. */
#include "rendezvous/store/etcd/etcd_wire.h"

#include "elastic/messages/base64.h"
#include "worker/base/cleanup.h"

#include <stdio.h>
#include <string.h>

static json_t *bytes(const void *data, size_t size_bytes)
{
    AUTO_FREE char *text = malloc(MUSTER_BASE64_SIZE(size_bytes));
    if (text == NULL) {
        return NULL;
    }
    muster_base64_encode(data, size_bytes, text);
    return json_string_nocheck(text);
}

static json_t *name(const char *key)
{
    return bytes(key, strlen(key));
}

static json_t *number(int64_t value)
{
    return json_sprintf("%lld", (long long)value);
}

json_t *muster_etcd_range(const struct muster_etcd_keys *keys)
{
    json_t *range = json_pack("{s:o}", "key", name(keys->key));
    if (range == NULL) {
        return NULL;
    }
    int failed = 0;
    if (keys->end != NULL) {
        failed |= json_object_set_new(range, "range_end", name(keys->end));
    }
    if (keys->limit > 0) {
        failed |= json_object_set_new(range, "limit", number((int64_t)keys->limit));
    }
    if (keys->keys_only) {
        failed |= json_object_set_new(range, "keys_only", json_true());
    }
    failed |= json_object_set_new(range, "sort_target", json_string("KEY"));
    failed |=
        json_object_set_new(range, "sort_order", json_string(keys->last ? "DESCEND" : "ASCEND"));
    if (failed != 0) {
        json_decref(range);
        return NULL;
    }
    return range;
}

json_t *muster_etcd_op_range(const char *key)
{
    return json_pack("{s:{s:o}}", "request_range", "key", name(key));
}

json_t *muster_etcd_op_put(const char *key, const void *value, size_t size_bytes, int64_t lease)
{
    return json_pack("{s:{s:o,s:o,s:o}}", "request_put", "key", name(key), "value",
                     bytes(value, size_bytes), "lease", number(lease));
}

json_t *muster_etcd_op_delete(const char *key, const char *end)
{
    return end == NULL ? json_pack("{s:{s:o}}", "request_delete_range", "key", name(key))
                       : json_pack("{s:{s:o,s:o}}", "request_delete_range", "key", name(key),
                                   "range_end", name(end));
}

json_t *muster_etcd_compare(const char *key, int64_t revision)
{
    return json_pack("{s:o,s:s,s:o,s:s}", "key", name(key), "target", "MOD", "mod_revision",
                     number(revision), "result", "EQUAL");
}

json_t *muster_etcd_compare_there(const char *key)
{
    return json_pack("{s:o,s:s,s:s,s:s}", "key", name(key), "target", "VERSION", "version", "0",
                     "result", "GREATER");
}

json_t *muster_etcd_transaction(json_t *compare, json_t *success, json_t *failure)
{
    return json_pack("{s:o,s:o,s:o}", "compare", compare, "success", success, "failure", failure);
}

bool muster_etcd_add(json_t *list, json_t *item)
{
    return json_array_append_new(list, item) == 0;
}

int64_t muster_etcd_number(const json_t *object, const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));
    return text != NULL ? strtoll(text, NULL, 10) : 0;
}

int64_t muster_etcd_revision(const json_t *answer)
{
    return muster_etcd_number(json_object_get(answer, "header"), "revision");
}

void muster_etcd_pair_finish(struct muster_etcd_pair *pair)
{
    free(pair->key);
    free(pair->value);
    *pair = (struct muster_etcd_pair){0};
}

/* An empty value is left out in JSON. */
static muster_status read_bytes(const json_t *json, const char *member, char **ret_bytes,
                                size_t *ret_size)
{
    const json_t *text = json_object_get(json, member);
    size_t length = json_string_length(text);
    AUTO_FREE char *data = malloc(MUSTER_BASE64_BYTES(length) + 1);
    if (data == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    TRY(muster_base64_decode(length > 0 ? json_string_value(text) : "", length, data, ret_size));
    data[*ret_size] = '\0';
    *ret_bytes = TAKE(data);
    return MUSTER_OK;
}

muster_status muster_etcd_pair_read(const json_t *json, struct muster_etcd_pair *ret_pair)
{
    struct muster_etcd_pair pair = {.revision = muster_etcd_number(json, "mod_revision"),
                                    .lease = muster_etcd_number(json, "lease")};
    TRY(read_bytes(json, "key", &pair.key, &pair.key_size));
    muster_status status = read_bytes(json, "value", &pair.value, &pair.value_size);
    if (status != MUSTER_OK) {
        muster_etcd_pair_finish(&pair);
        return status;
    }
    *ret_pair = pair;
    return MUSTER_OK;
}

const json_t *muster_etcd_found(const json_t *answer, size_t index)
{
    const json_t *response = json_array_get(json_object_get(answer, "responses"), index);
    return json_array_get(json_object_get(json_object_get(response, "response_range"), "kvs"), 0);
}

void muster_etcd_end_of(const char *prefix, char ret_end[MUSTER_ETCD_KEY_SIZE])
{
    size_t length = strlen(prefix);
    (void)snprintf(ret_end, MUSTER_ETCD_KEY_SIZE, "%s", prefix);
    ret_end[length - 1] = (char)(ret_end[length - 1] + 1);
}
