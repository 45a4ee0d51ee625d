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
    CORES_MAX = 1 << 16, /* more cannot be */
};

/* Facts ---------------------------------------------------------------------------------------- */

/* Hosts may be pretended, and then share the cores of one machine. */
static double machine_number(void)
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

static uLong add_group(uLong crc)
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
    /* Two containers may both see their own group as the root. */
    if (stat("/proc/self/ns/cgroup", &namespace) == 0) {
        crc = crc32(crc, (const Bytef *)&namespace.st_ino, sizeof namespace.st_ino);
    }
    return crc;
}

/* Of those who may use the same cores, and live on the same quota. */
static double share_number(void)
{
    cpu_set_t cores;
    uLong crc = crc32(0, NULL, 0);
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
        crc = crc32(crc, (const Bytef *)&cores, sizeof cores);
    }
    return (double)(muster_cores_quota_millis("") < UINT64_MAX ? add_group(crc) : crc);
}

struct muster_core_facts muster_core_describe(void)
{
    return (struct muster_core_facts){.machine = machine_number(),
                                      .share = share_number(),
                                      .cores = muster_cores_usable(),
                                      .online = (double)sysconf(_SC_NPROCESSORS_ONLN)};
}

/* A share with what it has, once. */
static int compare_facts(const void *left, const void *right)
{
    const struct muster_core_facts *a = left;
    const struct muster_core_facts *b = right;
    return (a->share > b->share) - (a->share < b->share);
}

/* Of the ranks that share a machine: what all their shares have together, 0 if nobody knows. Sorts
 * the facts. */
static double cores_of(struct muster_core_facts *facts, uint32_t count)
{
    double cores = 0;
    qsort(facts, count, sizeof *facts, compare_facts);
    for (uint32_t i = 0; i < count; i++) {
        if ((i == 0 || facts[i].share != facts[i - 1].share) && facts[i].cores >= 1 &&
            facts[i].cores <= CORES_MAX) {
            cores += facts[i].cores;
        }
    }
    return facts[0].online >= 1 ? fmin(cores, facts[0].online) : cores; /* shares may overlap */
}

muster_status muster_core_share(const struct muster_topology *topology,
                                const struct muster_core_facts *facts,
                                struct muster_core_figures *core)
{
    bool one_machine = topology->hosts > 1;
    for (uint32_t rank = 0; rank < topology->ranks; rank++) {
        one_machine &= facts[rank].machine == facts[0].machine;
    }
    AUTO_FREE struct muster_core_facts *sorted =
        calloc((size_t)topology->ranks + 1, sizeof *sorted);
    if (sorted == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the cores of %u ranks",
                                topology->ranks);
    }
    memcpy(sorted, facts, topology->ranks * sizeof *sorted);
    double least = INFINITY;
    for (uint32_t host = 0; host < (one_machine ? 1 : topology->hosts); host++) {
        uint32_t crowd = one_machine ? topology->ranks : topology->host_sizes[host];
        double cores = cores_of(&sorted[topology->host_first[host]], crowd);
        least = cores >= 1 && cores < crowd && cores < least ? cores : least;
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
    memset(out, 0, MUSTER_MEASURE_TARGET_BYTES); /* so that the memory is there */
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
