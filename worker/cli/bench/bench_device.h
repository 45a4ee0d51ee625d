/*
 * muster bench: buffers in memory of a GPU, one GPU a rank in turns. Allocated as programs do it,
 * through libcuda, which is loaded here.
 */
#ifndef MUSTER_WORKER_CLI_BENCH_BENCH_DEVICE_H
#define MUSTER_WORKER_CLI_BENCH_BENCH_DEVICE_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes the GPU that rank number `rank` uses the calling thread's. MUSTER_INVALID: there is no
 * libcuda, or no GPU. */
MUSTER_CHECKED muster_status muster_bench_device_open(uint32_t rank);
/* A stream of that GPU, until the process ends; and what waits for it. */
MUSTER_CHECKED muster_status muster_bench_device_make_stream(uintptr_t *ret_stream);
MUSTER_CHECKED muster_status muster_bench_device_wait(uintptr_t stream);
/* Memory of that GPU, until the process ends. MUSTER_FATAL: there is not so much. */
MUSTER_CHECKED muster_status muster_bench_device_allocate(size_t size_bytes, void **ret_memory);
#endif
