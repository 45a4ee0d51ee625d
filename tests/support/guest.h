/* For tests that need an RDMA device. In a guest rxe0, rxe1 and so on have the interfaces eth0,
 * eth1, ..., whose cables end at sw0, sw1, ... of a bridge. */
#ifndef MUSTER_TESTS_SUPPORT_GUEST_H
#define MUSTER_TESTS_SUPPORT_GUEST_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Where this machine has no device that links could use, the program runs again in a guest that has
 * one (tests/verbs/run), and this does not come back. In the guest it always does. */
void guest_need_rdma(const char *program);

/* The same for tests that change the network of the devices: always in a guest, with so many. */
void guest_enter(const char *program, uint32_t devices);

/* The network of device rxe<index>; the calls are over when the device has noticed. They
 * end the program if it cannot be done. Any thread.
 *
 * Pulls its cable, or puts it back. */
void guest_plug(uint32_t index, bool in);
/* "ip link set eth<index> down", or up with the addresses and routes that it had. */
void guest_switch(uint32_t index, bool on);
/* Runs a command of the shell, and ends the program if that fails. */
void guest_shell(const char *format, ...) MUSTER_PRINTF(1, 2);

#endif
