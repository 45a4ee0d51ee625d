/* A step of training, by all members of the job: samples, gradient, optimizer. The parts of the
 * gradient are submitted by name while the backward pass goes on, and added up behind it. */
#include "worker/examples/charlm/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The share of the moving average that one step replaces. */
#define LOSS_SHARE 0.02

/* The last step's learning rate, as a share of the first one's. */
#define LAST_RATE 0.1

static uint64_t recipe(const struct charlm_options *options, const struct charlm_data *data)
{
    uint64_t rate_bits;
    memcpy(&rate_bits, &options->learning_rate, sizeof(rate_bits));
    const uint64_t parts[] = {data->fingerprint, options->steps,  options->batch,
                              options->seed,     options->hidden, options->layers,
                              options->context,  options->embed,  rate_bits};
    return charlm_digest(parts, sizeof(parts));
}

bool charlm_trainer_init(struct charlm_trainer *trainer, const struct charlm_options *options,
                         const struct charlm_data *data)
{
    struct charlm_shape shape = {
        .vocabulary = data->vocabulary,
        .context = options->context,
        .embed = options->embed,
        .hidden = options->hidden,
        .layers = options->layers,
    };
    *trainer = (struct charlm_trainer){
        .options = options, .data = data, .own_recipe = recipe(options, data)};
    trainer->progress = (struct charlm_progress){.powers = {1, 1}, .recipe = trainer->own_recipe};
    if (charlm_model_init(&trainer->model, &shape)) {
        size_t count = trainer->model.parameter_count;
        trainer->adam.first = calloc(count, sizeof(float));
        trainer->adam.second = calloc(count, sizeof(float));
        trainer->adam.powers = &trainer->progress.powers;
        trainer->gradient = calloc(count + 1, sizeof(float));
        trainer->contexts = malloc(options->batch * options->context);
        trainer->targets = malloc(options->batch);
    }
    if (trainer->adam.first == NULL || trainer->adam.second == NULL || trainer->gradient == NULL ||
        trainer->contexts == NULL || trainer->targets == NULL) {
        fprintf(stderr, "charlm: no memory for a model of this size\n");
        charlm_trainer_finish(trainer);
        return false;
    }
    charlm_model_randomise(&trainer->model, options->seed);
    return true;
}

void charlm_trainer_finish(struct charlm_trainer *trainer)
{
    charlm_model_finish(&trainer->model);
    free(trainer->adam.first);
    free(trainer->adam.second);
    free(trainer->gradient);
    free(trainer->contexts);
    free(trainer->targets);
    *trainer = (struct charlm_trainer){0};
}

muster_status charlm_trainer_register(struct charlm_trainer *trainer, muster_session *session)
{
    size_t size = trainer->model.parameter_count * sizeof(float);
    const struct {
        const char *name;
        void *data;
        size_t size;
    } buffers[] = {
        {"progress", &trainer->progress, sizeof(trainer->progress)},
        {"weights", trainer->model.parameters, size},
        {"adam.first", trainer->adam.first, size},
        {"adam.second", trainer->adam.second, size},
    };
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        muster_status status =
            muster_register(session, buffers[i].name, buffers[i].data, buffers[i].size);
        if (status != MUSTER_OK) {
            return status;
        }
    }
    trainer->session = session;
    return MUSTER_OK;
}

uint32_t charlm_trainer_rank(const struct charlm_trainer *trainer)
{
    return trainer->session == NULL ? 0 : muster_rank(trainer->session, MUSTER_GLOBAL);
}

uint32_t charlm_trainer_size(const struct charlm_trainer *trainer)
{
    return trainer->session == NULL ? 1 : muster_size(trainer->session, MUSTER_GLOBAL);
}

bool charlm_trainer_agrees(const struct charlm_trainer *trainer)
{
    return trainer->progress.recipe == trainer->own_recipe;
}

static muster_status add_up(struct charlm_trainer *trainer, void *data, size_t count,
                            muster_type type)
{
    if (trainer->session == NULL) {
        return MUSTER_OK;
    }
    return muster_allreduce(trainer->session, MUSTER_GLOBAL, data, data, count, type, MUSTER_SUM,
                            NULL);
}

/* The begin of the rank's share of `total` items; it ends where the next rank's begins. Shares
 * differ by one item at most, and no item is left out if the size does not divide the total. */
static size_t share_begin(const struct charlm_trainer *trainer, size_t total, uint32_t rank)
{
    return (size_t)((uint64_t)total * rank / charlm_trainer_size(trainer));
}

static struct charlm_batch choose_samples(struct charlm_trainer *trainer)
{
    const struct charlm_lines *lines = &trainer->data->training;
    uint32_t rank = charlm_trainer_rank(trainer);
    size_t width = trainer->options->context;
    size_t begin = share_begin(trainer, trainer->options->batch, rank);
    size_t count = share_begin(trainer, trainer->options->batch, rank + 1) - begin;
    for (size_t i = 0; i < count; i++) {
        size_t position = charlm_data_position(lines, trainer->options->seed,
                                               trainer->progress.steps_done, begin + i);
        charlm_data_sample(lines, position, width, trainer->contexts + i * width,
                           trainer->targets + i);
    }
    return (struct charlm_batch){trainer->contexts, trainer->targets, count};
}

/* The parts of the gradient on their way. */
struct sums {
    struct charlm_trainer *trainer;
    muster_operation operations[CHARLM_MAX_HIDDEN_LAYERS + 3];
    size_t count;
    muster_status status; /* of the first submission that failed */
};

static void submit(struct sums *sums, const char *name, size_t begin, size_t count)
{
    struct charlm_trainer *trainer = sums->trainer;
    float *part = trainer->gradient + begin;
    if (trainer->session == NULL || sums->status != MUSTER_OK) {
        return;
    }
    sums->status =
        muster_submit_allreduce(trainer->session, MUSTER_GLOBAL, name, part, part, count,
                                MUSTER_FLOAT32, MUSTER_SUM, &sums->operations[sums->count]);
    sums->count += sums->status == MUSTER_OK;
}

static void submit_part(void *user, size_t part)
{
    static const char *const names[] = {"embedding", "layer 1", "layer 2", "layer 3"};
    struct sums *sums = user;
    const struct charlm_part place = charlm_model_part(&sums->trainer->model, part);
    submit(sums, names[part], place.begin, place.count);
}

/* Until the last one is done the gradient is not ours. */
static muster_status wait_for_sums(struct sums *sums)
{
    muster_status status = sums->status;
    for (size_t i = 0; i < sums->count; i++) {
        muster_status one = muster_wait(sums->operations[i]);
        status = status == MUSTER_OK ? one : status;
    }
    return status;
}

muster_status charlm_trainer_step(struct charlm_trainer *trainer)
{
    size_t count = trainer->model.parameter_count;
    struct charlm_progress *progress = &trainer->progress;
    struct charlm_batch batch = choose_samples(trainer);
    struct sums sums = {.trainer = trainer};
    const struct charlm_listener listener = {submit_part, &sums};
    /* Every sample has the same weight, so the sum over the members is the average over the batch,
     * even if the shares differ. */
    float weight = 1.0F / (float)trainer->options->batch;
    memset(trainer->gradient, 0, count * sizeof(float));
    double sum =
        charlm_model_gradient(&trainer->model, &batch, weight, trainer->gradient, &listener);
    trainer->gradient[count] = (float)sum * weight;
    submit(&sums, "loss", count, 1);
    muster_status status = wait_for_sums(&sums);
    if (status != MUSTER_OK) {
        return status;
    }
    double loss = (double)trainer->gradient[count];
    double done = (double)progress->steps_done / (double)trainer->options->steps;
    charlm_adam_step(&trainer->adam, trainer->model.parameters, trainer->gradient, count,
                     trainer->options->learning_rate * (1 - (1 - LAST_RATE) * done));
    progress->loss =
        progress->steps_done == 0 ? loss : progress->loss + LOSS_SHARE * (loss - progress->loss);
    progress->steps_done++;
    return MUSTER_OK;
}

muster_status charlm_trainer_held_out(struct charlm_trainer *trainer, double *ret_loss)
{
    const struct charlm_lines *lines = &trainer->data->held_out;
    uint32_t rank = charlm_trainer_rank(trainer);
    size_t width = trainer->options->context;
    size_t end = share_begin(trainer, lines->count, rank + 1);
    double sum = 0;
    for (size_t position = share_begin(trainer, lines->count, rank); position < end;) {
        struct charlm_batch batch = {trainer->contexts, trainer->targets, 0};
        for (; batch.count < trainer->options->batch && position < end; batch.count++) {
            charlm_data_sample(lines, position++, width, trainer->contexts + batch.count * width,
                               trainer->targets + batch.count);
        }
        sum += charlm_model_loss(&trainer->model, &batch);
    }
    muster_status status = add_up(trainer, &sum, 1, MUSTER_FLOAT64);
    if (status == MUSTER_OK) {
        *ret_loss = sum / (double)lines->count;
    }
    return status;
}

muster_status charlm_trainer_digest(struct charlm_trainer *trainer, uint64_t *ret_digest,
                                    bool *ret_same)
{
    uint32_t size = charlm_trainer_size(trainer);
    uint64_t digest =
        charlm_digest(trainer->model.parameters, trainer->model.parameter_count * sizeof(float));
    uint64_t *all = calloc(size, sizeof(*all));
    if (all == NULL) {
        return MUSTER_FATAL;
    }
    all[0] = digest;
    muster_status status = MUSTER_OK;
    if (trainer->session != NULL) {
        status =
            muster_allgather(trainer->session, MUSTER_GLOBAL, &digest, all, 1, MUSTER_INT64, NULL);
    }
    if (status == MUSTER_OK) {
        bool same = true;
        for (uint32_t i = 0; i < size; i++) {
            same = same && all[i] == digest;
        }
        *ret_digest = digest;
        *ret_same = same;
    }
    free(all);
    return status;
}
