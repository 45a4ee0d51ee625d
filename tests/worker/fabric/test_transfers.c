/* Lists of transfers: the order by priority, against a plain model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/schedules.h"
#include "worker/fabric/transfers.h"

enum { TRANSFERS = 40, ROUNDS = 2000, PRIORITIES = 4 };

/* The list is in the order of priorities, and of insertion where they are equal. key.sequence is
 * the number of the insertion. */
static void check_order(const struct muster_transfer_list *list, uint32_t count)
{
    const struct muster_transfer *previous = NULL;
    uint32_t found = 0;
    for (const struct muster_transfer *each = list->first; each != NULL; each = each->next) {
        assert_ptr_equal(each->previous, previous);
        if (previous != NULL) {
            assert_true(previous->priority > each->priority ||
                        (previous->priority == each->priority &&
                         previous->key.sequence < each->key.sequence));
        }
        previous = each;
        found++;
    }
    assert_ptr_equal(list->last, previous);
    assert_int_equal(found, count);
    assert_int_equal(list->count, count);
}

static void test_a_higher_priority_goes_first_and_equal_ones_stay_in_order(void **state)
{
    (void)state;
    uint64_t random = test_seed() | UINT64_C(1) << 63;
    struct muster_transfer transfers[TRANSFERS];
    struct muster_transfer_list list = {0};
    bool present[TRANSFERS] = {false};
    uint32_t count = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint32_t i = test_random_below(&random, TRANSFERS);
        if (present[i]) {
            muster_transfer_list_remove(&list, &transfers[i]);
        } else {
            transfers[i] = (struct muster_transfer){
                .key.sequence = round,
                .priority = (int32_t)test_random_below(&random, PRIORITIES) - 1};
            muster_transfer_list_insert(&list, &transfers[i]);
        }
        count += present[i] ? UINT32_MAX : 1;
        present[i] = !present[i];
        check_order(&list, count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_higher_priority_goes_first_and_equal_ones_stay_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
