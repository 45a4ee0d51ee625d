/*
 * Kernels for packs of int8 (collectives/call/compression.h), included by kernels.h.
 *
 * Each step is rounded once, and the compiler contracts nothing, so that every instruction set
 * makes the same bytes. Adding 1.5 x 2^23 to a number below 2^22 leaves it, rounded to nearest
 * even, in the lowest bits.
 */
enum { PACK_ELEMENTS = 240, PACK_BYTES = 244 };

static void int8_pack(void *target, const float *source, size_t packs)
{
    const float magic = 0x1.8p23F;
    for (size_t pack = 0; pack < packs; pack++, source += PACK_ELEMENTS) {
        char *out = (char *)target + pack * PACK_BYTES;
        int8_t *values = (int8_t *)(out + sizeof(float));
        uint32_t largest = 0;
        for (size_t i = 0; i < PACK_ELEMENTS; i++) {
            uint32_t magnitude = muster_float_bits(source[i]) & 0x7fffffffU;
            largest = magnitude > largest ? magnitude : largest;
        }
        float most = muster_float_from_bits(largest);
        bool special = largest >= 0x7f800000U;
        bool tiny = most < 0x1p-110F;
        float scale = special ? NAN : tiny ? 0 : most / 127;
        float factor = special || tiny ? 0 : 127 / most;
        memcpy(out, &scale, sizeof scale);
        if (special) {
            memset(values, 0, PACK_ELEMENTS);
            continue;
        }
        INDEPENDENT
        for (size_t i = 0; i < PACK_ELEMENTS; i++) {
            float scaled = source[i] * factor;
            values[i] = (int8_t)(int32_t)(muster_float_bits(scaled + magic) - 0x4b400000U);
        }
    }
}

static void int8_unpack(float *target, const void *source, size_t packs)
{
    for (size_t pack = 0; pack < packs; pack++, target += PACK_ELEMENTS) {
        const char *in = (const char *)source + pack * PACK_BYTES;
        const int8_t *values = (const int8_t *)(in + sizeof(float));
        float scale;
        memcpy(&scale, in, sizeof scale);
        INDEPENDENT
        for (size_t i = 0; i < PACK_ELEMENTS; i++) {
            target[i] = (float)values[i] * scale;
        }
    }
}
