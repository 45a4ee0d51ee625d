/* Reads a text and cuts it into training samples. */
#include "worker/examples/charlm/data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#define HELD_OUT_ONE_IN 20

uint64_t charlm_mix(uint64_t number)
{
    number += 0x9e3779b97f4a7c15U;
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9U;
    number = (number ^ (number >> 27)) * 0x94d049bb133111ebU;
    return number ^ (number >> 31);
}

float charlm_uniform(uint64_t *sequence)
{
    *sequence = charlm_mix(*sequence);
    return (float)(*sequence >> 40) * 0x1p-24F;
}

uint64_t charlm_digest(const void *bytes, size_t size_bytes)
{
    uint64_t crc = crc32_z(0, bytes, size_bytes);
    return crc << 32 | adler32_z(1, bytes, size_bytes);
}

static bool read_file(const char *path, char **ret_text, size_t *ret_size)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        fprintf(stderr, "charlm: %s: %s%s\n", path, strerror(errno),
                strcmp(path, CHARLM_DATA_DEFAULT) == 0
                    ? " (Debian's package wamerican has it; any text file will do: --data FILE)"
                    : "");
        return false;
    }
    struct stat info;
    char *text = NULL;
    const char *why = NULL;
    size_t size = 0;
    if (fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode)) {
        why = "not a regular file";
    } else if (info.st_size == 0 || (uint64_t)info.st_size > CHARLM_DATA_MAX_BYTES) {
        why = info.st_size == 0 ? "is empty" : "is larger than 1 GiB";
    } else if ((text = malloc((size_t)info.st_size)) == NULL) {
        why = "no memory to read it";
    } else if ((size = fread(text, 1, (size_t)info.st_size, file)) == 0 || ferror(file)) {
        why = "cannot be read";
    }
    (void)fclose(file);
    if (why != NULL) {
        fprintf(stderr, "charlm: %s: %s\n", path, why);
        free(text);
        return false;
    }
    *ret_text = text;
    *ret_size = size;
    return true;
}

/* Numbers the bytes that occur in the order of their value, after the newline. */
static void number_characters(struct charlm_data *data, const char *text, size_t size,
                              uint8_t token_of[256])
{
    bool occurs[256] = {false};
    for (size_t i = 0; i < size; i++) {
        occurs[(uint8_t)text[i]] = true;
    }
    occurs['\n'] = false;
    data->characters[0] = '\n';
    data->vocabulary = 1;
    token_of['\n'] = 0;
    for (size_t byte = 0; byte < 256; byte++) {
        if (occurs[byte]) {
            token_of[byte] = (uint8_t)data->vocabulary;
            data->characters[data->vocabulary++] = (uint8_t)byte;
        }
    }
}

static void add_line(struct charlm_lines *lines, const char *text, size_t size,
                     const uint8_t token_of[256])
{
    for (size_t i = 0; i < size; i++) {
        lines->tokens[lines->count++] = token_of[(uint8_t)text[i]];
    }
    lines->tokens[lines->count++] = 0;
    lines->lines++;
}

bool charlm_data_parse(struct charlm_data *data, const char *text, size_t size_bytes)
{
    struct charlm_data parsed = {.fingerprint = charlm_digest(text, size_bytes)};
    uint8_t token_of[256] = {0};
    number_characters(&parsed, text, size_bytes, token_of);
    /* One more byte, as the last line may lack its newline. */
    parsed.training.tokens = malloc(size_bytes + 1);
    parsed.held_out.tokens = malloc(size_bytes + 1);
    if (parsed.training.tokens == NULL || parsed.held_out.tokens == NULL) {
        charlm_data_finish(&parsed);
        fprintf(stderr, "charlm: no memory for %zu bytes of text\n", size_bytes);
        return false;
    }
    for (size_t start = 0; start < size_bytes;) {
        const char *end = memchr(text + start, '\n', size_bytes - start);
        size_t size = (end != NULL ? (size_t)(end - text) : size_bytes) - start;
        if (size > 0) {
            bool held_out = crc32_z(0, (const Bytef *)text + start, size) % HELD_OUT_ONE_IN == 0;
            add_line(held_out ? &parsed.held_out : &parsed.training, text + start, size, token_of);
        }
        start += size + 1;
    }
    if (parsed.training.lines == 0 || parsed.held_out.lines == 0) {
        charlm_data_finish(&parsed);
        fprintf(stderr, "charlm: too few lines: one in %d is held out, and none is left for %s\n",
                HELD_OUT_ONE_IN, parsed.training.lines == 0 ? "training" : "that");
        return false;
    }
    *data = parsed;
    return true;
}

bool charlm_data_load(struct charlm_data *data, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    if (!read_file(path, &text, &size)) {
        return false;
    }
    bool parsed = charlm_data_parse(data, text, size);
    free(text);
    return parsed;
}

void charlm_data_finish(struct charlm_data *data)
{
    free(data->training.tokens);
    free(data->held_out.tokens);
    data->training.tokens = NULL;
    data->held_out.tokens = NULL;
}

void charlm_data_sample(const struct charlm_lines *lines, size_t position, size_t width,
                        uint8_t *ret_context, uint8_t *ret_target)
{
    size_t known = 0;
    while (known < width && known < position && lines->tokens[position - known - 1] != 0) {
        known++;
    }
    memset(ret_context, 0, width - known);
    memcpy(ret_context + width - known, lines->tokens + position - known, known);
    *ret_target = lines->tokens[position];
}

size_t charlm_data_position(const struct charlm_lines *lines, uint64_t seed, uint64_t step,
                            uint64_t index)
{
    uint64_t number = charlm_mix(charlm_mix(charlm_mix(seed) ^ step) ^ index);
    return number % lines->count;
}

bool charlm_data_contains(const struct charlm_lines *lines, const uint8_t *tokens, size_t count)
{
    for (size_t start = 0; start < lines->count;) {
        const uint8_t *end = memchr(lines->tokens + start, 0, lines->count - start);
        size_t size = (size_t)(end - lines->tokens) - start;
        if (size == count && memcmp(lines->tokens + start, tokens, size) == 0) {
            return true;
        }
        start += size + 1;
    }
    return false;
}
