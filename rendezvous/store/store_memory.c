/* The store that stores nothing: every function does nothing and succeeds. */
#include "rendezvous/store/store.h"

#include <stdlib.h>

static muster_status append(struct muster_store *store, const struct muster_store_job *job,
                            uint64_t sequence, const char *text)
{
    (void)store;
    (void)job;
    (void)sequence;
    (void)text;
    return MUSTER_OK;
}

static muster_status read_rows(struct muster_store *store, const struct muster_store_job *job,
                               struct muster_store_range range,
                               const struct muster_store_reader *reader, size_t *ret_count)
{
    (void)store;
    (void)job;
    (void)range;
    (void)reader;
    *ret_count = 0;
    return MUSTER_OK;
}

static muster_status stage(struct muster_store *store, const struct muster_store_job *job,
                           uint64_t first_index, char *const *texts, size_t count)
{
    (void)store;
    (void)job;
    (void)first_index;
    (void)texts;
    (void)count;
    return MUSTER_OK;
}

static muster_status install(struct muster_store *store, const struct muster_store_job *job)
{
    (void)store;
    (void)job;
    return MUSTER_OK;
}

static muster_status trim(struct muster_store *store, const struct muster_store_job *job,
                          size_t max, size_t *ret_count)
{
    (void)store;
    (void)job;
    (void)max;
    *ret_count = 0;
    return MUSTER_OK;
}

static muster_status put(struct muster_store *store, const char *job, uint64_t generation,
                         const char *key, const void *value, size_t size_bytes)
{
    (void)store;
    (void)job;
    (void)generation;
    (void)key;
    (void)value;
    (void)size_bytes;
    return MUSTER_OK;
}

static muster_status remove_value(struct muster_store *store, const char *job, uint64_t generation,
                                  const char *key)
{
    (void)store;
    (void)job;
    (void)generation;
    (void)key;
    return MUSTER_OK;
}

static muster_status drop_values(struct muster_store *store, const char *job,
                                 uint64_t below_generation)
{
    (void)store;
    (void)job;
    (void)below_generation;
    return MUSTER_OK;
}

static muster_status remove_job(struct muster_store *store, const char *job)
{
    (void)store;
    (void)job;
    return MUSTER_OK;
}

static muster_status sync_nothing(struct muster_store *store)
{
    (void)store;
    return MUSTER_OK;
}

static muster_status probe(struct muster_store *store)
{
    (void)store;
    return MUSTER_OK;
}

static muster_status load(struct muster_store *store, const struct muster_store_reader *reader)
{
    (void)store;
    (void)reader;
    return MUSTER_OK;
}

static void close_store(struct muster_store *store)
{
    free(store);
}

static const struct muster_store_ops memory_ops = {
    .kind = "memory",
    .append = append,
    .read = read_rows,
    .stage = stage,
    .install = install,
    .trim = trim,
    .put = put,
    .remove_value = remove_value,
    .drop_values = drop_values,
    .remove = remove_job,
    .syncs = false,
    .sync = sync_nothing,
    .probe = probe,
    .load = load,
    .close = close_store,
};

muster_status muster_store_memory_open(struct muster_store **ret_store)
{
    struct muster_store *store = calloc(1, sizeof *store);
    if (store == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    store->ops = &memory_ops;
    *ret_store = store;
    return MUSTER_OK;
}
