/* The heap of deadlines against a list that is searched from end to end, in random order. The seed
 * is printed; MUSTER_SEED repeats it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "rendezvous/service/held_requests.h"
#include "worker/base/random.h"

enum { REQUESTS = 300, STEPS = 20000, TIMES = 50 };

static struct muster_held_request requests[REQUESTS];
static bool held[REQUESTS];
static unsigned short random_state[3];

static uint32_t below(uint32_t bound)
{
    return (uint32_t)((unsigned long)nrand48(random_state) % bound);
}

/* INT64_MAX: nothing is held. */
static int64_t earliest(void)
{
    int64_t at_ns = INT64_MAX;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        at_ns = held[i] && requests[i].deadline_ns < at_ns ? requests[i].deadline_ns : at_ns;
    }
    return at_ns;
}

static void the_first_is_always_the_one_that_ends_first(void **state)
{
    (void)state;
    const char *given = getenv("MUSTER_SEED");
    unsigned long seed = given != NULL ? strtoul(given, NULL, 10) : muster_random_below(UINT32_MAX);
    print_message("MUSTER_SEED=%lu\n", seed);
    random_state[0] = (unsigned short)seed;
    random_state[1] = (unsigned short)(seed >> 16);
    struct muster_deadlines deadlines = {0};
    size_t count = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t i = below(REQUESTS);
        if (held[i]) {
            muster_deadlines_remove(&deadlines, &requests[i]);
        } else {
            requests[i].deadline_ns = below(TIMES);
            assert_int_equal(muster_deadlines_add(&deadlines, &requests[i]), MUSTER_OK);
        }
        held[i] = !held[i];
        count = held[i] ? count + 1 : count - 1;
        const struct muster_held_request *first = muster_deadlines_first(&deadlines);
        assert_int_equal(deadlines.count, count);
        assert_int_equal(first != NULL ? first->deadline_ns : INT64_MAX, earliest());
        assert_true(first == NULL || held[first - requests]);
    }
    muster_deadlines_finish(&deadlines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_is_always_the_one_that_ends_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
