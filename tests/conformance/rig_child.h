/* A member in a process of its own, which can be stopped and killed. */
#ifndef MUSTER_TESTS_CONFORMANCE_RIG_CHILD_H
#define MUSTER_TESTS_CONFORMANCE_RIG_CHILD_H

#include "tests/conformance/rig.h"

#include <sys/types.h>

struct rig_child {
    pid_t pid;
    int to, from;
};

/* What the child does as rank 1, whose fabric is rig->fabrics[0]; rank 0 is the parent. */
typedef void (*rig_child_function)(struct rig *rig);

/* Forks, before the parent has a fabric. The child ends when the function returns. */
struct rig_child rig_child_start(const struct rig_transport *transport,
                                 rig_child_function function);

/* Creates the parent's rig, in which the parent is rank 0, and begins a generation with the child.
 */
void rig_child_link(const struct rig_child *child, struct rig *rig,
                    const struct rig_transport *transport);

/* Kills the child and finishes the rig. */
void rig_child_finish(const struct rig_child *child, struct rig *rig);

#endif
