/* Collectives on memory of the first GPU of this machine. Without one: of a pretended GPU, which is
 * printed, or an error if MUSTER_TEST_GPU is set. Memory is allocated and filled as programs do it,
 * through libcuda. */
#include "tests/support/gpu_pretend.h"
#include "tests/support/group.h"
#include "tests/support/pattern.h"
#include "worker/base/clock.h"
#include "worker/base/statistics.h"
#include "worker/device/devices.h"

#include <dlfcn.h>
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
};

/* Functions of libcuda; each returns 0 on success. */
static struct {
    int (*init)(unsigned flags);
    int (*driver_get_version)(int *ret_version);
    int (*device_get)(int *ret_device, int ordinal);
    int (*device_get_name)(char *ret_name, int size, int device);
    int (*primary_ctx_retain)(void **ret_context, int device);
    int (*ctx_set_current)(void *context);
    int (*mem_alloc)(uint64_t *ret_address, size_t size_bytes);
    int (*mem_free)(uint64_t address);
    int (*to_device)(uint64_t to, const void *from, size_t size_bytes);
    int (*to_host)(void *to, uint64_t from, size_t size_bytes);
} cuda;
static void *context;
static uint64_t timed_count = TIMED_COUNT;

static bool find(void *library, const char *name, void *ret_function)
{
    void *symbol = library != NULL ? dlsym(library, name) : NULL;
    memcpy(ret_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool find_all(void *library)
{
    return find(library, "cuInit", &cuda.init) &&
           find(library, "cuDriverGetVersion", &cuda.driver_get_version) &&
           find(library, "cuDeviceGet", &cuda.device_get) &&
           find(library, "cuDeviceGetName", &cuda.device_get_name) &&
           find(library, "cuDevicePrimaryCtxRetain", &cuda.primary_ctx_retain) &&
           find(library, "cuCtxSetCurrent", &cuda.ctx_set_current) &&
           find(library, "cuMemAlloc_v2", &cuda.mem_alloc) &&
           find(library, "cuMemFree_v2", &cuda.mem_free) &&
           find(library, "cuMemcpyHtoD_v2", &cuda.to_device) &&
           find(library, "cuMemcpyDtoH_v2", &cuda.to_host);
}

/* Loads this libcuda and prints its GPU. False: there is no such library, or it has no GPU. */
static bool load_cuda(const char *path)
{
    int device = 0;
    int version = 0;
    char name[128] = "";
    if (!find_all(dlopen(path, RTLD_NOW | RTLD_LOCAL)) || cuda.init(0) != 0 ||
        cuda.device_get(&device, 0) != 0 || cuda.driver_get_version(&version) != 0 ||
        cuda.device_get_name(name, sizeof name, device) != 0 ||
        cuda.primary_ctx_retain(&context, device) != 0) {
        return false;
    }
    (void)printf("%s, CUDA %d.%d of the driver\n", name, version / 1000, version % 1000 / 10);
    return true;
}

/* Buffers -------------------------------------------------------------------------------------- */

static void *as_pointer(uint64_t address)
{
    void *pointer = NULL;
    memcpy(&pointer, &address, sizeof pointer);
    return pointer;
}

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
    expect(member, cuda.mem_alloc(&made.gpu, size_bytes), "cuMemAlloc");
    return made;
}

static void copy_to_gpu(struct group_member *member, const struct buffer *buffer)
{
    expect(member, cuda.to_device(buffer->gpu, buffer->host, buffer->size_bytes), "to the GPU");
}

static void copy_to_host(struct group_member *member, const struct buffer *buffer)
{
    expect(member, cuda.to_host(buffer->host, buffer->gpu, buffer->size_bytes), "from the GPU");
}

static void free_buffer(const struct buffer *buffer)
{
    (void)cuda.mem_free(buffer->gpu);
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
    gpu_request.in = has_input ? as_pointer(in.gpu) : NULL;
    gpu_request.out = as_pointer(out.gpu);
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
    static const uint64_t counts[] = {1, 1000, 100000};
    (void)argument;
    expect(member, cuda.ctx_set_current(context), "cuCtxSetCurrent");
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
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
    for (enum group_transport transport = GROUP_INPROC; transport <= GROUP_SHM; transport++) {
        struct group group;
        group_start_flat(&group, transport, RANKS);
        group_each(&group, run_all, NULL);
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
                                               .count = timed_count,
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

static void time_one(struct group_member *member, void *argument)
{
    const size_t size_bytes = timed_count * sizeof(float);
    (void)argument;
    expect(member, cuda.ctx_set_current(context), "cuCtxSetCurrent");
    struct buffer in = make_buffer(member, size_bytes);
    struct buffer out = make_buffer(member, size_bytes);
    double host_ns = median_ns(member, in.host, out.host);
    double gpu_ns = median_ns(member, as_pointer(in.gpu), as_pointer(out.gpu));
    if (member->rank == 0) {
        (void)printf("allreduce of %zu bytes, %d ranks of one process: %.2f ms, of a GPU %.2f ms\n",
                     size_bytes, TIMED_RANKS, host_ns / 1e6, gpu_ns / 1e6);
    }
    free_buffer(&in);
    free_buffer(&out);
}

static void the_time_of_an_allreduce_is_printed(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, TIMED_RANKS);
    group_each(&group, time_one, NULL);
    group_finish(&group);
}

static void whether_memory_can_be_exported_as_a_dma_buf_is_printed(void **state)
{
    (void)state;
    struct muster_device_memory memory;
    uint64_t address = 0;
    int fd = -1;
    assert_int_equal(cuda.ctx_set_current(context), 0);
    assert_int_equal(cuda.mem_alloc(&address, EXPORTED_BYTES), 0);
    assert_true(muster_device_find(as_pointer(address), &memory));
    assert_in_range(EXPORTED_BYTES, 1, memory.end - memory.begin);
    assert_int_not_equal(memory.id, 0);
    muster_status status =
        memory.device->export_pages(&memory, as_pointer(memory.begin), EXPORTED_BYTES, &fd);
    (void)printf("dma-buf of its memory: %s\n", status == MUSTER_OK ? "yes" : muster_last_error());
    assert_true(status == MUSTER_INVALID || fd >= 0);
    (void)(fd >= 0 && close(fd));
    assert_int_equal(cuda.mem_free(address), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_takes_memory_of_a_gpu),
        cmocka_unit_test(whether_memory_can_be_exported_as_a_dma_buf_is_printed),
        cmocka_unit_test(the_time_of_an_allreduce_is_printed),
    };
    if (!load_cuda("libcuda.so.1")) {
        timed_count = PRETENDED_COUNT;
        if (getenv("MUSTER_TEST_GPU") != NULL || !load_cuda(gpu_pretend_path())) {
            (void)fprintf(stderr, "there is no GPU, or no libcuda.so.1 to use it\n");
            return EXIT_FAILURE;
        }
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
