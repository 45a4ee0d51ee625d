/*
 * The group of a device for a context: calls on data in the memory of GPUs are then group steps
 * where that is the fastest, and their data stays there.
 *
 * It is opened by the first call on memory of a device, in a thread of its own, while calls go on
 * through memory of the host:
 *
 *   every rank has made such a call, and says whether it can; the versions are compared
 *   one makes the invitation, all open, and measure what steps cost
 *   all agree on the number of the first call that uses the group, which none has begun
 *
 * Where a rank makes no such call, nothing happens. Where one cannot, the log says why, and all
 * calls stay as they are. A context that has no data in memory of a device pays nothing.
 *
 * Private to the context. Threads: the functions are called by the thread that has the turn.
 */
#ifndef MUSTER_WORKER_CONTEXT_DEVICE_GROUP_H
#define MUSTER_WORKER_CONTEXT_DEVICE_GROUP_H

#include "collectives/call/request.h"
#include "worker/base/status.h"

struct muster_context;
struct muster_device_pair;

/* A call begins: waits while the ranks agree on the first call that uses the group, and takes the
 * group if this is it or a later one. MUSTER_RETRY: the deadline has passed. */
MUSTER_CHECKED muster_status muster_device_group_enter(struct muster_context *context,
                                                       int64_t deadline_ns);
/* The call has ended. */
void muster_device_group_leave(struct muster_context *context);

/* The call that is under way has these buffers: if the device can perform such calls, opens the
 * group in the background, the first time. */
void muster_device_group_want(struct muster_context *context, const struct muster_request *request,
                              const struct muster_device_pair *buffers);

/* Where the buffers of the request are, for its key; MUSTER_CALL_ANYWHERE where there is no group.
 */
enum muster_call_memory muster_device_group_memory(const struct muster_context *context,
                                                   const struct muster_request *request);

/* Ends the thread and leaves the group; failed as in muster_context_memory_finish(). */
void muster_device_group_finish(struct muster_context *context, bool failed);

#endif
