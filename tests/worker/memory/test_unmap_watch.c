/* The watch over unmapped memory, on this kernel: each way in which memory goes away, threads that
 * race, fork, exit. */
#include "worker/memory/unmap_watch.h"

#include "worker/muster.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC false
#else
#define OWN_MALLOC true
#endif

enum { ROUNDS = 2000, THREADS = 4 };

static const struct muster_unmap_watch_ops *const watch_ops = &muster_unmap_watch_ops;
static uint64_t position;
static size_t page;

static char *map_at(void *address, size_t size, int flags)
{
    char *memory = mmap(address, size, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 1, size);
    return memory;
}

static char *map(size_t size)
{
    return map_at(NULL, size, MAP_PRIVATE);
}

/* Whether all of it is gone since the position. While other threads unmap, collect() reports "not
 * now". */
static bool is_gone_since(uint64_t *since, const char *begin, size_t size)
{
    static _Thread_local struct muster_range_set all;
    struct muster_unmap_report report = {.more = true};
    all.count = 0;
    while (report.more) {
        while (!watch_ops->collect(since, &report)) {
            sched_yield();
        }
        if (report.everything) {
            assert_true(muster_range_set_add(&all, (struct muster_address_range){0, UINTPTR_MAX}));
        }
        for (size_t i = 0; i < report.count; i++) {
            assert_true(muster_range_set_add(&all, report.gone[i]));
        }
    }
    return muster_range_set_contains(
        &all, (struct muster_address_range){(uintptr_t)begin, (uintptr_t)begin + size});
}

static bool is_gone(const char *begin, size_t size)
{
    return is_gone_since(&position, begin, size);
}

static int begin(void **state)
{
    (void)state;
    page = (size_t)sysconf(_SC_PAGESIZE);
    position = watch_ops->hold();
    return 0;
}

static int end(void **state)
{
    (void)state;
    watch_ops->release();
    return 0;
}

/* Ways to go ---------------------------------------------------------------------------------- */

static void test_unmapped_and_mapped_again_at_the_same_address(void **state)
{
    (void)state;
    char *memory = map(8 * page);
    assert_true(watch_ops->watch(memory, 8 * page));
    assert_true(watch_ops->watch(memory + page, 2 * page)); /* again */
    assert_false(is_gone(memory, 1));
    munmap(memory, 8 * page);
    assert_true(map_at(memory, 8 * page, MAP_PRIVATE | MAP_FIXED_NOREPLACE) == memory);
    assert_true(is_gone(memory, 8 * page));
    assert_false(is_gone(memory, 1));                /* reported once */
    assert_true(watch_ops->watch(memory, 8 * page)); /* this is new memory */
    map_at(memory, 8 * page, MAP_PRIVATE | MAP_FIXED);
    assert_true(is_gone(memory, 8 * page));
    munmap(memory, 8 * page);
    assert_false(is_gone(memory, 1)); /* it was not watched */
}

static void test_a_part_is_unmapped(void **state)
{
    (void)state;
    char *memory = map(8 * page);
    assert_true(watch_ops->watch(memory, 8 * page));
    munmap(memory + 2 * page, 3 * page);
    assert_true(is_gone(memory + 2 * page, 3 * page));
    assert_false(watch_ops->watch(memory, 8 * page)); /* there is a hole */
    munmap(memory + page, page);
    assert_true(is_gone(memory + page, page));
    munmap(memory, 8 * page);
    assert_true(is_gone(memory + 5 * page, 3 * page));
}

static void test_pages_are_given_back_but_not_their_addresses(void **state)
{
    (void)state;
    char *memory = map(8 * page);
    assert_true(watch_ops->watch(memory, 8 * page));
    for (int round = 0; round < 2; round++) { /* it is still watched */
        memset(memory, 1, 8 * page);
        assert_int_equal(madvise(memory + page, page, MADV_DONTNEED), 0);
        assert_true(is_gone(memory + page, page));
        assert_int_equal(memory[page], 0);
    }
    assert_int_equal(madvise(memory + 4 * page, page, MADV_FREE), 0);
    assert_true(is_gone(memory + 4 * page, page));
    munmap(memory, 8 * page);
}

static void test_memory_that_moves_and_shrinks(void **state)
{
    (void)state;
    char *memory = map(8 * page);
    char *target = map(8 * page);
    assert_true(watch_ops->watch(memory, 8 * page));
    assert_true(watch_ops->watch(target, page));
    assert_ptr_equal(mremap(memory, 8 * page, 6 * page, 0), memory);
    assert_true(is_gone(memory + 6 * page, 2 * page));
    assert_ptr_equal(mremap(memory, 6 * page, 6 * page, MREMAP_MAYMOVE | MREMAP_FIXED, target),
                     target);
    uint64_t before = position;
    assert_true(is_gone(memory, 6 * page));
    assert_true(is_gone_since(&before, target, page)); /* what was there before */
    assert_true(watch_ops->watch(target, 6 * page));
    munmap(target, 8 * page);
    assert_true(is_gone(target, 6 * page));
}

static void test_the_heap_shrinks(void **state)
{
    (void)state;
    if (!OWN_MALLOC) {
        print_message("SKIP: the sanitizer's malloc() keeps what is freed\n");
        skip();
    }
    char *top = sbrk((intptr_t)(16 * page));
    assert_true(top != (void *)-1);
    char *first = (char *)(((uintptr_t)top + page - 1) & -page);
    memset(first, 1, 8 * page);
    assert_true(watch_ops->watch(first, 8 * page));
    assert_true(sbrk(-(intptr_t)(16 * page)) != (void *)-1);
    assert_true(is_gone(first, 8 * page));

    size_t large = (size_t)64 << 20; /* beyond any threshold: mapped by itself */
    char *memory = malloc(large);
    assert_non_null(memory);
    memset(memory, 1, large);
    char *inside = (char *)(((uintptr_t)memory + page) & -page);
    assert_true(watch_ops->watch(inside, large / 2));
    free(memory);
    assert_true(is_gone(inside, large / 2));
}

/* What is not watched ------------------------------------------------------------------------- */

static void test_pages_that_others_can_take_away_are_not_watched(void **state)
{
    (void)state;
    int fd = memfd_create("pages", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)(2 * page)) == 0);
    for (int flags = MAP_SHARED; flags <= MAP_PRIVATE; flags++) {
        volatile char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, flags, fd, 0);
        assert_true(memory != MAP_FAILED);
        (void)(memory[0] + memory[page]); /* a read makes the pages present */
        assert_false(watch_ops->watch((char *)memory, 2 * page));
        munmap((char *)memory, 2 * page);
    }
    close(fd);
    char *shared = map_at(NULL, page, MAP_SHARED);
    assert_false(watch_ops->watch(shared, page));
    munmap(shared, page);
    char *untouched = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_false(watch_ops->watch(untouched, page));
    munmap(untouched, page);
    assert_false(watch_ops->watch(untouched, page)); /* unmapped memory */
    FILE *program = fopen("/proc/self/exe", "re");
    assert_non_null(program);
    volatile char *file = mmap(NULL, page, PROT_READ, MAP_PRIVATE, fileno(program), 0);
    (void)fclose(program);
    assert_true(file != MAP_FAILED && file[0] != 0);
    assert_false(watch_ops->watch((char *)file, page));
    munmap((char *)file, page);
    char *half = map_at(NULL, 2 * page, MAP_PRIVATE);
    assert_ptr_equal(map_at(half + page, page, MAP_SHARED | MAP_FIXED), half + page);
    assert_false(watch_ops->watch(half, 2 * page)); /* only its first page could be watched */
    munmap(half, 2 * page);
}

static void test_a_user_that_is_late_is_told_that_everything_is_gone(void **state)
{
    (void)state;
    struct muster_unmap_report report;
    uint64_t late = position;
    char *memory = map(page);
    assert_true(watch_ops->watch(memory, page));
    for (int i = 0; i <= MUSTER_UNMAP_LOG_MAX; i++) {
        assert_int_equal(madvise(memory, page, MADV_DONTNEED), 0);
    }
    assert_true(watch_ops->collect(&late, &report));
    assert_true(report.everything && !report.more);
    assert_true(watch_ops->collect(&late, &report));
    assert_true(!report.everything && report.count == 0);
    munmap(memory, page);
    assert_true(is_gone(memory, page));
}

static void test_the_watch_ends_with_its_last_user(void **state)
{
    (void)state;
    char *memory = map(page);
    uint64_t second = watch_ops->hold();
    assert_true(watch_ops->watch(memory, page));
    watch_ops->release(); /* the watch still has one user */
    munmap(memory, page);
    assert_true(is_gone_since(&second, memory, page));
    memory = map(page);
    assert_true(watch_ops->watch(memory, page));
    watch_ops->release(); /* the watch ends */
    munmap(memory, page); /* must not block */
    assert_false(watch_ops->watch(map(page), page));
    uint64_t next = watch_ops->hold();
    assert_true(is_gone(memory, page));
    assert_false(is_gone_since(&next, memory, page));
    memory = map(page);
    assert_true(watch_ops->watch(memory, page));
    munmap(memory, page);
    assert_true(is_gone_since(&next, memory, page));
}

/* Threads ------------------------------------------------------------------------------------- */

static atomic_bool over;
static _Atomic(char *) offered; /* about to be unmapped */

static void *take_freed_addresses(void *unused)
{
    while (!atomic_load(&over)) {
        char *memory = atomic_load(&offered);
        if (memory == NULL ||
            mmap(memory, page, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != memory) {
            continue;
        }
        /* The munmap() of it may not have returned yet. */
        struct muster_unmap_report report;
        uint64_t since = position;
        bool reported = false;
        for (report.more = true; report.more && watch_ops->collect(&since, &report);) {
            reported = reported || report.everything;
            for (size_t i = 0; i < report.count; i++) {
                reported = reported || report.gone[i].begin == (uintptr_t)memory;
            }
        }
        assert_true(reported || report.more);
        atomic_store(&offered, NULL);
    }
    return unused;
}

/* Another thread gets the same addresses as soon as they are free, before munmap() has returned.
 * They are far below the addresses that the kernel chooses, so no other code (a sanitizer) gets
 * them. */
static void test_no_thread_gets_addresses_before_it_can_be_reported(void **state)
{
    (void)state;
    char *const far_below = (char *)((uintptr_t)1 << 30);
    pthread_t taker;
    struct muster_unmap_report report;
    assert_int_equal(pthread_create(&taker, NULL, take_freed_addresses, NULL), 0);
    for (int i = 0; i < ROUNDS; i++) {
        char *memory = map_at(far_below, page, MAP_PRIVATE | MAP_FIXED_NOREPLACE);
        assert_ptr_equal(memory, far_below);
        while (!watch_ops->watch(memory, page)) {
        }
        while (!watch_ops->collect(&position, &report) || report.more) {
        }
        atomic_store(&offered, memory);
        munmap(memory, page);
        while (atomic_load(&offered) != NULL) {
            sched_yield();
        }
        munmap(memory, page);
    }
    atomic_store(&over, true);
    pthread_join(taker, NULL);
    atomic_store(&over, false);
}

/* Watched memory is reported when it is unmapped, while other threads unmap, too. */
static void *allocate_and_free(void *number)
{
    unsigned random = *(unsigned *)number;
    struct {
        char *memory;
        bool watched;
        uint64_t since;
    } buffers[4] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        unsigned at = (unsigned)rand_r(&random) % 4;
        if (buffers[at].memory != NULL) {
            munmap(buffers[at].memory, page);
            bool gone = is_gone_since(&buffers[at].since, buffers[at].memory, page);
            assert_true(gone || !buffers[at].watched);
        }
        size_t size = page * (1 + (unsigned)rand_r(&random) % 8);
        buffers[at].memory = map(size);
        if (size > page) {
            munmap(buffers[at].memory + page, size - page);
        }
        (void)is_gone_since(&buffers[at].since, NULL, 0);
        buffers[at].watched = watch_ops->watch(buffers[at].memory, page);
        free(malloc((unsigned)rand_r(&random) % 1000000));
    }
    for (int i = 0; i < 4; i++) {
        munmap(buffers[i].memory, page);
    }
    return NULL;
}

static void test_threads_that_allocate_and_free(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    unsigned numbers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* Processes ----------------------------------------------------------------------------------- */

static void expect_success(pid_t child)
{
    int status = -1;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_a_child_has_no_watch_and_does_not_wait(void **state)
{
    (void)state;
    char *memory = map(4 * page);
    assert_true(watch_ops->watch(memory, 4 * page));
    assert_false(is_gone(memory, page));
    pid_t child = fork();
    if (child == 0) {
        struct muster_unmap_report report;
        alarm(60); /* if it hangs */
        munmap(memory, page);
        madvise(memory + page, page, MADV_DONTNEED);
        bool good = watch_ops->collect(&position, &report) && report.everything;
        _exit(good ? 0 : 1);
    }
    expect_success(child);
    assert_false(is_gone(memory, page)); /* the child's memory is not reported */
    munmap(memory, 4 * page);
    assert_true(is_gone(memory, 4 * page));
}

/* Forks without other threads: the sanitizers do not support threads in the child otherwise. */
static pid_t fork_alone(void)
{
    watch_ops->release();
    pid_t child = fork();
    position = watch_ops->hold();
    if (child == 0) {
        alarm(60);
    }
    return child;
}

static void *unmap_for_ever(void *unused)
{
    for (;;) {
        char *memory = map(page);
        (void)watch_ops->watch(memory, page);
        munmap(memory, page);
    }
    return unused;
}

static void test_a_process_ends_while_it_is_watched(void **state)
{
    (void)state;
    pid_t child = fork_alone();
    if (child == 0) {
        pthread_t thread;
        char *memory = map(page);
        bool good = watch_ops->watch(memory, page) &&
                    pthread_create(&thread, NULL, unmap_for_ever, NULL) == 0;
        for (int i = 0; i < 100; i++) {
            munmap(memory, page);
            memory = map(page);
            (void)watch_ops->watch(memory, page);
        }
        _exit(good ? 0 : 1);
    }
    expect_success(child);
}

static void test_a_kernel_that_forbids_it(void **state)
{
    (void)state;
    pid_t child = fork_alone();
    if (child == 0) {
        struct sock_filter steps[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const struct sock_fprog program = {.len = sizeof steps / sizeof steps[0], .filter = steps};
        struct muster_unmap_report report;
        bool good = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
        char *memory = map(page);
        good = good && !watch_ops->watch(memory, page) && !watch_ops->watch(memory, page) &&
               watch_ops->collect(&position, &report) && report.count == 0;
        munmap(memory, page);
        watch_ops->release();
        _exit(good ? 0 : 1);
    }
    expect_success(child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_unmapped_and_mapped_again_at_the_same_address, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_a_part_is_unmapped, begin, end),
        cmocka_unit_test_setup_teardown(test_pages_are_given_back_but_not_their_addresses, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_memory_that_moves_and_shrinks, begin, end),
        cmocka_unit_test_setup_teardown(test_the_heap_shrinks, begin, end),
        cmocka_unit_test_setup_teardown(test_pages_that_others_can_take_away_are_not_watched, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_a_user_that_is_late_is_told_that_everything_is_gone,
                                        begin, end),
        cmocka_unit_test_setup_teardown(test_the_watch_ends_with_its_last_user, begin, end),
        cmocka_unit_test_setup_teardown(test_no_thread_gets_addresses_before_it_can_be_reported,
                                        begin, end),
        cmocka_unit_test_setup_teardown(test_threads_that_allocate_and_free, begin, end),
        cmocka_unit_test_setup_teardown(test_a_child_has_no_watch_and_does_not_wait, begin, end),
        cmocka_unit_test_setup_teardown(test_a_process_ends_while_it_is_watched, begin, end),
        cmocka_unit_test_setup_teardown(test_a_kernel_that_forbids_it, begin, end),
    };
    page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = map(page);
    (void)watch_ops->hold();
    bool works = watch_ops->watch(memory, page);
    watch_ops->release();
    munmap(memory, page);
    if (!works) {
        (void)printf("SKIP: this kernel has no userfaultfd, or forbids it\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
