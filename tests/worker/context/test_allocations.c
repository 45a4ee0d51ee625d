/* A collective whose operation is cached, and whose size class autotuning has decided, allocates
 * nothing from the heap. */
#include "tests/support/group.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    RANKS = 3,
    WARM = 250, /* more than autotuning of two size classes takes */
    MEASURED = 100,
    COUNT = 5000,
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif

#ifdef HAS_SANITIZER
int main(void)
{
    puts("SKIP: a sanitizer replaces the allocator");
    return 77;
}
#else

static atomic_bool counting;
static atomic_uint allocations;

/* The functions of glibc, by the names that remain when malloc() and the others are replaced. */
void *__libc_malloc(size_t size);                     /* NOLINT(bugprone-reserved-identifier) */
void *__libc_calloc(size_t count, size_t size);       /* NOLINT(bugprone-reserved-identifier) */
void *__libc_realloc(void *pointer, size_t size);     /* NOLINT(bugprone-reserved-identifier) */
void *__libc_memalign(size_t alignment, size_t size); /* NOLINT(bugprone-reserved-identifier) */

static void count_one(void)
{
    if (atomic_load(&counting)) {
        atomic_fetch_add(&allocations, 1);
    }
}

void *malloc(size_t size)
{
    count_one();
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    count_one();
    return __libc_calloc(count, size);
}

void *realloc(void *pointer, size_t size)
{
    count_one();
    return __libc_realloc(pointer, size);
}

int posix_memalign(void **ret_pointer, size_t alignment, size_t size)
{
    count_one();
    *ret_pointer = __libc_memalign(alignment, size);
    return *ret_pointer == NULL;
}

static pthread_barrier_t barrier;

static void reduce(struct group_member *member, int times)
{
    float in[COUNT] = {0};
    float out[COUNT];
    for (int i = 0; i < times; i++) {
        struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                         .in = in,
                                         .out = out,
                                         .count = i % 2 == 0 ? COUNT : 1,
                                         .deadline_ns = group_deadline()};
        if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
        }
    }
}

static void warm_up_and_count(struct group_member *member, void *argument)
{
    static const struct muster_tuned_list nothing;
    (void)argument;
    muster_context_tune(member->contexts[MUSTER_GLOBAL], &nothing);
    reduce(member, WARM);
    pthread_barrier_wait(&barrier);
    if (member->rank == 0) {
        atomic_store(&counting, true);
    }
    pthread_barrier_wait(&barrier);
    reduce(member, MEASURED);
    pthread_barrier_wait(&barrier);
    atomic_store(&counting, false);
}

static unsigned count_allocations(enum group_transport transport)
{
    struct group group;
    group_start_flat(&group, transport, RANKS);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, RANKS), 0);
    atomic_store(&allocations, 0);
    group_each(&group, warm_up_and_count, NULL);
    pthread_barrier_destroy(&barrier);
    group_finish(&group);
    return atomic_load(&allocations);
}

static void a_call_of_malloc_is_counted(void **state)
{
    (void)state;
    atomic_store(&allocations, 0);
    atomic_store(&counting, true);
    void *volatile pointer = malloc(17);
    atomic_store(&counting, false);
    free(pointer);
    assert_int_equal(atomic_load(&allocations), 1);
}

static void cached_allreduces_between_threads_allocate_nothing(void **state)
{
    (void)state;
    assert_int_equal(count_allocations(GROUP_INPROC), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_of_malloc_is_counted),
        cmocka_unit_test(cached_allreduces_between_threads_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
