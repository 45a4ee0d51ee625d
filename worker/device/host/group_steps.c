/*
 * What the collectives in shared memory are made of: posts and steps, and where the data is.
 *
 * Of each operation every rank posts, in its seat, what it was called for and where its input is;
 * the others wait for that post, compare the call with their own, and then take what they need. A
 * post and a slot are used again two operations later, and by then all have finished the first of
 * them: nobody posts an operation before all have posted the one before.
 */
#include "worker/device/host/group_memory_parts.h"

#include <string.h>

#include "collectives/reduce/stream.h"

/* Calls --------------------------------------------------------------------------------------- */

static void pack(const struct muster_call *call, uint64_t words[5])
{
    words[0] = call->count;
    memcpy(&words[1], &call->prescale, sizeof words[1]);
    memcpy(&words[2], &call->postscale, sizeof words[2]);
    words[3] = call->algorithm | (uint64_t)call->root << 32;
    words[4] = call->collective | (uint64_t)call->type << 8 | (uint64_t)call->op << 16 |
               (uint64_t)call->flags << 24 | (uint64_t)call->inputs << 32;
}

static struct muster_call unpack(const uint64_t words[5])
{
    struct muster_call call = {
        .collective = (uint8_t)words[4],
        .type = (uint8_t)(words[4] >> 8),
        .op = (uint8_t)(words[4] >> 16),
        .flags = (uint8_t)(words[4] >> 24),
        .inputs = (uint8_t)(words[4] >> 32),
        .algorithm = (uint32_t)words[3],
        .root = (uint32_t)(words[3] >> 32),
        .count = words[0],
    };
    memcpy(&call.prescale, &words[1], sizeof words[1]);
    memcpy(&call.postscale, &words[2], sizeof words[2]);
    return call;
}

static muster_status differs(const struct muster_group_memory_run *run, uint32_t rank,
                             const uint64_t words[5])
{
    char text[256] = "nothing"; /* what this library does not put into a call */
    const struct muster_call there = unpack(words);
    (void)muster_call_matches(run->work->call, &there, text, sizeof text);
    return muster_error_set(MUSTER_INVALID, "rank %u calls differently: %s",
                            run->memory->options.names[rank], text);
}

/* The post has come: is it of the same call? */
static muster_status compare(const struct muster_group_memory_run *run, uint32_t rank)
{
    const struct muster_memory_post *post = muster_memory_post_of(run, rank, run->work->sequence);
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
muster_status muster_memory_settle(struct muster_group_memory_run *run)
{
    uint64_t before = run->work->sequence - 1;
    for (uint32_t i = 0; run->memory->settled < before && i + 1 < muster_memory_rank_count(run);
         i++) {
        uint32_t rank = muster_memory_other(run, i);
        TRY(muster_memory_wait(run, rank, &muster_memory_post_of(run, rank, before)->sequence,
                               before));
    }
    run->memory->settled = before > run->memory->settled ? before : run->memory->settled;
    return MUSTER_OK;
}

void muster_memory_say(const struct muster_group_memory_run *run, const uint64_t small[2])
{
    struct muster_memory_post *mine =
        muster_memory_post_of(run, muster_memory_own_rank(run), run->work->sequence);
    uint64_t words[5];
    pack(run->work->call, words);
    for (int i = 0; i < 5; i++) {
        atomic_store_explicit(&mine->call[i], words[i], memory_order_relaxed);
    }
    atomic_store_explicit(&mine->small[0], small[0], memory_order_relaxed);
    atomic_store_explicit(&mine->small[1], small[1], memory_order_relaxed);
    run->memory->posted = run->work->sequence;
    atomic_store_explicit(&mine->sequence, run->work->sequence, memory_order_release);
    muster_memory_ring(muster_memory_seat_of(run, muster_memory_own_rank(run)));
}

muster_status muster_memory_meet(struct muster_group_memory_run *run, uint32_t rank)
{
    const struct muster_memory_post *theirs = muster_memory_post_of(run, rank, run->work->sequence);
    TRY(muster_memory_wait(run, rank, &theirs->sequence, run->work->sequence));
    return compare(run, rank);
}

muster_status muster_memory_meet_all(struct muster_group_memory_run *run)
{
    for (uint32_t i = 0; i + 1 < muster_memory_rank_count(run); i++) {
        TRY(muster_memory_meet(run, muster_memory_other(run, i)));
    }
    run->memory->settled = run->work->sequence;
    return MUSTER_OK;
}

/* Steps --------------------------------------------------------------------------------------- */

void muster_memory_finish_step(const struct muster_group_memory_run *run, uint64_t step)
{
    struct muster_memory_seat *seat = muster_memory_seat_of(run, muster_memory_own_rank(run));
    atomic_store_explicit(&seat->progress, MUSTER_MEMORY_PROGRESS(run->work->sequence, step),
                          memory_order_release);
    muster_memory_ring(seat);
}

muster_status muster_memory_await_step(struct muster_group_memory_run *run, uint32_t rank,
                                       uint64_t step)
{
    return muster_memory_wait(run, rank, &muster_memory_seat_of(run, rank)->progress,
                              MUSTER_MEMORY_PROGRESS(run->work->sequence, step));
}

muster_status muster_memory_await_step_of_all(struct muster_group_memory_run *run, uint64_t step)
{
    for (uint32_t i = 0; i + 1 < muster_memory_rank_count(run); i++) {
        TRY(muster_memory_await_step(run, muster_memory_other(run, i), step));
    }
    return MUSTER_OK;
}

/* What was read of buffers counts only if their owners had not given up by then. */
muster_status muster_memory_check_buffers(struct muster_group_memory_run *run)
{
    atomic_thread_fence(memory_order_acquire);
    for (uint32_t i = 0; i + 1 < muster_memory_rank_count(run); i++) {
        uint32_t rank = muster_memory_other(run, i);
        uint64_t withdrawn = atomic_load(&muster_memory_seat_of(run, rank)->withdrawn);
        if (withdrawn != 0 && withdrawn <= run->work->sequence) {
            return muster_memory_look_after(run, rank);
        }
    }
    return MUSTER_OK;
}

muster_status muster_memory_leave_buffers(struct muster_group_memory_run *run)
{
    TRY(muster_memory_check_buffers(run));
    muster_memory_finish_step(run, MUSTER_MEMORY_STEP_TAKEN);
    return muster_memory_await_step_of_all(run, MUSTER_MEMORY_STEP_TAKEN);
}

/* Sources ------------------------------------------------------------------------------------- */

static bool fits_post(uint64_t size_bytes)
{
    return size_bytes <= MUSTER_MEMORY_SMALL_BYTES;
}

muster_status muster_memory_expose(struct muster_group_memory_run *run,
                                   const struct muster_memory_exposure *exposure)
{
    const struct muster_group_memory_work *work = run->work;
    uint64_t small[2] = {0, 0};
    TRY(muster_memory_settle(run));
    if (exposure->in_buffers) {
        muster_memory_say_pieces(run, exposure->size_bytes,
                                 muster_shape_output_count(work->shape) * run->element_size_bytes);
        small[0] = (uint64_t)(uintptr_t)work->in;
        small[1] = (uint64_t)(uintptr_t)work->out;
    } else if (fits_post(exposure->size_bytes)) {
        if (exposure->size_bytes > 0) {
            memcpy(small, work->in, exposure->size_bytes);
        }
    } else {
        memcpy(muster_memory_slot_of(run, muster_memory_own_rank(run)), work->in,
               exposure->size_bytes);
    }
    muster_memory_say(run, small);
    return MUSTER_OK;
}

void muster_memory_find_input(const struct muster_group_memory_run *run,
                              const struct muster_memory_exposure *exposure, uint32_t rank,
                              struct muster_memory_small_room *room,
                              struct muster_memory_inputs *inputs)
{
    const struct muster_memory_post *post = muster_memory_post_of(run, rank, run->work->sequence);
    uint64_t first = atomic_load_explicit(&post->small[0], memory_order_relaxed);
    inputs->bases[rank] = NULL;
    if (rank == muster_memory_own_rank(run)) {
        inputs->bases[rank] = run->work->in;
    } else if (exposure->in_buffers) {
        inputs->addresses[rank] = first;
        inputs->bases[rank] =
            muster_memory_find_piece(run, rank, MUSTER_MEMORY_IN, first, exposure->size_bytes);
    } else if (fits_post(exposure->size_bytes)) {
        room->words[rank][0] = first;
        room->words[rank][1] = atomic_load_explicit(&post->small[1], memory_order_relaxed);
        inputs->bases[rank] = room->words[rank];
    } else {
        inputs->bases[rank] = muster_memory_slot_of(run, rank);
    }
}

void muster_memory_find_inputs(const struct muster_group_memory_run *run,
                               const struct muster_memory_exposure *exposure,
                               struct muster_memory_small_room *room,
                               struct muster_memory_inputs *inputs)
{
    for (uint32_t rank = 0; rank < muster_memory_rank_count(run); rank++) {
        muster_memory_find_input(run, exposure, rank, room, inputs);
    }
}

void muster_memory_copy_out(const struct muster_group_memory_run *run, void *target,
                            const void *source, size_t size_bytes)
{
    if (run->streams) {
        muster_stream_copy(target, source, size_bytes);
    } else {
        memcpy(target, source, size_bytes);
    }
}

/* target = elements [span) of that rank's input. */
muster_status muster_memory_take(struct muster_group_memory_run *run,
                                 const struct muster_memory_inputs *inputs, uint32_t rank,
                                 struct muster_span span, char *target)
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
        muster_memory_copy_out(run, target, source, size_bytes);
    }
    return MUSTER_OK;
}

/* All inputs, or of a reduce_scatter this rank's block of them, to OUTPUT. */
muster_status muster_memory_reduce_here(struct muster_group_memory_run *run,
                                        const struct muster_memory_exposure *exposure,
                                        struct muster_span span)
{
    struct muster_memory_small_room room;
    struct muster_memory_inputs inputs;
    muster_memory_find_inputs(run, exposure, &room, &inputs);
    return muster_memory_reduce(run, &inputs, span, run->streams, run->work->out);
}
