/*
 * For tests: an interpreter of schedules that shares no code with the checker. It executes them on
 * 64-bit integers, and compares the results with those that shape.h expects.
 *
 * It interleaves steps as badly as a schedule allows: each pass over all ranks does at most one
 * step of each, and begins its search for one at random. Memory that no step has written holds
 * random numbers. Schedules may be wrong in any way.
 */
#ifndef MUSTER_TESTS_SUPPORT_INTERPRETER_H
#define MUSTER_TESTS_SUPPORT_INTERPRETER_H

#include "tests/support/schedules.h"

/* Runs the schedules once, in place or not. True if every result is
 * right, and INPUT is untouched unless in place. Else false, and ret_why (MUSTER_CHECK_TEXT_MAX
 * bytes) says what is wrong. */
bool test_execute(const struct test_job *job, const struct muster_schedule *schedules,
                  bool in_place, uint64_t *random, char *ret_why);

/* Whether the receive may be posted with the round before its own. */
typedef bool (*test_early)(const struct muster_schedule *schedule, size_t step);

/* Runs the job's own schedules once, posts receives as early as that allows, and reduces by a
 * function whose results depend on the order. *ret_digest is a hash of all outputs. False if the
 * ranks do not finish, or a step is out of bounds; ret_why says which. */
bool test_execute_mixed(const struct test_job *job, bool in_place, test_early early,
                        uint64_t *random, uint64_t *ret_digest, char *ret_why);

/* Runs the schedules as far as they go without each rank in turn, and once with all. False if they
 * break one of the promises (enum muster_check_promise, as a set of bits), and ret_why says how: a
 * rank finishes that should wait, input in place has changed while a rank was absent, or an element
 * in place is ever neither what it was nor the result. */
bool test_keeps_promises(const struct test_job *job, const struct muster_schedule *schedules,
                         unsigned promises, uint64_t *random, char *ret_why);

/* True if several executions give what the collective requires, in place and with separate buffers
 * if the call may have both. A barrier is also run once without each rank: then no other rank may
 * finish. */
bool test_executes_right(const struct test_job *job, const struct muster_schedule *schedules,
                         uint64_t *random);

#endif
