/* The pretended libcuda keeps CUDA's rules of streams, events and pinned memory, and runs work late
 * and in odd order where the rules allow it. */
#include "tests/support/gpu_driver.h"
#include "tests/support/gpu_pretend.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    NON_BLOCKING = 1,
    DISABLE_TIMING = 2,
    TYPE_ATTRIBUTE = 2,
    TYPE_HOST = 1,
    STREAMS = 4,
    STEPS = 40,
    ALL_STEPS = STREAMS * STEPS + 1,
    BYTES = 10000,
    WAIT_EQ = 1,
};

static const struct gpu_pretend *gpu;
static struct gpu_driver cuda;

/* The numbers that host functions write down when they run. */
static struct {
    pthread_mutex_t mutex;
    int numbers[ALL_STEPS];
    int count;
} ran = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static int numbers[ALL_STEPS];

static void run_number(void *number)
{
    (void)pthread_mutex_lock(&ran.mutex);
    ran.numbers[ran.count++] = *(const int *)number;
    (void)pthread_mutex_unlock(&ran.mutex);
}

static void expect_runs(const int *expected, int count)
{
    (void)pthread_mutex_lock(&ran.mutex);
    assert_int_equal(ran.count, count);
    assert_memory_equal(ran.numbers, expected, (size_t)count * sizeof *expected);
    (void)pthread_mutex_unlock(&ran.mutex);
}

static void launch(uintptr_t stream, int number)
{
    assert_int_equal(cuda.cuLaunchHostFunc(stream, run_number, &numbers[number]), 0);
}

static uintptr_t make_stream(unsigned flags)
{
    uintptr_t stream = 0;
    assert_int_equal(cuda.cuStreamCreate(&stream, flags), 0);
    return stream;
}

static void *make_event(void)
{
    void *event = NULL;
    assert_int_equal(cuda.cuEventCreate(&event, DISABLE_TIMING), 0);
    return event;
}

static uint64_t allocate(size_t size_bytes)
{
    uint64_t address = 0;
    assert_int_equal(cuda.cuMemAlloc_v2(&address, size_bytes), 0);
    return address;
}

/* The library's own thread runs nothing, unless a test says otherwise. */
static int set_up(void **state)
{
    (void)state;
    ran.count = 0;
    gpu->seed(1, GPU_PRETEND_NEVER);
    return 0;
}

/* Streams -------------------------------------------------------------------------------------- */

/* Puts numbers into all streams in turn, and the last one into the legacy stream, after all. */
static void run_in_streams(uint64_t seed)
{
    uintptr_t streams[STREAMS];
    gpu->seed(seed, GPU_PRETEND_NEVER);
    ran.count = 0;
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = make_stream(0);
    }
    for (int i = 0; i < STREAMS * STEPS; i++) {
        launch(streams[i % STREAMS], i);
    }
    launch(LEGACY, ALL_STEPS - 1);
    expect_runs(NULL, 0);
    assert_int_equal(cuda.cuStreamSynchronize(LEGACY), 0);
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(cuda.cuStreamDestroy_v2(streams[i]), 0);
    }
}

static void streams_run_in_their_own_order_and_across_in_one_that_the_seed_chooses(void **state)
{
    (void)state;
    int first[ALL_STEPS];
    int last_of[STREAMS] = {-1, -1, -1, -1};
    run_in_streams(1);
    assert_int_equal(ran.count, ALL_STEPS);
    assert_int_equal(ran.numbers[ALL_STEPS - 1], ALL_STEPS - 1);
    for (int i = 0; i < ALL_STEPS - 1; i++) {
        int number = ran.numbers[i];
        assert_true(number > last_of[number % STREAMS]);
        last_of[number % STREAMS] = number;
    }
    assert_memory_not_equal(ran.numbers, numbers, sizeof numbers);
    memcpy(first, ran.numbers, sizeof first);
    run_in_streams(1);
    assert_memory_equal(ran.numbers, first, sizeof first);
    run_in_streams(2);
    assert_memory_not_equal(ran.numbers, first, sizeof first);
}

static void the_legacy_stream_is_ordered_with_blocking_streams_only(void **state)
{
    (void)state;
    static const int expected[] = {3, 1, 2, 4};
    uintptr_t blocking = make_stream(0);
    uintptr_t free_one = make_stream(NON_BLOCKING);
    gpu->pause(LEGACY);
    launch(LEGACY, 1);
    launch(blocking, 2);
    launch(free_one, 3);
    assert_int_equal(cuda.cuStreamSynchronize(free_one), 0);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(cuda.cuStreamQuery(blocking), NOT_READY);
        assert_int_equal(cuda.cuStreamQuery(PER_THREAD), 0);
    }
    expect_runs(expected, 1);
    gpu->resume(LEGACY);
    launch(PER_THREAD, 4);
    launch(LEGACY, 0);
    assert_int_equal(cuda.cuStreamSynchronize(blocking), 0);
    assert_int_equal(cuda.cuStreamSynchronize(PER_THREAD), 0);
    expect_runs(expected, 4);
    assert_int_equal(cuda.cuStreamSynchronize(0), 0);
    assert_int_equal(ran.count, 5);
    assert_int_equal(cuda.cuStreamDestroy_v2(blocking), 0);
    assert_int_equal(cuda.cuStreamDestroy_v2(free_one), 0);
}

static void a_destroyed_stream_ends_its_work_and_has_no_handle(void **state)
{
    (void)state;
    static const int expected[] = {1, 2};
    void *context = NULL;
    void *current = NULL;
    uintptr_t stream = make_stream(0);
    assert_int_equal(cuda.cuStreamGetCtx(stream, &context), 0);
    assert_int_equal(cuda.cuCtxGetCurrent(&current), 0);
    assert_ptr_equal(context, current);
    launch(stream, 1);
    launch(stream, 2);
    assert_int_equal(gpu->pending(stream), 2);
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), 0);
    assert_int_equal(cuda.cuStreamQuery(stream), INVALID_HANDLE);
    assert_int_equal(cuda.cuStreamSynchronize(stream), INVALID_HANDLE);
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), INVALID_HANDLE);
    expect_runs(expected, 0);
    assert_int_equal(cuda.cuCtxSynchronize(), 0);
    expect_runs(expected, 2);
}

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Whether it becomes this value within the bound. */
static bool becomes(const uint32_t *flag, uint32_t value)
{
    const int64_t until_ns = now_ns() + INT64_C(60000000000);
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != value) {
        if (now_ns() > until_ns) {
            return false;
        }
        (void)usleep(50);
    }
    return true;
}

static void work_runs_by_itself_after_a_while(void **state)
{
    (void)state;
    void *pinned = NULL;
    uintptr_t stream = make_stream(NON_BLOCKING);
    assert_int_equal(cuda.cuMemHostAlloc(&pinned, 8, 0), 0);
    gpu->seed(3, 100);
    assert_int_equal(cuda.cuStreamWriteValue32(stream, (uintptr_t)pinned, 7, 0), 0);
    assert_true(becomes(pinned, 7));
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), 0);
    assert_int_equal(cuda.cuMemFreeHost(pinned), 0);
}

static void *synchronize(void *stream)
{
    void *context = NULL;
    (void)cuda.cuDevicePrimaryCtxRetain(&context, 0);
    (void)cuda.cuCtxSetCurrent(context);
    return cuda.cuStreamSynchronize((uintptr_t)stream) == 0 ? stream : NULL;
}

static void a_thread_waits_for_a_paused_stream_until_it_is_resumed(void **state)
{
    (void)state;
    static const int expected[] = {1};
    pthread_t thread;
    void *stream_seen = NULL;
    uintptr_t stream = make_stream(0);
    gpu->pause(stream);
    launch(stream, 1);
    assert_int_equal(
        pthread_create(&thread, NULL, synchronize,
                       (void *)stream), /* NOLINT(performance-no-int-to-ptr): a handle */
        0);
    expect_runs(expected, 0);
    assert_int_equal(gpu->pending(stream), 1);
    gpu->resume(stream);
    assert_int_equal(pthread_join(thread, &stream_seen), 0);
    assert_int_equal((uintptr_t)stream_seen, stream);
    expect_runs(expected, 1);
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), 0);
}

/* Events --------------------------------------------------------------------------------------- */

static void an_event_that_was_never_recorded_is_complete(void **state)
{
    (void)state;
    static const int expected[] = {1};
    void *event = make_event();
    uintptr_t stream = make_stream(NON_BLOCKING);
    assert_int_equal(cuda.cuEventQuery(event), 0);
    assert_int_equal(cuda.cuEventSynchronize(event), 0);
    assert_int_equal(cuda.cuStreamWaitEvent(stream, event, 0), 0);
    launch(stream, 1);
    assert_int_equal(cuda.cuStreamSynchronize(stream), 0);
    expect_runs(expected, 1);
    assert_int_equal(cuda.cuEventDestroy_v2(event), 0);
    assert_int_equal(cuda.cuEventQuery(event), INVALID_HANDLE);
    assert_int_equal(cuda.cuEventRecord(event, stream), INVALID_HANDLE);
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), 0);
}

static void a_stream_waits_for_what_was_recorded_when_it_was_told_to(void **state)
{
    (void)state;
    static const int expected[] = {1, 2, 3};
    void *event = make_event();
    uintptr_t first = make_stream(NON_BLOCKING);
    uintptr_t later = make_stream(NON_BLOCKING);
    uintptr_t third = make_stream(NON_BLOCKING);
    gpu->pause(later);
    launch(first, 1);
    assert_int_equal(cuda.cuEventRecord(event, first), 0);
    assert_int_equal(cuda.cuStreamWaitEvent(third, event, 0), 0);
    launch(later, 3);
    assert_int_equal(cuda.cuEventRecord(event, later), 0);
    launch(third, 2);
    assert_int_equal(cuda.cuStreamSynchronize(third), 0);
    expect_runs(expected, 2);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(cuda.cuEventQuery(event), NOT_READY);
    }
    gpu->resume(later);
    assert_int_equal(cuda.cuEventSynchronize(event), 0);
    assert_int_equal(cuda.cuEventQuery(event), 0);
    expect_runs(expected, 3);
    assert_int_equal(cuda.cuEventDestroy_v2(event), 0);
    assert_int_equal(cuda.cuStreamDestroy_v2(first), 0);
    assert_int_equal(cuda.cuStreamDestroy_v2(later), 0);
    assert_int_equal(cuda.cuStreamDestroy_v2(third), 0);
}

static void a_query_of_an_event_or_a_stream_brings_it_further(void **state)
{
    (void)state;
    void *event = make_event();
    uintptr_t stream = make_stream(0);
    int queries = 0;
    for (int i = 0; i < STEPS; i++) {
        launch(stream, i);
    }
    assert_int_equal(cuda.cuEventRecord(event, stream), 0);
    while (cuda.cuEventQuery(event) == NOT_READY) {
        queries++;
    }
    assert_in_range(queries, STEPS, 100 * STEPS);
    launch(stream, 0);
    while (cuda.cuStreamQuery(stream) == NOT_READY) {
        queries++;
    }
    assert_int_equal(ran.count, STEPS + 1);
    assert_int_equal(cuda.cuEventDestroy_v2(event), 0);
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), 0);
}

static void the_time_between_two_events_is_known_unless_they_have_none(void **state)
{
    (void)state;
    void *start = NULL;
    void *end = NULL;
    void *without = make_event();
    float ms = -1;
    assert_int_equal(cuda.cuEventCreate(&start, 0), 0);
    assert_int_equal(cuda.cuEventCreate(&end, 0), 0);
    assert_int_equal(cuda.cuEventElapsedTime(&ms, start, end), INVALID_HANDLE);
    assert_int_equal(cuda.cuEventRecord(start, LEGACY), 0);
    assert_int_equal(cuda.cuEventRecord(end, LEGACY), 0);
    assert_int_equal(cuda.cuEventElapsedTime(&ms, start, end), NOT_READY);
    assert_int_equal(cuda.cuEventSynchronize(end), 0);
    assert_int_equal(cuda.cuEventElapsedTime(&ms, start, end), 0);
    assert_true(ms >= 0);
    assert_int_equal(cuda.cuEventElapsedTime(&ms, start, without), INVALID_HANDLE);
    assert_int_equal(cuda.cuEventDestroy_v2(start), 0);
    assert_int_equal(cuda.cuEventDestroy_v2(end), 0);
    assert_int_equal(cuda.cuEventDestroy_v2(without), 0);
}

/* Copies and memory ---------------------------------------------------------------------------- */

static void copies_read_and_write_when_they_run(void **state)
{
    (void)state;
    char here[BYTES];
    char back[BYTES];
    uintptr_t stream = make_stream(NON_BLOCKING);
    uint64_t of_gpu = allocate(BYTES);
    memset(here, 'a', sizeof here);
    memset(back, 'x', sizeof back);
    assert_int_equal(cuda.cuMemcpyAsync(of_gpu, (uintptr_t)here, BYTES, stream), 0);
    assert_int_equal(cuda.cuMemcpyAsync((uintptr_t)back, of_gpu, BYTES, stream), 0);
    memset(here, 'b', sizeof here);
    assert_int_equal(back[0], 'x');
    assert_int_equal(cuda.cuStreamSynchronize(stream), 0);
    assert_memory_equal(back, here, BYTES);
    assert_int_equal(cuda.cuMemFree_v2(of_gpu), 0);
    assert_int_equal(cuda.cuMemcpyAsync(of_gpu, (uintptr_t)here, BYTES, stream), INVALID_VALUE);
    assert_int_equal(cuda.cuMemFree_v2(of_gpu), INVALID_VALUE);
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), 0);
}

static unsigned type_of(const void *memory)
{
    unsigned type = 0;
    (void)cuda.cuPointerGetAttribute(&type, TYPE_ATTRIBUTE, (uintptr_t)memory);
    return type;
}

static void pinned_memory_is_memory_of_the_host_that_the_gpu_reads(void **state)
{
    (void)state;
    char own[BYTES] = "own";
    char *pinned = NULL;
    uint64_t seen = 0;
    uint64_t of_gpu = allocate(BYTES);
    assert_int_equal(cuda.cuMemHostAlloc((void **)&pinned, BYTES, 1), 0);
    strcpy(pinned, "pinned");
    assert_int_equal(type_of(pinned + 1), TYPE_HOST);
    assert_int_equal(cuda.cuMemHostGetDevicePointer_v2(&seen, pinned, 0), 0);
    assert_int_equal(cuda.cuMemcpyDtoH_v2(own, seen, 7), 0);
    assert_string_equal(own, "pinned");
    assert_int_equal(type_of(own), 0);
    assert_int_equal(cuda.cuMemHostRegister_v2(own, sizeof own, 0), 0);
    assert_int_equal(type_of(own), TYPE_HOST);
    assert_int_equal(cuda.cuMemHostRegister_v2(own + 5, 1, 0), ALREADY_REGISTERED);
    assert_int_equal(cuda.cuMemFreeHost(own), INVALID_VALUE);
    assert_int_equal(cuda.cuMemHostUnregister(own), 0);
    assert_int_equal(cuda.cuMemHostUnregister(own), NOT_REGISTERED);
    assert_int_equal(type_of(own), 0);
    assert_int_equal(cuda.cuMemHostGetDevicePointer_v2(&seen, own, 0), INVALID_VALUE);
    assert_int_equal(cuda.cuMemFreeHost(pinned), 0);
    assert_int_equal(cuda.cuMemFree_v2(of_gpu), 0);
}

static void freeing_waits_for_the_work_that_uses_the_memory(void **state)
{
    (void)state;
    char here[BYTES] = "here";
    char back[BYTES] = "";
    uintptr_t stream = make_stream(NON_BLOCKING);
    uint64_t of_gpu = allocate(BYTES);
    assert_int_equal(cuda.cuMemcpyAsync(of_gpu, (uintptr_t)here, BYTES, stream), 0);
    assert_int_equal(cuda.cuMemcpyAsync((uintptr_t)back, of_gpu, BYTES, stream), 0);
    assert_int_equal(cuda.cuMemFree_v2(of_gpu), 0);
    assert_string_equal(back, "here");
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), 0);
}

static void a_stream_waits_for_values_that_the_cpu_and_other_streams_write(void **state)
{
    (void)state;
    static const int expected[] = {1, 2};
    uint32_t *flags = NULL;
    uintptr_t one = make_stream(NON_BLOCKING);
    uintptr_t other = make_stream(NON_BLOCKING);
    assert_int_equal(cuda.cuMemHostAlloc((void **)&flags, 8, 0), 0);
    uint64_t at = (uintptr_t)flags;
    assert_int_equal(cuda.cuStreamWaitValue32(one, at, 5, WAIT_EQ), 0);
    launch(one, 1);
    assert_int_equal(cuda.cuStreamWriteValue32(one, at + 4, 6, 0), 0);
    assert_int_equal(cuda.cuStreamWaitValue32(other, at + 4, 4, 0), 0); /* at least */
    launch(other, 2);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(cuda.cuStreamQuery(one), NOT_READY);
        assert_int_equal(cuda.cuStreamQuery(other), NOT_READY);
    }
    expect_runs(expected, 0);
    __atomic_store_n(flags, 5, __ATOMIC_RELEASE);
    assert_int_equal(cuda.cuStreamSynchronize(one), 0);
    assert_int_equal(cuda.cuStreamSynchronize(other), 0);
    expect_runs(expected, 2);
    assert_int_equal(flags[1], 6);
    assert_int_equal(cuda.cuStreamWaitValue32(one, at + 1, 5, WAIT_EQ), INVALID_VALUE);
    assert_int_equal(cuda.cuStreamDestroy_v2(one), 0);
    assert_int_equal(cuda.cuStreamDestroy_v2(other), 0);
    assert_int_equal(cuda.cuMemFreeHost(flags), 0);
}

/* Failures ------------------------------------------------------------------------------------- */

static void a_failed_copy_is_told_by_its_stream_once_and_by_its_events(void **state)
{
    (void)state;
    char here[BYTES] = "";
    void *event = make_event();
    uintptr_t stream = make_stream(NON_BLOCKING);
    uintptr_t waiting = make_stream(NON_BLOCKING);
    uint64_t of_gpu = allocate(BYTES);
    gpu->fail_after(GPU_PRETEND_COPY, 0);
    assert_int_equal(cuda.cuMemcpyAsync(of_gpu, (uintptr_t)here, BYTES, stream), 0);
    assert_int_equal(cuda.cuEventRecord(event, stream), 0);
    assert_int_equal(cuda.cuStreamWaitEvent(waiting, event, 0), 0);
    assert_int_equal(cuda.cuStreamSynchronize(waiting), ILLEGAL_ADDRESS);
    assert_int_equal(cuda.cuEventQuery(event), ILLEGAL_ADDRESS);
    assert_int_equal(cuda.cuStreamQuery(stream), ILLEGAL_ADDRESS);
    gpu->fail_after(GPU_PRETEND_COPY, UINT32_MAX);
    assert_int_equal(cuda.cuStreamSynchronize(stream), 0);
    assert_int_equal(cuda.cuMemFree_v2(of_gpu), 0);
    assert_int_equal(cuda.cuEventDestroy_v2(event), 0);
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), 0);
    assert_int_equal(cuda.cuStreamDestroy_v2(waiting), 0);
}

static void after_a_device_is_lost_every_call_fails(void **state)
{
    (void)state;
    uint64_t address = 0;
    void *pinned = NULL;
    void *event = make_event();
    uintptr_t stream = make_stream(0);
    uintptr_t other = 0;
    launch(stream, 1);
    assert_int_equal(cuda.cuEventRecord(event, stream), 0);
    gpu->lose(UNKNOWN);
    assert_int_equal(cuda.cuStreamQuery(stream), UNKNOWN);
    assert_int_equal(cuda.cuStreamSynchronize(stream), UNKNOWN);
    assert_int_equal(cuda.cuEventQuery(event), UNKNOWN);
    assert_int_equal(cuda.cuMemAlloc_v2(&address, BYTES), UNKNOWN);
    assert_int_equal(cuda.cuMemHostAlloc(&pinned, BYTES, 0), UNKNOWN);
    assert_int_equal(cuda.cuStreamCreate(&other, 0), UNKNOWN);
    assert_int_equal(cuda.cuLaunchHostFunc(stream, run_number, numbers), UNKNOWN);
    gpu->lose(0);
    assert_int_equal(cuda.cuStreamSynchronize(stream), 0);
    assert_int_equal(cuda.cuEventQuery(event), UNKNOWN);
    assert_int_equal(ran.count, 0);
    assert_int_equal(cuda.cuEventDestroy_v2(event), 0);
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), 0);
}

static void what_is_told_to_fail_fails(void **state)
{
    (void)state;
    uint64_t address = 0;
    void *made = NULL;
    uintptr_t stream = 0;
    for (int call = GPU_PRETEND_ALLOCATE; call <= GPU_PRETEND_EVENT; call++) {
        gpu->fail_after((enum gpu_pretend_call)call, 0);
    }
    assert_int_equal(cuda.cuMemAlloc_v2(&address, BYTES), OUT_OF_MEMORY);
    assert_int_equal(cuda.cuMemHostAlloc(&made, BYTES, 0), OUT_OF_MEMORY);
    assert_int_equal(cuda.cuMemHostRegister_v2(numbers, sizeof numbers, 0), OUT_OF_MEMORY);
    assert_int_equal(cuda.cuStreamCreate(&stream, 0), OUT_OF_MEMORY);
    assert_int_equal(cuda.cuEventCreate(&made, 0), OUT_OF_MEMORY);
    for (int call = GPU_PRETEND_ALLOCATE; call <= GPU_PRETEND_EVENT; call++) {
        gpu->fail_after((enum gpu_pretend_call)call, UINT32_MAX);
    }
}

static void call_cuda(void *ret_error)
{
    *(int *)ret_error = cuda.cuStreamQuery(LEGACY);
}

static void a_function_of_the_host_may_call_nothing(void **state)
{
    (void)state;
    int error = 0;
    assert_int_equal(cuda.cuLaunchHostFunc(LEGACY, call_cuda, &error), 0);
    assert_int_equal(cuda.cuStreamSynchronize(LEGACY), 0);
    assert_int_equal(error, NOT_PERMITTED);
}

static void *query_without_a_context(void *ret_error)
{
    *(int *)ret_error = cuda.cuStreamQuery(PER_THREAD);
    return NULL;
}

static void a_thread_without_a_context_has_no_default_streams(void **state)
{
    (void)state;
    pthread_t thread;
    int error = 0;
    assert_int_equal(pthread_create(&thread, NULL, query_without_a_context, &error), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(error, INVALID_CONTEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(
            streams_run_in_their_own_order_and_across_in_one_that_the_seed_chooses, set_up),
        cmocka_unit_test_setup(the_legacy_stream_is_ordered_with_blocking_streams_only, set_up),
        cmocka_unit_test_setup(a_destroyed_stream_ends_its_work_and_has_no_handle, set_up),
        cmocka_unit_test_setup(work_runs_by_itself_after_a_while, set_up),
        cmocka_unit_test_setup(a_thread_waits_for_a_paused_stream_until_it_is_resumed, set_up),
        cmocka_unit_test_setup(an_event_that_was_never_recorded_is_complete, set_up),
        cmocka_unit_test_setup(a_stream_waits_for_what_was_recorded_when_it_was_told_to, set_up),
        cmocka_unit_test_setup(a_query_of_an_event_or_a_stream_brings_it_further, set_up),
        cmocka_unit_test_setup(the_time_between_two_events_is_known_unless_they_have_none, set_up),
        cmocka_unit_test_setup(copies_read_and_write_when_they_run, set_up),
        cmocka_unit_test_setup(pinned_memory_is_memory_of_the_host_that_the_gpu_reads, set_up),
        cmocka_unit_test_setup(freeing_waits_for_the_work_that_uses_the_memory, set_up),
        cmocka_unit_test_setup(a_stream_waits_for_values_that_the_cpu_and_other_streams_write,
                               set_up),
        cmocka_unit_test_setup(a_failed_copy_is_told_by_its_stream_once_and_by_its_events, set_up),
        cmocka_unit_test_setup(after_a_device_is_lost_every_call_fails, set_up),
        cmocka_unit_test_setup(what_is_told_to_fail_fails, set_up),
        cmocka_unit_test_setup(a_function_of_the_host_may_call_nothing, set_up),
        cmocka_unit_test_setup(a_thread_without_a_context_has_no_default_streams, set_up),
    };
    const char *why = NULL;
    for (int i = 0; i < ALL_STEPS; i++) {
        numbers[i] = i;
    }
    gpu = gpu_pretend_load(false);
    if (!gpu_driver_load(gpu_pretend_path(), &cuda, &why)) {
        (void)fprintf(stderr, "%s\n", why);
        return EXIT_FAILURE;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
