/* What the fabric adds to the timeline. */
#include "worker/fabric/link_trace.h"

static struct muster_timeline_event span_of(const struct muster_link *link,
                                            const struct muster_transfer *transfer)
{
    return (struct muster_timeline_event){.peer = link->rank,
                                          .sequence = transfer->key.sequence,
                                          .context = transfer->key.context,
                                          .lane = transfer->key.lane,
                                          .message = transfer->key.ordinal};
}

/* The span begins with the first byte, if that was observed; the time before is waiting time. */
void muster_link_trace_message(const struct muster_link *link,
                               const struct muster_transfer *transfer)
{
    struct muster_timeline_event span = span_of(link, transfer);
    int64_t posted_ns = transfer->posted_ns;
    span.stage =
        transfer->direction == MUSTER_SEND ? MUSTER_TIMELINE_SEND : MUSTER_TIMELINE_RECEIVE;
    span.start_ns = transfer->begun_ns > posted_ns ? transfer->begun_ns : posted_ns;
    span.waited_ns = span.start_ns - posted_ns;
    span.bytes = transfer->size_bytes;
    muster_timeline_add(link->fabric->timeline, &span);
}

void muster_link_trace_part(const struct muster_link *link, const struct muster_transfer *transfer,
                            const struct muster_link_part *part)
{
    struct muster_timeline_event span = span_of(link, transfer);
    span.stage = part->stage;
    span.start_ns = part->started_ns;
    span.offset_bytes = part->offset_bytes;
    span.bytes = part->bytes;
    muster_timeline_add(link->fabric->timeline, &span);
}
