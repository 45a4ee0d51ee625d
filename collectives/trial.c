#include "collectives/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/select.h"
#include "worker/base/status.h"

enum {
    TURN = 4,      /* calls of the first round */
    TURN_DEAR = 2, /* where they take long */
    SCRATCH_MAX_BYTES = 4 << 20,
};

/* A round begins only if it is likely to end before a trial has taken so long. */
static const double BUDGET_US = 100e3;

/* So much slower than the fastest an algorithm must have been to be left out after a round, by
 * rounds: few calls say less than many. */
static const float left_out[MUSTER_TRIAL_ROUNDS_MAX] = {1.5F, 1.2F, 1};

/* By so much another one must be faster than the predicted one to take its place. */
static const float preference = 1.05F;

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

muster_status muster_trial_init(struct muster_trial *ret_trial, size_t predicted,
                                const struct muster_plan *plan, size_t element_size_bytes,
                                const struct muster_cost_model *model)
{
    struct muster_plan any = *plan;
    struct muster_priced list[MUSTER_TRIAL_ALGORITHMS_MAX];
    size_t algorithms[MUSTER_TRIAL_ALGORITHMS_MAX] = {predicted};
    uint32_t listed = 0;
    uint32_t count = 1;
    any.rank = 0;
    any.in_place = false;
    TRY(muster_select_several(&any, element_size_bytes, model, BUDGET_US / 4, predicted,
                              MUSTER_TRIAL_ALGORITHMS_MAX, list, &listed));
    double predicted_us = price_of(list, listed, predicted);
    for (uint32_t i = 0; i < listed && count < MUSTER_TRIAL_ALGORITHMS_MAX; i++) {
        bool lean = false;
        if (list[i].algorithm != predicted) {
            TRY(is_lean(list[i].algorithm, &any, element_size_bytes, &lean));
        }
        if (lean) {
            algorithms[count++] = list[i].algorithm;
        }
    }
    muster_trial_begin(ret_trial, algorithms, count, predicted_us);
    return MUSTER_OK;
}

void muster_trial_begin(struct muster_trial *ret_trial, const size_t *algorithms, uint32_t count,
                        double predicted_us)
{
    bool dear = predicted_us * count * TURN > BUDGET_US;
    *ret_trial = (struct muster_trial){
        .predicted = algorithms[0], .count = count, .turn = dear ? TURN_DEAR : TURN};
    memcpy(ret_trial->algorithms, algorithms, count * sizeof *algorithms);
}

/* Calls --------------------------------------------------------------------------------------- */

bool muster_trial_is_due(const struct muster_trial *trial)
{
    return trial->made == trial->count * trial->turn;
}

size_t muster_trial_next(const struct muster_trial *trial)
{
    return trial->algorithms[trial->made / trial->turn];
}

void muster_trial_note(struct muster_trial *trial, double taken_us)
{
    trial->taken_us[trial->made++] = (float)taken_us;
}

/* Agreement ----------------------------------------------------------------------------------- */

uint32_t muster_trial_say(const struct muster_trial *trial, float ret_said[MUSTER_TRIAL_WORDS_MAX])
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
    float sorted[MUSTER_TRIAL_CALLS_MAX];
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

static struct standing stand(const struct muster_trial *trial, const float *heard, uint32_t index)
{
    float slowest[MUSTER_TRIAL_CALLS_MAX] = {0};
    float fastest[MUSTER_TRIAL_CALLS_MAX] = {0};
    const float *calls = heard + 2 * (size_t)index * trial->turn;
    for (uint32_t i = 0; i < trial->turn; i++) {
        slowest[i] = calls[2 * i];
        fastest[i] = -calls[2 * i + 1];
    }
    return (struct standing){.algorithm = trial->algorithms[index],
                             .slowest_us = median_of(slowest, trial->turn),
                             .fastest_us = median_of(fastest, trial->turn)};
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
static void rank(const struct muster_trial *trial, const float *heard, struct standing *standings)
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
static size_t verdict_of(const struct muster_trial *trial, const struct standing *standings)
{
    for (uint32_t i = 1; i < trial->count; i++) {
        if (standings[i].algorithm == trial->predicted &&
            standings[i].us <= preference * standings[0].us) {
            return trial->predicted;
        }
    }
    return standings[0].algorithm;
}

static uint32_t count_left(const struct muster_trial *trial, const struct standing *standings)
{
    uint32_t most = MUSTER_TRIAL_ALGORITHMS_MAX >> (trial->round + 1);
    uint32_t count = 1;
    while (count < trial->count && count < most &&
           standings[count].us <= left_out[trial->round] * standings[0].us) {
        count++;
    }
    return count;
}

bool muster_trial_judge(struct muster_trial *trial, const float heard[MUSTER_TRIAL_WORDS_MAX],
                        size_t *ret_algorithm)
{
    struct standing standings[MUSTER_TRIAL_ALGORITHMS_MAX] = {{.algorithm = 0}};
    rank(trial, heard, standings);
    for (uint32_t i = 0; i < trial->made; i++) {
        trial->spent_us += (double)heard[2 * i];
    }
    uint32_t left = count_left(trial, standings);
    double next_us = 2.0 * trial->turn * left * (double)standings[0].slowest_us;
    if (left == 1 || trial->round + 1 == MUSTER_TRIAL_ROUNDS_MAX ||
        !(trial->spent_us + next_us <= BUDGET_US)) {
        *ret_algorithm = verdict_of(trial, standings);
        return true;
    }
    for (uint32_t i = 0; i < left; i++) {
        trial->algorithms[i] = standings[i].algorithm;
    }
    trial->count = left;
    trial->turn *= 2;
    trial->round++;
    trial->made = 0;
    return false;
}
