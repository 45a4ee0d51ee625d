/* Children of fork() have none of the registered descriptors, and all others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/base/fork_guard.h"

enum { DESCRIPTORS = 512, THREADS = 3, FORKS = 300, EACH = 8 };

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static uint32_t count_open(void)
{
    uint32_t count = 0;
    for (int fd = 0; fd < DESCRIPTORS; fd++) {
        count += is_open(fd);
    }
    return count;
}

static void expect_success(pid_t child)
{
    int how = -1;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
}

static void a_child_has_no_registered_descriptor_and_all_others(void **state)
{
    (void)state;
    int guarded[EACH];
    int others[EACH];
    for (int i = 0; i < EACH; i++) {
        guarded[i] = MUSTER_GUARDED(eventfd(0, 0));
        others[i] = eventfd(0, 0);
        assert_true(guarded[i] >= 0 && others[i] >= 0);
    }
    pid_t child = fork();
    if (child == 0) {
        bool good = true;
        for (int i = 0; i < EACH; i++) {
            good = good && !is_open(guarded[i]) && is_open(others[i]);
        }
        _exit(good ? 0 : 1);
    }
    expect_success(child);
    for (int i = 0; i < EACH; i++) {
        assert_true(is_open(guarded[i]));
        muster_fork_guard_close(guarded[i]);
        assert_false(is_open(guarded[i]));
        close(others[i]);
    }
}

/* Opens, registers and closes a descriptor, whose number then belongs to another one. */
static void a_number_that_is_used_again_is_not_closed(void **state)
{
    (void)state;
    int first = MUSTER_GUARDED(eventfd(0, 0));
    muster_fork_guard_close(first);
    int second = eventfd(0, 0);
    assert_int_equal(second, first);
    pid_t child = fork();
    if (child == 0) {
        _exit(is_open(second) ? 0 : 1);
    }
    expect_success(child);
    close(second);
}

static void scope_with_a_guarded_descriptor(int *ret_fd)
{
    AUTO_CLOSE_GUARDED int fd = MUSTER_GUARDED(eventfd(0, 0));
    *ret_fd = fd;
}

static void the_end_of_a_scope_closes_and_unregisters(void **state)
{
    (void)state;
    int first = -1;
    scope_with_a_guarded_descriptor(&first);
    assert_false(is_open(first));
    int second = eventfd(0, 0);
    assert_int_equal(second, first);
    pid_t child = fork();
    if (child == 0) {
        _exit(is_open(second) ? 0 : 1);
    }
    expect_success(child);
    close(second);
}

/* The child's own descriptors are registered for its own children. */
static void a_child_registers_its_own(void **state)
{
    (void)state;
    int inherited = MUSTER_GUARDED(eventfd(0, 0));
    pid_t child = fork();
    if (child == 0) {
        int own = MUSTER_GUARDED(eventfd(0, 0)); /* gets the number that has become free */
        pid_t grandchild = fork();
        if (grandchild == 0) {
            _exit(own == inherited && !is_open(own) ? 0 : 1);
        }
        int how = -1;
        bool good = is_open(own) && waitpid(grandchild, &how, 0) == grandchild && how == 0;
        _exit(good ? 0 : 1);
    }
    expect_success(child);
    assert_true(is_open(inherited));
    muster_fork_guard_close(inherited);
}

static void a_call_that_fails_keeps_its_errno(void **state)
{
    (void)state;
    errno = 0;
    assert_int_equal(MUSTER_GUARDED(open("/no/such/file", O_RDONLY | O_CLOEXEC)), -1);
    assert_int_equal(errno, ENOENT);
}

/* A process that has forked a sleeping child ends: its peer sees the end of the connection while
 * the child lives. */
static void the_end_of_a_process_is_seen_although_its_child_sleeps(void **state)
{
    (void)state;
    int ends[2];
    int lives[2]; /* a pipe that the child holds open */
    char byte = 0;
    assert_int_equal(pipe(lives), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid_t process = fork();
    if (process == 0) {
        close(ends[0]);
        close(lives[0]);
        int guarded = MUSTER_GUARDED(dup(ends[1]));
        close(ends[1]);
        pid_t sleeper = fork();
        if (sleeper == 0) {
            (void)alarm(60);
            (void)pause();
        }
        bool sent = write(guarded, "x", 1) == 1 && write(lives[1], &sleeper, sizeof sleeper) > 0;
        _exit(sent ? 0 : 1);
    }
    close(ends[1]);
    close(lives[1]);
    expect_success(process);
    pid_t sleeper = 0;
    assert_int_equal(read(lives[0], &sleeper, sizeof sleeper), sizeof sleeper);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(read(ends[0], &byte, 1), 0);
    assert_int_equal(kill(sleeper, SIGKILL), 0);
    assert_int_equal(read(lives[0], &byte, 1), 0); /* it had the pipe open until now */
    close(ends[0]);
    close(lives[0]);
}

static atomic_uint calls;

static void count_call(void)
{
    atomic_fetch_add(&calls, 1);
}

static void each_child_calls_a_function_once(void **state)
{
    (void)state;
    uint32_t forks = muster_fork_guard_forks();
    assert_true(muster_fork_guard_call_in_child(count_call));
    assert_true(muster_fork_guard_call_in_child(count_call));
    pid_t child = fork();
    if (child == 0) {
        bool good = atomic_load(&calls) == 1 && muster_fork_guard_forks() == forks + 1;
        pid_t grandchild = fork();
        if (grandchild == 0) {
            _exit(atomic_load(&calls) == 2 && muster_fork_guard_forks() == forks + 2 ? 0 : 1);
        }
        int how = -1;
        good = good && waitpid(grandchild, &how, 0) == grandchild && how == 0;
        _exit(good ? 0 : 1);
    }
    expect_success(child);
    assert_int_equal(atomic_load(&calls), 0);
    assert_int_equal(muster_fork_guard_forks(), forks);
}

static void ignore(int number)
{
    (void)number;
}

static void reset_signal(void)
{
    (void)signal(SIGUSR1, SIG_DFL);
}

/* The parent's handler would swallow a signal that comes before the child's function has run. */
static void a_signal_waits_until_the_functions_have_run(void **state)
{
    (void)state;
    assert_true(muster_fork_guard_call_in_child(reset_signal));
    (void)signal(SIGUSR1, ignore);
    for (int i = 0; i < FORKS; i++) {
        int how = -1;
        pid_t child = fork();
        if (child == 0) {
            (void)alarm(60);
            for (;;) {
                (void)pause();
            }
        }
        assert_int_equal(kill(child, SIGUSR1), 0);
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how));
        assert_int_equal(WTERMSIG(how), SIGUSR1);
    }
    assert_int_equal(raise(SIGUSR1), 0); /* is handled here, and not blocked */
    (void)signal(SIGUSR1, SIG_DFL);
}

static atomic_bool stop;

static void *open_and_close(void *unused)
{
    while (!atomic_load(&stop)) {
        int guarded[EACH];
        for (int i = 0; i < EACH; i++) {
            guarded[i] = MUSTER_GUARDED(eventfd(0, EFD_CLOEXEC));
        }
        for (int i = 0; i < EACH; i++) {
            muster_fork_guard_close(guarded[i]);
        }
    }
    return unused;
}

static void children_have_none_while_other_threads_open_and_close(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    uint32_t before = count_open();
    atomic_store(&stop, false);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, NULL), 0);
    }
    int failed = 0;
    for (int i = 0; i < FORKS; i++) {
        int how = -1;
        pid_t child = fork();
        if (child == 0) {
            _exit(count_open() == before ? 0 : 1);
        }
        failed += waitpid(child, &how, 0) != child || how != 0;
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(failed, 0);
    assert_int_equal(count_open(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_has_no_registered_descriptor_and_all_others),
        cmocka_unit_test(a_number_that_is_used_again_is_not_closed),
        cmocka_unit_test(the_end_of_a_scope_closes_and_unregisters),
        cmocka_unit_test(a_child_registers_its_own),
        cmocka_unit_test(a_call_that_fails_keeps_its_errno),
        cmocka_unit_test(the_end_of_a_process_is_seen_although_its_child_sleeps),
        cmocka_unit_test(each_child_calls_a_function_once),
        cmocka_unit_test(a_signal_waits_until_the_functions_have_run),
        cmocka_unit_test(children_have_none_while_other_threads_open_and_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
