/* Memory of a GPU is found and copied, and no other memory counts as such. */
#include "tests/support/gpu_pretend.h"
#include "worker/device/devices.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SIZE = 3 * 4096, COPY = 5000, AT = 100, FIRST_CALLS = 60, THREADS = 3 };

static const struct gpu_pretend *gpu;

/* What the threads share that all look for memory of a GPU at once, before any other call. */
struct first_call {
    char *of_gpu;
    pthread_barrier_t barrier;
};

static void *find_first(void *user)
{
    struct first_call *call = user;
    struct muster_device_memory memory;
    (void)pthread_barrier_wait(&call->barrier);
    return muster_device_find(call->of_gpu, &memory) ? call : NULL;
}

/* A process of its own each time, since libcuda is searched for once only. */
static int find_in_new_process(void)
{
    struct first_call call = {.of_gpu = gpu_pretend_load(false)->allocate(SIZE, 0)};
    pthread_t threads[THREADS];
    int missed = 0;
    (void)pthread_barrier_init(&call.barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        missed += pthread_create(&threads[i], NULL, find_first, &call) != 0;
    }
    for (int i = 0; i < THREADS && missed == 0; i++) {
        void *found = NULL;
        missed += pthread_join(threads[i], &found) != 0 || found == NULL;
    }
    return missed;
}

static void test_threads_that_find_the_first_memory_at_once_all_find_it(void **state)
{
    (void)state;
    for (int i = 0; i < FIRST_CALLS; i++) {
        int ended = -1;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            _exit(find_in_new_process());
        }
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_int_equal(ended, 0);
    }
}

static void test_memory_is_found_only_after_libcuda_is_loaded(void **state)
{
    (void)state;
    struct muster_device_memory memory;
    int local = 0;
    assert_false(muster_device_find(&local, &memory));
    assert_false(muster_device_find(&local, &memory));
    gpu = gpu_pretend_load(false);
    char *of_gpu = gpu->allocate(SIZE, 0);
    assert_true(muster_device_find(of_gpu, &memory));
    assert_false(muster_device_find(&local, &memory));
    assert_false(muster_device_find(NULL, &memory));
    gpu->release(of_gpu);
}

static void test_an_allocation_is_found_by_any_address_in_it(void **state)
{
    (void)state;
    struct muster_device_memory memory;
    char *of_gpu = gpu->allocate(SIZE, 0);
    assert_true(muster_device_find(of_gpu + SIZE - 1, &memory));
    assert_int_equal(memory.begin, (uintptr_t)of_gpu);
    assert_int_equal(memory.end, (uintptr_t)of_gpu + SIZE);
    assert_int_not_equal(memory.id, 0);
    uint64_t before = memory.id;
    gpu->replace(of_gpu);
    assert_true(muster_device_find(of_gpu, &memory));
    assert_int_not_equal(memory.id, before);
    gpu->release(of_gpu);
    assert_false(muster_device_find(of_gpu, &memory));
}

static void test_memory_that_the_cpu_may_touch_is_memory_of_the_host(void **state)
{
    (void)state;
    struct muster_device_memory memory;
    void *managed = gpu->allocate(SIZE, GPU_PRETEND_MANAGED);
    void *pinned = gpu->allocate(SIZE, GPU_PRETEND_HOST);
    assert_false(muster_device_find(managed, &memory));
    assert_false(muster_device_find(pinned, &memory));
    gpu->release(managed);
    gpu->release(pinned);
}

static void fill(unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)(seed + i * 7 + i / 251);
    }
}

/* In a thread that has not used CUDA yet. */
static void *copy_to_gpu_and_back(void *user)
{
    static char failed[] = "a copy failed";
    static char wrong[] = "the copied bytes differ";
    unsigned char *of_gpu = user;
    unsigned char here[COPY];
    unsigned char back[COPY] = {0};
    struct muster_device_memory memory;
    fill(here, COPY, 1);
    if (!muster_device_find(of_gpu, &memory) ||
        memory.device->copy(&memory, of_gpu + AT, here, COPY) != MUSTER_OK ||
        memory.device->copy(&memory, of_gpu, of_gpu + AT, AT) != MUSTER_OK ||
        memory.device->copy(&memory, back, of_gpu + AT, COPY) != MUSTER_OK ||
        memory.device->copy(&memory, NULL, NULL, 0) != MUSTER_OK) {
        return failed;
    }
    return memcmp(here, back, COPY) == 0 && memcmp(gpu->alias(of_gpu), here, AT) == 0 ? NULL
                                                                                      : wrong;
}

static void test_any_thread_copies_to_the_gpu_within_it_and_back(void **state)
{
    (void)state;
    static const unsigned kinds[] = {0, GPU_PRETEND_NO_CONTEXT, GPU_PRETEND_NO_ID,
                                     GPU_PRETEND_NO_ID | GPU_PRETEND_NO_CONTEXT};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        pthread_t thread;
        void *error = NULL;
        void *of_gpu = gpu->allocate(SIZE, kinds[i]);
        assert_int_equal(pthread_create(&thread, NULL, copy_to_gpu_and_back, of_gpu), 0);
        assert_int_equal(pthread_join(thread, &error), 0);
        assert_null(error);
        gpu->release(of_gpu);
    }
}

static void test_a_copy_that_fails_has_the_name_of_the_error(void **state)
{
    (void)state;
    struct muster_device_memory memory;
    char byte = 0;
    char *of_gpu = gpu->allocate(SIZE, 0);
    assert_true(muster_device_find(of_gpu, &memory));
    gpu->fail_after(GPU_PRETEND_COPY, 0);
    assert_int_equal(memory.device->copy(&memory, of_gpu, &byte, 1), MUSTER_FATAL);
    assert_non_null(strstr(muster_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS"));
    gpu->fail_after(GPU_PRETEND_COPY, UINT32_MAX);
    memory.context = NULL;
    assert_int_equal(memory.device->copy(&memory, of_gpu, &byte, 1), MUSTER_FATAL);
    assert_non_null(strstr(muster_last_error(), "CUDA_ERROR_INVALID_CONTEXT"));
    gpu->release(of_gpu);
}

static void test_pages_are_exported_or_the_text_says_why_not(void **state)
{
    (void)state;
    struct muster_device_memory memory;
    int fd = -1;
    char *of_gpu = gpu->allocate(SIZE, 0);
    assert_true(muster_device_find(of_gpu, &memory));
    strcpy((char *)gpu->alias(of_gpu) + 4096, "here");
    assert_int_equal(memory.device->export_pages(&memory, of_gpu + 4096, 4096, &fd), MUSTER_OK);
    char found[5] = "";
    assert_int_equal(read(fd, found, sizeof found), sizeof found);
    assert_string_equal(found, "here");
    assert_int_equal(close(fd), 0);
    gpu->fail_after(GPU_PRETEND_EXPORT, 0);
    assert_int_equal(memory.device->export_pages(&memory, of_gpu, 4096, &fd), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "CUDA_ERROR_NOT_SUPPORTED"));
    gpu->fail_after(GPU_PRETEND_EXPORT, UINT32_MAX);
    gpu->release(of_gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_that_find_the_first_memory_at_once_all_find_it),
        cmocka_unit_test(test_memory_is_found_only_after_libcuda_is_loaded),
        cmocka_unit_test(test_an_allocation_is_found_by_any_address_in_it),
        cmocka_unit_test(test_memory_that_the_cpu_may_touch_is_memory_of_the_host),
        cmocka_unit_test(test_any_thread_copies_to_the_gpu_within_it_and_back),
        cmocka_unit_test(test_a_copy_that_fails_has_the_name_of_the_error),
        cmocka_unit_test(test_pages_are_exported_or_the_text_says_why_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
