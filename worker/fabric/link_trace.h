/*
 * What the fabric adds to the timeline: messages and their parts. Inline, so that a fabric without
 * a timeline only checks whether there is one.
 */
#ifndef MUSTER_WORKER_FABRIC_LINK_TRACE_H
#define MUSTER_WORKER_FABRIC_LINK_TRACE_H

#include "worker/fabric/link.h"
#include "worker/trace/timeline.h"

/* A part of a message that has been moved or reduced. */
struct muster_link_part {
    enum muster_timeline_stage stage;
    int64_t started_ns; /* muster_link_clock() */
    uint64_t offset_bytes;
    uint64_t bytes;
};

/* Where there is a timeline. */
void muster_link_trace_message(const struct muster_link *link,
                               const struct muster_transfer *transfer);
void muster_link_trace_part(const struct muster_link *link, const struct muster_transfer *transfer,
                            const struct muster_link_part *part);

/* The time now; 0 where there is no timeline. */
static inline int64_t muster_link_clock(const struct muster_link *link)
{
    return muster_timeline_clock(link->fabric->timeline);
}

/* The transfer is done. */
static inline void muster_link_add_message(const struct muster_link *link,
                                           const struct muster_transfer *transfer)
{
    if (link->fabric->timeline != NULL) {
        muster_link_trace_message(link, transfer);
    }
}

/* The part is done. Any thread that may read the transfer. */
static inline void muster_link_add_part(const struct muster_link *link,
                                        const struct muster_transfer *transfer,
                                        struct muster_link_part part)
{
    if (link->fabric->timeline != NULL) {
        muster_link_trace_part(link, transfer, &part);
    }
}

#endif
