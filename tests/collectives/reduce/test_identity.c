/* The identity of each type and operation: reduced with any element, on either side, it gives that
 * element. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/reduce/reduce.h"
#include "tests/support/schedules.h"
#include "worker/base/status.h"

enum { ELEMENTS = 1000, ELEMENT_MAX = 8 };

static bool is_logical(muster_op op)
{
    return op == MUSTER_LOGICAL_AND || op == MUSTER_LOGICAL_OR;
}

/* Elements of random bits: zeros of both signs, infinities and numbers, but no NaN. */
static void fill(muster_type type, uint64_t *random, unsigned char *elements)
{
    size_t size = muster_type_size_bytes(type);
    for (size_t i = 0; i < ELEMENTS; i++) {
        unsigned char *element = elements + i * size;
        do {
            uint64_t bits = test_random(random);
            memcpy(element, &bits, size);
        } while (muster_type_load(element, 0, type) != muster_type_load(element, 0, type));
        element[0] = type == MUSTER_BOOL ? element[0] % 2 : element[0];
    }
    memset(elements, 0, size); /* +0 */
    muster_type_store(elements, 1, type, -0.0);
    muster_type_store(elements, 2, type, 1);
}

static void check(muster_type type, muster_op op, uint64_t *random)
{
    static unsigned char elements[ELEMENTS * ELEMENT_MAX];
    static unsigned char identity[ELEMENTS * ELEMENT_MAX];
    static unsigned char result[ELEMENTS * ELEMENT_MAX];
    const struct muster_reduction reduction = {
        .type = type, .op = op, .prescale = 1, .postscale = 1};
    size_t bytes = ELEMENTS * muster_type_size_bytes(type);
    fill(type, random, elements);
    muster_reduction_fill_identity(type, op, false, identity, ELEMENTS);
    for (int side = 0; side < 2; side++) {
        muster_reduction_combine(&reduction, result, side == 0 ? identity : elements,
                                 side == 0 ? elements : identity, ELEMENTS);
        for (size_t i = 0; i < ELEMENTS && is_logical(op); i++) {
            bool truth = muster_type_load(elements, i, type) != 0;
            assert_true(muster_type_load(result, i, type) == (truth ? 1 : 0));
        }
        if (!is_logical(op) && memcmp(result, elements, bytes) != 0) {
            fail_msg("%s of %s", muster_op_name(op), muster_type_name(type));
        }
    }
}

static void an_identity_changes_no_element(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    int checked = 0;
    for (muster_type type = 0; type <= MUSTER_BOOL; type++) {
        for (muster_op op = 0; op < MUSTER_USER; op++) {
            if (muster_op_check(type, op) == MUSTER_OK) {
                check(type, op, &random);
                checked++;
            }
        }
    }
    assert_true(checked > 80);
}

/* An infinity would spoil the elements that share its scale where calls are compressed. */
static void a_finite_identity_is_the_largest_magnitude(void **state)
{
    (void)state;
    float least = 0;
    float most = 0;
    muster_reduction_fill_identity(MUSTER_FLOAT32, MUSTER_MIN, true, &most, 1);
    muster_reduction_fill_identity(MUSTER_FLOAT32, MUSTER_MAX, true, &least, 1);
    assert_true(most == 0x1.fffffep127F && least == -0x1.fffffep127F);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_identity_changes_no_element),
        cmocka_unit_test(a_finite_identity_is_the_largest_magnitude),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
