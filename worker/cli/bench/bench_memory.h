/* Memory that measurements need and use. */
#ifndef MUSTER_WORKER_CLI_BENCH_BENCH_MEMORY_H
#define MUSTER_WORKER_CLI_BENCH_BENCH_MEMORY_H

#include "worker/base/status.h"

#include <stdint.h>

/* MUSTER_FATAL: the buffers of all ranks need more than is available. option: "--bytes". */
MUSTER_CHECKED muster_status muster_bench_check_available(const char *option, uint32_t ranks,
                                                          double needed_bytes);
/* The peak resident memory of this process; 0: not known. */
uint64_t muster_bench_peak_bytes(void);

#endif
