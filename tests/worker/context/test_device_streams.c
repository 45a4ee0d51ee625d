/*
 * Calls on streams of a GPU, and large ones whose buffers the operation moves itself: what order
 * they keep with the program's work, and how they end when something fails. With the pretended GPU,
 * whose streams run late.
 */
#include "tests/support/gpu_driver.h"
#include "tests/support/gpu_pretend.h"
#include "tests/support/group.h"
#include "worker/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum {
    RANKS = 3,
    NON_BLOCKING = 1,
    SMALL = 1000,
    LARGE = 400000, /* floats: more than is copied before and after a call */
    CALLS = 12,
    SOON_MS = 500,
    LEGACY_STREAM = 1,
};

static const struct gpu_pretend *gpu;
static struct gpu_driver cuda;
static void *primary;

static void expect(struct group_member *member, int error, const char *what)
{
    if (error != 0) {
        group_fail(member, "%s: CUDA's error %d", what, error);
    }
}

/* One call's buffers: memory of the GPU, and of the host, from and to which a stream copies. */
struct buffers {
    uint64_t in, out;
    float *before, *after;
    size_t bytes;
};

static struct buffers make(struct group_member *member, uint32_t count)
{
    struct buffers made = {.bytes = count * sizeof(float)};
    made.before = calloc(count, sizeof(float));
    made.after = calloc(count, sizeof(float));
    expect(member, cuda.cuMemAlloc_v2(&made.in, made.bytes), "cuMemAlloc");
    expect(member, cuda.cuMemAlloc_v2(&made.out, made.bytes), "cuMemAlloc");
    return made;
}

static void release(const struct buffers *buffers)
{
    (void)cuda.cuMemFree_v2(buffers->in);
    (void)cuda.cuMemFree_v2(buffers->out);
    free(buffers->before);
    free(buffers->after);
}

static uintptr_t make_stream(struct group_member *member)
{
    uintptr_t stream = 0;
    expect(member, cuda.cuCtxSetCurrent(primary), "cuCtxSetCurrent");
    expect(member, cuda.cuStreamCreate(&stream, NON_BLOCKING), "cuStreamCreate");
    return stream;
}

static struct muster_request allreduce_of(const struct buffers *buffers, uintptr_t stream)
{
    return (struct muster_request){.collective = MUSTER_ALLREDUCE,
                                   .in = gpu_driver_pointer(buffers->in),
                                   .out = gpu_driver_pointer(buffers->out),
                                   .count = buffers->bytes / sizeof(float),
                                   .type = MUSTER_FLOAT32,
                                   .op = MUSTER_SUM,
                                   .stream = stream,
                                   .deadline_ns = group_deadline()};
}

/* Order ---------------------------------------------------------------------------------------- */

/* Each call takes what the stream has copied to its input, and its result is copied to the host by
 * the stream; no thread waits before the last one is enqueued. */
static void call_in_a_row(struct group_member *member, void *argument)
{
    bool paused = *(const bool *)argument;
    struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    uintptr_t stream = make_stream(member);
    struct buffers buffers[CALLS];
    struct muster_started_call *calls[CALLS] = {NULL};
    if (paused) {
        gpu->pause(stream);
    }
    for (uint32_t i = 0; i < CALLS && member->failure[0] == '\0'; i++) {
        uint32_t count = i % 3 == 0 ? LARGE + i : SMALL * i;
        buffers[i] = make(member, count);
        for (uint32_t k = 0; k < count; k++) {
            buffers[i].before[k] = (float)(member->rank + i + k % 11);
        }
        expect(member,
               cuda.cuMemcpyAsync(buffers[i].in, (uintptr_t)buffers[i].before, buffers[i].bytes,
                                  stream),
               "cuMemcpyAsync");
        struct muster_request request = allreduce_of(&buffers[i], stream);
        request.prescale = i % 4 == 1 && !paused ? 2 : 1;
        request.op = i % 4 == 2 ? MUSTER_AVERAGE : MUSTER_SUM;
        if (muster_context_start(context, &request, &calls[i]) != MUSTER_OK) {
            group_fail(member, "call %u: %s", i, muster_last_error());
            return;
        }
        if (i % 2 == 1) {
            muster_started_call_detach(calls[i]);
            calls[i] = NULL;
        }
        expect(member,
               cuda.cuMemcpyAsync((uintptr_t)buffers[i].after, buffers[i].out, buffers[i].bytes,
                                  stream),
               "cuMemcpyAsync");
    }
    if (paused) {
        gpu->resume(stream);
    }
    expect(member, cuda.cuStreamSynchronize(stream), "cuStreamSynchronize");
    for (uint32_t i = 0; i < CALLS; i++) {
        float factor = i % 4 == 1 && !paused ? 2 : i % 4 == 2 ? 1.0F / RANKS : 1;
        for (uint32_t k = 0; k < buffers[i].bytes / sizeof(float); k++) {
            float wanted = (float)(RANKS * (1 + i + k % 11)) * factor;
            if (buffers[i].after[k] < wanted - 0.01F || buffers[i].after[k] > wanted + 0.01F) {
                group_fail(member, "call %u: element %u is %f, not %f", i, k,
                           (double)buffers[i].after[k], (double)wanted);
                break;
            }
        }
        if (calls[i] != NULL && muster_started_call_end(calls[i], NULL) != MUSTER_OK) {
            group_fail(member, "call %u: %s", i, muster_last_error());
        }
        release(&buffers[i]);
    }
    expect(member, cuda.cuStreamDestroy_v2(stream), "cuStreamDestroy");
}

static void a_call_on_a_stream_has_its_place_between_what_is_before_and_behind_it(void **state)
{
    (void)state;
    for (int paused = 0; paused < 2; paused++) {
        for (enum group_transport transport = GROUP_INPROC; transport <= GROUP_MEMORY;
             transport++) {
            struct group group;
            bool pauses = paused != 0;
            gpu->seed(7 + (uint64_t)transport, 200);
            group_start_flat(&group, transport, RANKS);
            group_each(&group, call_in_a_row, &pauses);
            group_finish(&group);
        }
    }
}

/* Bad input ------------------------------------------------------------------------------------ */

static void expect_refusal(struct group_member *member, const struct muster_request *request,
                           const char *word)
{
    struct muster_started_call *call = NULL;
    muster_status status = muster_context_start(member->contexts[MUSTER_GLOBAL], request, &call);
    if (status != MUSTER_INVALID || strstr(muster_last_error(), word) == NULL) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
}

static void give_bad_streams(struct group_member *member, void *argument)
{
    (void)argument;
    uintptr_t stream = make_stream(member);
    struct buffers buffers = make(member, SMALL);
    struct muster_request request = allreduce_of(&buffers, stream);
    request.in = buffers.before;
    request.out = buffers.after;
    expect_refusal(member, &request, "stream");
    request = allreduce_of(&buffers, stream);
    request.in = buffers.before; /* one of them is enough */
    expect_refusal(member, &request, "stream");
    /* A first call makes the library's own streams, one of which might get the same address. */
    struct muster_started_call *call = NULL;
    request = allreduce_of(&buffers, stream);
    if (muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &call) != MUSTER_OK ||
        muster_started_call_end(call, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
    expect(member, cuda.cuStreamSynchronize(stream), "cuStreamSynchronize");
    expect(member, cuda.cuStreamDestroy_v2(stream), "cuStreamDestroy");
    expect_refusal(member, &request, "stream");
    release(&buffers);
}

static void a_stream_that_is_none_of_the_gpu_is_refused(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, 1);
    group_each(&group, give_bad_streams, NULL);
    group_finish(&group);
}

/* The ranks call with other counts, and nobody looks at the end of the call. */
static void disagree(struct group_member *member, void *argument)
{
    (void)argument;
    uintptr_t stream = make_stream(member);
    struct buffers buffers = make(member, SMALL);
    struct muster_request request = allreduce_of(&buffers, stream);
    struct muster_started_call *call = NULL;
    request.count = SMALL - member->rank;
    if (muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &call) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
        return;
    }
    muster_started_call_detach(call);
    expect(member, cuda.cuStreamSynchronize(stream), "cuStreamSynchronize");
    request.count = SMALL;
    expect_refusal(member, &request, "count"); /* a call in flight, and a blocking one */
    request.stream = 0;
    muster_status status = muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL);
    if (status != MUSTER_INVALID || strstr(muster_last_error(), "count") == NULL) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
    expect(member, cuda.cuStreamDestroy_v2(stream), "cuStreamDestroy");
    release(&buffers);
}

static void later_calls_say_that_the_ranks_disagreed(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_TCP, 2);
    group_each(&group, disagree, NULL);
    group_finish(&group);
}

/* Calls that need no other call's end: the last one, without a stream, must be done although the
 * default stream is held for the first. */
static void call_beside_a_held_stream(struct group_member *member, void *argument)
{
    (void)argument;
    expect(member, cuda.cuCtxSetCurrent(primary), "cuCtxSetCurrent");
    struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    struct buffers buffers[2] = {make(member, SMALL), make(member, SMALL)};
    struct muster_request small = allreduce_of(&buffers[0], 0);
    struct muster_request held = allreduce_of(&buffers[1], LEGACY_STREAM);
    struct muster_started_call *calls[2] = {NULL, NULL};
    small.prescale = 2; /* not moved by the operation */
    if (muster_context_start(context, &small, &calls[0]) != MUSTER_OK ||
        muster_context_start(context, &held, &calls[1]) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
        return;
    }
    for (int i = 0; i < 2; i++) {
        if (muster_started_call_end(calls[i], NULL) != MUSTER_OK) {
            group_fail(member, "call %d: %s", i, muster_last_error());
        }
    }
    expect(member, cuda.cuCtxSynchronize(), "cuCtxSynchronize");
    release(&buffers[0]);
    release(&buffers[1]);
}

static void a_call_in_flight_does_not_wait_for_a_held_stream(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_TCP, 1);
    group_each(&group, call_beside_a_held_stream, NULL);
    group_finish(&group);
}

/* Failures ------------------------------------------------------------------------------------- */

/* The last rank dies; the streams of the others go on. */
static void outlive_a_rank(struct group_member *member, void *argument)
{
    (void)argument;
    struct muster_started_call *call = NULL;
    if (member->rank == RANKS - 1) {
        muster_fabric_kill(member->fabric);
        return;
    }
    uintptr_t stream = make_stream(member);
    struct buffers buffers = make(member, LARGE);
    struct muster_request request = allreduce_of(&buffers, stream);
    muster_status status = muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &call);
    expect(member, cuda.cuStreamSynchronize(stream), "cuStreamSynchronize");
    if (status == MUSTER_OK) {
        status = muster_started_call_end(call, NULL);
    }
    if (status != MUSTER_REJOIN) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
    expect(member, cuda.cuStreamDestroy_v2(stream), "cuStreamDestroy");
    release(&buffers);
}

/* The third call waits for the stream, which is held for the second one, when the first one fails.
 */
static void outlive_a_rank_in_a_row(struct group_member *member, void *argument)
{
    (void)argument;
    struct muster_started_call *calls[3] = {NULL};
    muster_status last = MUSTER_OK;
    if (member->rank == RANKS - 1) {
        const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000}; /* until the others wait */
        (void)nanosleep(&pause, NULL);
        muster_fabric_kill(member->fabric);
        return;
    }
    uintptr_t stream = make_stream(member);
    struct buffers buffers = make(member, SMALL);
    for (int i = 0; i < 3 && last == MUSTER_OK; i++) {
        struct muster_request request = allreduce_of(&buffers, stream);
        request.prescale = i == 2 ? 2 : 1;
        last = muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &calls[i]);
    }
    for (int i = 0; i < 3; i++) {
        if (calls[i] != NULL && muster_started_call_end(calls[i], NULL) != MUSTER_REJOIN) {
            group_fail(member, "call %d did not end with rejoin", i);
        }
    }
    expect(member, cuda.cuStreamSynchronize(stream), "cuStreamSynchronize");
    expect(member, cuda.cuStreamDestroy_v2(stream), "cuStreamDestroy");
    release(&buffers);
}

static void a_start_that_waits_for_the_stream_ends_when_a_rank_dies(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_TCP, RANKS);
    group_each(&group, outlive_a_rank_in_a_row, NULL);
    group_finish(&group);
}

static void a_stream_goes_on_when_its_call_fails(void **state)
{
    (void)state;
    for (enum group_transport transport = GROUP_TCP; transport <= GROUP_SHM; transport++) {
        struct group group;
        group_start_flat(&group, transport, RANKS);
        group_each(&group, outlive_a_rank, NULL);
        group_finish(&group);
    }
}

/* The GPU fails while the operation moves the buffers of rank 0. */
static void lose_a_copy(struct group_member *member, void *argument)
{
    (void)argument;
    expect(member, cuda.cuCtxSetCurrent(primary), "cuCtxSetCurrent");
    struct buffers buffers = make(member, LARGE);
    struct muster_request request = allreduce_of(&buffers, 0);
    if (member->rank != 0) { /* memory of the host */
        free(buffers.before);
        free(buffers.after);
        buffers.before = calloc(LARGE, sizeof(float));
        buffers.after = calloc(LARGE, sizeof(float));
        request.in = buffers.before;
        request.out = buffers.after;
        request.deadline_ns = muster_clock_after_ms(SOON_MS);
    }
    muster_status status = muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL);
    bool named = strstr(muster_last_error(), "CUDA_ERROR") != NULL;
    if (member->rank == 0 && (status != MUSTER_FATAL || !named)) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    } else if (member->rank != 0 && status == MUSTER_OK) {
        group_fail(member, "it succeeded although rank 0 failed");
    }
    release(&buffers);
}

static void a_gpu_that_fails_in_the_middle_ends_the_call_with_its_error(void **state)
{
    (void)state;
    for (uint32_t after = 0; after < 2; after++) {
        struct group group;
        group_start_flat(&group, GROUP_INPROC, 2);
        gpu->fail_after(GPU_PRETEND_COPY, after);
        group_each(&group, lose_a_copy, NULL);
        gpu->fail_after(GPU_PRETEND_COPY, GPU_PRETEND_NEVER);
        group_finish(&group);
    }
}

/* Without enough pinned memory calls are only slower. */
static void call_without_pins(struct group_member *member, void *argument)
{
    (void)argument;
    expect(member, cuda.cuCtxSetCurrent(primary), "cuCtxSetCurrent");
    struct buffers buffers = make(member, LARGE);
    struct muster_request request = allreduce_of(&buffers, 0);
    for (uint32_t k = 0; k < LARGE; k++) {
        buffers.before[k] = (float)(k % 5);
    }
    expect(member, cuda.cuMemcpyHtoD_v2(buffers.in, buffers.before, buffers.bytes), "copy");
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
    expect(member, cuda.cuMemcpyDtoH_v2(buffers.after, buffers.out, buffers.bytes), "copy");
    for (uint32_t k = 0; k < LARGE; k++) {
        if (buffers.after[k] != (float)(2 * (k % 5))) {
            group_fail(member, "element %u is %f", k, (double)buffers.after[k]);
            break;
        }
    }
    release(&buffers);
}

static void memory_that_cannot_be_pinned_is_used_as_it_is(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_TCP, 2);
    gpu->fail_after(GPU_PRETEND_PIN, 0);
    group_each(&group, call_without_pins, NULL);
    gpu->fail_after(GPU_PRETEND_PIN, GPU_PRETEND_NEVER);
    group_finish(&group);
}

int main(void)
{
    const char *why = NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_on_a_stream_has_its_place_between_what_is_before_and_behind_it),
        cmocka_unit_test(a_stream_that_is_none_of_the_gpu_is_refused),
        cmocka_unit_test(later_calls_say_that_the_ranks_disagreed),
        cmocka_unit_test(a_call_in_flight_does_not_wait_for_a_held_stream),
        cmocka_unit_test(a_stream_goes_on_when_its_call_fails),
        cmocka_unit_test(a_start_that_waits_for_the_stream_ends_when_a_rank_dies),
        cmocka_unit_test(a_gpu_that_fails_in_the_middle_ends_the_call_with_its_error),
        cmocka_unit_test(memory_that_cannot_be_pinned_is_used_as_it_is),
    };
    gpu = gpu_pretend_load(false);
    if (!gpu_driver_load(gpu_pretend_path(), &cuda, &why)) {
        print_error("%s\n", why);
        return EXIT_FAILURE;
    }
    (void)cuda.cuCtxGetCurrent(&primary);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
