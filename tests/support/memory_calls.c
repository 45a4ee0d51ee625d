/* Draws operations in shared memory from a seed, and computes their results one element at a time.
 */
#include "tests/support/memory_calls.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>

#include "collectives/select/host_memory.h"
#include "worker/base/clock.h"

static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* Commutative, as the library requires, but not associative. */
static uint64_t join(uint64_t left, uint64_t right)
{
    return mix(left + right) + (left ^ right);
}

static void join_all(void *out, const void *left, const void *right, size_t count, muster_type type,
                     void *user_data)
{
    uint64_t *target = out;
    const uint64_t *one = left;
    const uint64_t *other = right;
    (void)type;
    (void)user_data;
    for (size_t i = 0; i < count; i++) {
        target[i] = join(one[i], other[i]);
    }
}

static uint64_t draw(const struct memory_call *call, uint64_t what, uint64_t bound)
{
    return mix(call->seed ^ mix(call->sequence * 64 + what)) % bound;
}

/* An element of a rank's input. */
static uint64_t input_at(const struct memory_call *call, uint32_t rank, uint64_t element)
{
    return mix(mix(call->seed + call->sequence) + ((uint64_t)rank << 40) + element);
}

/* The reduction of the places first to first + 2^level: the definition of
 * collectives/check/terms.h, written a second time. */
static uint64_t sum_at(const struct memory_call *call, uint32_t first, uint32_t level,
                       uint64_t element)
{
    if (level == 0) {
        return input_at(call, call->order[first], element);
    }
    uint32_t middle = first + (UINT32_C(1) << (level - 1));
    uint64_t lower = sum_at(call, first, level - 1, element);
    return middle < call->shape.ranks ? join(lower, sum_at(call, middle, level - 1, element))
                                      : lower;
}

/* Drawing ------------------------------------------------------------------------------------- */

size_t memory_calls_elements(uint32_t ranks)
{
    return 2 * (size_t)ranks * MEMORY_CALLS_COUNT_MAX;
}

static uint64_t draw_count(const struct memory_call *call, uint64_t what)
{
    static const uint64_t limits[] = {4, 4, 40, 2000, 16000, MEMORY_CALLS_COUNT_MAX};
    uint64_t limit = limits[draw(call, what, sizeof limits / sizeof limits[0])];
    return draw(call, what + 1, limit + 1);
}

static void draw_shape(struct memory_call *call)
{
    static const enum muster_collective collectives[] = {
        MUSTER_ALLREDUCE,  MUSTER_ALLREDUCE, MUSTER_REDUCE_SCATTER, MUSTER_REDUCE,
        MUSTER_ALLGATHERV, MUSTER_ALLGATHER, MUSTER_BROADCAST,      MUSTER_BARRIER,
    };
    struct muster_shape *shape = &call->shape;
    shape->collective = collectives[draw(call, 0, sizeof collectives / sizeof collectives[0])];
    shape->count = shape->collective == MUSTER_BARRIER ? 0 : draw_count(call, 1);
    if (muster_collective_has_root(shape->collective)) {
        shape->root = (uint32_t)draw(call, 3, shape->ranks);
    }
    bool cut = shape->collective == MUSTER_ALLGATHERV ||
               (shape->collective == MUSTER_REDUCE_SCATTER && draw(call, 4, 2) == 1);
    for (uint32_t i = 0; cut && i < shape->ranks; i++) {
        call->bounds[i + 1] = call->bounds[i] + draw_count(call, 10 + 2 * i);
    }
    if (cut) {
        shape->count = 0;
        *(shape->collective == MUSTER_ALLGATHERV ? &shape->output_bounds : &shape->input_bounds) =
            call->bounds;
    }
}

static bool fits_staging_area(const struct memory_call *call)
{
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < call->shape.ranks; rank++) {
        struct muster_shape shape = call->shape;
        shape.rank = rank;
        uint64_t count = muster_shape_input_count(&shape);
        most = count > most ? count : most;
    }
    return most * sizeof *call->in <= MUSTER_GROUP_STAGING_BYTES;
}

static void draw_method(struct memory_call *call, bool buffers)
{
    bool barrier = call->shape.collective == MUSTER_BARRIER;
    bool fits = fits_staging_area(call);
    bool reads = buffers && !barrier;
    unsigned one_in = call->shape.collective == MUSTER_ALLREDUCE ? 2 : 4;
    if (!barrier && (draw(call, 6, one_in) == 0 || (!fits && !reads))) {
        call->method = MUSTER_MEMORY_SHARES;
    } else if (reads && (!fits || draw(call, 5, 3) == 0)) {
        call->method = MUSTER_MEMORY_BUFFERS;
    } else {
        call->method = MUSTER_MEMORY_STAGED;
    }
}

static void place_buffers(struct memory_call *call, uint64_t *memory)
{
    const struct muster_shape *shape = &call->shape;
    int64_t offset = muster_shape_in_place_offset(shape);
    call->in_place = draw(call, 7, 2) == 1;
    call->out = memory;
    call->in = memory + (size_t)shape->ranks * MEMORY_CALLS_COUNT_MAX;
    if (call->in_place || shape->collective == MUSTER_BROADCAST) {
        call->out = memory + (offset < 0 ? -offset : 0);
        call->in = memory + (offset > 0 ? offset : 0);
    }
}

void memory_call_make(uint64_t seed, uint64_t sequence, const uint32_t *order, uint32_t rank,
                      uint32_t ranks, bool buffers, uint64_t *memory, struct memory_call *ret_call)
{
    struct memory_call *call = ret_call;
    *call = (struct memory_call){.seed = seed, .sequence = sequence, .order = order};
    call->shape.rank = rank;
    call->shape.ranks = ranks;
    call->buffers = buffers;
    draw_shape(call);
    draw_method(call, buffers);
    call->reduction = (struct muster_reduction){.type = MUSTER_UINT64,
                                                .op = MUSTER_USER,
                                                .user_function = join_all,
                                                .prescale = 1,
                                                .postscale = 1};
    call->call = (struct muster_call){.collective = (uint8_t)call->shape.collective,
                                      .type = MUSTER_UINT64,
                                      .op = MUSTER_USER,
                                      .root = call->shape.root,
                                      .count = call->shape.count};
    place_buffers(call, memory);
    for (uint64_t i = 0; i < muster_shape_output_count(&call->shape); i++) {
        call->out[i] = i;
    }
    bool contributes = call->shape.collective != MUSTER_BROADCAST || rank == call->shape.root;
    for (uint64_t i = 0; contributes && i < muster_shape_input_count(&call->shape); i++) {
        call->in[i] = input_at(call, rank, i);
    }
}

struct muster_group_launch memory_call_step(struct memory_call *call, int64_t deadline_ns,
                                            muster_group_check check, void *user)
{
    uint64_t in_count = muster_shape_input_count(&call->shape);
    uint64_t out_count = muster_shape_output_count(&call->shape);
    call->launch = (struct muster_launch){
        .shape = call->shape,
        .sizes = {.in_count = in_count,
                  .out_count = out_count,
                  .in_bytes = in_count * sizeof *call->in,
                  .out_bytes = out_count * sizeof *call->out},
        .sequence = call->sequence,
        .call = call->call,
        .reduction = call->reduction,
        .in = call->in,
        .out = call->out,
        .deadline_ns = deadline_ns,
    };
    return (struct muster_group_launch){.launch = &call->launch,
                                        .method = call->method,
                                        .buffers = call->buffers,
                                        .check = check,
                                        .user = user};
}

/* Checking ------------------------------------------------------------------------------------ */

/* An element of the output: of the input of a rank, or reduced. */
static uint64_t expected_at(const struct memory_call *call, uint64_t element)
{
    const struct muster_shape *shape = &call->shape;
    uint32_t top = 0;
    while (UINT32_C(1) << top < shape->ranks) {
        top++;
    }
    switch (shape->collective) {
    case MUSTER_BROADCAST:
        return input_at(call, shape->root, element);
    case MUSTER_REDUCE_SCATTER:
        return sum_at(call, 0, top, muster_shape_input_block(shape, shape->rank).offset + element);
    case MUSTER_ALLGATHER:
    case MUSTER_ALLGATHERV:
        for (uint32_t rank = 0; rank < shape->ranks; rank++) {
            const struct muster_span block = muster_shape_output_block(shape, rank);
            if (element - block.offset < block.count) {
                return input_at(call, rank, element - block.offset);
            }
        }
        return 0;
    default:
        return sum_at(call, 0, top, element);
    }
}

static bool wrong(const struct memory_call *call, const char *what, uint64_t element,
                  char *ret_text, size_t size)
{
    (void)snprintf(ret_text, size,
                   "%s #%" PRIu64 " method %u count %" PRIu64 "%s: element %" PRIu64
                   " of the %s of rank %u of %u is wrong",
                   muster_collective_name(call->shape.collective), call->sequence, call->method,
                   call->shape.count, call->in_place ? " in place" : "", element, what,
                   call->shape.rank, call->shape.ranks);
    return false;
}

bool memory_call_check(const struct memory_call *call, char *ret_text, size_t size)
{
    for (uint64_t i = 0; i < muster_shape_output_count(&call->shape); i++) {
        if (call->out[i] != expected_at(call, i)) {
            return wrong(call, "output", i, ret_text, size);
        }
    }
    return call->in_place || memory_call_check_input(call, ret_text, size);
}

bool memory_call_check_input(const struct memory_call *call, char *ret_text, size_t size)
{
    bool contributes =
        call->shape.collective != MUSTER_BROADCAST || call->shape.rank == call->shape.root;
    for (uint64_t i = 0; contributes && i < muster_shape_input_count(&call->shape); i++) {
        if (call->in[i] != input_at(call, call->shape.rank, i)) {
            return wrong(call, "input", i, ret_text, size);
        }
    }
    return true;
}

muster_status memory_call_poll(struct muster_group_memory *memory,
                               const struct muster_group_launch *step, bool announces,
                               uint32_t *ret_suspect)
{
    bool advanced = false;
    int64_t spin_ns = (int64_t)(step->launch->sequence % 3 * 1000);
    muster_group_memory_begin_step(memory, step, announces);
    muster_status status = muster_group_memory_poll(memory, spin_ns, &advanced);
    while (status == MUSTER_RETRY && muster_clock_ns() < step->launch->deadline_ns) {
        status = muster_group_memory_check(memory);
        if (status == MUSTER_OK) {
            (void)sched_yield();
            status = muster_group_memory_poll(memory, spin_ns, &advanced);
        }
    }
    return muster_group_memory_end_step(memory, status, ret_suspect);
}
