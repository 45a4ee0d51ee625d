/* The model of charlm: its gradient is the derivative of the loss, the loss falls, and the
 * gradients of all shares add up. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/examples/charlm/invent.h"
#include "worker/examples/charlm/matmul.h"
#include "worker/examples/charlm/trainer.h"

#define SEED 20240607

/* Lines of a small language: a consonant and a vowel, two to four times. */
static struct charlm_data small_data(size_t lines)
{
    struct charlm_data data;
    size_t size = 0;
    char *text = malloc(lines * 9);
    assert_non_null(text);
    for (uint64_t line = 0, number = SEED; line < lines; line++) {
        number = charlm_mix(number);
        for (uint64_t i = 0; i < 2 + number % 3; i++) {
            text[size++] = "bdgklmnpst"[(number >> (8 + 6 * i)) % 10];
            text[size++] = "aeiou"[(number >> (40 + 4 * i)) % 5];
        }
        text[size++] = '\n';
    }
    assert_true(charlm_data_parse(&data, text, size));
    free(text);
    return data;
}

static struct charlm_options small_options(void)
{
    return (struct charlm_options){
        .steps = 300,
        .batch = 37,
        .seed = SEED,
        .hidden = 20,
        .layers = 2,
        .context = 5,
        .embed = 3,
        .learning_rate = 0.02,
    };
}

static void product_equals_the_definition(void **state)
{
    (void)state;
    enum { ROWS = 7, COLUMNS = 2 * CHARLM_LANES, DEPTH = 9 };
    float a[ROWS * DEPTH], transposed[DEPTH * ROWS], b[DEPTH * COLUMNS];
    float c[ROWS * COLUMNS] = {0}, d[ROWS * COLUMNS] = {0}, e[ROWS * COLUMNS] = {0};
    for (size_t i = 0; i < ROWS * DEPTH; i++) {
        a[i] = (float)(i % 13) - 6;
        transposed[i % DEPTH * ROWS + i / DEPTH] = a[i];
    }
    for (size_t i = 0; i < DEPTH * COLUMNS; i++) {
        b[i] = (float)(i % 11) - 5;
    }
    charlm_matmul_add(c, (struct charlm_matrix){a, DEPTH, 1}, b, ROWS, COLUMNS, DEPTH);
    charlm_matmul_add(d, (struct charlm_matrix){transposed, 1, ROWS}, b, ROWS, COLUMNS, DEPTH);
    charlm_matmul_add_anywhere(e, (struct charlm_matrix){a, DEPTH, 1}, b, ROWS, COLUMNS, DEPTH);
    for (size_t i = 0; i < ROWS * COLUMNS; i++) {
        float sum = 0;
        for (size_t k = 0; k < DEPTH; k++) {
            sum += a[i / COLUMNS * DEPTH + k] * b[k * COLUMNS + i % COLUMNS];
        }
        assert_true(c[i] == sum);
        assert_true(d[i] == sum);
        assert_true(e[i] == sum);
    }
}

/* Compares the gradient with central differences of the loss. 70 samples are more than one chunk.
 */
static void check_gradient(size_t layers)
{
    struct charlm_data data = small_data(200);
    struct charlm_shape shape = {data.vocabulary, 4, 3, 12, layers};
    struct charlm_model model;
    assert_true(charlm_model_init(&model, &shape));
    charlm_model_randomise(&model, SEED);
    uint8_t contexts[70 * 4], targets[70];
    for (size_t i = 0; i < 70; i++) {
        charlm_data_sample(&data.training, i * 3, 4, contexts + i * 4, targets + i);
    }
    struct charlm_batch batch = {contexts, targets, 70};
    float *gradient = calloc(model.parameter_count, sizeof(float));
    assert_non_null(gradient);
    double loss = charlm_model_gradient(&model, &batch, 1, gradient, NULL);
    assert_true(fabs(loss - charlm_model_loss(&model, &batch)) < 1e-4 * loss);

    /* Central differences in float32 are inaccurate, so all of them are compared together. */
    double difference = 0, length = 0;
    for (size_t i = 0; i < model.parameter_count; i++) {
        const float nudge = 2e-3F;
        float value = model.parameters[i];
        model.parameters[i] = value + nudge;
        double above = charlm_model_loss(&model, &batch);
        model.parameters[i] = value - nudge;
        double below = charlm_model_loss(&model, &batch);
        model.parameters[i] = value;
        double numeric = (above - below) / (2 * (double)nudge);
        difference += pow(numeric - (double)gradient[i], 2);
        length += pow(numeric, 2);
    }
    print_message("relative error of the gradient, %zu layers: %.1e\n", layers,
                  sqrt(difference / length));
    assert_true(difference < 1e-4 * length);
    free(gradient);
    charlm_model_finish(&model);
    charlm_data_finish(&data);
}

static void gradient_equals_the_slope_of_the_loss(void **state)
{
    (void)state;
    check_gradient(1);
    check_gradient(2);
}

/* What a listener has heard: the parts in their order, and the gradient as it was then. */
struct heard {
    const struct charlm_model *model;
    const float *gradient;
    float *then; /* [parameter_count] */
    size_t parts[CHARLM_MAX_HIDDEN_LAYERS + 2];
    size_t count;
};

static void hear(void *user, size_t part)
{
    struct heard *heard = user;
    const struct charlm_part place = charlm_model_part(heard->model, part);
    assert_true(heard->count < CHARLM_MAX_HIDDEN_LAYERS + 2);
    heard->parts[heard->count++] = part;
    memcpy(heard->then + place.begin, heard->gradient + place.begin, place.count * sizeof(float));
}

static void each_part_is_told_once_when_it_is_complete(void **state)
{
    (void)state;
    struct charlm_data data = small_data(200);
    struct charlm_shape shape = {data.vocabulary, 4, 3, 12, 2};
    struct charlm_model model;
    assert_true(charlm_model_init(&model, &shape));
    charlm_model_randomise(&model, SEED);
    uint8_t contexts[70 * 4], targets[70];
    for (size_t i = 0; i < 70; i++) {
        charlm_data_sample(&data.training, i * 3, 4, contexts + i * 4, targets + i);
    }
    const size_t samples[] = {0, 1, 70}; /* none, one chunk, more than one */
    for (size_t i = 0; i < 3; i++) {
        struct charlm_batch batch = {contexts, targets, samples[i]};
        float *gradient = calloc(model.parameter_count, sizeof(float));
        float *then = calloc(model.parameter_count, sizeof(float));
        assert_true(gradient != NULL && then != NULL);
        struct heard heard = {.model = &model, .gradient = gradient, .then = then};
        const struct charlm_listener listener = {hear, &heard};
        (void)charlm_model_gradient(&model, &batch, 1, gradient, &listener);
        assert_int_equal(heard.count, model.layer_count + 1);
        for (size_t part = 0; part < heard.count; part++) {
            assert_int_equal(heard.parts[part], model.layer_count - part);
        }
        assert_memory_equal(then, gradient, model.parameter_count * sizeof(float));
        free(gradient);
        free(then);
    }
    charlm_model_finish(&model);
    charlm_data_finish(&data);
}

static void padding_stays_zero_and_loss_falls(void **state)
{
    (void)state;
    struct charlm_data data = small_data(2000);
    struct charlm_options options = small_options();
    struct charlm_trainer trainer;
    double before, after;
    assert_true(charlm_trainer_init(&trainer, &options, &data));
    assert_int_equal(charlm_trainer_held_out(&trainer, &before), MUSTER_OK);
    for (uint64_t i = 0; i < options.steps; i++) {
        assert_int_equal(charlm_trainer_step(&trainer), MUSTER_OK);
    }
    assert_int_equal(charlm_trainer_held_out(&trainer, &after), MUSTER_OK);
    print_message("held-out loss: %.3f before, %.3f after %llu steps\n", before, after,
                  (unsigned long long)options.steps);
    /* A model that knows the frequencies of the characters only has a loss of 2.68 nats; one that
     * knows this language completely has 1.83. */
    assert_true(before > 2.68);
    assert_true(after < 1.96);
    const struct charlm_layer *first = &trainer.model.layers[0];
    for (size_t row = 0; row < first->in; row++) {
        for (size_t column = options.hidden; column < first->out; column++) {
            assert_true(trainer.model.parameters[first->weight + row * first->out + column] == 0);
        }
    }
    charlm_trainer_finish(&trainer);
    charlm_data_finish(&data);
}

static void shares_of_any_number_of_members_add_up_to_the_same_gradient(void **state)
{
    (void)state;
    struct charlm_data data = small_data(500);
    struct charlm_shape shape = {data.vocabulary, 5, 3, 20, 1};
    struct charlm_model model;
    uint8_t contexts[37 * 5], targets[37];
    assert_true(charlm_model_init(&model, &shape));
    charlm_model_randomise(&model, SEED);
    for (size_t i = 0; i < 37; i++) {
        size_t position = charlm_data_position(&data.training, SEED, 3, i);
        charlm_data_sample(&data.training, position, 5, contexts + i * 5, targets + i);
    }
    float *whole = calloc(model.parameter_count, sizeof(float));
    float *sum = calloc(model.parameter_count, sizeof(float));
    struct charlm_batch all = {contexts, targets, 37};
    assert_true(whole != NULL && sum != NULL);
    charlm_model_gradient(&model, &all, 1.0F / 37, whole, NULL);
    for (size_t rank = 0; rank < 4; rank++) {
        size_t begin = 37 * rank / 4;
        struct charlm_batch share = {contexts + begin * 5, targets + begin,
                                     37 * (rank + 1) / 4 - begin};
        charlm_model_gradient(&model, &share, 1.0F / 37, sum, NULL);
    }
    for (size_t i = 0; i < model.parameter_count; i++) {
        assert_true(fabsf(whole[i] - sum[i]) < 1e-5F);
    }
    free(whole);
    free(sum);
    charlm_model_finish(&model);
    charlm_data_finish(&data);
}

static void held_out_lines_are_a_twentieth_and_never_trained_on(void **state)
{
    (void)state;
    struct charlm_data data = small_data(4000);
    double share =
        (double)data.held_out.lines / (double)(data.held_out.lines + data.training.lines);
    assert_true(share > 0.03 && share < 0.07);
    for (size_t start = 0; start < data.held_out.count;) {
        const uint8_t *line = data.held_out.tokens + start;
        const uint8_t *end = memchr(line, 0, data.held_out.count - start);
        assert_false(charlm_data_contains(&data.training, line, (size_t)(end - line)));
        start += (size_t)(end - line) + 1;
    }
    charlm_data_finish(&data);
}

static void samples_end_at_the_start_of_their_line(void **state)
{
    (void)state;
    struct charlm_data data;
    char text[4096] = "";
    for (int i = 0; i < 200; i++) {
        sprintf(text + strlen(text), "ab%d%s", i, i < 199 ? "\n" : "");
    }
    assert_true(charlm_data_parse(&data, text, strlen(text)));
    const struct charlm_lines *lines = &data.training;
    assert_int_equal(lines->tokens[lines->count - 1], 0);
    for (size_t position = 0; position < lines->count; position++) {
        uint8_t context[4], target;
        char seen[5] = "";
        charlm_data_sample(lines, position, 4, context, &target);
        for (size_t i = 0; i < 4; i++) {
            seen[i] = (char)data.characters[context[i]];
        }
        if (data.characters[target] == 'a') {
            assert_string_equal(seen, "\n\n\n\n");
        } else if (data.characters[target] == 'b') {
            assert_string_equal(seen, "\n\n\na");
        }
    }
    charlm_data_finish(&data);
}

static void text_without_enough_lines_is_refused(void **state)
{
    (void)state;
    struct charlm_data data;
    assert_false(charlm_data_parse(&data, "", 0));
    assert_false(charlm_data_parse(&data, "\n\n\n", 3));
    assert_false(charlm_data_parse(&data, "one line", 8));
}

static void invented_words_are_printable_and_follow_the_seed(void **state)
{
    (void)state;
    struct charlm_data data = small_data(300);
    struct charlm_shape shape = {data.vocabulary, 5, 3, 20, 1};
    struct charlm_model model;
    struct charlm_word words[10], again[10];
    assert_true(charlm_model_init(&model, &shape));
    charlm_model_randomise(&model, SEED);
    size_t count = charlm_invent(&model, &data, SEED, 10, words);
    assert_int_equal(count, 10);
    assert_int_equal(charlm_invent(&model, &data, SEED, 10, again), count);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(words[i].text, again[i].text);
        assert_int_equal(strspn(words[i].text, "bdgklmnpstaeiou"), strlen(words[i].text));
    }
    charlm_model_finish(&model);
    charlm_data_finish(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(product_equals_the_definition),
        cmocka_unit_test(gradient_equals_the_slope_of_the_loss),
        cmocka_unit_test(each_part_is_told_once_when_it_is_complete),
        cmocka_unit_test(padding_stays_zero_and_loss_falls),
        cmocka_unit_test(shares_of_any_number_of_members_add_up_to_the_same_gradient),
        cmocka_unit_test(held_out_lines_are_a_twentieth_and_never_trained_on),
        cmocka_unit_test(samples_end_at_the_start_of_their_line),
        cmocka_unit_test(text_without_enough_lines_is_refused),
        cmocka_unit_test(invented_words_are_printable_and_follow_the_seed),
    };
    print_message("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
