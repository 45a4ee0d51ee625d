/* The clock and the random numbers of the simulation, under the names of worker/base: the linker
 * takes these in place of the kernel's. */
#include "tests/simulation/sim.h"

#include "worker/base/clock.h"
#include "worker/base/random.h"

#include <limits.h>
#include <stdio.h>

static int64_t clock_ns;
static uint64_t random_state;

void sim_clock_set(int64_t now_ns)
{
    clock_ns = now_ns;
}

void sim_clock_advance(int64_t by_ns)
{
    clock_ns += by_ns;
}

int64_t muster_clock_ns(void)
{
    return clock_ns;
}

int64_t muster_clock_ms(void)
{
    return clock_ns / MUSTER_NS_PER_MS;
}

int64_t muster_clock_after_ms(uint32_t timeout_ms)
{
    return clock_ns + (int64_t)timeout_ms * MUSTER_NS_PER_MS;
}

int64_t muster_clock_soon_after_ms(uint32_t timeout_ms)
{
    return muster_clock_after_ms(timeout_ms);
}

int muster_clock_left_ms(int64_t deadline_ns)
{
    int64_t left_ms = deadline_ns == MUSTER_NEVER
                          ? INT_MAX
                          : (deadline_ns - clock_ns + MUSTER_NS_PER_MS - 1) / MUSTER_NS_PER_MS;
    return left_ms <= 0 ? 0 : left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

void sim_random_seed(uint64_t seed)
{
    random_state = seed;
}

/* splitmix64 */
uint64_t sim_random(void)
{
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int64_t sim_between(int64_t least, int64_t most)
{
    return most <= least ? least : least + (int64_t)(sim_random() % (uint64_t)(most - least + 1));
}

bool sim_chance(uint32_t per_mille)
{
    return sim_random() % 1000 < per_mille;
}

void muster_random_bytes(void *ret_bytes, size_t size_bytes)
{
    unsigned char *bytes = ret_bytes;
    for (size_t i = 0; i < size_bytes; i++) {
        bytes[i] = (unsigned char)sim_random();
    }
}

uint32_t muster_random_below(uint32_t bound)
{
    return bound > 0 ? (uint32_t)(sim_random() % bound) : 0;
}

void muster_random_hex(size_t size_bytes, char *ret_hex)
{
    for (size_t i = 0; i < 2 * size_bytes; i++) {
        ret_hex[i] = "0123456789abcdef"[sim_random() % 16];
    }
    ret_hex[2 * size_bytes] = '\0';
}

void muster_random_uuid(char ret_uuid[MUSTER_UUID_SIZE])
{
    (void)snprintf(ret_uuid, MUSTER_UUID_SIZE, "%08x-%04x-4%03x-8%03x-%012llx",
                   (unsigned)(sim_random() >> 32), (unsigned)(sim_random() & 0xffff),
                   (unsigned)(sim_random() & 0xfff), (unsigned)(sim_random() & 0xfff),
                   (unsigned long long)(sim_random() >> 16));
}
