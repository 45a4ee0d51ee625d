#include "worker/context/cached_operations.h"

#include <stdlib.h>
#include <string.h>

#include "worker/base/status.h"

enum {
    OPERATIONS_MAX = 256,
    STEPS_MAX = 1 << 18, /* of all of them together: some 50 MiB */
};

void muster_kept_init(struct muster_kept_table *ret_table)
{
    *ret_table = (struct muster_kept_table){.by_key = NULL};
    TAILQ_INIT(&ret_table->order);
}

void muster_kept_drop(struct muster_kept_table *table, struct muster_kept *kept)
{
    /* The analyzer cannot know that what is in the order is also in the table. */
    HASH_DEL(table->by_key, kept); /* NOLINT(clang-analyzer-core.NullDereference) */
    TAILQ_REMOVE(&table->order, kept, order);
    table->steps -= kept->step_count;
    muster_operation_destroy(kept->operation);
    free(kept->key);
    free(kept);
}

void muster_kept_clear(struct muster_kept_table *table)
{
    while (!TAILQ_EMPTY(&table->order)) {
        muster_kept_drop(table, TAILQ_FIRST(&table->order));
    }
}

static size_t key_size(const struct muster_call_key *key)
{
    return sizeof *key + key->bound_count * sizeof key->bounds[0];
}

static bool same_key(const struct muster_call_key *one, const struct muster_call_key *other)
{
    return one->bound_count == other->bound_count && memcmp(one, other, key_size(one)) == 0;
}

struct muster_kept *muster_kept_find(struct muster_kept_table *table,
                                     const struct muster_call_key *key)
{
    struct muster_kept *kept = TAILQ_FIRST(&table->order);
    if (kept != NULL && same_key(kept->key, key)) { /* the same again: most calls are */
        return kept;
    }
    HASH_FIND(hh, table->by_key, key, key_size(key), kept);
    if (kept != NULL) {
        TAILQ_REMOVE(&table->order, kept, order);
        TAILQ_INSERT_HEAD(&table->order, kept, order);
    }
    return kept;
}

/* Makes room for one more operation of so many steps. */
static void trim(struct muster_kept_table *table, size_t step_count)
{
    while (!TAILQ_EMPTY(&table->order) &&
           (HASH_COUNT(table->by_key) >= OPERATIONS_MAX || table->steps + step_count > STEPS_MAX)) {
        struct muster_kept *oldest = TAILQ_LAST(&table->order, muster_kept_order);
        muster_kept_drop(table, oldest); /* NOLINT(clang-analyzer-unix.Malloc): it is unlinked */
    }
}

muster_status muster_kept_add(struct muster_kept_table *table, const struct muster_call_key *key,
                              const struct muster_kept *made, struct muster_kept **ret_kept)
{
    trim(table, made->step_count);
    struct muster_kept *kept = malloc(sizeof *kept);
    struct muster_call_key *copy = malloc(key_size(key));
    if (kept != NULL && copy != NULL) {
        memcpy(copy, key, key_size(key));
        *kept = *made;
        kept->key = copy;
        HASH_ADD_KEYPTR(hh, table->by_key, kept->key, key_size(kept->key), kept);
    }
    if (kept == NULL || copy == NULL || kept->hh.tbl == NULL) {
        free(kept);
        free(copy);
        muster_operation_destroy(made->operation);
        return muster_error_set(MUSTER_FATAL, "no memory to keep an operation");
    }
    TAILQ_INSERT_HEAD(&table->order, kept, order);
    table->steps += kept->step_count;
    *ret_kept = kept;
    return MUSTER_OK;
}
