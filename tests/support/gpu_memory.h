/* Buffers of collectives in memory of the pretended GPU, for sweeps. */
#ifndef MUSTER_TESTS_SUPPORT_GPU_MEMORY_H
#define MUSTER_TESTS_SUPPORT_GPU_MEMORY_H

#include "tests/support/gpu_pretend.h"
#include "tests/support/sweep.h"

/* Which buffers are there; the others are the host's. */
enum gpu_memory_where {
    GPU_MEMORY_ALL,
    GPU_MEMORY_INPUTS,
    GPU_MEMORY_OUTPUTS,
    GPU_MEMORY_ODD_RANKS,
    GPU_MEMORY_WHERES
};

/* Of which kind (gpu_pretend.h); from now on. */
const struct sweep_memory *gpu_memory(const struct gpu_pretend *gpu, enum gpu_memory_where where,
                                      unsigned kind);

#endif
