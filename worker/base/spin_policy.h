/*
 * How long who waits looks for news itself before it sleeps. Pure: times come in as arguments.
 *
 * Looking saves a sleep and a wake, tens of microseconds. Between the looks it gives way
 * (sched_yield()), so that members that share a core hand it to each other without sleeping. That
 * goes wrong twice: where a quota pays for less than the members can use, looking spends what the
 * work needs; and where other work computes on the core, who gives way gets it back only after a
 * slice of milliseconds, and sleeping is better, since a wake goes before such work. So who finds
 * nobody else on its core gives way less and less often: work of the lowest priority, which would
 * not take the core from it, is not handed it.
 */
#ifndef MUSTER_WORKER_BASE_SPIN_POLICY_H
#define MUSTER_WORKER_BASE_SPIN_POLICY_H

#include <stdbool.h>
#include <stdint.h>

enum {
    /* Some times what a sleep and a wake cost, up to 50 us on a virtual machine: with less, two
     * that wait for each other sleep in turn for good once one of them was late. */
    MUSTER_SPIN_POLICY_NS = 200 * 1000,
    /* To be woken by a device costs more: it is asked for that, interrupts, and is thanked. */
    MUSTER_SPIN_POLICY_DEVICE_NS = 2000 * 1000,
    /* Who gave way for longer had to wait for a whole slice of other work. */
    MUSTER_SPIN_POLICY_SLICE_NS = 500 * 1000,
    /* Who gave way for less found nobody else on its core. */
    MUSTER_SPIN_POLICY_ALONE_NS = 2 * 1000,
    MUSTER_SPIN_POLICY_LOOKS_MAX = 100, /* at memory, before it looks at descriptors */
    /* Longer than most waits of small calls, and short beside the time that it looks at all. */
    MUSTER_SPIN_POLICY_PAUSE_MAX_NS = 50 * 1000,
    MUSTER_SPIN_POLICY_PAUSE_STEP_NS = 1000,
    MUSTER_SPIN_POLICY_PAUSE_SURE_NS = 4000, /* who has come to this is alone on its core */
    MUSTER_SPIN_POLICY_REST_MIN = 16,        /* waits without a look, after a slice */
    MUSTER_SPIN_POLICY_REST_MAX = 4096,
    /* Members that share a core though another one is free stay there as long as they only give
     * way: the scheduler looks for a free core when one wakes up. So after so many times one
     * sleeps, and if that was in vain, moves; then after twice as many, and so on. */
    MUSTER_SPIN_POLICY_SHARED_MIN = 16,
    MUSTER_SPIN_POLICY_SHARED_MAX = 256,
};

struct muster_spin_policy {
    bool looks_at_all;
    int64_t look_ns;  /* at most, in one wait */
    uint32_t looks;   /* at memory, before it looks at descriptors */
    int64_t pause_ns; /* so long it only looks before it gives way */
    bool cores_for_all;
    uint32_t place;      /* of this member among those of this host */
    uint32_t shared;     /* times in a row that somebody else was on the core */
    uint32_t shared_max; /* then it is to do something about that */
    uint32_t slept;      /* times that it has slept for that */
    uint32_t moved;      /* and moved */
    uint32_t resting;    /* so many of the next waits sleep at once */
    uint32_t rest;       /* after the next slice that was lost */
};

/* Where a member is when a generation begins. */
struct muster_spin_policy_place {
    uint32_t members_here; /* on this host */
    uint32_t index;        /* of this one among them */
    uint32_t cores;        /* that it may use */
    bool has_device;       /* it may have links over RDMA */
    uint64_t
        quota_millis; /* thousandths of a core; UINT64_MAX: none (muster_cores_quota_millis()) */
};

void muster_spin_policy_begin(struct muster_spin_policy *spin_policy,
                              const struct muster_spin_policy_place *place);

/* A wait begins: whether to look for a while, or to sleep at once. */
bool muster_spin_policy_looks(struct muster_spin_policy *spin_policy);

/* Before it looks: whether to move to the core that is its own (muster_cores_move()). */
bool muster_spin_policy_moves(struct muster_spin_policy *spin_policy, uint32_t *ret_place);

/* It gave way for so long. */
void muster_spin_policy_gave_way(struct muster_spin_policy *spin_policy, int64_t took_ns);

/* The looking has found what it waited for. */
void muster_spin_policy_found(struct muster_spin_policy *spin_policy);

#endif
