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
    FAULT_KILL,      /* a member's links end without a word */
    FAULT_FREEZE,    /* a member stops in the middle of a call and does not move any more */
    FAULT_CUT,       /* a connection between two members breaks, both live on */
    FAULT_STRANGERS, /* a port scanner, garbage, a wrong token, someone of an older generation */
    FAULT_KINDS,
};

/* How a transport is tested. */
struct fault_transport {
    const char *name;
    enum group_transport transport;
    bool has_port; /* of its own, so that connections can be cut and strangers can come */
};

/* All that was drawn for one run, and what its threads tell each other. */
struct fault_run {
    uint64_t seed, dice;
    struct group group;
    enum fault_kind kind;
    bool shares_memory; /* the context, on top of what the links do */
    size_t algorithm;
    uint64_t count;
    muster_type type;
    muster_op op;
    uint32_t root;
    uint32_t victim;
    uint32_t good_calls; /* before the fault */
    uint32_t call_ms;    /* deadline of the calls that it may hit */
    uint64_t point;      /* after so many messages of the victim's call */
    uint32_t refused;    /* strangers that have come */

    atomic_bool armed;  /* the victim is in the call that it hits, and begun_messages stands */
    atomic_bool struck; /* the fault has come */
    atomic_bool over;   /* all members are done */
    atomic_bool again;  /* the generation that was to go on is over, too */
    bool last_chance;   /* the next one must be good */
    uint64_t begun_messages;
};

/* cmocka's main: MUSTER_RUNS runs, or `runs`. */
int faults_main(const struct fault_transport *transport, uint32_t runs);

/* faults_strangers.c: breaks one of the connections of this process, if there is one. */
void faults_cut(struct fault_run *run);
/* Lets strangers come to the victim's port. */
void faults_send_strangers(struct fault_run *run);

#endif
