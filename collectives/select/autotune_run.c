#include "collectives/select/autotune_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/select/select.h"
#include "worker/base/status.h"

enum {
    CALLS = 4,      /* of each in the first round */
    CALLS_DEAR = 1, /* where they take long */
    TURN = 4,       /* calls that one has in a row: ranks that share cores settle to each anew */
    SCRATCH_MAX_BYTES = 4 << 20,
};

/* A round begins only if it is likely to end before so much was lost with slow algorithms, beside
 * the time of one call. */
static const double BUDGET_US = 100e3;

/* And before all of it takes so long: somebody may wait for the verdict. */
static const double SPENT_MAX_US = 5e6;

/* So much slower than the fastest an algorithm must have been to be left out after a round. Few
 * calls say less than many, and the first calls of all may not be like those that follow: two
 * members that share a core make an algorithm that takes half as long on two look half as slow
 * again. Where calls take long, tries are dearer than that. */
static float left_out(uint32_t calls)
{
    return calls == CALLS ? 2 : calls <= 2 * CALLS ? 1.5F : 1;
}

/* By so much another one must be faster than the predicted one to take its place: the noise of few
 * calls, which is a smaller part of calls that take long. */
static const float preference = 1.05F;
static const float preference_long = 1.01F;
static const float long_us = 100e3F;

/* Members that come so many times later than the call takes make it the time of their coming. */
static const float lateness = 2;

/* What to try -----------------------------------------------------------------------------------
 */

/* Memory that this takes for good is no price for a try. */
static muster_status find_scratch(size_t algorithm, const struct muster_plan *plan,
                                  size_t element_size_bytes, uint64_t *ret_bytes)
{
    struct muster_schedule schedule;
    TRY(muster_schedule_generate(algorithm, plan, &schedule));
    bool fits = !__builtin_mul_overflow(schedule.scratch_count, element_size_bytes, ret_bytes);
    muster_schedule_finish(&schedule);
    return fits ? MUSTER_OK : muster_error_set(MUSTER_INVALID, "2^64 bytes of scratch");
}

static muster_status is_lean(size_t algorithm, const struct muster_plan *plan,
                             size_t element_size_bytes, bool *ret_lean)
{
    uint64_t bytes = 0;
    if (!muster_algorithm_uses_memory(algorithm)) {
        TRY(find_scratch(algorithm, plan, element_size_bytes, &bytes));
    }
    *ret_lean = bytes <= SCRATCH_MAX_BYTES;
    return MUSTER_OK;
}

static double price_of(const struct muster_priced *list, uint32_t count, size_t algorithm)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list[i].algorithm == algorithm) {
            return list[i].us;
        }
    }
    return count > 0 ? list[0].us : 0;
}

muster_status muster_autotune_run_init(struct muster_autotune_run *ret_trial, size_t predicted,
                                       const struct muster_plan *plan, size_t element_size_bytes,
                                       const struct muster_cost_model *model)
{
    struct muster_plan any = *plan;
    struct muster_priced list[MUSTER_AUTOTUNE_ALGORITHMS_MAX];
    size_t algorithms[MUSTER_AUTOTUNE_ALGORITHMS_MAX] = {predicted};
    uint32_t listed = 0;
    uint32_t count = 1;
    any.rank = 0;
    any.in_place = false;
    TRY(muster_select_several(&any, element_size_bytes, model, BUDGET_US / 4, predicted,
                              MUSTER_AUTOTUNE_ALGORITHMS_MAX, list, &listed));
    double predicted_us = price_of(list, listed, predicted);
    for (uint32_t i = 0; i < listed && count < MUSTER_AUTOTUNE_ALGORITHMS_MAX; i++) {
        bool lean = false;
        if (list[i].algorithm != predicted) {
            TRY(is_lean(list[i].algorithm, &any, element_size_bytes, &lean));
        }
        if (lean) {
            algorithms[count++] = list[i].algorithm;
        }
    }
    muster_autotune_run_begin(ret_trial, algorithms, count, predicted_us);
    return MUSTER_OK;
}

void muster_autotune_run_begin(struct muster_autotune_run *ret_trial, const size_t *algorithms,
                               uint32_t count, double predicted_us)
{
    bool dear = predicted_us * count * CALLS > BUDGET_US;
    *ret_trial = (struct muster_autotune_run){
        .predicted = algorithms[0], .count = count, .calls = dear ? CALLS_DEAR : CALLS};
    memcpy(ret_trial->algorithms, algorithms, count * sizeof *algorithms);
}

/* Calls --------------------------------------------------------------------------------------- */

bool muster_autotune_run_is_due(const struct muster_autotune_run *trial)
{
    return trial->made == trial->count * trial->calls;
}

static uint32_t turn_of(const struct muster_autotune_run *trial)
{
    return trial->calls < TURN ? trial->calls : TURN;
}

/* The place of an algorithm's call among all of the round. */
static uint32_t place_of(const struct muster_autotune_run *trial, uint32_t index, uint32_t call)
{
    uint32_t turn = turn_of(trial);
    return (call / turn * trial->count + index) * turn + call % turn;
}

size_t muster_autotune_run_next(const struct muster_autotune_run *trial)
{
    return trial->algorithms[trial->made / turn_of(trial) % trial->count];
}

void muster_autotune_run_note(struct muster_autotune_run *trial, double taken_us)
{
    trial->taken_us[trial->made++] = (float)taken_us;
}

/* Agreement ----------------------------------------------------------------------------------- */

uint32_t muster_autotune_run_say(const struct muster_autotune_run *trial,
                                 float ret_said[MUSTER_AUTOTUNE_WORDS_MAX])
{
    for (uint32_t i = 0; i < trial->made; i++) {
        ret_said[2 * i] = trial->taken_us[i];
        ret_said[2 * i + 1] = -trial->taken_us[i];
    }
    return 2 * trial->made;
}

static int compare_floats(const void *left_float, const void *right_float)
{
    float left = *(const float *)left_float;
    float right = *(const float *)right_float;
    return left < right ? -1 : left > right;
}

/* The lower median: what was slow because it came first is not it. */
static float median_of(const float *values, uint32_t count)
{
    float sorted[MUSTER_AUTOTUNE_CALLS_MAX];
    memcpy(sorted, values, count * sizeof *values);
    qsort(sorted, count, sizeof *sorted, compare_floats);
    return sorted[(count - 1) / 2];
}

/* Of one algorithm's calls in this round. */
struct standing {
    size_t algorithm;
    float slowest_us; /* member's time */
    float fastest_us;
    float us; /* that counts */
};

static struct standing stand(const struct muster_autotune_run *trial, const float *heard,
                             uint32_t index)
{
    float slowest[MUSTER_AUTOTUNE_CALLS_MAX] = {0};
    float fastest[MUSTER_AUTOTUNE_CALLS_MAX] = {0};
    for (uint32_t i = 0; i < trial->calls; i++) {
        const float *call = heard + 2 * (size_t)place_of(trial, index, i);
        slowest[i] = call[0];
        fastest[i] = -call[1];
    }
    return (struct standing){.algorithm = trial->algorithms[index],
                             .slowest_us = median_of(slowest, trial->calls),
                             .fastest_us = median_of(fastest, trial->calls)};
}

/* Those that are fast first; of equal ones, those that were first before. */
static void sort(struct standing *standings, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct standing moved = standings[i];
        uint32_t to = i;
        for (; to > 0 && standings[to - 1].us > moved.us; to--) {
            standings[to] = standings[to - 1];
        }
        standings[to] = moved;
    }
}

/* A call takes as long as it takes its slowest member. But where members come late to calls, by
 * more than those take, the slowest are those that wait for them: then what the last one to come
 * needs says more, and that is the fastest member's. */
static void rank(const struct muster_autotune_run *trial, const float *heard,
                 struct standing *standings)
{
    bool late = true;
    for (uint32_t i = 0; i < trial->count; i++) {
        standings[i] = stand(trial, heard, i);
        late = late && standings[i].slowest_us > lateness * standings[i].fastest_us;
    }
    for (uint32_t i = 0; i < trial->count; i++) {
        standings[i].us = late ? standings[i].fastest_us : standings[i].slowest_us;
    }
    sort(standings, trial->count);
}

/* The fastest, or the predicted one if it is hardly slower. */
static size_t verdict_of(const struct muster_autotune_run *trial, const struct standing *standings)
{
    float least = standings[0].us < long_us ? preference : preference_long;
    for (uint32_t i = 1; i < trial->count; i++) {
        if (standings[i].algorithm == trial->predicted &&
            standings[i].us <= least * standings[0].us) {
            return trial->predicted;
        }
    }
    return standings[0].algorithm;
}

/* Half of those that there is room for in the next round, at most. */
static uint32_t count_left(const struct muster_autotune_run *trial,
                           const struct standing *standings)
{
    uint32_t most = MUSTER_AUTOTUNE_CALLS_MAX / (2 * trial->calls);
    uint32_t count = 1;
    while (count < trial->count && count < most &&
           standings[count].us <= left_out(trial->calls) * standings[0].us) {
        count++;
    }
    return count;
}

/* By so many calls of each of the first ones, instead of the fastest. */
static double lost_with(const struct standing *standings, uint32_t count, uint32_t calls)
{
    double lost_us = 0;
    for (uint32_t i = 0; i < count; i++) {
        lost_us += calls * ((double)standings[i].us - (double)standings[0].us);
    }
    return lost_us;
}

bool muster_autotune_run_judge(struct muster_autotune_run *trial,
                               const float heard[MUSTER_AUTOTUNE_WORDS_MAX], size_t *ret_algorithm)
{
    struct standing standings[MUSTER_AUTOTUNE_ALGORITHMS_MAX] = {{.algorithm = 0}};
    rank(trial, heard, standings);
    trial->lost_us += lost_with(standings, trial->count, trial->calls);
    uint32_t left = count_left(trial, standings);
    double likely_us = trial->lost_us + lost_with(standings, left, 2 * trial->calls);
    trial->spent_us += lost_with(standings, trial->count, trial->calls) +
                       (double)standings[0].us * trial->count * trial->calls;
    double spent_us = trial->spent_us + (double)standings[0].us * left * 2 * trial->calls;
    bool once = trial->calls == 1; /* that is too little to tell those apart that are as good */
    if (left == 1 ||
        !(once || (likely_us <= BUDGET_US + (double)standings[0].us && spent_us <= SPENT_MAX_US))) {
        *ret_algorithm = verdict_of(trial, standings);
        return true;
    }
    for (uint32_t i = 0; i < left; i++) {
        trial->algorithms[i] = standings[i].algorithm;
    }
    trial->count = left;
    trial->calls *= 2;
    trial->made = 0;
    return false;
}
