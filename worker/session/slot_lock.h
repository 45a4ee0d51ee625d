/*
 * The lock of a slot. A worker's slot is its place on its host, and the worker holds it by
 * a lock of the kernel's: a listening socket with an abstract name, of the job, the host and the
 * slot. The kernel gives a name to one socket at a time, and frees it when the process has ended,
 * in whatever way. So whoever takes a slot knows that its holder has exited.
 *
 * Processes in another network namespace do not see the lock: the service compares the text of
 * muster_slot_lock_domain() before it believes in one.
 *
 * Threads: any. May use: base.
 */
#ifndef MUSTER_WORKER_SESSION_SLOT_LOCK_H
#define MUSTER_WORKER_SESSION_SLOT_LOCK_H

#include "worker/base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { MUSTER_SLOT_LOCK_DOMAIN_SIZE = 96 };

/* Whose slots. Borrowed. */
struct muster_slot_place {
    const char *rendezvous; /* as the settings have it: jobs of other services are other jobs */
    const char *job, *host;
};

/* *ret_fd: the lock; close it with muster_fork_guard_close(). MUSTER_RETRY: a living process holds
 * it. MUSTER_FATAL: this system has no such locks. */
MUSTER_CHECKED muster_status muster_slot_lock_take(const struct muster_slot_place *place,
                                                   uint32_t slot, int *ret_fd);

/* The process that holds it; 0: none, or it is not visible here. Each call stays in the queue of
 * connections of the holder, which has room for some, so do not poll. */
pid_t muster_slot_lock_holder(const struct muster_slot_place *place, uint32_t slot);

/* Where locks of this place are the same: this boot of the kernel, this network namespace, this
 * job. Empty if the kernel does not say. */
void muster_slot_lock_domain(const struct muster_slot_place *place,
                             char ret_text[MUSTER_SLOT_LOCK_DOMAIN_SIZE]);

#endif
