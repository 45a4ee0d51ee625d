/* The workers of the launcher: starts them, detects and reports their ends. */
#include "worker/cli/run/environment.h"

#include "worker/base/clock.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* GROUP_END_MS: after Ctrl-C or SIGTERM the other processes of a worker's group have this long to
 * end by themselves once the worker has ended. */
enum { GROUP_END_MS = 10000, DESCRIPTION_SIZE = 128 };

const char *muster_worker_describe(const struct muster_worker *worker, char *text, size_t size)
{
    if (worker->host != NULL) {
        (void)snprintf(text, size, "worker %u (host %s, pid %d)", worker->index, worker->host->name,
                       (int)worker->pid);
    } else {
        (void)snprintf(text, size, "worker %u (pid %d)", worker->index, (int)worker->pid);
    }
    return text;
}

/* Starting ------------------------------------------------------------------------------------ */

static muster_status start_process(struct muster_supervisor *supervisor,
                                   struct muster_worker *worker, struct muster_process *ret_process)
{
    struct muster_environment environment;
    TRY(muster_environment_init(supervisor, worker, &environment));
    const struct muster_command command = {
        .argv = supervisor->options->command,
        .environment = environment.entries,
        .signals = &supervisor->outer_signals,
    };
    muster_status status = muster_process_start(&supervisor->guard, &command, ret_process,
                                                &supervisor->command_status);
    muster_environment_finish(&environment);
    return status;
}

static void name_worker(struct muster_worker *worker)
{
    if (worker->host == NULL) {
        (void)snprintf(worker->label, sizeof worker->label, "%u", worker->index);
    } else {
        (void)snprintf(worker->label, sizeof worker->label, "%s:%u", worker->host->name,
                       worker->slot);
        worker->host->running++;
    }
}

/* The worker is added to the supervisor only when its process runs: a failure leaves no trace. */
static muster_status start_one(struct muster_supervisor *supervisor)
{
    size_t size_bytes = (supervisor->worker_count + 1) * sizeof(struct muster_worker *);
    struct muster_worker **workers = realloc(supervisor->workers, size_bytes);
    if (workers == NULL) {
        return muster_error_set(MUSTER_FATAL, "a worker: out of memory");
    }
    supervisor->workers = workers;
    struct muster_worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL) {
        return muster_error_set(MUSTER_FATAL, "a worker: out of memory");
    }
    worker->index = supervisor->worker_count;
    worker->host = muster_hosts_choose(&supervisor->hosts);
    worker->slot = muster_worker_slots_choose(supervisor, worker->host);
    struct muster_process process;
    muster_status status = start_process(supervisor, worker, &process);
    if (status != MUSTER_OK) {
        free(worker);
        return status;
    }
    worker->pid = process.pid;
    worker->phase = MUSTER_WORKER_RUNNING;
    name_worker(worker);
    const char *label = supervisor->options->prefix ? worker->label : NULL;
    muster_stream_init(&worker->streams[0], process.output, supervisor->worker_output, label,
                       worker->index);
    muster_stream_init(&worker->streams[1], process.error, &supervisor->error, label,
                       worker->index);
    workers[supervisor->worker_count++] = worker;
    supervisor->running++;
    return MUSTER_OK;
}

muster_status muster_workers_start(struct muster_supervisor *supervisor, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        TRY(start_one(supervisor));
    }
    return MUSTER_OK;
}

/* Ending -------------------------------------------------------------------------------------- */

/* True if no process holds the write end of a pipe any more, whether or not all output has been
 * read. */
static bool pipes_are_closed(const struct muster_worker *worker)
{
    for (int i = 0; i < 2; i++) {
        struct pollfd end = {.fd = worker->streams[i].fd};
        if (end.fd >= 0 && (poll(&end, 1, 0) != 1 || (end.revents & POLLHUP) == 0)) {
            return false;
        }
    }
    return true;
}

static void print_end(struct muster_supervisor *supervisor, const struct muster_worker *worker)
{
    char who[DESCRIPTION_SIZE];
    (void)muster_worker_describe(worker, who, sizeof who);
    if (worker->signal != 0) {
        MUSTER_PRINT(supervisor, "%s was killed by signal %d (%s); not replaced", who,
                     worker->signal, strsignal(worker->signal));
    } else if (worker->status != 0) {
        MUSTER_PRINT(supervisor, "%s failed with exit status %d; not replaced", who,
                     worker->status);
    }
}

/* The process number may be used again from here on. */
static void release_worker(struct muster_supervisor *supervisor, struct muster_worker *worker)
{
    muster_process_reap(&supervisor->guard, worker->pid);
    worker->phase = MUSTER_WORKER_ENDED;
    supervisor->running--;
    if (worker->host != NULL) {
        worker->host->running--;
    }
}

static void record_end(struct muster_supervisor *supervisor, struct muster_worker *worker,
                       const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED) {
        worker->status = info->si_status;
    } else {
        worker->signal = info->si_status;
    }
    worker->end_number = ++supervisor->ended;
    supervisor->last_end_ns = muster_clock_ns();
    print_end(supervisor, worker);
    if (supervisor->poller != NULL) {
        muster_job_poller_poll_now(supervisor->poller);
    }
    if (supervisor->stop_signal != 0 && !supervisor->killed && !pipes_are_closed(worker)) {
        worker->phase = MUSTER_WORKER_GROUP_ENDING;
        worker->group_deadline_ns = muster_clock_after_ms(GROUP_END_MS);
    } else {
        release_worker(supervisor, worker);
    }
}

struct muster_server_options muster_workers_server_options(struct muster_supervisor *supervisor)
{
    struct muster_server_options options = {
        .folder = supervisor->folder,
        .store = supervisor->options->store,
        .signals = &supervisor->outer_signals,
        .sink = &supervisor->error,
    };
    memcpy(options.timings, supervisor->options->timings, sizeof options.timings);
    return options;
}

static void restart_server(struct muster_supervisor *supervisor, const siginfo_t *info)
{
    const struct muster_server_options options = muster_workers_server_options(supervisor);
    struct muster_server *server = &supervisor->server;
    pid_t pid = server->process.pid;
    const char *how = info->si_code != CLD_EXITED ? "signal" : "exit status";
    muster_process_reap(&supervisor->guard, pid);
    server->running = false;
    if (muster_server_restart(&supervisor->guard, &options, server) == MUSTER_OK) {
        MUSTER_PRINT(supervisor,
                     "the job's own musterd (pid %d) has ended (%s %d); started again (pid %d)",
                     (int)pid, how, info->si_status, (int)server->process.pid);
    } else {
        MUSTER_PRINT(supervisor,
                     "the job's own musterd (pid %d) has ended (%s %d), and is not started again: "
                     "%s; the workers continue, but the job can no longer grow or survive a death",
                     (int)pid, how, info->si_status, muster_last_error());
    }
}

void muster_workers_reap(struct muster_supervisor *supervisor)
{
    siginfo_t info;
    for (uint32_t i = 0; i < supervisor->worker_count; i++) {
        struct muster_worker *worker = supervisor->workers[i];
        if (worker->phase == MUSTER_WORKER_RUNNING && muster_process_ended(worker->pid, &info)) {
            record_end(supervisor, worker, &info);
        }
    }
    if (supervisor->server.running && muster_process_ended(supervisor->server.process.pid, &info)) {
        restart_server(supervisor, &info);
    }
}

void muster_workers_release_ended(struct muster_supervisor *supervisor)
{
    for (uint32_t i = 0; i < supervisor->worker_count; i++) {
        struct muster_worker *worker = supervisor->workers[i];
        if (worker->phase == MUSTER_WORKER_GROUP_ENDING &&
            (pipes_are_closed(worker) || supervisor->killed ||
             muster_clock_left_ms(worker->group_deadline_ns) == 0)) {
            release_worker(supervisor, worker);
        }
    }
}

void muster_workers_signal(struct muster_supervisor *supervisor, int signal)
{
    for (uint32_t i = 0; i < supervisor->worker_count; i++) {
        if (supervisor->workers[i]->phase != MUSTER_WORKER_ENDED) {
            muster_process_signal(supervisor->workers[i]->pid, signal);
        }
    }
}

void muster_workers_finish(struct muster_supervisor *supervisor)
{
    for (uint32_t i = 0; i < supervisor->worker_count; i++) {
        struct muster_worker *worker = supervisor->workers[i];
        if (worker->phase != MUSTER_WORKER_ENDED) {
            release_worker(supervisor, worker);
        }
        muster_stream_finish(&worker->streams[0]);
        muster_stream_finish(&worker->streams[1]);
        free(worker);
    }
    free(supervisor->workers);
    supervisor->workers = NULL;
    supervisor->worker_count = 0;
}
