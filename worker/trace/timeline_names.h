/* The names of tensors, numbered from 1, each as it stands in the file: a string of JSON. The
 * caller locks. */
#ifndef MUSTER_WORKER_TRACE_TIMELINE_NAMES_H
#define MUSTER_WORKER_TRACE_TIMELINE_NAMES_H

#include <stddef.h>
#include <stdint.h>

enum { MUSTER_TIMELINE_NAMES_MAX = 65536 };

struct muster_timeline_named;

struct muster_timeline_names {
    struct muster_timeline_named *table; /* by name */
    char **texts;                        /* owned [count] by number - 1 */
    uint32_t count, capacity;
};

/* The number of the name, which is new or known; 0: no memory, or too many names. */
uint32_t muster_timeline_names_find(struct muster_timeline_names *names, const char *name);
/* The text, with its quotes; of number 0: of a tensor without a name. Stays where it is until the
 * names are freed. */
const char *muster_timeline_names_text(const struct muster_timeline_names *names, uint32_t number);
void muster_timeline_names_finish(struct muster_timeline_names *names);

#endif
