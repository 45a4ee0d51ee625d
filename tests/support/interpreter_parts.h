/* What the files of the interpreter share. */
#ifndef MUSTER_TESTS_SUPPORT_INTERPRETER_PARTS_H
#define MUSTER_TESTS_SUPPORT_INTERPRETER_PARTS_H

#include "tests/support/interpreter.h"

/* One rank's memory, and which steps it has done. */
struct test_machine {
    const struct muster_schedule *schedule;
    uint64_t *memory; /* of in and out */
    uint64_t *in, *out, *scratch;
    uint64_t *in_copy; /* as it was at the start */
    bool *done;        /* [steps] */
};

struct test_run {
    const struct muster_shape *shapes; /* [ranks] */
    struct test_machine *machines;
    uint32_t ranks;
    uint32_t absent; /* does nothing; or `ranks` */
    uint64_t *random;
    test_early early; /* NULL: no receive is early */
    bool mixes;       /* the result of a reduction depends on the order */
    char *why;        /* the first error; empty: none yet */
};

/* The run is wrong, for this reason. */
__attribute__((format(printf, 2, 3))) void test_run_wrong(const struct test_run *run,
                                                          const char *format, ...);

/* Zeroed; free() it. */
void *test_run_room(size_t count);

/* Where the elements are, or NULL and the run is wrong. */
uint64_t *test_run_place(const struct test_run *run, const struct test_machine *machine,
                         unsigned buffer, uint64_t offset, uint64_t count);

/* All earlier rounds of its lane are done; of an early receive, all but the one before. */
bool test_run_is_posted(const struct test_run *run, const struct test_machine *machine,
                        size_t index);

void test_run_reduce(const struct test_run *run, uint64_t *target, const uint64_t *left,
                     const uint64_t *right, uint64_t count);

/* interpreter_groups.c: performs the rank's group step if all members have come to it. */
bool test_run_group_step(const struct test_run *run, uint32_t rank, size_t index);

#endif
