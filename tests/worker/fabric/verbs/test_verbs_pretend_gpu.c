/* Links over RDMA that send from GPU memory, and receive into it; devices and GPU are simulated.
 * The CPU cannot access that memory. */
#include "tests/support/gpu_memory.h"
#include "tests/support/group.h"
#include "tests/support/verbs_pretend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/base/clock.h"
#include "worker/base/log.h"

enum { RANKS = 2, COUNT = 400000, SMALL = 500, SKIPPED = 77 };

static const struct gpu_pretend *gpu;

/* All collectives ------------------------------------------------------------------------------ */

static void sweep_buffers(enum gpu_memory_where where, unsigned kind, const uint64_t *counts,
                          size_t count_count)
{
    for (uint32_t ranks = 2; ranks <= 4; ranks++) {
        const struct sweep sweep = {.counts = counts,
                                    .count_count = count_count,
                                    .brief = true,
                                    .in_flight = ranks % 2 == 0,
                                    .place = SWEEP_VERBS,
                                    .memory = gpu_memory(gpu, where, kind)};
        sweep_even(ranks, 1 + ranks % 2, &sweep);
    }
    assert_int_equal(verbs_pretend_violations(), 0);
}

static void every_algorithm_is_correct_however_the_device_reads_the_gpu(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 777, 0, 5000, 5};
    static const unsigned ways[] = {VERBS_PRETEND_DMABUF, VERBS_PRETEND_PEERMEM, 0};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct verbs_pretend_gpu_figures before = verbs_pretend_gpu_figures();
        verbs_pretend_gpu(gpu, ways[i]);
        for (enum gpu_memory_where where = 0; where < GPU_MEMORY_WHERES; where += i == 0 ? 1 : 3) {
            sweep_buffers(where, 0, counts, sizeof counts / sizeof counts[0]);
        }
        struct verbs_pretend_gpu_figures after = verbs_pretend_gpu_figures();
        assert_int_equal(after.held, 0);
        assert_int_equal(after.by_dmabuf > before.by_dmabuf, ways[i] == VERBS_PRETEND_DMABUF);
        assert_int_equal(after.by_peermem > before.by_peermem, ways[i] == VERBS_PRETEND_PEERMEM);
        assert_true(after.attempts > before.attempts);
    }
}

static void every_algorithm_is_correct_with_messages_over_1_mib(void **state)
{
    (void)state;
    static const uint64_t counts[] = {300000};
    verbs_pretend_gpu(gpu, VERBS_PRETEND_DMABUF);
    for (enum gpu_memory_where where = 0; where < GPU_MEMORY_WHERES; where += 3) {
        const struct sweep sweep = {.counts = counts,
                                    .count_count = 1,
                                    .brief = true,
                                    .place = SWEEP_VERBS,
                                    .memory = gpu_memory(gpu, where, 0)};
        sweep_even(3, 1, &sweep);
    }
    assert_int_equal(verbs_pretend_violations(), 0);
}

static void memory_without_ids_or_contexts_works_too(void **state)
{
    (void)state;
    static const uint64_t counts[] = {777, 6000};
    verbs_pretend_gpu(gpu, VERBS_PRETEND_DMABUF);
    sweep_buffers(GPU_MEMORY_ALL, GPU_PRETEND_NO_ID, counts, 2);
    sweep_buffers(GPU_MEMORY_ODD_RANKS, GPU_PRETEND_NO_ID | GPU_PRETEND_NO_CONTEXT, counts, 2);
}

/* One group, call by call ---------------------------------------------------------------------- */

static struct group group;

/* A call of all members, each with one buffer. */
struct step {
    enum muster_collective collective;
    muster_op op;
    float *buffers[RANKS]; /* as the library sees them */
    uint64_t count;
    muster_status statuses[RANKS];
    char texts[RANKS][MUSTER_ERROR_MAX];
    bool ends; /* a rank that fails closes its links */
};

static void take_step(struct group_member *member, void *argument)
{
    struct step *step = argument;
    float *buffer = step->buffers[member->rank];
    const struct muster_request request = {.collective = step->collective,
                                           .in =
                                               step->collective == MUSTER_BROADCAST ? NULL : buffer,
                                           .out = buffer,
                                           .count = step->count,
                                           .type = MUSTER_FLOAT32,
                                           .op = step->op,
                                           .deadline_ns = muster_clock_after_ms(30000)};
    muster_status status = muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL);
    step->statuses[member->rank] = status;
    (void)snprintf(step->texts[member->rank], MUSTER_ERROR_MAX, "%s",
                   status != MUSTER_OK ? muster_last_error() : "");
    if (status == MUSTER_FATAL && step->ends) {
        muster_fabric_kill(member->fabric);
    }
}

static void run_step(struct step *step)
{
    group_each(&group, take_step, step);
    for (uint32_t i = 0; i < RANKS && !step->ends; i++) {
        if (step->statuses[i] != MUSTER_OK) {
            fail_msg("rank %u: %s", i, step->texts[i]);
        }
    }
}

static void fill(const float *of_gpu, float value)
{
    float *here = gpu->alias(of_gpu);
    for (uint32_t i = 0; i < COUNT; i++) {
        here[i] = value;
    }
}

static void expect(const float *of_gpu, uint64_t count, float value)
{
    const float *here = gpu->alias(of_gpu);
    for (uint64_t i = 0; i < count; i++) {
        if (here[i] != value) {
            fail_msg("element %llu is %f, not %f", (unsigned long long)i, here[i], value);
        }
    }
}

static void begin(struct step *step, enum muster_collective collective, uint64_t count)
{
    *step = (struct step){.collective = collective, .count = count};
    group_start_flat(&group, GROUP_VERBS, RANKS);
    for (uint32_t i = 0; i < RANKS; i++) {
        step->buffers[i] = gpu->allocate(COUNT * sizeof(float), 0);
        fill(step->buffers[i], 1);
    }
    run_step(step); /* the links are open from now on */
}

static void finish(const struct step *step)
{
    group_finish(&group);
    for (uint32_t i = 0; i < RANKS; i++) {
        gpu->release(step->buffers[i]);
    }
    assert_int_equal(verbs_pretend_violations(), 0);
}

/* Small messages, too. */
static void memory_that_is_sent_repeatedly_stays_registered_and_is_not_copied(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, SMALL, COUNT};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct step step;
        verbs_pretend_gpu(gpu, VERBS_PRETEND_DMABUF);
        begin(&step, MUSTER_BROADCAST, counts[i]);
        uint32_t made = verbs_pretend_gpu_figures().by_dmabuf;
        fill(step.buffers[0], 3);
        run_step(&step);
        expect(step.buffers[1], counts[i], 3);
        uint32_t blocks = verbs_pretend_gpu_figures().by_dmabuf - made;
        assert_in_range(blocks, 1, 1 + COUNT * sizeof(float) / (1 << 20) + 1);
        uint64_t copies = gpu->count(GPU_PRETEND_COPY);
        fill(step.buffers[0], 4);
        run_step(&step);
        expect(step.buffers[1], counts[i], 4);
        assert_int_equal(verbs_pretend_gpu_figures().by_dmabuf - made, blocks);
        /* Only the receiver has copied: each segment once. */
        uint64_t pieces = (counts[i] * sizeof(float) + (128 << 10) - 1) / (128 << 10);
        assert_in_range(gpu->count(GPU_PRETEND_COPY) - copies, 1, pieces + 1);
        finish(&step);
    }
}

static void memory_that_was_freed_and_allocated_again_is_sent_as_it_is_now(void **state)
{
    (void)state;
    static const unsigned ways[] = {VERBS_PRETEND_DMABUF, VERBS_PRETEND_PEERMEM};
    for (size_t i = 0; i < 2; i++) {
        struct step step;
        verbs_pretend_gpu(gpu, ways[i]);
        begin(&step, MUSTER_BROADCAST, COUNT);
        fill(step.buffers[0], 3);
        run_step(&step);
        uint32_t held = verbs_pretend_gpu_figures().held;
        gpu->replace(step.buffers[0]);
        fill(step.buffers[0], 5);
        run_step(&step);
        expect(step.buffers[1], COUNT, 5);
        assert_int_equal(verbs_pretend_gpu_figures().held, held); /* not also the earlier ones */
        finish(&step);
    }
}

/* The two buffers are in different contexts: the other member does not wait for it. */
static void writes_of_the_default_stream_are_waited_for(void **state)
{
    (void)state;
    static float written[COUNT];
    static const unsigned ways[] = {VERBS_PRETEND_DMABUF, 0};
    for (size_t i = 0; i < 2; i++) {
        struct step step;
        verbs_pretend_gpu(gpu, ways[i]);
        begin(&step, MUSTER_BROADCAST, COUNT);
        for (uint32_t k = 0; k < COUNT; k++) {
            written[k] = 6;
        }
        gpu->write_later(step.buffers[0], written, sizeof written);
        run_step(&step);
        expect(step.buffers[1], COUNT, 6);
        finish(&step);
    }
}

static void a_device_that_refuses_is_tried_rarely_until_it_accepts(void **state)
{
    (void)state;
    struct step step;
    verbs_pretend_gpu(gpu, 0);
    begin(&step, MUSTER_BROADCAST, COUNT);
    uint32_t attempts = verbs_pretend_gpu_figures().attempts;
    for (int i = 0; i < 5; i++) { /* about a hundred segments each */
        fill(step.buffers[0], (float)i);
        run_step(&step);
        expect(step.buffers[1], COUNT, (float)i);
    }
    attempts = verbs_pretend_gpu_figures().attempts - attempts;
    assert_in_range(attempts, 2 * 4, 2 * (4 + 5 * 100 / 64 + 1)); /* in two ways */
    verbs_pretend_gpu(gpu, VERBS_PRETEND_DMABUF);
    uint32_t made = verbs_pretend_gpu_figures().by_dmabuf;
    run_step(&step);
    assert_true(verbs_pretend_gpu_figures().by_dmabuf > made);
    finish(&step);
}

static void peermem_is_used_where_no_dma_buf_can_be_exported(void **state)
{
    (void)state;
    struct step step;
    verbs_pretend_gpu(gpu, VERBS_PRETEND_DMABUF | VERBS_PRETEND_PEERMEM);
    gpu->fail_after(GPU_PRETEND_EXPORT, 0);
    begin(&step, MUSTER_BROADCAST, COUNT);
    struct verbs_pretend_gpu_figures before = verbs_pretend_gpu_figures();
    run_step(&step);
    struct verbs_pretend_gpu_figures after = verbs_pretend_gpu_figures();
    gpu->fail_after(GPU_PRETEND_EXPORT, UINT32_MAX);
    assert_int_equal(after.by_dmabuf, before.by_dmabuf);
    assert_true(after.by_peermem > before.by_peermem);
    finish(&step);
}

/* A copy of one member fails: the first one, or a later one. The member reports it, and the others
 * learn that it is gone. */
static void fail_copies(unsigned ways, enum muster_collective collective, muster_op op)
{
    for (uint32_t after = 0; after < 40; after += 1 + after / 3) {
        struct step step;
        uint32_t fatal = 0;
        verbs_pretend_gpu(gpu, ways);
        begin(&step, collective, COUNT);
        step.op = op;
        step.ends = true;
        gpu->fail_after(GPU_PRETEND_COPY, after);
        run_step(&step);
        gpu->fail_after(GPU_PRETEND_COPY, UINT32_MAX);
        for (uint32_t i = 0; i < RANKS; i++) {
            bool says = strstr(step.texts[i], "CUDA_ERROR_ILLEGAL_ADDRESS") != NULL;
            fatal += step.statuses[i] == MUSTER_FATAL && says;
            assert_true(step.statuses[i] == MUSTER_OK || step.statuses[i] == MUSTER_REJOIN ||
                        (step.statuses[i] == MUSTER_FATAL && says));
        }
        assert_in_range(fatal, after < 4 ? 1 : 0, RANKS);
        finish(&step);
    }
}

static void a_copy_that_fails_ends_the_operation_with_cudas_reason(void **state)
{
    (void)state;
    fail_copies(VERBS_PRETEND_DMABUF, MUSTER_BROADCAST, MUSTER_SUM);
    fail_copies(0, MUSTER_BROADCAST, MUSTER_SUM);
    fail_copies(VERBS_PRETEND_DMABUF, MUSTER_ALLREDUCE, MUSTER_AVERAGE);
    fail_copies(0, MUSTER_ALLREDUCE, MUSTER_AVERAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_is_correct_however_the_device_reads_the_gpu),
        cmocka_unit_test(every_algorithm_is_correct_with_messages_over_1_mib),
        cmocka_unit_test(memory_without_ids_or_contexts_works_too),
        cmocka_unit_test(memory_that_is_sent_repeatedly_stays_registered_and_is_not_copied),
        cmocka_unit_test(memory_that_was_freed_and_allocated_again_is_sent_as_it_is_now),
        cmocka_unit_test(writes_of_the_default_stream_are_waited_for),
        cmocka_unit_test(a_device_that_refuses_is_tried_rarely_until_it_accepts),
        cmocka_unit_test(peermem_is_used_where_no_dma_buf_can_be_exported),
        cmocka_unit_test(a_copy_that_fails_ends_the_operation_with_cudas_reason),
    };
    unsigned seed = (unsigned)muster_clock_ns();
    print_message("seed %u\n", seed);
    if (!verbs_pretend_start(seed)) {
        print_message("libibverbs cannot be loaded\n");
        return SKIPPED;
    }
    gpu = gpu_pretend_load(false);
    muster_log_set_level(MUSTER_LOG_ERROR);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    verbs_pretend_stop();
    return failed;
}
