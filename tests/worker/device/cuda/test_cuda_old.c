/* A libcuda from before CUDA 11.7: memory is found and copied, and cannot be exported. */
#include "tests/support/gpu_pretend.h"
#include "worker/device/devices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_it_lacks_dma_buf_and_nothing_else(void **state)
{
    (void)state;
    const struct gpu_pretend *gpu = gpu_pretend_load(true);
    struct muster_device_memory memory;
    int fd = -1;
    char byte = 'x';
    char *of_gpu = gpu->allocate(1, 0);
    assert_true(muster_device_find(of_gpu, &memory));
    assert_int_equal(memory.device->copy(&memory, of_gpu, &byte, 1), MUSTER_OK);
    assert_int_equal(*(char *)gpu->alias(of_gpu), 'x');
    assert_int_equal(memory.device->export_pages(&memory, of_gpu, 4096, &fd), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "CUDA 11.7"));
    assert_int_equal(fd, -1);
    gpu->release(of_gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_lacks_dma_buf_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
