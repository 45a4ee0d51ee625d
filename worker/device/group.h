/*
 * Groups of a device: ranks for which a device performs group steps, collectives that are done as
 * one operation (collectives/schedule/group_step.h). What a device provides for that
 * (struct muster_group_ops).
 *
 * How a group comes into being, by collectives of the context that it serves:
 *
 *   invite        member 0 makes what the others need to join it: a few bytes, such as an
 *                 identifier, and where the members share memory a descriptor
 *   (the context passes both to the others over its own links)
 *   open          every member joins; which may need all members, and has a deadline
 *   (the context asks all ranks: all use the group, or none does)
 *   price         what its steps cost here; the ranks agree on the worst of them
 *   start         from now on steps are performed
 *
 * and how it ends: abort, which is bounded, where steps may be under way; then close.
 */
#ifndef MUSTER_WORKER_DEVICE_GROUP_H
#define MUSTER_WORKER_DEVICE_GROUP_H

#include "collectives/call/call_plan.h"
#include "collectives/call/launch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Called from time to time during a wait. Any status but MUSTER_OK ends the wait, and is what the
 * group step returns; ret_suspect: the rank that is to blame, by its name. */
typedef muster_status (*muster_group_check)(void *user, uint32_t *ret_suspect);

enum { MUSTER_GROUP_STREAM_BYTES = 4 << 20 }; /* more than a core's own caches hold */

/* Opening -------------------------------------------------------------------------------------- */

enum { MUSTER_INVITATION_BYTES = 256 };

struct muster_group_invitation {
    unsigned char bytes[MUSTER_INVITATION_BYTES]; /* zeroed behind what the device writes */
    int fd;                                       /* or -1 */
};

struct muster_device_memory; /* device.h */

struct muster_group_options {
    uint32_t rank, ranks;  /* 2 to members_max */
    const uint32_t *names; /* [ranks] their ranks in error texts; borrowed for the group's life */
    const uint32_t *order; /* [ranks] the order of reduction; borrowed likewise */
    uint32_t cores;        /* that the ranks of this host may use */
    size_t stream_bytes;   /* outputs from this size on are written past the caches; of memory of
                              the host only */
    int64_t deadline_ns;   /* of open */
    /* Some memory of the device with which this rank takes part, where there are several; borrowed
     * until open has returned. */
    const struct muster_device_memory *memory;
    muster_group_check check; /* during open and price; NULL: only the deadline ends them */
    void *user;               /* of check */
};

/* Steps ---------------------------------------------------------------------------------------- */

/* The sequence of step number `index` (from 0) of a call. */
#define MUSTER_PART_SEQUENCE(call, index) ((call) << 16 | (index))
enum { MUSTER_PARTS_MAX = 1 << 16 }; /* of one call */

/* One group step on one rank. All pointers are borrowed for the call. */
struct muster_group_launch {
    const struct muster_launch *launch; /* its call is compared with that of the other ranks */
    unsigned method; /* how the device does it, by its own numbers; the same on all ranks */
    bool buffers;    /* all ranks can read the buffers of all; the same on all ranks */
    /* One of several steps of a call, which has messages, too: the sequence of the launch is
     * MUSTER_PART_SEQUENCE(), and the ranks say when they have left a call (`leave`). */
    bool part;
    muster_group_check check;
    void *user; /* of check */
};

/*
 * What a device does with groups. A group is this rank's part of it, `void *` to the others. One
 * thread at a time uses it, unless the slot says more. Every slot is filled, but for those that say
 * what NULL is.
 *
 * A group performs its steps in the order of their numbers, one at a time. Beside the group itself,
 * for blocking operations, it has channels, for operations in flight, which are groups of the same
 * ranks that never wait for it or for each other.
 */
enum { MUSTER_GROUP_CHANNELS = 4 };

struct muster_group_ops {
    uint32_t members_max;  /* 0: the device has no groups */
    bool needs_descriptor; /* to join: the members share memory with member 0 */
    bool priced;           /* price gives figures; else the cost model knows what steps cost */

    /* These four are of a device whose steps take data that stays in its memory; NULL: its steps
     * are for data in memory of the host.
     *
     * Whether this process can have groups with the device of this memory. *ret_version: all
     * members need the same one, as `print_version` prints it. MUSTER_INVALID: it cannot, and the
     * text says why. */
    muster_status (*offer)(const struct muster_device_memory *memory, int *ret_version);
    void (*print_version)(int version, char *ret_text, size_t size);
    /* Whether steps of the collective can have this type and operation. */
    bool (*performs)(enum muster_collective collective, muster_type type, muster_op op);
    /* Whether this memory is of the device with which this rank takes part. */
    bool (*holds)(void *group, const struct muster_device_memory *memory);
    /* Of member 0. The caller owns the descriptor. MUSTER_FATAL: no memory or descriptors;
     * MUSTER_INVALID: the device cannot have a group here, and the text says why. */
    muster_status (*invite)(const struct muster_group_options *options,
                            struct muster_group_invitation *ret_invitation);
    /* Takes the invitation's descriptor, also on failure. Blocks, at most until the deadline, if it
     * needs the other members. Statuses as of invite. */
    muster_status (*open)(const struct muster_group_options *options,
                          const struct muster_group_invitation *invitation, void **ret_group);
    /* Channel number 1 to MUSTER_GROUP_CHANNELS, which borrows from the group. MUSTER_FATAL: no
     * memory. */
    muster_status (*open_channel)(void *group, uint32_t number, void **ret_channel);
    /* When all members have opened it: what its steps cost, and whether the ranks can read each
     * other's buffers. Of this rank: the caller makes the ranks agree. NULL: the least that steps
     * can cost, of a rank that is alone on its host. */
    void (*price)(void *group, struct muster_memory_reach *ret_reach);
    /* Before the first step of a group or channel, with the same numbers on all ranks, when all
     * have opened it: the first operation is number sequence + 1; where steps are parts of calls,
     * that is the number of the first call. */
    void (*start)(void *group, uint64_t sequence, bool parts);
    /* Of any thread: steps of this rank that are under way end with MUSTER_REJOIN, and there will
     * be no more. Waits at most until then, whatever the device does. Also for channels. */
    void (*abort)(void *group, int64_t until_ns);
    /* Leaves the group: ranks that wait for this one stop waiting. No step is under way; channels
     * first. Accepts NULL. */
    void (*close)(void *group);

    /* Performs a step. Blocks until this rank's part is done. MUSTER_INVALID: the ranks call
     * differently, and every rank that takes part gets this status. MUSTER_RETRY: the deadline has
     * passed. MUSTER_REJOIN: a rank died or gave up, the group was aborted, or `check` returned it.
     * ret_suspect: the rank that died or is waited for, by its name, else unchanged. The input is
     * intact, unless the call was in place. After MUSTER_RETRY and MUSTER_REJOIN this rank has left
     * the group. */
    muster_status (*run)(void *group, const struct muster_group_launch *step,
                         uint32_t *ret_suspect);
    /* Announces an operation that runs by messages, so that ranks that perform a group step in its
     * place end with MUSTER_INVALID. Waits until all ranks have begun the operation before. Of the
     * launch only sequence, call and deadline_ns are used. Statuses as above. */
    muster_status (*announce)(void *group, const struct muster_group_launch *step,
                              uint32_t *ret_suspect);

    /* The same, polled: begin, poll until the step is done, end. The step is copied, its launch
     * borrowed until the end; neither its deadline nor `check` and `user` are used. announces: the
     * operation runs by messages, and is only announced. */
    void (*begin)(void *group, const struct muster_group_launch *step, bool announces);
    /* Does what can be done without waiting for another rank for longer than spin_ns.
     * MUSTER_RETRY: the step is not done yet; *ret_advanced: it has come further since the last
     * time. Else it is to be ended with this status. */
    muster_status (*poll)(void *group, int64_t spin_ns, bool *ret_advanced);
    /* Whether the rank that the step waits for is alive; a system call. MUSTER_REJOIN: it is not,
     * and the step is to be ended. */
    muster_status (*check)(void *group);
    /* With the status of poll or check, or one of the caller's, of which MUSTER_RETRY means that
     * the limit of the operation has passed. Returns it with its text; statuses and ret_suspect as
     * of run. */
    muster_status (*end)(void *group, muster_status status, uint32_t *ret_suspect);

    /* This rank takes part in no operation from this number on. Of any thread that uses the group.
     * Of a group whose steps are parts of calls, the number is a MUSTER_PART_SEQUENCE(). */
    void (*withdraw)(void *group, uint64_t sequence);
    /* Of such a group: this rank has nothing left to do in the calls up to this one. A rank that
     * waits for a step of such a call here ends with MUSTER_INVALID. */
    void (*leave)(void *group, uint64_t call);
};

#endif
