/* Counts to a thousand, and counts the work of all workers, while workers come and go. */
#include <muster.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define STEPS 1000

/* What the job must not lose. */
struct state {
    int64_t step;
    int64_t work; /* one unit for each worker and step */
};

static muster_status count(muster_session *session, void *user)
{
    struct state *state = user;
    /* Read in each call: they may have changed. */
    unsigned rank = muster_rank(session, MUSTER_GLOBAL);
    unsigned size = muster_size(session, MUSTER_GLOBAL);
    if (rank == 0) {
        printf("%u workers go on from step %lld\n", size, (long long)state->step);
    }
    while (state->step < STEPS) {
        usleep(5000);
        int64_t mine = 1;
        int64_t all = 0;
        muster_status status = muster_allreduce(session, MUSTER_GLOBAL, &mine, &all, 1,
                                                MUSTER_INT64, MUSTER_SUM, NULL);
        if (status != MUSTER_OK) {
            return status;
        }
        state->step++;
        state->work += all;
        if ((status = muster_commit(session)) != MUSTER_OK) {
            return status;
        }
    }
    printf("rank %u: %lld steps, %lld of work\n", rank, (long long)state->step,
           (long long)state->work);
    return MUSTER_OK;
}

int main(void)
{
    struct state state = {0};
    muster_session *session = NULL;
    muster_status status = muster_open(NULL, &session);
    if (status == MUSTER_OK) {
        status = muster_register(session, "state", &state, sizeof(state));
    }
    if (status == MUSTER_OK) {
        status = muster_run(session, count, &state);
    }
    if (status != MUSTER_OK) {
        fprintf(stderr, "elastic_counter: %s\n", muster_last_error());
    }
    muster_close(session);
    return status == MUSTER_OK || status == MUSTER_ENDED ? EXIT_SUCCESS : EXIT_FAILURE;
}
