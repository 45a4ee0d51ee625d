/* Messages and local steps of compressed operations. */
#include "worker/executor/executor_packs.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/reduce/compress.h"
#include "worker/base/cleanup.h"

enum { BLOCK_PACKS = 4 }; /* of INPUT, encoded to be reduced: they stay in the cache */

/* What the schedule says ----------------------------------------------------------------------- */

/* The runs of equal marks that are `wanted`. MUSTER_FATAL: no memory. */
static muster_status list_runs(const uint32_t *marks, uint64_t count, uint32_t wanted,
                               struct muster_span **ret_spans, size_t *ret_count)
{
    size_t runs = 0;
    for (uint64_t i = 0; i < count; i++) {
        runs += marks[i] == wanted && (i == 0 || marks[i - 1] != wanted);
    }
    struct muster_span *spans = calloc(runs + 1, sizeof *spans);
    if (spans == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %zu spans", runs);
    }
    size_t run = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (marks[i] != wanted) {
            continue;
        }
        if (i == 0 || marks[i - 1] != wanted) {
            spans[run++].offset = i;
        }
        spans[run - 1].count++;
    }
    *ret_spans = spans;
    *ret_count = runs;
    return MUSTER_OK;
}

static void mark(uint32_t *marks, uint64_t first, uint64_t count, uint32_t value)
{
    for (uint64_t i = 0; i < count; i++) {
        marks[first + i] = value;
    }
}

/* 1: the packs of INPUT that are sent from there. */
static muster_status find_sent(const struct muster_schedule *schedule,
                               struct muster_pack_plan *plan)
{
    AUTO_FREE uint32_t *marks = calloc(schedule->input_count + 1, sizeof *marks);
    if (marks == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a compressed operation");
    }
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        if (step->kind == MUSTER_STEP_SEND && step->source == MUSTER_INPUT) {
            mark(marks, step->span.offset, step->span.count, 1);
        }
    }
    return list_runs(marks, schedule->input_count, 1, &plan->sent, &plan->sent_count);
}

static bool is_all(const uint32_t *marks, uint64_t first, uint64_t count, uint32_t value)
{
    uint64_t i = 0;
    while (i < count && marks[first + i] == value) {
        i++;
    }
    return i == count;
}

/* Marks each pack of OUTPUT with the step that writes it last, plus 1. Steps are in the order of
 * rounds within a lane, and no other lane writes the same pack. Receives that write all of their
 * packs last decode them; what they decode is marked with UINT32_MAX, the rest is left. */
static muster_status find_left(const struct muster_schedule *schedule,
                               struct muster_pack_plan *plan)
{
    uint64_t count = schedule->output_count;
    AUTO_FREE uint32_t *marks = calloc(count + 1, sizeof *marks);
    if (marks == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a compressed operation");
    }
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        if (step->kind != MUSTER_STEP_SEND && step->target == MUSTER_OUTPUT) {
            mark(marks, step->at, step->span.count, (uint32_t)i + 1);
        }
    }
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        plan->decodes[i] = step->kind == MUSTER_STEP_RECV && step->target == MUSTER_OUTPUT &&
                           is_all(marks, step->at, step->span.count, (uint32_t)i + 1);
        if (plan->decodes[i]) {
            mark(marks, step->at, step->span.count, UINT32_MAX);
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        marks[i] = marks[i] == UINT32_MAX;
    }
    return list_runs(marks, count, 0, &plan->left, &plan->left_count);
}

muster_status muster_pack_plan_create(const struct muster_schedule *schedule,
                                      struct muster_pack_plan **ret_plan)
{
    struct muster_pack_plan *plan = calloc(1, sizeof *plan);
    if (plan != NULL) {
        plan->decodes = calloc(schedule->step_count + 1, sizeof *plan->decodes);
    }
    if (plan == NULL || plan->decodes == NULL) {
        free(plan);
        return muster_error_set(MUSTER_FATAL, "no memory for a compressed operation");
    }
    muster_status status = find_sent(schedule, plan);
    status = status == MUSTER_OK ? find_left(schedule, plan) : status;
    if (status != MUSTER_OK) {
        muster_pack_plan_destroy(plan);
        return status;
    }
    *ret_plan = plan;
    return MUSTER_OK;
}

void muster_pack_plan_destroy(struct muster_pack_plan *plan)
{
    if (plan != NULL) {
        free(plan->sent);
        free(plan->left);
        free(plan->decodes);
        free(plan);
    }
}

/* Between elements and packs ------------------------------------------------------------------- */

/* Of so many elements from the place on, how many follow each other there: whole packs, or all.
 * *ret_there: the first of them. 0: the first pack lies in several ranges. */
static uint64_t run_of_packs(struct muster_place place, uint64_t count, uint64_t each,
                             float **ret_there)
{
    uint64_t bytes = count * sizeof(float);
    *ret_there = (float *)(void *)muster_place_at(&place, &bytes); /* ranges are aligned */
    uint64_t run = bytes / sizeof(float);
    return run < count ? run / each * each : count;
}

/* Encodes so many elements of a block, from its beginning or from that of another of its packs. A
 * pack that lies in several ranges is put together first, so that its bytes are the same however
 * its elements lie. */
static void encode_from(muster_compression compression, struct muster_place place, uint64_t count,
                        char *packs)
{
    const uint64_t each = muster_pack_elements(compression);
    while (count > 0) {
        float pack[MUSTER_PACK_ELEMENTS_MAX];
        float *there = NULL;
        uint64_t some = run_of_packs(place, count, each, &there);
        if (some == 0) {
            some = count < each ? count : each;
            there = pack;
            muster_place_copy((struct muster_place){.base = (char *)pack}, place,
                              some * sizeof(float));
        }
        muster_compress(compression, packs, there, some);
        packs += (some + each - 1) / each * muster_pack_bytes(compression);
        place = muster_place_advance(place, some * sizeof(float));
        count -= some;
    }
}

static void decode_to(muster_compression compression, struct muster_place place, uint64_t count,
                      const char *packs)
{
    const uint64_t each = muster_pack_elements(compression);
    while (count > 0) {
        float pack[MUSTER_PACK_ELEMENTS_MAX];
        float *there = NULL;
        uint64_t some = run_of_packs(place, count, each, &there);
        if (some > 0) {
            muster_decompress(compression, there, packs, some);
        } else {
            some = count < each ? count : each;
            muster_decompress(compression, pack, packs, some);
            muster_place_copy(place, (struct muster_place){.base = (char *)pack},
                              some * sizeof(float));
        }
        packs += (some + each - 1) / each * muster_pack_bytes(compression);
        place = muster_place_advance(place, some * sizeof(float));
        count -= some;
    }
}

/* Encodes the packs of the span from the elements of INPUT, to `packs`. */
static void encode(const struct muster_operation *operation, struct muster_span span, char *packs)
{
    const struct muster_launch *launch = operation->launch;
    const struct muster_place input = {.base = (char *)launch->in, /* only read */
                                       .ranges = launch->in_ranges};
    bool blocks = launch->shape.collective == MUSTER_REDUCE_SCATTER;
    while (span.count > 0) {
        uint64_t count;
        struct muster_span some = muster_packing_elements(&launch->packing, blocks, span, &count);
        encode_from(launch->packing.compression,
                    muster_place_advance(input, some.offset * sizeof(float)), some.count, packs);
        packs += count * operation->element_size_bytes;
        span.offset += count;
        span.count -= count;
    }
}

/* Decodes the packs of the span to the elements of OUTPUT. */
static void decode(const struct muster_operation *operation, struct muster_span span,
                   const char *packs)
{
    const struct muster_launch *launch = operation->launch;
    const struct muster_place output = {.base = launch->out, .ranges = launch->out_ranges};
    bool blocks = launch->shape.collective == MUSTER_ALLGATHER;
    while (span.count > 0) {
        uint64_t count;
        struct muster_span some = muster_packing_elements(&launch->packing, blocks, span, &count);
        decode_to(launch->packing.compression,
                  muster_place_advance(output, some.offset * sizeof(float)), some.count, packs);
        packs += count * operation->element_size_bytes;
        span.offset += count;
        span.count -= count;
    }
}

static char *packs_at(const struct muster_operation *operation, uint8_t buffer, uint64_t offset)
{
    return operation->buffers[buffer] + offset * operation->element_size_bytes;
}

/* target = the packs of this span of a buffer op `right`. Elements of INPUT are encoded first, and
 * so two ranks that reduce each other's data get equal bits. */
static void combine(const struct muster_operation *operation, char *target, uint8_t buffer,
                    struct muster_span left, const char *right)
{
    const struct muster_launch *launch = operation->launch;
    muster_compression compression = launch->packing.compression;
    size_t bytes = operation->element_size_bytes;
    if (buffer != MUSTER_INPUT) {
        muster_compress_combine(compression, launch->reduction.op, target,
                                packs_at(operation, buffer, left.offset), right, left.count);
        return;
    }
    for (uint64_t first = 0; first < left.count; first += BLOCK_PACKS) {
        char block[BLOCK_PACKS * MUSTER_PACK_BYTES_MAX];
        uint64_t rest = left.count - first;
        uint64_t some = rest < BLOCK_PACKS ? rest : BLOCK_PACKS;
        encode(operation, (struct muster_span){.offset = left.offset + first, .count = some},
               block);
        muster_compress_combine(compression, launch->reduction.op, target + first * bytes, block,
                                right + first * bytes, some);
    }
}

/* A launch ------------------------------------------------------------------------------------- */

void muster_operation_prepare_packs(struct muster_operation *operation)
{
    const struct muster_launch *launch = operation->launch;
    const struct muster_pack_plan *plan = operation->packs;
    operation->element_size_bytes = muster_pack_bytes(launch->packing.compression);
    operation->buffers[MUSTER_INPUT] = launch->packs;
    operation->buffers[MUSTER_OUTPUT] =
        packs_at(operation, MUSTER_INPUT, operation->schedule.input_count);
    for (size_t i = 0; i < plan->sent_count; i++) {
        encode(operation, plan->sent[i], packs_at(operation, MUSTER_INPUT, plan->sent[i].offset));
    }
}

static void consume_and_combine(struct muster_transfer *transfer, uint64_t offset_bytes,
                                const void *data, size_t size_bytes)
{
    const struct muster_step_message *message = transfer->owner;
    const struct muster_operation *operation = message->lane->operation;
    const struct muster_step *step = message->step;
    uint64_t first = offset_bytes / operation->element_size_bytes;
    const struct muster_span left = {.offset = step->span.offset + first,
                                     .count = size_bytes / operation->element_size_bytes};
    combine(operation, packs_at(operation, step->target, step->at + first), step->source, left,
            data);
}

/* The packs are kept, too: they may be sent on. */
static void consume_and_decode(struct muster_transfer *transfer, uint64_t offset_bytes,
                               const void *data, size_t size_bytes)
{
    const struct muster_step_message *message = transfer->owner;
    const struct muster_operation *operation = message->lane->operation;
    uint64_t first = message->step->at + offset_bytes / operation->element_size_bytes;
    memcpy(packs_at(operation, MUSTER_OUTPUT, first), data, size_bytes);
    decode(
        operation,
        (struct muster_span){.offset = first, .count = size_bytes / operation->element_size_bytes},
        data);
}

void muster_message_prepare_packs(struct muster_step_message *message)
{
    const struct muster_operation *operation = message->lane->operation;
    if (message->step->kind == MUSTER_STEP_RECV_REDUCE) {
        message->transfer.consume = consume_and_combine;
    } else if (operation->packs->decodes[message->step - operation->schedule.steps]) {
        message->transfer.consume = consume_and_decode;
    }
}

void muster_operation_step_packs(const struct muster_operation *operation,
                                 const struct muster_step *step)
{
    char *target = packs_at(operation, step->target, step->at);
    const char *source = packs_at(operation, step->source, step->span.offset);
    if (step->kind == MUSTER_STEP_COPY && step->source == MUSTER_INPUT) {
        encode(operation, step->span, target);
    } else if (step->kind == MUSTER_STEP_COPY) {
        memmove(target, source, step->span.count * operation->element_size_bytes);
    } else {
        combine(operation, target, step->source, step->span, target);
    }
}

void muster_operation_finish_packs(const struct muster_operation *operation)
{
    for (size_t i = 0; i < operation->packs->left_count; i++) {
        struct muster_span left = operation->packs->left[i];
        decode(operation, left, packs_at(operation, MUSTER_OUTPUT, left.offset));
    }
}
