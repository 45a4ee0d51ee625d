/*
 * The launcher while its job runs: one thread, one poll loop over the workers' pipes, our own
 * output, signals, and what the lookout sees of the job on the server.
 *
 *   supervise.c   begins, loops, ends
 *   crew.c        starts workers, notices and reports their ends
 *   news.c        reads looks: who is whose member, growth, lost hope
 *   summary.c     the outcome, for people and as JSON
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
    MUSTER_WORKER_GROUP_ENDING = 2, /* its process has ended, others of its group finish in order */
    MUSTER_WORKER_ENDED = 3,
};

struct muster_worker {
    uint32_t index;                    /* in the order of starting; also MUSTER_ORDER */
    struct muster_host_slots *host;    /* NULL without pretended hosts */
    char label[MUSTER_HOST_SIZE + 16]; /* "a:0", "3" */
    pid_t pid;
    enum muster_worker_phase phase;
    struct muster_stream streams[2]; /* output, error */
    int status, signal;              /* how it ended: exit status, or signal if not 0 */
    uint32_t end_number;             /* 1: the first to end, ... */
    int64_t group_deadline_ns;
    bool leave_reported;
};

/* A member of the job that is one of our workers. */
struct muster_own_member {
    char id[MUSTER_UUID_SIZE];
    uint32_t worker;
    bool gone;
    uint64_t generation; /* gone: the last it was in */
};

struct muster_supervisor {
    const struct muster_run_options *options;
    struct muster_hosts hosts;
    bool private_server;
    char url[MUSTER_SERVER_URL_SIZE * 8];
    char token[MUSTER_TOKEN_MAX_BYTES + 1]; /* empty: none */
    char folder[PATH_MAX / 2];              /* temporary; empty: none */
    char token_file[PATH_MAX];              /* empty: none */
    struct muster_guard guard;
    struct muster_server server;
    struct muster_sink output, error;
    struct muster_sink *worker_output; /* where workers' standard output goes */
    int signal_fd, notify_fd;
    sigset_t outer_signals; /* mask to start programs with */
    int64_t started_ns;

    struct muster_worker **workers; /* owned [worker_count], each owned */
    uint32_t worker_count, running, ended;
    int64_t last_end_ns;
    uint32_t next_stream; /* the worker whose output is served first */
    int command_status;   /* not 0: the command cannot be executed */

    struct muster_job_poller *poller;
    struct muster_job_snapshot snapshot; /* the last one that knew the job */
    struct muster_own_member *members;   /* owned [member_count] */
    uint32_t member_count, member_capacity;
    bool unmatched_members; /* the job had members here that no worker is known for */
    uint64_t generation;    /* the last that was announced */
    struct muster_launch_policy policy;
    int64_t unreachable_since_ns; /* since when the server is not reached; 0: it is */
    bool unreachable_reported, broken_reported;

    int stop_signal; /* 0: nobody asked us to stop */
    bool killed;
};

#define MUSTER_PRINT(supervisor, ...) \
    muster_sink_print(&(supervisor)->error, "muster: " __VA_ARGS__)

/* crew.c */
/* Starts so many workers. On failure some may run. MUSTER_INVALID: the command cannot be executed,
 * command_status says how. */
MUSTER_CHECKED muster_status muster_workers_start(struct muster_supervisor *supervisor,
                                                  uint32_t count);
/* Notices what has ended, and says so. */
void muster_workers_reap(struct muster_supervisor *supervisor);
/* Ends the lingering of those whose pipes are closed or whose time is up. */
void muster_workers_release_ended(struct muster_supervisor *supervisor);
void muster_workers_signal(struct muster_supervisor *supervisor, int signal);
void muster_workers_finish(struct muster_supervisor *supervisor);
/* "worker 3 (host b, pid 4711)" */
const char *muster_worker_describe(const struct muster_worker *worker, char *text, size_t size);
static inline bool muster_worker_failed(const struct muster_worker *worker)
{
    return worker->status != 0 || worker->signal != 0;
}

/* news.c */
/* Takes the newest look, if there is one, and acts on it. */
void muster_job_events_handle(struct muster_supervisor *supervisor);
/* Takes over a look. */
void muster_job_events_apply(struct muster_supervisor *supervisor,
                             struct muster_job_snapshot *snapshot);

/* summary.c */
/* Says how the job went, on standard error and as JSON; returns the exit status. */
int muster_summary_print(struct muster_supervisor *supervisor);

#endif
