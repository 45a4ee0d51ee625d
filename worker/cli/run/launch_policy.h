/*
 * What the launcher does about its job: how many workers it starts, and whether too few are left.
 *
 * Pure: no processes, sockets, clocks or logs; times come in as arguments. After each poll of the
 * job the supervisor fills a view, gets a decision, and carries it out.
 */
#ifndef MUSTER_WORKER_CLI_RUN_LAUNCH_POLICY_H
#define MUSTER_WORKER_CLI_RUN_LAUNCH_POLICY_H

#include "elastic/membership/membership.h"

#include <stdbool.h>
#include <stdint.h>

/* What is known of the job when a decision is made. */
struct muster_launch_view {
    bool only_launcher; /* the job has a server of its own: no other launcher starts workers */
    bool may_grow;      /* false: --no-grow */
    bool stopping;      /* Ctrl-C or SIGTERM has come */
    uint32_t running;   /* workers of this launcher */
    uint32_t running_max;
    uint32_t others;     /* members of the job that other launchers have started */
    int64_t last_end_ns; /* when a worker ended last; 0: none has */
    int64_t polled_ns;   /* when the poll was sent: the members below are not older */
    enum muster_job_phase phase;
    uint32_t min_size;
    uint32_t target_size; /* 0: the job has none */
    uint64_t resizes;     /* that the job has accepted */
};

/* What is remembered from one decision to the next. */
struct muster_launch_policy {
    uint32_t target_size;
    bool viewed; /* the job was seen before, with so many resizes: */
    uint64_t resizes;
    bool shortage; /* has been decided on: once a job */
};

struct muster_launch_decision {
    bool resized;     /* the job has a new target size, or the same was asked for again */
    uint32_t present; /* workers of the job before any are started, of all launchers */
    uint32_t start;   /* workers to start now */
    bool shortage;    /* fewer than min_size are left, and no launcher starts more */
};

/* target_size is what the job begins with. */
void muster_launch_policy_init(struct muster_launch_policy *policy, uint32_t target_size);

struct muster_launch_decision muster_launch_policy_decide(struct muster_launch_policy *policy,
                                                          const struct muster_launch_view *view);

#endif
