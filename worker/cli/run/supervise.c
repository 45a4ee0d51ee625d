/* The launcher from start to end: one poll loop over pipes, signals and polls of the job. */
#include "worker/cli/run/run_parts.h"

#include "worker/base/clock.h"
#include "worker/cli/cli.h"
#include "worker/cli/print.h"
#include "worker/cli/run/run_files.h"
#include "worker/cli/service.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    POLL_OWN_MS = 200,      /* how often a server of the job's own is polled */
    POLL_SHARED_MS = 1000,  /* and one that serves other jobs too */
    GROUP_POLL_MS = 100,    /* how often process groups that are ending are checked */
    DRAIN_MS = 1000,        /* limit for pipes that stay open after the last worker has ended */
    FLUSH_MS = 5000,        /* limit for writing the launcher's own output at the end */
    FLUSH_STOPPED_MS = 500, /* the same after Ctrl-C or SIGTERM */
    LAST_POLL_MS = 3000,    /* limit for a poll after the end of the last worker */
    FIXED_FDS = 4,
};

/* Start --------------------------------------------------------------------------------------- */

static muster_status catch_signals(struct muster_supervisor *supervisor)
{
    sigset_t caught;
    sigemptyset(&caught);
    sigaddset(&caught, SIGINT);
    sigaddset(&caught, SIGTERM);
    sigaddset(&caught, SIGHUP);
    sigaddset(&caught, SIGCHLD);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigprocmask(SIG_BLOCK, &caught, &supervisor->outer_signals);
    supervisor->signal_fd = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
    supervisor->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (supervisor->signal_fd < 0 || supervisor->notify_fd < 0) {
        return muster_error_errno(MUSTER_FATAL, "the launcher's descriptors");
    }
    return MUSTER_OK;
}

/* Two pipes for each worker can exceed the usual soft limit. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void print_start(struct muster_supervisor *supervisor)
{
    const struct muster_run_options *options = supervisor->options;
    char token[PATH_MAX + 16] = "";
    if (supervisor->token_file[0] != '\0') {
        (void)snprintf(token, sizeof token, " --token-file %s", supervisor->token_file);
    }
    MUSTER_PRINT(supervisor,
                 "job %s: %u worker%s (min %u, max %u); status: muster job show %s --rendezvous "
                 "%s%s",
                 options->job, options->size, muster_cli_plural(options->size), options->min_size,
                 options->max_size, options->job, supervisor->url, token);
}

static muster_status find_server(struct muster_supervisor *supervisor)
{
    const struct muster_run_options *options = supervisor->options;
    if (options->rendezvous != NULL) {
        (void)snprintf(supervisor->url, sizeof supervisor->url, "%s", options->rendezvous);
        return MUSTER_OK;
    }
    const struct muster_server_options server = muster_workers_server_options(supervisor);
    TRY(muster_server_start(&supervisor->guard, &server, &supervisor->server));
    (void)snprintf(supervisor->url, sizeof supervisor->url, "%s", supervisor->server.url);
    return MUSTER_OK;
}

static void remove_files(void *argument)
{
    muster_run_files_remove(argument);
}

/* The order matters. Signals are blocked before anything is started. The guard is forked before
 * there are threads, and knows the temporary folder that it has to remove. The server's address
 * goes into the environment of the workers. The thread that polls the job starts last. */
static muster_status begin(struct muster_supervisor *supervisor)
{
    const struct muster_run_options *options = supervisor->options;
    TRY(muster_sink_init(&supervisor->error, STDERR_FILENO));
    TRY(muster_sink_init(&supervisor->output, STDOUT_FILENO));
    TRY(catch_signals(supervisor));
    raise_descriptor_limit();
    TRY(muster_run_files_create(supervisor));
    TRY(muster_guard_open(remove_files, supervisor, &supervisor->guard));
    TRY(find_server(supervisor));
    TRY(muster_workers_start(supervisor, options->size));
    print_start(supervisor);
    return muster_job_poller_create(supervisor->url, supervisor->token, options->job,
                                    supervisor->private_server ? POLL_OWN_MS : POLL_SHARED_MS,
                                    supervisor->notify_fd, &supervisor->poller);
}

/* The loop ------------------------------------------------------------------------------------ */

/* The first signal asks the workers to end; a second one kills them. */
static void stop(struct muster_supervisor *supervisor, int signal)
{
    if (supervisor->stop_signal == 0) {
        supervisor->stop_signal = signal;
        MUSTER_PRINT(supervisor, "%s: sending SIGTERM to %u worker%s; a second signal kills them",
                     signal == SIGINT ? "Ctrl-C" : strsignal(signal), supervisor->running,
                     muster_cli_plural(supervisor->running));
        muster_workers_signal(supervisor, SIGTERM);
    } else {
        supervisor->killed = true;
        MUSTER_PRINT(supervisor, "killing %u worker%s", supervisor->running,
                     muster_cli_plural(supervisor->running));
        muster_workers_signal(supervisor, SIGKILL);
    }
}

static void read_signals(struct muster_supervisor *supervisor)
{
    struct signalfd_siginfo info;
    bool ended = false;
    while (read(supervisor->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            ended = true;
        } else {
            stop(supervisor, (int)info.ssi_signo);
        }
    }
    if (ended) {
        muster_workers_reap(supervisor);
    }
}

static struct muster_stream *stream_at(struct muster_supervisor *supervisor, uint32_t index)
{
    uint32_t workers = supervisor->worker_count * 2;
    if (index < workers) {
        return &supervisor->workers[index / 2]->streams[index % 2];
    }
    return &supervisor->server.error;
}

static uint32_t stream_count(const struct muster_supervisor *supervisor)
{
    return supervisor->worker_count * 2 + (supervisor->private_server ? 1 : 0);
}

static bool should_read(const struct muster_stream *stream)
{
    return stream->fd >= 0 && stream->used < MUSTER_LINE_MAX_BYTES &&
           muster_sink_wants_more(stream->sink);
}

/* Streams are served in turn: the next round starts with the first one that a full sink blocked in
 * this round, so that a worker with much output does not silence the others. */
static void serve_streams(struct muster_supervisor *supervisor, const struct pollfd *fds)
{
    uint32_t count = stream_count(supervisor);
    uint32_t first = supervisor->next_stream;
    bool blocked = false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = (first + i) % count;
        struct muster_stream *stream = stream_at(supervisor, index);
        if (fds[index].fd >= 0 && fds[index].revents != 0 &&
            muster_stream_read(stream) != MUSTER_OK) {
            MUSTER_PRINT(supervisor, "%s", muster_last_error());
        }
        if (stream->used > 0 && muster_stream_pump(stream) && !blocked) {
            blocked = true;
            supervisor->next_stream = index;
        }
    }
}

static void report_broken_output(struct muster_supervisor *supervisor)
{
    struct muster_sink *output = &supervisor->output;
    if (output->broken && !supervisor->broken_reported) {
        supervisor->broken_reported = true;
        MUSTER_PRINT(supervisor,
                     "standard output: %s: further output of the workers is dropped; the job "
                     "continues",
                     output->broken_why);
    }
}

static bool any_group_ending(const struct muster_supervisor *supervisor)
{
    for (uint32_t i = 0; i < supervisor->worker_count; i++) {
        if (supervisor->workers[i]->phase == MUSTER_WORKER_GROUP_ENDING) {
            return true;
        }
    }
    return false;
}

/* One round of the loop: waits for output, a signal or a poll of the job, and handles what has
 * come. Output is first moved on, so that what a worker printed stands before the report of its
 * end. False: out of memory. */
static bool poll_once(struct muster_supervisor *supervisor, int timeout_ms)
{
    uint32_t count = stream_count(supervisor);
    struct pollfd *fds = calloc(count + FIXED_FDS, sizeof *fds);
    if (fds == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct muster_stream *stream = stream_at(supervisor, i);
        fds[i] = (struct pollfd){.fd = should_read(stream) ? stream->fd : -1, .events = POLLIN};
    }
    struct pollfd *fixed = fds + count;
    fixed[0] = (struct pollfd){.fd = supervisor->signal_fd, .events = POLLIN};
    fixed[1] = (struct pollfd){.fd = supervisor->notify_fd, .events = POLLIN};
    fixed[2] = (struct pollfd){.fd = muster_sink_poll_fd(&supervisor->output), .events = POLLOUT};
    fixed[3] = (struct pollfd){.fd = muster_sink_poll_fd(&supervisor->error), .events = POLLOUT};
    (void)poll(fds, count + 4, any_group_ending(supervisor) ? GROUP_POLL_MS : timeout_ms);
    serve_streams(supervisor, fds);
    muster_sink_flush(&supervisor->output);
    muster_sink_flush(&supervisor->error);
    report_broken_output(supervisor);
    if (fixed[0].revents != 0) {
        read_signals(supervisor);
    }
    uint64_t polls;
    if (fixed[1].revents != 0 && read(supervisor->notify_fd, &polls, sizeof polls) > 0) {
        muster_job_changes_handle(supervisor);
    }
    muster_workers_release_ended(supervisor);
    free(fds);
    return true;
}

static bool has_unprinted_output(struct muster_supervisor *supervisor)
{
    for (uint32_t i = 0; i < supervisor->worker_count * 2; i++) {
        const struct muster_stream *stream = stream_at(supervisor, i);
        if (stream->fd >= 0 || stream->used > 0) {
            return true;
        }
    }
    return false;
}

/* The job's own server serves until the members that were started elsewhere have ended. A poll that
 * was sent before the last worker's end does not show that: the next one is waited for. */
static void wait_for_others(struct muster_supervisor *supervisor)
{
    const struct muster_job_snapshot *snapshot = &supervisor->snapshot;
    int64_t deadline_ns = muster_clock_after_ms(LAST_POLL_MS);
    bool reported = false;
    while (supervisor->private_server && supervisor->server.running &&
           supervisor->stop_signal == 0 && snapshot->job.phase != MUSTER_JOB_ENDED) {
        bool stale = supervisor->polled_ns < supervisor->last_end_ns;
        uint32_t others = muster_job_changes_others(supervisor);
        if (stale ? muster_clock_left_ms(deadline_ns) == 0 : others == 0) {
            return;
        }
        if (!stale && !reported) {
            reported = true;
            MUSTER_PRINT(supervisor,
                         "no worker of this launcher is left; the job continues with %u member%s "
                         "started elsewhere",
                         others, muster_cli_plural(others));
        }
        (void)poll_once(supervisor, stale ? muster_clock_left_ms(deadline_ns) : -1);
    }
}

static void loop(struct muster_supervisor *supervisor)
{
    while (supervisor->running > 0) {
        if (!poll_once(supervisor, -1)) {
            supervisor->killed = true;
            muster_workers_signal(supervisor, SIGKILL);
        }
    }
    wait_for_others(supervisor);
    int64_t deadline_ns = muster_clock_after_ms(DRAIN_MS);
    bool over = false; /* what has come by then is printed, also if the launcher itself was late */
    while (has_unprinted_output(supervisor) && !over) {
        int left_ms = muster_clock_left_ms(deadline_ns);
        over = left_ms == 0;
        (void)poll_once(supervisor, left_ms);
    }
}

/* End ----------------------------------------------------------------------------------------- */

/* The last poll may be older than the end of the last worker. A server that does not answer has
 * been reported before, or it is too late to. */
static void poll_a_last_time(struct muster_supervisor *supervisor)
{
    muster_job_poller_destroy(supervisor->poller);
    supervisor->poller = NULL;
    if (supervisor->private_server && !supervisor->server.running) {
        return;
    }
    struct muster_client *client = NULL;
    struct muster_job_snapshot snapshot = {
        .requested_ns = muster_clock_ns(), .reached = true, .known = true};
    muster_status status = muster_service_connect(supervisor->url, supervisor->token, &client);
    if (status == MUSTER_OK) {
        status = muster_service_get_job(client, supervisor->options->job,
                                        MUSTER_JOB_POLL_TIMEOUT_MS, &snapshot.job, NULL);
    }
    muster_client_destroy(client);
    if (status == MUSTER_OK) {
        muster_job_changes_apply(supervisor, &snapshot);
    }
}

/* Ends everything that begin() has started, also after it has failed halfway: workers before their
 * server, and the guard when no process is left for it. Output comes last, because each of these
 * may still print. */
static void finish(struct muster_supervisor *supervisor)
{
    muster_job_poller_destroy(supervisor->poller);
    muster_workers_finish(supervisor);
    muster_server_stop(&supervisor->server, &supervisor->guard);
    muster_guard_close(&supervisor->guard);
    muster_run_files_remove(supervisor);
    muster_job_response_finish(&supervisor->snapshot.job);
    free(supervisor->members);
    int64_t deadline_ns =
        muster_clock_after_ms(supervisor->stop_signal == 0 ? FLUSH_MS : FLUSH_STOPPED_MS);
    if (supervisor->output.buffer != NULL) {
        muster_sink_drain(&supervisor->output, deadline_ns);
    }
    if (supervisor->error.buffer != NULL) {
        muster_sink_drain(&supervisor->error, deadline_ns);
    }
    muster_sink_finish(&supervisor->output);
    muster_sink_finish(&supervisor->error);
    if (supervisor->signal_fd >= 0) {
        close(supervisor->signal_fd);
    }
    if (supervisor->notify_fd >= 0) {
        close(supervisor->notify_fd);
    }
    free(supervisor);
}

static int explain_failed_start(struct muster_supervisor *supervisor)
{
    if (supervisor->error.buffer == NULL) {
        return muster_cli_fail(MUSTER_CLI_FAILED);
    }
    MUSTER_PRINT(supervisor, "%s", muster_last_error());
    return supervisor->command_status != 0 ? supervisor->command_status : MUSTER_CLI_FAILED;
}

/* With --json - standard output is for the summary alone: the workers' output then goes to standard
 * error. */
int muster_supervise(const struct muster_run_options *options)
{
    struct muster_supervisor *supervisor = calloc(1, sizeof *supervisor);
    if (supervisor == NULL) {
        (void)muster_error_set(MUSTER_FATAL, "out of memory");
        return muster_cli_fail(MUSTER_CLI_FAILED);
    }
    supervisor->options = options;
    supervisor->hosts = options->hosts;
    supervisor->private_server = options->rendezvous == NULL;
    supervisor->signal_fd = supervisor->notify_fd = supervisor->guard.fd = -1;
    supervisor->started_ns = muster_clock_ns();
    muster_launch_policy_init(&supervisor->policy, options->target_size);
    bool to_error = options->json != NULL && strcmp(options->json, "-") == 0;
    supervisor->worker_output = to_error ? &supervisor->error : &supervisor->output;
    int exit_status;
    if (begin(supervisor) == MUSTER_OK) {
        loop(supervisor);
        poll_a_last_time(supervisor);
        exit_status = muster_summary_print(supervisor);
    } else {
        exit_status = explain_failed_start(supervisor);
    }
    finish(supervisor);
    return exit_status;
}
