/* muster bench: starts the ranks of a measurement, leads them through phases, and ends them. */
#include "worker/cli/bench/bench_ranks.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/base/clock.h"
#include "worker/cli/cli.h"

enum {
    DEATH_MS = 2000, /* limit from the end of a rank's sockets to the end of its process */
    REAP_POLL_MS = 5,
    SILENCE_MS = 5000, /* after this time a line reports what the ranks are doing */
};

struct rank_handle {
    struct muster_bench_ranks *ranks;
    uint32_t rank;
    int channel;      /* the leader's end; -1: none */
    int rank_channel; /* the rank's end, while the leader holds it; -1: none */
    pid_t pid;        /* of a process; 0: not started, or reaped */
    pthread_t thread; /* inproc */
    bool has_thread;
    bool reported; /* the rank has finished the phase */
};

struct muster_bench_ranks {
    struct muster_bench_ranks_options options;
    uint32_t started;
    struct rank_handle handles[MUSTER_BENCH_RANKS_MAX];
};

/* Starting ------------------------------------------------------------------------------------ */

static void close_channel(int *channel)
{
    if (*channel >= 0) {
        close(*channel);
        *channel = -1;
    }
}

static muster_status run_rank(const struct rank_handle *handle)
{
    const struct muster_bench_ranks_options *options = &handle->ranks->options;
    return options->run(options->argument, handle->rank, handle->rank_channel);
}

static void *run_thread(void *argument)
{
    struct rank_handle *handle = argument;
    (void)run_rank(handle);               /* the status is in the rank's outcome */
    close_channel(&handle->rank_channel); /* the leader sees the end of the stream */
    return NULL;
}

/* Runs in the child and does not return. The kernel kills the child when the leader dies. */
static void run_child(const struct rank_handle *handle, pid_t parent)
{
    struct muster_bench_ranks *ranks = handle->ranks;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
        _exit(MUSTER_CLI_FAILED);
    }
    for (uint32_t i = 0; i <= handle->rank; i++) {
        close_channel(&ranks->handles[i].channel);
    }
    muster_status status = run_rank(handle);
    _exit(status == MUSTER_OK ? MUSTER_CLI_DONE : MUSTER_CLI_FAILED);
}

static muster_status start_child(struct rank_handle *handle)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        return muster_error_errno(MUSTER_FATAL, "rank %u: no process", handle->rank);
    }
    if (pid == 0) {
        run_child(handle, parent);
    }
    handle->pid = pid;
    close_channel(&handle->rank_channel);
    return MUSTER_OK;
}

static muster_status start_rank(struct muster_bench_ranks *ranks, uint32_t rank)
{
    struct rank_handle *handle = &ranks->handles[rank];
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return muster_error_errno(MUSTER_FATAL, "rank %u: no channel", rank);
    }
    *handle = (struct rank_handle){
        .ranks = ranks, .rank = rank, .channel = ends[0], .rank_channel = ends[1]};
    ranks->started++;
    if (!ranks->options.threads) {
        return start_child(handle);
    }
    int failed = pthread_create(&handle->thread, NULL, run_thread, handle);
    if (failed != 0) {
        close_channel(&handle->rank_channel);
        return muster_error_set(MUSTER_FATAL, "rank %u: no thread: %s", rank, strerror(failed));
    }
    handle->has_thread = true;
    return MUSTER_OK;
}

static muster_status start_ranks(struct muster_bench_ranks *ranks)
{
    for (uint32_t i = 0; i < ranks->options.count; i++) {
        TRY(start_rank(ranks, i));
    }
    return MUSTER_OK;
}

/* Ending -------------------------------------------------------------------------------------- */

/* Reaps a child, and blocks until it ends if `wait_for_it`. True if a signal killed it. */
static bool reap(struct rank_handle *handle, bool wait_for_it, int *ret_signal)
{
    int status = 0;
    pid_t pid;
    if (handle->pid == 0) {
        return false;
    }
    do {
        pid = waitpid(handle->pid, &status, wait_for_it ? 0 : WNOHANG);
    } while (pid < 0 && errno == EINTR);
    if (pid != handle->pid) {
        return false;
    }
    handle->pid = 0;
    *ret_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return WIFSIGNALED(status);
}

static bool find_killed(struct muster_bench_ranks *ranks)
{
    int number;
    for (uint32_t i = 0; i < ranks->started; i++) {
        if (reap(&ranks->handles[i], false, &number)) {
            (void)muster_error_set(MUSTER_FATAL, "rank %u was killed by signal %d (%s)", i, number,
                                   strsignal(number));
            return true;
        }
    }
    return false;
}

/* The stream of a rank has ended: sets the error text. If a rank was killed, that is the cause of
 * the errors of all others (a lost link), so the killed rank is the one to name. Its sockets close
 * some time before it can be reaped, so all children are checked until DEATH_MS is over. */
static muster_status describe_loss(struct muster_bench_ranks *ranks, const struct rank_handle *lost)
{
    const struct muster_bench_outcome *outcome = &ranks->options.outcomes[lost->rank];
    bool has_own_cause = outcome->error[0] != '\0' && outcome->status != MUSTER_REJOIN &&
                         outcome->status != MUSTER_ENDED;
    int64_t deadline_ns = muster_clock_after_ms(has_own_cause ? 0 : DEATH_MS);
    while (!ranks->options.threads) {
        if (find_killed(ranks)) {
            return MUSTER_FATAL;
        }
        if (muster_clock_ns() >= deadline_ns) {
            break;
        }
        (void)poll(NULL, 0, REAP_POLL_MS);
    }
    return muster_error_set(MUSTER_FATAL, "rank %u: %s", lost->rank,
                            outcome->error[0] != '\0' ? outcome->error
                                                      : "it ended without an error text");
}

static void stop_ranks(struct muster_bench_ranks *ranks, bool in_order)
{
    int unused;
    for (uint32_t i = 0; i < ranks->started; i++) {
        struct rank_handle *handle = &ranks->handles[i];
        if (handle->pid != 0 && !in_order) {
            kill(handle->pid, SIGKILL);
        }
        close_channel(&handle->channel);
    }
    for (uint32_t i = 0; i < ranks->started; i++) {
        struct rank_handle *handle = &ranks->handles[i];
        (void)reap(handle, true, &unused);
        if (handle->has_thread) {
            pthread_join(handle->thread, NULL);
        }
    }
}

/* Phases -------------------------------------------------------------------------------------- */

static muster_status receive_report(struct muster_bench_ranks *ranks, struct rank_handle *handle)
{
    char byte;
    ssize_t got = recv(handle->channel, &byte, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return MUSTER_OK;
    }
    if (got != 1) {
        return describe_loss(ranks, handle);
    }
    handle->reported = true;
    return MUSTER_OK;
}

/* Waits until a rank reports or its stream ends. Ranks that have reported are polled too, because
 * they may be killed. MUSTER_RETRY: the time is up. */
static muster_status receive_reports(struct muster_bench_ranks *ranks, int64_t until_ns)
{
    struct pollfd polls[MUSTER_BENCH_RANKS_MAX];
    for (uint32_t i = 0; i < ranks->started; i++) {
        polls[i] = (struct pollfd){.fd = ranks->handles[i].channel, .events = POLLIN};
    }
    int ready = poll(polls, ranks->started, muster_clock_left_ms(until_ns));
    if (ready == 0) {
        return muster_error_set(MUSTER_RETRY, "the ranks have not finished a phase in time");
    }
    for (uint32_t i = 0; ready > 0 && i < ranks->started; i++) {
        if (polls[i].revents != 0) {
            TRY(receive_report(ranks, &ranks->handles[i]));
        }
    }
    return MUSTER_OK;
}

static bool all_ranks_reported(const struct muster_bench_ranks *ranks)
{
    for (uint32_t i = 0; i < ranks->started; i++) {
        if (!ranks->handles[i].reported) {
            return false;
        }
    }
    return true;
}

static muster_status wait_for_ranks(struct muster_bench_ranks *ranks, int64_t deadline_ns)
{
    while (!all_ranks_reported(ranks)) {
        TRY(receive_reports(ranks, deadline_ns));
    }
    return MUSTER_OK;
}

muster_status muster_bench_ranks_wait(struct muster_bench_ranks *ranks, const char *activity,
                                      int64_t deadline_ns)
{
    for (uint32_t i = 0; i < ranks->started; i++) {
        ranks->handles[i].reported = false;
    }
    int64_t silent_until_ns = muster_clock_after_ms(SILENCE_MS);
    bool is_silent = activity == NULL || silent_until_ns >= deadline_ns;
    muster_status status = wait_for_ranks(ranks, is_silent ? deadline_ns : silent_until_ns);
    if (is_silent || status != MUSTER_RETRY) {
        return status;
    }
    (void)fprintf(stderr, "muster: the ranks still %s\n", activity);
    return wait_for_ranks(ranks, deadline_ns);
}

muster_status muster_bench_ranks_release(struct muster_bench_ranks *ranks)
{
    char byte = 1;
    for (uint32_t i = 0; i < ranks->started; i++) {
        if (send(ranks->handles[i].channel, &byte, 1, MSG_NOSIGNAL) != 1) {
            return describe_loss(ranks, &ranks->handles[i]);
        }
    }
    return MUSTER_OK;
}

/* In a rank ----------------------------------------------------------------------------------- */

void muster_bench_outcome_set(struct muster_bench_outcome *outcome, muster_status status)
{
    outcome->status = status;
    if (status != MUSTER_OK) {
        (void)snprintf(outcome->error, sizeof outcome->error, "%s", muster_last_error());
    }
}

muster_status muster_bench_rank_end_phase(int channel)
{
    char byte = 1;
    if (send(channel, &byte, 1, MSG_NOSIGNAL) != 1) {
        return muster_error_errno(MUSTER_FATAL, "the bench leader has ended");
    }
    ssize_t got;
    do {
        got = recv(channel, &byte, 1, 0);
    } while (got < 0 && errno == EINTR);
    return got == 1
               ? MUSTER_OK
               : muster_error_set(MUSTER_ENDED, "the bench leader has stopped the measurement");
}

/* The whole ----------------------------------------------------------------------------------- */

int muster_bench_ranks_lead(const struct muster_bench_ranks_options *options,
                            muster_status (*lead)(struct muster_bench_ranks *ranks, void *argument),
                            void *argument)
{
    struct muster_bench_ranks *ranks = calloc(1, sizeof *ranks);
    if (ranks == NULL) {
        (void)muster_error_set(MUSTER_FATAL, "no memory to start ranks");
        return muster_cli_fail(MUSTER_CLI_FAILED);
    }
    ranks->options = *options;
    muster_status status = start_ranks(ranks);
    if (status == MUSTER_OK) {
        status = lead(ranks, argument);
    }
    stop_ranks(ranks, status == MUSTER_OK);
    free(ranks);
    return status == MUSTER_OK ? MUSTER_CLI_DONE : muster_cli_fail(MUSTER_CLI_FAILED);
}
