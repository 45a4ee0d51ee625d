/* A queue of work that is not evenly long: each worker takes the next piece when it has finished
 * one, by adding to a value of the job. At the end all print how much they did, and the total.
 *
 *     muster run -n 4 -- work_queue [PIECES] */
#include <muster.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Some pieces take longer than others. */
static int64_t work_on(int64_t piece)
{
    const struct timespec work = {.tv_nsec = 1000 * 1000 * (1 + piece * piece % 7)};
    nanosleep(&work, NULL);
    return piece;
}

/* Takes pieces until there are none. An addition counts once, so no piece is done twice, also if
 * the service is away for a while. */
static muster_status take_pieces(muster_session *session, int64_t pieces, int64_t ret_done[2])
{
    for (;;) {
        int64_t taken = 0;
        muster_status status = muster_value_add(session, "pieces", 1, NULL, &taken);
        if (status != MUSTER_OK) {
            return status;
        }
        if (taken > pieces) {
            return MUSTER_OK;
        }
        ret_done[0]++;
        ret_done[1] += work_on(taken);
    }
}

int main(int argc, char **argv)
{
    int64_t pieces = argc > 1 ? strtoll(argv[1], NULL, 10) : 100;
    int64_t done[2] = {0}; /* pieces, and their sum */
    int64_t all[2] = {0};
    muster_session *session = NULL;
    muster_status status = muster_open(NULL, &session);
    if (status == MUSTER_OK) {
        status = take_pieces(session, pieces, done);
    }
    if (status == MUSTER_OK) {
        status =
            muster_allreduce(session, MUSTER_GLOBAL, done, all, 2, MUSTER_INT64, MUSTER_SUM, NULL);
    }
    if (status == MUSTER_OK) {
        printf("rank %u did %lld of %lld pieces, whose sum is %lld\n",
               muster_rank(session, MUSTER_GLOBAL), (long long)done[0], (long long)all[0],
               (long long)all[1]);
    } else {
        fprintf(stderr, "work_queue: %s\n", muster_last_error());
    }
    muster_close(session);
    return status == MUSTER_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
