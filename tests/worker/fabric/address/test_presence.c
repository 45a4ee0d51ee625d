/* When a member that keeps this one waiting is probed, and when the answers end the wait: all rows
 * of seven answers, and random times. */
#include "worker/fabric/address/presence.h"

#include "worker/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ANSWERS = 7, RANDOM_ROWS = 20000, RANDOM_ANSWERS = 60, VERDICTS = 4 };

static const enum muster_probe_verdict verdicts[VERDICTS] = {
    MUSTER_PROBE_THERE, MUSTER_PROBE_GONE, MUSTER_PROBE_CUT_OFF, MUSTER_PROBE_UNKNOWN};
static const int64_t begin_ns = INT64_C(77) * MUSTER_NS_PER_S;

static int64_t seconds(int64_t count)
{
    return count * MUSTER_NS_PER_S;
}

/* One probe as the rules see it. */
struct record {
    enum muster_probe_verdict verdict;
    int64_t began_ns, ended_ns;
};

static bool is_absent(enum muster_probe_verdict verdict)
{
    return verdict == MUSTER_PROBE_GONE || verdict == MUSTER_PROBE_CUT_OFF;
}

/* The rules of the header, from all that has happened. */
static enum muster_probe_verdict expected(const struct record *records, int count)
{
    int gone = 0;
    int absent = 0;
    while (gone < count && records[count - 1 - gone].verdict == MUSTER_PROBE_GONE) {
        gone++;
    }
    while (absent < count && is_absent(records[count - 1 - absent].verdict)) {
        absent++;
    }
    const struct record *last = &records[count - 1];
    if (gone >= 3 && last->began_ns - records[count - gone].began_ns >= seconds(2)) {
        return MUSTER_PROBE_GONE;
    }
    if (absent >= 3 && last->ended_ns - records[count - absent].began_ns >= seconds(30)) {
        return MUSTER_PROBE_CUT_OFF;
    }
    return MUSTER_PROBE_PENDING;
}

/* Plays a row in which each probe begins when it is due, `late` after that, and takes `takes`. */
static int play(const enum muster_probe_verdict *row, int count, int64_t late_ns, int64_t takes_ns,
                enum muster_probe_verdict *ret_end)
{
    struct muster_presence presence;
    struct record records[RANDOM_ANSWERS];
    int64_t pause_ns = seconds(5);
    muster_presence_begin(&presence, MUSTER_PRESENCE_QUIET_MS, begin_ns);
    assert_int_equal(presence.due_ns - begin_ns, seconds(5));
    for (int i = 0; i < count; i++) {
        int64_t began_ns = presence.due_ns + late_ns;
        int64_t now_ns = began_ns + takes_ns;
        records[i] = (struct record){row[i], began_ns, now_ns};
        *ret_end = muster_presence_note(&presence, row[i], began_ns, now_ns);
        assert_int_equal(*ret_end, expected(records, i + 1));
        if (*ret_end != MUSTER_PROBE_PENDING) {
            return i + 1;
        }
        assert_int_equal(presence.due_ns - now_ns, is_absent(row[i]) ? seconds(1) : pause_ns);
        if (!is_absent(row[i])) {
            pause_ns = 2 * pause_ns < seconds(120) ? 2 * pause_ns : seconds(120);
        }
    }
    return count;
}

static void all_rows_of_answers_follow_the_rules(void **state)
{
    (void)state;
    static const int64_t takes[] = {0, 2, 8};
    for (uint32_t number = 0; number < 1u << (2 * ANSWERS); number++) {
        enum muster_probe_verdict row[ANSWERS];
        enum muster_probe_verdict end = MUSTER_PROBE_PENDING;
        for (int i = 0; i < ANSWERS; i++) {
            row[i] = verdicts[number >> (2 * i) & 3];
        }
        for (size_t t = 0; t < sizeof takes / sizeof takes[0]; t++) {
            (void)play(row, ANSWERS, 0, seconds(takes[t]), &end);
        }
    }
}

static void random_rows_follow_the_rules(void **state)
{
    (void)state;
    const char *given = getenv("MUSTER_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)muster_clock_ns();
    (void)printf("seed %llu\n", (unsigned long long)seed);
    for (int n = 0; n < RANDOM_ROWS; n++) {
        enum muster_probe_verdict row[RANDOM_ANSWERS];
        enum muster_probe_verdict end = MUSTER_PROBE_PENDING;
        uint64_t bits = 0;
        for (int i = 0; i < RANDOM_ANSWERS; i++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            bits = seed >> 33;
            /* Mostly absent, or no row would ever end by time. */
            row[i] = bits % 16 == 0 ? verdicts[bits / 16 % 2 * 3] : verdicts[1 + bits / 16 % 2];
        }
        (void)play(row, RANDOM_ANSWERS, (int64_t)(bits % 3) * MUSTER_NS_PER_S,
                   (int64_t)(bits / 3 % 3) * MUSTER_NS_PER_S, &end);
    }
}

static void play_one(enum muster_probe_verdict verdict, int64_t takes_ns, int wanted,
                     enum muster_probe_verdict wanted_end)
{
    enum muster_probe_verdict row[RANDOM_ANSWERS];
    enum muster_probe_verdict end = MUSTER_PROBE_PENDING;
    for (int i = 0; i < RANDOM_ANSWERS; i++) {
        row[i] = verdict;
    }
    assert_int_equal(play(row, RANDOM_ANSWERS, 0, takes_ns, &end), wanted);
    assert_int_equal(end, wanted_end);
}

/* How long a wait lasts in the plain cases: 7 s, 37 s (a probe without an answer takes 2 s), and
 * for ever, with few dials. */
static void the_plain_cases_end_when_the_header_says(void **state)
{
    (void)state;
    struct muster_presence presence;
    play_one(MUSTER_PROBE_GONE, 0, 3, MUSTER_PROBE_GONE);
    play_one(MUSTER_PROBE_CUT_OFF, seconds(2), 11, MUSTER_PROBE_CUT_OFF);
    play_one(MUSTER_PROBE_THERE, 0, RANDOM_ANSWERS, MUSTER_PROBE_PENDING);
    play_one(MUSTER_PROBE_UNKNOWN, 0, RANDOM_ANSWERS, MUSTER_PROBE_PENDING);
    muster_presence_begin(&presence, MUSTER_PRESENCE_QUIET_MS, begin_ns);
    int dials = 0;
    for (; presence.due_ns < begin_ns + seconds(600); dials++) {
        int64_t due_ns = presence.due_ns;
        assert_int_equal(muster_presence_note(&presence, MUSTER_PROBE_THERE, due_ns, due_ns),
                         MUSTER_PROBE_PENDING);
    }
    assert_int_equal(dials, 9);
}

/* Three answers in a burst, as after a pause of this process, end nothing. */
static void a_burst_of_refusals_ends_nothing(void **state)
{
    (void)state;
    struct muster_presence presence;
    muster_presence_begin(&presence, MUSTER_PRESENCE_QUIET_MS, begin_ns);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(muster_presence_note(&presence, MUSTER_PROBE_GONE, begin_ns + i, begin_ns),
                         MUSTER_PROBE_PENDING);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_rows_of_answers_follow_the_rules),
        cmocka_unit_test(random_rows_follow_the_rules),
        cmocka_unit_test(the_plain_cases_end_when_the_header_says),
        cmocka_unit_test(a_burst_of_refusals_ends_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
