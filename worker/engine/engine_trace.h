/* What the engine adds to the timeline. Without one no clock is read. Private to this folder. */
#ifndef MUSTER_WORKER_ENGINE_ENGINE_TRACE_H
#define MUSTER_WORKER_ENGINE_ENGINE_TRACE_H

#include "worker/engine/engine_parts.h"
#include "worker/trace/timeline.h"

/* The tensor of this entry, which still has its name, was submitted. */
void muster_engine_trace_submitted_locked(struct muster_engine *engine,
                                          struct muster_engine_entry *entry);
/* The start of an operation; 0: nothing is recorded. */
int64_t muster_engine_trace_clock(const struct muster_engine *engine);
/* An operation has ended, and its entries are not finished yet. */
void muster_engine_trace_run_locked(struct muster_engine *engine,
                                    const struct muster_agreement_step *step, int64_t started_ns);

#endif
