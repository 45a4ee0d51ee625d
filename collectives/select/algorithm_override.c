#include "collectives/select/algorithm_override.h"

#include <stdio.h>
#include <string.h>

#include "worker/base/status.h"

enum { TEXT_MAX = 1024 };

/* All names, each once. */
static void list_names(char text[MUSTER_ERROR_MAX])
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < muster_algorithm_count && used < MUSTER_ERROR_MAX; i++) {
        bool first = true;
        for (size_t j = 0; j < i; j++) {
            first &= strcmp(muster_algorithms[j].name, muster_algorithms[i].name) != 0;
        }
        if (first) {
            int size = snprintf(text + used, MUSTER_ERROR_MAX - used, "%s%s", i == 0 ? "" : ", ",
                                muster_algorithms[i].name);
            used += size > 0 ? (size_t)size : 0;
        }
    }
}

/* A name alone. */
static muster_status force_everywhere(const char *name, struct muster_algorithm_override *forced)
{
    size_t length = strcspn(name, "(");
    bool known = false;
    bool taken = false;
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        const struct muster_algorithm *row = &muster_algorithms[i];
        size_t algorithm;
        if (strlen(row->name) != length || strncmp(row->name, name, length) != 0) {
            continue;
        }
        known = true;
        if (muster_algorithm_find(row->collective, name, &algorithm) == MUSTER_OK) {
            forced->plus_one[row->collective] = (uint32_t)algorithm + 1;
            taken = true;
        } else if (row->variants != NULL) {
            return MUSTER_INVALID; /* the text is about what stands in its brackets */
        }
    }
    if (known) {
        return taken ? MUSTER_OK : MUSTER_INVALID; /* it has no brackets */
    }
    char names[MUSTER_ERROR_MAX];
    list_names(names);
    return muster_error_set(MUSTER_INVALID, "algorithm \"%.64s\": there is none; there are %s",
                            name, names);
}

/* "ring", or "allreduce=ring"; an equals sign in brackets is part of the name. */
static muster_status force(char *word, struct muster_algorithm_override *forced)
{
    size_t length = strcspn(word, "=(");
    if (word[length] != '=') {
        return force_everywhere(word, forced);
    }
    enum muster_collective collective;
    size_t algorithm;
    word[length] = '\0';
    TRY(muster_collective_parse(word, &collective));
    TRY(muster_algorithm_find(collective, word + length + 1, &algorithm));
    forced->plus_one[collective] = (uint32_t)algorithm + 1;
    return MUSTER_OK;
}

/* Ends the word at the first comma that is not in brackets; the rest, or NULL. */
static char *cut_word(char *text)
{
    int depth = 0;
    for (; *text != '\0'; text++) {
        depth += (*text == '(') - (*text == ')');
        if (*text == ',' && depth <= 0) {
            *text = '\0';
            return text + 1;
        }
    }
    return NULL;
}

muster_status muster_algorithm_override_parse(const char *text,
                                              struct muster_algorithm_override *ret_forced)
{
    char copy[TEXT_MAX];
    struct muster_algorithm_override forced = {0};
    if (strlen(text) >= sizeof copy) {
        return muster_error_set(MUSTER_INVALID, "algorithm \"%.32s...\": too long", text);
    }
    memcpy(copy, text, strlen(text) + 1);
    for (char *word = copy; word != NULL;) {
        char *rest = cut_word(word);
        TRY(force(word, &forced));
        word = rest;
    }
    *ret_forced = forced;
    return MUSTER_OK;
}

bool muster_algorithm_override_find(const struct muster_algorithm_override *forced,
                                    const struct muster_plan *plan, size_t *ret_algorithm)
{
    char why[MUSTER_ERROR_MAX];
    uint32_t plus_one = forced->plus_one[plan->collective];
    if (plus_one == 0 || !muster_algorithm_fits(plus_one - 1, plan, why, sizeof why)) {
        return false;
    }
    *ret_algorithm = plus_one - 1;
    return true;
}
