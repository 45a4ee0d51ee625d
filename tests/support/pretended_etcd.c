/* Keys in order, in an array; leases in another. */
#include "tests/support/pretended_etcd.h"

#include "elastic/messages/base64.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HTTP_OK = 200, HTTP_NOT_FOUND = 404, GRPC_NOT_FOUND = 5, KEY_BYTES = 1024 };

static const int64_t second_ns = 1000000000;

struct etcd_key {
    char *key, *value; /* owned; the value is base64, as it came */
    int64_t revision, version, lease;
};

struct etcd_lease {
    int64_t id, ttl_s, ends_ns;
};

struct pretended_etcd {
    struct etcd_key *keys;
    size_t count, capacity;
    struct etcd_lease *leases;
    size_t lease_count;
    int64_t revision, lease_ids, late_ns;
    uint64_t deleted;
};

struct pretended_etcd *pretended_etcd_create(void)
{
    struct pretended_etcd *etcd = calloc(1, sizeof *etcd);
    assert(etcd != NULL);
    etcd->revision = 1;
    return etcd;
}

void pretended_etcd_destroy(struct pretended_etcd *etcd)
{
    if (etcd == NULL) {
        return;
    }
    for (size_t i = 0; i < etcd->count; i++) {
        free(etcd->keys[i].key);
        free(etcd->keys[i].value);
    }
    free(etcd->keys);
    free(etcd->leases);
    free(etcd);
}

/* Numbers are strings in JSON; what is 0 may be missing. */
static int64_t number(const json_t *object, const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));
    return text != NULL ? strtoll(text, NULL, 10) : 0;
}

static json_t *text_of(int64_t value)
{
    return json_sprintf("%lld", (long long)value);
}

/* Keys ----------------------------------------------------------------------------------------- */

/* The index of the first key that is not below this one. */
static size_t find(const struct pretended_etcd *etcd, const char *key)
{
    size_t low = 0;
    size_t high = etcd->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(etcd->keys[middle].key, key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool is_at(const struct pretended_etcd *etcd, size_t at, const char *key)
{
    return at < etcd->count && strcmp(etcd->keys[at].key, key) == 0;
}

static void decode(const json_t *object, const char *member, char ret_key[KEY_BYTES])
{
    const json_t *text = json_object_get(object, member);
    size_t size = 0;
    assert(json_string_length(text) < KEY_BYTES);
    muster_status status =
        muster_base64_decode(json_string_value(text), json_string_length(text), ret_key, &size);
    assert(status == MUSTER_OK);
    (void)status;
    ret_key[size] = '\0';
}

/* The keys of a request: [*ret_from, *ret_to). */
static void range_of(const struct pretended_etcd *etcd, const json_t *request, size_t *ret_from,
                     size_t *ret_to)
{
    char key[KEY_BYTES];
    decode(request, "key", key);
    *ret_from = find(etcd, key);
    if (json_object_get(request, "range_end") != NULL) {
        decode(request, "range_end", key);
        *ret_to = find(etcd, key);
    } else {
        *ret_to = *ret_from + (is_at(etcd, *ret_from, key) ? 1 : 0);
    }
    *ret_to = *ret_to < *ret_from ? *ret_from : *ret_to;
}

static void delete_keys(struct pretended_etcd *etcd, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        free(etcd->keys[i].key);
        free(etcd->keys[i].value);
    }
    if (to > from) {
        memmove(etcd->keys + from, etcd->keys + to, (etcd->count - to) * sizeof *etcd->keys);
        etcd->count -= to - from;
        etcd->deleted += to - from;
    }
}

static void put(struct pretended_etcd *etcd, const json_t *request)
{
    char key[KEY_BYTES];
    decode(request, "key", key);
    size_t at = find(etcd, key);
    if (!is_at(etcd, at, key)) {
        if (etcd->count == etcd->capacity) {
            etcd->capacity = 2 * etcd->capacity + 16;
            etcd->keys = reallocarray(etcd->keys, etcd->capacity, sizeof *etcd->keys);
            assert(etcd->keys != NULL);
        }
        memmove(etcd->keys + at + 1, etcd->keys + at, (etcd->count - at) * sizeof *etcd->keys);
        etcd->keys[at] = (struct etcd_key){.key = strdup(key)};
        etcd->count++;
    }
    const char *value = json_string_value(json_object_get(request, "value"));
    struct etcd_key *found = &etcd->keys[at];
    free(found->value);
    found->value = strdup(value != NULL ? value : "");
    found->revision = etcd->revision;
    found->version++;
    found->lease = number(request, "lease");
}

static json_t *read_key(const struct etcd_key *key, bool keys_only)
{
    char text[MUSTER_BASE64_SIZE(KEY_BYTES)];
    muster_base64_encode(key->key, strlen(key->key), text);
    json_t *json =
        json_pack("{s:s,s:o,s:o,s:o}", "key", text, "mod_revision", text_of(key->revision),
                  "version", text_of(key->version), "lease", text_of(key->lease));
    if (!keys_only && key->value[0] != '\0') { /* an empty value is left out */
        (void)json_object_set_new(json, "value", json_string(key->value));
    }
    return json;
}

static json_t *read_range(const struct pretended_etcd *etcd, const json_t *request)
{
    size_t from = 0;
    size_t to = 0;
    range_of(etcd, request, &from, &to);
    const char *order = json_string_value(json_object_get(request, "sort_order"));
    bool backwards = order != NULL && strcmp(order, "DESCEND") == 0;
    size_t limit = (size_t)number(request, "limit");
    size_t count = limit > 0 && limit < to - from ? limit : to - from;
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct etcd_key *key = &etcd->keys[backwards ? to - 1 - i : from + i];
        (void)json_array_append_new(
            list, read_key(key, json_is_true(json_object_get(request, "keys_only"))));
    }
    json_t *answer = json_pack("{s:o}", "count", text_of((int64_t)(to - from)));
    if (count > 0) {
        (void)json_object_set(answer, "kvs", list);
    }
    json_decref(list);
    if (count < to - from) {
        (void)json_object_set_new(answer, "more", json_true());
    }
    return answer;
}

/* Leases --------------------------------------------------------------------------------------- */

static struct etcd_lease *find_lease(struct pretended_etcd *etcd, int64_t id)
{
    for (size_t i = 0; i < etcd->lease_count; i++) {
        if (etcd->leases[i].id == id) {
            return &etcd->leases[i];
        }
    }
    return NULL;
}

/* All keys of the lease go with it. */
static void end_lease(struct pretended_etcd *etcd, struct etcd_lease *lease)
{
    int64_t id = lease->id;
    *lease = etcd->leases[--etcd->lease_count];
    etcd->revision++;
    for (size_t i = etcd->count; i > 0; i--) {
        if (etcd->keys[i - 1].lease == id) {
            delete_keys(etcd, i - 1, i);
        }
    }
}

void pretended_etcd_tick(struct pretended_etcd *etcd, int64_t now_ns)
{
    for (size_t i = etcd->lease_count; i > 0; i--) {
        if (etcd->leases[i - 1].ends_ns <= now_ns) {
            end_lease(etcd, &etcd->leases[i - 1]);
        }
    }
}

void pretended_etcd_late_by(struct pretended_etcd *etcd, int64_t late_ns)
{
    etcd->late_ns = late_ns;
}

int64_t pretended_etcd_next_ns(const struct pretended_etcd *etcd)
{
    int64_t next_ns = INT64_MAX;
    for (size_t i = 0; i < etcd->lease_count; i++) {
        next_ns = etcd->leases[i].ends_ns < next_ns ? etcd->leases[i].ends_ns : next_ns;
    }
    return next_ns;
}

static json_t *grant(struct pretended_etcd *etcd, const json_t *request, int64_t now_ns)
{
    int64_t ttl_s = number(request, "TTL");
    etcd->leases = reallocarray(etcd->leases, etcd->lease_count + 1, sizeof *etcd->leases);
    assert(etcd->leases != NULL);
    etcd->leases[etcd->lease_count++] =
        (struct etcd_lease){.id = ++etcd->lease_ids,
                            .ttl_s = ttl_s,
                            .ends_ns = now_ns + ttl_s * second_ns + etcd->late_ns};
    return json_pack("{s:o,s:o}", "ID", text_of(etcd->lease_ids), "TTL", text_of(ttl_s));
}

static json_t *keep_alive(struct pretended_etcd *etcd, const json_t *request, int64_t now_ns)
{
    struct etcd_lease *lease = find_lease(etcd, number(request, "ID"));
    if (lease == NULL) { /* etcd leaves the TTL out, which is 0 */
        return json_pack("{s:{s:o}}", "result", "ID", text_of(number(request, "ID")));
    }
    lease->ends_ns = now_ns + lease->ttl_s * second_ns + etcd->late_ns;
    return json_pack("{s:{s:o,s:o}}", "result", "ID", text_of(lease->id), "TTL",
                     text_of(lease->ttl_s));
}

/* Transactions --------------------------------------------------------------------------------- */

static bool holds(const struct pretended_etcd *etcd, const json_t *compare)
{
    char key[KEY_BYTES];
    decode(compare, "key", key);
    size_t at = find(etcd, key);
    bool there = is_at(etcd, at, key);
    const char *target = json_string_value(json_object_get(compare, "target"));
    const char *result = json_string_value(json_object_get(compare, "result"));
    if (strcmp(target, "MOD") == 0 && strcmp(result, "EQUAL") == 0) {
        return (there ? etcd->keys[at].revision : 0) == number(compare, "mod_revision");
    }
    assert(strcmp(target, "VERSION") == 0 && strcmp(result, "GREATER") == 0);
    return (there ? etcd->keys[at].version : 0) > number(compare, "version");
}

static bool all_hold(const struct pretended_etcd *etcd, const json_t *list)
{
    size_t index = 0;
    const json_t *compare = NULL;
    json_array_foreach(list, index, compare)
    {
        if (!holds(etcd, compare)) {
            return false;
        }
    }
    return true;
}

/* A put under a lease that is not there fails the transaction before anything of it is done. */
static bool leases_are_there(struct pretended_etcd *etcd, const json_t *ops)
{
    size_t index = 0;
    const json_t *op = NULL;
    json_array_foreach(ops, index, op)
    {
        int64_t lease = number(json_object_get(op, "request_put"), "lease");
        if (lease != 0 && find_lease(etcd, lease) == NULL) {
            return false;
        }
    }
    return true;
}

static json_t *carry_out(struct pretended_etcd *etcd, const json_t *op)
{
    const json_t *request = json_object_get(op, "request_range");
    if (request != NULL) {
        return json_pack("{s:o}", "response_range", read_range(etcd, request));
    }
    request = json_object_get(op, "request_put");
    if (request != NULL) {
        put(etcd, request);
        return json_pack("{s:{}}", "response_put");
    }
    request = json_object_get(op, "request_delete_range");
    assert(request != NULL);
    size_t from = 0;
    size_t to = 0;
    range_of(etcd, request, &from, &to);
    delete_keys(etcd, from, to);
    return json_pack("{s:{s:o}}", "response_delete_range", "deleted",
                     text_of((int64_t)(to - from)));
}

static bool writes(const json_t *ops)
{
    size_t index = 0;
    const json_t *op = NULL;
    json_array_foreach(ops, index, op)
    {
        if (json_object_get(op, "request_range") == NULL) {
            return true;
        }
    }
    return false;
}

static json_t *transact(struct pretended_etcd *etcd, const json_t *request)
{
    bool succeeds = all_hold(etcd, json_object_get(request, "compare"));
    const json_t *ops = json_object_get(request, succeeds ? "success" : "failure");
    size_t index = 0;
    const json_t *op = NULL;
    if (!leases_are_there(etcd, ops)) {
        return NULL;
    }
    etcd->revision += writes(ops) ? 1 : 0;
    json_t *responses = json_array();
    json_array_foreach(ops, index, op)
    {
        (void)json_array_append_new(responses, carry_out(etcd, op));
    }
    json_t *answer = json_pack("{s:o}", "responses", responses);
    if (succeeds) {
        (void)json_object_set_new(answer, "succeeded", json_true());
    }
    return answer;
}

/* Calls ---------------------------------------------------------------------------------------- */

json_t *pretended_etcd_call(struct pretended_etcd *etcd, const char *method, const json_t *request,
                            int64_t now_ns, int *ret_http)
{
    json_t *answer = NULL;
    pretended_etcd_tick(etcd, now_ns);
    if (strcmp(method, "kv/range") == 0) {
        answer = read_range(etcd, request);
    } else if (strcmp(method, "kv/txn") == 0) {
        answer = transact(etcd, request);
    } else if (strcmp(method, "lease/grant") == 0) {
        answer = grant(etcd, request, now_ns);
    } else if (strcmp(method, "lease/keepalive") == 0) {
        answer = keep_alive(etcd, request, now_ns);
    } else if (strcmp(method, "lease/revoke") == 0) {
        struct etcd_lease *lease = find_lease(etcd, number(request, "ID"));
        if (lease != NULL) {
            end_lease(etcd, lease);
            answer = json_object();
        }
    } else {
        (void)fprintf(stderr, "pretended etcd: no method %s\n", method);
        abort();
    }
    *ret_http = answer != NULL ? HTTP_OK : HTTP_NOT_FOUND;
    if (answer == NULL) {
        return json_pack("{s:i,s:s}", "code", GRPC_NOT_FOUND, "message",
                         "etcdserver: requested lease not found");
    }
    (void)json_object_set_new(answer, "header",
                              json_pack("{s:o}", "revision", text_of(etcd->revision)));
    return answer;
}

uint64_t pretended_etcd_deleted(const struct pretended_etcd *etcd)
{
    return etcd->deleted;
}

const char *pretended_etcd_value(const struct pretended_etcd *etcd, const char *key)
{
    size_t at = find(etcd, key);
    return is_at(etcd, at, key) ? etcd->keys[at].value : NULL;
}

const char *pretended_etcd_first(const struct pretended_etcd *etcd, const char *prefix)
{
    size_t at = find(etcd, prefix);
    return at < etcd->count && strncmp(etcd->keys[at].key, prefix, strlen(prefix)) == 0
               ? etcd->keys[at].key
               : NULL;
}
