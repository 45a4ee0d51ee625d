/* Which request repeats another one. */
#include "collectives/call/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { SIZE = sizeof(struct muster_request) };

/* A request with no two fields alike. */
static struct muster_request example(void)
{
    static char buffer[64];
    static const size_t counts[2] = {1, 2};
    return (struct muster_request){.collective = MUSTER_REDUCE,
                                   .in = &buffer[0],
                                   .out = &buffer[8],
                                   .count = 3,
                                   .in_counts = &counts[0],
                                   .out_counts = &counts[1],
                                   .type = MUSTER_INT32,
                                   .op = MUSTER_MAX,
                                   .root = 1,
                                   .user_data = &buffer[16],
                                   .prescale = 0.5,
                                   .postscale = 2.5,
                                   .factors_set = 1,
                                   .buffer_count = 7,
                                   .contributions = 9,
                                   .algorithm = "ring",
                                   .deadline_ns = 5,
                                   .priority = -3};
}

/* Of the bytes of the struct, only those of the deadline, and of no field, may differ. */
static void a_request_repeats_one_that_differs_in_its_deadline_only(void **state)
{
    (void)state;
    struct muster_request before;
    memset(&before, 0, sizeof before);
    const struct muster_request fields = example();
    memcpy(&before, &fields, sizeof before);
    struct muster_request request = before;
    assert_true(muster_request_repeats(&request, &before));
    request.deadline_ns = 6;
    assert_true(muster_request_repeats(&request, &before));
    const char same[] = "ring";
    request.algorithm = same;
    assert_true(muster_request_repeats(&request, &before));
    request.algorithm = "rings";
    assert_false(muster_request_repeats(&request, &before));
    request.algorithm = NULL;
    assert_false(muster_request_repeats(&request, &before));
    assert_false(muster_request_repeats(&before, &request));

    size_t ignored = 0;
    const size_t algorithm = offsetof(struct muster_request, algorithm);
    for (size_t i = 0; i < SIZE; i++) {
        if (i >= algorithm && i < algorithm + sizeof before.algorithm) {
            continue;
        }
        memcpy(&request, &before, SIZE);
        ((unsigned char *)&request)[i] ^= 1;
        ignored += muster_request_repeats(&request, &before);
    }
    /* The deadline, and what fills the struct up to the alignment of its fields. */
    const size_t padding =
        (offsetof(struct muster_request, in) - sizeof before.collective) +
        (offsetof(struct muster_request, user_function) - offsetof(struct muster_request, root) -
         sizeof before.root) +
        (SIZE - offsetof(struct muster_request, counts_alone) - sizeof before.counts_alone);
    assert_int_equal(ignored, sizeof before.deadline_ns + padding);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_repeats_one_that_differs_in_its_deadline_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
