/*
 * Which samples a member uses in a step. Pure.
 *
 * The order of an epoch is a permutation that needs no table: a Feistel network (Luby and Rackoff
 * 1988) permutes the numbers below the next power of four, and numbers outside the data set are
 * permuted again until one is inside ("cycle walking", Black and Rogaway 2002). That takes fewer
 * than four rounds of the network on average.
 */
#include "worker/base/status.h"
#include "worker/muster.h"

#include <inttypes.h>

enum { ROUNDS = 8 };
#define SAMPLES_MAX (UINT64_C(1) << 62)

muster_status muster_sampler_init(muster_sampler *sampler, uint64_t samples, int shuffled,
                                  uint64_t seed)
{
    if (samples == 0 || samples > SAMPLES_MAX) {
        return muster_error_set(MUSTER_INVALID,
                                "sampler: %" PRIu64 " samples: a data set has 1 to 2^62", samples);
    }
    *sampler =
        (muster_sampler){.samples = samples, .seed = seed, .shuffled = shuffled != 0 ? 1 : 0};
    return MUSTER_OK;
}

/* Of the next step, by all members. */
static uint64_t step_samples(const muster_sampler *sampler, uint64_t batch)
{
    uint64_t left = sampler->samples - sampler->position;
    return batch < left ? batch : left;
}

/* Where the part of the rank begins; it ends where the next one begins. The first parts have one
 * sample more. */
static uint64_t part_begin(uint64_t total, uint64_t rank, uint64_t size)
{
    uint64_t longer = total % size;
    return total / size * rank + (rank < longer ? rank : longer);
}

muster_status muster_sampler_part(const muster_sampler *sampler, uint64_t batch, uint32_t rank,
                                  uint32_t size, uint64_t *ret_first, uint64_t *ret_count)
{
    if (sampler->samples == 0 || sampler->samples > SAMPLES_MAX ||
        sampler->position >= sampler->samples) {
        return muster_error_set(MUSTER_INVALID,
                                "sampler: position %" PRIu64 " of %" PRIu64
                                " samples: not one of muster_sampler_init()",
                                sampler->position, sampler->samples);
    }
    if (batch == 0 || rank >= size) {
        return muster_error_set(
            MUSTER_INVALID, "sampler: a batch of %" PRIu64 ", rank %" PRIu32 " of size %" PRIu32,
            batch, rank, size);
    }
    uint64_t total = step_samples(sampler, batch);
    uint64_t begin = part_begin(total, rank, size);
    *ret_first = sampler->position + begin;
    *ret_count = part_begin(total, (uint64_t)rank + 1, size) - begin;
    return MUSTER_OK;
}

void muster_sampler_advance(muster_sampler *sampler, uint64_t batch)
{
    sampler->position += step_samples(sampler, batch);
    if (sampler->position >= sampler->samples) {
        sampler->epoch++;
        sampler->position = 0;
    }
}

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014): each bit of the input changes half of the
 * output's. */
static uint64_t mix(uint64_t bits)
{
    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return bits ^ bits >> 31;
}

/* Half of the bits of the least power of four that is not below the number. */
static unsigned half_bits(uint64_t samples)
{
    unsigned half = 1;
    while (half < 31 && UINT64_C(1) << 2 * half < samples) {
        half++;
    }
    return half;
}

static uint64_t permute(const muster_sampler *sampler, unsigned half, uint64_t number)
{
    uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = number >> half;
    uint64_t right = number & mask;
    uint64_t key = mix(sampler->seed + mix(sampler->epoch + 1));
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        uint64_t next = left ^ (mix(right ^ (key + round * UINT64_C(0x9e3779b97f4a7c15))) & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

uint64_t muster_sampler_index(const muster_sampler *sampler, uint64_t position)
{
    if (sampler->shuffled == 0 || position >= sampler->samples) {
        return position;
    }
    unsigned half = half_bits(sampler->samples);
    uint64_t number = position;
    do {
        number = permute(sampler, half, number);
    } while (number >= sampler->samples);
    return number;
}
