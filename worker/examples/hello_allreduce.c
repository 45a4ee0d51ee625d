/* Every worker brings a number; all of them print the sum. */
#include <muster.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    muster_session *session = NULL;
    if (muster_open(NULL, &session) != MUSTER_OK) {
        fprintf(stderr, "hello_allreduce: %s\n", muster_last_error());
        return EXIT_FAILURE;
    }
    unsigned rank = muster_rank(session, MUSTER_GLOBAL);
    unsigned size = muster_size(session, MUSTER_GLOBAL);
    double number = rank + 1;
    double sum = 0;
    muster_status status = muster_allreduce(session, MUSTER_GLOBAL, &number, &sum, 1,
                                            MUSTER_FLOAT64, MUSTER_SUM, NULL);
    if (status == MUSTER_OK) {
        printf("rank %u of %u: 1 + ... + %u = %g\n", rank, size, size, sum);
    } else {
        fprintf(stderr, "hello_allreduce: %s\n", muster_last_error());
    }
    muster_close(session);
    return status == MUSTER_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
