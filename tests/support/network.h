/* Private networks for tests: hosts are network namespaces, which threads or processes enter. Needs
 * root, and ip of iproute2. */
#ifndef MUSTER_TESTS_SUPPORT_NETWORK_H
#define MUSTER_TESTS_SUPPORT_NETWORK_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Runs ip on the calling thread's host. True on success. */
bool test_ip(const char *format, ...) MUSTER_PRINTF(1, 2);

/* Moves the thread to a new host, with loopback up, and returns a descriptor of it, which children
 * inherit: "netns /proc/self/fd/N" names it. -1 on failure: the thread stays where it is. */
int test_host_make(void);

/* A descriptor of the thread's host. */
int test_host_here(void);

/* Moves the thread to that host; a failure ends the program. */
void test_host_enter(int host);

/* Moves the thread to a new host with a bridge, for processes on hosts of their own. False on
 * failure: the thread stays where it is. */
bool test_bridge_make(void);

/* Joins the process's host to the bridge: its end of the cable is eth0. */
bool test_bridge_plug_in(uint32_t index, pid_t pid);

/* Pulls the cable, or puts it back. */
bool test_bridge_switch(uint32_t index, bool up);

#endif
