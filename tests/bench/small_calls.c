/* How long a small allreduce takes that is called again and again. Run by the workers of a job:
 *
 *     muster run -n 2 -- build/release/tests/small_calls
 *
 * peer_small_calls.c does the same with MPI. */
#include "worker/muster.h"

#include "tests/bench/small_calls.h"

static void must(muster_status status)
{
    if (status != MUSTER_OK) {
        (void)fprintf(stderr, "small_calls: %s\n", muster_last_error());
        exit(EXIT_FAILURE);
    }
}

static void call(void *user, const float *in, float *out, size_t count)
{
    must(muster_allreduce(user, MUSTER_GLOBAL, in, out, count, MUSTER_FLOAT32, MUSTER_SUM, NULL));
}

int main(void)
{
    muster_session *session = NULL;
    must(muster_open(NULL, &session));
    small_calls_measure(muster_rank(session, MUSTER_GLOBAL) == 0, call, session);
    muster_close(session);
    return EXIT_SUCCESS;
}
