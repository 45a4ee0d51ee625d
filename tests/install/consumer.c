/* A program outside the tree: every public function is referred to, so that all of them must link,
 * and a job that cannot be reached is reported. Compiled as C and as C++. */
#include <muster.h>
#include <stdio.h>
#include <string.h>

static muster_status nothing(muster_session *session, void *user)
{
    (void)session;
    (void)user;
    return MUSTER_OK;
}

/* Calls every public collective, so that all must link; it never runs. */
static muster_status everything(muster_session *session)
{
    double number = 1;
    double other = 0;
    const size_t counts[] = {1};
    const void *ins[] = {&number};
    void *outs[] = {&other};
    muster_call_options options;
    muster_call_options_init(&options);
    muster_value_options value_options;
    muster_value_options_init(&value_options);
    const char *keys[] = {"number"};
    const muster_value_swap swap = {&number, sizeof(number), &other, sizeof(other)};
    muster_value value = {NULL, 0};
    int64_t sum = 0;
    int changed = 0;
    uint32_t keys_count = 0;
    muster_status statuses[] = {
        muster_allreduce(session, MUSTER_GLOBAL, &number, &number, 1, MUSTER_FLOAT64, MUSTER_SUM,
                         NULL),
        muster_reduce_scatter(session, MUSTER_GLOBAL, &number, &number, 1, MUSTER_FLOAT64,
                              MUSTER_SUM, NULL),
        muster_allgather(session, MUSTER_GLOBAL, &number, &number, 1, MUSTER_FLOAT64, NULL),
        muster_broadcast(session, MUSTER_GLOBAL, &number, 1, MUSTER_FLOAT64, 0, NULL),
        muster_reduce(session, MUSTER_GLOBAL, &number, &other, 1, MUSTER_FLOAT64, MUSTER_SUM, 0,
                      NULL),
        muster_reduce_scatterv(session, MUSTER_GLOBAL, &number, &other, counts, MUSTER_FLOAT64,
                               MUSTER_SUM, NULL),
        muster_allgatherv(session, MUSTER_GLOBAL, &number, &other, counts, MUSTER_FLOAT64, NULL),
        muster_gather(session, MUSTER_GLOBAL, &number, &other, 1, MUSTER_FLOAT64, 0, NULL),
        muster_gatherv(session, MUSTER_GLOBAL, &number, &other, counts, MUSTER_FLOAT64, 0, NULL),
        muster_scatter(session, MUSTER_GLOBAL, &number, &other, 1, MUSTER_FLOAT64, 0, NULL),
        muster_alltoall(session, MUSTER_GLOBAL, &number, &other, 1, MUSTER_FLOAT64, NULL),
        muster_alltoallv(session, MUSTER_GLOBAL, &number, counts, &other, counts, MUSTER_FLOAT64,
                         NULL),
        muster_allreduce_buffers(session, MUSTER_GLOBAL, ins, outs, 1, 1, MUSTER_FLOAT64,
                                 MUSTER_SUM, NULL),
        muster_reduce_scatter_buffers(session, MUSTER_GLOBAL, ins, outs, 1, 1, MUSTER_FLOAT64,
                                      MUSTER_SUM, NULL),
        muster_reduce_scatterv_buffers(session, MUSTER_GLOBAL, ins, outs, 1, counts, MUSTER_FLOAT64,
                                       MUSTER_SUM, NULL),
        muster_broadcast_buffers(session, MUSTER_GLOBAL, outs, 1, 1, MUSTER_FLOAT64, 0, NULL),
        muster_barrier(session, MUSTER_GLOBAL, &options),
        muster_value_put(session, "number", &number, sizeof(number), &value_options),
        muster_value_get(session, "number", NULL, &value),
        muster_value_wait(session, "number", NULL, &value),
        muster_value_wait_all(session, keys, 1, NULL),
        muster_value_add(session, "sum", 1, NULL, &sum),
        muster_value_compare_and_swap(session, "number", &swap, NULL, &changed, &value),
        muster_value_delete(session, "number", NULL, &changed),
        muster_value_count(session, "", NULL, &keys_count),
        muster_register(session, "number", &number, sizeof(number)),
        muster_commit(session),
        muster_restore(session),
        muster_sync(session),
        muster_rejoin(session),
        muster_run(session, nothing, NULL),
    };
    muster_value_finish(&value);
    muster_leave(session);
    printf("%u of %u in generation %llu at version %llu\n", muster_rank(session, MUSTER_LOCAL),
           muster_size(session, MUSTER_CROSS), (unsigned long long)muster_generation(session),
           (unsigned long long)muster_version_of_state(session));
    return statuses[0];
}

int main(void)
{
    muster_options options;
    muster_session *session = NULL;
    muster_options_init(&options);
    options.rendezvous = "no address";
    muster_status status = muster_open(&options, &session);
    if (status == MUSTER_OK) {
        status = everything(session);
        muster_close(session);
    }
    printf("muster %s: %s: %s\n", muster_version(), muster_status_name(status),
           muster_last_error());
    return status == MUSTER_INVALID && strlen(muster_last_error()) > 0 ? 0 : 1;
}
