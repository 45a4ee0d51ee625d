/* Calls on memory of a device: finds it, and copies between it and memory of the host. */
#include "worker/context/device_staging.h"

#include <string.h>

#include "collectives/reduce/reduce.h"
#include "worker/base/clock.h"
#include "worker/base/status.h"
#include "worker/context/scratch.h"
#include "worker/device/devices.h"
#include "worker/trace/timeline.h"

enum { MOVED_BYTES_MIN = 512 << 10 }; /* below, a copy before and one after cost less */

static uint32_t buffers_of(const struct muster_request *request)
{
    return request->buffer_count > 0 ? request->buffer_count : 1;
}

static const void *input_of(const struct muster_request *request, uint32_t index)
{
    bool several = request->buffer_count > 0;
    return !several ? request->in : request->inputs != NULL ? request->inputs[index] : NULL;
}

static void *output_of(const struct muster_request *request, uint32_t index)
{
    return request->buffer_count > 0 ? request->outputs[index] : request->out;
}

/* The inputs, then the outputs. */
static const void *buffer_of(const struct muster_request *request, uint32_t index)
{
    uint32_t count = buffers_of(request);
    return index < count ? input_of(request, index) : output_of(request, index - count);
}

bool muster_request_is_on_device(const struct muster_request *request)
{
    struct muster_device_memory memory;
    uint32_t count = muster_devices_active() ? 2 * buffers_of(request) : 0;
    for (uint32_t i = 0; i < count; i++) {
        if (muster_device_find(buffer_of(request, i), &memory)) {
            return true;
        }
    }
    return false;
}

/* Direct -------------------------------------------------------------------------------------- */

/* The output may be memory of another device than the input, or of none. */
static muster_status begin_direct(struct muster_device_call *call)
{
    const struct muster_request *request = call->original;
    struct muster_device_pair *pair = &call->pairs[0];
    const void *in = request->collective == MUSTER_BROADCAST ? request->out : request->in;
    pair->in_on_device = muster_device_find(in, &pair->in_memory);
    pair->out_on_device = muster_device_find(request->out, &pair->out_memory);
    bool same = pair->in_on_device && pair->in_memory.device == pair->out_memory.device &&
                pair->in_memory.context == pair->out_memory.context;
    if (pair->in_on_device && !call->in_order) {
        TRY(pair->in_memory.device->wait(&pair->in_memory));
    }
    if (pair->out_on_device && !same && !call->in_order) {
        TRY(pair->out_memory.device->wait(&pair->out_memory));
    }
    call->request = *request;
    return MUSTER_OK;
}

void muster_device_call_bind(struct muster_device_call *call, struct muster_launch *launch)
{
    const struct muster_device_pair *pair = &call->pairs[0];
    launch->moves = call->moves ? &call->launch_moves : NULL;
    if (!call->direct) {
        return;
    }
    launch->in_memory = pair->in_on_device ? &pair->in_memory : NULL;
    launch->out_memory = pair->out_on_device ? &pair->out_memory : NULL;
}

muster_status muster_device_call_finish(const struct muster_launch *launch)
{
    const struct muster_device_memory *memory = launch->out_memory;
    if (!muster_collective_reduces(launch->shape.collective) || launch->sizes.out_count == 0 ||
        !muster_reduction_has_finish(&launch->reduction, launch->contributions)) {
        return MUSTER_OK;
    }
    return memory->device->finish(memory, &launch->reduction, launch->out, launch->sizes.out_count,
                                  launch->contributions);
}

/* Laying out ---------------------------------------------------------------------------------- */

/* Places the pair in the staging memory from `offset` on, and returns where it ends. Buffers that
 * overlap do so in the same way there. */
static uint64_t lay_out(struct muster_device_call *call, uint32_t index, uint64_t offset)
{
    struct muster_device_pair *pair = &call->pairs[index];
    const void *input = input_of(call->original, index);
    const void *output = output_of(call->original, index);
    uintptr_t in = (uintptr_t)input;
    uintptr_t out = (uintptr_t)output;
    pair->in_on_device = call->in_bytes > 0 && muster_device_find(input, &pair->in_memory);
    pair->out_on_device = call->out_bytes > 0 && muster_device_find(output, &pair->out_memory);
    pair->in_offset = pair->out_offset = offset;
    if (pair->in_on_device && pair->out_on_device &&
        muster_buffers_overlap(input, call->in_bytes, output, call->out_bytes)) {
        uintptr_t first = in < out ? in : out;
        uint64_t in_end = in + call->in_bytes - first;
        uint64_t out_end = out + call->out_bytes - first;
        pair->in_offset += in - first;
        pair->out_offset += out - first;
        return offset + muster_scratch_aligned(in_end > out_end ? in_end : out_end);
    }
    pair->out_offset += pair->in_on_device ? muster_scratch_aligned(call->in_bytes) : 0;
    return pair->out_offset + (pair->out_on_device ? muster_scratch_aligned(call->out_bytes) : 0);
}

static void make_request(struct muster_device_call *call, char *memory)
{
    const struct muster_request *original = call->original;
    for (uint32_t i = 0; i < call->count; i++) {
        const struct muster_device_pair *pair = &call->pairs[i];
        call->inputs[i] = pair->in_on_device ? memory + pair->in_offset : input_of(original, i);
        call->outputs[i] = pair->out_on_device ? memory + pair->out_offset : output_of(original, i);
    }
    call->request = *original;
    call->request.in = call->inputs[0];
    call->request.out = call->outputs[0];
    if (original->buffer_count > 0) {
        call->request.inputs = original->inputs != NULL ? call->inputs : NULL;
        call->request.outputs = call->outputs;
    }
}

/* Copying ------------------------------------------------------------------------------------- */

/* Where a stream may be held until this call or another one in flight ends, its copies must not
 * stand behind the program's work on the default stream. */
static bool uses_queues(const struct muster_device_call *call)
{
    return call->in_flight || call->original->stream != 0;
}

static muster_status copy_in_queue(const struct muster_device_room *room, void *queue, void *to,
                                   const void *from, uint64_t size_bytes, int64_t until_ns)
{
    uint64_t before = 0;
    uint64_t done = 0;
    TRY(room->queues->poll(queue, &before));
    TRY(room->queues->copy(queue, to, from, size_bytes));
    while (done <= before) {
        if (muster_clock_ns() >= until_ns && room->queues->drop(queue) <= before) {
            return muster_error_set(MUSTER_RETRY,
                                    "the deadline passed while it waited for the program's stream");
        }
        TRY(room->queues->poll(queue, &done));
    }
    return MUSTER_OK;
}

static muster_status copy(const struct muster_device_call *call,
                          const struct muster_device_memory *memory, bool fetches, void *to,
                          const void *from, uint64_t size_bytes)
{
    const struct muster_device_room *room = call->room;
    int64_t started_ns = muster_timeline_clock(call->timeline);
    if (uses_queues(call)) {
        TRY(copy_in_queue(room, fetches ? room->fetches : room->stores, to, from, size_bytes,
                          fetches ? call->original->deadline_ns : MUSTER_NEVER));
    } else {
        TRY(memory->device->copy(memory, to, from, size_bytes));
    }
    muster_timeline_add_local(call->timeline, MUSTER_TIMELINE_DEVICE_COPY, started_ns, size_bytes,
                              (struct muster_timeline_operation){.sequence = 0});
    return MUSTER_OK;
}

/* The first buffer of the call that is memory of a device. */
static const struct muster_device_memory *first_memory(const struct muster_device_call *call)
{
    for (uint32_t i = 0; i < call->count; i++) {
        const struct muster_device_pair *pair = &call->pairs[i];
        if (pair->in_on_device || pair->out_on_device) {
            return pair->in_on_device ? &pair->in_memory : &pair->out_memory;
        }
    }
    return NULL;
}

static muster_status copy_inputs(const struct muster_device_call *call)
{
    for (uint32_t i = 0; i < call->count; i++) {
        const struct muster_device_pair *pair = &call->pairs[i];
        if (pair->in_on_device) {
            TRY(copy(call, &pair->in_memory, true, (void *)call->inputs[i],
                     input_of(call->original, i), call->in_bytes));
        }
        if (pair->out_on_device && call->output_is_input) {
            TRY(copy(call, &pair->out_memory, true, call->outputs[i], output_of(call->original, i),
                     call->out_bytes));
        }
    }
    return MUSTER_OK;
}

/* The operation moves the buffers. Only those in one memory of a device, or in memory of the host.
 */
static bool can_move(const struct muster_device_call *call)
{
    const struct muster_device_pair *pair = &call->pairs[0];
    uint64_t bytes = call->in_bytes > call->out_bytes ? call->in_bytes : call->out_bytes;
    bool same = !pair->in_on_device || !pair->out_on_device ||
                (pair->in_memory.device == pair->out_memory.device &&
                 pair->in_memory.context == pair->out_memory.context);
    return call->may_move && same && (bytes >= MOVED_BYTES_MIN || call->original->stream != 0);
}

/* Copies come after what the program has enqueued, and the stream after the call. */
static muster_status order(const struct muster_device_call *call)
{
    const struct muster_device_room *room = call->room;
    uintptr_t stream = call->original->stream;
    TRY(muster_device_room_open_queues(call->room));
    TRY(room->queues->follow(room->fetches, stream));
    TRY(room->queues->follow(room->stores, stream));
    return stream != 0 ? room->queues->hold(room->stores, stream) : MUSTER_OK;
}

/* A broadcast reads and writes its output buffer. */
static muster_status begin_moves(struct muster_device_call *call)
{
    const struct muster_device_room *room = call->room;
    const struct muster_device_pair *pair = &call->pairs[0];
    const struct muster_request *original = call->original;
    bool broadcasts = original->collective == MUSTER_BROADCAST;
    bool fetches = broadcasts ? call->output_is_input && pair->out_on_device : pair->in_on_device;
    call->launch_moves = (struct muster_launch_moves){
        .queues = room->queues,
        .in = fetches ? (broadcasts ? original->out : original->in) : NULL,
        .out = pair->out_on_device ? original->out : NULL,
        .fetches = room->fetches,
        .stores = room->stores};
    return MUSTER_OK;
}

/* A stream is that of the GPU which has all buffers. */
static muster_status check_stream(const struct muster_device_call *call,
                                  const struct muster_device_memory *memory)
{
    bool good = true;
    for (uint32_t i = 0; i < call->count; i++) {
        const struct muster_device_pair *pair = &call->pairs[i];
        bool in = call->in_bytes == 0 ||
                  (pair->in_on_device && pair->in_memory.context == memory->context);
        bool out = call->out_bytes == 0 ||
                   (pair->out_on_device && pair->out_memory.context == memory->context);
        good = good && in && out;
    }
    return good || call->original->stream == 0
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID,
                                  "a call on a stream has a buffer that is not memory of its GPU");
}

static muster_status begin_staged(struct muster_device_call *call, struct muster_device_room *room)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < call->count; i++) {
        end = lay_out(call, i, end);
    }
    const struct muster_device_memory *memory = first_memory(call);
    if (memory == NULL) { /* of buffers without elements */
        call->request = *call->original;
        call->count = 0;
        return MUSTER_OK;
    }
    TRY(muster_device_room_reserve(room, memory, end));
    call->room = room;
    make_request(call, room->memory);
    call->moves = can_move(call);
    TRY(check_stream(call, memory));
    if (call->moves || uses_queues(call)) {
        TRY(order(call));
    }
    muster_status status = call->moves ? begin_moves(call) : copy_inputs(call);
    if (status != MUSTER_OK) {
        muster_device_call_release(call);
    }
    return status;
}

void muster_device_call_release(struct muster_device_call *call)
{
    if (call->room != NULL && call->original->stream != 0) {
        call->room->queues->release(call->room->stores);
    }
}

muster_status muster_device_call_begin(struct muster_device_call *call,
                                       struct muster_device_room *room,
                                       const struct muster_request *request,
                                       const struct muster_launch *launch)
{
    const struct muster_shape *shape = &launch->shape;
    bool broadcasts = shape->collective == MUSTER_BROADCAST;
    call->original = request;
    call->in_bytes = broadcasts ? 0 : launch->sizes.in_bytes;
    call->out_bytes = launch->sizes.out_bytes;
    call->output_is_input = broadcasts && shape->rank == shape->root;
    call->count = buffers_of(request);
    call->room = NULL;
    call->moves = false;
    if (call->launch_moves.failed) { /* the launch before */
        muster_device_room_abandon(room);
    }
    call->launch_moves = (struct muster_launch_moves){0};
    return call->direct ? begin_direct(call) : begin_staged(call, room);
}

muster_status muster_device_call_end(const struct muster_device_call *call)
{
    for (uint32_t i = 0; i < call->count && !call->direct && !call->moves; i++) {
        const struct muster_device_pair *pair = &call->pairs[i];
        if (pair->out_on_device) {
            TRY(copy(call, &pair->out_memory, false, output_of(call->original, i), call->outputs[i],
                     call->out_bytes));
        }
    }
    return MUSTER_OK;
}
