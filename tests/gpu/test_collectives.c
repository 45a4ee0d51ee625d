/* Collectives on memory of the first GPU of this machine. Without one: of a pretended GPU, which is
 * printed, or an error if MUSTER_TEST_GPU is set. Memory is allocated and filled as programs do it,
 * through libcuda. */
#include "tests/support/gpu_driver.h"
#include "tests/support/group.h"
#include "tests/support/pattern.h"
#include "tests/support/thinning.h"
#include "worker/base/clock.h"
#include "worker/base/statistics.h"
#include "worker/device/devices.h"
#include "worker/muster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    RANKS = 3,
    ROOT = 1,
    TIMED_RANKS = 2,
    TIMED_COUNT = 16 << 20,    /* of float32: 64 MiB */
    PRETENDED_COUNT = 1 << 16, /* with a pretended GPU, whose times mean nothing */
    TIMED_CALLS = 7,
    EXPORTED_BYTES = 2 << 20,
    STREAMS = 20,
    TURNS = 4,
};

static struct gpu_driver cuda;
static void *context;
static bool pretended;

static uint64_t timed_count(void)
{
    return pretended ? PRETENDED_COUNT : TIMED_COUNT;
}

/* Buffers -------------------------------------------------------------------------------------- */

static void expect(struct group_member *member, int error, const char *what)
{
    if (error != 0) {
        group_fail(member, "%s: CUDA's error %d", what, error);
    }
}

/* A buffer of the GPU, and its copy in memory of the host. */
struct buffer {
    void *host;
    uint64_t gpu;
    size_t size_bytes;
};

static struct buffer make_buffer(struct group_member *member, size_t size_bytes)
{
    struct buffer made = {.host = calloc(1, size_bytes), .size_bytes = size_bytes};
    expect(member, cuda.cuMemAlloc_v2(&made.gpu, size_bytes), "cuMemAlloc");
    return made;
}

static void copy_to_gpu(struct group_member *member, const struct buffer *buffer)
{
    expect(member, cuda.cuMemcpyHtoD_v2(buffer->gpu, buffer->host, buffer->size_bytes),
           "to the GPU");
}

static void copy_to_host(struct group_member *member, const struct buffer *buffer)
{
    expect(member, cuda.cuMemcpyDtoH_v2(buffer->host, buffer->gpu, buffer->size_bytes),
           "from the GPU");
}

static void free_buffer(const struct buffer *buffer)
{
    (void)cuda.cuMemFree_v2(buffer->gpu);
    free(buffer->host);
}

/* Collectives ---------------------------------------------------------------------------------- */

/* Runs the request on buffers of the GPU: fills their copies in memory of the host, copies them to
 * the GPU, calls, copies the result back and checks it. */
static void run_case(struct group_member *member, struct muster_request *request)
{
    char text[128] = "";
    uint32_t ranks = member->group->size;
    size_t room_bytes = 2 * (request->count + 1) * ranks * sizeof(double);
    struct buffer in = make_buffer(member, room_bytes);
    struct buffer out = make_buffer(member, room_bytes);
    bool has_input = request->collective != MUSTER_BROADCAST;
    request->in = has_input ? in.host : NULL;
    request->out = out.host;
    pattern_fill(request, has_input ? in.host : out.host, member->rank, ranks);
    copy_to_gpu(member, &in);
    copy_to_gpu(member, &out);
    struct muster_request gpu_request = *request;
    gpu_request.in = has_input ? gpu_driver_pointer(in.gpu) : NULL;
    gpu_request.out = gpu_driver_pointer(out.gpu);
    muster_status status = muster_context_run(member->contexts[MUSTER_GLOBAL], &gpu_request, NULL);
    copy_to_host(member, &out);
    if (status != MUSTER_OK || pattern_check(request, member->rank, ranks, text, sizeof text) > 0) {
        group_fail(member, "%s of %llu: %s", muster_collective_name(request->collective),
                   (unsigned long long)request->count,
                   status == MUSTER_OK ? text : muster_last_error());
    }
    free_buffer(&in);
    free_buffer(&out);
}

static void run_all(struct group_member *member, void *argument)
{
    static const uint64_t counts[] = {1, 1000, 140000, 1500001};
    (void)argument;
    expect(member, cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    /* The last one has no new paths, and takes long where memory is copied twice. */
    size_t count = sizeof counts / sizeof counts[0];
    count -= !pretended ? 0 : TEST_ONE_OF == 1 ? 1 : 2;
    for (size_t i = 0; i < count; i++) {
        for (int each = MUSTER_ALLREDUCE;
             each < MUSTER_COLLECTIVE_END && member->failure[0] == '\0'; each++) {
            struct muster_request request = {.collective = (enum muster_collective)each,
                                             .count = counts[i],
                                             .type = MUSTER_FLOAT32,
                                             .op = MUSTER_SUM,
                                             .root = ROOT,
                                             .deadline_ns = group_deadline()};
            bool even = !muster_collective_needs_bounds(request.collective);
            request.root = muster_collective_has_root(request.collective) ? ROOT : 0;
            if (even && request.collective != MUSTER_BARRIER) {
                run_case(member, &request);
            }
        }
    }
}

static void every_collective_takes_memory_of_a_gpu(void **state)
{
    (void)state;
    for (enum group_transport transport = GROUP_INPROC; transport <= GROUP_MEMORY; transport++) {
        struct group group;
        group_start_flat(&group, transport, RANKS);
        group_each(&group, run_all, NULL);
        group_finish(&group);
    }
}

/* Streams -------------------------------------------------------------------------------------- */

/* Each stream takes its turn: it fills the input, calls, and brings the output back. */
struct stream_call {
    uintptr_t stream;
    struct buffer in, out;
};

static void open_stream(struct group_member *member, uint32_t index, struct stream_call *call)
{
    size_t size_bytes = (index % 3 != 0 ? 1000U : pretended ? 1U << 17 : 4U << 20) * sizeof(float);
    call->in = make_buffer(member, size_bytes);
    call->out = make_buffer(member, size_bytes);
    expect(member, cuda.cuStreamCreate(&call->stream, 1), "cuStreamCreate");
    expect(member, cuda.cuMemHostRegister_v2(call->in.host, size_bytes, 0), "pinning");
    expect(member, cuda.cuMemHostRegister_v2(call->out.host, size_bytes, 0), "pinning");
}

static void close_stream(struct group_member *member, const struct stream_call *call)
{
    expect(member, cuda.cuStreamDestroy_v2(call->stream), "cuStreamDestroy");
    expect(member, cuda.cuMemHostUnregister(call->in.host), "cuMemHostUnregister");
    expect(member, cuda.cuMemHostUnregister(call->out.host), "cuMemHostUnregister");
    free_buffer(&call->in);
    free_buffer(&call->out);
}

/* Enqueues everything; returns how long the call itself took. first: the value of rank 0's first
 * element, which those of later ranks exceed by one each. */
static int64_t enqueue(struct group_member *member, const struct stream_call *call, uint32_t first)
{
    float *host = call->in.host;
    struct muster_started_call *started = NULL;
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = gpu_driver_pointer(call->in.gpu),
                                           .out = gpu_driver_pointer(call->out.gpu),
                                           .count = call->in.size_bytes / sizeof *host,
                                           .op = MUSTER_SUM,
                                           .stream = call->stream,
                                           .deadline_ns = group_deadline()};
    for (size_t k = 0; k < request.count; k++) {
        host[k] = (float)(member->rank + first + k % 5);
    }
    expect(member,
           cuda.cuMemcpyAsync(call->in.gpu, (uintptr_t)host, call->in.size_bytes, call->stream),
           "cuMemcpyAsync");
    int64_t before_ns = muster_clock_ns();
    if (muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &started) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
        return 0;
    }
    muster_started_call_detach(started);
    int64_t took_ns = muster_clock_ns() - before_ns;
    expect(member,
           cuda.cuMemcpyAsync((uintptr_t)call->out.host, call->out.gpu, call->out.size_bytes,
                              call->stream),
           "cuMemcpyAsync");
    return took_ns;
}

static void check_sums(struct group_member *member, const struct stream_call *call, uint32_t first)
{
    const float *got = call->out.host;
    uint32_t ranks = member->group->size;
    expect(member, cuda.cuStreamSynchronize(call->stream), "cuStreamSynchronize");
    for (size_t k = 0; k < call->out.size_bytes / sizeof *got; k++) {
        float wanted = (float)(ranks * (first + k % 5) + ranks * (ranks - 1) / 2);
        if (got[k] != wanted) {
            group_fail(member, "element %zu is %f, not %f", k, (double)got[k], (double)wanted);
            return;
        }
    }
}

static void call_on_streams(struct group_member *member, void *argument)
{
    struct stream_call calls[STREAMS];
    int64_t took_ns = 0;
    (void)argument;
    expect(member, cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (uint32_t i = 0; i < STREAMS; i++) {
        open_stream(member, i, &calls[i]);
    }
    for (uint32_t turn = 0; turn < TURNS && member->failure[0] == '\0'; turn++) {
        for (uint32_t i = 0; i < STREAMS; i++) {
            took_ns += enqueue(member, &calls[i], i + turn);
        }
        for (uint32_t i = 0; i < STREAMS; i++) {
            check_sums(member, &calls[i], i + turn);
        }
    }
    if (member->rank == 0) {
        (void)printf("a call on one of %d streams returns after %.1f us (mean of %d turns)\n",
                     STREAMS, (double)took_ns / 1000 / (STREAMS * TURNS), TURNS);
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        close_stream(member, &calls[i]);
    }
}

/* More streams than a GPU has channels, in which streams wait for each other. Ranks that are
 * threads of one process share them, too: there one rank's stream may stand behind a stream that is
 * held for this rank. So with a real GPU there is one rank. */
static void calls_on_many_streams_are_in_order(void **state)
{
    (void)state;
    for (enum group_transport transport = GROUP_TCP; transport <= GROUP_MEMORY; transport++) {
        struct group group;
        group_start_flat(&group, transport, pretended ? TIMED_RANKS : 1);
        group_each(&group, call_on_streams, NULL);
        group_finish(&group);
    }
}

/* Figures -------------------------------------------------------------------------------------- */

static double median_ns(struct group_member *member, void *in, void *out)
{
    double took_ns[TIMED_CALLS] = {0};
    for (int i = 0; i < TIMED_CALLS; i++) {
        const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                               .in = in,
                                               .out = out,
                                               .count = timed_count(),
                                               .type = MUSTER_FLOAT32,
                                               .op = MUSTER_SUM,
                                               .deadline_ns = muster_clock_after_ms(60000)};
        int64_t started_ns = muster_clock_ns();
        if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
            break;
        }
        took_ns[i] = (double)(muster_clock_ns() - started_ns);
    }
    return muster_statistics_median_high(took_ns, TIMED_CALLS);
}

/* The copies alone, of pinned memory. */
static double copy_ns(struct group_member *member, int (*copy)(struct buffer *),
                      struct buffer *buffer)
{
    double took_ns[TIMED_CALLS] = {0};
    for (int i = 0; i < TIMED_CALLS; i++) {
        int64_t started_ns = muster_clock_ns();
        expect(member, copy(buffer), "a copy");
        took_ns[i] = (double)(muster_clock_ns() - started_ns);
    }
    return muster_statistics_median_high(took_ns, TIMED_CALLS);
}

static int to_gpu(struct buffer *buffer)
{
    return cuda.cuMemcpyHtoD_v2(buffer->gpu, buffer->host, buffer->size_bytes);
}

static int to_host(struct buffer *buffer)
{
    return cuda.cuMemcpyDtoH_v2(buffer->host, buffer->gpu, buffer->size_bytes);
}

static void time_one(struct group_member *member, void *argument)
{
    const size_t size_bytes = timed_count() * sizeof(float);
    expect(member, cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    struct buffer in = make_buffer(member, size_bytes);
    struct buffer out = make_buffer(member, size_bytes);
    void *host[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        if (muster_alloc(size_bytes, &host[i]) != MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
            return;
        }
        memset(host[i], 0, size_bytes);
    }
    double malloc_ns = median_ns(member, in.host, out.host);
    double host_ns = median_ns(member, host[0], host[1]);
    double gpu_ns = median_ns(member, gpu_driver_pointer(in.gpu), gpu_driver_pointer(out.gpu));
    if (member->rank == 0) {
        free(in.host);
        in.host = host[0];
        expect(member, cuda.cuMemHostRegister_v2(in.host, size_bytes, 0), "cuMemHostRegister");
        double fetch_ns = copy_ns(member, to_host, &in);
        double store_ns = copy_ns(member, to_gpu, &in);
        expect(member, cuda.cuMemHostUnregister(in.host), "cuMemHostUnregister");
        in.host = NULL;
        (void)printf(
            "%s: allreduce of %zu bytes, %d ranks of one process, in ms: %.2f of malloc(), "
            "%.2f of muster_alloc(), %.2f of a GPU (slowest stage %.2f; copies alone %.2f "
            "and %.2f)\n",
            (const char *)argument, size_bytes, TIMED_RANKS, malloc_ns / 1e6, host_ns / 1e6,
            gpu_ns / 1e6, host_ns / 1e6, fetch_ns / 1e6, store_ns / 1e6);
    }
    free_buffer(&in);
    free_buffer(&out);
    muster_free(host[0]);
    muster_free(host[1]);
}

static void the_time_of_an_allreduce_is_printed(void **state)
{
    (void)state;
    static const char *const names[] = {[GROUP_INPROC] = "inproc",
                                        [GROUP_TCP] = "tcp",
                                        [GROUP_SHM] = "shm messages",
                                        [GROUP_MEMORY] = "shared memory"};
    for (enum group_transport transport = GROUP_INPROC; transport <= GROUP_MEMORY; transport++) {
        struct group group;
        group_start_flat(&group, transport, TIMED_RANKS);
        group_each(&group, time_one, (void *)names[transport]);
        group_finish(&group);
    }
}

static void whether_memory_can_be_exported_as_a_dma_buf_is_printed(void **state)
{
    (void)state;
    struct muster_device_memory memory;
    uint64_t address = 0;
    int fd = -1;
    assert_int_equal(cuda.cuCtxSetCurrent(context), 0);
    assert_int_equal(cuda.cuMemAlloc_v2(&address, EXPORTED_BYTES), 0);
    assert_true(muster_device_find(gpu_driver_pointer(address), &memory));
    assert_in_range(EXPORTED_BYTES, 1, memory.end - memory.begin);
    assert_int_not_equal(memory.id, 0);
    muster_status status =
        memory.device->export_pages(&memory, gpu_driver_pointer(memory.begin), EXPORTED_BYTES, &fd);
    (void)printf("dma-buf of its memory: %s\n", status == MUSTER_OK ? "yes" : muster_last_error());
    assert_true(status == MUSTER_INVALID || fd >= 0);
    (void)(fd >= 0 && close(fd));
    assert_int_equal(cuda.cuMemFree_v2(address), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_takes_memory_of_a_gpu),
        cmocka_unit_test(calls_on_many_streams_are_in_order),
        cmocka_unit_test(whether_memory_can_be_exported_as_a_dma_buf_is_printed),
        cmocka_unit_test(the_time_of_an_allreduce_is_printed),
    };
    if (!gpu_driver_start(&cuda, &pretended) || cuda.cuCtxGetCurrent(&context) != 0) {
        return EXIT_FAILURE;
    }
    if (pretended) {
        (void)setenv("MUSTER_NCCL", "off", 1); /* that of this machine knows no pretended GPU */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
