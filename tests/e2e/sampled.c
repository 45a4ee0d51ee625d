/*
 * A worker that counts how often each sample is used by committed steps, while the membership
 * changes. Every step all members add up which samples they have used; the counts belong to the
 * state. At the end of each epoch every sample must have been used as often as there were epochs.
 *
 * usage: sampled STOP-FILE   runs until the end of the epoch in which the file exists.
 *
 * Lines on stdout: "step N" every 10 steps; "done epochs=E steps=N" at the end, or "left".
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "worker/muster.h"

enum {
    SAMPLES = 301,
    BATCH = 7,
    STOP = SAMPLES, /* element: the number of members that have seen the stop file */
    COMMIT_STEPS = 3,
    PRINT_STEPS = 10,
    PACE_NS = 1000000, /* leaves time for other processes; nothing depends on it */
};

/* What the job must not lose. */
struct progress {
    muster_sampler sampler;
    int64_t steps;
    uint32_t used[SAMPLES];
    bool stopping;
};

struct worker {
    const char *stop_file;
    struct progress progress;
};

static muster_status step_once(muster_session *session, struct worker *worker)
{
    struct progress *progress = &worker->progress;
    uint32_t mine[SAMPLES + 1] = {0};
    uint32_t all[SAMPLES + 1];
    uint64_t first;
    uint64_t count;
    muster_status status =
        muster_sampler_part(&progress->sampler, BATCH, muster_rank(session, MUSTER_GLOBAL),
                            muster_size(session, MUSTER_GLOBAL), &first, &count);
    for (uint64_t i = 0; status == MUSTER_OK && i < count; i++) {
        mine[muster_sampler_index(&progress->sampler, first + i)]++;
    }
    mine[STOP] = access(worker->stop_file, F_OK) == 0;
    if (status == MUSTER_OK) {
        status = muster_allreduce(session, MUSTER_GLOBAL, mine, all, SAMPLES + 1, MUSTER_UINT32,
                                  MUSTER_SUM, NULL);
    }
    if (status != MUSTER_OK) {
        return status;
    }
    for (int i = 0; i < SAMPLES; i++) {
        progress->used[i] += all[i];
    }
    progress->stopping = progress->stopping || all[STOP] > 0;
    progress->steps++;
    muster_sampler_advance(&progress->sampler, BATCH);
    return MUSTER_OK;
}

static void check_epoch(const struct progress *progress)
{
    for (int i = 0; i < SAMPLES; i++) {
        if (progress->used[i] != progress->sampler.epoch) {
            printf("WRONG sample %d was used %u times in %" PRIu64 " epochs\n", i,
                   progress->used[i], progress->sampler.epoch);
            fflush(stdout);
            _exit(1);
        }
    }
}

static muster_status work(muster_session *session, void *user)
{
    struct worker *worker = user;
    struct progress *progress = &worker->progress;
    const struct timespec pace = {.tv_nsec = PACE_NS};
    while (!progress->stopping || progress->sampler.position != 0) {
        muster_status status = step_once(session, worker);
        if (status != MUSTER_OK) {
            return status;
        }
        if (progress->sampler.position == 0) {
            check_epoch(progress);
        }
        if (progress->steps % PRINT_STEPS == 0) {
            printf("step %" PRId64 "\n", progress->steps);
        }
        (void)nanosleep(&pace, NULL);
        if (progress->steps % COMMIT_STEPS == 0 && (status = muster_commit(session)) != MUSTER_OK) {
            return status;
        }
    }
    return MUSTER_OK;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        return 64;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    struct worker worker = {.stop_file = argv[1]};
    muster_session *session = NULL;
    muster_status status = muster_sampler_init(&worker.progress.sampler, SAMPLES, 1, 11);
    if (status == MUSTER_OK) {
        status = muster_open(NULL, &session);
    }
    if (status == MUSTER_OK) {
        status = muster_register(session, "progress", &worker.progress, sizeof worker.progress);
    }
    if (status == MUSTER_OK) {
        status = muster_run(session, work, &worker);
    }
    if (status != MUSTER_OK && status != MUSTER_ENDED) {
        (void)fprintf(stderr, "%s: %s\n", muster_status_name(status), muster_last_error());
    }
    printf("%s epochs=%" PRIu64 " steps=%" PRId64 "\n", status == MUSTER_OK ? "done" : "left",
           worker.progress.sampler.epoch, worker.progress.steps);
    muster_close(session);
    return status == MUSTER_OK ? 0 : status == MUSTER_ENDED ? 3 : 1;
}
