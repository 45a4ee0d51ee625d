/* A group of GPUs from within: what the files nccl_*.c share. Private to this folder. */
#ifndef MUSTER_WORKER_DEVICE_CUDA_NCCL_PARTS_H
#define MUSTER_WORKER_DEVICE_CUDA_NCCL_PARTS_H

#include "worker/device/cuda/cuda_library.h"
#include "worker/device/cuda/nccl_groups.h"
#include "worker/device/cuda/nccl_library.h"
#include "worker/device/group.h"

#include <stdatomic.h>

struct muster_nccl_group {
    const struct muster_nccl *nccl;
    const struct muster_cuda *cuda;
    void *context; /* of the GPU */
    uint32_t rank, ranks;
    const uint32_t *names;    /* [ranks] borrowed */
    muster_group_check check; /* until it is priced, with its user; or NULL */
    void *user;
    void *comm;          /* NULL: it was aborted, or left behind */
    void *stream;        /* on which steps run; it does not wait for the default stream by itself */
    void *before, *done; /* events: the program's work before a step; the step */
    uint64_t spare;      /* SPARE_BYTES of the GPU's memory */
    bool failed_itself;  /* NCCL has reported an error */
    atomic_bool aborted; /* set by abort(), of any thread */
    /* A step that is polled. */
    struct muster_group_launch step;
    bool announces;
    muster_status failed; /* of its start */
};

enum { MUSTER_NCCL_SPARE_BYTES = 256 };

/* A time limit, and the caller's check meanwhile; check may be NULL. */
struct muster_nccl_wait {
    int64_t deadline_ns;
    muster_group_check check;
    void *user;
};

/* nccl_steps.c */

/* The type by which NCCL moves or reduces; false: it has none. */
bool muster_nccl_type_of(muster_type type, int *ret_type);
bool muster_nccl_op_of(muster_op op, int *ret_op);

/* Puts the step on the group's stream, behind what the program has put on its default stream, and
 * waits until it is done. After a failure NCCL's kernel may still run. Statuses as of
 * muster_group_ops.run. */
MUSTER_CHECKED muster_status muster_nccl_perform(struct muster_nccl_group *group,
                                                 const struct muster_launch *launch,
                                                 const struct muster_nccl_wait *wait,
                                                 uint32_t *ret_suspect);
/* The two halves of it; the second waits no longer than until then: MUSTER_RETRY. */
MUSTER_CHECKED muster_status muster_nccl_begin(struct muster_nccl_group *group,
                                               const struct muster_launch *launch,
                                               const struct muster_nccl_wait *wait,
                                               uint32_t *ret_suspect);
MUSTER_CHECKED muster_status muster_nccl_poll(struct muster_nccl_group *group);

/* Waits until NCCL has carried out what was asked of the communicator. MUSTER_REJOIN: it has
 * failed, or the group was aborted. */
MUSTER_CHECKED muster_status muster_nccl_settle(struct muster_nccl_group *group,
                                                const struct muster_nccl_wait *wait,
                                                uint32_t *ret_suspect);

/* Notes, and sets the error text of, what NCCL has answered. */
MUSTER_CHECKED muster_status muster_nccl_failed(struct muster_nccl_group *group,
                                                muster_status status, int error, const char *what);

/* nccl_abort.c */

/* Ends the communicator, in a thread of its own, and waits for that until then. A communicator that
 * is not ended by then is left behind: the log says so, and this process opens no further groups.
 */
void muster_nccl_abort(struct muster_nccl_group *group, int64_t until_ns);

/* MUSTER_INVALID: NCCL has failed in this process before, and is not used any more. */
MUSTER_CHECKED muster_status muster_nccl_check_usable(void);

/* NCCL has failed here, although no rank has died. After a few times it is not used any more. */
void muster_nccl_note_failure(const char *text);

#endif
