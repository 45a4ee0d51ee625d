/*
 * Messages in memory of a device, which the CPU must not touch: they are sent out of memory of the
 * host, and received into it, and copied before or after.
 *
 * Private to the context. May use: device, trace, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_MESSAGE_STAGING_H
#define MUSTER_WORKER_CONTEXT_MESSAGE_STAGING_H

#include "worker/context/context.h"
#include "worker/device/device.h"

struct muster_staged_message {
    /* Filled by the caller. */
    struct muster_device_memory memory; /* of the caller's buffer */
    struct muster_timeline *timeline;   /* borrowed; or NULL */

    struct muster_message_call what; /* to be called instead; its buffer is memory of the host */
    const struct muster_message_call *original; /* borrowed */
    muster_message message;                     /* that was received */
    void *host;                                 /* owned */
};

/* Whether the buffer is memory of a device. */
bool muster_message_call_is_on_device(const struct muster_message_call *what,
                                      struct muster_device_memory *ret_memory);

/* MUSTER_INVALID if it is: for calls in flight. */
MUSTER_CHECKED muster_status
muster_message_call_check_on_host(const struct muster_message_call *what);

/* Copies what is to be sent. MUSTER_FATAL: no memory, or the device's name of the error. */
MUSTER_CHECKED muster_status muster_staged_message_begin(struct muster_staged_message *staged,
                                                         const struct muster_message_call *what);
/* The call has succeeded: copies what was received. MUSTER_FATAL: as above. */
MUSTER_CHECKED muster_status muster_staged_message_end(const struct muster_staged_message *staged);
/* Frees the memory of the host, also after a failure of begin. */
void muster_staged_message_finish(struct muster_staged_message *staged);

#endif
