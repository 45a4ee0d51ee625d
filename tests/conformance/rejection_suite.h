/*
 * Connections to a member's port that are no member's: each is rejected in time and counted, and
 * links are not affected. One suite for all transports whose links begin with a hello over TCP.
 */
#ifndef MUSTER_TESTS_CONFORMANCE_REJECTION_SUITE_H
#define MUSTER_TESTS_CONFORMANCE_REJECTION_SUITE_H

#include "tests/conformance/rig.h"
#include "worker/fabric/wire/hello.h"

#include <stddef.h>

/* The port of a rank's first address. */
struct rejection_suite_port {
    const struct rig_transport *transport;
    const unsigned char *greeting; /* that follows a hello */
    size_t greeting_size;
    size_t answer_size; /* 16 bytes, and what follows them */
};

/* For main(): returns the number of failed tests. */
int rejection_suite_run(const struct rejection_suite_port *port);

/* Connects to a rank's port; -1 if it cannot. */
int rejection_suite_connect(const struct rig *rig, uint32_t rank);
/* Drives rank 0 until so many have been rejected. */
void rejection_suite_await(struct rig *rig, uint64_t count);
/* Rank 1's hello to rank 0. */
struct muster_hello rejection_suite_hello(const struct rig *rig);
void rejection_suite_send(int fd, const void *bytes, size_t size);

#endif
