/*
 * The launcher while its job runs: one thread with one poll loop over the pipes of the workers, the
 * launcher's own output, signals, and the results of polling the job on the server.
 *
 *   supervise.c      start, loop, end
 *   workers.c        starts workers, detects and reports their ends
 *   worker_slots.c   which slot of its host a worker gets
 *   job_changes.c    matches members with workers, reports changes, carries decisions out
 *   launch_policy.c  the decisions: how many workers to start, whether too few are left. Pure
 *   summary.c        the outcome, for people and as JSON
 */
#ifndef MUSTER_WORKER_CLI_RUN_RUN_PARTS_H
#define MUSTER_WORKER_CLI_RUN_RUN_PARTS_H

#include "worker/cli/output.h"
#include "worker/cli/run/job_poll.h"
#include "worker/cli/run/launch_policy.h"
#include "worker/cli/run/process.h"
#include "worker/cli/run/run.h"
#include "worker/cli/run/server.h"

/* Runs the job to its end. Returns the exit status of `muster run`. */
int muster_supervise(const struct muster_run_options *options);

enum muster_worker_phase {
    MUSTER_WORKER_RUNNING = 1,
    MUSTER_WORKER_GROUP_ENDING = 2, /* its process has ended, others of its group may still end */
    MUSTER_WORKER_ENDED = 3,        /* and no process of its group is left */
};

struct muster_worker {
    uint32_t index;                    /* the first to be started has 0; also MUSTER_ORDER */
    uint32_t slot;                     /* the lowest free one of its host; MUSTER_SLOT */
    struct muster_host_slots *host;    /* NULL: without --hosts */
    char label[MUSTER_HOST_SIZE + 16]; /* "a:0", "3" */
    pid_t pid;
    enum muster_worker_phase phase;
    struct muster_stream streams[2]; /* output, error */
    int status, signal;              /* of its end: exit status, or the signal if that is not 0 */
    uint32_t end_number;             /* in the order in which workers ended, from 1 */
    int64_t group_deadline_ns;
    bool leave_reported;
};

/* A member of the job that is a worker of this launcher. */
struct muster_own_member {
    char id[MUSTER_UUID_SIZE];
    uint32_t worker;
    bool gone;
    uint64_t generation; /* if gone: its last one */
};

struct muster_supervisor {
    const struct muster_run_options *options;
    struct muster_hosts hosts;
    bool private_server;
    char url[MUSTER_SERVER_URL_SIZE * 8];
    char token[MUSTER_TOKEN_MAX_BYTES + 1]; /* "": none */
    char folder[PATH_MAX / 2];              /* temporary; "": none */
    char token_file[PATH_MAX];              /* "": none */
    struct muster_guard guard;
    struct muster_server server;
    struct muster_sink output, error;
    struct muster_sink *worker_output; /* for the standard output of workers */
    int signal_fd, notify_fd;
    sigset_t outer_signals; /* the signal mask that programs are started with */
    int64_t started_ns;

    struct muster_worker **workers; /* owned [worker_count], each owned */
    uint32_t worker_count, running, ended;
    int64_t last_end_ns;
    uint32_t next_stream; /* the one that is served first in the next round */
    int command_status;   /* not 0: the command cannot be executed */

    struct muster_job_poller *poller;
    int64_t polled_ns;                   /* when the last poll that was answered was sent */
    struct muster_job_snapshot snapshot; /* the last one that has the job */
    struct muster_own_member *members;   /* owned [member_count] */
    uint32_t member_count, member_capacity;
    bool unmatched_members; /* members of local hosts departed before a worker was found for them */
    uint64_t generation;    /* the last one that was reported */
    struct muster_launch_policy policy;
    int64_t unreachable_since_ns; /* when polls of the server began to fail; 0: they succeed */
    bool unreachable_reported, broken_reported;

    int stop_signal; /* the first SIGINT, SIGTERM or SIGHUP; 0: none has come */
    bool killed;     /* a second one has come */
};

#define MUSTER_PRINT(supervisor, ...) \
    muster_sink_print(&(supervisor)->error, "muster: " __VA_ARGS__)

/* workers.c */
/* Starts `count` workers. On failure some of them may be running. MUSTER_INVALID: the command
 * cannot be executed, and command_status has the exit status for that. */
MUSTER_CHECKED muster_status muster_workers_start(struct muster_supervisor *supervisor,
                                                  uint32_t count);
/* Detects and reports which workers have ended, and whether the job's own server has. */
void muster_workers_reap(struct muster_supervisor *supervisor);
/* Releases workers whose process group has ended or used up its time. */
void muster_workers_release_ended(struct muster_supervisor *supervisor);
void muster_workers_signal(struct muster_supervisor *supervisor, int signal);
void muster_workers_finish(struct muster_supervisor *supervisor);
/* "worker 3 (host b, pid 4711)" */
const char *muster_worker_describe(const struct muster_worker *worker, char *text, size_t size);
static inline bool muster_worker_failed(const struct muster_worker *worker)
{
    return worker->status != 0 || worker->signal != 0;
}

/* What the job's own server is started with. */
struct muster_server_options muster_workers_server_options(struct muster_supervisor *supervisor);

/* worker_slots.c */
/* The lowest slot of the host (NULL: this one) that no worker of this launcher has, and that no
 * other process holds. */
uint32_t muster_worker_slots_choose(const struct muster_supervisor *supervisor,
                                    const struct muster_host_slots *host);
/* The name that workers on this host have; size: MUSTER_HOST_SIZE. */
const char *muster_worker_host_name(const struct muster_host_slots *host, char *text, size_t size);

/* job_changes.c */
/* Takes the newest snapshot from the poller, if there is one, and applies it. */
void muster_job_changes_handle(struct muster_supervisor *supervisor);
/* The members of the last snapshot that are no workers of this launcher. */
uint32_t muster_job_changes_others(const struct muster_supervisor *supervisor);
/* Reports what has changed since the last snapshot, and starts workers or ends the job if the
 * policy decides so. Takes the contents of the snapshot. */
void muster_job_changes_apply(struct muster_supervisor *supervisor,
                              struct muster_job_snapshot *snapshot);

/* summary.c */
/* Prints how the job went, on standard error and as JSON. Returns the exit status. */
int muster_summary_print(struct muster_supervisor *supervisor);

#endif
