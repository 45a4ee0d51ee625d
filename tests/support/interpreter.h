/*
 * An interpreter of schedules that shares no code with the checker. It runs them on 64-bit integers
 * and compares the results with what shape.h promises.
 *
 * It makes as little progress as is allowed: in each pass over the ranks each does at most one step
 * that is possible, searched from a random one on, so that rounds interleave as badly as they can.
 * Memory that no step has written is random. Schedules may be wrong in any way.
 */
#ifndef MUSTER_TESTS_SUPPORT_INTERPRETER_H
#define MUSTER_TESTS_SUPPORT_INTERPRETER_H

#include "tests/support/schedules.h"

/* Runs the schedules once, in place or not. True if every result is right, and the input unchanged
 * unless in place. Else false; ret_why (MUSTER_CHECK_TEXT_MAX bytes) says what is wrong. */
bool test_execute(const struct test_job *job, const struct muster_schedule *schedules,
                  bool in_place, uint64_t *random, char *ret_why);

/* Whether the receive may be posted one round early. */
typedef bool (*test_early)(const struct muster_schedule *schedule, size_t step);

/* Runs the job's own schedules once, posts receives as early as `early` allows, and reduces by a
 * function whose result depends on the operands and their order. *ret_digest is a hash of all
 * outputs. False if the run does not end, or exceeds a buffer; ret_why says which. */
bool test_execute_mixed(const struct test_job *job, bool in_place, test_early early,
                        uint64_t *random, uint64_t *ret_digest, char *ret_why);

/* True if the schedules do what the collective promises, as far as several runs can tell, in place
 * and not, if the call allows both. A barrier also runs once for each rank with that rank absent:
 * then no rank may finish. */
bool test_executes_right(const struct test_job *job, const struct muster_schedule *schedules,
                         uint64_t *random);

#endif
