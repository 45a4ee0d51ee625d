/* Arrays of malloc() that grow. */
#ifndef MUSTER_WORKER_BASE_ARRAY_H
#define MUSTER_WORKER_BASE_ARRAY_H

#include <stdbool.h>
#include <stdlib.h>

/* Any type of pointer may lie where this one is read or written. */
typedef void *__attribute__((may_alias)) muster_array_start;

/* Makes room for `count` elements. array: the address of the pointer to the first, which may be
 * NULL. False: there is no memory, and the array is as it was. */
static inline bool muster_array_resize(void *array, size_t count, size_t element_bytes)
{
    muster_array_start *start = array;
    void *resized = reallocarray(*start, count, element_bytes);
    if (resized == NULL) {
        return false;
    }
    *start = resized;
    return true;
}

#endif
