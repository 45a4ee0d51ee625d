/* A pipeline of stages: each worker has some of the layers of a model, receives activations from
 * the stage before and sends its own to the stage after, batch by batch, while the next ones are on
 * their way. The last stage sends the results to the first one.
 *
 *     muster run -n 4 -- pipeline [STEPS [DIE_AT]]
 *
 * The result does not depend on the number of stages, nor on deaths: after one, the others share
 * the layers anew and go on from the last commit. DIE_AT shows that: at this step the last of
 * several stages of the first generation kills itself. */
#include <muster.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define LAYERS 24
#define BATCHES 8   /* on their way through the pipeline at a time: one step */
#define WIDTH 16384 /* floats of an activation */
#define RESULT 1000 /* the tag of result i is RESULT + i; that of an activation is its batch */

/* What the job must not lose. */
struct state {
    int64_t step;
    double digest;
};

struct pipeline {
    struct state state;
    int64_t steps, die_at;
    float activations[BATCHES][WIDTH];
    float results[BATCHES][WIDTH];
};

static float input(int64_t step, int batch, int i)
{
    return (float)((step * 31 + batch * 7 + i) % 101) / 101.0F;
}

static void compute(float *activation, int layer)
{
    for (int i = 0; i < WIDTH; i++) {
        activation[i] = activation[i] * 0.75F + (float)((layer * 13 + i) % 17) / 34.0F;
    }
}

/* The layers of this stage, on one batch. */
static void run_stage(float *activation, unsigned rank, unsigned size)
{
    for (unsigned layer = LAYERS * rank / size; layer < LAYERS * (rank + 1) / size; layer++) {
        compute(activation, (int)layer);
    }
}

/* Starts all receives of a step, so that data go to their places while this stage computes. */
static muster_status start_receives(muster_session *session, struct pipeline *pipeline,
                                    muster_operation *activations, muster_operation *results)
{
    unsigned rank = muster_rank(session, MUSTER_GLOBAL);
    muster_status status = MUSTER_OK;
    for (unsigned i = 0; i < BATCHES && status == MUSTER_OK; i++) {
        if (rank > 0) {
            status = muster_receive_start(session, MUSTER_GLOBAL, pipeline->activations[i], WIDTH,
                                          MUSTER_FLOAT32, rank - 1, i, NULL, NULL, &activations[i]);
        } else {
            status = muster_receive_start(session, MUSTER_GLOBAL, pipeline->results[i], WIDTH,
                                          MUSTER_FLOAT32, MUSTER_ANY_SOURCE, RESULT + i, NULL, NULL,
                                          &results[i]);
        }
    }
    return status;
}

/* One batch through this stage: the send to the next one goes on while this one computes again. */
static muster_status do_batch(muster_session *session, struct pipeline *pipeline, unsigned batch,
                              muster_operation received, muster_operation *ret_sent)
{
    unsigned rank = muster_rank(session, MUSTER_GLOBAL);
    unsigned size = muster_size(session, MUSTER_GLOBAL);
    float *activation = pipeline->activations[batch];
    int is_last = rank == size - 1;
    if (rank > 0) {
        muster_status status = muster_wait(received);
        if (status != MUSTER_OK) {
            return status;
        }
    } else {
        for (int i = 0; i < WIDTH; i++) {
            activation[i] = input(pipeline->state.step, (int)batch, i);
        }
    }
    run_stage(activation, rank, size);
    return muster_send_start(session, MUSTER_GLOBAL, activation, WIDTH, MUSTER_FLOAT32,
                             is_last ? 0 : rank + 1, is_last ? RESULT + batch : batch, NULL,
                             ret_sent);
}

/* The first stage sums up the results, in their order, and tells the others. */
static muster_status finish_step(muster_session *session, struct pipeline *pipeline,
                                 const muster_operation *results)
{
    double sum = 0;
    for (int batch = 0; batch < BATCHES && muster_rank(session, MUSTER_GLOBAL) == 0; batch++) {
        muster_status status = muster_wait(results[batch]);
        if (status != MUSTER_OK) {
            return status;
        }
        for (int i = 0; i < WIDTH; i++) {
            sum += (double)pipeline->results[batch][i];
        }
    }
    muster_status status =
        muster_broadcast(session, MUSTER_GLOBAL, &sum, 1, MUSTER_FLOAT64, 0, NULL);
    if (status == MUSTER_OK) {
        pipeline->state.digest = pipeline->state.digest * 0.5 + sum;
        pipeline->state.step++;
        status = muster_commit(session);
    }
    return status;
}

/* After a failure: what is still in flight ends with its generation. */
static void give_up(const muster_operation *operations)
{
    for (int i = 0; i < BATCHES; i++) {
        muster_status status = operations[i] != 0 ? muster_detach(operations[i]) : MUSTER_OK;
        (void)status; /* it may have been waited for */
    }
}

static muster_status do_step(muster_session *session, struct pipeline *pipeline)
{
    muster_operation activations[BATCHES] = {0};
    muster_operation results[BATCHES] = {0};
    muster_operation sent[BATCHES] = {0};
    muster_status status = start_receives(session, pipeline, activations, results);
    for (unsigned batch = 0; batch < BATCHES && status == MUSTER_OK; batch++) {
        status = do_batch(session, pipeline, batch, activations[batch], &sent[batch]);
    }
    for (unsigned batch = 0; batch < BATCHES && status == MUSTER_OK; batch++) {
        status = muster_wait(sent[batch]);
    }
    status = status == MUSTER_OK ? finish_step(session, pipeline, results) : status;
    if (status != MUSTER_OK) {
        give_up(activations);
        give_up(results);
        give_up(sent);
    }
    return status;
}

static muster_status work(muster_session *session, void *user)
{
    struct pipeline *pipeline = user;
    unsigned rank = muster_rank(session, MUSTER_GLOBAL);
    unsigned size = muster_size(session, MUSTER_GLOBAL);
    int has_died = (uint32_t)muster_generation(session) > 1; /* it counts from 1 */
    if (rank == 0) {
        printf("%u stages go on from step %lld\n", size, (long long)pipeline->state.step);
    }
    while (pipeline->state.step < pipeline->steps) {
        if (pipeline->state.step == pipeline->die_at && !has_died && size > 1 && rank == size - 1) {
            (void)raise(SIGKILL);
        }
        muster_status status = do_step(session, pipeline);
        if (status != MUSTER_OK) {
            return status;
        }
    }
    if (rank == 0) {
        printf("%lld steps, digest %.17g\n", (long long)pipeline->state.step,
               pipeline->state.digest);
    }
    return MUSTER_OK;
}

int main(int argc, char **argv)
{
    struct pipeline *pipeline = calloc(1, sizeof *pipeline);
    muster_session *session = NULL;
    if (pipeline == NULL) {
        return EXIT_FAILURE;
    }
    pipeline->steps = argc > 1 ? strtoll(argv[1], NULL, 10) : 100;
    pipeline->die_at = argc > 2 ? strtoll(argv[2], NULL, 10) : -1;
    muster_status status = muster_open(NULL, &session);
    if (status == MUSTER_OK) {
        status = muster_register(session, "state", &pipeline->state, sizeof pipeline->state);
    }
    if (status == MUSTER_OK) {
        status = muster_run(session, work, pipeline);
    }
    if (status != MUSTER_OK) {
        fprintf(stderr, "pipeline: %s\n", muster_last_error());
    }
    muster_close(
        session); /* ends operations of a generation that is over, and their buffers' use */
    free(pipeline);
    return status == MUSTER_OK || status == MUSTER_ENDED ? EXIT_SUCCESS : EXIT_FAILURE;
}
