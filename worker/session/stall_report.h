/*
 * Reports that this member's calls wait. A Watch is held for longer than a lease, and the kernel of
 * a process that is stopped still answers for it. So a member whose calls get no further for a
 * lease tells the service, which asks all members whether they live.
 *
 * Threads: the lease thread, while its Watch is held.
 */
#ifndef MUSTER_WORKER_SESSION_STALL_REPORT_H
#define MUSTER_WORKER_SESSION_STALL_REPORT_H

#include <stdbool.h>
#include <stdint.h>

struct muster_session;

/* Pure: when a member is to report that it waits. */
struct muster_stall_watch {
    uint64_t progress; /* operations that had finished when it was looked at last */
    int64_t
        since_ns; /* nothing has finished since, nor has the service been reported to or asked */
    uint32_t pause_ms; /* so long after that a report is due */
};

/* Looks at it now: calls wait, and so many operations have finished. True: report. From then on the
 * time to the next report doubles, up to most_ms, until an operation finishes. */
bool muster_stall_watch_look(struct muster_stall_watch *watch, bool calls_wait, uint64_t progress,
                             uint32_t lease_ms, uint32_t most_ms, int64_t now_ns);
/* A Watch was answered: the service has asked, perhaps because of another member's report, which
 * counts like an own one. */
void muster_stall_watch_asked(struct muster_stall_watch *watch, uint32_t most_ms, int64_t now_ns);

/* Operations that this member has finished in its generation. */
uint64_t muster_session_progress_locked(struct muster_session *session);

/* A muster_client_meanwhile of the lease thread's client; user: the session. Reports if it is due;
 * that blocks for half a second at most. */
uint32_t muster_session_report_stall(void *user);

#endif
