/* Allgather and alltoall of tensors whose sizes differ between the ranks: the ranks tell each other
 * the sizes, get memory for the output, and then the data. The first of these collectives is the
 * one that a rank that deviates does not join. */
#include <stdlib.h>
#include <string.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/engine/engine_parts.h"

static muster_status run(struct muster_engine *engine, struct muster_request request)
{
    request.keep_input = true;
    request.finish_together = true;
    request.untuned = true;
    request.deadline_ns = muster_clock_soon_after_ms(engine->options.timeout_ms);
    return engine->options.context.run(engine->options.context.owner, &request);
}

/* The memory for the output; where some rank has none, the tensor ends on all. */
static muster_status find_output(struct muster_engine *engine, const size_t *counts, void **ret_out)
{
    const muster_tensor *tensor = &engine->entries[0]->tensor;
    size_t total = 0;
    for (uint32_t rank = 0; rank < engine->options.ranks; rank++) {
        total += counts[rank];
    }
    void *out = tensor->output != NULL
                    ? tensor->output(counts, engine->options.ranks, total, tensor->output_data)
                    : tensor->out;
    uint32_t missing = out == NULL && total > 0 ? engine->options.rank : UINT32_MAX;
    TRY(run(engine, (struct muster_request){.collective = MUSTER_ALLREDUCE,
                                            .in = &missing,
                                            .out = &missing,
                                            .count = 1,
                                            .type = MUSTER_UINT32,
                                            .op = MUSTER_MIN}));
    if (missing != UINT32_MAX) {
        engine->failed_alike = true;
        return muster_error_set(MUSTER_INVALID, "rank %u has no memory for the output", missing);
    }
    *ret_out = out;
    return MUSTER_OK;
}

static void tell_counts(const muster_tensor *tensor, const size_t *counts, uint32_t ranks)
{
    if (tensor->received_counts != NULL) {
        memcpy(tensor->received_counts, counts, ranks * sizeof *counts);
    }
}

muster_status muster_engine_run_allgather(struct muster_engine *engine,
                                          const struct muster_description *description)
{
    const muster_tensor *tensor = &engine->entries[0]->tensor;
    uint32_t ranks = engine->options.ranks;
    AUTO_FREE size_t *counts = calloc(ranks, sizeof *counts);
    if (counts == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u ranks", ranks);
    }
    const uint64_t own = tensor->count;
    void *out = NULL;
    TRY(run(engine, (struct muster_request){.collective = MUSTER_ALLGATHER,
                                            .in = &own,
                                            .out = counts,
                                            .count = 1,
                                            .type = MUSTER_UINT64}));
    TRY(find_output(engine, counts, &out));
    TRY(run(engine, (struct muster_request){.collective = MUSTER_ALLGATHERV,
                                            .in = tensor->in,
                                            .out = out,
                                            .out_counts = counts,
                                            .type = (muster_type)description->type}));
    tell_counts(tensor, counts, ranks);
    return MUSTER_OK;
}

muster_status muster_engine_run_alltoall(struct muster_engine *engine,
                                         const struct muster_description *description)
{
    const struct muster_engine_entry *entry = engine->entries[0];
    const muster_tensor *tensor = &entry->tensor;
    uint32_t ranks = engine->options.ranks;
    AUTO_FREE size_t *counts = calloc(ranks, sizeof *counts);
    if (counts == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u ranks", ranks);
    }
    void *out = NULL;
    TRY(run(engine, (struct muster_request){.collective = MUSTER_ALLTOALL,
                                            .in = entry->splits,
                                            .out = counts,
                                            .count = 1,
                                            .type = MUSTER_UINT64}));
    TRY(find_output(engine, counts, &out));
    TRY(run(engine, (struct muster_request){.collective = MUSTER_ALLTOALLV,
                                            .in = tensor->in,
                                            .in_counts = entry->splits,
                                            .out = out,
                                            .out_counts = counts,
                                            .type = (muster_type)description->type}));
    tell_counts(tensor, counts, ranks);
    return MUSTER_OK;
}
