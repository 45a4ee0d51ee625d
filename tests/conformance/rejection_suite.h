/*
 * Who else comes to a member's port: nobody hangs, nothing is lost, and they are counted. One suite
 * for the transports whose links begin with a hello over TCP.
 */
#ifndef MUSTER_TESTS_CONFORMANCE_REJECTION_SUITE_H
#define MUSTER_TESTS_CONFORMANCE_REJECTION_SUITE_H

#include "tests/conformance/rig.h"
#include "worker/fabric/wire/hello.h"

#include <stddef.h>

/* A kind of port: where a rank's first address leads. */
struct rejection_suite_port {
    const struct rig_transport *transport;
    const unsigned char *greeting; /* that follows a hello there */
    size_t greeting_size;
    size_t answer_size; /* 16 bytes as TCP answers, and what follows them */
};

/* For main(). */
int rejection_suite_run(const struct rejection_suite_port *port);

/* Connects to a rank's port; -1 if it cannot. */
int rejection_suite_connect(const struct rig *rig, uint32_t rank);
/* Moves rank 0 on until so many were refused. */
void rejection_suite_await(struct rig *rig, uint64_t count);
/* What rank 1 would say to rank 0. */
struct muster_hello rejection_suite_hello(const struct rig *rig);
void rejection_suite_send(int fd, const void *bytes, size_t size);

#endif
