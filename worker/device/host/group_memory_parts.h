/* What the files of the shared memory's collectives share. Private to worker/device/. */
#ifndef MUSTER_WORKER_DEVICE_HOST_GROUP_MEMORY_PARTS_H
#define MUSTER_WORKER_DEVICE_HOST_GROUP_MEMORY_PARTS_H

#include "worker/base/spin_policy.h"
#include "worker/base/status.h"
#include "worker/device/host/group_layout.h"

enum {
    /* What is reduced at a time: with what comes in between it stays in the second cache. */
    MUSTER_MEMORY_SEGMENT_BYTES = 64 << 10,
    MUSTER_MEMORY_MAPPINGS_MAX = 8, /* of one rank's memory at a time */
    MUSTER_MEMORY_LEVELS = 6,       /* of the tree over MUSTER_MEMORY_RANKS_MAX */
};

/* Another rank's memory, mapped here. */
struct muster_memory_mapping {
    uint64_t id; /* its owner's */
    char *base;  /* NULL: unused */
    size_t size_bytes;
};

struct muster_memory_mappings {
    struct muster_memory_mapping items[MUSTER_MEMORY_MAPPINGS_MAX];
    uint32_t next;  /* to be replaced */
    uint64_t freed; /* what the owner's count was */
};

struct muster_group_memory {
    struct muster_group_memory_options options;
    struct muster_memory_region region;
    uint64_t probe;                        /* what the others read of this process to try it */
    int64_t pids[MUSTER_MEMORY_RANKS_MAX]; /* as this process knows them */
    uint64_t posted;                       /* the last operation of this rank */
    uint64_t settled;                      /* that all are known to have posted */
    struct muster_spin_policy spin_policy;
    struct muster_memory_mappings mappings[MUSTER_MEMORY_RANKS_MAX];
    char *room; /* MUSTER_MEMORY_LEVELS x 2 segments */
};

/* One operation under way. */
struct muster_group_memory_run {
    struct muster_group_memory *memory;
    const struct muster_group_memory_work *work;
    size_t element_size_bytes;
    bool streams;     /* its output goes past the caches */
    uint32_t suspect; /* or UINT32_MAX */
};

/* Waits until *word, which that rank writes, is at least so much. The statuses of
 * muster_group_memory_run(). */
MUSTER_CHECKED muster_status muster_memory_wait_slowly(struct muster_group_memory_run *run,
                                                       uint32_t rank, const _Atomic uint64_t *word,
                                                       uint64_t least);

static inline muster_status muster_memory_wait(struct muster_group_memory_run *run, uint32_t rank,
                                               const _Atomic uint64_t *word, uint64_t least)
{
    if (atomic_load_explicit(word, memory_order_acquire) >= least) {
        return MUSTER_OK;
    }
    return muster_memory_wait_slowly(run, rank, word, least);
}

/* Wakes those who sleep until the seat's rank writes something: it has. */
void muster_memory_ring(struct muster_memory_seat *seat);

/* MUSTER_REJOIN if that rank died or takes part no more. */
MUSTER_CHECKED muster_status muster_memory_look_after(struct muster_group_memory_run *run,
                                                      uint32_t rank);

/* Copies what stands at that address of the other rank's process. */
MUSTER_CHECKED muster_status muster_memory_fetch(struct muster_group_memory_run *run, uint32_t rank,
                                                 uint64_t address, void *target, size_t size_bytes);

/* The memory as one operation sees it ---------------------------------------------------------- */

static inline struct muster_memory_seat *
muster_memory_seat_of(const struct muster_group_memory_run *run, uint32_t rank)
{
    return muster_memory_region_seat(&run->memory->region, rank);
}

static inline uint32_t muster_memory_own_rank(const struct muster_group_memory_run *run)
{
    return run->memory->options.rank;
}

static inline uint32_t muster_memory_rank_count(const struct muster_group_memory_run *run)
{
    return run->memory->options.ranks;
}

static inline char *muster_memory_slot_of(const struct muster_group_memory_run *run, uint32_t rank)
{
    return muster_memory_region_slot(&run->memory->region, rank, run->work->sequence);
}

static inline struct muster_memory_post *
muster_memory_post_of(const struct muster_group_memory_run *run, uint32_t rank, uint64_t sequence)
{
    return &muster_memory_seat_of(run, rank)->posts[sequence % 2];
}

/* The other ranks, beginning after this one, so that not all ask the same one first. */
static inline uint32_t muster_memory_other(const struct muster_group_memory_run *run, uint32_t i)
{
    uint32_t rank = muster_memory_own_rank(run) + 1 + i;
    return rank < muster_memory_rank_count(run) ? rank : rank - muster_memory_rank_count(run);
}

static inline char *muster_memory_out_at(const struct muster_group_memory_run *run,
                                         uint64_t element)
{
    return (char *)run->work->out + element * run->element_size_bytes;
}

/* Posts and steps ------------------------------------------------------------------------------ */

/* All have finished what used this rank's post and slot before. Like all that waits here it has the
 * statuses of muster_group_memory_run(). */
MUSTER_CHECKED muster_status muster_memory_settle(struct muster_group_memory_run *run);

/* Posts the operation. */
void muster_memory_say(const struct muster_group_memory_run *run, const uint64_t small[2]);

/* Waits for the post of that rank, or of all, and compares the calls. */
MUSTER_CHECKED muster_status muster_memory_meet(struct muster_group_memory_run *run, uint32_t rank);
MUSTER_CHECKED muster_status muster_memory_meet_all(struct muster_group_memory_run *run);

/* Of an operation by buffers; by shares each window has two. */
enum muster_memory_step {
    MUSTER_MEMORY_STEP_SHARE = 1, /* its share of the result stands there */
    MUSTER_MEMORY_STEP_TAKEN = 2, /* it has read all that it needs of others */
};

void muster_memory_finish_step(const struct muster_group_memory_run *run, uint64_t step);
MUSTER_CHECKED muster_status muster_memory_await_step(struct muster_group_memory_run *run,
                                                      uint32_t rank, uint64_t step);
MUSTER_CHECKED muster_status muster_memory_await_step_of_all(struct muster_group_memory_run *run,
                                                             uint64_t step);

/* What was read of buffers counts only if their owners had not given up by then. */
MUSTER_CHECKED muster_status muster_memory_check_buffers(struct muster_group_memory_run *run);
/* That, and until all are through. */
MUSTER_CHECKED muster_status muster_memory_leave_buffers(struct muster_group_memory_run *run);

/* Pieces of muster_alloc() ----------------------------------------------------------------------
 */

/* Says where this rank's buffers of so many bytes are; before the post. */
void muster_memory_say_pieces(const struct muster_group_memory_run *run, size_t in_bytes,
                              size_t out_bytes);

/* Whether all have both buffers in such pieces; all have posted, and come to the same. */
bool muster_memory_all_in_pieces(const struct muster_group_memory_run *run);

/* Where that rank's bytes at the address are here; NULL: they cannot be mapped. */
const void *muster_memory_find_piece(const struct muster_group_memory_run *run, uint32_t rank,
                                     enum muster_memory_side side, uint64_t address,
                                     size_t size_bytes);

void muster_memory_unmap_all(struct muster_group_memory *memory, uint32_t rank);

/* Data ----------------------------------------------------------------------------------------- */

/* An input that others read: in the post, in the slot, or where it is. */
struct muster_memory_exposure {
    bool in_buffers;
    uint64_t size_bytes; /* of one rank's input; those of an allgatherv differ */
};

/* What the posts of two words hold, copied out of them. */
struct muster_memory_small_room {
    uint64_t words[MUSTER_MEMORY_RANKS_MAX][2];
};

/* Settles, lets the others see this rank's input, and posts. */
MUSTER_CHECKED muster_status muster_memory_expose(struct muster_group_memory_run *run,
                                                  const struct muster_memory_exposure *exposure);

/* Where the inputs of all ranks stand. */
struct muster_memory_inputs {
    const void *bases[MUSTER_MEMORY_RANKS_MAX];  /* here; or NULL */
    uint64_t addresses[MUSTER_MEMORY_RANKS_MAX]; /* then: in that rank's process */
};

/* Of that rank, or of all; they have posted. room may be NULL where no input fits a post. */
void muster_memory_find_input(const struct muster_group_memory_run *run,
                              const struct muster_memory_exposure *exposure, uint32_t rank,
                              struct muster_memory_small_room *room,
                              struct muster_memory_inputs *inputs);
void muster_memory_find_inputs(const struct muster_group_memory_run *run,
                               const struct muster_memory_exposure *exposure,
                               struct muster_memory_small_room *room,
                               struct muster_memory_inputs *inputs);

/* To OUTPUT. They do not overlap. */
void muster_memory_copy_out(const struct muster_group_memory_run *run, void *target,
                            const void *source, size_t size_bytes);

/* target = elements [span) of that rank's input. */
MUSTER_CHECKED muster_status muster_memory_take(struct muster_group_memory_run *run,
                                                const struct muster_memory_inputs *inputs,
                                                uint32_t rank, struct muster_span span,
                                                char *target);

/* target = the reduction of elements [span) of all inputs, along the tree of terms.h over
 * options.order. target may be the own input's. `streams`: it is written past the caches. */
MUSTER_CHECKED muster_status muster_memory_reduce(struct muster_group_memory_run *run,
                                                  const struct muster_memory_inputs *inputs,
                                                  struct muster_span span, bool streams,
                                                  void *target);

/* Elements [span) of all inputs reduced, to the beginning of OUTPUT. */
MUSTER_CHECKED muster_status
muster_memory_reduce_here(struct muster_group_memory_run *run,
                          const struct muster_memory_exposure *exposure, struct muster_span span);

MUSTER_CHECKED muster_status muster_memory_allreduce(struct muster_group_memory_run *run,
                                                     const struct muster_memory_exposure *exposure);

#endif
