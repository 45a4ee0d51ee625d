/* Which slot of its host the next worker gets. */
#include "worker/cli/run/run_parts.h"

#include "worker/base/fork_guard.h"
#include "worker/session/slot_lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *muster_worker_host_name(const struct muster_host_slots *host, char *text, size_t size)
{
    const char *given = host != NULL ? host->name : getenv("MUSTER_HOST");
    if (given != NULL && given[0] != '\0') {
        (void)snprintf(text, size, "%s", given);
    } else if (gethostname(text, size) != 0) {
        text[0] = '\0';
    }
    text[size - 1] = '\0';
    return text;
}

static bool is_given(const struct muster_supervisor *supervisor,
                     const struct muster_host_slots *host, uint32_t slot)
{
    for (uint32_t i = 0; i < supervisor->worker_count; i++) {
        const struct muster_worker *worker = supervisor->workers[i];
        if (worker->phase != MUSTER_WORKER_ENDED && worker->host == host && worker->slot == slot) {
            return true;
        }
    }
    return false;
}

/* By a worker of another launcher of the same job on this host. */
static bool is_held(const struct muster_supervisor *supervisor,
                    const struct muster_host_slots *host, uint32_t slot)
{
    char name[MUSTER_HOST_SIZE];
    const struct muster_slot_place place = {
        .rendezvous = supervisor->url,
        .job = supervisor->options->job,
        .host = muster_worker_host_name(host, name, sizeof name),
    };
    int fd = -1;
    muster_status status = muster_slot_lock_take(&place, slot, &fd);
    if (status == MUSTER_OK) {
        muster_fork_guard_close(fd);
    }
    return status == MUSTER_RETRY;
}

uint32_t muster_worker_slots_choose(const struct muster_supervisor *supervisor,
                                    const struct muster_host_slots *host)
{
    uint32_t slot = 0;
    while (slot < MUSTER_MEMBERS_MAX - 1 &&
           (is_given(supervisor, host, slot) ||
            (!supervisor->private_server && is_held(supervisor, host, slot)))) {
        slot++;
    }
    return slot;
}
