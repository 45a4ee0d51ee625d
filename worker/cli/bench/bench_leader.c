/* muster bench: the parent, which starts the ranks and leads them through the phases. */
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
    CALL_TIMEOUT_MS = 60000, /* as long as one call may take in a rank */
    DEATH_MS = 2000,         /* from a process's last sign to its end */
    NAP_MS = 5,
    QUIET_MS = 5000,    /* then a phase that takes long is explained */
    ITERATIONS_MIN = 5, /* when --seconds says how many */
};

struct worker {
    struct lead *lead;
    uint32_t rank;
    int channel;      /* the parent's end; -1: none */
    int rank_channel; /* the rank's end, while the parent has it; -1: none */
    pid_t pid;        /* tcp; 0: not started, or reaped */
    pthread_t thread; /* inproc */
    bool has_thread;
    bool reported; /* the phase is over for this rank */
};

struct lead {
    struct muster_bench_board *board;
    uint32_t started;
    struct worker workers[MUSTER_BENCH_RANKS_MAX];
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
static bool has_threads(const struct lead *lead)
{
    return lead->board->options.transport == MUSTER_BENCH_INPROC;
}

static void *run_thread(void *argument)
{
    struct worker *worker = argument;
    muster_status status =
        muster_bench_work(worker->lead->board, worker->rank, worker->rank_channel);
    (void)status;                         /* it is on the board */
    close_channel(&worker->rank_channel); /* which the parent sees */
    return NULL;
}

/* In the child. Does not return; dies with the parent. */
static void run_child(const struct worker *worker, pid_t parent)
{
    struct lead *lead = worker->lead;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
        _exit(MUSTER_CLI_FAILED);
    }
    for (uint32_t i = 0; i <= worker->rank; i++) {
        close_channel(&lead->workers[i].channel);
    }
    muster_status status = muster_bench_work(lead->board, worker->rank, worker->rank_channel);
    _exit(status == MUSTER_OK ? MUSTER_CLI_DONE : MUSTER_CLI_FAILED);
}

static muster_status start_child(struct worker *worker)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        return muster_error_errno(MUSTER_FATAL, "rank %u: no process", worker->rank);
    }
    if (pid == 0) {
        run_child(worker, parent);
    }
    worker->pid = pid;
    close_channel(&worker->rank_channel);
    return MUSTER_OK;
}

static muster_status start_worker(struct lead *lead, uint32_t rank)
{
    struct worker *worker = &lead->workers[rank];
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return muster_error_errno(MUSTER_FATAL, "rank %u: no channel", rank);
    }
    *worker =
        (struct worker){.lead = lead, .rank = rank, .channel = ends[0], .rank_channel = ends[1]};
    lead->started++;
    if (!has_threads(lead)) {
        return start_child(worker);
    }
    int failed = pthread_create(&worker->thread, NULL, run_thread, worker);
    if (failed != 0) {
        close_channel(&worker->rank_channel);
        return muster_error_set(MUSTER_FATAL, "rank %u: no thread: %s", rank, strerror(failed));
    }
    worker->has_thread = true;
    return MUSTER_OK;
}

static muster_status start_workers(struct lead *lead)
{
    for (uint32_t i = 0; i < lead->board->options.ranks; i++) {
        TRY(start_worker(lead, i));
    }
    return MUSTER_OK;
}

/* Ending -------------------------------------------------------------------------------------- */

/* Reaps a child, waiting for it if `wait_for_it`. True if it has died of a signal. */
static bool reap(struct worker *worker, bool wait_for_it, int *ret_signal)
{
    int status = 0;
    pid_t pid;
    if (worker->pid == 0) {
        return false;
    }
    do {
        pid = waitpid(worker->pid, &status, wait_for_it ? 0 : WNOHANG);
    } while (pid < 0 && errno == EINTR);
    if (pid != worker->pid) {
        return false;
    }
    worker->pid = 0;
    *ret_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return WIFSIGNALED(status);
}

static bool find_killed(struct lead *lead)
{
    int number;
    for (uint32_t i = 0; i < lead->started; i++) {
        if (reap(&lead->workers[i], false, &number)) {
            (void)muster_error_set(MUSTER_FATAL, "rank %u was killed by signal %d (%s)", i, number,
                                   strsignal(number));
            return true;
        }
    }
    return false;
}

/* A rank is gone. One that was killed is the cause of what the others then say (a link is lost), so
 * it is named first; its sockets close some time before it can be reaped. */
static muster_status explain(struct lead *lead, const struct worker *gone)
{
    const struct muster_bench_seat *seat = &lead->board->seats[gone->rank];
    bool has_own_cause = seat->error[0] != '\0' && seat->status != MUSTER_REJOIN;
    int64_t deadline_ns = muster_clock_after_ms(has_own_cause ? 0 : DEATH_MS);
    while (!has_threads(lead)) {
        if (find_killed(lead)) {
            return MUSTER_FATAL;
        }
        if (muster_clock_ns() >= deadline_ns) {
            break;
        }
        (void)poll(NULL, 0, NAP_MS);
    }
    return muster_error_set(MUSTER_FATAL, "rank %u: %s", gone->rank,
                            seat->error[0] != '\0' ? seat->error : "gone without a word");
}

static void stop_workers(struct lead *lead, bool in_order)
{
    int unused;
    for (uint32_t i = 0; i < lead->started; i++) {
        struct worker *worker = &lead->workers[i];
        if (worker->pid != 0 && !in_order) {
            kill(worker->pid, SIGKILL);
        }
        close_channel(&worker->channel);
    }
    for (uint32_t i = 0; i < lead->started; i++) {
        struct worker *worker = &lead->workers[i];
        (void)reap(worker, true, &unused);
        if (worker->has_thread) {
            pthread_join(worker->thread, NULL);
        }
    }
}

/* Phases -------------------------------------------------------------------------------------- */

static muster_status hear(struct lead *lead, struct worker *worker)
{
    char byte;
    ssize_t got = recv(worker->channel, &byte, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return MUSTER_OK;
    }
    if (got != 1) {
        return explain(lead, worker);
    }
    worker->reported = true;
    return MUSTER_OK;
}

/* Hears from all those that have something to say until then. Ones that have reported are watched
 * as well: they may be killed. MUSTER_RETRY: nobody had. */
static muster_status hear_all(struct lead *lead, int64_t until_ns)
{
    struct pollfd polls[MUSTER_BENCH_RANKS_MAX];
    for (uint32_t i = 0; i < lead->started; i++) {
        polls[i] = (struct pollfd){.fd = lead->workers[i].channel, .events = POLLIN};
    }
    int ready = poll(polls, lead->started, muster_clock_left_ms(until_ns));
    if (ready == 0) {
        return muster_error_set(MUSTER_RETRY, "the ranks have not come to the end of a phase");
    }
    for (uint32_t i = 0; ready > 0 && i < lead->started; i++) {
        if (polls[i].revents != 0) {
            TRY(hear(lead, &lead->workers[i]));
        }
    }
    return MUSTER_OK;
}

static bool all_reported(const struct lead *lead)
{
    for (uint32_t i = 0; i < lead->started; i++) {
        if (!lead->workers[i].reported) {
            return false;
        }
    }
    return true;
}

static muster_status await_rest(struct lead *lead, int64_t deadline_ns)
{
    while (!all_reported(lead)) {
        TRY(hear_all(lead, deadline_ns));
    }
    return MUSTER_OK;
}

/* What the ranks are at is said where nothing else is printed for long, with large buffers or slow
 * links for example. NULL: it is what was asked for. */
static muster_status await_phase(struct lead *lead, const char *doing, int64_t deadline_ns)
{
    for (uint32_t i = 0; i < lead->started; i++) {
        lead->workers[i].reported = false;
    }
    int64_t quiet_ns = muster_clock_after_ms(QUIET_MS);
    bool may_wait = doing == NULL || quiet_ns >= deadline_ns;
    muster_status status = await_rest(lead, may_wait ? deadline_ns : quiet_ns);
    if (may_wait || status != MUSTER_RETRY) {
        return status;
    }
    (void)fprintf(stderr, "muster: the ranks still %s\n", doing);
    return await_rest(lead, deadline_ns);
}

static muster_status let_go(struct lead *lead)
{
    char byte = 1;
    for (uint32_t i = 0; i < lead->started; i++) {
        if (send(lead->workers[i].channel, &byte, 1, MSG_NOSIGNAL) != 1) {
            return explain(lead, &lead->workers[i]);
        }
    }
    return MUSTER_OK;
}

/* There is room for so many times of each algorithm. */
static uint32_t choose_iterations(const struct muster_bench_options *options,
                                  const struct muster_bench_entry *entry)
{
    uint32_t most = MUSTER_BENCH_ITERATIONS_MAX / (uint32_t)options->algorithm_count;
    double wanted = options->iterations;
    if (options->iterations == 0) {
        wanted = options->seconds * 1e6 / (entry->warm_us + 1);
        wanted = wanted < ITERATIONS_MIN ? ITERATIONS_MIN : wanted;
    }
    return wanted > most ? most : (uint32_t)wanted;
}

/* As long as so many calls may take, each at its own limit. */
static int64_t calls_deadline(uint64_t calls)
{
    return muster_clock_ns() + (int64_t)calls * CALL_TIMEOUT_MS * 1000000;
}

/* `ret_figures` gets those of all algorithms. */
static muster_status lead_through_size(struct lead *lead, size_t size_index,
                                       struct muster_bench_figures *ret_figures)
{
    struct muster_bench_board *board = lead->board;
    size_t algorithms = board->options.algorithm_count;
    TRY(await_phase(lead, "fill their buffers, check the first results and warm up",
                    calls_deadline(algorithms * (2 + MUSTER_BENCH_WARM_UP))));
    if (size_index == 0) {
        TRY(muster_bench_print_head(board));
    }
    uint64_t calls = 0;
    for (size_t i = 0; i < algorithms; i++) {
        struct muster_bench_entry *entry = &board->entries[i];
        entry->iterations = entry->fits ? choose_iterations(&board->options, entry) : 0;
        calls += 2 * (uint64_t)entry->iterations; /* with barriers between them */
    }
    TRY(let_go(lead));
    TRY(await_phase(lead, NULL, calls_deadline(1 + calls)));
    TRY(muster_bench_find_figures(board, size_index, ret_figures));
    TRY(muster_bench_print(board, ret_figures));
    return let_go(lead);
}

static muster_status lead_through(struct lead *lead)
{
    const struct muster_bench_options *options = &lead->board->options;
    AUTO_FREE struct muster_bench_figures *figures =
        calloc(options->size_count * options->algorithm_count, sizeof *figures);
    if (figures == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for figures");
    }
    TRY(await_phase(lead, "start", muster_clock_after_ms(START_TIMEOUT_MS)));
    TRY(let_go(lead));
    for (size_t i = 0; i < options->size_count; i++) {
        TRY(lead_through_size(lead, i, figures + i * options->algorithm_count));
    }
    return options->svg != NULL ? muster_bench_draw(options, figures) : MUSTER_OK;
}

int muster_bench_lead(struct muster_bench_board *board)
{
    struct lead *lead = calloc(1, sizeof *lead);
    if (lead == NULL) {
        (void)muster_error_set(MUSTER_FATAL, "no memory to start ranks");
        return muster_cli_fail(MUSTER_CLI_FAILED);
    }
    lead->board = board;
    muster_status status = start_workers(lead);
    if (status == MUSTER_OK) {
        status = lead_through(lead);
    }
    stop_workers(lead, status == MUSTER_OK);
    free(lead);
    return status == MUSTER_OK ? MUSTER_CLI_DONE : muster_cli_fail(MUSTER_CLI_FAILED);
}
