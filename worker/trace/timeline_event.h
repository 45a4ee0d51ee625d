/* What a timeline records: an event is one piece of work, of a stage, from its start to its end; a
 * named tensor has several stages. */
#ifndef MUSTER_WORKER_TRACE_TIMELINE_EVENT_H
#define MUSTER_WORKER_TRACE_TIMELINE_EVENT_H

#include <stddef.h>
#include <stdint.h>

enum { MUSTER_TIMELINE_NAME_SIZE = 192 }; /* of a text in an event, with its terminator */

/* Kinds of work, in the order in which they are shown. */
enum muster_timeline_stage {
    MUSTER_TIMELINE_CALL = 0,            /* a whole collective */
    MUSTER_TIMELINE_REGISTER = 1,        /* memory is registered with a device */
    MUSTER_TIMELINE_SEND = 2,            /* a message, from its first byte to its last */
    MUSTER_TIMELINE_SEND_SEGMENT = 3,    /* a segment of it, while the transport sends it */
    MUSTER_TIMELINE_WRITE = 4,           /* a device writes into the peer's memory */
    MUSTER_TIMELINE_RECEIVE = 5,         /* a message, from its first byte to its last */
    MUSTER_TIMELINE_RECEIVE_SEGMENT = 6, /* a segment of it, until all has arrived */
    MUSTER_TIMELINE_REDUCE = 7,
    MUSTER_TIMELINE_COPY = 8,
    MUSTER_TIMELINE_DEVICE_COPY = 9, /* out of memory of a device, or into it */
    MUSTER_TIMELINE_DEREGISTER = 10,
    MUSTER_TIMELINE_TENSOR = 11,         /* a named tensor, from its submission to its result */
    MUSTER_TIMELINE_TENSOR_PENDING = 12, /* until all members have submitted it */
    MUSTER_TIMELINE_TENSOR_ON_WIRE = 13, /* while the operation that carries it runs */
    MUSTER_TIMELINE_STAGES
};

/* "send segment". */
const char *muster_timeline_stage_name(enum muster_timeline_stage stage);

#define MUSTER_TIMELINE_NO_PEER UINT32_MAX
#define MUSTER_TIMELINE_NO_ALGORITHM SIZE_MAX

/* A piece of work. It ends at the moment at which it is added. */
struct muster_timeline_event {
    enum muster_timeline_stage stage;
    uint32_t peer; /* global rank, or MUSTER_TIMELINE_NO_PEER */
    int64_t start_ns;
    int64_t waited_ns; /* before the start */
    uint64_t bytes;
    /* The number of the operation within its context, from 1 (0: none), and its message, if any. */
    uint64_t sequence;
    uint32_t context, lane, message;
    uint64_t offset_bytes; /* within the message */
    const char *name;      /* CALL: of the collective; static */
    size_t algorithm;      /* CALL: or MUSTER_TIMELINE_NO_ALGORITHM */
};

/* The life of a named tensor on this member. */
struct muster_timeline_tensor {
    uint32_t name;        /* muster_timeline_tensor_name() */
    uint32_t last_rank;   /* that submitted it last, or MUSTER_TIMELINE_NO_PEER: not known */
    int64_t submitted_ns; /* muster_timeline_tensor_clock() */
    int64_t ready_ns;     /* when it was known that all members have submitted it; 0: never */
    int64_t started_ns;   /* of the operation that carried it; 0: none did */
    int64_t done_ns;
    uint64_t bytes;
    /* The operation's number within its context, as in an event, and how many tensors it carried:
     * those with the same number were fused. */
    uint64_t sequence;
    uint32_t context, fused;
};

#endif
