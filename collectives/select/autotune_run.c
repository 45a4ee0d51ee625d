/* An autotune run: which algorithms to try, whose turn it is, and what the measured times decide.
 */
#include "collectives/select/autotune_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/select/select.h"
#include "worker/base/statistics.h"
#include "worker/base/status.h"

enum {
    CALLS = 4,      /* of each candidate in the first round */
    CALLS_LONG = 1, /* the same, where calls take long */
    TURN = 4,       /* calls of one candidate in a row: ranks that share cores need some calls to
                       get used to another algorithm */
    SCRATCH_MAX_BYTES = 4 << 20,
};

/* A further round begins only if the excess over the fastest candidate is likely to stay below this
 * plus the time of one call. */
static const double EXCESS_MAX_US = 100e3;

/* It also begins only if the whole run is likely to end within this: a caller may wait for the
 * decision. */
static const double SPENT_MAX_US = 5e6;

/* A candidate is dropped after a round if it was more than this factor slower than the fastest. The
 * factor is large after few calls, because few calls say little, and the very first ones may differ
 * from those that follow: where two members share a core, an algorithm that takes half as long on
 * two cores may look half as slow again. Where calls take long the factor is smaller, because each
 * further call is expensive. */
static float slowdown_allowed(uint32_t calls_each)
{
    return calls_each == CALLS ? 2 : calls_each <= 2 * CALLS ? 1.5F : 1;
}

/* Another algorithm replaces the predicted one if it is faster by this factor. It covers the noise
 * of few calls, which is a smaller part of long calls. */
static const float preference = 1.05F;
static const float preference_long = 1.01F;
static const float long_us = 100e3F;

/* Of calls shorter than this, a measured time is mostly how late the members came to the call, the
 * more so in the first turn after an exchange. So the predicted algorithm is not dropped before the
 * last round. */
static const float short_us = 5;

/* If the slowest member's time is more than this factor over the fastest member's, the members come
 * to the calls so late that the times measure mostly their lateness. */
static const float lateness = 2;

/* Candidates ---------------------------------------------------------------------------------- */

static muster_status find_scratch(size_t algorithm, const struct muster_plan *plan,
                                  size_t element_size_bytes, uint64_t *ret_bytes)
{
    struct muster_schedule schedule;
    TRY(muster_schedule_generate(algorithm, plan, &schedule));
    bool fits = !__builtin_mul_overflow(schedule.scratch_count, element_size_bytes, ret_bytes);
    muster_schedule_finish(&schedule);
    return fits ? MUSTER_OK : muster_error_set(MUSTER_INVALID, "2^64 bytes of scratch");
}

/* Scratch stays allocated after the run, so an algorithm that needs much of it is not tried. */
static muster_status needs_little_scratch(size_t algorithm, const struct muster_plan *plan,
                                          size_t element_size_bytes, bool *ret_little)
{
    uint64_t bytes = 0;
    if (!muster_algorithm_uses_memory(algorithm)) {
        TRY(find_scratch(algorithm, plan, element_size_bytes, &bytes));
    }
    *ret_little = bytes <= SCRATCH_MAX_BYTES;
    return MUSTER_OK;
}

static double predicted_time_us(const struct muster_prediction *list, uint32_t count,
                                size_t algorithm)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list[i].algorithm == algorithm) {
            return list[i].us;
        }
    }
    return count > 0 ? list[0].us : 0;
}

muster_status muster_autotune_run_init(struct muster_autotune_run *ret_run, size_t predicted,
                                       const struct muster_plan *plan, size_t element_size_bytes,
                                       const struct muster_cost_model *model)
{
    struct muster_plan any = *plan;
    struct muster_prediction list[MUSTER_AUTOTUNE_ALGORITHMS_MAX];
    size_t algorithms[MUSTER_AUTOTUNE_ALGORITHMS_MAX] = {predicted};
    uint32_t listed = 0;
    uint32_t count = 1;
    any.rank = 0;
    any.in_place = false;
    TRY(muster_select_several(&any, element_size_bytes, model, EXCESS_MAX_US / 4, predicted,
                              MUSTER_AUTOTUNE_ALGORITHMS_MAX, list, &listed));
    double predicted_us = predicted_time_us(list, listed, predicted);
    for (uint32_t i = 0; i < listed && count < MUSTER_AUTOTUNE_ALGORITHMS_MAX; i++) {
        bool suits = false;
        if (list[i].algorithm != predicted) {
            TRY(needs_little_scratch(list[i].algorithm, &any, element_size_bytes, &suits));
        }
        if (suits) {
            algorithms[count++] = list[i].algorithm;
        }
    }
    muster_autotune_run_begin(ret_run, algorithms, count, predicted_us);
    return MUSTER_OK;
}

void muster_autotune_run_begin(struct muster_autotune_run *ret_run, const size_t *algorithms,
                               uint32_t count, double predicted_us)
{
    bool takes_long = predicted_us * count * CALLS > EXCESS_MAX_US;
    *ret_run = (struct muster_autotune_run){
        .predicted = algorithms[0], .count = count, .calls_each = takes_long ? CALLS_LONG : CALLS};
    memcpy(ret_run->algorithms, algorithms, count * sizeof *algorithms);
}

/* Calls --------------------------------------------------------------------------------------- */

bool muster_autotune_run_is_round_over(const struct muster_autotune_run *run)
{
    return run->calls_made == run->count * run->calls_each;
}

/* Calls of one candidate in a row. */
static uint32_t turn_of(const struct muster_autotune_run *run)
{
    return run->calls_each < TURN ? run->calls_each : TURN;
}

/* Index among all calls of the round: of a candidate's call, both counted from 0. */
static uint32_t call_index(const struct muster_autotune_run *run, uint32_t candidate, uint32_t call)
{
    uint32_t turn = turn_of(run);
    return (call / turn * run->count + candidate) * turn + call % turn;
}

size_t muster_autotune_run_next(const struct muster_autotune_run *run)
{
    return run->algorithms[run->calls_made / turn_of(run) % run->count];
}

void muster_autotune_run_record(struct muster_autotune_run *run, double measured_us)
{
    run->measured_us[run->calls_made++] = (float)measured_us;
}

/* Decision ------------------------------------------------------------------------------------ */

/* Of each call the time and the negative time: their maxima over the members are the slowest
 * member's time, and the fastest member's. */
uint32_t muster_autotune_run_values(const struct muster_autotune_run *run,
                                    float ret_values[MUSTER_AUTOTUNE_VALUES_MAX])
{
    for (uint32_t i = 0; i < run->calls_made; i++) {
        ret_values[2 * i] = run->measured_us[i];
        ret_values[2 * i + 1] = -run->measured_us[i];
    }
    return 2 * run->calls_made;
}

/* One candidate's calls of this round. The low median leaves out calls that were slow because they
 * came first. */
struct result {
    size_t algorithm;
    float slowest_us; /* median of the slowest member's times */
    float fastest_us; /* median of the fastest member's times */
    float us;         /* the one by which candidates are compared */
};

static struct result summarize(const struct muster_autotune_run *run, const float *exchanged,
                               uint32_t candidate)
{
    double slowest[MUSTER_AUTOTUNE_CALLS_MAX] = {0};
    double fastest[MUSTER_AUTOTUNE_CALLS_MAX] = {0};
    for (uint32_t i = 0; i < run->calls_each; i++) {
        const float *call = exchanged + 2 * (size_t)call_index(run, candidate, i);
        slowest[i] = (double)call[0];
        fastest[i] = (double)-call[1];
    }
    return (struct result){
        .algorithm = run->algorithms[candidate],
        .slowest_us = (float)muster_statistics_median_low(slowest, run->calls_each),
        .fastest_us = (float)muster_statistics_median_low(fastest, run->calls_each)};
}

/* The fastest first. Stable, so that equal ones keep their order on all members. */
static void sort(struct result *standings, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct result moved = standings[i];
        uint32_t to = i;
        for (; to > 0 && standings[to - 1].us > moved.us; to--) {
            standings[to] = standings[to - 1];
        }
        standings[to] = moved;
    }
}

/* Sorts the candidates. A call takes as long as its slowest member. But where members come to calls
 * later than the calls take, the slowest members are those that waited for the last one. Then the
 * time of the last member is the better measure, and that is the shortest time. */
static void rank(const struct muster_autotune_run *run, const float *exchanged,
                 struct result *ret_standings)
{
    bool late = true;
    for (uint32_t i = 0; i < run->count; i++) {
        ret_standings[i] = summarize(run, exchanged, i);
        late = late && ret_standings[i].slowest_us > lateness * ret_standings[i].fastest_us;
    }
    for (uint32_t i = 0; i < run->count; i++) {
        ret_standings[i].us = late ? ret_standings[i].fastest_us : ret_standings[i].slowest_us;
    }
    sort(ret_standings, run->count);
}

/* The fastest candidate, or the predicted one if that is hardly slower. */
static size_t best_of(const struct muster_autotune_run *run, const struct result *standings)
{
    float factor = standings[0].us < long_us ? preference : preference_long;
    for (uint32_t i = 1; i < run->count; i++) {
        if (standings[i].algorithm == run->predicted &&
            standings[i].us <= factor * standings[0].us) {
            return run->predicted;
        }
    }
    return standings[0].algorithm;
}

/* Candidates for the next round: at most half of those that MUSTER_AUTOTUNE_CALLS_MAX has room
 * for. */
static uint32_t count_left(const struct muster_autotune_run *run, const struct result *standings)
{
    uint32_t most = MUSTER_AUTOTUNE_CALLS_MAX / (2 * run->calls_each);
    uint32_t count = 1;
    while (count < run->count && count < most &&
           standings[count].us <= slowdown_allowed(run->calls_each) * standings[0].us) {
        count++;
    }
    return count;
}

/* Of short calls the predicted algorithm, if it is to be dropped, takes the last place among those
 * that are left, or the second one. Returns how many are left. */
static uint32_t keep_predicted(const struct muster_autotune_run *run, struct result *standings,
                               uint32_t left)
{
    if (standings[0].us >= short_us || 2 * run->calls_each * 2 > MUSTER_AUTOTUNE_CALLS_MAX) {
        return left;
    }
    for (uint32_t i = left; i < run->count; i++) {
        if (standings[i].algorithm == run->predicted) {
            left = left == 1 ? 2 : left;
            standings[left - 1] = standings[i];
            return left;
        }
    }
    return left;
}

/* What so many calls of each of the first candidates take beyond as many calls of the fastest. */
static double excess_of(const struct result *standings, uint32_t count, uint32_t calls_each)
{
    double excess_us = 0;
    for (uint32_t i = 0; i < count; i++) {
        excess_us += calls_each * ((double)standings[i].us - (double)standings[0].us);
    }
    return excess_us;
}

/* Adds up what this round cost, predicts what the next one would cost, and decides whether there is
 * one. After a round of one call each there always is: one call cannot tell apart candidates that
 * are nearly as fast. */
bool muster_autotune_run_decide(struct muster_autotune_run *run,
                                const float exchanged[MUSTER_AUTOTUNE_VALUES_MAX],
                                size_t *ret_algorithm)
{
    struct result standings[MUSTER_AUTOTUNE_ALGORITHMS_MAX] = {{.algorithm = 0}};
    rank(run, exchanged, standings);
    double fastest_us = (double)standings[0].us;
    double round_excess_us = excess_of(standings, run->count, run->calls_each);
    uint32_t left = keep_predicted(run, standings, count_left(run, standings));
    uint32_t next_calls = 2 * run->calls_each;
    run->excess_us += round_excess_us;
    run->spent_us += round_excess_us + fastest_us * run->count * run->calls_each;
    double likely_excess_us = run->excess_us + excess_of(standings, left, next_calls);
    double likely_spent_us = run->spent_us + fastest_us * left * next_calls;
    bool affordable =
        likely_excess_us <= EXCESS_MAX_US + fastest_us && likely_spent_us <= SPENT_MAX_US;
    if (left == 1 || !(run->calls_each == 1 || affordable)) {
        *ret_algorithm = best_of(run, standings);
        return true;
    }
    for (uint32_t i = 0; i < left; i++) {
        run->algorithms[i] = standings[i].algorithm;
    }
    run->count = left;
    run->calls_each = next_calls;
    run->calls_made = 0;
    return false;
}
