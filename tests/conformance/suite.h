/* The suite's parts. */
#ifndef MUSTER_TESTS_CONFORMANCE_SUITE_H
#define MUSTER_TESTS_CONFORMANCE_SUITE_H

#include "tests/conformance/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* The transport under test; set once by muster_conformance_run(). */
extern const struct rig_transport *conformance_transport;

extern const struct CMUnitTest conformance_moving[];
extern const size_t conformance_moving_count;
extern const struct CMUnitTest conformance_ranges[];
extern const size_t conformance_ranges_count;
extern const struct CMUnitTest conformance_ending[];
extern const size_t conformance_ending_count;
extern const struct CMUnitTest conformance_members[];
extern const size_t conformance_members_count;
extern const struct CMUnitTest conformance_announced[];
extern const size_t conformance_announced_count;

#endif
