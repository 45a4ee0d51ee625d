/* A text that several responses share: counted, and never changed. */
#ifndef MUSTER_RENDEZVOUS_SERVICE_SHARED_TEXT_H
#define MUSTER_RENDEZVOUS_SERVICE_SHARED_TEXT_H

#include <stdatomic.h>
#include <stddef.h>

struct muster_shared_text {
    atomic_uint holds;
    size_t size_bytes;
    char text[]; /* not terminated */
};

/* A copy of the text, held once. NULL: no memory. */
struct muster_shared_text *muster_shared_text_create(const char *text, size_t size_bytes);
/* Returns the text, which is held once more. Any thread. */
struct muster_shared_text *muster_shared_text_hold(struct muster_shared_text *shared);
/* The last one frees it. Accepts NULL. Any thread. */
void muster_shared_text_release(struct muster_shared_text *shared);

#endif
