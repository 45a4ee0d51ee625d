/* muster bench: the names of transports, and the lists of sizes, algorithms and devices. */
#include "worker/cli/bench/bench_parts.h"

#include <stdlib.h>
#include <string.h>

#include "worker/base/status.h"

enum { STEP_DEFAULT = 4, STEP_MAX = 1024, LIST_SIZE = 4096 };

static const uint64_t bytes_max = (uint64_t)1 << 36;

static const struct {
    const char *name, *list;
} transports[] = {[MUSTER_BENCH_INPROC] = {"inproc", "inproc"},
                  [MUSTER_BENCH_TCP] = {"tcp", "tcp"},
                  [MUSTER_BENCH_SHM] = {"shm", "shm,tcp"},
                  [MUSTER_BENCH_VERBS] = {"verbs", "verbs"}};

muster_status muster_bench_parse_transport(const char *text,
                                           enum muster_bench_transport *ret_transport)
{
    for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++) {
        if (strcmp(text, transports[i].name) == 0) {
            *ret_transport = (enum muster_bench_transport)i;
            return MUSTER_OK;
        }
    }
    return muster_error_set(MUSTER_INVALID,
                            "--transport: \"%.32s\" is none of inproc, shm, tcp and verbs", text);
}

const char *muster_bench_transport_name(enum muster_bench_transport transport)
{
    return transports[transport].name;
}

const char *muster_bench_transport_list(enum muster_bench_transport transport)
{
    return transports[transport].list;
}

static muster_status parse_size(const char *text, uint64_t *ret_bytes)
{
    static const char suffixes[] = "KMG";
    char *end = NULL;
    uint64_t bytes = strtoull(text, &end, 10);
    bool good = text[0] >= '0' && text[0] <= '9' && bytes <= bytes_max;
    const char *suffix = *end != '\0' ? strchr(suffixes, *end) : NULL;
    if (good && suffix != NULL) {
        bytes <<= 10 * (suffix - suffixes + 1);
        end++;
    }
    if (!good || *end != '\0' || bytes > bytes_max) {
        return muster_error_set(MUSTER_INVALID,
                                "--bytes: \"%.32s\" is not a size such as 4, 64K or 1M (at most "
                                "64G)",
                                text);
    }
    *ret_bytes = bytes;
    return MUSTER_OK;
}

static muster_status add_size(struct muster_bench_options *options, uint64_t bytes)
{
    if (options->size_count == MUSTER_BENCH_SIZES_MAX) {
        return muster_error_set(MUSTER_INVALID, "--bytes: more than %d sizes",
                                MUSTER_BENCH_SIZES_MAX);
    }
    options->sizes_bytes[options->size_count++] = bytes;
    return MUSTER_OK;
}

/* FIRST..LAST[:FACTOR], split at the dots. LAST is always measured, even if no step reaches it. */
static muster_status add_range(struct muster_bench_options *options, const char *first, char *last)
{
    unsigned long step = STEP_DEFAULT;
    uint64_t bytes = 0;
    uint64_t last_bytes = 0;
    char *colon = strchr(last, ':');
    if (colon != NULL) {
        char *end = NULL;
        *colon = '\0';
        step = strtoul(colon + 1, &end, 10);
        if (colon[1] < '1' || colon[1] > '9' || *end != '\0' || step < 2 || step > STEP_MAX) {
            return muster_error_set(MUSTER_INVALID,
                                    "--bytes: \"%.32s\" is not a factor from 2 to %d for the steps "
                                    "of a range",
                                    colon + 1, STEP_MAX);
        }
    }
    TRY(parse_size(first, &bytes));
    TRY(parse_size(last, &last_bytes));
    if (bytes == 0 || bytes > last_bytes) {
        return muster_error_set(
            MUSTER_INVALID,
            "--bytes: a range from \"%.32s\" to \"%.32s\" does not go up from 1 or "
            "more",
            first, last);
    }
    for (; bytes < last_bytes; bytes *= step) {
        TRY(add_size(options, bytes));
    }
    return add_size(options, last_bytes);
}

muster_status muster_bench_parse_sizes(const char *text, struct muster_bench_options *options)
{
    char copy[LIST_SIZE];
    if (strlen(text) >= sizeof copy) {
        return muster_error_set(MUSTER_INVALID, "--bytes: the list is too long");
    }
    memcpy(copy, text, strlen(text) + 1);
    options->size_count = 0;
    char *rest = copy;
    for (char *word = strsep(&rest, ","); word != NULL; word = strsep(&rest, ",")) {
        char *dots = strstr(word, "..");
        if (dots != NULL) {
            *dots = '\0';
            TRY(add_range(options, word, dots + 2));
        } else {
            uint64_t bytes = 0;
            TRY(parse_size(word, &bytes));
            TRY(add_size(options, bytes));
        }
    }
    return MUSTER_OK;
}

muster_status muster_bench_parse_devices(char *text, struct muster_bench_options *options)
{
    options->device_count = 0;
    char *rest = text;
    for (char *name = strsep(&rest, ","); name != NULL; name = strsep(&rest, ",")) {
        if (name[0] == '\0' || options->device_count == MUSTER_BENCH_RANKS_MAX) {
            return muster_error_set(MUSTER_INVALID,
                                    "--devices: a name is empty, or there are more than %d names",
                                    MUSTER_BENCH_RANKS_MAX);
        }
        options->devices[options->device_count++] = name;
    }
    return MUSTER_OK;
}

static muster_status add_algorithm(struct muster_bench_options *options, const char *name,
                                   size_t length)
{
    if (options->algorithm_count == MUSTER_BENCH_ALGORITHMS_MAX) {
        return muster_error_set(MUSTER_INVALID, "--algorithm: more than %d names",
                                MUSTER_BENCH_ALGORITHMS_MAX);
    }
    char *own = options->algorithms[options->algorithm_count++];
    memcpy(own, name, length);
    own[length] = '\0';
    return MUSTER_OK;
}

/* The length up to the next comma that is not inside parentheses. */
static size_t word_length(const char *text)
{
    size_t length = 0;
    for (int depth = 0; text[length] != '\0' && (text[length] != ',' || depth > 0); length++) {
        depth += text[length] == '(' ? 1 : text[length] == ')' ? -1 : 0;
    }
    return length;
}

muster_status muster_bench_parse_algorithms(const char *text, struct muster_bench_options *options)
{
    options->algorithm_count = 0;
    for (const char *word = text;; word++) {
        size_t length = word_length(word);
        if (length == 0 || length >= MUSTER_ALGORITHM_NAME_SIZE) {
            return muster_error_set(MUSTER_INVALID,
                                    "--algorithm: a name in \"%.32s\" is empty or too long", text);
        }
        TRY(add_algorithm(options, word, length));
        word += length;
        if (*word == '\0') {
            return MUSTER_OK;
        }
    }
}

static muster_status add_all(struct muster_bench_options *options)
{
    for (size_t row = 0; row < muster_algorithm_count; row++) {
        const struct muster_algorithm *algorithm = &muster_algorithms[row];
        if (algorithm->collective == options->collective) {
            TRY(add_algorithm(options, algorithm->name, strlen(algorithm->name)));
        }
    }
    return MUSTER_OK;
}

muster_status muster_bench_resolve_algorithms(struct muster_bench_options *options)
{
    char words[MUSTER_BENCH_ALGORITHMS_MAX][MUSTER_ALGORITHM_NAME_SIZE];
    size_t word_count = options->algorithm_count;
    size_t algorithm;
    memcpy(words, options->algorithms, sizeof words);
    options->algorithm_count = 0;
    for (size_t i = 0; i < word_count; i++) {
        if (strcmp(words[i], "all") == 0) {
            options->all_algorithms = true;
            TRY(add_all(options));
        } else if (words[i][0] == '\0' || strcmp(words[i], MUSTER_BENCH_TUNED) == 0) {
            TRY(add_algorithm(options, MUSTER_BENCH_TUNED, strlen(MUSTER_BENCH_TUNED)));
        } else if (strcmp(words[i], "chosen") == 0) {
            TRY(add_algorithm(options, "", 0));
        } else {
            TRY(muster_algorithm_find(options->collective, words[i], &algorithm));
            TRY(add_algorithm(options, words[i], strlen(words[i])));
        }
    }
    return MUSTER_OK;
}
