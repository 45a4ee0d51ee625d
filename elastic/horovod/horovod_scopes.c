/* The scopes of a round of a Horovod job: two levels of hash tables. */
#include "elastic/horovod/horovod_scopes.h"

#include "worker/base/cleanup.h"

#include <stdio.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct muster_horovod_key {
    UT_hash_handle hh;
    char *name; /* behind the value, in the same allocation */
    bool is_rank, finished;
    size_t size_bytes;
    char value[];
};

struct muster_horovod_scope {
    UT_hash_handle hh;
    char name[MUSTER_HOROVOD_SCOPE_MAX_BYTES + 1];
    struct muster_horovod_key *first;
    uint32_t unfinished_count, finished_count; /* keys that are ranks */
};

bool muster_horovod_parse_rank(const char *text, uint32_t *ret_rank)
{
    uint64_t rank = 0;
    size_t length = strspn(text, "0123456789");
    if (length == 0 || length > 10 || text[length] != '\0' || (text[0] == '0' && length > 1)) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        rank = 10 * rank + (uint64_t)(text[i] - '0');
    }
    if (rank > UINT32_MAX) {
        return false;
    }
    *ret_rank = (uint32_t)rank;
    return true;
}

static struct muster_horovod_scope *find_scope(const struct muster_horovod_scopes *scopes,
                                               const char *name)
{
    struct muster_horovod_scope *scope = NULL;
    HASH_FIND_STR(scopes->first, name, scope);
    return scope;
}

static struct muster_horovod_key *find_key(const struct muster_horovod_scope *scope,
                                           const char *name)
{
    struct muster_horovod_key *key = NULL;
    if (scope != NULL) {
        HASH_FIND_STR(scope->first, name, key);
    }
    return key;
}

static size_t cost(const struct muster_horovod_key *key)
{
    return key->size_bytes + MUSTER_HOROVOD_KEY_COST_BYTES;
}

static void remove_key(struct muster_horovod_scopes *scopes, struct muster_horovod_scope *scope,
                       struct muster_horovod_key *key)
{
    HASH_DEL(scope->first, key);
    if (key->is_rank) {
        *(key->finished ? &scope->finished_count : &scope->unfinished_count) -= 1;
    }
    scopes->key_count--;
    scopes->size_bytes -= cost(key);
    free(key);
}

static void remove_scope(struct muster_horovod_scopes *scopes, struct muster_horovod_scope *scope)
{
    while (scope->first != NULL) {
        remove_key(scopes, scope, scope->first);
    }
    HASH_DEL(scopes->first, scope);
    free(scope);
}

void muster_horovod_scopes_finish(struct muster_horovod_scopes *scopes)
{
    while (scopes->first != NULL) {
        remove_scope(scopes, scopes->first);
    }
}

/* Put ----------------------------------------------------------------------------------------- */

static muster_status check_bounds(const struct muster_horovod_scopes *scopes,
                                  const struct muster_horovod_key *replaced, size_t size_bytes)
{
    size_t total = scopes->size_bytes - (replaced != NULL ? cost(replaced) : 0) + size_bytes +
                   MUSTER_HOROVOD_KEY_COST_BYTES;
    if (replaced == NULL && scopes->key_count >= MUSTER_HOROVOD_KEYS_MAX) {
        return muster_error_set(MUSTER_RETRY, "the job has %d keys already",
                                MUSTER_HOROVOD_KEYS_MAX);
    }
    if (total > MUSTER_HOROVOD_ROUND_MAX_BYTES) {
        return muster_error_set(MUSTER_RETRY, "the job's values would take %zu bytes of %d", total,
                                MUSTER_HOROVOD_ROUND_MAX_BYTES);
    }
    return MUSTER_OK;
}

static struct muster_horovod_scope *add_scope(struct muster_horovod_scopes *scopes,
                                              const char *name)
{
    struct muster_horovod_scope *scope = calloc(1, sizeof *scope);
    if (scope == NULL) {
        return NULL;
    }
    (void)snprintf(scope->name, sizeof scope->name, "%s", name);
    HASH_ADD_STR(scopes->first, name, scope);
    if (scope->hh.tbl == NULL) { /* the table has no memory */
        free(scope);
        return NULL;
    }
    return scope;
}

static struct muster_horovod_key *create_key(const char *name, const void *value, size_t size_bytes)
{
    uint32_t rank;
    size_t length = strlen(name);
    struct muster_horovod_key *key = malloc(sizeof *key + size_bytes + length + 1);
    if (key == NULL) {
        return NULL;
    }
    *key = (struct muster_horovod_key){.name = key->value + size_bytes,
                                       .is_rank = muster_horovod_parse_rank(name, &rank),
                                       .size_bytes = size_bytes};
    if (size_bytes > 0) {
        memcpy(key->value, value, size_bytes);
    }
    memcpy(key->name, name, length + 1);
    return key;
}

/* False: no memory; the key is freed. */
static bool add_key(struct muster_horovod_scopes *scopes, struct muster_horovod_scope *scope,
                    struct muster_horovod_key *key)
{
    HASH_ADD_KEYPTR(hh, scope->first, key->name, strlen(key->name), key);
    if (key->hh.tbl == NULL) {
        free(key);
        return false;
    }
    scope->unfinished_count += key->is_rank ? 1 : 0;
    scopes->key_count++;
    scopes->size_bytes += cost(key);
    return true;
}

muster_status muster_horovod_scopes_put(struct muster_horovod_scopes *scopes, const char *scope,
                                        const char *key, const void *value, size_t size_bytes)
{
    struct muster_horovod_scope *found = find_scope(scopes, scope);
    struct muster_horovod_key *replaced = find_key(found, key);
    TRY(check_bounds(scopes, replaced, size_bytes));
    struct muster_horovod_key *created = create_key(key, value, size_bytes);
    if (created == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    if (found == NULL) {
        found = add_scope(scopes, scope);
    }
    if (found == NULL) {
        free(created);
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    /* uthash finds the one that was added last, so the old key goes once the new one is in. */
    if (!add_key(scopes, found, created)) {
        if (found->first == NULL) {
            remove_scope(scopes, found);
        }
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    if (replaced != NULL) {
        remove_key(scopes, found, replaced);
    }
    return MUSTER_OK;
}

/* Get, delete --------------------------------------------------------------------------------- */

bool muster_horovod_scopes_get(const struct muster_horovod_scopes *scopes, const char *scope,
                               const char *key, const void **ret_value, size_t *ret_size_bytes)
{
    const struct muster_horovod_key *found = find_key(find_scope(scopes, scope), key);
    if (found == NULL) {
        return false;
    }
    *ret_value = found->value;
    *ret_size_bytes = found->size_bytes;
    return true;
}

void muster_horovod_scopes_delete(struct muster_horovod_scopes *scopes, const char *scope,
                                  const char *key)
{
    struct muster_horovod_scope *found = find_scope(scopes, scope);
    struct muster_horovod_key *deleted = find_key(found, key);
    if (deleted == NULL) {
        return;
    }
    if (!deleted->is_rank) {
        remove_key(scopes, found, deleted);
    } else if (!deleted->finished) {
        deleted->finished = true;
        found->unfinished_count--;
        found->finished_count++;
    }
    bool all_finished = found->finished_count > 0 && found->unfinished_count == 0;
    if (found->first == NULL || all_finished) {
        remove_scope(scopes, found);
    }
}
