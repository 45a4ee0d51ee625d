/* Kernels of GPUs: loading them, launching them, and when it is done on the CPU instead. */
#include "worker/device/cuda/cuda_kernels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "collectives/reduce/reduce.h"
#include "collectives/reduce/rows.h"
#include "worker/base/cleanup.h"
#include "worker/base/log.h"
#include "worker/base/status.h"
#include "worker/base/thread.h"
#include "worker/device/cuda/ptx.h"

enum {
    CONTEXTS_MAX = 64,
    THREADS = 256, /* of a block */
    BLOCKS_MAX = 65536,
    THREAD_BYTES = 16,        /* of collectives/reduce/kernels_gpu.h */
    FINISH = MUSTER_OP_COUNT, /* the index of a type's last kernel */
};

#define NAME_OF(kernel) #kernel
static const char *const reduce_names[MUSTER_TYPE_COUNT][MUSTER_OP_COUNT] = REDUCE_ROWS(NAME_OF);

/* The kernels of one type in one context. */
struct loaded_type {
    bool tried;
    void *kernels[MUSTER_OP_COUNT + 1]; /* NULL: there is none */
};

struct loaded_context {
    void *context;
    int ordinal; /* of its device; -1: not known */
    struct loaded_type types[MUSTER_TYPE_COUNT];
};

static struct {
    pthread_mutex_t mutex;
    struct loaded_context *contexts[CONTEXTS_MAX]; /* kept for good; the first ones are filled */
    bool has_told;                                 /* why the CPU reduces */
} kernels = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Errors --------------------------------------------------------------------------------------- */

static muster_status fail(const struct muster_cuda *cuda, int ordinal, const char *what, int error)
{
    char which[32] = "a GPU";
    if (ordinal >= 0) {
        (void)snprintf(which, sizeof which, "GPU %d", ordinal);
    }
    return muster_error_set(MUSTER_FATAL, "%s: %s: %s", which, what,
                            muster_cuda_error_name(cuda, error));
}

static void tell_once_locked(const char *why)
{
    if (!kernels.has_told) {
        kernels.has_told = true;
        muster_log(MUSTER_LOG_WARN, "the CPU reduces what is in memory of a GPU: %s", why);
    }
}

/* Whether the driver or the GPU does not take kernels like ours, or has no room for them; other
 * errors mean that the GPU no longer works. */
static bool is_refusal(int error)
{
    static const int refusals[] = {2 /* OUT_OF_MEMORY */,
                                   200 /* INVALID_IMAGE */,
                                   209 /* NO_BINARY_FOR_GPU */,
                                   218 /* INVALID_PTX */,
                                   221 /* JIT_COMPILER_NOT_FOUND */,
                                   222 /* UNSUPPORTED_PTX_VERSION */,
                                   223 /* JIT_COMPILATION_DISABLED */,
                                   300 /* INVALID_SOURCE */,
                                   500 /* NOT_FOUND */,
                                   801 /* NOT_SUPPORTED */};
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        if (refusals[i] == error) {
            return true;
        }
    }
    return false;
}

/* Loading -------------------------------------------------------------------------------------- */

/* Finds the kernels of a type in its module. */
static int find_kernels(const struct muster_cuda *cuda, muster_type type, void *module,
                        struct loaded_type *loaded)
{
    char finish[32];
    int error = 0;
    for (int op = 0; op < MUSTER_OP_COUNT && error == 0; op++) {
        const char *name = reduce_names[type][op];
        error = name == NULL ? 0 : cuda->module_get_function(&loaded->kernels[op], module, name);
    }
    (void)snprintf(finish, sizeof finish, "%s_finish", muster_type_name(type));
    return error != 0 || type == MUSTER_BOOL
               ? error
               : cuda->module_get_function(&loaded->kernels[FINISH], module, finish);
}

static muster_status load_type_locked(const struct muster_cuda *cuda, muster_type type,
                                      const struct loaded_context *of, struct loaded_type *loaded)
{
    AUTO_FREE char *text = muster_ptx_of_type(muster_type_name(type));
    struct loaded_type found = {.tried = true};
    void *module = NULL;
    if (text == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for kernels of a GPU");
    }
    int error = cuda->module_load_data(&module, text);
    error = error != 0 ? error : find_kernels(cuda, type, module, &found);
    if (error != 0 && !is_refusal(error)) {
        return fail(cuda, of->ordinal, "loading kernels", error);
    }
    if (error != 0) {
        tell_once_locked(muster_cuda_error_name(cuda, error));
        found = (struct loaded_type){.tried = true};
    }
    *loaded = found;
    return MUSTER_OK;
}

/* NULL: there are too many contexts, or there is no memory. */
static struct loaded_context *find_context_locked(const struct muster_cuda_stream *on)
{
    for (size_t i = 0; i < CONTEXTS_MAX; i++) {
        struct loaded_context **each = &kernels.contexts[i];
        if (*each == NULL) {
            struct loaded_context *made = calloc(1, sizeof *made);
            if (made != NULL) {
                made->context = on->context;
                made->ordinal = -1;
                (void)on->cuda->ctx_get_device(&made->ordinal);
            }
            *each = made;
        }
        if (*each == NULL || (*each)->context == on->context) {
            return *each;
        }
    }
    return NULL;
}

/* *ret_kernel: NULL if the CPU has to do it. */
static muster_status find_kernel(const struct muster_cuda_stream *on, muster_type type, int index,
                                 void **ret_kernel, int *ret_ordinal)
{
    AUTO_LOCK(&kernels.mutex);
    *ret_kernel = NULL;
    if (!muster_ptx_exists() || !on->cuda->has_kernels) {
        tell_once_locked(muster_ptx_exists() ? "libcuda.so.1 launches no kernels"
                                             : "the library was built without kernels for GPUs, "
                                               "which clang makes");
        return MUSTER_OK;
    }
    struct loaded_context *of = find_context_locked(on);
    if (of == NULL) {
        return MUSTER_OK;
    }
    struct loaded_type *loaded = &of->types[type];
    if (!loaded->tried) {
        TRY(load_type_locked(on->cuda, type, of, loaded));
    }
    *ret_kernel = loaded->kernels[index];
    *ret_ordinal = of->ordinal;
    return MUSTER_OK;
}

/* Launching ------------------------------------------------------------------------------------ */

/* A thread for each pack of elements, which is fastest; from 2^24 packs on several. */
static unsigned count_blocks(uint64_t count, size_t element_bytes)
{
    uint64_t packs = count / (THREAD_BYTES / element_bytes) + 1;
    uint64_t blocks = (packs + THREADS - 1) / THREADS;
    return blocks < BLOCKS_MAX ? (unsigned)blocks : BLOCKS_MAX;
}

/* Launches kernel `index` of the type, if there is one. */
static muster_status launch(const struct muster_cuda_stream *on, muster_type type, int index,
                            uint64_t count, void **parameters, bool *ret_enqueued)
{
    void *kernel = NULL;
    int ordinal = -1;
    TRY(find_kernel(on, type, index, &kernel, &ordinal));
    if (kernel != NULL) {
        unsigned blocks = count_blocks(count, muster_type_size_bytes(type));
        int error = on->cuda->launch_kernel(kernel, blocks, 1, 1, THREADS, 1, 1, 0, on->stream,
                                            parameters, NULL);
        if (error != 0) {
            return fail(on->cuda, ordinal, "launching a kernel", error);
        }
    }
    *ret_enqueued = kernel != NULL;
    return MUSTER_OK;
}

/* The CPU takes elements at any address; for the GPU it must be a multiple of their size. */
static bool are_aligned(uint64_t addresses, muster_type type)
{
    return addresses % muster_type_size_bytes(type) == 0;
}

muster_status muster_cuda_launch_combine(const struct muster_cuda_stream *on,
                                         const struct muster_reduction *reduction,
                                         const struct muster_cuda_operands *operands,
                                         bool *ret_enqueued)
{
    struct muster_cuda_operands values = *operands;
    void *parameters[] = {&values.target, &values.left, &values.right, &values.count};
    *ret_enqueued = values.count == 0;
    return values.count == 0 || reduction->op == MUSTER_USER ||
                   !are_aligned(values.target | values.left | values.right, reduction->type)
               ? MUSTER_OK
               : launch(on, reduction->type, (int)reduction->op, values.count, parameters,
                        ret_enqueued);
}

muster_status muster_cuda_launch_finish(const struct muster_cuda_stream *on,
                                        const struct muster_reduction *reduction,
                                        const struct muster_cuda_operands *operands,
                                        uint64_t contributions, bool *ret_enqueued)
{
    struct muster_cuda_operands values = *operands;
    uint64_t divisor = reduction->op == MUSTER_AVERAGE ? contributions : 1;
    double factor = reduction->postscale;
    void *combines[] = {&values.target, &values.target, &values.target, &values.count};
    void *finishes[] = {&values.target, &values.target, &values.count, &divisor, &factor};
    *ret_enqueued = values.count == 0 || !muster_reduction_has_finish(reduction, contributions);
    if (*ret_enqueued || reduction->op == MUSTER_USER ||
        !are_aligned(values.target, reduction->type)) {
        return MUSTER_OK;
    }
    bool is_truth = muster_reduction_is_raw_truth(reduction, contributions);
    return launch(on, reduction->type, is_truth ? MUSTER_LOGICAL_OR : FINISH, values.count,
                  is_truth ? combines : finishes, ret_enqueued);
}

/* Slots of the device -------------------------------------------------------------------------- */

/* For the calling thread's stream. */
static struct muster_cuda_stream own_stream(const struct muster_device_memory *memory)
{
    return (struct muster_cuda_stream){.cuda = muster_cuda_library(),
                                       .context = memory->context,
                                       .stream = MUSTER_CUDA_PER_THREAD};
}

/* Makes its context current. */
static muster_status enter(const struct muster_cuda_stream *on)
{
    int error = on->cuda->ctx_push_current(on->context);
    return error == 0 ? MUSTER_OK : fail(on->cuda, -1, "using its context", error);
}

static void leave(struct muster_cuda_stream *const *on)
{
    void *unused = NULL;
    (void)(*on)->cuda->ctx_pop_current(&unused);
}

static muster_status wait_for_it(const struct muster_cuda_stream *on)
{
    int error = on->cuda->stream_synchronize(on->stream);
    int ordinal = -1;
    if (error == 0) {
        return MUSTER_OK;
    }
    AUTO_LOCK(&kernels.mutex);
    const struct loaded_context *of = find_context_locked(on);
    ordinal = of != NULL ? of->ordinal : -1;
    return fail(on->cuda, ordinal, "a kernel", error);
}

/* Memory of the host that the GPU reads: pinned, and the whole of it in one piece. */
static bool find_pinned(const struct muster_cuda *cuda, const char *at, uint64_t size_bytes,
                        uint64_t *ret_address)
{
    unsigned type = 0;
    uint64_t start = 0;
    size_t size = 0;
    uint64_t address = (uintptr_t)at;
    return cuda->pointer_get_attribute(&type, MUSTER_CUDA_MEMORY_TYPE, address) == 0 &&
           type == MUSTER_CUDA_TYPE_HOST &&
           cuda->pointer_get_attribute(&start, MUSTER_CUDA_RANGE_START, address) == 0 &&
           cuda->pointer_get_attribute(&size, MUSTER_CUDA_RANGE_SIZE, address) == 0 &&
           address >= start && address + size_bytes <= start + size &&
           cuda->pointer_get_attribute(ret_address, MUSTER_CUDA_DEVICE_POINTER, address) == 0;
}

/* Whether a kernel in this context can use the place. */
static bool find_address(const struct muster_cuda_stream *on, struct muster_device_place place,
                         uint64_t size_bytes, uint64_t *ret_address)
{
    *ret_address = (uintptr_t)place.at;
    return place.memory != NULL ? place.memory->context == on->context
                                : find_pinned(on->cuda, place.at, size_bytes, ret_address);
}

/* The context of the memory that is a GPU's. All in memory of one GPU, or in memory of the host
 * that it reads: else the blocks are copied and the CPU reduces them. */
static muster_status try_combine(const struct muster_combination *combination, bool *ret_done)
{
    const struct muster_device_memory *memory =
        combination->target.memory != NULL ? combination->target.memory
        : combination->left.memory != NULL ? combination->left.memory
                                           : combination->right.memory;
    uint64_t size_bytes = combination->count * muster_type_size_bytes(combination->reduction->type);
    struct muster_cuda_stream on = own_stream(memory);
    struct muster_cuda_operands operands = {.count = combination->count};
    TRY(enter(&on));
    __attribute__((cleanup(leave), unused)) struct muster_cuda_stream *const entered = &on;
    if (!find_address(&on, combination->target, size_bytes, &operands.target) ||
        !find_address(&on, combination->left, size_bytes, &operands.left) ||
        !find_address(&on, combination->right, size_bytes, &operands.right)) {
        return MUSTER_OK;
    }
    TRY(muster_cuda_launch_combine(&on, combination->reduction, &operands, ret_done));
    return *ret_done ? wait_for_it(&on) : MUSTER_OK;
}

muster_status muster_cuda_combine(const struct muster_combination *combination)
{
    bool done = false;
    TRY(try_combine(combination, &done));
    return done ? MUSTER_OK : muster_device_combine_on_host(combination);
}

bool muster_cuda_reduces(const struct muster_device_memory *memory,
                         const struct muster_reduction *reduction)
{
    struct muster_cuda_stream on = own_stream(memory);
    void *kernel = NULL;
    int ordinal = -1;
    if (reduction->op == MUSTER_USER || enter(&on) != MUSTER_OK) {
        return false;
    }
    __attribute__((cleanup(leave), unused)) struct muster_cuda_stream *const entered = &on;
    return find_kernel(&on, reduction->type, (int)reduction->op, &kernel, &ordinal) == MUSTER_OK &&
           kernel != NULL;
}

static muster_status try_finish(const struct muster_device_memory *memory,
                                const struct muster_reduction *reduction,
                                const struct muster_cuda_operands *operands, uint64_t contributions,
                                bool *ret_done)
{
    struct muster_cuda_stream on = own_stream(memory);
    TRY(enter(&on));
    __attribute__((cleanup(leave), unused)) struct muster_cuda_stream *const entered = &on;
    TRY(muster_cuda_launch_finish(&on, reduction, operands, contributions, ret_done));
    return *ret_done ? wait_for_it(&on) : MUSTER_OK;
}

muster_status muster_cuda_finish(const struct muster_device_memory *memory,
                                 const struct muster_reduction *reduction, void *data,
                                 uint64_t count, uint64_t contributions)
{
    const struct muster_cuda_operands operands = {.target = (uintptr_t)data, .count = count};
    bool done = false;
    TRY(try_finish(memory, reduction, &operands, contributions, &done));
    return done ? MUSTER_OK
                : muster_device_finish_on_host(memory, reduction, data, count, contributions);
}
