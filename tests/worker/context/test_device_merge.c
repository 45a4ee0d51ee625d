/* Several buffers of a rank in memory of one GPU (a pretended one) are reduced there before an
 * allreduce, where the bits are the same, and else go through the host. */
#include "tests/support/elements.h"
#include "tests/support/gpu_driver.h"
#include "tests/support/gpu_pretend.h"
#include "tests/support/group.h"
#include "worker/device/cuda/ptx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, COUNT = 3000, LARGE = 140000, BUFFERS_MAX = 4 };

static const struct gpu_pretend *gpu;
static struct gpu_driver cuda;
static void *context;

struct test_case {
    muster_type type;
    muster_op op;
    uint32_t buffers;
    uint64_t count;
    double prescale, postscale;
    bool in_place, on_host_too, merges; /* on_host_too: the last output is memory of the host */
};

static const struct test_case cases[] = {
    {MUSTER_FLOAT32, MUSTER_SUM, 3, COUNT, 1, 1, false, false, true},
    {MUSTER_FLOAT32, MUSTER_SUM, 3, LARGE, 1, 0.5, true, false, true},
    {MUSTER_FLOAT32, MUSTER_AVERAGE, 4, COUNT, 1, 12, false, false, true},
    {MUSTER_INT64, MUSTER_MAX, 2, COUNT, 1, 1, true, false, true},
    {MUSTER_FLOAT16, MUSTER_SUM, 2, COUNT, 1, 1, false, false, true},
    {MUSTER_FLOAT16, MUSTER_MAX, 3, COUNT, 1, 1, false, false, true},
    {MUSTER_FLOAT16, MUSTER_SUM, 3, COUNT, 1, 1, false, false, false},
    {MUSTER_FLOAT32, MUSTER_SUM, 3, COUNT, 2, 1, false, false, false},
    {MUSTER_FLOAT32, MUSTER_SUM, 3, COUNT, 1, 1, false, true, false},
};

static double input_value(uint32_t rank, uint32_t buffer, uint64_t k)
{
    return rank + buffer + (double)(k % 7);
}

static double result_value(const struct test_case *test, uint64_t k)
{
    double all = test->buffers * RANKS;
    double sum = all * (double)(k % 7) + test->buffers * (RANKS * (RANKS - 1) / 2.0) +
                 RANKS * (test->buffers * (test->buffers - 1) / 2.0);
    double result = test->op == MUSTER_MAX       ? input_value(RANKS - 1, test->buffers - 1, k)
                    : test->op == MUSTER_AVERAGE ? sum / all
                                                 : sum;
    return result * test->prescale * test->postscale;
}

static void store(muster_type type, void *data, uint64_t k, double value)
{
    if (type == MUSTER_FLOAT32) {
        ((float *)data)[k] = (float)value;
    } else if (type == MUSTER_INT64) {
        ((int64_t *)data)[k] = (int64_t)value;
    } else {
        ((uint16_t *)data)[k] = elements_nearest16(type, value);
    }
}

/* The buffers of one member, as the library sees them. */
struct buffers {
    const void *inputs[BUFFERS_MAX];
    void *outputs[BUFFERS_MAX];
};

static void *allocate(struct group_member *member, size_t size_bytes)
{
    uint64_t address = 0;
    if (cuda.cuMemAlloc_v2(&address, size_bytes) != 0) {
        group_fail(member, "no memory of the GPU");
    }
    return gpu_driver_pointer(address);
}

static struct buffers make_buffers(struct group_member *member, const struct test_case *test)
{
    struct buffers made;
    size_t size = test->count * muster_type_size_bytes(test->type);
    for (uint32_t i = 0; i < test->buffers; i++) {
        void *input = allocate(member, size);
        bool on_host = test->on_host_too && i == test->buffers - 1;
        made.inputs[i] = input;
        made.outputs[i] = on_host ? malloc(size) : test->in_place ? input : allocate(member, size);
        for (uint64_t k = 0; k < test->count; k++) {
            store(test->type, gpu->alias(input), k, input_value(member->rank, i, k));
        }
    }
    return made;
}

static void check_and_free(struct group_member *member, const struct test_case *test,
                           const struct buffers *buffers)
{
    size_t size = test->count * muster_type_size_bytes(test->type);
    char *wanted = calloc(1, size);
    for (uint64_t k = 0; k < test->count; k++) {
        store(test->type, wanted, k, result_value(test, k));
    }
    for (uint32_t i = 0; i < test->buffers; i++) {
        void *alias = gpu->alias(buffers->outputs[i]);
        if (memcmp(alias != NULL ? alias : buffers->outputs[i], wanted, size) != 0) {
            group_fail(member, "buffer %u of %s %s", i, muster_type_name(test->type),
                       muster_op_name(test->op));
        }
        if (buffers->outputs[i] != buffers->inputs[i] && alias != NULL) {
            (void)cuda.cuMemFree_v2((uintptr_t)buffers->outputs[i]);
        } else if (alias == NULL) {
            free(buffers->outputs[i]);
        }
        (void)cuda.cuMemFree_v2((uintptr_t)buffers->inputs[i]);
    }
    free(wanted);
}

static void allreduce(struct group_member *member, void *argument)
{
    const struct test_case *test = argument;
    if (cuda.cuCtxSetCurrent(context) != 0) {
        group_fail(member, "no context");
    }
    struct buffers buffers = make_buffers(member, test);
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = buffers.inputs[0],
                                           .out = buffers.outputs[0],
                                           .count = test->count,
                                           .type = test->type,
                                           .op = test->op,
                                           .prescale = test->prescale,
                                           .postscale = test->postscale,
                                           .buffer_count = test->buffers,
                                           .inputs = buffers.inputs,
                                           .outputs = buffers.outputs,
                                           .deadline_ns = group_deadline()};
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
    check_and_free(member, test, &buffers);
}

static void buffers_of_a_gpu_are_reduced_there_if_the_bits_are_the_same(void **state)
{
    (void)state;
    static const enum group_transport transports[] = {GROUP_INPROC, GROUP_MEMORY};
    for (size_t t = 0; t < 2; t++) {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            struct group group;
            uint64_t before = gpu->count(GPU_PRETEND_LAUNCH);
            group_start_flat(&group, transports[t], RANKS);
            group_each(&group, allreduce, (void *)&cases[i]);
            group_finish(&group);
            uint64_t launched = gpu->count(GPU_PRETEND_LAUNCH) - before;
            uint64_t expected =
                cases[i].merges && muster_ptx_exists() ? RANKS * (cases[i].buffers - 1ULL) : 0;
            assert_int_equal(launched, expected);
        }
    }
}

static void fail_to_reduce(struct group_member *member, void *argument)
{
    struct buffers buffers;
    (void)argument;
    (void)cuda.cuCtxSetCurrent(context);
    buffers = make_buffers(member, &cases[0]);
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = buffers.inputs[0],
                                           .out = buffers.outputs[0],
                                           .count = COUNT,
                                           .op = MUSTER_SUM,
                                           .buffer_count = cases[0].buffers,
                                           .inputs = buffers.inputs,
                                           .outputs = buffers.outputs,
                                           .deadline_ns = group_deadline()};
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_FATAL ||
        strstr(muster_last_error(), "GPU 0: a kernel: CUDA_ERROR_LAUNCH_FAILED") == NULL) {
        group_fail(member, "not as expected: %s", muster_last_error());
    }
}

static void a_kernel_that_fails_ends_the_call(void **state)
{
    (void)state;
    struct group group;
    if (!muster_ptx_exists()) {
        skip();
    }
    gpu->fail_after(GPU_PRETEND_LAUNCH, 0);
    group_start_flat(&group, GROUP_INPROC, RANKS);
    group_each(&group, fail_to_reduce, NULL);
    group_finish(&group);
    gpu->fail_after(GPU_PRETEND_LAUNCH, UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_of_a_gpu_are_reduced_there_if_the_bits_are_the_same),
        cmocka_unit_test(a_kernel_that_fails_ends_the_call),
    };
    const char *why = NULL;
    (void)setenv("MUSTER_NCCL", "off", 1);
    gpu = gpu_pretend_load(false);
    if (!gpu_driver_load(gpu_pretend_path(), &cuda, &why) || cuda.cuCtxGetCurrent(&context) != 0) {
        (void)fprintf(stderr, "%s\n", why);
        return EXIT_FAILURE;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
