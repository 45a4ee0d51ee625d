/*
 * For tests: an interpreter of schedules that shares nothing with the checker. It really runs them,
 * on 64-bit integers, and compares the results with what shape.h promises.
 *
 * It takes the slowest way that is allowed: in each pass over all ranks it does one step where one
 * can be done, from a random one on, so that rounds interleave as badly as they can. What nobody
 * wrote is noise. It bears schedules that are wrong in any way.
 */
#ifndef MUSTER_TESTS_SUPPORT_INTERPRETER_H
#define MUSTER_TESTS_SUPPORT_INTERPRETER_H

#include "tests/support/schedules.h"

/* Runs the schedules once, with INPUT and OUTPUT in one place or not. True if every result is
 * right, and INPUT is untouched unless in place. Else false, and ret_why (MUSTER_CHECK_TEXT_MAX
 * bytes) says what is wrong. */
bool test_execute(const struct test_job *job, const struct muster_schedule *schedules,
                  bool in_place, uint64_t *random, char *ret_why);

/* Whether the receive may be posted with the round before its own. */
typedef bool (*test_early)(const struct muster_schedule *schedule, size_t step);

/* Runs the job's own schedules once, posts receives as early as that allows, and reduces by a
 * function whose results tell what was reduced in which order. *ret_digest is made of all outputs.
 * False if it does not come to its end, or leaves the buffers; ret_why says so. */
bool test_execute_mixed(const struct test_job *job, bool in_place, test_early early,
                        uint64_t *random, uint64_t *ret_digest, char *ret_why);

/* True if the schedules do what the collective promises, as far as some executions can tell: in all
 * placements that the call may have, each several times. A barrier's are run once for each rank
 * that does not come, which nobody may get through without. */
bool test_executes_right(const struct test_job *job, const struct muster_schedule *schedules,
                         uint64_t *random);

#endif
