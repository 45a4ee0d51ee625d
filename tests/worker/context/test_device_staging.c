/* Collectives on memory of a GPU that the CPU cannot access, where links carry only memory of the
 * host (a pretended GPU). */
#include "tests/support/gpu_memory.h"
#include "tests/support/group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, COUNT = 5000, BUFFERS = 3 };

static const struct gpu_pretend *gpu;

static void every_algorithm_is_right_wherever_the_buffers_are(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 777, 0, 6000, 5};
    for (enum sweep_place place = SWEEP_INPROC; place <= SWEEP_MEMORY; place++) {
        for (uint32_t ranks = 1; ranks <= 4; ranks++) {
            enum gpu_memory_where where = (enum gpu_memory_where)(ranks % GPU_MEMORY_WHERES);
            const struct sweep sweep = {.counts = counts,
                                        .count_count = 5,
                                        .brief = true,
                                        .place = place,
                                        .memory = gpu_memory(gpu, where, 0)};
            sweep_even(ranks, place == SWEEP_MEMORY || ranks < 3 ? 1 : 2, &sweep);
        }
    }
    assert_true(gpu->count(GPU_PRETEND_COPY) > 0);
}

/* Large enough that operations move the buffers themselves, in several pieces. */
static void every_algorithm_is_right_where_it_moves_large_buffers(void **state)
{
    (void)state;
    static const uint64_t counts[] = {150001, 70000};
    for (uint32_t ranks = 2; ranks <= 3; ranks++) {
        for (enum sweep_place place = SWEEP_TCP; place <= SWEEP_MEMORY;
             place += SWEEP_MEMORY - SWEEP_TCP) {
            const struct sweep sweep = {
                .counts = counts,
                .count_count = 2,
                .brief = true,
                .place = place,
                .memory = gpu_memory(gpu,
                                     (enum gpu_memory_where)(GPU_MEMORY_INPUTS + ranks - 2 +
                                                             (place == SWEEP_TCP ? 0 : 1)),
                                     0)};
            sweep_even(ranks, place == SWEEP_MEMORY || ranks < 3 ? 1 : 2, &sweep);
        }
    }
}

/* Several buffers ------------------------------------------------------------------------------ */

/* The buffers of one member. Every second one is memory of the GPU, the others on the next rank. */
struct buffers {
    float *in[BUFFERS], *out[BUFFERS]; /* the test's addresses */
    const void *inputs[BUFFERS];       /* the same memory by the library's addresses */
    void *outputs[BUFFERS];
};

static void make_buffers(const struct sweep_memory *memory, uint32_t rank, struct buffers *buffers)
{
    for (uint32_t i = 0; i < BUFFERS; i++) {
        bool on_device = (rank + i) % 2 == 0;
        buffers->in[i] = memory->allocate(COUNT * sizeof(float), on_device, false);
        buffers->out[i] = memory->allocate(COUNT * sizeof(float), on_device, true);
        buffers->inputs[i] = memory->for_library(buffers->in[i]);
        buffers->outputs[i] = memory->for_library(buffers->out[i]);
        for (uint32_t k = 0; k < COUNT; k++) {
            buffers->in[i][k] = (float)(rank + i + k % 7);
        }
    }
}

static void free_buffers(const struct sweep_memory *memory, const struct buffers *buffers)
{
    for (uint32_t i = 0; i < BUFFERS; i++) {
        memory->release(buffers->in[i]);
        memory->release(buffers->out[i]);
    }
}

/* Reduces all buffers of all members, and checks every output. */
static void allreduce_several(struct group_member *member, void *argument)
{
    const struct sweep_memory *memory = argument;
    struct buffers buffers;
    make_buffers(memory, member->rank, &buffers);
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = buffers.inputs[0],
                                           .out = buffers.outputs[0],
                                           .count = COUNT,
                                           .op = MUSTER_SUM,
                                           .prescale = 2,
                                           .postscale = 0.5,
                                           .buffer_count = BUFFERS,
                                           .inputs = buffers.inputs,
                                           .outputs = buffers.outputs,
                                           .deadline_ns = group_deadline()};
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
    for (uint32_t i = 0; i < BUFFERS; i++) {
        for (uint32_t k = 0; k < COUNT; k++) {
            /* Nine contributions; their ranks sum up to 9, and so do their buffers' numbers. */
            if (buffers.out[i][k] != (float)(9 * (k % 7) + 3 * 3 + 3 * 3)) {
                group_fail(member, "element %u of buffer %u is %f", k, i, buffers.out[i][k]);
            }
        }
    }
    free_buffers(memory, &buffers);
}

static void an_allreduce_takes_buffers_of_gpu_and_host(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_TCP, RANKS);
    group_each(&group, allreduce_several, (void *)gpu_memory(gpu, GPU_MEMORY_ODD_RANKS, 0));
    group_finish(&group);
}

/* Broadcasts one buffer of the root to all buffers of all members, and checks them. */
static void broadcast_several(struct group_member *member, void *argument)
{
    const struct sweep_memory *memory = argument;
    const uint32_t root = 1;
    struct buffers buffers;
    make_buffers(memory, member->rank, &buffers);
    memcpy(buffers.out[0], buffers.in[0], COUNT * sizeof(float));
    const struct muster_request request = {.collective = MUSTER_BROADCAST,
                                           .out = buffers.outputs[0],
                                           .count = COUNT,
                                           .root = root,
                                           .buffer_count = BUFFERS,
                                           .outputs = buffers.outputs,
                                           .deadline_ns = group_deadline()};
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
    for (uint32_t i = 0; i < BUFFERS; i++) {
        for (uint32_t k = 0; k < COUNT; k++) {
            if (buffers.out[i][k] != (float)(root + k % 7)) {
                group_fail(member, "element %u of buffer %u is %f", k, i, buffers.out[i][k]);
            }
        }
    }
    free_buffers(memory, &buffers);
}

static void a_broadcast_takes_buffers_of_gpu_and_host(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, RANKS);
    group_each(&group, broadcast_several, (void *)gpu_memory(gpu, GPU_MEMORY_ODD_RANKS, 0));
    group_finish(&group);
}

/* In flight -------------------------------------------------------------------------------------
 */

enum { IN_FLIGHT = 6 };

/* A persistent call, started again when its input has changed, beside several others; the start of
 * each copies what the input is then. */
static void start_several(struct group_member *member, void *argument)
{
    const struct sweep_memory *memory = argument;
    struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    struct muster_started_call *calls[IN_FLIGHT];
    float *data[IN_FLIGHT];
    for (uint32_t i = 0; i < IN_FLIGHT; i++) {
        data[i] = memory->allocate(COUNT * sizeof(float), member->rank + i, false);
        const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                               .in = memory->for_library(data[i]),
                                               .out = (void *)memory->for_library(data[i]),
                                               .count = COUNT,
                                               .op = MUSTER_AVERAGE,
                                               .deadline_ns = group_deadline()};
        if (muster_context_make_persistent(context, &request, &calls[i]) != MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
            return;
        }
    }
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < IN_FLIGHT; i++) {
            for (uint32_t k = 0; k < COUNT; k++) {
                data[i][k] = (float)(member->rank + i + round + k % 7);
            }
            if (muster_started_call_start(calls[i]) != MUSTER_OK) {
                group_fail(member, "start: %s", muster_last_error());
                return;
            }
        }
        for (uint32_t i = IN_FLIGHT; i-- > 0;) {
            if (muster_started_call_end(calls[i], NULL) != MUSTER_OK) {
                group_fail(member, "%s", muster_last_error());
            }
            for (uint32_t k = 0; k < COUNT; k++) {
                if (data[i][k] != (float)(1 + i + round + k % 7)) { /* 1: the ranks' average */
                    group_fail(member, "round %u: element %u of call %u is %f", round, k, i,
                               (double)data[i][k]);
                    break;
                }
            }
        }
    }
    for (uint32_t i = 0; i < IN_FLIGHT; i++) {
        muster_started_call_free(calls[i]);
        memory->release(data[i]);
    }
}

static void calls_in_flight_take_memory_of_the_gpu(void **state)
{
    (void)state;
    for (enum group_transport transport = GROUP_INPROC; transport <= GROUP_MEMORY; transport++) {
        struct group group;
        group_start_flat(&group, transport, RANKS);
        group_each(&group, start_several, (void *)gpu_memory(gpu, GPU_MEMORY_ODD_RANKS, 0));
        group_finish(&group);
    }
}

/* Failures ------------------------------------------------------------------------------------- */

static void expect_fatal(struct group_member *member, void *argument)
{
    float *on_device = gpu->allocate(COUNT * sizeof(float), 0);
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = on_device,
                                           .out = on_device,
                                           .count = COUNT,
                                           .prescale = 2,
                                           .deadline_ns = group_deadline()};
    (void)argument;
    muster_status status = muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL);
    if (status != MUSTER_FATAL ||
        strstr(muster_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS") == NULL) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
    gpu->release(on_device);
}

/* The copy of the input fails at the start, that of the output at the end. */
static void expect_fatal_in_flight(struct group_member *member, void *argument)
{
    float *on_device = gpu->allocate(COUNT * sizeof(float), 0);
    struct muster_started_call *call = NULL;
    bool at_the_start = *(const uint32_t *)argument == 0;
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = on_device,
                                           .out = on_device,
                                           .count = COUNT,
                                           .prescale = 2,
                                           .deadline_ns = group_deadline()};
    muster_status status = muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &call);
    if ((status == MUSTER_OK) == at_the_start) {
        group_fail(member, "start: %s", muster_status_name(status));
    }
    if (status == MUSTER_OK) {
        status = muster_started_call_end(call, NULL);
    }
    if (status != MUSTER_FATAL ||
        strstr(muster_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS") == NULL) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
    gpu->release(on_device);
}

/* First the copy of the input fails, then that of the output. */
static void a_failed_copy_is_fatal_and_named_by_cudas_error(void **state)
{
    (void)state;
    for (uint32_t after = 0; after < 2; after++) {
        struct group group;
        group_start_flat(&group, GROUP_INPROC, 1);
        gpu->fail_after(GPU_PRETEND_COPY, after);
        group_each(&group, expect_fatal, NULL);
        gpu->fail_after(GPU_PRETEND_COPY, after);
        group_each(&group, expect_fatal_in_flight, &after);
        gpu->fail_after(GPU_PRETEND_COPY, UINT32_MAX);
        group_finish(&group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_is_right_wherever_the_buffers_are),
        cmocka_unit_test(every_algorithm_is_right_where_it_moves_large_buffers),
        cmocka_unit_test(an_allreduce_takes_buffers_of_gpu_and_host),
        cmocka_unit_test(a_broadcast_takes_buffers_of_gpu_and_host),
        cmocka_unit_test(calls_in_flight_take_memory_of_the_gpu),
        cmocka_unit_test(a_failed_copy_is_fatal_and_named_by_cudas_error),
    };
    gpu = gpu_pretend_load(false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
