/* Loads a libcuda. */
#include "tests/support/gpu_driver.h"

#include "tests/support/gpu_pretend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
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

static void print_gpu(const struct gpu_driver *driver)
{
    int version = 0;
    char name[128] = "";
    (void)driver->cuDriverGetVersion(&version);
    (void)driver->cuDeviceGetName(name, sizeof name, 0);
    (void)printf("%s, CUDA %d.%d of the driver\n", name, version / 1000, version % 1000 / 10);
}

bool gpu_driver_start(struct gpu_driver *ret_driver, bool *ret_pretended)
{
    const char *why = NULL;
    *ret_pretended = false;
    if (!gpu_driver_load("libcuda.so.1", ret_driver, &why)) {
        *ret_pretended = true;
        if (getenv("MUSTER_TEST_GPU") != NULL ||
            !gpu_driver_load(gpu_pretend_path(), ret_driver, &why)) {
            (void)fprintf(stderr, "there is no GPU, or no libcuda.so.1 to use it: %s\n", why);
            return false;
        }
    }
    print_gpu(ret_driver);
    return true;
}

void *gpu_driver_pointer(uint64_t address)
{
    void *pointer = NULL;
    memcpy(&pointer, &address, sizeof pointer);
    return pointer;
}
