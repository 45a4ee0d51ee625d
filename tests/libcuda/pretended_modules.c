/* Modules and launches. A module is text in PTX; its functions are those of pretended_kernels.c
 * that the text has, too. */
#include "tests/libcuda/pretended_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum { THREADS_MAX = 1024, NAME_MAX_BYTES = 64 };

struct pretended_function {
    struct pretended_kernel kernel;
    int ordinal;
    struct pretended_function *prev, *next;
};

struct pretended_module {
    char *text;
    int ordinal;
    struct pretended_function *functions;
    struct pretended_module *prev, *next;
};

static struct pretended_module *modules;

/* Modules -------------------------------------------------------------------------------------- */

int cuModuleLoadDataEx(void **ret_module, const void *image, unsigned option_count,
                       const int *options, void **values)
{
    LOCKED_SCOPE();
    int error = pretended_refusal();
    int ordinal = pretended_current();
    (void)option_count;
    (void)options;
    (void)values;
    if (error != 0 || ordinal < 0) {
        return error != 0 ? error : INVALID_CONTEXT;
    }
    if (!pretended_succeeds(GPU_PRETEND_MODULE)) {
        return UNSUPPORTED_PTX_VERSION;
    }
    const char *version = strstr(image, ".version ");
    if (version == NULL || strstr(version, ".target ") == NULL) {
        return INVALID_PTX;
    }
    struct pretended_module *made = calloc(1, sizeof *made);
    made->text = strdup(image);
    made->ordinal = ordinal;
    DL_APPEND(modules, made);
    *ret_module = made;
    return 0;
}

int cuModuleLoadData(void **ret_module, const void *image)
{
    return cuModuleLoadDataEx(ret_module, image, 0, NULL, NULL);
}

static struct pretended_module *find_module(const void *handle)
{
    struct pretended_module *each = NULL;
    DL_FOREACH(modules, each)
    {
        if (each == handle) {
            return each;
        }
    }
    return NULL;
}

int cuModuleGetFunction(void **ret_function, void *module, const char *name)
{
    LOCKED_SCOPE();
    char entry[NAME_MAX_BYTES + 32];
    struct pretended_kernel kernel;
    struct pretended_module *of = find_module(module);
    int error = pretended_refusal();
    (void)snprintf(entry, sizeof entry, ".visible .entry %s(", name);
    if (error != 0 || of == NULL) {
        return error != 0 ? error : INVALID_HANDLE;
    }
    if (strstr(of->text, entry) == NULL || !pretended_kernel_find(name, &kernel)) {
        return NOT_FOUND;
    }
    struct pretended_function *made = calloc(1, sizeof *made);
    made->kernel = kernel;
    made->ordinal = of->ordinal;
    DL_APPEND(of->functions, made);
    *ret_function = made;
    return 0;
}

/* After the work of its device. */
int cuModuleUnload(void *module)
{
    LOCKED_SCOPE();
    struct pretended_module *of = find_module(module);
    int error = pretended_refusal();
    if (error != 0 || of == NULL) {
        return error != 0 ? error : INVALID_HANDLE;
    }
    error = pretended_queue_drain_all(of->ordinal);
    of = find_module(module);
    if (error == 0 && of != NULL) {
        struct pretended_function *each = NULL;
        struct pretended_function *after = NULL;
        DL_FOREACH_SAFE(of->functions, each, after)
        {
            free(each);
        }
        DL_DELETE(modules, of);
        free(of->text);
        free(of);
    }
    return error;
}

static const struct pretended_function *find_function(const void *handle)
{
    const struct pretended_module *module = NULL;
    DL_FOREACH(modules, module)
    {
        const struct pretended_function *each = NULL;
        DL_FOREACH(module->functions, each)
        {
            if (each == handle) {
                return each;
            }
        }
    }
    return NULL;
}

/* Launches ------------------------------------------------------------------------------------- */

/* What a launch takes along. */
struct launched {
    struct pretended_kernel kernel;
    struct pretended_parameters parameters;
    uint64_t target, left, right; /* as the program sees them */
    size_t threads;
};

static int run_kernel(struct pretended_task *task)
{
    struct launched *launched = task->bytes;
    struct pretended_parameters *parameters = &launched->parameters;
    pretended_lock();
    parameters->target = pretended_of_gpu(launched->target);
    parameters->left = pretended_of_gpu(launched->left);
    parameters->right = pretended_of_gpu(launched->right);
    bool runs = pretended_succeeds(GPU_PRETEND_LAUNCH);
    pretended_unlock();
    bool found = parameters->target != NULL && parameters->left != NULL &&
                 (parameters->right != NULL || launched->kernel.reduce == NULL);
    if (!runs || !found) {
        return runs ? ILLEGAL_ADDRESS : LAUNCH_FAILED;
    }
    pretended_kernel_run(&launched->kernel, parameters, launched->threads);
    return 0;
}

static void take(void *ret_value, const void *parameter)
{
    memcpy(ret_value, parameter, sizeof(uint64_t));
}

static void take_parameters(struct launched *launched, void **parameters)
{
    take(&launched->target, parameters[0]);
    take(&launched->left, parameters[1]);
    if (launched->kernel.reduce != NULL) {
        take(&launched->right, parameters[2]);
        take(&launched->parameters.count, parameters[3]);
    } else {
        take(&launched->parameters.count, parameters[2]);
        take(&launched->parameters.divisor, parameters[3]);
        take(&launched->parameters.factor, parameters[4]);
    }
}

int cuLaunchKernel(void *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                   unsigned threads_x, unsigned threads_y, unsigned threads_z,
                   unsigned shared_bytes, uintptr_t stream, void **parameters, void **extra)
{
    LOCKED_SCOPE();
    const struct pretended_function *of = find_function(function);
    struct pretended_queue *queue = NULL;
    int error = pretended_refusal();
    error = error != 0 ? error : pretended_queue_find(stream, &queue);
    if (error != 0 || of == NULL || of->ordinal != queue->ordinal) {
        return error != 0 ? error : INVALID_HANDLE;
    }
    bool fits = blocks_x > 0 && blocks_y == 1 && blocks_z == 1 && threads_x > 0 &&
                threads_x <= THREADS_MAX && threads_y == 1 && threads_z == 1 && shared_bytes == 0 &&
                parameters != NULL && extra == NULL;
    if (!fits) {
        return INVALID_VALUE;
    }
    struct launched *launched = calloc(1, sizeof *launched);
    launched->kernel = of->kernel;
    launched->threads = (size_t)blocks_x * threads_x;
    take_parameters(launched, parameters);
    const struct pretended_task task = {.run = run_kernel, .bytes = launched};
    pretended_queue_add(queue, &task);
    return 0;
}
