/* The model: its parameters in one array, the forward pass, and the gradient by backpropagation. */
#include "worker/examples/charlm/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/examples/charlm/data.h"
#include "worker/examples/charlm/matmul.h"

/* Samples computed at a time: few enough that their activations stay in the cache. */
#define CHUNK 64

static void set_layout(struct charlm_model *model)
{
    const struct charlm_shape *shape = &model->shape;
    size_t width = charlm_round_up(shape->context * shape->embed);
    size_t offset = shape->vocabulary * shape->embed;
    model->layer_count = shape->layers + 1;
    for (size_t i = 0; i < model->layer_count; i++) {
        struct charlm_layer *layer = &model->layers[i];
        bool last = i + 1 == model->layer_count;
        layer->in = width;
        layer->out = charlm_round_up(last ? shape->vocabulary : shape->hidden);
        layer->weight = offset;
        layer->bias = offset + layer->in * layer->out;
        offset = layer->bias + layer->out;
        width = layer->out;
    }
    model->parameter_count = offset;
}

bool charlm_model_init(struct charlm_model *model, const struct charlm_shape *shape)
{
    *model = (struct charlm_model){.shape = *shape};
    set_layout(model);
    size_t widest = model->layers[0].in;
    bool complete = true;
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct charlm_layer *layer = &model->layers[i];
        widest = layer->out > widest ? layer->out : widest;
        model->transposed[i] = calloc(layer->in * layer->out, sizeof(float));
        complete = complete && model->transposed[i] != NULL;
    }
    for (size_t i = 0; i <= model->layer_count; i++) {
        size_t width = i == 0 ? model->layers[0].in : model->layers[i - 1].out;
        model->activations[i] = calloc(CHUNK * width, sizeof(float));
        complete = complete && model->activations[i] != NULL;
    }
    model->parameters = calloc(model->parameter_count, sizeof(float));
    model->delta = calloc(CHUNK * widest, sizeof(float));
    model->delta_below = calloc(CHUNK * widest, sizeof(float));
    if (!complete || model->parameters == NULL || model->delta == NULL ||
        model->delta_below == NULL) {
        charlm_model_finish(model);
        return false;
    }
    return true;
}

void charlm_model_finish(struct charlm_model *model)
{
    for (size_t i = 0; i <= model->layer_count; i++) {
        free(model->activations[i]);
    }
    free(model->parameters);
    free(model->delta);
    free(model->delta_below);
    for (size_t i = 0; i < model->layer_count; i++) {
        free(model->transposed[i]);
    }
    *model = (struct charlm_model){0};
}

/* Uniform random numbers of this deviation, in the part of a matrix that is not padding. */
static void randomise(float *weights, size_t stride, size_t rows, size_t columns, float deviation,
                      uint64_t *sequence)
{
    for (size_t row = 0; row < rows; row++) {
        for (size_t column = 0; column < columns; column++) {
            weights[row * stride + column] =
                (2 * charlm_uniform(sequence) - 1) * deviation * sqrtf(3);
        }
    }
}

void charlm_model_randomise(struct charlm_model *model, uint64_t seed)
{
    const struct charlm_shape *shape = &model->shape;
    uint64_t sequence = charlm_mix(seed);
    memset(model->parameters, 0, model->parameter_count * sizeof(float));
    randomise(model->parameters, shape->embed, shape->vocabulary, shape->embed, 1, &sequence);
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct charlm_layer *layer = &model->layers[i];
        bool last = i + 1 == model->layer_count;
        size_t in = i == 0 ? shape->context * shape->embed : shape->hidden;
        randomise(model->parameters + layer->weight, layer->out, in,
                  last ? shape->vocabulary : shape->hidden, sqrtf((last ? 1.0F : 2.0F) / (float)in),
                  &sequence);
    }
}

static void look_up(struct charlm_model *model, const uint8_t *contexts, size_t count)
{
    const struct charlm_shape *shape = &model->shape;
    for (size_t i = 0; i < count; i++) {
        float *row = model->activations[0] + i * model->layers[0].in;
        for (size_t j = 0; j < shape->context; j++) {
            size_t token = contexts[i * shape->context + j];
            memcpy(row + j * shape->embed, model->parameters + token * shape->embed,
                   shape->embed * sizeof(float));
        }
    }
}

static void forward(struct charlm_model *model, const uint8_t *contexts, size_t count)
{
    look_up(model, contexts, count);
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct charlm_layer *layer = &model->layers[i];
        float *out = model->activations[i + 1];
        for (size_t row = 0; row < count; row++) {
            memcpy(out + row * layer->out, model->parameters + layer->bias,
                   layer->out * sizeof(float));
        }
        struct charlm_matrix in = {model->activations[i], layer->in, 1};
        charlm_matmul_add(out, in, model->parameters + layer->weight, count, layer->out, layer->in);
        if (i + 1 < model->layer_count) {
            for (size_t j = 0; j < count * layer->out; j++) {
                out[j] = out[j] > 0 ? out[j] : 0;
            }
        }
    }
}

/* Turns one row of scores into probabilities; the padding's become 0. */
static void softmax(float *scores, size_t count, size_t padded)
{
    float largest = scores[0];
    for (size_t i = 1; i < count; i++) {
        largest = scores[i] > largest ? scores[i] : largest;
    }
    float sum = 0;
    for (size_t i = 0; i < count; i++) {
        scores[i] = expf(scores[i] - largest);
        sum += scores[i];
    }
    for (size_t i = 0; i < padded; i++) {
        scores[i] = i < count ? scores[i] / sum : 0;
    }
}

/* Runs a chunk forward, leaves the probabilities as the last activations, returns the loss. */
static double chunk_loss(struct charlm_model *model, const struct charlm_batch *chunk)
{
    size_t width = model->layers[model->layer_count - 1].out;
    double loss = 0;
    forward(model, chunk->contexts, chunk->count);
    for (size_t i = 0; i < chunk->count; i++) {
        float *row = model->activations[model->layer_count] + i * width;
        softmax(row, model->shape.vocabulary, width);
        /* A probability that rounded to 0 must not make the loss infinite. */
        loss -= log(fmax((double)row[chunk->targets[i]], 1e-30));
    }
    return loss;
}

static struct charlm_batch chunk_of(const struct charlm_model *model,
                                    const struct charlm_batch *batch, size_t start)
{
    size_t left = batch->count - start;
    return (struct charlm_batch){batch->contexts + start * model->shape.context,
                                 batch->targets + start, left < CHUNK ? left : CHUNK};
}

double charlm_model_loss(struct charlm_model *model, const struct charlm_batch *batch)
{
    double loss = 0;
    for (size_t start = 0; start < batch->count; start += CHUNK) {
        struct charlm_batch chunk = chunk_of(model, batch, start);
        loss += chunk_loss(model, &chunk);
    }
    return loss;
}

void charlm_model_predict(struct charlm_model *model, const uint8_t *context,
                          float *ret_probabilities)
{
    static const uint8_t any = 0;
    struct charlm_batch one = {context, &any, 1};
    (void)chunk_loss(model, &one);
    memcpy(ret_probabilities, model->activations[model->layer_count],
           model->shape.vocabulary * sizeof(float));
}

/* From the derivatives by this layer's sums (model->delta): adds those by its parameters to the
 * gradient, and leaves those by its inputs in model->delta_below. */
static void layer_backward(struct charlm_model *model, size_t index, size_t count, float *gradient)
{
    const struct charlm_layer *layer = &model->layers[index];
    struct charlm_matrix inputs_transposed = {model->activations[index], 1, layer->in};
    charlm_matmul_add(gradient + layer->weight, inputs_transposed, model->delta, layer->in,
                      layer->out, count);
    for (size_t row = 0; row < count; row++) {
        for (size_t i = 0; i < layer->out; i++) {
            gradient[layer->bias + i] += model->delta[row * layer->out + i];
        }
    }
    struct charlm_matrix delta = {model->delta, layer->out, 1};
    memset(model->delta_below, 0, count * layer->in * sizeof(float));
    charlm_matmul_add(model->delta_below, delta, model->transposed[index], count, layer->in,
                      layer->out);
}

static void embedding_backward(const struct charlm_model *model, const struct charlm_batch *chunk,
                               float *gradient)
{
    const struct charlm_shape *shape = &model->shape;
    for (size_t i = 0; i < chunk->count; i++) {
        const float *row = model->delta + i * model->layers[0].in;
        for (size_t j = 0; j < shape->context; j++) {
            float *of_token = gradient + chunk->contexts[i * shape->context + j] * shape->embed;
            for (size_t k = 0; k < shape->embed; k++) {
                of_token[k] += row[j * shape->embed + k];
            }
        }
    }
}

static void swap_deltas(struct charlm_model *model)
{
    float *delta = model->delta;
    model->delta = model->delta_below;
    model->delta_below = delta;
}

struct charlm_part charlm_model_part(const struct charlm_model *model, size_t part)
{
    if (part == 0) {
        return (struct charlm_part){0, model->layers[0].weight};
    }
    size_t begin = model->layers[part - 1].weight;
    size_t end = part < model->layer_count ? model->layers[part].weight : model->parameter_count;
    return (struct charlm_part){begin, end - begin};
}

static void tell(const struct charlm_listener *listener, size_t part)
{
    if (listener != NULL) {
        listener->ready(listener->user, part);
    }
}

/* The listener is that of the last chunk. */
static void chunk_backward(struct charlm_model *model, const struct charlm_batch *chunk,
                           float scale, float *gradient, const struct charlm_listener *listener)
{
    size_t width = model->layers[model->layer_count - 1].out;
    const float *probabilities = model->activations[model->layer_count];
    for (size_t i = 0; i < chunk->count * width; i++) {
        model->delta[i] = scale * probabilities[i];
    }
    for (size_t row = 0; row < chunk->count; row++) {
        model->delta[row * width + chunk->targets[row]] -= scale;
    }
    for (size_t index = model->layer_count; index-- > 0;) {
        layer_backward(model, index, chunk->count, gradient);
        tell(listener, index + 1);
        swap_deltas(model);
        if (index > 0) {
            /* The rectifier passes on what it let through. */
            for (size_t i = 0; i < chunk->count * model->layers[index].in; i++) {
                model->delta[i] = model->activations[index][i] > 0 ? model->delta[i] : 0;
            }
        }
    }
    embedding_backward(model, chunk, gradient);
    tell(listener, 0);
}

static void transpose(float *out, const float *in, size_t rows, size_t columns)
{
    for (size_t row = 0; row < rows; row++) {
        for (size_t column = 0; column < columns; column++) {
            out[column * rows + row] = in[row * columns + column];
        }
    }
}

double charlm_model_gradient(struct charlm_model *model, const struct charlm_batch *batch,
                             float scale, float *gradient, const struct charlm_listener *listener)
{
    double loss = 0;
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct charlm_layer *layer = &model->layers[i];
        transpose(model->transposed[i], model->parameters + layer->weight, layer->in, layer->out);
    }
    for (size_t start = 0; start < batch->count; start += CHUNK) {
        struct charlm_batch chunk = chunk_of(model, batch, start);
        loss += chunk_loss(model, &chunk);
        bool last = start + chunk.count == batch->count;
        chunk_backward(model, &chunk, scale, gradient, last ? listener : NULL);
    }
    /* With more members than samples, this one has none: its part of the sum is 0. */
    for (size_t part = model->layer_count + 1; batch->count == 0 && part-- > 0;) {
        tell(listener, part);
    }
    return loss;
}
