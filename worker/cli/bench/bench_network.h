/*
 * A network of hosts for muster bench: one network namespace for each host, connected by a bridge.
 * The link of each host is shaped in both directions.
 *
 * The namespaces have no names. They exist as long as a descriptor or a process refers to them, and
 * the bridge and the links end with them. So the kernel removes everything, however the command
 * ends.
 */
#ifndef MUSTER_WORKER_CLI_BENCH_BENCH_NETWORK_H
#define MUSTER_WORKER_CLI_BENCH_BENCH_NETWORK_H

#include "worker/base/status.h"

#include <stdint.h>

enum {
    MUSTER_BENCH_HOSTS_MAX = 128,
    MUSTER_BENCH_ADDRESS_SIZE = 16,
    /* What an idle link sends without delay. With a smaller bucket the link is slower than its rate
     * while the machine is too busy to serve the timer in time. */
    MUSTER_BENCH_BURST_BYTES = 128 << 10,
};

struct muster_bench_network {
    uint32_t hosts;
    int bridge;                             /* the namespace with the bridge; -1: none */
    int namespaces[MUSTER_BENCH_HOSTS_MAX]; /* [hosts] */
};

/* MUSTER_INVALID: this is not a rate such as 1gbit or 500mbit. */
MUSTER_CHECKED muster_status muster_bench_network_check_rate(const char *rate);

/* Needs root and the commands ip and tc. The calling process stays in its own namespace. */
MUSTER_CHECKED muster_status muster_bench_network_create(uint32_t hosts, const char *rate,
                                                         struct muster_bench_network *ret_network);
void muster_bench_network_destroy(struct muster_bench_network *network);

/* Moves the calling thread into the namespace of a host, and returns the address of the host. */
MUSTER_CHECKED muster_status
muster_bench_network_enter(const struct muster_bench_network *network, uint32_t host,
                           char ret_address[MUSTER_BENCH_ADDRESS_SIZE]);

#endif
