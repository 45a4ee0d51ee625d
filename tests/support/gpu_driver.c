/* Loads a libcuda. */
#include "tests/support/gpu_driver.h"

#include <dlfcn.h>
#include <string.h>

static bool find(void *library, const char *name, void *ret_function)
{
    void *symbol = dlsym(library, name);
    memcpy(ret_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* The name of a function that is missing, or NULL. */
static const char *find_all(void *library, struct gpu_driver *driver)
{
#define FIND(name)                              \
    if (!find(library, #name, &driver->name)) { \
        return #name;                           \
    }
    GPU_DRIVER_FUNCTIONS(FIND)
#undef FIND
    return NULL;
}

bool gpu_driver_load(const char *path, struct gpu_driver *ret_driver, const char **ret_why)
{
    struct gpu_driver driver = {0};
    void *context = NULL;
    int device = 0;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    *ret_why = library == NULL ? dlerror() : find_all(library, &driver);
    if (*ret_why != NULL) {
        return false;
    }
    if (driver.cuInit(0) != 0 || driver.cuDeviceGet(&device, 0) != 0 ||
        driver.cuDevicePrimaryCtxRetain(&context, device) != 0 ||
        driver.cuCtxSetCurrent(context) != 0) {
        *ret_why = "it has no GPU";
        return false;
    }
    *ret_driver = driver;
    return true;
}
