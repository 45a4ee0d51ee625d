/* Named tensors in memory of a GPU (a pretended one) and of the host, in place and not, which go
 * together in one operation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/gpu_driver.h"
#include "tests/support/gpu_pretend.h"
#include "tests/support/service.h"

enum { TENSORS = 9, STEPS = 6, SMALL = 100, LARGE = 200000 };

static struct gpu_driver cuda;
static void *primary;

/* One tensor: its buffers, by the addresses that the library gets, and what is to be there. */
struct tensor {
    bool on_gpu;
    size_t count;
    void *in, *out;
    float *values;
};

static void *allocate(bool on_gpu, size_t bytes)
{
    uint64_t address = 0;
    void *memory = NULL;
    if (!on_gpu) {
        return calloc(1, bytes);
    }
    if (cuda.cuMemAlloc_v2(&address, bytes) == 0) {
        memcpy(&memory, &address, sizeof memory);
    }
    return memory;
}

static void release(bool on_gpu, void *memory)
{
    if (on_gpu) {
        (void)cuda.cuMemFree_v2((uintptr_t)memory);
    } else {
        free(memory);
    }
}

static bool put(const struct tensor *tensor, void *to)
{
    size_t bytes = tensor->count * sizeof(float);
    if (tensor->on_gpu) {
        return cuda.cuMemcpyHtoD_v2((uintptr_t)to, tensor->values, bytes) == 0;
    }
    memcpy(to, tensor->values, bytes);
    return true;
}

static bool get(const struct tensor *tensor)
{
    size_t bytes = tensor->count * sizeof(float);
    if (tensor->on_gpu) {
        return cuda.cuMemcpyDtoH_v2(tensor->values, (uintptr_t)tensor->out, bytes) == 0;
    }
    memcpy(tensor->values, tensor->out, bytes);
    return true;
}

/* Of three tensors that follow each other two are on the GPU, and one is in place. */
static void make(struct tensor *tensors)
{
    for (uint32_t t = 0; t < TENSORS; t++) {
        struct tensor *made = &tensors[t];
        size_t count = t % 4 == 3 ? LARGE : SMALL + t;
        *made = (struct tensor){.on_gpu = t % 3 != 2, .count = count};
        made->values = calloc(count, sizeof(float));
        made->in = allocate(made->on_gpu, count * sizeof(float));
        made->out = t % 3 == 1 ? made->in : allocate(made->on_gpu, count * sizeof(float));
    }
}

static void work_on_gpus(struct crew_member *member)
{
    struct tensor tensors[TENSORS];
    uint32_t rank = muster_rank(member->session, MUSTER_GLOBAL);
    uint32_t size = muster_size(member->session, MUSTER_GLOBAL);
    MEMBER_CHECK(member, cuda.cuCtxSetCurrent(primary) == 0);
    make(tensors);
    for (uint32_t step = 0; step < STEPS; step++) {
        muster_operation operations[TENSORS];
        for (uint32_t i = 0; i < TENSORS; i++) {
            uint32_t t = (i + member->index * 4 + step) % TENSORS;
            char name[16];
            (void)snprintf(name, sizeof name, "t%u", t);
            for (size_t k = 0; k < tensors[t].count; k++) {
                tensors[t].values[k] = (float)(rank + t + step + k % 9);
            }
            MEMBER_CHECK(member, put(&tensors[t], tensors[t].in));
            MEMBER_OK(member,
                      muster_submit_allreduce(member->session, MUSTER_GLOBAL, name, tensors[t].in,
                                              tensors[t].out, tensors[t].count, MUSTER_FLOAT32,
                                              MUSTER_SUM, &operations[t]));
        }
        for (uint32_t t = 0; t < TENSORS; t++) {
            MEMBER_OK(member, muster_wait(operations[t]));
            MEMBER_CHECK(member, get(&tensors[t]));
            for (size_t k = 0; k < tensors[t].count; k++) {
                float wanted = (float)(size * (t + step + k % 9) + size * (size - 1) / 2);
                MEMBER_CHECK(member, tensors[t].values[k] == wanted);
            }
        }
    }
    for (uint32_t t = 0; t < TENSORS; t++) {
        release(tensors[t].on_gpu, tensors[t].in);
        if (tensors[t].out != tensors[t].in) {
            release(tensors[t].on_gpu, tensors[t].out);
        }
        free(tensors[t].values);
    }
}

static void tensors_may_be_memory_of_a_gpu(void **state)
{
    (void)state;
    assert_int_equal(crew_run_job(group_service.url, "gpu2", 2, 1, work_on_gpus), 0);
    assert_int_equal(crew_run_job(group_service.url, "gpu3", 3, 2, work_on_gpus), 0);
}

int main(void)
{
    const char *why = NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_may_be_memory_of_a_gpu),
    };
    if (!test_service_built()) {
        return 77;
    }
    (void)setenv("MUSTER_NCCL", "off", 1); /* that of this machine knows no pretended GPU */
    if (!gpu_driver_load(gpu_pretend_path(), &cuda, &why)) {
        print_error("%s\n", why);
        return EXIT_FAILURE;
    }
    (void)cuda.cuCtxGetCurrent(&primary);
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
