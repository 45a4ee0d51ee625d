/* Threads use the pretended libcuda at the same time, while its own thread runs their work. */
#include "tests/support/gpu_driver.h"
#include "tests/support/gpu_pretend.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BYTES = 10000, THREADS = 3, ROUNDS = 60 };

static const struct gpu_pretend *gpu;
static struct gpu_driver cuda;

/* Sends bytes through the GPU and pinned memory by two streams and an event, again and again. */
static void *send_through(void *user)
{
    static char failed[] = "failed";
    uintptr_t streams[2] = {0, PER_THREAD};
    void *context = NULL;
    void *event = NULL;
    char *pinned = NULL;
    uint64_t of_gpu = 0;
    char here[BYTES];
    int errors = cuda.cuDevicePrimaryCtxRetain(&context, 0) != 0;
    errors += cuda.cuCtxSetCurrent(context) != 0;
    errors += cuda.cuStreamCreate(&streams[0], (uintptr_t)user % 2) != 0;
    errors += cuda.cuEventCreate(&event, 0) != 0;
    errors += cuda.cuMemHostAlloc((void **)&pinned, BYTES, 0) != 0;
    errors += cuda.cuMemAlloc_v2(&of_gpu, BYTES) != 0;
    for (int i = 0; i < ROUNDS && errors == 0; i++) {
        memset(here, i, sizeof here);
        errors += cuda.cuMemcpyAsync(of_gpu, (uintptr_t)here, BYTES, streams[i % 2]) != 0;
        errors += cuda.cuEventRecord(event, streams[i % 2]) != 0;
        errors += cuda.cuStreamWaitEvent(streams[(i + 1) % 2], event, 0) != 0;
        errors += cuda.cuMemcpyAsync((uintptr_t)pinned, of_gpu, BYTES, streams[(i + 1) % 2]) != 0;
        errors += cuda.cuStreamSynchronize(streams[(i + 1) % 2]) != 0;
        errors += memcmp(pinned, here, sizeof here) != 0;
    }
    errors += cuda.cuStreamDestroy_v2(streams[0]) != 0;
    errors += cuda.cuEventDestroy_v2(event) != 0;
    errors += cuda.cuMemFreeHost(pinned) != 0;
    errors += cuda.cuMemFree_v2(of_gpu) != 0;
    return errors == 0 ? NULL : failed;
}

static void threads_use_streams_side_by_side(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    gpu->seed(4, 20);
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(
            pthread_create(&threads[i], NULL, send_through,
                           (void *)i), /* NOLINT(performance-no-int-to-ptr): a number */
            0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *error = NULL;
        assert_int_equal(pthread_join(threads[i], &error), 0);
        assert_null(error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_use_streams_side_by_side),
    };
    const char *why = NULL;
    gpu = gpu_pretend_load(false);
    if (!gpu_driver_load(gpu_pretend_path(), &cuda, &why)) {
        (void)fprintf(stderr, "%s\n", why);
        return EXIT_FAILURE;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
