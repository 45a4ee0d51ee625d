/* An allreduce of the tensors of a model as ranges, beside the same in one buffer. Run by each
 * worker of a job:
 *
 *     muster bench step --model resnet50 --list >LIST
 *     MUSTER_SHARED_MEMORY=0 muster run -n 4 -- build/release/tests/ranges LIST
 *
 * The file has the float32 elements of each tensor first in a line. Buffer and tensors are in the
 * same memory, the tensors with gaps between them, so that both ways use the same pages. Out of
 * place if a second argument is "out". Rank 0 prints the medians of the rounds, in which both ways
 * take turns. */
#include "tests/bench/peer.h"
#include "worker/muster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 31, WARM_UP = 12, TENSORS_MAX = 1024, GAP = 16 };

static void must(muster_status status)
{
    if (status != MUSTER_OK) {
        (void)fprintf(stderr, "ranges: %s\n", muster_last_error());
        exit(EXIT_FAILURE);
    }
}

static float *allocate(size_t count)
{
    float *memory = malloc((count + 1) * sizeof *memory);
    if (memory == NULL) {
        exit(EXIT_FAILURE);
    }
    memset(memory, 0, count * sizeof *memory);
    return memory;
}

/* The counts of the tensors; their number. */
static size_t read_counts(const char *path, size_t *counts)
{
    FILE *file = fopen(path, "re");
    char line[128];
    size_t count = 0;
    while (file != NULL && count < TENSORS_MAX && fgets(line, sizeof line, file) != NULL) {
        counts[count++] = strtoul(line, NULL, 10);
    }
    if (file == NULL || count == 0) {
        (void)fprintf(stderr, "ranges: %s: no counts\n", path);
        exit(EXIT_FAILURE);
    }
    (void)fclose(file);
    return count;
}

/* Cuts the memory into the tensors, with a gap between neighbours. */
static void cut(float *memory, const size_t *counts, size_t tensors, muster_range *ranges)
{
    for (size_t i = 0; i < tensors; i++) {
        ranges[i].address = memory;
        ranges[i].count = counts[i];
        memory += counts[i] + GAP;
    }
}

/* The medians of one way to call, of rank 0. */
struct times {
    double wall_us[ROUNDS], cpu_us[ROUNDS];
};

struct job {
    muster_session *session;
    muster_range *ins, *outs;
    size_t tensors, elements;
    float *in, *out; /* of as many elements */
};

static void run_flat(const struct job *job)
{
    must(muster_allreduce(job->session, MUSTER_GLOBAL, job->in, job->out, job->elements,
                          MUSTER_FLOAT32, MUSTER_SUM, NULL));
}

static void run_ranges(const struct job *job)
{
    must(muster_allreduce_ranges(job->session, MUSTER_GLOBAL, job->ins, job->outs, job->tensors,
                                 MUSTER_FLOAT32, MUSTER_SUM, NULL));
}

static void measure(const struct job *job, void (*run)(const struct job *job), int round,
                    struct times *times)
{
    must(muster_barrier(job->session, MUSTER_GLOBAL, NULL));
    double start_us = peer_clock_us(CLOCK_MONOTONIC);
    double start_cpu_us = peer_clock_us(CLOCK_PROCESS_CPUTIME_ID);
    run(job);
    if (round >= 0) {
        times->wall_us[round] = peer_clock_us(CLOCK_MONOTONIC) - start_us;
        times->cpu_us[round] = peer_clock_us(CLOCK_PROCESS_CPUTIME_ID) - start_cpu_us;
    }
}

static void print(const struct job *job, struct times *flat, struct times *ranges)
{
    double flat_us = peer_median(flat->wall_us, ROUNDS);
    double ranges_us = peer_median(ranges->wall_us, ROUNDS);
    double flat_cpu_us = peer_median(flat->cpu_us, ROUNDS);
    double ranges_cpu_us = peer_median(ranges->cpu_us, ROUNDS);
    (void)printf(
        "%zu elements %s: one buffer %.0f us, %zu ranges %.0f us, ratio %.3f; processor "
        "time %.0f us, %.0f us, ratio %.3f\n",
        job->elements, job->in == job->out ? "in place" : "out of place", flat_us, job->tensors,
        ranges_us, ranges_us / flat_us, flat_cpu_us, ranges_cpu_us, ranges_cpu_us / flat_cpu_us);
}

int main(int argc, char **argv)
{
    static size_t counts[TENSORS_MAX];
    static muster_range ins[TENSORS_MAX];
    static muster_range outs[TENSORS_MAX];
    static struct times flat;
    static struct times ranges;
    int in_place = argc < 3 || strcmp(argv[2], "out") != 0;
    struct job job = {.ins = ins, .outs = in_place ? ins : outs};
    job.tensors = argc > 1 ? read_counts(argv[1], counts) : 0;
    for (size_t i = 0; i < job.tensors; i++) {
        job.elements += counts[i];
    }
    size_t room = job.elements + job.tensors * GAP;
    job.in = allocate(room);
    job.out = in_place ? job.in : allocate(room);
    cut(job.in, counts, job.tensors, ins);
    cut(job.out, counts, job.tensors, outs);
    must(muster_open(NULL, &job.session));
    for (int round = -WARM_UP; round < ROUNDS; round++) {
        int ranges_first = round % 2 != 0;
        measure(&job, ranges_first ? run_ranges : run_flat, round, ranges_first ? &ranges : &flat);
        measure(&job, ranges_first ? run_flat : run_ranges, round, ranges_first ? &flat : &ranges);
    }
    if (muster_rank(job.session, MUSTER_GLOBAL) == 0) {
        print(&job, &flat, &ranges);
    }
    muster_close(job.session);
    free(job.in);
    if (!in_place) {
        free(job.out);
    }
    return EXIT_SUCCESS;
}
