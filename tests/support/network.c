/* Makes hosts from network namespaces, and bridges between them. */
#include "tests/support/network.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "worker/base/cleanup.h"

bool test_ip(const char *format, ...)
{
    char command[256] = "ip ";
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(command + 3, sizeof command - 3, format, arguments);
    va_end(arguments);
    return system(command) == 0; /* NOLINT(cert-env33-c): text of the tests */
}

int test_host_here(void)
{
    /* NOLINTNEXTLINE(android-cloexec-open): for ip, see the header. */
    return open("/proc/thread-self/ns/net", O_RDONLY);
}

void test_host_enter(int host)
{
    if (setns(host, CLONE_NEWNET) != 0) {
        perror("setns");
        abort();
    }
}

int test_host_make(void)
{
    int home = test_host_here();
    if (home < 0 || unshare(CLONE_NEWNET) != 0) {
        if (home >= 0) {
            close(home);
        }
        return -1;
    }
    int host = test_ip("link set lo up") ? test_host_here() : -1;
    if (host < 0) {
        test_host_enter(home);
    }
    close(home);
    return host;
}

bool test_bridge_make(void)
{
    AUTO_CLOSE int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0 || unshare(CLONE_NEWNET) != 0) {
        return false;
    }
    bool made = test_ip("link set lo up") && test_ip("link add bridge type bridge") &&
                test_ip("link set bridge up") &&
                test_ip("link add cable type veth peer name eth0") && test_ip("link delete cable");
    if (!made) {
        test_host_enter(home);
    }
    return made;
}

bool test_bridge_plug_in(uint32_t index, pid_t pid)
{
    return test_ip("link add cable%u type veth peer name eth0 netns %d", index, (int)pid) &&
           test_ip("link set cable%u master bridge up", index);
}

bool test_bridge_switch(uint32_t index, bool up)
{
    return test_ip("link set cable%u %s", index, up ? "up" : "down");
}
