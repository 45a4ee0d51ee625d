/* How long a message of point to point takes. Run by the two workers of a job:
 *
 *     muster run -n 2 -- build/release/tests/ping_pong              shared memory
 *     MUSTER_SHARED_MEMORY=0 muster run -n 2 -- ...                 TCP
 *
 * peer_ping_pong.c does the same with MPI. */
#include "worker/muster.h"

#include "tests/bench/ping_pong.h"

static void must(muster_status status)
{
    if (status != MUSTER_OK) {
        (void)fprintf(stderr, "ping_pong: %s\n", muster_last_error());
        exit(EXIT_FAILURE);
    }
}

static void turn(void *user, char *data, size_t bytes)
{
    muster_session *session = user;
    uint32_t rank = muster_rank(session, MUSTER_GLOBAL);
    if (rank == 0) {
        must(muster_send(session, MUSTER_GLOBAL, data, bytes, MUSTER_UINT8, 1, 0, NULL));
    }
    if (rank < 2) {
        must(muster_receive(session, MUSTER_GLOBAL, data, bytes, MUSTER_UINT8, 1 - rank, 0, NULL,
                            NULL));
    }
    if (rank == 1) {
        must(muster_send(session, MUSTER_GLOBAL, data, bytes, MUSTER_UINT8, 0, 0, NULL));
    }
}

int main(void)
{
    muster_session *session = NULL;
    must(muster_open(NULL, &session));
    ping_pong_measure(muster_rank(session, MUSTER_GLOBAL) == 0, turn, session);
    muster_close(session);
    return EXIT_SUCCESS;
}
