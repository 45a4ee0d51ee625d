/* Buffers of collectives in memory of the pretended GPU, for sweeps. */
#ifndef MUSTER_TESTS_SUPPORT_GPU_MEMORY_H
#define MUSTER_TESTS_SUPPORT_GPU_MEMORY_H

#include "tests/support/gpu_pretend.h"
#include "tests/support/sweep.h"

/* Which buffers are in memory of the GPU; the others are in memory of the host. */
enum gpu_memory_where {
    GPU_MEMORY_ALL,
    GPU_MEMORY_INPUTS,
    GPU_MEMORY_OUTPUTS,
    GPU_MEMORY_ODD_RANKS,
    GPU_MEMORY_WHERES
};

/* Sets which buffers are in memory of the GPU from now on, and of which kind (gpu_pretend.h). */
const struct sweep_memory *gpu_memory(const struct gpu_pretend *gpu, enum gpu_memory_where where,
                                      unsigned kind);

#endif
