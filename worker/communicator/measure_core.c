/* Which cores a rank may use, how many ranks share them, and how fast one core reduces and copies.
 */
#include "worker/communicator/measure_core.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "collectives/reduce/reduce.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/cores.h"
#include "worker/base/status.h"

enum {
    REPEATS = 3,
    CORES_MAX = 1 << 16, /* a description with more is ignored */
};

/* Cores ---------------------------------------------------------------------------------------- */

/* Needed because several hosts of a job may be simulated on one machine. */
static double machine_digest(void)
{
    char text[40] = "";
    uint32_t number = 0;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL) {
        if (fgets(text, sizeof text, file) != NULL) {
            number = (uint32_t)strtoul(text, NULL, 16); /* up to the first hyphen */
        }
        (void)fclose(file);
    }
    return number;
}

static uLong add_control_group(uLong crc)
{
    char line[256];
    struct stat namespace = {0};
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        crc = crc32(crc, (const Bytef *)line, (uInt)strlen(line));
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    /* The namespace counts, too: two containers may both see their own group as the root. */
    if (stat("/proc/self/ns/cgroup", &namespace) == 0) {
        crc = crc32(crc, (const Bytef *)&namespace.st_ino, sizeof namespace.st_ino);
    }
    return crc;
}

/* The same for processes that may use the same cores and share one quota. */
static double core_set_digest(void)
{
    cpu_set_t cores;
    uLong crc = crc32(0, NULL, 0);
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
        crc = crc32(crc, (const Bytef *)&cores, sizeof cores);
    }
    return (double)(muster_cores_quota_millis("") < UINT64_MAX ? add_control_group(crc) : crc);
}

struct muster_core_description muster_core_describe(void)
{
    return (struct muster_core_description){.machine = machine_digest(),
                                            .core_set = core_set_digest(),
                                            .cores = muster_cores_usable(),
                                            .online = (double)sysconf(_SC_NPROCESSORS_ONLN)};
}

static int compare_core_sets(const void *left, const void *right)
{
    const struct muster_core_description *a = left;
    const struct muster_core_description *b = right;
    return (a->core_set > b->core_set) - (a->core_set < b->core_set);
}

/* The number of cores that the ranks of one machine have together: each core set counts once, and
 * core sets may overlap. 0: unknown. Sorts the descriptions. */
static double count_cores(struct muster_core_description *descriptions, uint32_t count)
{
    double cores = 0;
    qsort(descriptions, count, sizeof *descriptions, compare_core_sets);
    for (uint32_t i = 0; i < count; i++) {
        const struct muster_core_description *each = &descriptions[i];
        if ((i == 0 || each->core_set != descriptions[i - 1].core_set) && each->cores >= 1 &&
            each->cores <= CORES_MAX) {
            cores += each->cores;
        }
    }
    return descriptions[0].online >= 1 ? fmin(cores, descriptions[0].online) : cores;
}

muster_status muster_core_count_shared(const struct muster_topology *topology,
                                       const struct muster_core_description *descriptions,
                                       struct muster_core_figures *core)
{
    bool one_machine = topology->hosts > 1;
    for (uint32_t rank = 0; rank < topology->ranks; rank++) {
        one_machine &= descriptions[rank].machine == descriptions[0].machine;
    }
    AUTO_FREE struct muster_core_description *sorted =
        calloc((size_t)topology->ranks + 1, sizeof *sorted);
    if (sorted == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the cores of %u ranks",
                                topology->ranks);
    }
    memcpy(sorted, descriptions, topology->ranks * sizeof *sorted);
    double least = INFINITY;
    for (uint32_t host = 0; host < (one_machine ? 1 : topology->hosts); host++) {
        uint32_t ranks = one_machine ? topology->ranks : topology->host_sizes[host];
        double cores = count_cores(&sorted[topology->host_first[host]], ranks);
        least = cores >= 1 && cores < ranks && cores < least ? cores : least;
    }
    core->cores = isfinite(least) ? (uint32_t)least : 0;
    core->one_machine = one_machine && core->cores > 0 ? 1 : 0;
    return MUSTER_OK;
}

/* Rates ---------------------------------------------------------------------------------------- */

static double rate_GBps(size_t size_bytes, int64_t duration_ns)
{
    return (double)size_bytes / (double)(duration_ns > 0 ? duration_ns : 1);
}

void muster_core_measure(const char *in, char *out, double *ret_reduce_GBps, double *ret_copy_GBps)
{
    muster_reduce_function reduce = muster_reduce_kernel(MUSTER_FLOAT32, MUSTER_SUM);
    int64_t reduce_ns = INT64_MAX;
    int64_t copy_ns = INT64_MAX;
    memset(out, 0, MUSTER_MEASURE_TARGET_BYTES); /* maps its pages */
    for (int i = 0; i < REPEATS; i++) {
        int64_t start_ns = muster_clock_ns();
        for (size_t at = 0; at < MUSTER_MEASURE_TARGET_BYTES; at += MUSTER_MEASURE_SOURCE_BYTES) {
            memcpy(out + at, in, MUSTER_MEASURE_SOURCE_BYTES);
        }
        int64_t middle_ns = muster_clock_ns();
        for (size_t at = 0; at < MUSTER_MEASURE_TARGET_BYTES; at += MUSTER_MEASURE_SOURCE_BYTES) {
            reduce(out + at, out + at, in, MUSTER_MEASURE_SOURCE_BYTES / sizeof(float));
        }
        int64_t end_ns = muster_clock_ns();
        copy_ns = middle_ns - start_ns < copy_ns ? middle_ns - start_ns : copy_ns;
        reduce_ns = end_ns - middle_ns < reduce_ns ? end_ns - middle_ns : reduce_ns;
    }
    *ret_reduce_GBps = rate_GBps(MUSTER_MEASURE_TARGET_BYTES, reduce_ns);
    *ret_copy_GBps = rate_GBps(MUSTER_MEASURE_TARGET_BYTES, copy_ns);
}
