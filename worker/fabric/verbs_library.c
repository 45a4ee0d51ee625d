#include "worker/fabric/verbs_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct {
    pthread_once_t once;
    struct muster_verbs_library library;
    char failure[256]; /* "": it is there */
} loaded = {.once = PTHREAD_ONCE_INIT};

static void find(void *handle, const char *name, void *ret_function)
{
    void *symbol = dlsym(handle, name);
    if (symbol == NULL && loaded.failure[0] == '\0') {
        (void)snprintf(loaded.failure, sizeof loaded.failure,
                       "libibverbs.so.1 has no %s: rdma-core 33 or newer is needed", name);
    }
    memcpy(ret_function, &symbol, sizeof symbol);
}

/* It stays loaded. */
static void load(void)
{
    void *handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        (void)snprintf(loaded.failure, sizeof loaded.failure,
                       "libibverbs cannot be loaded (in Debian: apt-get install libibverbs1 "
                       "ibverbs-providers): %.100s",
                       dlerror());
        return;
    }
#define FIND(name) find(handle, "ibv_" #name, &loaded.library.name);
    MUSTER_VERBS_SYMBOLS(FIND)
#undef FIND
    find(handle, "_ibv_query_gid_ex", &loaded.library.query_gid_ex);
}

muster_status muster_verbs_library_load(const struct muster_verbs_library **ret_library)
{
    (void)pthread_once(&loaded.once, load);
    if (loaded.failure[0] != '\0') {
        return muster_error_set(MUSTER_INVALID, "%s", loaded.failure);
    }
    *ret_library = &loaded.library;
    return MUSTER_OK;
}
