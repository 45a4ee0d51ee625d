/*
 * The collectives in shared memory.
 *
 * Of each operation every rank posts, in its seat, what it was called for and where its input is;
 * the others wait for that post, compare the call with their own, and then take what they need. A
 * post and a slot are used again two operations later, and by then all have finished the first of
 * them: nobody posts an operation before all have posted the one before. So a small allreduce needs
 * one exchange and no barrier after it.
 *
 * Where others read this rank's own buffers, all wait at the end until all are through.
 *
 * Source: R. Graham, G. Shipman: MPI support for multi-core architectures: optimized shared memory
 * collectives (EuroPVM/MPI 2008), for slots and flags of each rank; T. Ma, G. Bosilca, A.
 * Bouteiller, J. Dongarra: Kernel assisted collective intra-node MPI communication among
 * multi-core and many-core CPUs (ICPP 2011), for reading straight from the others' buffers.
 */
#include "worker/device/memory_parts.h"

#include <string.h>

#include "collectives/memory.h"

enum step {
    STEP_SHARE = 1, /* its share of the result stands there */
    STEP_TAKEN = 2, /* it has read all that it needs of others */
};

static struct muster_memory_seat *seat_of(const struct muster_memory_run *run, uint32_t rank)
{
    return muster_memory_region_seat(&run->memory->region, rank);
}

static uint32_t own_rank(const struct muster_memory_run *run)
{
    return run->memory->options.rank;
}

static uint32_t rank_count(const struct muster_memory_run *run)
{
    return run->memory->options.ranks;
}

static char *slot_of(const struct muster_memory_run *run, uint32_t rank)
{
    return muster_memory_region_slot(&run->memory->region, rank, run->work->sequence);
}

static struct muster_memory_post *post_of(const struct muster_memory_run *run, uint32_t rank,
                                          uint64_t sequence)
{
    return &seat_of(run, rank)->posts[sequence % 2];
}

/* The other ranks, beginning after this one, so that not all ask the same one first. */
static uint32_t other(const struct muster_memory_run *run, uint32_t i)
{
    uint32_t rank = own_rank(run) + 1 + i;
    return rank < rank_count(run) ? rank : rank - rank_count(run);
}

/* Calls --------------------------------------------------------------------------------------- */

static void pack(const struct muster_call *call, uint64_t words[5])
{
    words[0] = call->count;
    memcpy(&words[1], &call->prescale, sizeof words[1]);
    memcpy(&words[2], &call->postscale, sizeof words[2]);
    words[3] = call->algorithm | (uint64_t)call->root << 32;
    words[4] = call->collective | (uint64_t)call->type << 8 | (uint64_t)call->op << 16 |
               (uint64_t)call->ordered << 24 | (uint64_t)call->inputs << 32;
}

static struct muster_call unpack(const uint64_t words[5])
{
    struct muster_call call = {
        .collective = (uint8_t)words[4],
        .type = (uint8_t)(words[4] >> 8),
        .op = (uint8_t)(words[4] >> 16),
        .ordered = (uint8_t)(words[4] >> 24),
        .inputs = (uint8_t)(words[4] >> 32),
        .algorithm = (uint32_t)words[3],
        .root = (uint32_t)(words[3] >> 32),
        .count = words[0],
    };
    memcpy(&call.prescale, &words[1], sizeof words[1]);
    memcpy(&call.postscale, &words[2], sizeof words[2]);
    return call;
}

static muster_status differs(const struct muster_memory_run *run, uint32_t rank,
                             const uint64_t words[5])
{
    char text[256] = "nothing"; /* what this library does not put into a call */
    const struct muster_call there = unpack(words);
    (void)muster_call_matches(run->work->call, &there, text, sizeof text);
    return muster_error_set(MUSTER_INVALID, "rank %u calls differently: %s",
                            run->memory->options.names[rank], text);
}

/* The post has come: is it of the same call? */
static muster_status compare(const struct muster_memory_run *run, uint32_t rank)
{
    const struct muster_memory_post *post = post_of(run, rank, run->work->sequence);
    uint64_t sequence = atomic_load_explicit(&post->sequence, memory_order_relaxed);
    uint64_t here[5];
    uint64_t there[5];
    uint64_t difference = 0;
    if (sequence != run->work->sequence) {
        return muster_error_set(MUSTER_REJOIN, "rank %u is at operation #%llu already",
                                run->memory->options.names[rank], (unsigned long long)sequence);
    }
    pack(run->work->call, here);
    for (int i = 0; i < 5; i++) {
        there[i] = atomic_load_explicit(&post->call[i], memory_order_relaxed);
        difference |= here[i] ^ there[i];
    }
    return difference == 0 ? MUSTER_OK : differs(run, rank, there);
}

/* Posts --------------------------------------------------------------------------------------- */

/* All have finished what used this rank's post and slot before. */
static muster_status settle(struct muster_memory_run *run)
{
    uint64_t before = run->work->sequence - 1;
    for (uint32_t i = 0; run->memory->settled < before && i + 1 < rank_count(run); i++) {
        uint32_t rank = other(run, i);
        TRY(muster_memory_wait(run, rank, &post_of(run, rank, before)->sequence, before));
    }
    run->memory->settled = before > run->memory->settled ? before : run->memory->settled;
    return MUSTER_OK;
}

static void post(const struct muster_memory_run *run, const uint64_t small[2])
{
    struct muster_memory_post *mine = post_of(run, own_rank(run), run->work->sequence);
    uint64_t words[5];
    pack(run->work->call, words);
    for (int i = 0; i < 5; i++) {
        atomic_store_explicit(&mine->call[i], words[i], memory_order_relaxed);
    }
    atomic_store_explicit(&mine->small[0], small[0], memory_order_relaxed);
    atomic_store_explicit(&mine->small[1], small[1], memory_order_relaxed);
    run->memory->posted = run->work->sequence;
    atomic_store_explicit(&mine->sequence, run->work->sequence, memory_order_release);
    muster_memory_ring(seat_of(run, own_rank(run)));
}

static muster_status meet(struct muster_memory_run *run, uint32_t rank)
{
    const struct muster_memory_post *theirs = post_of(run, rank, run->work->sequence);
    TRY(muster_memory_wait(run, rank, &theirs->sequence, run->work->sequence));
    return compare(run, rank);
}

static muster_status meet_all(struct muster_memory_run *run)
{
    for (uint32_t i = 0; i + 1 < rank_count(run); i++) {
        TRY(meet(run, other(run, i)));
    }
    run->memory->settled = run->work->sequence;
    return MUSTER_OK;
}

/* Steps --------------------------------------------------------------------------------------- */

static void finish_step(const struct muster_memory_run *run, enum step step)
{
    struct muster_memory_seat *seat = seat_of(run, own_rank(run));
    atomic_store_explicit(&seat->progress, run->work->sequence * 4 + step, memory_order_release);
    muster_memory_ring(seat);
}

static muster_status await_step(struct muster_memory_run *run, uint32_t rank, enum step step)
{
    return muster_memory_wait(run, rank, &seat_of(run, rank)->progress,
                              run->work->sequence * 4 + step);
}

/* What was read of buffers counts only if their owners had not given up by then. */
static muster_status check_buffers(struct muster_memory_run *run)
{
    atomic_thread_fence(memory_order_acquire);
    for (uint32_t i = 0; i + 1 < rank_count(run); i++) {
        uint32_t rank = other(run, i);
        uint64_t withdrawn = atomic_load(&seat_of(run, rank)->withdrawn);
        if (withdrawn != 0 && withdrawn <= run->work->sequence) {
            return muster_memory_look_after(run, rank);
        }
    }
    return MUSTER_OK;
}

static muster_status leave_buffers(struct muster_memory_run *run)
{
    TRY(check_buffers(run));
    finish_step(run, STEP_TAKEN);
    for (uint32_t i = 0; i + 1 < rank_count(run); i++) {
        TRY(await_step(run, other(run, i), STEP_TAKEN));
    }
    return MUSTER_OK;
}

/* Sources ------------------------------------------------------------------------------------- */

/* An input that others read: in the post, in the slot, or where it is. */
struct exposure {
    bool in_buffers;
    uint64_t size_bytes; /* of one rank's input; those of an allgatherv differ */
};

static bool fits_post(uint64_t size_bytes)
{
    return size_bytes <= MUSTER_MEMORY_SMALL_BYTES;
}

static muster_status expose(struct muster_memory_run *run, const struct exposure *exposure)
{
    const struct muster_memory_work *work = run->work;
    uint64_t small[2] = {0, 0};
    TRY(settle(run));
    if (exposure->in_buffers) {
        small[0] = (uint64_t)(uintptr_t)work->in;
        small[1] = (uint64_t)(uintptr_t)work->out;
    } else if (fits_post(exposure->size_bytes)) {
        if (exposure->size_bytes > 0) {
            memcpy(small, work->in, exposure->size_bytes);
        }
    } else {
        memcpy(slot_of(run, own_rank(run)), work->in, exposure->size_bytes);
    }
    post(run, small);
    return MUSTER_OK;
}

/* What the posts of two words hold, copied out of them. */
struct small_room {
    uint64_t words[MUSTER_MEMORY_RANKS_MAX][2];
};

static void find_input(const struct muster_memory_run *run, const struct exposure *exposure,
                       uint32_t rank, struct small_room *room, struct muster_memory_inputs *inputs)
{
    const struct muster_memory_post *post = post_of(run, rank, run->work->sequence);
    uint64_t first = atomic_load_explicit(&post->small[0], memory_order_relaxed);
    inputs->bases[rank] = NULL;
    if (rank == own_rank(run)) {
        inputs->bases[rank] = run->work->in;
    } else if (exposure->in_buffers) {
        inputs->addresses[rank] = first;
    } else if (fits_post(exposure->size_bytes)) {
        room->words[rank][0] = first;
        room->words[rank][1] = atomic_load_explicit(&post->small[1], memory_order_relaxed);
        inputs->bases[rank] = room->words[rank];
    } else {
        inputs->bases[rank] = slot_of(run, rank);
    }
}

static void find_inputs(const struct muster_memory_run *run, const struct exposure *exposure,
                        struct small_room *room, struct muster_memory_inputs *inputs)
{
    for (uint32_t rank = 0; rank < rank_count(run); rank++) {
        find_input(run, exposure, rank, room, inputs);
    }
}

/* target = elements [span) of that rank's input. */
static muster_status take(struct muster_memory_run *run, const struct muster_memory_inputs *inputs,
                          uint32_t rank, struct muster_span span, char *target)
{
    size_t offset = span.offset * run->element_size_bytes;
    size_t size_bytes = span.count * run->element_size_bytes;
    if (size_bytes == 0) {
        return MUSTER_OK;
    }
    if (inputs->bases[rank] == NULL) {
        return muster_memory_fetch(run, rank, inputs->addresses[rank] + offset, target, size_bytes);
    }
    const char *source = (const char *)inputs->bases[rank] + offset;
    if (source != target) {
        memcpy(target, source, size_bytes);
    }
    return MUSTER_OK;
}

/* Collectives --------------------------------------------------------------------------------- */

static char *out_at(const struct muster_memory_run *run, uint64_t element)
{
    return (char *)run->work->out + element * run->element_size_bytes;
}

static struct muster_span share_of(const struct muster_memory_run *run, uint32_t rank)
{
    return muster_span_part((struct muster_span){.count = run->work->shape->count}, rank_count(run),
                            rank);
}

/* All inputs, or of a reduce_scatter this rank's block of them, to OUTPUT. */
static muster_status reduce_here(struct muster_memory_run *run, const struct exposure *exposure,
                                 struct muster_span span)
{
    struct small_room room;
    struct muster_memory_inputs inputs;
    find_inputs(run, exposure, &room, &inputs);
    return muster_memory_reduce(run, &inputs, span, run->work->out);
}

static muster_status allreduce_in_slots(struct muster_memory_run *run,
                                        const struct exposure *exposure)
{
    TRY(expose(run, exposure));
    TRY(meet_all(run));
    return reduce_here(run, exposure, (struct muster_span){.count = run->work->shape->count});
}

/* A rank's slot has its input, but for its own share, which nobody else reads: there goes the
 * share's result. */
static muster_status allreduce_in_shares(struct muster_memory_run *run)
{
    const struct muster_memory_work *work = run->work;
    size_t size = run->element_size_bytes;
    const struct muster_span own = share_of(run, own_rank(run));
    char *slot = slot_of(run, own_rank(run));
    size_t before = own.offset * size;
    size_t after = before + own.count * size;
    TRY(settle(run));
    memcpy(slot, work->in, before);
    memcpy(slot + after, (const char *)work->in + after, work->shape->count * size - after);
    post(run, (const uint64_t[2]){0, 0});
    TRY(meet_all(run));
    const struct exposure exposure = {.size_bytes = UINT64_MAX};
    struct muster_memory_inputs inputs;
    find_inputs(run, &exposure, NULL, &inputs);
    TRY(muster_memory_reduce(run, &inputs, own, slot + before));
    finish_step(run, STEP_SHARE);
    memcpy(out_at(run, own.offset), slot + before, own.count * size);
    for (uint32_t i = 0; i + 1 < rank_count(run); i++) {
        uint32_t rank = other(run, i);
        TRY(await_step(run, rank, STEP_SHARE));
        TRY(take(run, &inputs, rank, share_of(run, rank), out_at(run, share_of(run, rank).offset)));
    }
    return MUSTER_OK;
}

static muster_status allreduce_in_buffers(struct muster_memory_run *run,
                                          const struct exposure *exposure)
{
    struct muster_memory_inputs inputs;
    const struct muster_span own = share_of(run, own_rank(run));
    TRY(expose(run, exposure));
    TRY(meet_all(run));
    find_inputs(run, exposure, NULL, &inputs);
    TRY(muster_memory_reduce(run, &inputs, own, out_at(run, own.offset)));
    TRY(check_buffers(run)); /* before others take it for the result */
    finish_step(run, STEP_SHARE);
    for (uint32_t i = 0; i + 1 < rank_count(run); i++) {
        uint32_t rank = other(run, i);
        const struct muster_span share = share_of(run, rank);
        uint64_t out = atomic_load_explicit(&post_of(run, rank, run->work->sequence)->small[1],
                                            memory_order_relaxed);
        TRY(await_step(run, rank, STEP_SHARE));
        TRY(muster_memory_fetch(run, rank, out + share.offset * run->element_size_bytes,
                                out_at(run, share.offset), share.count * run->element_size_bytes));
    }
    return leave_buffers(run);
}

static muster_status allreduce(struct muster_memory_run *run, const struct exposure *exposure)
{
    switch (run->work->method) {
    case MUSTER_MEMORY_SHARES:
        return allreduce_in_shares(run);
    case MUSTER_MEMORY_BUFFERS:
        return allreduce_in_buffers(run, exposure);
    default:
        return allreduce_in_slots(run, exposure);
    }
}

static muster_status reduce_scatter(struct muster_memory_run *run, const struct exposure *exposure)
{
    TRY(expose(run, exposure));
    TRY(meet_all(run));
    TRY(reduce_here(run, exposure, muster_shape_input_block(run->work->shape, own_rank(run))));
    return exposure->in_buffers ? leave_buffers(run) : MUSTER_OK;
}

static muster_status reduce(struct muster_memory_run *run, const struct exposure *exposure)
{
    bool root = run->work->shape->root == own_rank(run);
    TRY(expose(run, exposure));
    if (root || exposure->in_buffers) {
        TRY(meet_all(run));
    }
    if (root) {
        TRY(reduce_here(run, exposure, (struct muster_span){.count = run->work->shape->count}));
    }
    return exposure->in_buffers ? leave_buffers(run) : MUSTER_OK;
}

static muster_status broadcast(struct muster_memory_run *run, const struct exposure *exposure)
{
    struct small_room room;
    struct muster_memory_inputs inputs;
    uint32_t root = run->work->shape->root;
    bool gives = root == own_rank(run);
    const struct exposure nothing = {.in_buffers = exposure->in_buffers};
    TRY(expose(run, gives ? exposure : &nothing));
    if (exposure->in_buffers) {
        TRY(meet_all(run));
    } else if (!gives) {
        TRY(meet(run, root));
    }
    if (!gives) {
        find_input(run, exposure, root, &room, &inputs);
        TRY(take(run, &inputs, root, (struct muster_span){.count = run->work->shape->count},
                 run->work->out));
    }
    return exposure->in_buffers ? leave_buffers(run) : MUSTER_OK;
}

static muster_status allgather(struct muster_memory_run *run, const struct exposure *exposure)
{
    const struct muster_shape *shape = run->work->shape;
    struct small_room room;
    struct muster_memory_inputs inputs;
    TRY(expose(run, exposure));
    if (exposure->in_buffers) { /* whose owners stay only if all calls agree */
        TRY(meet_all(run));
    }
    for (uint32_t i = 0; i < rank_count(run); i++) {
        uint32_t rank = i + 1 < rank_count(run) ? other(run, i) : own_rank(run);
        const struct muster_span block = muster_shape_output_block(shape, rank);
        const struct exposure theirs = {.in_buffers = exposure->in_buffers,
                                        .size_bytes = block.count * run->element_size_bytes};
        if (rank != own_rank(run)) {
            TRY(meet(run, rank));
        }
        find_input(run, &theirs, rank, &room, &inputs);
        TRY(take(run, &inputs, rank, (struct muster_span){.count = block.count},
                 out_at(run, block.offset)));
    }
    run->memory->settled = run->work->sequence;
    return exposure->in_buffers ? leave_buffers(run) : MUSTER_OK;
}

static muster_status barrier(struct muster_memory_run *run, const struct exposure *exposure)
{
    TRY(expose(run, exposure));
    return meet_all(run);
}

static muster_status carry_out(struct muster_memory_run *run)
{
    const struct muster_memory_work *work = run->work;
    const struct exposure exposure = {.in_buffers = work->method == MUSTER_MEMORY_BUFFERS,
                                      .size_bytes = muster_shape_input_count(work->shape) *
                                                    run->element_size_bytes};
    switch (work->shape->collective) {
    case MUSTER_ALLREDUCE:
        return allreduce(run, &exposure);
    case MUSTER_REDUCE_SCATTER:
        return reduce_scatter(run, &exposure);
    case MUSTER_REDUCE:
        return reduce(run, &exposure);
    case MUSTER_BROADCAST:
        return broadcast(run, &exposure);
    case MUSTER_ALLGATHER:
    case MUSTER_ALLGATHERV:
        return allgather(run, &exposure);
    case MUSTER_BARRIER:
        return barrier(run, &exposure);
    default:
        return muster_error_set(MUSTER_INVALID, "%s is not done in shared memory",
                                muster_collective_name(work->shape->collective));
    }
}

/* Ends an operation: who gives up says so before its buffers become the caller's again. */
static muster_status end(struct muster_memory_run *run, muster_status status, uint32_t *ret_suspect)
{
    if (status == MUSTER_OK || status == MUSTER_INVALID) {
        return status;
    }
    struct muster_memory_seat *seat = seat_of(run, own_rank(run));
    atomic_store(&seat->withdrawn, run->work->sequence);
    atomic_thread_fence(memory_order_seq_cst);
    muster_memory_ring(seat);
    if (run->suspect != UINT32_MAX) {
        *ret_suspect = run->suspect;
    }
    return status;
}

muster_status muster_memory_run(struct muster_memory *memory, const struct muster_memory_work *work,
                                uint32_t *ret_suspect)
{
    struct muster_memory_run run = {.memory = memory,
                                    .work = work,
                                    .element_size_bytes =
                                        muster_type_size_bytes((muster_type)work->call->type),
                                    .suspect = UINT32_MAX};
    return end(&run, carry_out(&run), ret_suspect);
}

muster_status muster_memory_announce(struct muster_memory *memory,
                                     const struct muster_memory_work *work, uint32_t *ret_suspect)
{
    struct muster_memory_run run = {.memory = memory, .work = work, .suspect = UINT32_MAX};
    muster_status status = settle(&run);
    if (status == MUSTER_OK) {
        post(&run, (const uint64_t[2]){0, 0});
    }
    return end(&run, status, ret_suspect);
}
