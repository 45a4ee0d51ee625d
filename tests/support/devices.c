/* The devices of the tests: the registry, and buffers of sweeps in their memory. */
#include "tests/support/devices.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/gpu_pretend.h"

#define DEVICES(ROW) \
    ROW(host)        \
    ROW(cuda)        \
    ROW(toy)

#define DECLARE(name) extern const struct test_device name##_test_device;
#define POINT_TO(name) &name##_test_device,

DEVICES(DECLARE)

static const struct test_device *const rows[] = {DEVICES(POINT_TO)};

const struct test_device *devices_start(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i]->name, name) == 0) {
            rows[i]->start();
            return rows[i];
        }
    }
    return NULL;
}

/* Memory of the host, where an address is its own alias. ----------------------------------------
 */

static void start_nothing(void)
{
}

static void *same(const void *memory)
{
    return (void *)memory;
}

const struct test_device host_test_device = {.name = "host",
                                             .start = start_nothing,
                                             .allocate = malloc,
                                             .release = free,
                                             .alias = same,
                                             .of_alias = same};

/* The pretended GPU -----------------------------------------------------------------------------
 */

static const struct gpu_pretend *gpu;

static void start_gpu(void)
{
    gpu = gpu_pretend_load(false);
}

static void *allocate_on_gpu(size_t size_bytes)
{
    return gpu->allocate(size_bytes, 0);
}

static void release_on_gpu(void *memory)
{
    gpu->release(memory);
}

static void *alias_on_gpu(const void *memory)
{
    return gpu->alias(memory);
}

static void *of_alias_on_gpu(const void *alias)
{
    return gpu->of_alias(alias);
}

const struct test_device cuda_test_device = {.name = "cuda",
                                             .start = start_gpu,
                                             .allocate = allocate_on_gpu,
                                             .release = release_on_gpu,
                                             .alias = alias_on_gpu,
                                             .of_alias = of_alias_on_gpu};

/* Sweeps ----------------------------------------------------------------------------------------
 */

static const struct test_device *of;

static void *allocate(size_t size_bytes, uint32_t rank, bool output)
{
    return output || rank % 2 == 1 ? of->alias(of->allocate(size_bytes)) : malloc(size_bytes);
}

static void release(void *memory)
{
    void *seen = of->of_alias(memory);
    if (seen != NULL) {
        of->release(seen);
    } else {
        free(memory);
    }
}

static void *for_library(const void *memory)
{
    void *seen = of->of_alias(memory);
    return seen != NULL ? seen : (void *)memory;
}

const struct sweep_memory *devices_memory(const struct test_device *device)
{
    static const struct sweep_memory memory = {
        .allocate = allocate, .release = release, .for_library = for_library};
    of = device;
    return &memory;
}
