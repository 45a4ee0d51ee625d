/*
 * A network of hosts for muster bench: one network namespace a host, joined by a bridge, with the
 * link of each shaped both ways.
 *
 * The namespaces have no names. They live as long as a descriptor or a process holds them, and take
 * the bridge and the links with them: whatever ends the command, the kernel removes them all.
 */
#ifndef MUSTER_WORKER_CLI_BENCH_BENCH_NETWORK_H
#define MUSTER_WORKER_CLI_BENCH_BENCH_NETWORK_H

#include "worker/base/status.h"

#include <stdint.h>

enum {
    MUSTER_BENCH_HOSTS_MAX = 128,
    MUSTER_BENCH_ADDRESS_SIZE = 16,
    /* What an idle link lets through at once. Smaller buckets lose their rate when the machine is
     * too busy to serve the timer in time. */
    MUSTER_BENCH_BURST_BYTES = 128 << 10,
};

struct muster_bench_network {
    uint32_t hosts;
    int bridge;                             /* the namespace that has the bridge; -1: none */
    int namespaces[MUSTER_BENCH_HOSTS_MAX]; /* of the hosts */
};

/* MUSTER_INVALID: not a rate such as 1gbit or 500mbit. */
MUSTER_CHECKED muster_status muster_bench_network_check_rate(const char *rate);

/* Makes it; needs root and the commands ip and tc. The caller's process stays where it is. */
MUSTER_CHECKED muster_status muster_bench_network_create(uint32_t hosts, const char *rate,
                                                         struct muster_bench_network *ret_network);
void muster_bench_network_destroy(struct muster_bench_network *network);

/* Moves the calling thread to a host, and says which address the host has. */
MUSTER_CHECKED muster_status
muster_bench_network_enter(const struct muster_bench_network *network, uint32_t host,
                           char ret_address[MUSTER_BENCH_ADDRESS_SIZE]);

#endif
