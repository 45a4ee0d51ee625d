/* Base64, both alphabets. */
#include "elastic/messages/base64.h"

#include <stdint.h>

/* The digits, then the padding. */
static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
enum { PADDING = 64 };

void muster_base64_encode(const void *bytes, size_t size_bytes, char *ret_text)
{
    const uint8_t *in = bytes;
    char *out = ret_text;
    for (size_t i = 0; i < size_bytes; i += 3) {
        size_t left = size_bytes - i;
        uint32_t group = (uint32_t)in[i] << 16;
        group |= left > 1 ? (uint32_t)in[i + 1] << 8 : 0;
        group |= left > 2 ? (uint32_t)in[i + 2] : 0;
        *out++ = alphabet[group >> 18];
        *out++ = alphabet[group >> 12 & 63];
        *out++ = alphabet[left > 1 ? group >> 6 & 63 : PADDING];
        *out++ = alphabet[left > 2 ? group & 63 : PADDING];
    }
    *out = '\0';
}

/* The value of a digit of either alphabet; -1: of none. */
static int digit(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    if (c == '+' || c == '-') {
        return 62;
    }
    return c == '/' || c == '_' ? 63 : -1;
}

static size_t without_padding(const char *text, size_t length)
{
    if (length % 4 != 0 || length == 0) {
        return length;
    }
    length -= text[length - 1] == '=';
    length -= text[length - 1] == '=';
    return length;
}

/* Collects six bits a character, and writes a byte whenever there are eight. */
muster_status muster_base64_decode(const char *text, size_t length, void *ret_bytes,
                                   size_t *ret_size_bytes)
{
    uint8_t *out = ret_bytes;
    size_t size_bytes = 0;
    uint32_t group = 0;
    unsigned bits = 0;
    length = without_padding(text, length);
    for (size_t i = 0; i < length; i++) {
        int value = digit(text[i]);
        if (value < 0) {
            return muster_error_set(MUSTER_INVALID, "not base64 at character %zu", i);
        }
        group = group << 6 | (uint32_t)value;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out[size_bytes++] = (uint8_t)(group >> bits);
        }
    }
    if (length % 4 == 1) {
        return muster_error_set(MUSTER_INVALID, "not base64: it ends in the middle of a byte");
    }
    *ret_size_bytes = size_bytes;
    return MUSTER_OK;
}
