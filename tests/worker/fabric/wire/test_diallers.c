/* When a member dials again for the missing paths of an open link. */
#include "worker/base/clock.h"
#include "worker/fabric/wire/dialler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { DIALS = 40, NS_PER_MS = 1000000 };

/* The next dial is due after_ms after a time between before_ns and now. */
static void expect_due(const struct muster_dialler *dialler, int64_t before_ns, uint32_t after_ms)
{
    int64_t due_ns = dialler->redial_ns - (int64_t)after_ms * NS_PER_MS;
    assert_in_range(due_ns, before_ns, muster_clock_ns());
}

static void dials_for_missing_paths_become_rare_and_never_end(void **state)
{
    (void)state;
    struct muster_dialler dialler = {.redial_ns = MUSTER_NEVER};
    for (uint32_t i = 0; i < DIALS; i++) {
        int64_t before_ns = muster_clock_ns();
        muster_dialler_retry_path(&dialler);
        expect_due(&dialler, before_ns, 100U << (i < 13 ? i : 13));
        int64_t due_ns = dialler.redial_ns;
        muster_dialler_retry_path(&dialler); /* one dial serves all missing paths */
        assert_int_equal(dialler.redial_ns, due_ns);
        dialler.redial_ns = MUSTER_NEVER; /* it has dialled */
    }
}

static void a_lost_path_is_dialled_soon(void **state)
{
    (void)state;
    struct muster_dialler dialler = {.redial_ns = MUSTER_NEVER, .failed_path_dials = 13};
    muster_dialler_retry_path(&dialler);
    int64_t before_ns = muster_clock_ns();
    muster_dialler_path_lost(&dialler);
    expect_due(&dialler, before_ns, 100);
    before_ns = muster_clock_ns();
    dialler.redial_ns = MUSTER_NEVER;
    muster_dialler_retry_path(&dialler);
    expect_due(&dialler, before_ns, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dials_for_missing_paths_become_rare_and_never_end),
        cmocka_unit_test(a_lost_path_is_dialled_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
