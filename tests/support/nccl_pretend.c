/* Loads the pretended NCCL. */
#include "tests/support/nccl_pretend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *nccl_pretend_path(void)
{
    return MUSTER_PRETENDED_NCCL;
}

const struct nccl_pretend *nccl_pretend_load(void)
{
    const struct nccl_pretend *(*get_controls)(void) = NULL;
    void *library = dlopen(nccl_pretend_path(), RTLD_NOW | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, "nccl_pretend_controls") : NULL;
    memcpy(&get_controls, &symbol, sizeof symbol);
    if (get_controls == NULL || setenv("MUSTER_NCCL", nccl_pretend_path(), 1) != 0) {
        (void)fprintf(stderr, "the pretended NCCL: %s\n", dlerror());
        abort();
    }
    return get_controls();
}
