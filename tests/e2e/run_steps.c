/*
 * A worker for the tests of `muster run`: does steps with the others until a file exists.
 *
 * usage: run_steps STOP-FILE [ORDER STATUS]   After a good end the worker whose MUSTER_ORDER is
 * ORDER exits with STATUS. With RUN_STEPS_CHILD=group in the environment each worker forks a child
 * after its first step, which sleeps until SIGTERM; with =session the child is in a session of its
 * own, which no signal of the launcher reaches. With RUN_STEPS_OF_ORDER_1=N the worker of order 1
 * closes its session after N steps, without waiting for the others, as a program without
 * muster_run() might.
 *
 * Lines on stdout: "order=O pid=P"; "order=O child=P"; after the first step of a generation
 * "step generation=G size=S" and "size=S order=O local=L slot=N".
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/muster.h"

enum { PACE_US = 2000, COMMIT_STEPS = 4, CHILD_LIVES_S = 300 };

struct state {
    int64_t steps;
};

struct run {
    const char *stop_file;
    const char *order;
    bool has_child;
    struct state state;
    int64_t last_step; /* 0: none */
};

static void fork_child(struct run *run, const char *kind)
{
    pid_t child = fork();
    if (child == 0) {
        if (strcmp(kind, "session") == 0) {
            (void)setsid();
        }
        (void)alarm(CHILD_LIVES_S);
        for (;;) {
            (void)pause();
        }
    }
    run->has_child = true;
    printf("order=%s child=%d\n", run->order, (int)child);
}

static muster_status work(muster_session *session, void *user)
{
    struct run *run = user;
    int32_t stops = 0;
    for (int64_t i = 0; stops == 0; i++) {
        (void)usleep(PACE_US);
        int32_t mine = access(run->stop_file, F_OK) == 0 ? 1 : 0;
        muster_status status = muster_allreduce(session, MUSTER_GLOBAL, &mine, &stops, 1,
                                                MUSTER_INT32, MUSTER_MAX, NULL);
        if (status != MUSTER_OK) {
            return status;
        }
        if (i == 0) {
            printf("step generation=%" PRIu64 " size=%u\n",
                   (uint64_t)(uint32_t)muster_generation(session),
                   muster_size(session, MUSTER_GLOBAL));
            printf("size=%u order=%s local=%u slot=%u\n", muster_size(session, MUSTER_GLOBAL),
                   run->order, muster_rank(session, MUSTER_LOCAL), muster_slot(session));
            const char *kind = getenv("RUN_STEPS_CHILD");
            if (kind != NULL && !run->has_child) {
                fork_child(run, kind);
            }
        }
        run->state.steps++;
        if (run->last_step != 0 && run->state.steps == run->last_step) {
            muster_close(session);
            exit(0);
        }
        if (run->state.steps % COMMIT_STEPS == 0 &&
            (status = muster_commit(session)) != MUSTER_OK) {
            return status;
        }
    }
    return MUSTER_OK;
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 4) {
        return 64;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    const char *given = getenv("MUSTER_ORDER");
    const char *order = given != NULL ? given : "?";
    printf("order=%s pid=%d\n", order, (int)getpid());
    struct run run = {.stop_file = argv[1], .order = order};
    const char *last = getenv("RUN_STEPS_OF_ORDER_1");
    if (last != NULL && strcmp(order, "1") == 0) {
        run.last_step = strtol(last, NULL, 10);
    }
    muster_session *session = NULL;
    muster_status status = muster_open(NULL, &session);
    if (status == MUSTER_OK) {
        status = muster_register(session, "state", &run.state, sizeof run.state);
    }
    if (status == MUSTER_OK) {
        status = muster_run(session, work, &run);
    }
    if (status != MUSTER_OK) {
        (void)fprintf(stderr, "%s: %s\n", muster_status_name(status), muster_last_error());
    }
    muster_close(session);
    if (status == MUSTER_OK && argc == 4 && strcmp(order, argv[2]) == 0) {
        return (int)strtol(argv[3], NULL, 10);
    }
    return status == MUSTER_OK || status == MUSTER_ENDED ? 0 : 1;
}
