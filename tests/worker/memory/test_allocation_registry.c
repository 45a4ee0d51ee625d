/* muster_alloc(): memory that peers can map is allocated, found and freed. */
#include "worker/memory/allocation_registry.h"
#include "worker/memory/shared_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static void test_memory_is_zeroed_and_found_by_any_part_of_it(void **state)
{
    (void)state;
    struct muster_allocation found;
    void *memory = NULL;
    int other = 0;
    assert_int_equal(muster_alloc(5000, &memory), MUSTER_OK);
    char *bytes = memory;
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(bytes[i], 0);
    }
    assert_int_equal((uintptr_t)memory % 4096, 0);
    assert_true(muster_allocation_find(bytes + 4999, 1, &found));
    assert_ptr_equal(found.base, bytes);
    assert_int_equal(found.size_bytes, 8192);
    assert_true(muster_allocation_find(bytes, 8192, &found));
    assert_false(muster_allocation_find(bytes, 8193, &found));
    assert_false(muster_allocation_find(bytes - 1, 1, &found));
    assert_false(muster_allocation_find(&other, sizeof other, &found));
    muster_free(memory);
    assert_false(muster_allocation_find(bytes, 1, &found));
    assert_false(muster_allocation_is_live(found.id));
}

static void test_another_mapping_of_its_descriptor_shows_what_is_written(void **state)
{
    (void)state;
    struct muster_allocation found;
    void *memory = NULL;
    void *mapped = NULL;
    assert_int_equal(muster_alloc(3 << 20, &memory), MUSTER_OK);
    assert_true(muster_allocation_find(memory, 3 << 20, &found));
    assert_int_equal(muster_shared_memory_check(found.fd, found.size_bytes), MUSTER_OK);
    assert_int_equal(muster_shared_memory_map(found.fd, found.size_bytes, &mapped), MUSTER_OK);
    memset(memory, 42, 3 << 20);
    uint64_t freed = muster_allocation_freed_count();
    muster_free(memory); /* the other mapping stays valid */
    assert_true(muster_allocation_freed_count() > freed);
    assert_int_equal(((char *)mapped)[(3 << 20) - 1], 42);
    munmap(mapped, found.size_bytes);
}

static void test_strange_sizes_and_pointers_do_no_harm(void **state)
{
    (void)state;
    void *memory = NULL;
    int other = 0;
    assert_int_equal(muster_alloc(0, &memory), MUSTER_OK);
    assert_non_null(memory);
    muster_free(memory);
    memory = &other;
    assert_int_equal(muster_alloc(SIZE_MAX, &memory), MUSTER_INVALID);
    assert_ptr_equal(memory, &other);
    muster_free(NULL);
    muster_free(&other);
}

static void test_a_limit_of_the_size_of_files_is_named(void **state)
{
    (void)state;
    struct rlimit before;
    void *memory = NULL;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {.rlim_cur = 65536, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    muster_status status = muster_alloc(1 << 20, &memory);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, MUSTER_FATAL);
    assert_non_null(strstr(muster_last_error(), "ulimit -f"));
    assert_null(memory);
}

static void test_allocations_are_bounded(void **state)
{
    (void)state;
    void *allocations[MUSTER_ALLOCATIONS_MAX + 1];
    size_t count = 0;
    while (count <= MUSTER_ALLOCATIONS_MAX && muster_alloc(1, &allocations[count]) == MUSTER_OK) {
        count++;
    }
    assert_in_range(count, 1, MUSTER_ALLOCATIONS_MAX); /* or as many as there are descriptors */
    while (count > 0) {
        muster_free(allocations[--count]);
    }
    assert_int_equal(muster_alloc(1, &allocations[0]), MUSTER_OK);
    muster_free(allocations[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_zeroed_and_found_by_any_part_of_it),
        cmocka_unit_test(test_another_mapping_of_its_descriptor_shows_what_is_written),
        cmocka_unit_test(test_strange_sizes_and_pointers_do_no_harm),
        cmocka_unit_test(test_a_limit_of_the_size_of_files_is_named),
        cmocka_unit_test(test_allocations_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
