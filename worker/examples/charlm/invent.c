/* Draws words from the model, character by character. */
#include "worker/examples/charlm/invent.h"

#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

#define LEAST_CHARACTERS 4
#define MOST_TRIES_PER_WORD 50

static uint8_t draw(const float *probabilities, size_t count, float at)
{
    size_t token = 0;
    for (float sum = probabilities[0]; token + 1 < count && sum <= at;) {
        sum += probabilities[++token];
    }
    return (uint8_t)token;
}

/* Draws characters up to a newline. Returns their number; 0: there were too many. */
static size_t draw_word(struct charlm_model *model, uint64_t *sequence, uint8_t *ret_tokens)
{
    float probabilities[256];
    uint8_t line[CHARLM_MAX_CONTEXT + CHARLM_MAX_WORD + 1] = {0};
    uint8_t *word = line + CHARLM_MAX_CONTEXT;
    for (size_t count = 0; count <= CHARLM_MAX_WORD; count++) {
        charlm_model_predict(model, word + count - model->shape.context, probabilities);
        word[count] = draw(probabilities, model->shape.vocabulary, charlm_uniform(sequence));
        if (word[count] == 0) {
            memcpy(ret_tokens, word, count);
            return count;
        }
    }
    return 0;
}

/* False for control characters of the text, and for multi-byte characters that the model cut in
 * two: neither may reach a terminal. */
static bool is_printable(const char *text)
{
    mbstate_t state = {0};
    wchar_t character;
    for (size_t size = 0; *text != '\0'; text += size) {
        size = mbrtowc(&character, text, strlen(text), &state);
        if (size == (size_t)-1 || size == (size_t)-2 || !iswprint((wint_t)character)) {
            return false;
        }
    }
    return true;
}

static bool already_there(const struct charlm_word *words, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(words[i].text, text) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds words of the text (known), or others, until there are `count` or the tries are used up. */
static size_t collect(struct charlm_model *model, const struct charlm_data *data, uint64_t seed,
                      bool known, struct charlm_word *words, size_t found, size_t count)
{
    uint64_t sequence = charlm_mix(seed);
    for (size_t tries = 0; found < count && tries < count * MOST_TRIES_PER_WORD; tries++) {
        uint8_t tokens[CHARLM_MAX_WORD];
        struct charlm_word word = {0};
        size_t characters = draw_word(model, &sequence, tokens);
        for (size_t i = 0; i < characters; i++) {
            word.text[i] = (char)data->characters[tokens[i]];
        }
        word.known = charlm_data_contains(&data->training, tokens, characters) ||
                     charlm_data_contains(&data->held_out, tokens, characters);
        if (characters >= LEAST_CHARACTERS && word.known == known && is_printable(word.text) &&
            !already_there(words, found, word.text)) {
            words[found++] = word;
        }
    }
    return found;
}

size_t charlm_invent(struct charlm_model *model, const struct charlm_data *data, uint64_t seed,
                     size_t count, struct charlm_word *ret_words)
{
    size_t found = collect(model, data, seed, false, ret_words, 0, count);
    return collect(model, data, seed, true, ret_words, found, count);
}
