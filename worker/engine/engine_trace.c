/* What the engine adds to the timeline: the tensors of each operation. */
#include "worker/engine/engine_trace.h"

#include "worker/base/clock.h"

enum { BATCH = 64 };

void muster_engine_trace_submitted_locked(struct muster_engine *engine,
                                          struct muster_engine_entry *entry)
{
    struct muster_timeline *timeline = engine->options.timeline;
    entry->submitted_ns = muster_timeline_tensor_clock(timeline);
    if (entry->submitted_ns != 0) {
        entry->trace_name = muster_timeline_tensor_name(timeline, entry->tensor.name);
    }
}

int64_t muster_engine_trace_clock(const struct muster_engine *engine)
{
    return muster_timeline_records(engine->options.timeline) ? muster_clock_ns() : 0;
}

/* In the agreed order no message tells when the other ranks have submitted. */
void muster_engine_trace_run_locked(struct muster_engine *engine,
                                    const struct muster_agreement_step *step, int64_t started_ns)
{
    struct muster_timeline_tensor tensors[BATCH];
    uint32_t used = 0;
    uint32_t missed = 0;
    int64_t done_ns = started_ns != 0 ? muster_clock_ns() : 0;
    for (uint32_t i = 0; started_ns != 0 && i < step->tensor_count; i++) {
        const struct muster_engine_entry *entry = engine->entries[i];
        if (entry == NULL || entry->submitted_ns == 0) {
            missed += entry != NULL;
            continue;
        }
        tensors[used++] = (struct muster_timeline_tensor){
            .name = entry->trace_name,
            .last_rank = MUSTER_TIMELINE_NO_PEER,
            .submitted_ns = entry->submitted_ns,
            .ready_ns = step->ordered ? 0 : started_ns,
            .started_ns = started_ns,
            .done_ns = done_ns,
            .bytes = entry->tensor.count * muster_type_size_bytes(entry->tensor.type),
            .sequence = engine->counters.operations,
            .context = engine->slot,
            .fused = step->tensor_count};
        if (used == BATCH) {
            muster_timeline_add_tensors(engine->options.timeline, tensors, used);
            used = 0;
        }
    }
    if (used > 0) {
        muster_timeline_add_tensors(engine->options.timeline, tensors, used);
    }
    if (missed > 0) {
        muster_timeline_miss_tensors(engine->options.timeline, missed);
    }
}
