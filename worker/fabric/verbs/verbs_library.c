/* Loads libibverbs and prepares it for fork(). */
#include "worker/fabric/verbs/verbs_library.h"

#include "worker/base/log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct {
    pthread_once_t once;
    struct muster_verbs_library library;
    char failure[256]; /* "": none */
} loaded = {.once = PTHREAD_ONCE_INIT};

static void find_symbol(void *handle, const char *name, void *ret_function)
{
    void *symbol = dlsym(handle, name);
    if (symbol == NULL && loaded.failure[0] == '\0') {
        (void)snprintf(loaded.failure, sizeof loaded.failure,
                       "libibverbs.so.1 has no %s: rdma-core 33 or newer is needed", name);
    }
    memcpy(ret_function, &symbol, sizeof symbol);
}

/* Pages that a device reads must stay with this process when it forks. Newer kernels copy them for
 * the child. On older kernels ibv_fork_init() hides them from the child, which then crashes if it
 * touches a user's buffer; so ibv_fork_init() is called only where it is needed. Versions of
 * rdma-core before 35 do not say whether it is needed: then it is called. */
static void prepare_for_fork(void *handle)
{
    enum ibv_fork_status (*status)(void) = NULL;
    void *symbol = dlsym(handle, "ibv_is_fork_initialized");
    memcpy(&status, &symbol, sizeof symbol);
    if (status != NULL && status() == IBV_FORK_UNNEEDED) {
        return;
    }
    int error = loaded.library.fork_init();
    if (error != 0) {
        muster_log(MUSTER_LOG_WARN,
                   "RDMA is not prepared for fork() (%s): memory was registered before; set "
                   "IBV_FORK_SAFE=1 if this process forks",
                   strerror(error));
    }
}

/* The library is never unloaded. */
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
#define FIND(name) find_symbol(handle, "ibv_" #name, &loaded.library.name);
    MUSTER_VERBS_SYMBOLS(FIND)
#undef FIND
    find_symbol(handle, "_ibv_query_gid_ex", &loaded.library.query_gid_ex);
    void *symbol = dlsym(handle, "ibv_reg_dmabuf_mr");
    memcpy(&loaded.library.reg_dmabuf_mr, &symbol, sizeof symbol);
    if (loaded.failure[0] == '\0') {
        prepare_for_fork(handle);
    }
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
