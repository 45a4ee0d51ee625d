/* Counted texts. */
#include "rendezvous/service/shared_text.h"

#include <stdlib.h>
#include <string.h>

struct muster_shared_text *muster_shared_text_create(const char *text, size_t size_bytes)
{
    struct muster_shared_text *shared = malloc(sizeof *shared + size_bytes);
    if (shared == NULL) {
        return NULL;
    }
    atomic_init(&shared->holds, 1);
    shared->size_bytes = size_bytes;
    memcpy(shared->text, text, size_bytes);
    return shared;
}

struct muster_shared_text *muster_shared_text_hold(struct muster_shared_text *shared)
{
    atomic_fetch_add(&shared->holds, 1);
    return shared;
}

void muster_shared_text_release(struct muster_shared_text *shared)
{
    if (shared != NULL && atomic_fetch_sub(&shared->holds, 1) == 1) {
        free(shared);
    }
}
