/* Links on a kernel without epoll_pwait2(), as before Linux 5.11, which a filter of system calls
 * simulates. */
#include "tests/conformance/conformance.h"
#include "tests/conformance/rig.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cmocka.h>

static const struct rig_transport transport = {.name = "tcp and shared memory",
                                               .transports = "shm,tcp"};

/* From now on, for this thread and all that it starts. */
static bool disable_epoll_pwait2(int error)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof steps / sizeof steps[0], .filter = steps};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void members_exchange_messages(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, &transport, 2);
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

static void a_wait_without_an_event_ends_at_its_deadline(void **state)
{
    (void)state;
    struct rig rig;
    bool never = false;
    rig_init(&rig, &transport, 2);
    int64_t deadline_ns = muster_clock_after_ms(5);
    assert_int_equal(muster_fabric_wait(rig.fabrics[0], rig.generation, &never, deadline_ns),
                     MUSTER_RETRY);
    assert_true(muster_clock_ns() >= deadline_ns);
    rig_finish(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_exchange_messages),
        cmocka_unit_test(a_wait_without_an_event_ends_at_its_deadline),
    };
    struct timespec none = {0};
    struct epoll_event event;
    if (!disable_epoll_pwait2(ENOSYS)) {
        printf("SKIP: system calls cannot be filtered here: %s\n", strerror(errno));
        return 77;
    }
    if (epoll_pwait2(-1, &event, 1, &none, NULL) != -1 || errno != ENOSYS) {
        print_error("the filter has no effect\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
