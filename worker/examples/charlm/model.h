/*
 * The model: the embeddings of the characters before, side by side; one or two hidden layers with
 * rectifiers; one score for each character of the vocabulary; softmax. (The neural probabilistic
 * language model of Bengio et al. 2003, section 2, on characters.)
 *
 *   context c_1 .. c_n -> E[c_1] | .. | E[c_n] -> W_1 x + b_1 -> max(0, .) -> W_2 x + b_2 ->
 * softmax
 *
 * All parameters are in one array, so that one allreduce sums all gradients and one copy commits
 * all weights. Widths are padded to multiples of CHARLM_LANES; the padding's parameters are zero,
 * have gradient zero, and so stay zero.
 */
#ifndef CHARLM_MODEL_H
#define CHARLM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHARLM_MAX_HIDDEN_LAYERS 2
#define CHARLM_MAX_CONTEXT 64

struct charlm_shape {
    size_t vocabulary; /* characters */
    size_t context;    /* how many of them predict the next one */
    size_t embed;      /* numbers that represent a character */
    size_t hidden;     /* units in a hidden layer */
    size_t layers;     /* hidden layers: 1 or 2 */
};

/* W is in x out, row after row; `weight` and `bias` are offsets into the parameters. */
struct charlm_layer {
    size_t in, out;
    size_t weight, bias;
};

struct charlm_model {
    struct charlm_shape shape;
    struct charlm_layer layers[CHARLM_MAX_HIDDEN_LAYERS + 1];
    size_t layer_count;
    size_t parameter_count;
    float *parameters;                                /* the embedding, then the layers */
    float *activations[CHARLM_MAX_HIDDEN_LAYERS + 2]; /* of one chunk of samples */
    float *delta,
        *delta_below; /* the loss's derivatives by the sums of one layer, and of the one below */
    float *transposed[CHARLM_MAX_HIDDEN_LAYERS + 1]; /* the layers' W, column after column */
};

/* Samples to compute with: contexts has count x shape.context tokens, oldest first. */
struct charlm_batch {
    const uint8_t *contexts;
    const uint8_t *targets;
    size_t count;
};

/* False: no memory; nothing is held. */
bool charlm_model_init(struct charlm_model *model, const struct charlm_shape *shape);
void charlm_model_finish(struct charlm_model *model);

/* Random weights that keep the size of activations and gradients alike from layer to layer (He et
 * al. 2015, section 2.2). */
void charlm_model_randomise(struct charlm_model *model, uint64_t seed);

/* The sum over the samples of -log(probability of the target), in nats. */
double charlm_model_loss(struct charlm_model *model, const struct charlm_batch *batch);

/* Called during the backward pass when a part of the gradient is complete: first that of the last
 * layer, at last that of the embedding, which is part 0; part i is layer i - 1. */
struct charlm_listener {
    void (*ready)(void *user, size_t part);
    void *user;
};

/* The place of a part in the parameters and in the gradient. */
struct charlm_part {
    size_t begin, count;
};
struct charlm_part charlm_model_part(const struct charlm_model *model, size_t part);

/* The same, and gradient += scale x the sum's derivative by every parameter. The listener may be
 * NULL. */
double charlm_model_gradient(struct charlm_model *model, const struct charlm_batch *batch,
                             float scale, float *gradient, const struct charlm_listener *listener);

/* How probable each of shape.vocabulary characters is after the context. */
void charlm_model_predict(struct charlm_model *model, const uint8_t *context,
                          float *ret_probabilities);

#endif
