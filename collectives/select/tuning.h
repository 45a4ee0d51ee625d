/*
 * The tuning table of a group of ranks: for each class of calls the algorithm that was found to be
 * the fastest, or the autotune run that is finding it out (autotune_run.h).
 *
 * A call class is a collective, an element size, whether sums are reproducible, and a size class of
 * the count. Size classes are half octaves: twice the count is two classes further on. A class is
 * added when a call of it has succeeded, as long as there is room, and is never removed. In the
 * collectives that are tuned no member succeeds unless all have made the same call: each member's
 * result depends on every member, which the checker proves. So all members have the same classes
 * and the same runs, even if some of their calls disagreed and failed. Pure.
 */
#ifndef MUSTER_COLLECTIVES_SELECT_TUNING_H
#define MUSTER_COLLECTIVES_SELECT_TUNING_H

#include "collectives/select/autotune_run.h"

enum { MUSTER_TUNED_MAX = 96 };

/* A call class and its algorithm. */
struct muster_tuned {
    uint8_t collective;
    uint8_t ordered;
    uint16_t size_class;
    uint32_t element_size_bytes;
    uint32_t algorithm;
};

/* All that a group has decided. */
struct muster_tuned_list {
    uint32_t count;
    struct muster_tuned items[MUSTER_TUNED_MAX];
};

struct muster_call_class {
    struct muster_tuned tuned; /* its algorithm once it is decided */
    bool decided;
    uint64_t count; /* of the calls that are measured, until decided: calls of another count take
                       another time */
    struct muster_autotune_run *run; /* owned; NULL: not begun, or decided */
};

struct muster_tuning {
    uint32_t count;
    struct muster_call_class classes[MUSTER_TUNED_MAX];
};

/* Removes all classes. Accepts zeroed storage, and leaves it zeroed. */
void muster_tuning_clear(struct muster_tuning *tuning);

/* True if calls of this plan can be tuned. Calls that keep their input are not: classes do not tell
 * them from others, and they take another time. */
bool muster_tuning_suits(const struct muster_plan *plan);

/* The class of the plan's calls. NULL: it has not been added. */
struct muster_call_class *muster_tuning_find(struct muster_tuning *tuning,
                                             const struct muster_plan *plan,
                                             size_t element_size_bytes);

/* No class can be added any more. */
bool muster_tuning_is_full(const struct muster_tuning *tuning);

/* Adds the class of a call that has succeeded. It is not in the table, and the table is not full.
 */
void muster_tuning_add(struct muster_tuning *tuning, const struct muster_plan *plan,
                       size_t element_size_bytes);

/* Ends the autotune run, if there is one. */
void muster_tuning_decide(struct muster_call_class *call_class, size_t algorithm);

void muster_tuning_export(const struct muster_tuning *tuning, struct muster_tuned_list *ret_list);
/* Replaces the whole table. The list has passed muster_tuned_check(). */
void muster_tuning_import(struct muster_tuning *tuning, const struct muster_tuned_list *list);

/* MUSTER_INVALID: an item that no autotune run can have decided. Whether its algorithm fits the
 * calls of a group is checked when they are made. */
MUSTER_CHECKED muster_status muster_tuned_check(const struct muster_tuned_list *list);

#endif
