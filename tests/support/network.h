/* Networks of a test's own: hosts are network namespaces, which threads or processes enter. Needs
 * root, and ip of iproute2. */
#ifndef MUSTER_TESTS_SUPPORT_NETWORK_H
#define MUSTER_TESTS_SUPPORT_NETWORK_H

#include "worker/base/status.h"

#include <stdbool.h>

/* Runs ip where the calling thread is. True if it went well. */
bool test_ip(const char *format, ...) MUSTER_PRINTF(1, 2);

/* Moves the thread to a new host, with loopback up, and returns a descriptor of it, which children
 * inherit: "netns /proc/self/fd/N" names it. -1 if there can be none; the thread stays then. */
int test_host_make(void);

/* A descriptor of where the thread is. */
int test_host_here(void);

/* Moves the thread there; fails the program if that fails. */
void test_host_enter(int host);

#endif
