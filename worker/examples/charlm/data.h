/*
 * Text as training samples. A sample is one character and the characters before it in its line; the
 * start of a line is padded with newlines, and the newline that ends a line is predicted too.
 *
 * One line in twenty is held out. The choice depends on the bytes of the line only, so a line that
 * occurs twice is not trained on and held out at once.
 */
#ifndef CHARLM_DATA_H
#define CHARLM_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHARLM_DATA_MAX_BYTES ((size_t)1 << 30)
#define CHARLM_DATA_DEFAULT "/usr/share/dict/american-english"

/* Tokens are indices into the vocabulary; token 0 is the newline. Every line ends with one. */
struct charlm_lines {
    uint8_t *tokens;
    size_t count;
    size_t lines;
};

struct charlm_data {
    struct charlm_lines training;
    struct charlm_lines held_out;
    uint8_t characters[256]; /* token -> byte */
    size_t vocabulary;
    uint64_t fingerprint; /* a digest of the bytes read, to detect members with other data */
};

/* Reads a file. On failure prints one line that names the file and returns false. */
bool charlm_data_load(struct charlm_data *data, const char *path);

/* The same from memory, for tests. */
bool charlm_data_parse(struct charlm_data *data, const char *text, size_t size_bytes);

void charlm_data_finish(struct charlm_data *data);

/* Writes the sample at the position: the `width` tokens before it, oldest first, and the token
 * itself.
 */
void charlm_data_sample(const struct charlm_lines *lines, size_t position, size_t width,
                        uint8_t *ret_context, uint8_t *ret_target);

/* The position of sample `index` of step `step`. It depends on the three numbers only, so any
 * number of members, each with its share of the indices, use the same samples together. */
size_t charlm_data_position(const struct charlm_lines *lines, uint64_t seed, uint64_t step,
                            uint64_t index);

/* True if the tokens are a whole line of the text. */
bool charlm_data_contains(const struct charlm_lines *lines, const uint8_t *tokens, size_t count);

/* A well mixed number out of any number (Steele, Lea, Flood 2014, SplitMix64's finaliser). */
uint64_t charlm_mix(uint64_t number);

/* The next number of a sequence, in [0, 1). */
float charlm_uniform(uint64_t *sequence);

/* CRC-32 and Adler-32 side by side: two different sums over the same bytes. */
uint64_t charlm_digest(const void *bytes, size_t size_bytes);

#endif
