/* muster bench: whether the ranks' buffers fit into memory. Else the kernel would look for room for
 * a minute, and then kill somebody. */
#include "worker/cli/bench/bench_parts.h"

#include <inttypes.h>
#include <stdio.h>

#include "worker/base/status.h"

enum { KIB = 1024 };

static const double gib = 1024.0 * 1024 * 1024;

/* UINT64_MAX if the kernel does not say. */
static uint64_t available_bytes(void)
{
    char line[128];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    bool found = false;
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        found = sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1; /* NOLINT(cert-err34-c) */
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found && kib < UINT64_MAX / KIB ? kib * KIB : UINT64_MAX;
}

/* Of all ranks together, at the least: blocks, which are smaller, do not count. */
static double needed_bytes(const struct muster_bench_options *options)
{
    uint64_t largest_bytes = 0;
    for (size_t i = 0; i < options->size_count; i++) {
        uint64_t bytes;
        (void)muster_bench_count(options, options->sizes_bytes[i], &bytes);
        largest_bytes = bytes > largest_bytes ? bytes : largest_bytes;
    }
    switch (options->collective) {
    case MUSTER_GATHER:
    case MUSTER_GATHERV:
    case MUSTER_SCATTER: /* the root's */
        return (double)largest_bytes;
    case MUSTER_ALLREDUCE:
        return (double)largest_bytes * options->ranks * (options->in_place ? 1 : 2);
    default:
        return (double)largest_bytes * options->ranks;
    }
}

muster_status muster_bench_check_memory(const struct muster_bench_options *options)
{
    double needed = needed_bytes(options);
    uint64_t available = available_bytes();
    if (available == UINT64_MAX || needed <= (double)available) {
        return MUSTER_OK;
    }
    return muster_error_set(MUSTER_FATAL,
                            "--bytes: the buffers of %u ranks take %.1f GiB at least, and %.1f GiB "
                            "of memory are available",
                            options->ranks, needed / gib, (double)available / gib);
}
