/* For tests that need an RDMA device, if necessary in a guest (a virtual machine). There the device
 * rxe<i> belongs to the interface eth<i>, and the other end of its cable is sw<i> of a bridge. */
#ifndef MUSTER_TESTS_SUPPORT_GUEST_H
#define MUSTER_TESTS_SUPPORT_GUEST_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Returns if this machine has a device that links can use. Otherwise runs the program again in a
 * guest that has one (tests/verbs/run), and does not return. In the guest it always returns. */
void guest_need_rdma(const char *program);

/* The same for tests that change the network of the devices: always in a guest, with that many. */
void guest_enter(const char *program, uint32_t devices);

/* These change the network of device rxe<index>, and return when the state of its port has changed.
 * A failure ends the program. Any thread.
 *
 * Pulls its cable, or puts it back. */
void guest_plug(uint32_t index, bool in);
/* "ip link set eth<index> down", or up with the addresses and routes that it had. */
void guest_switch(uint32_t index, bool on);
/* Runs a shell command, and ends the program if it fails. */
void guest_shell(const char *format, ...) MUSTER_PRINTF(1, 2);

#endif
