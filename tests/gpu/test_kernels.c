/* The kernels of GPUs on the first GPU of this machine: their results have the bits of the CPU's,
 * and their times are printed. Without a GPU: on a pretended one, whose times mean nothing; an
 * error if MUSTER_TEST_GPU is set. */
#include "tests/support/elements.h"
#include "tests/support/gpu_driver.h"
#include "tests/support/schedules.h"
#include "worker/base/clock.h"
#include "worker/base/statistics.h"
#include "worker/device/cuda/cuda_kernels.h"
#include "worker/device/cuda/ptx.h"
#include "worker/device/devices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/reduce/reduce.h"

enum {
    COUNT = 70001,           /* at most, of elements */
    PRETENDED_COUNT = 10001, /* which takes less time */
    MARGIN = 64,             /* bytes around the target that stay as they are */
    STARTS_MAX = 40,         /* elements that are left out to begin elsewhere */
    OPERANDS = 3,
    TIMED_BYTES = 64 << 20,
    PRETENDED_BYTES = 1 << 16,
    REPEATS = 20,
    CALLS = 51,
};

static struct gpu_driver cuda;
static bool pretended;
static size_t most = COUNT; /* elements */
static size_t room;         /* bytes of a buffer */
static uintptr_t stream;
static void *context;
static uint64_t of_gpu[OPERANDS];
static char *here[OPERANDS], *wanted, *back;

static struct muster_cuda_stream stream_of_test(void)
{
    return (struct muster_cuda_stream){
        .cuda = muster_cuda_library(), .context = context, .stream = stream};
}

/* Bits ----------------------------------------------------------------------------------------- */

static void fill(muster_type type, uint64_t *random)
{
    for (int i = 0; i < OPERANDS; i++) {
        elements_fill(type, here[i], room / muster_type_size_bytes(type), random);
    }
    if (type == MUSTER_FLOAT16 || type == MUSTER_BFLOAT16) {
        for (size_t i = 0; i < room / sizeof(uint16_t); i++) {
            ((uint16_t *)(void *)here[1])[i] = (uint16_t)i; /* each of them */
        }
    }
    for (int i = 0; i < OPERANDS; i++) {
        assert_int_equal(cuda.cuMemcpyHtoD_v2(of_gpu[i], here[i], room), 0);
    }
}

/* Where the operands of one case are: elements from the margin, and which buffer is the target. */
struct layout {
    size_t starts[OPERANDS];
    int target;
};

static size_t at_bytes(const struct layout *layout, int operand, size_t element_bytes)
{
    return MARGIN + layout->starts[operand] * element_bytes;
}

/* Compares the whole buffer of the target with what the CPU makes of it. */
static void expect_target(const struct muster_reduction *reduction, const struct layout *layout,
                          size_t count)
{
    assert_int_equal(cuda.cuMemcpyAsync((uintptr_t)back, of_gpu[layout->target], room, stream), 0);
    assert_int_equal(cuda.cuStreamSynchronize(stream), 0);
    if (memcmp(back, wanted, room) != 0) {
        print_error("%s %s: %zu elements, target %d, starts %zu %zu %zu\n",
                    muster_type_name(reduction->type), muster_op_name(reduction->op), count,
                    layout->target, layout->starts[0], layout->starts[1], layout->starts[2]);
    }
    assert_memory_equal(back, wanted, room);
    assert_int_equal(cuda.cuMemcpyHtoD_v2(of_gpu[layout->target], here[layout->target], room), 0);
}

static void check_combine(const struct muster_reduction *reduction, const struct layout *layout,
                          size_t count)
{
    const struct muster_cuda_stream on = stream_of_test();
    size_t size = muster_type_size_bytes(reduction->type);
    size_t at[OPERANDS];
    bool enqueued = false;
    for (int i = 0; i < OPERANDS; i++) {
        at[i] = at_bytes(layout, i, size);
    }
    const struct muster_cuda_operands operands = {.target =
                                                      of_gpu[layout->target] + at[layout->target],
                                                  .left = of_gpu[1] + at[1],
                                                  .right = of_gpu[2] + at[2],
                                                  .count = count};
    memcpy(wanted, here[layout->target], room);
    muster_reduction_combine(reduction, wanted + at[layout->target], here[1] + at[1],
                             here[2] + at[2], count);
    assert_int_equal(muster_cuda_launch_combine(&on, reduction, &operands, &enqueued), MUSTER_OK);
    assert_true(enqueued);
    expect_target(reduction, layout, count);
}

static void every_kernel_has_the_bits_of_the_cpu(void **state)
{
    (void)state;
    const size_t counts[] = {0, 1, 7, 31, 1000, most - STARTS_MAX};
    static const size_t starts[][OPERANDS] = {{0, 0, 0}, {3, 3, 3}, {0, 1, 2}, {16, 0, 32}};
    uint64_t random = test_seed();
    for (unsigned type = 0; type < MUSTER_TYPE_COUNT; type++) {
        fill((muster_type)type, &random);
        for (unsigned op = 0; op < MUSTER_USER; op++) {
            struct muster_reduction reduction = {.type = (muster_type)type, .op = (muster_op)op};
            bool fits = muster_op_check(reduction.type, reduction.op) == MUSTER_OK;
            for (size_t k = 0; fits && k < 3 * sizeof counts / sizeof counts[0]; k++) {
                struct layout layout = {.target = (int)(k % 3)};
                memcpy(layout.starts, starts[k % 4], sizeof layout.starts);
                check_combine(&reduction, &layout, counts[k / 3]);
            }
        }
    }
}

static void check_finish(const struct muster_reduction *reduction, uint64_t contributions,
                         size_t start, size_t count)
{
    const struct muster_cuda_stream on = stream_of_test();
    const struct layout layout = {.starts = {start}};
    size_t at = at_bytes(&layout, 0, muster_type_size_bytes(reduction->type));
    const struct muster_cuda_operands operands = {.target = of_gpu[0] + at, .count = count};
    bool enqueued = false;
    memcpy(wanted, here[0], room);
    muster_reduction_finish(reduction, wanted + at, count, contributions);
    assert_int_equal(muster_cuda_launch_finish(&on, reduction, &operands, contributions, &enqueued),
                     MUSTER_OK);
    assert_true(enqueued);
    expect_target(reduction, &layout, count);
}

static void averages_and_factors_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    static const double factors[] = {1, 0.5, -3.25, 1.0 / 3, 1e300, 1e-300, 0, 65537};
    static const uint64_t divisors[] = {1, 2, 3, 7, 100000};
    uint64_t random = test_seed();
    for (unsigned type = 0; type < MUSTER_TYPE_COUNT; type++) {
        fill((muster_type)type, &random);
        for (size_t i = 0; type != MUSTER_BOOL && i < 5 * 8; i++) {
            const struct muster_reduction reduction = {
                .type = (muster_type)type, .op = MUSTER_AVERAGE, .postscale = factors[i % 8]};
            check_finish(&reduction, divisors[i / 8], i % 3, i % 4 == 0 ? most - STARTS_MAX : i);
        }
        const struct muster_reduction truth = {
            .type = (muster_type)type, .op = MUSTER_LOGICAL_AND, .postscale = 1};
        if (muster_op_check(truth.type, truth.op) == MUSTER_OK) {
            check_finish(&truth, 1, 1, most - STARTS_MAX);
        }
    }
}

/* Places --------------------------------------------------------------------------------------- */

enum place { OF_GPU, PINNED, PAGEABLE, PLACES };

static struct muster_device_place place_of(enum place where, int operand, char *const pinned[],
                                           char *const pageable[],
                                           struct muster_device_memory *memory)
{
    char *at = where == OF_GPU   ? gpu_driver_pointer(of_gpu[operand])
               : where == PINNED ? pinned[operand]
                                 : pageable[operand];
    bool found = muster_device_find(at, memory);
    assert_int_equal(found, where == OF_GPU);
    return (struct muster_device_place){.at = at + MARGIN, .memory = found ? memory : NULL};
}

/* By the slot of the device, which decides where it is done. */
static void check_places(const enum place where[OPERANDS], char *const pinned[],
                         char *const pageable[])
{
    struct muster_device_memory memories[OPERANDS];
    struct muster_device_place places[OPERANDS];
    const struct muster_reduction reduction = {.type = MUSTER_FLOAT32, .op = MUSTER_SUM};
    for (int i = 0; i < OPERANDS; i++) {
        places[i] = place_of(where[i], i, pinned, pageable, &memories[i]);
        memcpy(pinned[i], here[i], room);
        memcpy(pageable[i], here[i], room);
        assert_int_equal(cuda.cuMemcpyHtoD_v2(of_gpu[i], here[i], room), 0);
    }
    const struct muster_combination combination = {.reduction = &reduction,
                                                   .target = places[0],
                                                   .left = places[1],
                                                   .right = places[2],
                                                   .count = most};
    memcpy(wanted, here[0], room);
    muster_reduction_combine(&reduction, wanted + MARGIN, here[1] + MARGIN, here[2] + MARGIN, most);
    assert_int_equal(muster_device_of_places(places, OPERANDS)->combine(&combination), MUSTER_OK);
    if (where[0] == OF_GPU) {
        assert_int_equal(cuda.cuMemcpyDtoH_v2(back, of_gpu[0], room), 0);
    } else {
        memcpy(back, places[0].at - MARGIN, room);
    }
    assert_memory_equal(back, wanted, room);
}

static void operands_may_be_of_the_gpu_pinned_or_pageable(void **state)
{
    (void)state;
    char *pinned[OPERANDS];
    char *pageable[OPERANDS];
    uint64_t random = test_seed();
    fill(MUSTER_FLOAT32, &random);
    for (int i = 0; i < OPERANDS; i++) {
        pageable[i] = malloc(room);
        assert_int_equal(cuda.cuMemHostAlloc((void **)&pinned[i], room, 0), 0);
    }
    for (int k = 0; k < PLACES * PLACES * PLACES; k++) {
        const enum place where[OPERANDS] = {(enum place)(k % PLACES),
                                            (enum place)(k / PLACES % PLACES),
                                            (enum place)(k / PLACES / PLACES)};
        if (where[0] == OF_GPU || where[1] == OF_GPU || where[2] == OF_GPU) {
            check_places(where, pinned, pageable);
        }
    }
    for (int i = 0; i < OPERANDS; i++) {
        free(pageable[i]);
        assert_int_equal(cuda.cuMemFreeHost(pinned[i]), 0);
    }
}

/* Times ---------------------------------------------------------------------------------------- */

/* What the figures are about: 64 MiB a buffer, and pinned memory. */
struct timed {
    uint64_t target, other;
    void *pinned;
    size_t size_bytes;
    void *start, *end;
};

static void start_timer(const struct timed *timed)
{
    assert_int_equal(cuda.cuEventRecord(timed->start, stream), 0);
}

/* Milliseconds since start_timer(), a repeat. */
static double read_timer(const struct timed *timed)
{
    float ms = 0;
    assert_int_equal(cuda.cuEventRecord(timed->end, stream), 0);
    assert_int_equal(cuda.cuEventSynchronize(timed->end), 0);
    assert_int_equal(cuda.cuEventElapsedTime(&ms, timed->start, timed->end), 0);
    return (double)ms / REPEATS;
}

/* With the traffic of so many buffers. */
static double print_rate(const char *what, const char *of, double ms, double buffers,
                         const struct timed *timed)
{
    double rate = buffers * (double)timed->size_bytes / ms / 1e6;
    (void)printf("  %-9s %-12s %8.1f us  %7.1f GB/s of the memory\n", what, of, ms * 1e3, rate);
    return rate;
}

static void time_combine(const struct timed *timed, const struct muster_reduction *reduction,
                         uint64_t right)
{
    const struct muster_cuda_stream on = stream_of_test();
    const struct muster_cuda_operands operands = {.target = timed->target,
                                                  .left = timed->target,
                                                  .right = right,
                                                  .count = timed->size_bytes /
                                                           muster_type_size_bytes(reduction->type)};
    bool enqueued = false;
    for (int i = -2; i < REPEATS; i++) {
        if (i == 0) {
            start_timer(timed);
        }
        assert_int_equal(muster_cuda_launch_combine(&on, reduction, &operands, &enqueued),
                         MUSTER_OK);
    }
    double ms = read_timer(timed);
    if (right == timed->other) {
        (void)print_rate(muster_type_name(reduction->type), muster_op_name(reduction->op), ms, 3,
                         timed);
    } else {
        (void)printf("  %s sum with pinned memory of the host: %.1f us, %.1f GB/s of it\n",
                     muster_type_name(reduction->type), ms * 1e3,
                     (double)timed->size_bytes / ms / 1e6);
    }
}

static void time_finish(const struct timed *timed, muster_type type)
{
    const struct muster_cuda_stream on = stream_of_test();
    const struct muster_reduction reduction = {.type = type, .op = MUSTER_AVERAGE, .postscale = 1};
    const struct muster_cuda_operands operands = {
        .target = timed->target, .count = timed->size_bytes / muster_type_size_bytes(type)};
    bool enqueued = false;
    for (int i = -2; i < REPEATS; i++) {
        if (i == 0) {
            start_timer(timed);
        }
        assert_int_equal(muster_cuda_launch_finish(&on, &reduction, &operands, 3, &enqueued),
                         MUSTER_OK);
    }
    (void)print_rate(muster_type_name(type), "/ 3", read_timer(timed), 2, timed);
}

static void time_copy(const struct timed *timed, uint64_t to, uint64_t from, const char *what)
{
    for (int i = -2; i < REPEATS; i++) {
        if (i == 0) {
            start_timer(timed);
        }
        assert_int_equal(cuda.cuMemcpyAsync(to, from, timed->size_bytes, stream), 0);
    }
    (void)print_rate("copy", what, read_timer(timed), 2, timed);
}

static struct timed make_timed(void)
{
    struct timed made = {.size_bytes = pretended ? PRETENDED_BYTES : TIMED_BYTES};
    assert_int_equal(cuda.cuMemAlloc_v2(&made.target, made.size_bytes), 0);
    assert_int_equal(cuda.cuMemAlloc_v2(&made.other, made.size_bytes), 0);
    assert_int_equal(cuda.cuMemHostAlloc(&made.pinned, made.size_bytes, 0), 0);
    assert_int_equal(cuda.cuEventCreate(&made.start, 0), 0);
    assert_int_equal(cuda.cuEventCreate(&made.end, 0), 0);
    memset(made.pinned, 0, made.size_bytes);
    assert_int_equal(cuda.cuMemcpyHtoD_v2(made.target, made.pinned, made.size_bytes), 0);
    assert_int_equal(cuda.cuMemcpyHtoD_v2(made.other, made.pinned, made.size_bytes), 0);
    return made;
}

static void free_timed(const struct timed *timed)
{
    assert_int_equal(cuda.cuMemFree_v2(timed->target), 0);
    assert_int_equal(cuda.cuMemFree_v2(timed->other), 0);
    assert_int_equal(cuda.cuMemFreeHost(timed->pinned), 0);
    assert_int_equal(cuda.cuEventDestroy_v2(timed->start), 0);
    assert_int_equal(cuda.cuEventDestroy_v2(timed->end), 0);
}

static void the_rate_of_every_kernel_is_printed(void **state)
{
    (void)state;
    struct timed timed = make_timed();
    (void)printf("%zu bytes:\n", timed.size_bytes);
    time_copy(&timed, timed.target, timed.other, "within it");
    for (unsigned type = 0; type < MUSTER_TYPE_COUNT; type++) {
        for (unsigned op = 0; op < MUSTER_USER; op++) {
            const struct muster_reduction reduction = {.type = (muster_type)type,
                                                       .op = (muster_op)op};
            if (op != MUSTER_AVERAGE &&
                muster_op_check(reduction.type, reduction.op) == MUSTER_OK) {
                time_combine(&timed, &reduction, timed.other);
            }
        }
        if (type != MUSTER_BOOL) {
            time_finish(&timed, (muster_type)type);
        }
    }
    const struct muster_reduction sum = {.type = MUSTER_FLOAT32, .op = MUSTER_SUM};
    time_combine(&timed, &sum, (uintptr_t)timed.pinned);
    free_timed(&timed);
}

static double median_us(muster_status (*combine)(const struct muster_combination *combination),
                        const struct muster_combination *combination)
{
    double took_ns[CALLS];
    for (int i = 0; i < CALLS; i++) {
        int64_t started_ns = muster_clock_ns();
        assert_int_equal(combine(combination), MUSTER_OK);
        took_ns[i] = (double)(muster_clock_ns() - started_ns);
    }
    return muster_statistics_median_high(took_ns, CALLS) / 1e3;
}

/* A combination that waits, by a kernel and by blocks on the CPU, with the right operand in memory
 * of the GPU and in pinned memory. */
static void the_time_of_small_combinations_is_printed(void **state)
{
    (void)state;
    struct timed timed = make_timed();
    struct muster_device_memory memory;
    const struct muster_reduction sum = {.type = MUSTER_FLOAT32, .op = MUSTER_SUM};
    assert_true(muster_device_find(gpu_driver_pointer(timed.target), &memory));
    const struct muster_device_place target = {.at = gpu_driver_pointer(timed.target),
                                               .memory = &memory};
    const struct muster_device_place other = {.at = gpu_driver_pointer(timed.other),
                                              .memory = &memory};
    const struct muster_device_place pinned = {.at = timed.pinned};
    for (size_t size = 4; size <= timed.size_bytes; size *= 16) {
        struct muster_combination combination = {.reduction = &sum,
                                                 .target = target,
                                                 .left = target,
                                                 .right = other,
                                                 .count = size / sizeof(float)};
        double of_gpu_us = median_us(muster_cuda_combine, &combination);
        double on_cpu_us = median_us(muster_device_combine_on_host, &combination);
        combination.right = pinned;
        double of_pinned_us = median_us(muster_cuda_combine, &combination);
        double pinned_on_cpu_us = median_us(muster_device_combine_on_host, &combination);
        (void)printf(
            "  %8zu bytes: all of the GPU %.1f us, on the CPU %.1f us; right pinned %.1f "
            "us, on the CPU %.1f us\n",
            size, of_gpu_us, on_cpu_us, of_pinned_us, pinned_on_cpu_us);
    }
    free_timed(&timed);
}

/* The first test: until then nothing is loaded. */
static void the_time_to_load_the_kernels_of_each_type_is_printed(void **state)
{
    (void)state;
    const struct muster_cuda_stream on = stream_of_test();
    const struct muster_cuda_operands operands = {
        .target = of_gpu[0], .left = of_gpu[1], .right = of_gpu[2], .count = 1};
    double all_ms = 0;
    for (unsigned type = 0; type < MUSTER_TYPE_COUNT; type++) {
        const struct muster_reduction reduction = {.type = (muster_type)type, .op = MUSTER_MAX};
        bool enqueued = false;
        int64_t started_ns = muster_clock_ns();
        assert_int_equal(muster_cuda_launch_combine(&on, &reduction, &operands, &enqueued),
                         MUSTER_OK);
        assert_true(enqueued);
        double ms = (double)(muster_clock_ns() - started_ns) / 1e6;
        (void)printf("  kernels of %-9s loaded in %6.1f ms\n", muster_type_name((muster_type)type),
                     ms);
        all_ms += ms;
    }
    assert_int_equal(cuda.cuStreamSynchronize(stream), 0);
    (void)printf("  all in %.1f ms\n", all_ms);
}

static int start(void **state)
{
    (void)state;
    if (cuda.cuCtxGetCurrent(&context) != 0 || cuda.cuStreamCreate(&stream, 0) != 0) {
        return -1;
    }
    for (int i = 0; i < OPERANDS; i++) {
        here[i] = malloc(room);
        if (here[i] == NULL || cuda.cuMemAlloc_v2(&of_gpu[i], room) != 0) {
            return -1;
        }
        memset(here[i], 0, room);
    }
    wanted = malloc(room);
    back = malloc(room);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    for (int i = 0; i < OPERANDS; i++) {
        free(here[i]);
        (void)cuda.cuMemFree_v2(of_gpu[i]);
    }
    free(wanted);
    free(back);
    return cuda.cuStreamDestroy_v2(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_time_to_load_the_kernels_of_each_type_is_printed),
        cmocka_unit_test(every_kernel_has_the_bits_of_the_cpu),
        cmocka_unit_test(averages_and_factors_have_the_bits_of_the_cpu),
        cmocka_unit_test(operands_may_be_of_the_gpu_pinned_or_pageable),
        cmocka_unit_test(the_rate_of_every_kernel_is_printed),
        cmocka_unit_test(the_time_of_small_combinations_is_printed),
    };
    if (!muster_ptx_exists()) {
        (void)printf("SKIP: the library was built without kernels for GPUs\n");
        return 77;
    }
    if (!gpu_driver_start(&cuda, &pretended)) {
        return EXIT_FAILURE;
    }
    most = pretended ? PRETENDED_COUNT : COUNT;
    room = most * sizeof(double) + (size_t)2 * MARGIN;
    return cmocka_run_group_tests(tests, start, stop);
}
