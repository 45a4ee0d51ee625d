/* Messages in memory of a device: the copies. */
#include "worker/context/message_staging.h"

#include <stdlib.h>

#include "worker/base/status.h"
#include "worker/device/devices.h"
#include "worker/trace/timeline.h"

bool muster_message_call_is_on_device(const struct muster_message_call *what,
                                      struct muster_device_memory *ret_memory)
{
    const void *data = what->direction == MUSTER_SEND ? what->in : what->out;
    return what->count > 0 && muster_devices_active() && muster_device_find(data, ret_memory);
}

muster_status muster_message_call_check_on_host(const struct muster_message_call *what)
{
    struct muster_device_memory memory;
    return muster_message_call_is_on_device(what, &memory)
               ? muster_error_set(MUSTER_INVALID,
                                  "%s: messages in flight take memory of the host, and the buffer "
                                  "is memory of a device (%s)",
                                  what->direction == MUSTER_SEND ? "send" : "receive",
                                  memory.device->name)
               : MUSTER_OK;
}

static muster_status copy(const struct muster_staged_message *staged, void *to, const void *from,
                          uint64_t size_bytes)
{
    int64_t started_ns = muster_timeline_clock(staged->timeline);
    TRY(staged->memory.device->copy(&staged->memory, to, from, size_bytes));
    muster_timeline_add_local(staged->timeline, MUSTER_TIMELINE_DEVICE_COPY, started_ns, size_bytes,
                              (struct muster_timeline_operation){.sequence = 0});
    return MUSTER_OK;
}

/* There is room for the longest message that a receive takes. */
muster_status muster_staged_message_begin(struct muster_staged_message *staged,
                                          const struct muster_message_call *what)
{
    uint64_t size_bytes = what->count * muster_type_size_bytes(what->type);
    staged->what = *what;
    staged->original = what;
    staged->host = malloc(size_bytes);
    if (staged->host == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory of the host for %llu bytes",
                                (unsigned long long)size_bytes);
    }
    if (what->direction == MUSTER_SEND) {
        staged->what.in = staged->host;
        return copy(staged, staged->host, what->in, size_bytes);
    }
    staged->what.out = staged->host;
    staged->what.ret_message = &staged->message;
    return MUSTER_OK;
}

muster_status muster_staged_message_end(const struct muster_staged_message *staged)
{
    const struct muster_message_call *original = staged->original;
    if (original->direction == MUSTER_SEND) {
        return MUSTER_OK;
    }
    uint64_t size_bytes = staged->message.count * muster_type_size_bytes(original->type);
    if (size_bytes > 0) {
        TRY(copy(staged, original->out, staged->host, size_bytes));
    }
    if (original->ret_message != NULL) {
        *original->ret_message = staged->message;
    }
    return MUSTER_OK;
}

void muster_staged_message_finish(struct muster_staged_message *staged)
{
    free(staged->host);
    staged->host = NULL;
}
