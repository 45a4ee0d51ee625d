/* The kernels that a pretended module can have: those of collectives/reduce, compiled for the CPU,
 * with a thread at a time. */
#define MUSTER_GPU_PRETENDED
#include "collectives/reduce/kernels.h"

#include <string.h>

#include "collectives/call/collective.h"
#include "collectives/reduce/rows.h"
#include "tests/libcuda/pretended_parts.h"

typedef void (*reduce_function)(void *target, const void *left, const void *right, size_t count);
typedef void (*finish_function)(void *target, const void *source, size_t count, uint64_t divisor,
                                double factor);

#define ITSELF(kernel) kernel
#define NAME_OF(kernel) #kernel
static const reduce_function reduce[MUSTER_TYPE_COUNT][MUSTER_OP_COUNT] = REDUCE_ROWS(ITSELF);
static const char *const names[MUSTER_TYPE_COUNT][MUSTER_OP_COUNT] = REDUCE_ROWS(NAME_OF);

static const struct {
    const char *name;
    finish_function function;
} finishes[] = {
    {"float32_finish", float32_finish}, {"float64_finish", float64_finish},
    {"int32_finish", int32_finish},     {"int64_finish", int64_finish},
    {"uint8_finish", uint8_finish},     {"int8_finish", int8_finish},
    {"int16_finish", int16_finish},     {"uint16_finish", uint16_finish},
    {"uint32_finish", uint32_finish},   {"uint64_finish", uint64_finish},
    {"float16_finish", float16_finish}, {"bfloat16_finish", bfloat16_finish},
};

static __thread size_t thread_now, thread_count;

size_t gpu_thread(void)
{
    return thread_now;
}

size_t gpu_threads(void)
{
    return thread_count;
}

static reduce_function find_reduce(const char *name)
{
    for (int type = 0; type < MUSTER_TYPE_COUNT; type++) {
        for (int op = 0; op < MUSTER_OP_COUNT; op++) {
            if (names[type][op] != NULL && strcmp(names[type][op], name) == 0) {
                return reduce[type][op];
            }
        }
    }
    return NULL;
}

static finish_function find_finish(const char *name)
{
    for (size_t i = 0; i < sizeof finishes / sizeof finishes[0]; i++) {
        if (strcmp(finishes[i].name, name) == 0) {
            return finishes[i].function;
        }
    }
    return NULL;
}

bool pretended_kernel_find(const char *name, struct pretended_kernel *ret_kernel)
{
    *ret_kernel =
        (struct pretended_kernel){.reduce = find_reduce(name), .finish = find_finish(name)};
    return ret_kernel->reduce != NULL || ret_kernel->finish != NULL;
}

void pretended_kernel_run(const struct pretended_kernel *kernel,
                          const struct pretended_parameters *parameters, size_t threads)
{
    thread_count = threads;
    for (thread_now = 0; thread_now < threads; thread_now++) {
        if (kernel->reduce != NULL) {
            kernel->reduce(parameters->target, parameters->left, parameters->right,
                           parameters->count);
        } else {
            kernel->finish(parameters->target, parameters->left, parameters->count,
                           parameters->divisor, parameters->factor);
        }
    }
}
