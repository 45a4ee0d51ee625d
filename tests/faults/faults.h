/*
 * Random faults at random points of random collectives, with the ranks as threads: every survivor
 * returns in time and with the right code, its input is untouched, what it got was right, and the
 * links that are left serve the next generation. Every transport runs the same suite.
 *
 * Runs are numbered by their seed: MUSTER_SEED=N MUSTER_RUNS=1 repeats run N (as far as a race can
 * be repeated); MUSTER_RUNS says how many follow each other.
 */
#ifndef MUSTER_TESTS_FAULTS_FAULTS_H
#define MUSTER_TESTS_FAULTS_FAULTS_H

#include "tests/support/group.h"

#include <stdatomic.h>
#include <stdio.h>

enum fault_kind {
    FAULT_KILL,      /* a member's links end without a goodbye */
    FAULT_FREEZE,    /* a member stops in the middle of a call and makes no progress any more */
    FAULT_CUT,       /* a connection between two members breaks, both members live */
    FAULT_STRANGERS, /* rejected connections: a port scanner, garbage, a wrong token, an old
                        generation */
    FAULT_KINDS,
};

/* How a transport is tested. */
struct fault_transport {
    const char *name;
    enum group_transport transport;
    bool has_port; /* its members listen at ports: connections can be cut, and rejected */
};

/* All that was drawn for one run, and the state that its threads share. */
struct fault_run {
    uint64_t seed, random;
    struct group group;
    enum fault_kind kind;
    bool shares_memory; /* the context's ranks share memory, whatever their links do */
    size_t algorithm;
    uint64_t count;
    muster_type type;
    muster_op op;
    uint32_t root;
    uint32_t victim;
    uint32_t good_calls; /* before the fault */
    uint32_t call_ms;    /* the time limit of the calls that the fault may hit */
    uint64_t point;      /* the fault comes after this many messages of the victim's call */
    uint32_t rejected;   /* connections that must be rejected, made so far */

    atomic_bool armed; /* the victim starts the call that the fault hits; messages_before is set */
    atomic_bool injected;     /* the fault has been injected */
    atomic_bool over;         /* all members are done */
    atomic_bool failed_again; /* the generation after the fault has failed, too */
    bool last_chance;         /* no failure is allowed in the next generation */
    uint64_t messages_before;
};

/* cmocka's main: MUSTER_RUNS runs, or `runs`. */
int faults_main(const struct fault_transport *transport, uint32_t runs);

/* faults_strangers.c: breaks one of the connections of this process, if there is one. */
void faults_cut(struct fault_run *run);
/* faults_strangers.c: makes connections to the victim's port that must be rejected. */
void faults_connect_strangers(struct fault_run *run);

#endif
