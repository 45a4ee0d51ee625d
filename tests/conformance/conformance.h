/* The suite that every transport passes. */
#ifndef MUSTER_TESTS_CONFORMANCE_CONFORMANCE_H
#define MUSTER_TESTS_CONFORMANCE_CONFORMANCE_H

#include "tests/conformance/rig.h"

/* For main(): runs all of it over fabrics made like this. */
int muster_conformance_run(const struct rig_transport *transport);

#endif
