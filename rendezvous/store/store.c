/* The stores, one row each. */
#include "rendezvous/store/store.h"

#include <stdbool.h>
#include <string.h>

static bool is_memory(const char *place)
{
    return strcmp(place, "memory") == 0;
}

static muster_status open_memory(const char *place, const struct muster_call_files *files,
                                 struct muster_store **ret_store)
{
    (void)place;
    (void)files;
    return muster_store_memory_open(ret_store);
}

static bool is_etcd(const char *place)
{
    return strncmp(place, "etcd://", strlen("etcd://")) == 0;
}

static bool is_path(const char *place)
{
    (void)place;
    return true;
}

static muster_status open_sqlite(const char *place, const struct muster_call_files *files,
                                 struct muster_store **ret_store)
{
    (void)files;
    return muster_store_sqlite_open(place, ret_store);
}

/* The first row that accepts the place opens it. */
static const struct {
    bool (*accepts)(const char *place);
    muster_status (*open)(const char *place, const struct muster_call_files *files,
                          struct muster_store **ret_store);
} stores[] = {
    {is_memory, open_memory},
    {is_etcd, muster_store_etcd_open},
    {is_path, open_sqlite},
};

muster_status muster_store_open(const char *place, const struct muster_call_files *files,
                                struct muster_store **ret_store)
{
    size_t row = 0;
    while (!stores[row].accepts(place)) {
        row++;
    }
    return stores[row].open(place, files, ret_store);
}
