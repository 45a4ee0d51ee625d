/*
 * The ranks of a measurement: how they are started, led through phases, and ended.
 *
 * The parent process (the bench leader) leads N ranks. Ranks are threads or forked processes. Each
 * has a stream socket to the leader: the rank sends a byte when it has finished a phase, and the
 * leader sends one when all ranks may start the next. The end of the stream means that the other
 * side has ended.
 */
#ifndef MUSTER_WORKER_CLI_BENCH_BENCH_RANKS_H
#define MUSTER_WORKER_CLI_BENCH_BENCH_RANKS_H

#include "worker/base/status.h"
#include "worker/cli/bench/bench_network.h"

#include <stdbool.h>
#include <stdint.h>

enum { MUSTER_BENCH_RANKS_MAX = MUSTER_BENCH_HOSTS_MAX };

/* How a rank has ended; "": no error yet. */
struct muster_bench_outcome {
    muster_status status;
    char error[512];
};

struct muster_bench_ranks_options {
    uint32_t count;
    bool threads; /* of this process; otherwise each rank is a process */
    /* The work of a rank, in its own thread or process. `channel` is its end of the stream. A rank
     * that fails calls muster_bench_outcome_set() before it frees what it holds. */
    muster_status (*run)(void *argument, uint32_t rank, int channel);
    void *argument;
    struct muster_bench_outcome *outcomes; /* [count], in memory that leader and ranks share */
};

/* Used by the leader's thread only. Must not move while ranks run. */
struct muster_bench_ranks;

/* Calls the leader's function while the ranks run, and prints the error if it or a rank fails.
 * Returns the exit status of the program. No rank is running when it returns. */
int muster_bench_ranks_lead(const struct muster_bench_ranks_options *options,
                            muster_status (*lead)(struct muster_bench_ranks *ranks, void *argument),
                            void *argument);

/* Waits until all ranks have finished the phase. If that takes long, with large buffers or slow
 * links for example, a line on standard error says what they are doing. activity: "start"; NULL:
 * they are measuring, which takes as long as the options ask for. The error names the rank that has
 * ended. */
MUSTER_CHECKED muster_status muster_bench_ranks_wait(struct muster_bench_ranks *ranks,
                                                     const char *activity, int64_t deadline_ns);
/* All ranks may start the next phase. */
MUSTER_CHECKED muster_status muster_bench_ranks_release(struct muster_bench_ranks *ranks);

/* In a rank: keeps the status and, if it is an error, the text of this thread's last error. */
void muster_bench_outcome_set(struct muster_bench_outcome *outcome, muster_status status);

/* In a rank: reports the end of the phase to the leader, and blocks until all ranks have finished
 * it. */
MUSTER_CHECKED muster_status muster_bench_rank_end_phase(int channel);

#endif
