/* What the files of the shared memory's collectives share. Private to worker/device/. */
#ifndef MUSTER_WORKER_DEVICE_HOST_GROUP_PARTS_H
#define MUSTER_WORKER_DEVICE_HOST_GROUP_PARTS_H

#include "worker/base/spin_policy.h"
#include "worker/base/status.h"
#include "worker/device/host/group_layout.h"

enum {
    /* What is reduced at a time: with what comes in between it stays in the second cache. */
    MUSTER_GROUP_SEGMENT_BYTES = 64 << 10,
    MUSTER_GROUP_MAPPINGS_MAX = 8, /* of one rank's memory at a time */
    MUSTER_GROUP_TREE_LEVELS = 6,  /* of the tree over MUSTER_GROUP_RANKS_MAX */
};

/* Another rank's memory, mapped here. */
struct muster_group_mapping {
    uint64_t id; /* its owner's */
    char *base;  /* NULL: unused */
    size_t size_bytes;
};

struct muster_group_mappings {
    struct muster_group_mapping items[MUSTER_GROUP_MAPPINGS_MAX];
    uint32_t next;        /* to be replaced */
    uint64_t freed_count; /* what the owner's count was */
};

struct muster_group_memory {
    struct muster_group_memory_options options;
    struct muster_group_layout layout;
    uint64_t probe;                       /* what the others read of this process to try it */
    int64_t pids[MUSTER_GROUP_RANKS_MAX]; /* as this process knows them */
    uint64_t announced;                   /* the last operation of this rank */
    uint64_t all_announced;               /* that all are known to have posted */
    struct muster_spin_policy spin_policy;
    struct muster_group_mappings mappings[MUSTER_GROUP_RANKS_MAX];
    char *scratch; /* MUSTER_GROUP_TREE_LEVELS x 2 segments */
};

/* One operation under way. */
struct muster_group_run {
    struct muster_group_memory *memory;
    const struct muster_group_step *step;
    size_t element_size_bytes;
    bool streams;     /* its output goes past the caches */
    uint32_t suspect; /* or UINT32_MAX */
};

/* Waits until *word, which that rank writes, is at least so much. The statuses of
 * muster_group_memory_run(). */
MUSTER_CHECKED muster_status muster_group_wait_slowly(struct muster_group_run *run, uint32_t rank,
                                                      const _Atomic uint64_t *word, uint64_t least);

static inline muster_status muster_group_wait(struct muster_group_run *run, uint32_t rank,
                                              const _Atomic uint64_t *word, uint64_t least)
{
    if (atomic_load_explicit(word, memory_order_acquire) >= least) {
        return MUSTER_OK;
    }
    return muster_group_wait_slowly(run, rank, word, least);
}

/* Wakes those who sleep until the seat's rank writes something: it has. */
void muster_group_wake_sleepers(struct muster_group_rank_slot *slot);

/* MUSTER_REJOIN if that rank died or takes part no more. */
MUSTER_CHECKED muster_status muster_group_check_liveness(struct muster_group_run *run,
                                                         uint32_t rank);

/* Copies what stands at that address of the other rank's process. */
MUSTER_CHECKED muster_status muster_group_copy_from_peer(struct muster_group_run *run,
                                                         uint32_t rank, uint64_t address,
                                                         void *target, size_t size_bytes);

/* The memory as one operation sees it ---------------------------------------------------------- */

static inline struct muster_group_rank_slot *
muster_group_rank_slot_of(const struct muster_group_run *run, uint32_t rank)
{
    return muster_group_layout_rank_slot(&run->memory->layout, rank);
}

static inline uint32_t muster_group_own_rank(const struct muster_group_run *run)
{
    return run->memory->options.rank;
}

static inline uint32_t muster_group_rank_count(const struct muster_group_run *run)
{
    return run->memory->options.ranks;
}

static inline char *muster_group_staging_area_of(const struct muster_group_run *run, uint32_t rank)
{
    return muster_group_layout_staging_area(&run->memory->layout, rank, run->step->sequence);
}

static inline struct muster_group_announcement *
muster_group_announcement_of(const struct muster_group_run *run, uint32_t rank, uint64_t sequence)
{
    return &muster_group_rank_slot_of(run, rank)->announcements[sequence % 2];
}

/* The other ranks, beginning after this one, so that not all ask the same one first. */
static inline uint32_t muster_group_peer(const struct muster_group_run *run, uint32_t i)
{
    uint32_t rank = muster_group_own_rank(run) + 1 + i;
    return rank < muster_group_rank_count(run) ? rank : rank - muster_group_rank_count(run);
}

static inline char *muster_group_output_at(const struct muster_group_run *run, uint64_t element)
{
    return (char *)run->step->out + element * run->element_size_bytes;
}

/* Posts and steps ------------------------------------------------------------------------------ */

/* All have finished what used this rank's post and slot before. Like all that waits here it has the
 * statuses of muster_group_memory_run(). */
MUSTER_CHECKED muster_status muster_group_wait_for_reuse(struct muster_group_run *run);

/* Posts the operation. */
void muster_group_announce(const struct muster_group_run *run, const uint64_t payload[2]);

/* Waits for the post of that rank, or of all, and compares the calls. */
MUSTER_CHECKED muster_status muster_group_wait_for_announcement(struct muster_group_run *run,
                                                                uint32_t rank);
MUSTER_CHECKED muster_status muster_group_wait_for_all_announcements(struct muster_group_run *run);

/* Of an operation by buffers; by shares each window has two. */
enum muster_group_phase {
    MUSTER_GROUP_SHARE_READY = 1, /* its share of the result stands there */
    MUSTER_GROUP_READS_DONE = 2,  /* it has read all that it needs of others */
};

void muster_group_finish_phase(const struct muster_group_run *run, uint64_t phase);
MUSTER_CHECKED muster_status muster_group_wait_for_phase(struct muster_group_run *run,
                                                         uint32_t rank, uint64_t phase);
MUSTER_CHECKED muster_status muster_group_wait_for_phase_of_all(struct muster_group_run *run,
                                                                uint64_t phase);

/* What was read of buffers counts only if their owners had not given up by then. */
MUSTER_CHECKED muster_status muster_group_check_reads(struct muster_group_run *run);
/* That, and until all are through. */
MUSTER_CHECKED muster_status muster_group_end_reads(struct muster_group_run *run);

/* Pieces of muster_alloc() ----------------------------------------------------------------------
 */

/* Says where this rank's buffers of so many bytes are; before the post. */
void muster_group_announce_allocations(const struct muster_group_run *run, size_t in_bytes,
                                       size_t out_bytes);

/* Whether all have both buffers in such pieces; all have posted, and come to the same. */
bool muster_group_all_allocated(const struct muster_group_run *run);

/* Where that rank's bytes at the address are here; NULL: they cannot be mapped. */
const void *muster_group_map_peer_buffer(const struct muster_group_run *run, uint32_t rank,
                                         enum muster_group_side side, uint64_t address,
                                         size_t size_bytes);

void muster_group_unmap_peer(struct muster_group_memory *memory, uint32_t rank);

/* Data ----------------------------------------------------------------------------------------- */

/* An input that others read: in the post, in the slot, or where it is. */
struct muster_group_exposure {
    bool in_buffers;
    uint64_t size_bytes; /* of one rank's input; those of an allgatherv differ */
};

/* What the posts of two words hold, copied out of them. */
struct muster_group_payloads {
    uint64_t words[MUSTER_GROUP_RANKS_MAX][2];
};

/* Settles, lets the others see this rank's input, and posts. */
MUSTER_CHECKED muster_status muster_group_expose(struct muster_group_run *run,
                                                 const struct muster_group_exposure *exposure);

/* Where the inputs of all ranks stand. */
struct muster_group_inputs {
    const void *bases[MUSTER_GROUP_RANKS_MAX];  /* here; or NULL */
    uint64_t addresses[MUSTER_GROUP_RANKS_MAX]; /* then: in that rank's process */
};

/* Of that rank, or of all; they have posted. room may be NULL where no input fits a post. */
void muster_group_find_input(const struct muster_group_run *run,
                             const struct muster_group_exposure *exposure, uint32_t rank,
                             struct muster_group_payloads *payloads,
                             struct muster_group_inputs *inputs);
void muster_group_find_inputs(const struct muster_group_run *run,
                              const struct muster_group_exposure *exposure,
                              struct muster_group_payloads *payloads,
                              struct muster_group_inputs *inputs);

/* To OUTPUT. They do not overlap. */
void muster_group_write_output(const struct muster_group_run *run, void *target, const void *source,
                               size_t size_bytes);

/* target = elements [span) of that rank's input. */
MUSTER_CHECKED muster_status muster_group_read_input(struct muster_group_run *run,
                                                     const struct muster_group_inputs *inputs,
                                                     uint32_t rank, struct muster_span span,
                                                     char *target);

/* target = the reduction of elements [span) of all inputs, along the tree of terms.h over
 * options.order. target may be the own input's. `streams`: it is written past the caches. */
MUSTER_CHECKED muster_status muster_group_reduce(struct muster_group_run *run,
                                                 const struct muster_group_inputs *inputs,
                                                 struct muster_span span, bool streams,
                                                 void *target);

/* Elements [span) of all inputs reduced, to the beginning of OUTPUT. */
MUSTER_CHECKED muster_status muster_group_reduce_to_output(
    struct muster_group_run *run, const struct muster_group_exposure *exposure,
    struct muster_span span);

MUSTER_CHECKED muster_status muster_group_allreduce(struct muster_group_run *run,
                                                    const struct muster_group_exposure *exposure);

#endif
