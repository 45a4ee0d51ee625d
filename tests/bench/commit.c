/*
 * What a commit costs the caller, beside a bare memcpy of the same bytes: a commit in one part, and
 * one in two parts with and without computing in between. One process, no job: the copy alone.
 *
 * usage: commit [MIB [ROUNDS]]   prints medians in milliseconds
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/clock.h"
#include "worker/base/statistics.h"
#include "worker/session/state.h"

enum { MIB = 1024, ROUNDS = 9, ROUNDS_MAX = 99, WAYS = 5 };

static const char *const names[WAYS] = {
    "bare memcpy",
    "commit",
    "commit begin",
    "commit end, at once",
    "commit end, after computing for the time of two copies",
};

static double ms_since(int64_t begin_ns)
{
    return (double)(muster_clock_ns() - begin_ns) / 1e6;
}

/* Keeps this core busy, without memory. */
static void compute(double ms)
{
    int64_t begin_ns = muster_clock_ns();
    while (ms_since(begin_ns) < ms) {
    }
}

static muster_status measure(struct muster_state *state, unsigned char *data, unsigned char *other,
                             double times[WAYS])
{
    int64_t begin_ns = muster_clock_ns();
    memcpy(other, data, state->total_bytes);
    times[0] = ms_since(begin_ns);
    begin_ns = muster_clock_ns();
    muster_state_copy_commit(state, 1, 1);
    times[1] = ms_since(begin_ns);
    begin_ns = muster_clock_ns();
    TRY(muster_state_begin_commit(state));
    times[2] = ms_since(begin_ns);
    begin_ns = muster_clock_ns();
    muster_state_end_commit(state, 2, 1);
    times[3] = ms_since(begin_ns);
    TRY(muster_state_begin_commit(state));
    compute(2 * times[0]);
    begin_ns = muster_clock_ns();
    muster_state_end_commit(state, 3, 1);
    times[4] = ms_since(begin_ns);
    data[0]++;
    return MUSTER_OK;
}

int main(int argc, char **argv)
{
    size_t size_bytes = (size_t)(argc > 1 ? strtoul(argv[1], NULL, 10) : MIB) << 20;
    unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : ROUNDS;
    rounds = rounds == 0 || rounds > ROUNDS_MAX ? ROUNDS : rounds;
    unsigned char *data = malloc(size_bytes);
    unsigned char *other = malloc(size_bytes);
    static double times[ROUNDS_MAX + 1][WAYS];
    struct muster_state state = {0};
    muster_state_init(&state);
    if (data == NULL || other == NULL) {
        return 1;
    }
    memset(data, 1, size_bytes);
    memset(other, 1, size_bytes);
    muster_status status = muster_state_register(&state, "state", data, size_bytes);
    status = status == MUSTER_OK ? muster_state_reserve(&state) : status;
    for (unsigned long i = 0; i <= rounds && status == MUSTER_OK; i++) { /* the first warms up */
        status = measure(&state, data, other, times[i]);
    }
    for (int way = 0; way < WAYS && status == MUSTER_OK; way++) {
        double sorted[ROUNDS_MAX];
        for (unsigned long i = 0; i < rounds; i++) {
            sorted[i] = times[i + 1][way];
        }
        printf("%-56s %8.2f ms\n", names[way], muster_statistics_median_low(sorted, rounds));
    }
    muster_state_finish(&state);
    free(data);
    free(other);
    return status == MUSTER_OK ? 0 : 1;
}
