/* The cache of a context's operations: a hash by key, and a list by last use. */
#include "worker/context/cached_operations.h"

#include <stdlib.h>
#include <string.h>

#include "worker/base/status.h"

enum {
    OPERATIONS_MAX = 256,
    STEPS_MAX = 1 << 18, /* of all operations together: about 50 MiB */
};

void muster_operation_cache_init(struct muster_operation_cache *ret_cache)
{
    *ret_cache = (struct muster_operation_cache){.by_key = NULL};
    TAILQ_INIT(&ret_cache->order);
}

void muster_operation_cache_drop(struct muster_operation_cache *cache,
                                 struct muster_cached_operation *cached)
{
    /* The analyzer cannot know that what is in the list is also in the hash. */
    HASH_DEL(cache->by_key, cached); /* NOLINT(clang-analyzer-core.NullDereference) */
    TAILQ_REMOVE(&cache->order, cached, order);
    cache->steps -= cached->step_count;
    muster_operation_destroy(cached->operation);
    muster_operation_order_finish(&cached->order_of_blocks);
    free(cached->key);
    free(cached);
}

void muster_operation_cache_clear(struct muster_operation_cache *cache)
{
    while (!TAILQ_EMPTY(&cache->order)) {
        muster_operation_cache_drop(cache, TAILQ_FIRST(&cache->order));
    }
}

static size_t key_size(const struct muster_request_key *key)
{
    return sizeof *key + key->bound_count * sizeof key->bounds[0];
}

static bool same_key(const struct muster_request_key *one, const struct muster_request_key *other)
{
    return one->bound_count == other->bound_count && memcmp(one, other, key_size(one)) == 0;
}

struct muster_cached_operation *muster_operation_cache_find(struct muster_operation_cache *cache,
                                                            const struct muster_request_key *key)
{
    struct muster_cached_operation *cached = TAILQ_FIRST(&cache->order);
    if (cached != NULL && same_key(cached->key, key)) { /* most calls repeat the one before */
        return cached;
    }
    HASH_FIND(hh, cache->by_key, key, key_size(key), cached);
    if (cached != NULL) {
        TAILQ_REMOVE(&cache->order, cached, order);
        TAILQ_INSERT_HEAD(&cache->order, cached, order);
    }
    return cached;
}

/* Makes room for one more operation of so many steps. */
static void trim(struct muster_operation_cache *cache, size_t step_count)
{
    while (!TAILQ_EMPTY(&cache->order) &&
           (HASH_COUNT(cache->by_key) >= OPERATIONS_MAX || cache->steps + step_count > STEPS_MAX)) {
        struct muster_cached_operation *oldest =
            TAILQ_LAST(&cache->order, muster_operation_cache_order);
        muster_operation_cache_drop(cache, oldest); /* NOLINT(clang-analyzer-unix.Malloc) */
    }
}

muster_status muster_operation_cache_add(struct muster_operation_cache *cache,
                                         const struct muster_request_key *key,
                                         const struct muster_cached_operation *made,
                                         struct muster_cached_operation **ret_cached)
{
    trim(cache, made->step_count);
    struct muster_cached_operation *cached = malloc(sizeof *cached);
    struct muster_request_key *copy = malloc(key_size(key));
    if (cached != NULL && copy != NULL) {
        const struct muster_shape *shape = &made->launch.shape;
        memcpy(copy, key, key_size(key));
        *cached = *made;
        cached->key = copy;
        cached->launch.shape = muster_request_key_shape(copy, shape->rank, shape->ranks);
        HASH_ADD_KEYPTR(hh, cache->by_key, cached->key, key_size(cached->key), cached);
    }
    if (cached == NULL || copy == NULL || cached->hh.tbl == NULL) {
        free(cached);
        free(copy);
        struct muster_operation_order order = made->order_of_blocks;
        muster_operation_order_finish(&order);
        muster_operation_destroy(made->operation);
        return muster_error_set(MUSTER_FATAL, "no memory to cache an operation");
    }
    TAILQ_INSERT_HEAD(&cache->order, cached, order);
    cache->steps += cached->step_count;
    *ret_cached = cached;
    return MUSTER_OK;
}
