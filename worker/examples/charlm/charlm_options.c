/* The command line of charlm, by argp. */
#include "worker/examples/charlm/charlm_options.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/examples/charlm/data.h"
#include "worker/examples/charlm/model.h"

enum key {
    KEY_DATA = 'd',
    KEY_STEPS = 's',
    KEY_BATCH = 'b',
    KEY_LEARNING_RATE = 256,
    KEY_SEED,
    KEY_HIDDEN,
    KEY_LAYERS,
    KEY_CONTEXT,
    KEY_EMBED,
    KEY_COMMIT_EVERY,
    KEY_REPORT_EVERY,
    KEY_PACE_MS,
    KEY_ALONE,
};

static const struct argp_option option_table[] = {
    {"data", KEY_DATA, "FILE", 0, "Text to learn, one word a line [" CHARLM_DATA_DEFAULT "]", 0},
    {"steps", KEY_STEPS, "N", 0, "Training steps [8000]", 0},
    {"batch", KEY_BATCH, "N", 0, "Samples a step, of all workers together [512]", 0},
    {"learning-rate", KEY_LEARNING_RATE, "X", 0, "At the start; it falls to a tenth [0.002]", 0},
    {"seed", KEY_SEED, "N", 0, "Chooses the weights, samples and inventions [1]", 0},
    {"hidden", KEY_HIDDEN, "N", 0, "Units in a hidden layer [256]", 1},
    {"layers", KEY_LAYERS, "N", 0, "Hidden layers, 1 or 2 [2]", 1},
    {"context", KEY_CONTEXT, "N", 0, "Characters that predict the next one [10]", 1},
    {"embed", KEY_EMBED, "N", 0, "Numbers that stand for a character [16]", 1},
    {"commit-every", KEY_COMMIT_EVERY, "N", 0, "Steps between two commits [20]", 2},
    {"report-every", KEY_REPORT_EVERY, "N", 0, "Steps between two lines of output [200]", 2},
    {"pace-ms", KEY_PACE_MS, "MS", 0, "Least time of a step [0]", 2},
    {"alone", KEY_ALONE, NULL, 0, "Trains in this process only, without a job", 2},
    {0},
};

/* The options that are whole numbers: their fields and bounds. */
static const struct whole {
    int key;
    const char *name;
    size_t offset;
    uint64_t least, most;
} wholes[] = {
    {KEY_STEPS, "steps", offsetof(struct charlm_options, steps), 1, 1000000000},
    {KEY_BATCH, "batch", offsetof(struct charlm_options, batch), 1, 65536},
    {KEY_SEED, "seed", offsetof(struct charlm_options, seed), 0, UINT64_MAX},
    {KEY_HIDDEN, "hidden", offsetof(struct charlm_options, hidden), 1, 4096},
    {KEY_LAYERS, "layers", offsetof(struct charlm_options, layers), 1, CHARLM_MAX_HIDDEN_LAYERS},
    {KEY_CONTEXT, "context", offsetof(struct charlm_options, context), 1, CHARLM_MAX_CONTEXT},
    {KEY_EMBED, "embed", offsetof(struct charlm_options, embed), 1, 256},
    {KEY_COMMIT_EVERY, "commit-every", offsetof(struct charlm_options, commit_every), 1, 1000000},
    {KEY_REPORT_EVERY, "report-every", offsetof(struct charlm_options, report_every), 1, 1000000},
    {KEY_PACE_MS, "pace-ms", offsetof(struct charlm_options, pace_ms), 0, 60000},
};

static void parse_whole(struct charlm_options *options, const struct whole *whole,
                        const char *argument, const struct argp_state *state)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(argument, &end, 10);
    if (argument[0] < '0' || argument[0] > '9' || *end != '\0' || errno != 0 ||
        value < whole->least || value > whole->most) {
        argp_failure(state, CHARLM_USAGE, 0,
                     "--%s %s: not a whole number from %" PRIu64 " to %" PRIu64, whole->name,
                     argument, whole->least, whole->most);
    }
    *(uint64_t *)((char *)options + whole->offset) = value;
}

static void parse_learning_rate(struct charlm_options *options, const char *argument,
                                const struct argp_state *state)
{
    char *end = NULL;
    double value = strtod(argument, &end);
    if (end == argument || *end != '\0' || !(value > 0 && value <= 1)) {
        argp_failure(state, CHARLM_USAGE, 0, "--learning-rate %s: not a number above 0, at most 1",
                     argument);
    }
    options->learning_rate = value;
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct charlm_options *options = state->input;
    for (size_t i = 0; i < sizeof(wholes) / sizeof(wholes[0]); i++) {
        if (wholes[i].key == key) {
            parse_whole(options, &wholes[i], argument, state);
            return 0;
        }
    }
    switch (key) {
    case KEY_DATA:
        options->data = argument;
        return 0;
    case KEY_LEARNING_RATE:
        parse_learning_rate(options, argument, state);
        return 0;
    case KEY_ALONE:
        options->alone = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_failure(state, CHARLM_USAGE, 0, "%s: charlm takes options only; a file is --data %s",
                     argument, argument);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void charlm_options_parse(struct charlm_options *options, int argc, char **argv)
{
    static const struct argp parser = {
        .options = option_table,
        .parser = parse_option,
        .doc =
            "Trains a character-level language model on a text, together with the other workers "
            "of its job, and invents ten words.\v"
            "Example: muster run -n 4 -- charlm",
    };
    *options = (struct charlm_options){
        .data = CHARLM_DATA_DEFAULT,
        .steps = 8000,
        .batch = 512,
        .seed = 1,
        .hidden = 256,
        .layers = 2,
        .context = 10,
        .embed = 16,
        .commit_every = 20,
        .report_every = 200,
        .learning_rate = 0.002,
    };
    argp_err_exit_status = CHARLM_USAGE;
    argp_parse(&parser, argc, argv, 0, NULL, options);
}
