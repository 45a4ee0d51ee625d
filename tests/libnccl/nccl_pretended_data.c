/* The data of the pretended NCCL: each rank puts a window of its input into the shared file, and
 * takes what it needs of those of all ranks, in the order of ranks. */
#include "tests/libnccl/nccl_pretended_parts.h"

#include <string.h>
#include <time.h>

#include "collectives/call/floats16.h"

size_t pretended_size_of(int type)
{
    static const size_t sizes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return sizes[type];
}

void pretended_sleep_us(unsigned us)
{
    const struct timespec pause = {.tv_nsec = us * 1000L};
    (void)nanosleep(&pause, NULL);
}

bool pretended_meet(struct pretended_comm *comm)
{
    uint64_t phase = ++comm->phase;
    atomic_store(&comm->room->phase[comm->rank], phase);
    for (uint32_t i = 0; i < comm->ranks; i++) {
        while (atomic_load(&comm->room->phase[i]) < phase) {
            if (atomic_load(&comm->aborted)) {
                return false;
            }
            pretended_sleep_us(20);
        }
    }
    return true;
}

/* Reductions ----------------------------------------------------------------------------------- */

#define PICK(op, a, b)                        \
    ((op) == SUM    ? (a) + (b)               \
     : (op) == PROD ? (a) * (b)               \
     : (op) == MAX  ? ((a) > (b) ? (a) : (b)) \
                    : ((a) < (b) ? (a) : (b)))

#define REDUCE_AS(type_name, wide)                                \
    for (size_t i = 0; i < size_bytes / sizeof(type_name); i++) { \
        type_name left;                                           \
        type_name right;                                          \
        memcpy(&left, target + i * sizeof left, sizeof left);     \
        memcpy(&right, source + i * sizeof right, sizeof right);  \
        left = (type_name)PICK(op, (wide)left, (wide)right);      \
        memcpy(target + i * sizeof left, &left, sizeof left);     \
    }                                                             \
    break

#define REDUCE_16(to_float, from_float)                               \
    for (size_t i = 0; i < size_bytes / 2; i++) {                     \
        uint16_t left;                                                \
        uint16_t right;                                               \
        memcpy(&left, target + 2 * i, 2);                             \
        memcpy(&right, source + 2 * i, 2);                            \
        left = from_float(PICK(op, to_float(left), to_float(right))); \
        memcpy(target + 2 * i, &left, 2);                             \
    }                                                                 \
    break

static void reduce(char *target, const unsigned char *source, size_t size_bytes, int type, int op)
{
    switch (type) {
    case INT8:
        REDUCE_AS(int8_t, int8_t);
    case UINT8:
        REDUCE_AS(uint8_t, uint8_t);
    case INT32:
        REDUCE_AS(int32_t, int32_t);
    case UINT32:
        REDUCE_AS(uint32_t, uint32_t);
    case INT64:
        REDUCE_AS(int64_t, int64_t);
    case UINT64:
        REDUCE_AS(uint64_t, uint64_t);
    case FLOAT16:
        REDUCE_16(muster_float16_widen, muster_float16_narrow);
    case BFLOAT16:
        REDUCE_16(muster_bfloat16_widen, muster_bfloat16_narrow);
    case FLOAT32:
        REDUCE_AS(float, float);
    default:
        REDUCE_AS(double, double);
    }
}

static void reduce_all(const struct pretended_comm *comm, const struct pretended_step *step,
                       char *out, size_t size_bytes)
{
    memcpy(out, comm->room->windows[0], size_bytes);
    for (uint32_t i = 1; i < comm->ranks; i++) {
        reduce(out, comm->room->windows[i], size_bytes, step->type, step->op);
    }
}

/* Steps ---------------------------------------------------------------------------------------- */

/* Where this rank's result of a window goes, whose data is `part` of the whole; NULL: nowhere. */
static void take(const struct pretended_comm *comm, const struct pretended_step *step, size_t part,
                 size_t offset, size_t size_bytes)
{
    size_t block_bytes = step->count * pretended_size_of(step->type);
    switch (step->collective) {
    case ALL_GATHER:
        for (uint32_t i = 0; i < comm->ranks; i++) {
            memcpy(step->out + i * block_bytes + offset, comm->room->windows[i], size_bytes);
        }
        break;
    case BROADCAST:
        memcpy(step->out + offset, comm->room->windows[step->root], size_bytes);
        break;
    case REDUCE_SCATTER:
        if (part == comm->rank) {
            reduce_all(comm, step, step->out + offset, size_bytes);
        }
        break;
    default:
        if (step->collective == ALL_REDUCE || comm->rank == (uint32_t)step->root) {
            reduce_all(comm, step, step->out + offset, size_bytes);
        }
        break;
    }
}

bool pretended_perform(struct pretended_comm *comm, const struct pretended_step *step)
{
    size_t block_bytes = step->count * pretended_size_of(step->type);
    size_t parts = step->collective == REDUCE_SCATTER ? comm->ranks : 1;
    bool reads = step->collective != BROADCAST || comm->rank == (uint32_t)step->root;
    for (size_t part = 0; part < parts; part++) {
        for (size_t offset = 0; offset < block_bytes; offset += WINDOW_BYTES) {
            size_t left = block_bytes - offset;
            size_t size_bytes = left < WINDOW_BYTES ? left : WINDOW_BYTES;
            if (reads) {
                memcpy(comm->room->windows[comm->rank], step->in + part * block_bytes + offset,
                       size_bytes);
            }
            if (!pretended_meet(comm)) {
                return false;
            }
            take(comm, step, part, offset, size_bytes);
            if (!pretended_meet(comm)) {
                return false;
            }
        }
    }
    return true;
}
