/* What the files of the pretended NCCL share. */
#ifndef MUSTER_TESTS_LIBNCCL_NCCL_PRETENDED_PARTS_H
#define MUSTER_TESTS_LIBNCCL_NCCL_PRETENDED_PARTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values of nccl.h: ncclResult_t, */
enum {
    SUCCESS = 0,
    UNHANDLED_CUDA_ERROR = 1,
    SYSTEM_ERROR = 2,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    REMOTE_ERROR = 6,
    IN_PROGRESS = 7,
};
/* ncclDataType_t, ncclRedOp_t. */
enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, TYPES };
enum { SUM, PROD, MAX, MIN, OPS };

enum { RANKS_MAX = 16, WINDOW_BYTES = 256 << 10, PATH_SIZE = 128 };

/* The file that the members of a communicator share. */
struct pretended_room {
    atomic_uint joined;
    atomic_ullong phase[RANKS_MAX]; /* how far each rank has come */
    unsigned char windows[RANKS_MAX][WINDOW_BYTES];
};

enum pretended_collective { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, REDUCE, BROADCAST };

/* One collective in the communicator's queue. */
struct pretended_step {
    enum pretended_collective collective;
    const char *in; /* as the CPU finds it */
    char *out;
    size_t count; /* as its caller gave it */
    int type, op, root;
    uintptr_t stream;
    bool on_stream;
    uint32_t *done;      /* pinned: the stream waits until it is 1 */
    atomic_bool started; /* the stream has come to it */
    struct pretended_step *next;
};

struct pretended_comm {
    struct pretended_room *room;
    char path[PATH_SIZE];
    uint32_t rank, ranks;
    bool blocks;
    void *context; /* of libcuda */
    atomic_int state;
    atomic_bool aborted;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the queue */
    struct pretended_step *first, **last;
    struct pretended_step *done; /* kept until the end */
    uint64_t phase;              /* of the thread */
    atomic_bool late;            /* steps of the queue are not on their stream yet */
};

size_t pretended_size_of(int type);

/* Between one phase and the next of all ranks; false: the communicator was aborted. */
bool pretended_meet(struct pretended_comm *comm);

/* Carries the step out with the other ranks; false: it was aborted. */
bool pretended_perform(struct pretended_comm *comm, const struct pretended_step *step);

void pretended_sleep_us(unsigned us);

#endif
