/* Words that the model makes up. */
#ifndef CHARLM_INVENT_H
#define CHARLM_INVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/examples/charlm/data.h"
#include "worker/examples/charlm/model.h"

#define CHARLM_MAX_WORD 40

struct charlm_word {
    char text[CHARLM_MAX_WORD + 1];
    bool known; /* it is in the text, trained on or held out */
};

/* Draws words from the model until `count` of them are not in the text; if that takes too many
 * tries, the rest are words of the text. Returns the number of words: fewer than count only if the
 * model hardly ever ends a word. The same weights and seed give the same words. */
size_t charlm_invent(struct charlm_model *model, const struct charlm_data *data, uint64_t seed,
                     size_t count, struct charlm_word *ret_words);

#endif
