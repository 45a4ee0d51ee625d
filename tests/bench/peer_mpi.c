/*
 * The measurement of `muster bench COLLECTIVE --type float32 --op sum`, with MPI. Built by
 * tests/bench/peers, not by CMake: Muster does not need MPI.
 *
 *     peer_mpi COLLECTIVE BYTES ITERATIONS LIMIT_S     prints one line of JSON
 *
 * BYTES may be @LIST, as `muster bench step --list` prints it: then a call is an allreduce for each
 * tensor, one after another, as the side `each` of `muster bench step` does it.
 */
#include <mpi.h>
#include <string.h>

#include "tests/bench/peer.h"

/* The state of one rank. */
struct run {
    const char *name;
    int has_root; /* then some ranks could run ahead */
    void (*call)(const struct run *run);
    int rank, ranks;
    int count; /* elements of the largest buffer, or of one of its blocks */
    size_t in_bytes, out_bytes;
    float *in, *out;
    size_t tensors; /* of a list */
    const size_t *counts;
};

static void call_allreduce(const struct run *run)
{
    MPI_Allreduce(run->in, run->out, run->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void call_allreduce_each(const struct run *run)
{
    size_t offset = 0;
    for (size_t i = 0; i < run->tensors; i++) {
        MPI_Allreduce(run->in + offset, run->out + offset, (int)run->counts[i], MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
        offset += run->counts[i];
    }
}

static void call_reduce_scatter(const struct run *run)
{
    MPI_Reduce_scatter_block(run->in, run->out, run->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void call_allgather(const struct run *run)
{
    MPI_Allgather(run->in, run->count, MPI_FLOAT, run->out, run->count, MPI_FLOAT, MPI_COMM_WORLD);
}

static void call_alltoall(const struct run *run)
{
    MPI_Alltoall(run->in, run->count, MPI_FLOAT, run->out, run->count, MPI_FLOAT, MPI_COMM_WORLD);
}

static void call_broadcast(const struct run *run)
{
    MPI_Bcast(run->out, run->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void call_reduce(const struct run *run)
{
    MPI_Reduce(run->in, run->out, run->count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void call_barrier(const struct run *run)
{
    (void)run;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void die(const char *text)
{
    (void)fprintf(stderr, "peer_mpi: %s\n", text);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* Finds the collective and the sizes of its buffers: `bytes`, rounded up to whole elements of all
 * ranks, is the size of the largest one. */
static void lay_out(struct run *run, double bytes)
{
    static const struct {
        const char *name;
        void (*call)(const struct run *run);
        int in_blocks, out_blocks; /* 0: no buffer; -1: one block for each rank */
        int has_root;
    } rows[] = {
        {"allreduce", call_allreduce, 1, 1, 0},  {"reduce_scatter", call_reduce_scatter, -1, 1, 0},
        {"allgather", call_allgather, 1, -1, 0}, {"alltoall", call_alltoall, -1, -1, 0},
        {"broadcast", call_broadcast, 0, 1, 1},  {"reduce", call_reduce, 1, 1, 1},
        {"barrier", call_barrier, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(run->name, rows[i].name) != 0) {
            continue;
        }
        int in_blocks = rows[i].in_blocks < 0 ? run->ranks : rows[i].in_blocks;
        int out_blocks = rows[i].out_blocks < 0 ? run->ranks : rows[i].out_blocks;
        int most = in_blocks > out_blocks ? in_blocks : out_blocks;
        double unit = (double)sizeof(float) * (most > 0 ? most : 1);
        run->count = (int)((bytes + unit - 1) / unit);
        run->in_bytes = sizeof(float) * (size_t)run->count * (size_t)in_blocks;
        run->out_bytes = sizeof(float) * (size_t)run->count * (size_t)out_blocks;
        run->call = rows[i].call;
        run->has_root = rows[i].has_root;
        return;
    }
    die("this collective is not measured here");
}

/* Every page is written before anything is timed: pages that were never written are all mapped to
 * one page of zeros. */
static float *fill(size_t bytes)
{
    float *memory = malloc(bytes + 1);
    if (memory == NULL) {
        die("no memory");
        return NULL;
    }
    for (size_t i = 0; i < bytes / sizeof *memory; i++) {
        memory[i] = (float)(i % 2);
    }
    return memory;
}

static int warm_up(const struct run *run, int wanted, double limit_s)
{
    double start_us = 0;
    for (int i = 0; i < PEER_WARM_UP; i++) {
        if (i == 1) {
            start_us = peer_now_us();
        }
        run->call(run);
    }
    double warm_us = (peer_now_us() - start_us) / (PEER_WARM_UP - 1);
    int iterations = peer_iterations(wanted, warm_us, limit_s);
    MPI_Bcast(&iterations, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return iterations;
}

static void measure(const struct run *run, int iterations, double *times_us)
{
    for (int i = 0; i < iterations; i++) {
        if (i == 0 || run->has_root) {
            MPI_Barrier(MPI_COMM_WORLD);
        }
        double start_us = peer_now_us();
        run->call(run);
        times_us[i] = peer_now_us() - start_us;
    }
}

/* A list: buffers of all its tensors together. */
static void lay_out_list(struct run *run, const char *list)
{
    static size_t counts[PEER_TENSORS_MAX];
    run->tensors = peer_read_counts(list, counts);
    run->counts = counts;
    if (run->tensors == 0 || strcmp(run->name, "allreduce") != 0) {
        die("this is not a list of tensors to allreduce");
    }
    for (size_t i = 0; i < run->tensors; i++) {
        run->in_bytes += counts[i] * sizeof(float);
    }
    run->out_bytes = run->in_bytes;
    run->call = call_allreduce_each;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc != 5 || (argv[2][0] != '@' && atof(argv[2]) < 0) || atoi(argv[3]) < 1) {
        die("usage: peer_mpi COLLECTIVE BYTES ITERATIONS LIMIT_S");
    }
    struct run run = {.name = argv[1]};
    MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &run.ranks);
    if (argv[2][0] == '@') {
        lay_out_list(&run, argv[2]);
    } else {
        lay_out(&run, atof(argv[2]));
    }
    run.in = fill(run.in_bytes);
    run.out = fill(run.out_bytes);
    int iterations = warm_up(&run, atoi(argv[3]), atof(argv[4]));
    double *times_us = calloc((size_t)iterations, sizeof *times_us);
    double *slowest_us = calloc((size_t)iterations, sizeof *slowest_us);
    if (times_us == NULL || slowest_us == NULL) {
        die("no memory");
    }
    measure(&run, iterations, times_us);
    double memory = peer_memory_bytes((double)(run.in_bytes + run.out_bytes));
    double most_memory = 0;
    MPI_Reduce(&memory, &most_memory, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(times_us, slowest_us, iterations, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (run.rank == 0) {
        peer_print(slowest_us, iterations, most_memory);
    }
    free(times_us);
    free(slowest_us);
    free(run.in);
    free(run.out);
    MPI_Finalize();
    return 0;
}
