/* What the files of the group steps share. Private to worker/device/host/. */
#ifndef MUSTER_WORKER_DEVICE_HOST_GROUP_PARTS_H
#define MUSTER_WORKER_DEVICE_HOST_GROUP_PARTS_H

#include "worker/base/spin_policy.h"
#include "worker/base/status.h"
#include "worker/device/host/group_layout.h"

enum {
    /* Reduced at a time: with its intermediate results it stays in the second-level cache. */
    MUSTER_GROUP_SEGMENT_BYTES = 64 << 10,
    MUSTER_GROUP_MAPPINGS_MAX = 8, /* of one peer's allocations at a time */
    MUSTER_GROUP_TREE_LEVELS = 7,  /* of the reduction tree over MUSTER_GROUP_RANKS_MAX */
};

/* An allocation of a peer, mapped in this process. */
struct muster_group_mapping {
    uint64_t id; /* in its owner's process */
    char *base;  /* NULL: unused */
    size_t size_bytes;
};

struct muster_group_mappings {
    struct muster_group_mapping items[MUSTER_GROUP_MAPPINGS_MAX];
    uint32_t next;        /* index of the next one to replace */
    uint64_t freed_count; /* the owner's count when these were mapped */
};

/* How a rank's input is exposed to the others: where it is, or copied into the announcement or the
 * staging area, by its size. */
struct muster_group_exposure {
    bool in_buffers;
    uint64_t size_bytes; /* of this rank's input; in an allgatherv they differ */
};

struct muster_group_run;

/*
 * A collective is a list of stages, one after the other, up to a NULL. A stage first waits for what
 * it needs, then acts. A stage that waits for one rank after the other, and acts after each, counts
 * them in run->peer. So a stage of a polled run, whose waits return MUSTER_RETRY instead of
 * blocking, can be called again from its beginning. A stage may set run->stage to another list,
 * and is the last one of its own then.
 */
typedef muster_status (*muster_group_stage)(struct muster_group_run *run);

/* One operation in progress. */
struct muster_group_run {
    struct muster_group_memory *memory;
    const struct muster_group_launch *step;
    const struct muster_launch *launch; /* of the step */
    size_t element_size_bytes;
    bool streams;     /* the output is written past the caches */
    uint32_t suspect; /* the rank to blame, by its name; UINT32_MAX: none */
    const muster_group_stage *current, *stage; /* the present one, and the next */
    struct muster_group_exposure exposure;
    uint32_t peer;            /* of the present stage: peers that it is done with */
    uint64_t window, windows; /* of data larger than an area: the present one, and how many */
    bool polled;              /* waits return MUSTER_RETRY, and store here what they wait for: */
    int64_t spin_ns;          /* how long each polls before that; after the first one 0 */
    uint32_t awaited_rank;
    const _Atomic uint64_t *awaited; /* NULL: it has not waited */
    uint64_t awaited_least;
};

struct muster_group_memory {
    struct muster_group_options options;
    struct muster_group_layout layout;
    const struct muster_group_memory *first; /* borrowed: of another part of its memory; or NULL */
    atomic_bool aborted;
    uint64_t probe; /* a random number that the others read to test the access */
    int64_t pids[MUSTER_GROUP_RANKS_MAX]; /* as seen by this process */
    uint64_t announced;                   /* the last operation that this rank has announced */
    uint64_t all_announced;               /* the last one that all are known to have announced */
    struct muster_spin_policy spin_policy;
    struct muster_group_mappings mappings[MUSTER_GROUP_RANKS_MAX];
    /* Of a peer's input and output, copied from it; their addresses are the peer's. */
    struct muster_range_list peer_ranges[MUSTER_GROUP_RANKS_MAX][2];
    char *scratch;                          /* MUSTER_GROUP_TREE_LEVELS x 2 segments */
    struct muster_group_run flight;         /* of the operation in flight */
    struct muster_group_launch flight_step; /* its copy */
};

/* Waits until *word, which that rank writes, is at least `least`. Like all waits of these files it
 * returns the statuses of muster_group_memory_run(). */
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

/* Wakes the ranks that sleep until this slot's rank writes. To be called after each write. */
void muster_group_wake_sleepers(struct muster_group_rank_slot *slot);

/* Sets the error text and the suspect; MUSTER_REJOIN. */
muster_status muster_group_report_death(struct muster_group_run *run, uint32_t rank);

/* Sets the error text and the suspect; MUSTER_RETRY. */
muster_status muster_group_report_timeout(struct muster_group_run *run, uint32_t rank);

/* MUSTER_REJOIN if that rank has died or has left the group. */
MUSTER_CHECKED muster_status muster_group_check_liveness(struct muster_group_run *run,
                                                         uint32_t rank);

/* The same while this rank waits for that one's word: a rank that has written it and left is no
 * death. */
MUSTER_CHECKED muster_status muster_group_check_peer(struct muster_group_run *run, uint32_t rank,
                                                     const _Atomic uint64_t *word, uint64_t least);

/* Copies from an address in that rank's process. */
MUSTER_CHECKED muster_status muster_group_copy_from_peer(struct muster_group_run *run,
                                                         uint32_t rank, uint64_t address,
                                                         void *target, size_t size_bytes);
/* The same from a place in that rank's process to one in this. */
MUSTER_CHECKED muster_status muster_group_copy_place_from_peer(struct muster_group_run *run,
                                                               uint32_t rank,
                                                               struct muster_place from,
                                                               struct muster_place to,
                                                               size_t size_bytes);

/* Short ways into the memory ------------------------------------------------------------------ */

static inline struct muster_group_rank_slot *
muster_group_rank_slot_of(const struct muster_group_run *run, uint32_t rank)
{
    return muster_group_layout_rank_slot(&run->memory->layout, rank);
}

/* Of a step that is a part of a call: the number of that. */
static inline uint64_t muster_group_call_of(const struct muster_group_run *run)
{
    return run->launch->sequence / MUSTER_PARTS_MAX;
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
    return muster_group_layout_staging_area(&run->memory->layout, rank, run->launch->sequence);
}

static inline struct muster_group_announcement *
muster_group_announcement_of(const struct muster_group_run *run, uint32_t rank, uint64_t sequence)
{
    return &muster_group_rank_slot_of(run, rank)->announcements[sequence % 2];
}

/* The peers, from i = 0. They begin after this rank, so that not all ranks read from the same one
 * first. */
static inline uint32_t muster_group_peer(const struct muster_group_run *run, uint32_t i)
{
    uint32_t rank = muster_group_own_rank(run) + 1 + i;
    return rank < muster_group_rank_count(run) ? rank : rank - muster_group_rank_count(run);
}

static inline struct muster_place muster_group_input_at(const struct muster_group_run *run,
                                                        uint64_t element)
{
    const struct muster_place in = {.base = (char *)run->launch->in,
                                    .ranges = run->launch->in_ranges};
    return muster_place_advance(in, element * run->element_size_bytes);
}

static inline struct muster_place muster_group_output_at(const struct muster_group_run *run,
                                                         uint64_t element)
{
    const struct muster_place out = {.base = run->launch->out, .ranges = run->launch->out_ranges};
    return muster_place_advance(out, element * run->element_size_bytes);
}

/* Announcements and phases --------------------------------------------------------------------- */

/* Waits until this rank's announcement and staging area may be used again: all ranks have finished
 * the operation before the previous one, which used them. */
MUSTER_CHECKED muster_status muster_group_wait_for_reuse(struct muster_group_run *run);

/* Announces the operation to the peers. */
void muster_group_announce(const struct muster_group_run *run, const uint64_t payload[2]);

/* Waits for the announcement of that rank, or of all, and compares the calls. */
MUSTER_CHECKED muster_status muster_group_wait_for_announcement(struct muster_group_run *run,
                                                                uint32_t rank);
MUSTER_CHECKED muster_status muster_group_wait_for_all_announcements(struct muster_group_run *run);

/* Phases of an operation that reads buffers. One that works in windows has two for each window. */
enum muster_group_phase {
    MUSTER_GROUP_SHARE_READY = 1, /* the rank's share of the result is complete */
    MUSTER_GROUP_READS_DONE = 2,  /* the rank has read all that it needs */
};

void muster_group_finish_phase(const struct muster_group_run *run, uint64_t phase);
MUSTER_CHECKED muster_status muster_group_wait_for_phase(struct muster_group_run *run,
                                                         uint32_t rank, uint64_t phase);
MUSTER_CHECKED muster_status muster_group_wait_for_phase_of_all(struct muster_group_run *run,
                                                                uint64_t phase);

/* Checks that no owner of a buffer had given up by now: only then is what was read from it valid.
 */
MUSTER_CHECKED muster_status muster_group_check_reads(struct muster_group_run *run);

/* Stages --------------------------------------------------------------------------------------- */

/* Exposes this rank's input and announces the operation. */
MUSTER_CHECKED muster_status muster_group_stage_expose(struct muster_group_run *run);
/* Waits for all announcements, and compares the calls. */
MUSTER_CHECKED muster_status muster_group_stage_meet(struct muster_group_run *run);
/* Of operations that read buffers: checks that what was read is valid, and says that this rank has
 * read what it needs; then waits until all ranks have. */
MUSTER_CHECKED muster_status muster_group_stage_end_reads(struct muster_group_run *run);
MUSTER_CHECKED muster_status muster_group_stage_wait_for_reads(struct muster_group_run *run);
/* Waits for all, if no rank may finish before all have started. */
MUSTER_CHECKED muster_status muster_group_stage_finish_together(struct muster_group_run *run);

/* The stages of the run's collective. */
const muster_group_stage *muster_group_stages_of(const struct muster_group_run *run);
/* Of collectives other than allreduce whose data go through the staging areas in windows. */
extern const muster_group_stage muster_group_stages_in_windows[];
/* The stages of an allreduce by the step's method. */
const muster_group_stage *muster_group_allreduce_stages(const struct muster_group_run *run);

/* Allocations of muster_alloc() ---------------------------------------------------------------- */

/* Announces which allocations this rank's buffers, of so many bytes, are in; to be called before
 * the announcement. */
void muster_group_announce_allocations(const struct muster_group_run *run, size_t in_bytes,
                                       size_t out_bytes);

/* Whether all ranks have both buffers in allocations. All have announced, and all get the same. */
bool muster_group_all_allocated(const struct muster_group_run *run);

/* Where in this process that rank's bytes at the address are; NULL: they cannot be mapped. */
const void *muster_group_map_peer_buffer(const struct muster_group_run *run, uint32_t rank,
                                         enum muster_group_side side, uint64_t address,
                                         size_t size_bytes);

void muster_group_unmap_peer(struct muster_group_memory *memory, uint32_t rank);

/* Several ranges (peer_ranges.c) ----------------------------------------------------------------
 */

/* Whether that rank, which has announced, takes the operation in place; the same everywhere. */
bool muster_group_is_in_place(const struct muster_group_run *run, uint32_t rank,
                              uint64_t size_bytes);

/* Where that rank's buffer of so many bytes is: at the address that it has announced, in its
 * process, or in the ranges there. */
MUSTER_CHECKED muster_status muster_group_find_peer_buffer(struct muster_group_run *run,
                                                           uint32_t rank,
                                                           enum muster_group_side side,
                                                           uint64_t size_bytes,
                                                           struct muster_place *ret_place);

/* Copies from a place in that rank's buffer into the output: out of its memory if that can be
 * mapped, else by the kernel. */
MUSTER_CHECKED muster_status muster_group_read_place(struct muster_group_run *run, uint32_t rank,
                                                     enum muster_group_side side,
                                                     struct muster_place from,
                                                     struct muster_place to, size_t size_bytes);

/* Data ----------------------------------------------------------------------------------------- */

/* Copies of the announcements' payloads. */
struct muster_group_payloads {
    uint64_t words[MUSTER_GROUP_RANKS_MAX][2];
};

/* Waits for reuse, exposes this rank's input, and announces the operation. */
MUSTER_CHECKED muster_status muster_group_expose(struct muster_group_run *run,
                                                 const struct muster_group_exposure *exposure);

/* Where the inputs of all ranks are. */
struct muster_group_inputs {
    const void *bases[MUSTER_GROUP_RANKS_MAX];  /* in this process; or NULL */
    uint64_t addresses[MUSTER_GROUP_RANKS_MAX]; /* if NULL: in that rank's process */
    /* Instead of both: in ranges, in that rank's process. */
    const struct muster_range_list *ranges[MUSTER_GROUP_RANKS_MAX];
    uint64_t ranges_at_bytes; /* where the inputs begin in these */
};

/* Finds the input of that rank, or of all; they have announced. payloads may be NULL if no input
 * fits an announcement. */
MUSTER_CHECKED muster_status muster_group_find_input(struct muster_group_run *run,
                                                     const struct muster_group_exposure *exposure,
                                                     uint32_t rank,
                                                     struct muster_group_payloads *payloads,
                                                     struct muster_group_inputs *inputs);
MUSTER_CHECKED muster_status muster_group_find_inputs(struct muster_group_run *run,
                                                      const struct muster_group_exposure *exposure,
                                                      struct muster_group_payloads *payloads,
                                                      struct muster_group_inputs *inputs);

/* Copies into the output. The two do not overlap. */
void muster_group_write_output(const struct muster_group_run *run, struct muster_place target,
                               const void *source, size_t size_bytes);

/* target = the elements of `span` of that rank's input. */
MUSTER_CHECKED muster_status muster_group_read_input(struct muster_group_run *run,
                                                     const struct muster_group_inputs *inputs,
                                                     uint32_t rank, struct muster_span span,
                                                     struct muster_place target);

/* target = the reduction of the elements of `span` of all inputs, along the tree of terms.h over
 * options.order. target may be within this rank's own input. `streams`: it is written past the
 * caches. */
MUSTER_CHECKED muster_status muster_group_reduce(struct muster_group_run *run,
                                                 const struct muster_group_inputs *inputs,
                                                 struct muster_span span, bool streams,
                                                 struct muster_place target);

/* The same for the beginning of the output, with inputs that are exposed as this rank's. */
MUSTER_CHECKED muster_status muster_group_reduce_to_output(struct muster_group_run *run,
                                                           struct muster_span span);

#endif
