/* muster bench: the leader, which starts the ranks and leads them through the phases. */
#include "worker/cli/bench/bench_parts.h"

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

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/status.h"
#include "worker/cli/cli.h"

enum {
    START_TIMEOUT_MS = 30000,
    CALL_TIMEOUT_MS = 60000, /* of one call in a rank */
    DEATH_MS = 2000,         /* limit from the end of a rank's sockets to the end of its process */
    REAP_POLL_MS = 5,
    SILENCE_MS = 5000,  /* after this time a line reports what the ranks are doing */
    ITERATIONS_MIN = 5, /* with --seconds */
};

struct rank_handle {
    struct leader *leader;
    uint32_t rank;
    int channel;      /* the leader's end; -1: none */
    int rank_channel; /* the rank's end, while the leader holds it; -1: none */
    pid_t pid;        /* of a process; 0: not started, or reaped */
    pthread_t thread; /* inproc */
    bool has_thread;
    bool reported; /* the rank has finished the phase */
};

struct leader {
    struct muster_bench_shared *shared;
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

/* Ranks are threads of this process, not processes. */
static bool has_threads(const struct leader *leader)
{
    return leader->shared->options.transport == MUSTER_BENCH_INPROC;
}

static void *run_thread(void *argument)
{
    struct rank_handle *handle = argument;
    muster_status status =
        muster_bench_rank_main(handle->leader->shared, handle->rank, handle->rank_channel);
    (void)status;                         /* it is in the rank's slot */
    close_channel(&handle->rank_channel); /* the leader sees the end of the stream */
    return NULL;
}

/* Runs in the child and does not return. The kernel kills the child when the leader dies. */
static void run_child(const struct rank_handle *handle, pid_t parent)
{
    struct leader *leader = handle->leader;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
        _exit(MUSTER_CLI_FAILED);
    }
    for (uint32_t i = 0; i <= handle->rank; i++) {
        close_channel(&leader->handles[i].channel);
    }
    muster_status status =
        muster_bench_rank_main(leader->shared, handle->rank, handle->rank_channel);
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

static muster_status start_rank(struct leader *leader, uint32_t rank)
{
    struct rank_handle *handle = &leader->handles[rank];
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return muster_error_errno(MUSTER_FATAL, "rank %u: no channel", rank);
    }
    *handle = (struct rank_handle){
        .leader = leader, .rank = rank, .channel = ends[0], .rank_channel = ends[1]};
    leader->started++;
    if (!has_threads(leader)) {
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

static muster_status start_ranks(struct leader *leader)
{
    for (uint32_t i = 0; i < leader->shared->options.ranks; i++) {
        TRY(start_rank(leader, i));
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

static bool find_killed(struct leader *leader)
{
    int number;
    for (uint32_t i = 0; i < leader->started; i++) {
        if (reap(&leader->handles[i], false, &number)) {
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
static muster_status describe_loss(struct leader *leader, const struct rank_handle *lost)
{
    const struct muster_bench_rank_slot *slot = &leader->shared->rank_slots[lost->rank];
    bool has_own_cause = slot->error[0] != '\0' && slot->status != MUSTER_REJOIN;
    int64_t deadline_ns = muster_clock_after_ms(has_own_cause ? 0 : DEATH_MS);
    while (!has_threads(leader)) {
        if (find_killed(leader)) {
            return MUSTER_FATAL;
        }
        if (muster_clock_ns() >= deadline_ns) {
            break;
        }
        (void)poll(NULL, 0, REAP_POLL_MS);
    }
    return muster_error_set(MUSTER_FATAL, "rank %u: %s", lost->rank,
                            slot->error[0] != '\0' ? slot->error
                                                   : "it ended without an error text");
}

static void stop_ranks(struct leader *leader, bool in_order)
{
    int unused;
    for (uint32_t i = 0; i < leader->started; i++) {
        struct rank_handle *handle = &leader->handles[i];
        if (handle->pid != 0 && !in_order) {
            kill(handle->pid, SIGKILL);
        }
        close_channel(&handle->channel);
    }
    for (uint32_t i = 0; i < leader->started; i++) {
        struct rank_handle *handle = &leader->handles[i];
        (void)reap(handle, true, &unused);
        if (handle->has_thread) {
            pthread_join(handle->thread, NULL);
        }
    }
}

/* Phases -------------------------------------------------------------------------------------- */

static muster_status receive_report(struct leader *leader, struct rank_handle *handle)
{
    char byte;
    ssize_t got = recv(handle->channel, &byte, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return MUSTER_OK;
    }
    if (got != 1) {
        return describe_loss(leader, handle);
    }
    handle->reported = true;
    return MUSTER_OK;
}

/* Waits until a rank reports or its stream ends. Ranks that have reported are polled too, because
 * they may be killed. MUSTER_RETRY: the time is up. */
static muster_status receive_reports(struct leader *leader, int64_t until_ns)
{
    struct pollfd polls[MUSTER_BENCH_RANKS_MAX];
    for (uint32_t i = 0; i < leader->started; i++) {
        polls[i] = (struct pollfd){.fd = leader->handles[i].channel, .events = POLLIN};
    }
    int ready = poll(polls, leader->started, muster_clock_left_ms(until_ns));
    if (ready == 0) {
        return muster_error_set(MUSTER_RETRY, "the ranks have not finished a phase in time");
    }
    for (uint32_t i = 0; ready > 0 && i < leader->started; i++) {
        if (polls[i].revents != 0) {
            TRY(receive_report(leader, &leader->handles[i]));
        }
    }
    return MUSTER_OK;
}

static bool all_ranks_reported(const struct leader *leader)
{
    for (uint32_t i = 0; i < leader->started; i++) {
        if (!leader->handles[i].reported) {
            return false;
        }
    }
    return true;
}

static muster_status wait_for_ranks(struct leader *leader, int64_t deadline_ns)
{
    while (!all_ranks_reported(leader)) {
        TRY(receive_reports(leader, deadline_ns));
    }
    return MUSTER_OK;
}

/* Waits until all ranks have finished the phase. If that takes longer than SILENCE_MS, with large
 * buffers or slow links for example, a line on standard error says what they are doing. activity:
 * "start"; NULL: the calls are being measured, which takes as long as the options ask for. */
static muster_status wait_for_phase(struct leader *leader, const char *activity,
                                    int64_t deadline_ns)
{
    for (uint32_t i = 0; i < leader->started; i++) {
        leader->handles[i].reported = false;
    }
    int64_t silent_until_ns = muster_clock_after_ms(SILENCE_MS);
    bool is_silent = activity == NULL || silent_until_ns >= deadline_ns;
    muster_status status = wait_for_ranks(leader, is_silent ? deadline_ns : silent_until_ns);
    if (is_silent || status != MUSTER_RETRY) {
        return status;
    }
    (void)fprintf(stderr, "muster: the ranks still %s\n", activity);
    return wait_for_ranks(leader, deadline_ns);
}

static muster_status release_ranks(struct leader *leader)
{
    char byte = 1;
    for (uint32_t i = 0; i < leader->started; i++) {
        if (send(leader->handles[i].channel, &byte, 1, MSG_NOSIGNAL) != 1) {
            return describe_loss(leader, &leader->handles[i]);
        }
    }
    return MUSTER_OK;
}

/* The number of timed calls, limited by the room for their times. */
static uint32_t choose_iterations(const struct muster_bench_options *options,
                                  const struct muster_bench_candidate *candidate)
{
    uint32_t most = MUSTER_BENCH_ITERATIONS_MAX / (uint32_t)options->algorithm_count;
    double wanted = options->iterations;
    if (options->iterations == 0) {
        wanted = options->seconds * 1e6 / (candidate->warm_us + 1);
        wanted = wanted < ITERATIONS_MIN ? ITERATIONS_MIN : wanted;
    }
    return wanted > most ? most : (uint32_t)wanted;
}

/* When this many calls must have ended, if each may take CALL_TIMEOUT_MS. */
static int64_t deadline_of_calls(uint64_t calls)
{
    return muster_clock_ns() + (int64_t)calls * CALL_TIMEOUT_MS * 1000000;
}

/* Leads the ranks through the two phases of a size. Between them the leader chooses how often each
 * algorithm is called, from the times of the warm calls. */
static muster_status run_size(struct leader *leader, size_t size_index,
                              struct muster_bench_result *ret_results)
{
    struct muster_bench_shared *shared = leader->shared;
    size_t algorithms = shared->options.algorithm_count;
    TRY(wait_for_phase(leader, "fill their buffers, check the first results and warm up",
                       deadline_of_calls(algorithms * (2 + MUSTER_BENCH_WARM_UP))));
    if (size_index == 0) {
        TRY(muster_bench_print_head(shared));
    }
    uint64_t calls = 0;
    for (size_t i = 0; i < algorithms; i++) {
        struct muster_bench_candidate *candidate = &shared->candidates[i];
        candidate->iterations =
            candidate->fits ? choose_iterations(&shared->options, candidate) : 0;
        calls += 2 * (uint64_t)candidate->iterations; /* with barriers between them */
    }
    TRY(release_ranks(leader));
    TRY(wait_for_phase(leader, NULL, deadline_of_calls(1 + calls)));
    TRY(muster_bench_compute_results(shared, size_index, ret_results));
    TRY(muster_bench_print(shared, ret_results));
    return release_ranks(leader);
}

static muster_status run_phases(struct leader *leader)
{
    const struct muster_bench_options *options = &leader->shared->options;
    AUTO_FREE struct muster_bench_result *results =
        calloc(options->size_count * options->algorithm_count, sizeof *results);
    if (results == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for results");
    }
    TRY(wait_for_phase(leader, "start", muster_clock_after_ms(START_TIMEOUT_MS)));
    TRY(release_ranks(leader));
    for (size_t i = 0; i < options->size_count; i++) {
        TRY(run_size(leader, i, results + i * options->algorithm_count));
    }
    return options->svg != NULL ? muster_bench_draw(options, results) : MUSTER_OK;
}

int muster_bench_run(struct muster_bench_shared *shared)
{
    struct leader *leader = calloc(1, sizeof *leader);
    if (leader == NULL) {
        (void)muster_error_set(MUSTER_FATAL, "no memory to start ranks");
        return muster_cli_fail(MUSTER_CLI_FAILED);
    }
    leader->shared = shared;
    muster_status status = start_ranks(leader);
    if (status == MUSTER_OK) {
        status = run_phases(leader);
    }
    stop_ranks(leader, status == MUSTER_OK);
    free(leader);
    return status == MUSTER_OK ? MUSTER_CLI_DONE : muster_cli_fail(MUSTER_CLI_FAILED);
}
