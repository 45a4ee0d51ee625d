/* The floor: scoped clean-up. There are only these, AUTO_LOCK and AUTO_CLOSE_GUARDED. */
#ifndef MUSTER_WORKER_BASE_CLEANUP_H
#define MUSTER_WORKER_BASE_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

static inline void muster_cleanup_free(void *pointer)
{
    free(*(void **)pointer);
}

static inline void muster_cleanup_close(const int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
}

/* Frees or closes when the scope ends. TAKE and TAKE_FD move the value out. */
#define AUTO_FREE __attribute__((cleanup(muster_cleanup_free)))
#define AUTO_CLOSE __attribute__((cleanup(muster_cleanup_close)))

/* The value of the variable, which is NULL (or -1) afterwards: the scope no longer cleans it up. */
#define TAKE(pointer)                         \
    __extension__({                           \
        __typeof__(pointer) taken_ = pointer; \
        (pointer) = NULL;                     \
        taken_;                               \
    })
#define TAKE_FD(fd)      \
    __extension__({      \
        int taken_ = fd; \
        (fd) = -1;       \
        taken_;          \
    })

#endif
