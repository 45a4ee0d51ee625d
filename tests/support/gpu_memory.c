/* Allocates buffers of sweeps in memory of the pretended GPU, or of the host. */
#include "tests/support/gpu_memory.h"

#include <stdlib.h>

static const struct gpu_pretend *gpu;
static enum gpu_memory_where place;
static unsigned kind;

static bool is_of_gpu(uint32_t rank, bool output)
{
    return place == GPU_MEMORY_ALL || (place == GPU_MEMORY_INPUTS && !output) ||
           (place == GPU_MEMORY_OUTPUTS && output) ||
           (place == GPU_MEMORY_ODD_RANKS && rank % 2 == 1);
}

static void *allocate(size_t size_bytes, uint32_t rank, bool output)
{
    return is_of_gpu(rank, output) ? gpu->alias(gpu->allocate(size_bytes, kind))
                                   : malloc(size_bytes);
}

static void release(void *memory)
{
    void *seen = gpu->of_alias(memory);
    if (seen != NULL) {
        gpu->release(seen);
    } else {
        free(memory);
    }
}

static void *for_library(const void *memory)
{
    void *seen = gpu->of_alias(memory);
    return seen != NULL ? seen : (void *)memory;
}

const struct sweep_memory *gpu_memory(const struct gpu_pretend *of, enum gpu_memory_where where,
                                      unsigned kind_there)
{
    static const struct sweep_memory memory = {
        .allocate = allocate, .release = release, .for_library = for_library};
    gpu = of;
    place = where;
    kind = kind_there;
    return &memory;
}
