/* The suite that every transport passes. */
#ifndef MUSTER_TESTS_CONFORMANCE_CONFORMANCE_H
#define MUSTER_TESTS_CONFORMANCE_CONFORMANCE_H

#include "tests/conformance/rig.h"

/* For main(): runs all tests with such fabrics. Returns the number of failed ones. */
int muster_conformance_run(const struct rig_transport *transport);

#endif
