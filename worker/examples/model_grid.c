/* A model in two parts: pairs of workers hold one half of the weights each, and all pairs share the
 * samples. The workers are a grid of two columns; rows and columns are process sets, which are
 * split anew whenever workers have come, left or died. The argument is the number of steps: 600. */
#include <muster.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FEATURES = 8, SAMPLES = 256, COMMIT_EVERY = 20 };

/* What the job must not lose: all weights, the same on every worker after a commit. */
struct model {
    int64_t step;
    double weights[FEATURES];
};

static int64_t steps = 600;

/* This worker's place, and the part of the model that it holds. */
struct place {
    muster_scope row;    /* holds the whole model: each worker in it a part */
    muster_scope column; /* holds the same part */
    int width;           /* columns: 2, or 1 if the number of workers is odd */
    size_t first, count; /* of its weights */
};

/* Sample s is a row of features, and the value that the right weights 1, 2, 3 ... give for them. */
static double feature(unsigned sample, size_t i)
{
    return ((sample * 7919U + (unsigned)i * 104729U) * 2654435761U >> 8 & 0xffff) / 32768.0 - 1;
}

static double value(unsigned sample)
{
    double sum = 0;
    for (size_t i = 0; i < FEATURES; i++) {
        sum += (double)(i + 1) * feature(sample, i);
    }
    return sum;
}

/* Workers that have sets from before a change hold them with the survivors: they create them
 * again, together with the newcomers. */
static muster_status take_place(muster_session *session, struct place *place)
{
    int rank = (int)muster_rank(session, MUSTER_GLOBAL);
    int size = (int)muster_size(session, MUSTER_GLOBAL);
    place->width = size % 2 == 0 ? 2 : 1;
    int row = rank / place->width;
    int column = rank % place->width;
    muster_status status = muster_split(session, MUSTER_GLOBAL, row, rank, "rows", &place->row);
    if (status == MUSTER_OK) {
        status = muster_split(session, MUSTER_GLOBAL, column, rank, "columns", &place->column);
    }
    place->count = FEATURES / (size_t)place->width;
    place->first = place->count * (size_t)column;
    if (status == MUSTER_OK && rank == 0) {
        printf("%d workers are a grid of %d x %d\n", size, size / place->width, place->width);
        (void)fflush(stdout);
    }
    return status;
}

/* One step down the gradient. The rows share the samples; in a row, each worker adds up its own
 * features, and a sum over the row makes the prediction. */
static muster_status step(muster_session *session, const struct place *place, struct model *model)
{
    unsigned rows = muster_size(session, place->column);
    unsigned row = muster_rank(session, place->column);
    double predicted[SAMPLES] = {0};
    double gradient[FEATURES] = {0};
    size_t own = 0;
    for (unsigned sample = row; sample < SAMPLES; sample += rows, own++) {
        for (size_t i = place->first; i < place->first + place->count; i++) {
            predicted[own] += model->weights[i] * feature(sample, i);
        }
    }
    muster_status status = muster_allreduce(session, place->row, predicted, predicted, own,
                                            MUSTER_FLOAT64, MUSTER_SUM, NULL);
    own = 0;
    for (unsigned sample = row; sample < SAMPLES; sample += rows, own++) {
        for (size_t i = place->first; i < place->first + place->count; i++) {
            gradient[i] += (predicted[own] - value(sample)) * feature(sample, i) / SAMPLES;
        }
    }
    if (status == MUSTER_OK) {
        status = muster_allreduce(session, place->column, &gradient[place->first],
                                  &gradient[place->first], place->count, MUSTER_FLOAT64, MUSTER_SUM,
                                  NULL);
    }
    for (size_t i = place->first; status == MUSTER_OK && i < place->first + place->count; i++) {
        model->weights[i] -= gradient[i];
    }
    return status;
}

/* The rows put their parts together, so that all workers commit the same. */
static muster_status commit(muster_session *session, const struct place *place, struct model *model)
{
    muster_status status = muster_allgather(session, place->row, &model->weights[place->first],
                                            model->weights, place->count, MUSTER_FLOAT64, NULL);
    return status == MUSTER_OK ? muster_commit(session) : status;
}

static muster_status train(muster_session *session, void *user)
{
    struct model *model = user;
    struct place place;
    muster_status status = take_place(session, &place);
    while (status == MUSTER_OK && model->step < steps) {
        usleep(2000);
        status = step(session, &place, model);
        model->step++;
        if (status == MUSTER_OK && model->step % COMMIT_EVERY == 0) {
            status = commit(session, &place, model);
        }
    }
    if (status == MUSTER_OK && muster_rank(session, MUSTER_GLOBAL) == 0) {
        printf("weights:");
        for (size_t i = 0; i < FEATURES; i++) {
            printf(" %.3f", model->weights[i]);
        }
        printf("\n");
    }
    return status;
}

int main(int argc, char **argv)
{
    struct model model = {0};
    muster_session *session = NULL;
    steps = argc > 1 ? strtol(argv[1], NULL, 10) : steps;
    muster_status status = muster_open(NULL, &session);
    if (status == MUSTER_OK) {
        status = muster_register(session, "model", &model, sizeof model);
    }
    if (status == MUSTER_OK) {
        status = muster_run(session, train, &model);
    }
    if (status != MUSTER_OK) {
        fprintf(stderr, "model_grid: %s\n", muster_last_error());
    }
    muster_close(session);
    return status == MUSTER_OK || status == MUSTER_ENDED ? EXIT_SUCCESS : EXIT_FAILURE;
}
