/* Loads the pretended libcuda. */
#include "tests/support/gpu_pretend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *gpu_pretend_path(void)
{
    return MUSTER_PRETENDED_CUDA;
}

const struct gpu_pretend *gpu_pretend_load(bool before_11_7)
{
    const char *path = before_11_7 ? MUSTER_PRETENDED_CUDA_OLD : MUSTER_PRETENDED_CUDA;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, "gpu_pretend_controls") : NULL;
    const struct gpu_pretend *(*controls)(void) = NULL;
    if (symbol == NULL) {
        (void)fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    memcpy(&controls, &symbol, sizeof controls);
    return controls();
}
