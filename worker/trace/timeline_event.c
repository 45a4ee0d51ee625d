/* The names of the stages, as they stand in the file. */
#include "worker/trace/timeline_event.h"

const char *muster_timeline_stage_name(enum muster_timeline_stage stage)
{
    static const char *const names[MUSTER_TIMELINE_STAGES] = {
        [MUSTER_TIMELINE_CALL] = "call",
        [MUSTER_TIMELINE_REGISTER] = "register",
        [MUSTER_TIMELINE_SEND] = "send",
        [MUSTER_TIMELINE_SEND_SEGMENT] = "send segment",
        [MUSTER_TIMELINE_WRITE] = "write",
        [MUSTER_TIMELINE_RECEIVE] = "receive",
        [MUSTER_TIMELINE_RECEIVE_SEGMENT] = "receive segment",
        [MUSTER_TIMELINE_REDUCE] = "reduce",
        [MUSTER_TIMELINE_COPY] = "copy",
        [MUSTER_TIMELINE_DEVICE_COPY] = "device copy",
        [MUSTER_TIMELINE_DEREGISTER] = "deregister",
        [MUSTER_TIMELINE_TENSOR] = "tensor",
        [MUSTER_TIMELINE_TENSOR_PENDING] = "tensor pending",
        [MUSTER_TIMELINE_TENSOR_ON_WIRE] = "tensor on wire",
    };
    return names[stage];
}
