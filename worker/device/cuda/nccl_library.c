/* Finds libnccl among the libraries that the process has loaded, or loads it, and its functions. */
#include "worker/device/cuda/nccl_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "worker/base/option_parse.h"
#include "worker/base/thread.h"

enum { CONFIG_MAGIC = 0xcafebeef, UNDEFINED = INT_MIN };

static struct {
    pthread_mutex_t mutex;
    bool found;
    struct muster_nccl nccl;
} library = {.mutex = PTHREAD_MUTEX_INITIALIZER};

struct muster_nccl_config muster_nccl_config_default(void)
{
    return (struct muster_nccl_config){.size = sizeof(struct muster_nccl_config),
                                       .magic = CONFIG_MAGIC,
                                       .version = MUSTER_NCCL_VERSION_MIN + 1,
                                       .blocking = UNDEFINED,
                                       .cga_cluster_size = UNDEFINED,
                                       .ctas_min = UNDEFINED,
                                       .ctas_max = UNDEFINED,
                                       .split_share = UNDEFINED};
}

void muster_nccl_print_version(int version, char ret_text[MUSTER_NCCL_VERSION_SIZE])
{
    (void)snprintf(ret_text, MUSTER_NCCL_VERSION_SIZE, "%d.%d.%d", version / 10000,
                   version / 100 % 100, version % 100);
}

static bool find(void *handle, const char *name, void *ret_function)
{
    void *symbol = dlsym(handle, name);
    memcpy(ret_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool find_all(void *handle, struct muster_nccl *ret_nccl)
{
    return find(handle, "ncclGetVersion", &ret_nccl->get_version) &&
           find(handle, "ncclGetUniqueId", &ret_nccl->get_unique_id) &&
           find(handle, "ncclCommInitRankConfig", &ret_nccl->comm_init_rank_config) &&
           find(handle, "ncclCommFinalize", &ret_nccl->comm_finalize) &&
           find(handle, "ncclCommAbort", &ret_nccl->comm_abort) &&
           find(handle, "ncclCommGetAsyncError", &ret_nccl->comm_get_async_error) &&
           find(handle, "ncclGetErrorString", &ret_nccl->get_error_string) &&
           find(handle, "ncclGetLastError", &ret_nccl->get_last_error) &&
           find(handle, "ncclAllReduce", &ret_nccl->all_reduce) &&
           find(handle, "ncclReduceScatter", &ret_nccl->reduce_scatter) &&
           find(handle, "ncclAllGather", &ret_nccl->all_gather) &&
           find(handle, "ncclReduce", &ret_nccl->reduce) &&
           find(handle, "ncclBroadcast", &ret_nccl->broadcast) &&
           find(handle, "ncclGroupStart", &ret_nccl->group_start) &&
           find(handle, "ncclGroupEnd", &ret_nccl->group_end);
}

/* A version before 2.18 may lack functions, so its number comes first. */
static muster_status check_version(void *handle, int *ret_version)
{
    int (*get_version)(int *) = NULL;
    char text[MUSTER_NCCL_VERSION_SIZE];
    int version = 0;
    if (!find(handle, "ncclGetVersion", &get_version) || get_version(&version) != 0) {
        return muster_error_set(MUSTER_INVALID, "NCCL is off: the library has no ncclGetVersion");
    }
    muster_nccl_print_version(version, text);
    if (version < MUSTER_NCCL_VERSION_MIN) {
        return muster_error_set(MUSTER_INVALID,
                                "NCCL is off: the library is version %s%s; 2.18 or "
                                "newer is needed",
                                version < 10000 ? "before " : "", version < 10000 ? "2.9" : text);
    }
    *ret_version = version;
    return MUSTER_OK;
}

/* The handle is kept, so the library stays loaded. */
static muster_status load_locked(const char *setting)
{
    const char *name = setting != NULL ? setting : "libnccl.so.2";
    void *handle = dlopen(name, RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == NULL) {
        return muster_error_set(MUSTER_INVALID, "NCCL is off: %s", dlerror());
    }
    struct muster_nccl nccl = {.version = 0};
    muster_status status = check_version(handle, &nccl.version);
    if (status == MUSTER_OK && !find_all(handle, &nccl)) {
        status =
            muster_error_set(MUSTER_INVALID, "NCCL is off: a function is missing: %s", dlerror());
    }
    if (status != MUSTER_OK) {
        (void)dlclose(handle);
        return status;
    }
    library.nccl = nccl;
    library.found = true;
    return MUSTER_OK;
}

muster_status muster_nccl_library(const struct muster_nccl **ret_nccl)
{
    const char *setting = muster_option_variable("MUSTER_NCCL");
    if (setting != NULL && strcmp(setting, "off") == 0) {
        return muster_error_set(MUSTER_INVALID, "NCCL is off: MUSTER_NCCL=off");
    }
    AUTO_LOCK(&library.mutex);
    if (!library.found) {
        TRY(load_locked(setting));
    }
    *ret_nccl = &library.nccl;
    return MUSTER_OK;
}
