/* The algorithm override: parsing its text, and looking it up for a call. */
#include "collectives/select/algorithm_override.h"

#include <stdio.h>
#include <string.h>

#include "worker/base/status.h"

enum { TEXT_MAX = 1024 };

/* All names of algorithms, each once. */
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

static void set(struct muster_algorithm_override *override, enum muster_collective collective,
                size_t algorithm)
{
    override->by_collective[collective].is_set = true;
    override->by_collective[collective].algorithm = (uint32_t)algorithm;
}

/* A name without a collective: sets it for every collective that has an algorithm of this name or
 * alias. */
static muster_status set_everywhere(const char *name, struct muster_algorithm_override *override)
{
    bool known = false;
    bool was_set = false;
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        const struct muster_algorithm *row = &muster_algorithms[i];
        size_t algorithm;
        if (!muster_algorithm_is_named(row, name)) {
            continue;
        }
        known = true;
        if (muster_algorithm_find(row->collective, name, &algorithm) == MUSTER_OK) {
            set(override, row->collective, algorithm);
            was_set = true;
        } else if (row->variants != NULL) {
            return MUSTER_INVALID; /* the error text is about the words in brackets */
        }
    }
    if (known) {
        return was_set ? MUSTER_OK : MUSTER_INVALID; /* brackets after a name that takes none */
    }
    char names[MUSTER_ERROR_MAX];
    list_names(names);
    return muster_error_set(MUSTER_INVALID, "no algorithm is called \"%.64s\": there are %s", name,
                            names);
}

/* "ring" or "allreduce=ring"; an equals sign in brackets is part of the name. */
static muster_status parse_entry(char *word, struct muster_algorithm_override *override)
{
    size_t length = strcspn(word, "=(");
    if (word[length] != '=') {
        return set_everywhere(word, override);
    }
    enum muster_collective collective;
    size_t algorithm;
    word[length] = '\0';
    TRY(muster_collective_parse(word, &collective));
    TRY(muster_algorithm_find(collective, word + length + 1, &algorithm));
    set(override, collective, algorithm);
    return MUSTER_OK;
}

/* Ends the word at the first comma that is not in brackets. Returns what follows it, or NULL. */
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
                                              struct muster_algorithm_override *ret_override)
{
    char copy[TEXT_MAX];
    struct muster_algorithm_override override = {0};
    if (strlen(text) >= sizeof copy) {
        return muster_error_set(MUSTER_INVALID, "algorithm \"%.32s...\": too long", text);
    }
    memcpy(copy, text, strlen(text) + 1);
    for (char *word = copy; word != NULL;) {
        char *rest = cut_word(word);
        TRY(parse_entry(word, &override));
        word = rest;
    }
    *ret_override = override;
    return MUSTER_OK;
}

bool muster_algorithm_override_find(const struct muster_algorithm_override *override,
                                    const struct muster_plan *plan, size_t *ret_algorithm)
{
    char why[MUSTER_ERROR_MAX];
    if (!override->by_collective[plan->collective].is_set) {
        return false;
    }
    size_t algorithm = override->by_collective[plan->collective].algorithm;
    if (!muster_algorithm_fits(algorithm, plan, why, sizeof why)) {
        return false;
    }
    if (muster_algorithm_is_of_device(algorithm) && !muster_device_group_fits(algorithm, plan)) {
        return false; /* what it does elsewhere is no better than what is chosen by cost */
    }
    *ret_algorithm = algorithm;
    return true;
}
