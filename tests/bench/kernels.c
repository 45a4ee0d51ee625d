/*
 * The speed of the reduction kernels: one line for each pair of type and operation, one column for
 * each instruction set of this processor. Figures are bytes of the result a second, for buffers
 * that fit into the second-level cache. The first line is memcpy() of the same bytes. The last
 * lines encode and decode packs of int8; bytes are those of the float32.
 *
 *     build/release/tests/kernels [TYPE]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/reduce/tables.h"
#include "worker/base/clock.h"

enum { BUFFER_BYTES = 128 * 1024, ROUNDS = 5, ROUND_NS = 4000000 };

static _Alignas(64) unsigned char buffers[3][BUFFER_BYTES];

static void copy(void *target, const void *left, const void *right, size_t count)
{
    (void)right;
    memcpy(target, left, count);
}

/* The best of some rounds: other work on the machine only makes a round slower. */
static double gigabytes_per_second(muster_reduce_function kernel, size_t count)
{
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start_ns = muster_clock_ns();
        int64_t took_ns = 0;
        double bytes = 0;
        while (took_ns < ROUND_NS) {
            kernel(buffers[0], buffers[1], buffers[2], count);
            bytes += BUFFER_BYTES;
            took_ns = muster_clock_ns() - start_ns;
        }
        best = bytes / (double)took_ns > best ? bytes / (double)took_ns : best;
    }
    return best;
}

/* Small whole numbers, which every type has, so that no result is denormal. */
static void fill(muster_type type)
{
    size_t count = BUFFER_BYTES / muster_type_size_bytes(type);
    for (size_t i = 0; i < count; i++) {
        muster_type_store(buffers[1], i, type, (double)(i % 5));
        muster_type_store(buffers[2], i, type, (double)(i % 3 + 1));
    }
}

static void measure_type(muster_type type, const struct muster_kernel_table *tables)
{
    fill(type);
    for (unsigned op = 0; op < MUSTER_OP_COUNT; op++) {
        if (muster_kernels_plain.reduce[type][op] == NULL || op == MUSTER_AVERAGE) {
            continue;
        }
        printf("%-9s %-12s", muster_type_name(type), muster_op_name((muster_op)op));
        for (size_t i = 0; i < MUSTER_KERNEL_TABLES_MAX; i++) {
            if (tables[i].usable) {
                size_t count = BUFFER_BYTES / muster_type_size_bytes(type);
                printf(" %8.1f", gigabytes_per_second(tables[i].kernels->reduce[type][op], count));
            }
        }
        printf("\n");
        (void)fflush(stdout);
    }
}

/* Packs of int8, between two buffers of float32 or on the packs of so many elements. */
static const struct muster_kernels *packing;
enum { FLOATS_OF_PACKS = BUFFER_BYTES / 4 / 240 * 240 };

static void pack(void *target, const void *left, const void *right, size_t count)
{
    (void)right;
    packing->pack_int8(target, left, count / 240);
}

static void unpack(void *target, const void *left, const void *right, size_t count)
{
    (void)right;
    packing->unpack_int8(target, left, count / 240);
}

static void measure_packs(const struct muster_kernel_table *tables)
{
    static const muster_reduce_function kernels[] = {pack, unpack};
    static const char *const names[] = {"encode", "decode"};
    fill(MUSTER_FLOAT32);
    for (size_t way = 0; way < 2; way++) {
        printf("%-9s %-12s", "int8 pack", names[way]);
        for (size_t i = 0; i < MUSTER_KERNEL_TABLES_MAX; i++) {
            if (tables[i].usable) {
                packing = tables[i].kernels;
                printf(" %8.1f", gigabytes_per_second(kernels[way], FLOATS_OF_PACKS));
            }
        }
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    struct muster_kernel_table tables[MUSTER_KERNEL_TABLES_MAX];
    muster_kernel_tables(tables);
    muster_type only = MUSTER_FLOAT32;
    if (argc > 1 && muster_type_parse(argv[1], &only) != MUSTER_OK) {
        (void)fprintf(stderr, "%s\n", muster_last_error());
        return 2;
    }
    printf("GB/s%18s", "");
    for (size_t i = 0; i < MUSTER_KERNEL_TABLES_MAX; i++) {
        if (tables[i].usable) {
            printf(" %8s", tables[i].name);
        }
    }
    printf("\nmemcpy%16s %8.1f\n", "", gigabytes_per_second(copy, BUFFER_BYTES));
    for (unsigned type = 0; type < MUSTER_TYPE_COUNT; type++) {
        if (argc < 2 || type == (unsigned)only) {
            measure_type((muster_type)type, tables);
        }
    }
    if (argc < 2) {
        measure_packs(tables);
    }
    return 0;
}
