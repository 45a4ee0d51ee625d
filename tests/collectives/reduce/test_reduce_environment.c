/* Reductions have the same bits whatever floating-point environment the caller has, and restore
 * that environment. */
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include <cmocka.h>

#include "collectives/reduce/reduce.h"
#include "tests/support/elements.h"
#include "tests/support/schedules.h"

enum { COUNT = 1500, BUFFERS = 3, ELEMENT_MAX_BYTES = 8 };

struct results {
    unsigned char combined[COUNT * ELEMENT_MAX_BYTES];
    unsigned char gathered[COUNT * ELEMENT_MAX_BYTES];
};

static unsigned char inputs[BUFFERS][COUNT * ELEMENT_MAX_BYTES];

static void reduce(muster_type type, muster_op op, struct results *ret_results)
{
    const struct muster_reduction reduction = {
        .type = type, .op = op, .prescale = 1.0 / 3, .postscale = 1e-3};
    const void *pointers[BUFFERS] = {inputs[0], inputs[1], inputs[2]};
    memset(ret_results, 0, sizeof *ret_results);
    muster_reduction_combine(&reduction, ret_results->combined, inputs[0], inputs[1], COUNT);
    muster_reduction_gather(&reduction, ret_results->gathered, pointers, BUFFERS, COUNT);
    muster_reduction_finish(&reduction, ret_results->gathered, COUNT, BUFFERS);
}

/* Sets one of four unusual environments. */
static void make_unusual(unsigned number)
{
    static const int roundings[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    assert_int_equal(fesetround(roundings[number % 4]), 0);
#ifdef __x86_64__
    enum { FLUSH_RESULTS = 0x8000, DENORMALS_ARE_ZERO = 0x0040, TRAP_INVALID = 0x0080 };
    unsigned control = _mm_getcsr() | FLUSH_RESULTS | DENORMALS_ARE_ZERO;
    _mm_setcsr(control & ~(number % 2 == 0 ? (unsigned)TRAP_INVALID : 0U));
#endif
}

static unsigned control_word(void)
{
#ifdef __x86_64__
    return _mm_getcsr() & ~0x3fU; /* without the flags */
#else
    return (unsigned)fegetround();
#endif
}

static void check(muster_type type, muster_op op, unsigned number)
{
    static struct results usual;
    static struct results unusual;
    fenv_t before;
    reduce(type, op, &usual);
    assert_int_equal(fegetenv(&before), 0);
    make_unusual(number);
    unsigned control = control_word();
    reduce(type, op, &unusual);
    unsigned control_after = control_word();
    assert_int_equal(fesetenv(&before), 0);
    assert_int_equal(control_after, control);
    assert_memory_equal(&unusual, &usual, sizeof usual);
}

static void bits_do_not_depend_on_the_callers_environment(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (unsigned type = 0; type < MUSTER_TYPE_COUNT; type++) {
        for (unsigned op = 0; op <= MUSTER_MAX; op++) {
            if (muster_op_check((muster_type)type, (muster_op)op) != MUSTER_OK ||
                type == MUSTER_BOOL) {
                continue;
            }
            for (unsigned number = 0; number < 4; number++) {
                for (size_t i = 0; i < BUFFERS; i++) {
                    elements_fill((muster_type)type, inputs[i], COUNT, &random);
                }
                check((muster_type)type, (muster_op)op, number);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_the_callers_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
