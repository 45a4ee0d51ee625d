/* The end of a group of a device. */
#include "worker/base/clock.h"
#include "worker/context/context_parts.h"
#include "worker/device/devices.h"

enum { ABORT_MS = 2000 }; /* after a failure; a device that hangs is left behind then */

void muster_context_memory_finish(struct muster_context_memory *memory, bool failed)
{
    const struct muster_device *device = memory->group.device;
    if (memory->memory == NULL) {
        return;
    }
    if (failed) {
        device->groups->abort(memory->memory, muster_clock_after_ms(ABORT_MS));
    }
    for (uint32_t i = 0; i < MUSTER_GROUP_CHANNELS; i++) {
        device->groups->close(memory->channels[i]);
    }
    device->groups->close(memory->memory);
    *memory = (struct muster_context_memory){.memory = NULL};
}
