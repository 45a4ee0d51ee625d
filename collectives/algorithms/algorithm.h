/*
 * The table of algorithms. To add one: write its file, which defines a muster_generator, and name
 * that in table.c, in the list of generators and in a new row (README.md). The checker, the
 * printer, the executor, selection, the tests and `muster plan` all go through the table.
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_ALGORITHM_H
#define MUSTER_COLLECTIVES_ALGORITHMS_ALGORITHM_H

#include "collectives/call/call_plan.h"
#include "collectives/schedule/schedule.h"

struct muster_builder; /* collectives/schedule/builder.h */
struct muster_group;

/* A chain of messages, each of which waits for the one before it. */
struct muster_path {
    uint64_t messages;
    uint64_t elements; /* in all of them */
};

/* Totals of an algorithm's schedules, for selection. */
struct muster_formula {
    /* Of the busiest rank. Exact: the tests compare every schedule with them. */
    uint32_t rounds;
    uint64_t elements; /* sent */
    /* Estimates, for selection in large jobs: the critical path through the job, by level. The
     * elements of cross and world are added up over all messages that go through the host's busiest
     * uplink at the same time. */
    struct muster_path local; /* within hosts */
    struct muster_path cross; /* between the hosts of a rack */
    struct muster_path world; /* between racks */
    uint64_t rack_elements;   /* of world, added up over a rack's busiest uplink */
    uint64_t reduced;         /* elements reduced along the critical path */
};

/* The variants of an algorithm that has parameters: the text in the brackets of
 * "hierarchical(local=ring,cross=swing)" as a number from 1 to 2^24 - 1. */
struct muster_variants {
    muster_status (*parse)(const char *text, uint32_t *ret_variant);
    void (*print)(uint32_t variant, char *ret_text,
                  size_t size); /* of any number: it may come from the wire */
};

/* Makes the schedules of a row; rows may share one. Pure: the same plan gives the same schedule. It
 * is never called for a plan that the row's `fits` refuses. */
struct muster_generator {
    /* The textbook's formulas for readers, in P and n, of the busiest rank. */
    const char *rounds_text, *elements_text;
    /* Adds the steps of plan->rank. Called by muster_schedule_generate(). */
    muster_status (*generate)(const struct muster_plan *plan, struct muster_builder *builder);
    /* In place of `generate`: an allreduce that works in any group, as that of a muster_exchange
     * (hierarchical/exchange.h). Called with the group of all ranks. */
    void (*part)(struct muster_builder *builder, const struct muster_group *group,
                 enum muster_buffer source, struct muster_span span);
    /* Called by muster_algorithm_formula(); plan->rank is ignored. */
    void (*formula)(const struct muster_plan *plan, struct muster_formula *ret_formula);
};

/* What another library calls an algorithm. */
struct muster_alias {
    const char *library;
    const char *name; /* as the library spells it, also in upper case */
};

enum { MUSTER_ALIASES_MAX = 3 }; /* of one algorithm */

struct muster_algorithm {
    const char *name;     /* lower case with underscores; `muster plan --list` prints it */
    const char *what;     /* one line with its source */
    const char *best_for; /* when to use it */
    enum muster_collective collective;
    struct muster_alias aliases[MUSTER_ALIASES_MAX]; /* those behind the last have no name */
    /* Reduces along the tree of the plan's reduction order (terms.h), or, without one, along that
     * of the ranks. The tests prove it. */
    bool reproducible;
    /* Ranks that share memory carry the call out there as one operation: see
     * collectives/select/host_memory.h. Where they share none, the row is not selected: another row
     * does the same by messages. */
    bool memory;
    bool only_named;                        /* selection leaves it to those who name it */
    uint32_t variant;                       /* that the name without brackets stands for */
    const struct muster_variants *variants; /* or NULL: it has none */
    /* True if the algorithm can do the plan's call. False: ret_why (size bytes) says what would
     * fit. Called by muster_algorithm_fits(). */
    bool (*fits)(const struct muster_plan *plan, char *ret_why, size_t size);
    const struct muster_generator *generator;
    /* The schedule where the plan's data is in memory of a device that performs group steps
     * (plan->device), and muster_device_group_fits(); elsewhere the row's generator does the same
     * by messages, and is not selected. NULL: the row needs no device. */
    void (*on_device)(const struct muster_plan *plan, struct muster_builder *builder);
    const char *rounds_text, *elements_text; /* in place of the generator's; or NULL */
};

/* Rows are identified by their index, which is sent in frames: append only. */
extern const struct muster_algorithm muster_algorithms[];
extern const size_t muster_algorithm_count;

/* The number of an algorithm is the index of its row, plus MUSTER_ALGORITHM_ROWS_MAX times its
 * variant; the variant is 0 for the one that the row's name alone stands for, so that the index of
 * a row is a number too. Numbers fit 32 bits. */
enum { MUSTER_ALGORITHM_ROWS_MAX = 256, MUSTER_ALGORITHM_NAME_SIZE = 160 };

/* True if the algorithm's row has .memory; false if there is no algorithm of this number. */
bool muster_algorithm_uses_memory(size_t algorithm);

/* True if the algorithm's row has .on_device; false as above. */
bool muster_algorithm_is_of_device(size_t algorithm);

/* True if the algorithm is of a device, and the plan's device can perform the plan's call by group
 * steps: all ranks find alike. It neither keeps an order of reduction nor the input of a call in
 * place, and does nothing where there is no data. */
bool muster_device_group_fits(size_t algorithm, const struct muster_plan *plan);

/* True if the name, up to a bracket, is the row's or one of its aliases. */
bool muster_algorithm_is_named(const struct muster_algorithm *row, const char *name);

/* "Gloo's allgather_ring, NCCL's Ring, RING"; empty if the row has no aliases. */
void muster_algorithm_print_aliases(const struct muster_algorithm *row, char *ret_text,
                                    size_t size);

/* The number of the algorithm of this name or alias, with or without a variant in brackets.
 * MUSTER_INVALID lists the known names. */
MUSTER_CHECKED muster_status muster_algorithm_find(enum muster_collective collective,
                                                   const char *name, size_t *ret_algorithm);

/* The name, not an alias, by which muster_algorithm_find() finds it; "unknown" if there is no such
 * number. */
void muster_algorithm_print(size_t algorithm, char *ret_name, size_t size);

/* The row's formulas for readers; algorithms/CATALOGUE.md shows them. */
const char *muster_algorithm_rounds_text(const struct muster_algorithm *row);
const char *muster_algorithm_elements_text(const struct muster_algorithm *row);

/* The row's `fits` and formula, with the variant of the algorithm's number. The formula has the
 * closing round, if the plan asks for one, but no copies that keep_input adds. */
bool muster_algorithm_fits(size_t algorithm, const struct muster_plan *plan, char *ret_why,
                           size_t size);
void muster_algorithm_formula(size_t algorithm, const struct muster_plan *plan,
                              struct muster_formula *ret_formula);

/* The shape of the plan's call, if this algorithm carries it out. */
struct muster_shape muster_algorithm_shape(size_t algorithm, const struct muster_plan *plan);

/* MUSTER_INVALID: muster_schedule_generate() would refuse the plan. */
MUSTER_CHECKED muster_status muster_plan_check(size_t algorithm, const struct muster_plan *plan);

/* Generates the schedule of plan->rank, with the promises that the plan asks for. The caller
 * finishes it. MUSTER_INVALID: rank or root out
 * of range, counts that overflow, an algorithm that does not fit (the text says which ones do). */
MUSTER_CHECKED muster_status muster_schedule_generate(size_t algorithm,
                                                      const struct muster_plan *plan,
                                                      struct muster_schedule *ret_schedule);

#endif
