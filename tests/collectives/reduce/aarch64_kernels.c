/*
 * The kernels for 64-bit ARM against the plain ones and against plain loops. Built by
 * test_aarch64.sh with a cross compiler and run under an emulator, so without cmocka.
 */
#include <stdio.h>
#include <string.h>

#include "collectives/reduce/tables.h"
#include "tests/support/elements.h"
#include "tests/support/schedules.h"

enum { MOST = 167, STARTS = 8, ROUNDS = 40 };

static uint64_t left[MOST + STARTS], right[MOST + STARTS];
static uint64_t got[2][MOST + STARTS], wanted[MOST + STARTS];

/* xorshift, as in tests/support, which is not linked here. */
uint64_t test_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static bool is_right(muster_type type, muster_op op, size_t start, size_t count, uint64_t *random)
{
    size_t size = muster_type_size_bytes(type);
    elements_fill(type, left, MOST + STARTS, random);
    elements_fill(type, right, MOST + STARTS, random);
    const char *a = (const char *)left + start * size;
    const char *b = (const char *)right + (start + 3) % STARTS * size;
    memset(got, 0x5a, sizeof got);
    muster_kernels_neon.reduce[type][op](got[0], a, b, count);
    muster_kernels_plain.reduce[type][op](got[1], b, a, count); /* either order */
    elements_reduce(type, op, wanted, a, b, count);
    return memcmp(got[0], got[1], sizeof got[0]) == 0 && memcmp(got[0], wanted, count * size) == 0;
}

static bool conversions_are_right(size_t count, uint64_t *random)
{
    static float floats[MOST];
    elements_fill(MUSTER_FLOAT32, floats, MOST, random);
    memset(got, 0x5a, sizeof got);
    muster_kernels_neon.narrow_float16((uint16_t *)got[0], floats, count);
    muster_kernels_plain.narrow_float16((uint16_t *)got[1], floats, count);
    bool right_bits = memcmp(got[0], got[1], sizeof got[0]) == 0;
    muster_kernels_neon.narrow_bfloat16((uint16_t *)got[0], floats, count);
    muster_kernels_plain.narrow_bfloat16((uint16_t *)got[1], floats, count);
    return right_bits && memcmp(got[0], got[1], sizeof got[0]) == 0;
}

/* Packs of int8, of numbers of up to 16 different magnitudes. */
static bool packs_are_right(uint64_t *random)
{
    static float floats[2 * 240], decoded[2][2 * 240];
    static unsigned char packs[2][2 * 244];
    for (size_t i = 0; i < 2 * 240; i++) {
        int64_t drawn = (int64_t)test_random(random);
        floats[i] = (float)(drawn >> (test_random(random) % 16));
    }
    muster_kernels_neon.pack_int8(packs[0], floats, 2);
    muster_kernels_plain.pack_int8(packs[1], floats, 2);
    muster_kernels_neon.unpack_int8(decoded[0], packs[0], 2);
    muster_kernels_plain.unpack_int8(decoded[1], packs[1], 2);
    return memcmp(packs[0], packs[1], sizeof packs[0]) == 0 &&
           memcmp(decoded[0], decoded[1], sizeof decoded[0]) == 0;
}

int main(void)
{
    uint64_t random = UINT64_C(88172645463325252);
    unsigned wrong = 0;
    for (int type = 0; type < MUSTER_TYPE_COUNT; type++) {
        for (int op = 0; op < MUSTER_OP_COUNT; op++) {
            if (muster_kernels_neon.reduce[type][op] == NULL) {
                continue;
            }
            for (size_t count = 0; count <= MOST; count++) {
                size_t start = test_random(&random) % STARTS;
                if (!is_right((muster_type)type, (muster_op)op, start, count, &random)) {
                    printf("%s of %s: wrong with %zu elements from %zu\n",
                           muster_op_name((muster_op)op), muster_type_name((muster_type)type),
                           count, start);
                    wrong++;
                }
            }
        }
    }
    for (size_t round = 0; round < ROUNDS; round++) {
        wrong += !conversions_are_right(round, &random);
        wrong += !packs_are_right(&random);
    }
    printf("%u wrong\n", wrong);
    return wrong > 0;
}
