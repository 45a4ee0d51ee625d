/* When the kernels of a GPU are used and when the CPU does it, what failures are called, and that
 * an enqueued kernel keeps the order of its stream. tests/gpu/test_kernels.c compares the bits. */
#include "tests/support/gpu_driver.h"
#include "tests/support/gpu_pretend.h"
#include "worker/base/log.h"
#include "worker/device/cuda/cuda_kernels.h"
#include "worker/device/cuda/ptx.h"
#include "worker/device/devices.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/base/status.h"

enum { COUNT = 1000, SIZE = COUNT * 8 + 64, THREADS = 3, NON_BLOCKING = 1, ORDINAL_ATTRIBUTE = 9 };

static const struct gpu_pretend *gpu;
static struct gpu_driver cuda;
static char logged[512];
static int log_lines;

static void write_log(enum muster_log_level level, const char *text)
{
    (void)level;
    log_lines++;
    (void)snprintf(logged, sizeof logged, "%s", text);
}

/* A buffer of a GPU, by both addresses. */
struct buffer {
    char *seen;
    int32_t *values;
    struct muster_device_memory memory;
};

static struct buffer make_buffer(int32_t value)
{
    struct buffer made = {.seen = gpu->allocate(SIZE, 0)};
    made.values = gpu->alias(made.seen);
    assert_true(muster_device_find(made.seen, &made.memory));
    for (int i = 0; i < COUNT; i++) {
        made.values[i] = value + i;
    }
    return made;
}

/* Two of the same device. */
static void make_pair(struct buffer *ret_one, struct buffer *ret_other)
{
    struct buffer between;
    *ret_one = make_buffer(1);
    between = make_buffer(0);
    *ret_other = make_buffer(100);
    gpu->release(between.seen);
    assert_ptr_equal(ret_one->memory.context, ret_other->memory.context);
}

/* one = one + other, as elements of the type, from this byte on. */
static muster_status add(const struct buffer *one, const struct buffer *other, muster_type type,
                         size_t from, size_t count)
{
    const struct muster_reduction reduction = {.type = type, .op = MUSTER_SUM};
    const struct muster_device_place target = {.at = one->seen + from, .memory = &one->memory};
    const struct muster_combination combination = {
        .reduction = &reduction,
        .target = target,
        .left = target,
        .right = {.at = other->seen + from, .memory = &other->memory},
        .count = count};
    return target.memory->device->combine(&combination);
}

static void expect_sums(const struct buffer *one, int32_t first)
{
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(one->values[i], first + 2 * i);
    }
}

/* Runs when a kernel ran and not on the CPU. */
static void expect_kernels(uint64_t before, uint64_t more)
{
    assert_int_equal(gpu->count(GPU_PRETEND_LAUNCH), before + more);
}

/* The first test. */
static void a_driver_that_refuses_kernels_leaves_them_to_the_cpu_and_is_logged_once(void **state)
{
    (void)state;
    struct buffer one;
    struct buffer other;
    make_pair(&one, &other);
    gpu->fail_after(GPU_PRETEND_MODULE, 0);
    assert_int_equal(add(&one, &other, MUSTER_INT32, 0, COUNT), MUSTER_OK);
    expect_sums(&one, 101);
    assert_int_equal(add(&one, &other, MUSTER_INT32, 0, COUNT), MUSTER_OK);
    assert_int_equal(add(&one, &other, MUSTER_UINT32, 0, COUNT), MUSTER_OK);
    gpu->fail_after(GPU_PRETEND_MODULE, UINT32_MAX);
    assert_int_equal(log_lines, 1);
    assert_non_null(strstr(logged, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"));
    expect_kernels(0, 0);
    gpu->release(one.seen);
    gpu->release(other.seen);
}

static void a_type_is_loaded_once_and_then_its_kernels_are_launched(void **state)
{
    (void)state;
    struct buffer one;
    struct buffer other;
    make_pair(&one, &other);
    uint64_t loaded = gpu->count(GPU_PRETEND_MODULE);
    uint64_t launched = gpu->count(GPU_PRETEND_LAUNCH);
    assert_int_equal(add(&one, &other, MUSTER_INT64, 0, COUNT / 2), MUSTER_OK);
    expect_sums(&one, 101);
    assert_int_equal(add(&one, &other, MUSTER_INT64, 8, 1), MUSTER_OK);
    assert_int_equal(add(&one, &other, MUSTER_INT64, 0, 0), MUSTER_OK);
    expect_kernels(launched, 2);
    assert_int_equal(gpu->count(GPU_PRETEND_MODULE), loaded + 1);
    gpu->release(one.seen);
    gpu->release(other.seen);
}

static void multiply(void *out, const void *left, const void *right, size_t count, muster_type type,
                     void *user_data)
{
    (void)type;
    (void)user_data;
    for (size_t i = 0; i < count; i++) {
        ((uint64_t *)out)[i] = ((const uint64_t *)left)[i] * ((const uint64_t *)right)[i];
    }
}

static void what_has_no_kernel_is_done_on_the_cpu(void **state)
{
    (void)state;
    struct buffer one;
    struct buffer other;
    make_pair(&one, &other);
    const struct muster_reduction user = {
        .type = MUSTER_UINT64, .op = MUSTER_USER, .user_function = multiply};
    const struct muster_device_place target = {.at = one.seen, .memory = &one.memory};
    const struct muster_combination combination = {
        .reduction = &user, .target = target, .left = target, .right = target, .count = 3};
    uint64_t launched = gpu->count(GPU_PRETEND_LAUNCH);
    uint64_t three[3];
    memcpy(three, one.values, sizeof three);
    assert_int_equal(target.memory->device->combine(&combination), MUSTER_OK);
    for (int i = 0; i < 3; i++) {
        uint64_t value = 0;
        memcpy(&value, one.values + 2 * (size_t)i, sizeof value);
        assert_true(value == three[i] * three[i]);
    }
    expect_kernels(launched, 0);
    gpu->release(one.seen);
    gpu->release(other.seen);
}

/* On a GPU a load from such an address ends the whole process's use of it. */
static void elements_at_odd_addresses_are_reduced_on_the_cpu(void **state)
{
    (void)state;
    struct buffer one;
    struct buffer other;
    make_pair(&one, &other);
    uint64_t launched = gpu->count(GPU_PRETEND_LAUNCH);
    int64_t left = 0;
    int64_t right = 0;
    int64_t sum = 0;
    memcpy(&left, (char *)one.values + 4, sizeof left);
    memcpy(&right, (char *)other.values + 4, sizeof right);
    assert_int_equal(add(&one, &other, MUSTER_INT64, 4, 1), MUSTER_OK);
    memcpy(&sum, (char *)one.values + 4, sizeof sum);
    assert_true(sum == left + right);
    expect_kernels(launched, 0);
    gpu->release(one.seen);
    gpu->release(other.seen);
}

static void memory_of_two_gpus_is_reduced_on_the_cpu(void **state)
{
    (void)state;
    struct buffer one = make_buffer(1);
    struct buffer other = make_buffer(100);
    uint64_t launched = gpu->count(GPU_PRETEND_LAUNCH);
    assert_ptr_not_equal(one.memory.context, other.memory.context);
    assert_int_equal(add(&one, &other, MUSTER_INT64, 0, COUNT / 2), MUSTER_OK);
    expect_sums(&one, 101);
    expect_kernels(launched, 0);
    gpu->release(one.seen);
    gpu->release(other.seen);
}

static void a_kernel_that_fails_is_fatal_and_names_the_gpu(void **state)
{
    (void)state;
    struct buffer one;
    struct buffer other;
    make_pair(&one, &other);
    char name[16];
    int ordinal = -1;
    assert_int_equal(cuda.cuPointerGetAttribute(&ordinal, ORDINAL_ATTRIBUTE, (uintptr_t)one.seen),
                     0);
    (void)snprintf(name, sizeof name, "GPU %d", ordinal);
    gpu->fail_after(GPU_PRETEND_LAUNCH, 0);
    assert_int_equal(add(&one, &other, MUSTER_INT64, 0, COUNT / 2), MUSTER_FATAL);
    assert_non_null(strstr(muster_last_error(), name));
    assert_non_null(strstr(muster_last_error(), "CUDA_ERROR_LAUNCH_FAILED"));
    const struct muster_reduction average = {
        .type = MUSTER_INT64, .op = MUSTER_AVERAGE, .postscale = 1};
    assert_int_equal(one.memory.device->finish(&one.memory, &average, one.seen, COUNT / 2, 2),
                     MUSTER_FATAL);
    assert_non_null(strstr(muster_last_error(), name));
    gpu->fail_after(GPU_PRETEND_LAUNCH, UINT32_MAX);
    gpu->release(one.seen);
    gpu->release(other.seen);
}

static void a_lost_gpu_is_fatal_wherever_it_is_noticed(void **state)
{
    (void)state;
    struct buffer one;
    struct buffer other;
    make_pair(&one, &other);
    static const muster_type types[] = {MUSTER_INT64 /* loaded */, MUSTER_UINT64 /* not yet */};
    for (size_t i = 0; i < 2; i++) {
        gpu->lose(UNKNOWN);
        assert_int_equal(add(&one, &other, types[i], 0, 1), MUSTER_FATAL);
        assert_non_null(strstr(muster_last_error(), "CUDA_ERROR_UNKNOWN"));
        gpu->lose(0);
        assert_int_equal(add(&one, &other, types[i], 0, 1), MUSTER_OK);
    }
    gpu->release(one.seen);
    gpu->release(other.seen);
}

/* Enqueued ------------------------------------------------------------------------------------- */

static void an_enqueued_kernel_keeps_the_order_of_its_stream(void **state)
{
    (void)state;
    uintptr_t stream = 0;
    void *context = NULL;
    uint64_t data = 0;
    bool enqueued = false;
    int64_t values[3] = {10, 20, 30};
    int64_t back[3] = {0};
    assert_int_equal(cuda.cuCtxGetCurrent(&context), 0);
    assert_int_equal(cuda.cuStreamCreate(&stream, NON_BLOCKING), 0);
    assert_int_equal(cuda.cuMemAlloc_v2(&data, sizeof values), 0);
    const struct muster_cuda_stream on = {
        .cuda = muster_cuda_library(), .context = context, .stream = stream};
    const struct muster_cuda_operands operands = {
        .target = data, .left = data, .right = data, .count = 3};
    const struct muster_reduction average = {
        .type = MUSTER_INT64, .op = MUSTER_AVERAGE, .postscale = 1};
    gpu->pause(stream);
    assert_int_equal(cuda.cuMemcpyAsync(data, (uintptr_t)values, sizeof values, stream), 0);
    assert_int_equal(muster_cuda_launch_combine(&on, &average, &operands, &enqueued), MUSTER_OK);
    assert_true(enqueued);
    assert_int_equal(muster_cuda_launch_finish(&on, &average, &operands, 4, &enqueued), MUSTER_OK);
    assert_true(enqueued);
    assert_int_equal(cuda.cuMemcpyAsync((uintptr_t)back, data, sizeof back, stream), 0);
    assert_int_equal(gpu->pending(stream), 4);
    gpu->resume(stream);
    assert_int_equal(cuda.cuStreamSynchronize(stream), 0);
    assert_int_equal(back[0], 5);
    assert_int_equal(back[1], 10);
    assert_int_equal(back[2], 15);
    assert_int_equal(cuda.cuMemFree_v2(data), 0);
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), 0);
}

static void nothing_to_finish_needs_no_kernel(void **state)
{
    (void)state;
    const struct muster_reduction sum = {.type = MUSTER_INT64, .op = MUSTER_SUM, .postscale = 1};
    struct buffer one = make_buffer(1);
    uint64_t launched = gpu->count(GPU_PRETEND_LAUNCH);
    assert_int_equal(one.memory.device->finish(&one.memory, &sum, one.seen, 5, 7), MUSTER_OK);
    expect_kernels(launched, 0);
    gpu->release(one.seen);
}

/* Threads -------------------------------------------------------------------------------------- */

struct adding {
    pthread_barrier_t *together;
    struct buffer one, other;
};

static void *add_often(void *user)
{
    static char failed[] = "failed";
    const struct adding *adding = user;
    int errors = 0;
    (void)pthread_barrier_wait(adding->together);
    for (int type = MUSTER_UINT8; type <= MUSTER_UINT16; type++) {
        errors += add(&adding->one, &adding->other, (muster_type)type, 0, COUNT) != MUSTER_OK;
    }
    return errors == 0 ? NULL : failed;
}

static void threads_load_and_launch_side_by_side(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    struct adding adding[THREADS];
    pthread_barrier_t together;
    uint64_t launched = gpu->count(GPU_PRETEND_LAUNCH);
    assert_int_equal(pthread_barrier_init(&together, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        adding[i].together = &together;
        make_pair(&adding[i].one, &adding[i].other);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, add_often, &adding[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *error = NULL;
        assert_int_equal(pthread_join(threads[i], &error), 0);
        assert_null(error);
        gpu->release(adding[i].one.seen);
        gpu->release(adding[i].other.seen);
    }
    expect_kernels(launched, (uint64_t)THREADS * 4);
    assert_int_equal(pthread_barrier_destroy(&together), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_that_refuses_kernels_leaves_them_to_the_cpu_and_is_logged_once),
        cmocka_unit_test(a_type_is_loaded_once_and_then_its_kernels_are_launched),
        cmocka_unit_test(what_has_no_kernel_is_done_on_the_cpu),
        cmocka_unit_test(elements_at_odd_addresses_are_reduced_on_the_cpu),
        cmocka_unit_test(memory_of_two_gpus_is_reduced_on_the_cpu),
        cmocka_unit_test(a_kernel_that_fails_is_fatal_and_names_the_gpu),
        cmocka_unit_test(a_lost_gpu_is_fatal_wherever_it_is_noticed),
        cmocka_unit_test(an_enqueued_kernel_keeps_the_order_of_its_stream),
        cmocka_unit_test(nothing_to_finish_needs_no_kernel),
        cmocka_unit_test(threads_load_and_launch_side_by_side),
    };
    const char *why = NULL;
    if (!muster_ptx_exists()) {
        (void)printf("SKIP: the library was built without kernels for GPUs\n");
        return 77;
    }
    gpu = gpu_pretend_load(false);
    if (!gpu_driver_load(gpu_pretend_path(), &cuda, &why)) {
        (void)fprintf(stderr, "%s\n", why);
        return EXIT_FAILURE;
    }
    muster_log_set_writer(write_log);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
