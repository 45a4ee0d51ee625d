/* Carries steps out: ROUND, DESCRIBE and the operations on tensors as collectives of the context.
 *
 * Each operation on tensors makes both promises: the input is kept, and nobody finishes before all
 * have started. These are part of the call that ranks compare, so it is never taken for a ROUND. */
#include <stdlib.h>
#include <string.h>

#include "collectives/call/request_ranges.h"
#include "worker/base/array.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/device/devices.h"
#include "worker/engine/engine_parts.h"

static muster_status run(struct muster_engine *engine, struct muster_request request)
{
    request.deadline_ns = muster_clock_soon_after_ms(engine->options.timeout_ms);
    return engine->options.context.run(engine->options.context.owner, &request);
}

/* Agreements ----------------------------------------------------------------------------------- */

muster_status muster_engine_run_round(struct muster_engine *engine,
                                      const struct muster_agreement_step *step)
{
    return run(engine, (struct muster_request){.collective = MUSTER_ALLREDUCE,
                                               .in = step->words,
                                               .out = step->words,
                                               .count = step->word_count,
                                               .type = MUSTER_UINT64,
                                               .op = MUSTER_BITWISE_AND,
                                               .untuned = true});
}

/* Threads that submit use the agreement meanwhile. */
static muster_status describe(struct muster_engine *engine, const unsigned char **ret_bytes,
                              size_t *ret_size)
{
    AUTO_LOCK(&engine->mutex);
    return muster_agreement_describe(engine->agreement, ret_bytes, ret_size);
}

static muster_status described(struct muster_engine *engine, uint32_t rank,
                               const unsigned char *bytes, size_t size)
{
    AUTO_LOCK(&engine->mutex);
    return muster_agreement_described(engine->agreement, rank, bytes, size);
}

/* No rank sends more. */
static muster_status check_size(uint32_t rank, uint64_t size)
{
    return size <= MUSTER_ENGINE_BLOB_BYTES
               ? MUSTER_OK
               : muster_error_set(MUSTER_FATAL,
                                  "rank %u has %llu bytes of descriptions, more than %d", rank,
                                  (unsigned long long)size, MUSTER_ENGINE_BLOB_BYTES);
}

/* One rank's descriptions, first the size. */
static muster_status tell_all(struct muster_engine *engine, uint32_t root)
{
    const unsigned char *own = NULL;
    size_t size = 0;
    if (engine->options.rank == root) {
        TRY(describe(engine, &own, &size));
    }
    uint64_t told = size;
    TRY(run(engine, (struct muster_request){.collective = MUSTER_BROADCAST,
                                            .out = &told,
                                            .count = 1,
                                            .type = MUSTER_UINT64,
                                            .root = root,
                                            .untuned = true}));
    if (told == 0) {
        return MUSTER_OK;
    }
    TRY(check_size(root, told));
    AUTO_FREE unsigned char *bytes = malloc(told);
    if (bytes == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for descriptions of tensors");
    }
    if (engine->options.rank == root) {
        memcpy(bytes, own, size);
    }
    TRY(run(engine, (struct muster_request){.collective = MUSTER_BROADCAST,
                                            .out = bytes,
                                            .count = told,
                                            .type = MUSTER_UINT8,
                                            .root = root,
                                            .untuned = true}));
    return described(engine, root, bytes, told);
}

/* What each rank still has. */
static muster_status tell_each(struct muster_engine *engine, uint32_t first)
{
    uint32_t ranks = engine->options.ranks;
    const unsigned char *own = NULL;
    size_t size = 0;
    uint64_t total = 0;
    TRY(describe(engine, &own, &size));
    uint64_t own_size = size;
    AUTO_FREE uint64_t *sizes = calloc(ranks, sizeof *sizes);
    AUTO_FREE size_t *counts = calloc(ranks, sizeof *counts);
    AUTO_FREE size_t *starts = calloc(ranks, sizeof *starts);
    if (sizes == NULL || counts == NULL || starts == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for descriptions of tensors");
    }
    TRY(run(engine, (struct muster_request){.collective = MUSTER_ALLGATHER,
                                            .in = &own_size,
                                            .out = sizes,
                                            .count = 1,
                                            .type = MUSTER_UINT64,
                                            .untuned = true}));
    for (uint32_t rank = 0; rank < ranks; rank++) {
        TRY(check_size(rank, sizes[rank]));
        starts[rank] = total;
        counts[rank] = sizes[rank];
        total += sizes[rank];
    }
    if (total == 0) {
        return MUSTER_OK;
    }
    AUTO_FREE unsigned char *bytes = malloc(total);
    if (bytes == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for descriptions of tensors");
    }
    TRY(run(engine, (struct muster_request){.collective = MUSTER_ALLGATHERV,
                                            .in = own,
                                            .out = bytes,
                                            .out_counts = counts,
                                            .type = MUSTER_UINT8,
                                            .untuned = true}));
    for (uint32_t i = 0; i < ranks; i++) {
        uint32_t rank = (first + i) % ranks;
        TRY(described(engine, rank, bytes + starts[rank], counts[rank]));
    }
    return MUSTER_OK;
}

muster_status muster_engine_run_describe(struct muster_engine *engine,
                                         const struct muster_agreement_step *step)
{
    TRY(tell_all(engine, step->first_rank));
    return tell_each(engine, step->first_rank);
}

/* Tensors -------------------------------------------------------------------------------------- */

static struct muster_request request_of(const struct muster_description *description,
                                        enum muster_collective collective)
{
    return (struct muster_request){
        .collective = collective,
        .type = (muster_type)description->type,
        .op = muster_collective_reduces(collective) ? (muster_op)description->op : MUSTER_SUM,
        .root = description->root,
        .prescale = muster_collective_reduces(collective) ? description->prescale : 0,
        .postscale = muster_collective_reduces(collective) ? description->postscale : 0,
        .factors_set =
            muster_collective_reduces(collective) ? MUSTER_PRESCALE_SET | MUSTER_POSTSCALE_SET : 0,
        .reproducible = (description->flags & MUSTER_TENSOR_REPRODUCIBLE) != 0,
        .keep_input = true,
        .finish_together = true};
}

/* One buffer each. */
static muster_status run_single(struct muster_engine *engine,
                                const struct muster_description *description,
                                enum muster_collective collective)
{
    const muster_tensor *tensor = &engine->entries[0]->tensor;
    struct muster_request request = request_of(description, collective);
    request.in = tensor->in;
    request.out = tensor->out;
    request.count = tensor->count;
    return run(engine, request);
}

static bool reserve_ranges(struct muster_engine *engine, size_t count)
{
    if (count <= engine->range_room) {
        return true;
    }
    if (!muster_array_resize(&engine->ins, count, sizeof *engine->ins) ||
        !muster_array_resize(&engine->outs, count, sizeof *engine->outs)) {
        return false;
    }
    engine->range_room = count;
    return true;
}

static muster_status copy_in(const struct muster_engine *engine, size_t count, size_t size_bytes,
                             bool from_out, unsigned char *target)
{
    for (size_t i = 0; i < count; i++) {
        const muster_tensor *tensor = &engine->entries[i]->tensor;
        TRY(muster_devices_copy(target, from_out ? tensor->out : tensor->in,
                                tensor->count * size_bytes));
        target += tensor->count * size_bytes;
    }
    return MUSTER_OK;
}

static muster_status copy_out(const struct muster_engine *engine, size_t count, size_t size_bytes,
                              const unsigned char *source)
{
    for (size_t i = 0; i < count; i++) {
        const muster_tensor *tensor = &engine->entries[i]->tensor;
        TRY(muster_devices_copy(tensor->out, source, tensor->count * size_bytes));
        source += tensor->count * size_bytes;
    }
    return MUSTER_OK;
}

/* Copied together: `memory` has room for both buffers, of `bytes` each. */
static muster_status run_packed(struct muster_engine *engine,
                                const struct muster_description *description, size_t count,
                                unsigned char *memory, size_t bytes)
{
    bool broadcasts = description->kind == MUSTER_TENSOR_BROADCAST;
    size_t size_bytes = muster_type_size_bytes((muster_type)description->type);
    struct muster_request request =
        request_of(description, broadcasts ? MUSTER_BROADCAST : MUSTER_ALLREDUCE);
    TRY(copy_in(engine, count, size_bytes, broadcasts, memory));
    request.in = broadcasts ? NULL : memory;
    request.out = broadcasts ? memory : memory + bytes;
    request.count = bytes / size_bytes;
    TRY(run(engine, request));
    return copy_out(engine, count, size_bytes, request.out);
}

static int compare_addresses(const void *one, const void *other)
{
    const muster_range *ranges[2] = {one, other};
    uintptr_t left = (uintptr_t)ranges[0]->address;
    uintptr_t right = (uintptr_t)ranges[1]->address;
    return (left > right) - (left < right);
}

/* Whether memory of one tensor is also another's, which an operation on ranges does not allow. The
 * lists of the engine are used for it. */
static bool share_memory(struct muster_engine *engine, size_t count, size_t size_bytes)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        const muster_tensor *tensor = &engine->entries[i]->tensor;
        engine->ins[used++] = (muster_range){tensor->out, tensor->count};
        if (tensor->in != NULL && tensor->in != tensor->out) {
            engine->ins[used++] = (muster_range){(void *)tensor->in, tensor->count};
        }
    }
    qsort(engine->ins, used, sizeof *engine->ins, compare_addresses);
    for (size_t i = 0; i + 1 < used; i++) {
        uintptr_t end = (uintptr_t)engine->ins[i].address + engine->ins[i].count * size_bytes;
        if (engine->ins[i].count > 0 && end > (uintptr_t)engine->ins[i + 1].address &&
            engine->ins[i + 1].count > 0) {
            return true;
        }
    }
    return false;
}

static muster_status run_ranges(struct muster_engine *engine,
                                const struct muster_description *description, size_t count)
{
    bool broadcasts = description->kind == MUSTER_TENSOR_BROADCAST;
    struct muster_request request =
        request_of(description, broadcasts ? MUSTER_BROADCAST : MUSTER_ALLREDUCE);
    for (size_t i = 0; i < count; i++) {
        const muster_tensor *tensor = &engine->entries[i]->tensor;
        engine->ins[i] = (muster_range){(void *)tensor->in, tensor->count};
        engine->outs[i] = (muster_range){tensor->out, tensor->count};
    }
    const struct muster_given_ranges given = {broadcasts ? NULL : engine->ins, engine->outs,
                                              broadcasts ? 0 : count, count};
    request.ranges = &given;
    return run(engine, request);
}

/* Whether some tensors are in place and others are not, which one operation on ranges cannot be. */
static bool is_mixed(const struct muster_engine *engine, size_t count)
{
    size_t in_place = 0;
    for (size_t i = 0; i < count; i++) {
        const muster_tensor *tensor = &engine->entries[i]->tensor;
        in_place += tensor->in == tensor->out;
    }
    return in_place != 0 && in_place != count;
}

/* Allreduce or broadcast of any number of tensors. */
static muster_status run_fused(struct muster_engine *engine,
                               const struct muster_description *description, size_t count)
{
    bool broadcasts = description->kind == MUSTER_TENSOR_BROADCAST;
    size_t size_bytes = muster_type_size_bytes((muster_type)description->type);
    size_t bytes = 0;
    if (count == 1) {
        return run_single(engine, description, broadcasts ? MUSTER_BROADCAST : MUSTER_ALLREDUCE);
    }
    for (size_t i = 0; i < count; i++) {
        bytes += engine->entries[i]->tensor.count * size_bytes;
    }
    if (bytes <= MUSTER_ENGINE_PACK_BYTES && !muster_devices_active()) {
        return run_packed(engine, description, count, engine->pack, bytes);
    }
    if (!reserve_ranges(engine, 2 * count)) {
        return muster_error_set(MUSTER_FATAL, "no memory for %zu tensors", count);
    }
    if ((broadcasts || !is_mixed(engine, count)) && !share_memory(engine, count, size_bytes)) {
        return run_ranges(engine, description, count);
    }
    AUTO_FREE unsigned char *memory = malloc(2 * bytes);
    if (memory == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to copy %zu tensors together", count);
    }
    return run_packed(engine, description, count, memory, bytes);
}

muster_status muster_engine_run_tensors(struct muster_engine *engine,
                                        const struct muster_description *description, size_t count)
{
    switch (description->kind) {
    case MUSTER_TENSOR_REDUCE_SCATTER:
        return run_single(engine, description, MUSTER_REDUCE_SCATTER);
    case MUSTER_TENSOR_ALLGATHER:
        return muster_engine_run_allgather(engine, description);
    case MUSTER_TENSOR_ALLTOALL:
        return muster_engine_run_alltoall(engine, description);
    case MUSTER_TENSOR_BARRIER:
        return run(engine, (struct muster_request){.collective = MUSTER_BARRIER,
                                                   .keep_input = true,
                                                   .finish_together = true});
    default:
        return run_fused(engine, description, count);
    }
}
