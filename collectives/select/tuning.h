/*
 * What a group of ranks has found out about which algorithms are fast here: for each kind of call a
 * verdict, or the trial that leads to one (autotune_run.h).
 *
 * A kind is a collective, the size of an element, whether sums have an order, and about how many
 * elements: twice as many are two kinds further on. Kinds are only ever added, each when a call of
 * it has succeeded, and no more than there is room for. In the collectives that are tuned no member
 * succeeds unless all have made the same call (each result depends on every member, which the
 * checker proves), so that all members have the same kinds and the same trials, even if some
 * of their calls disagreed. Pure.
 */
#ifndef MUSTER_COLLECTIVES_SELECT_TUNING_H
#define MUSTER_COLLECTIVES_SELECT_TUNING_H

#include "collectives/select/autotune_run.h"

enum { MUSTER_TUNED_MAX = 96 };

/* Of one kind. Without padding: it travels. */
struct muster_tuned {
    uint8_t collective;
    uint8_t ordered;
    uint16_t size_class;
    uint32_t element_size_bytes;
    uint32_t algorithm;
};

/* Those that a group has come to. */
struct muster_tuned_list {
    uint32_t count;
    struct muster_tuned items[MUSTER_TUNED_MAX];
};

struct muster_size_class {
    struct muster_tuned tuned; /* without its algorithm until it is settled */
    bool settled;
    uint64_t count; /* else: of the calls that are tried; others have other times */
    struct muster_autotune_run *trial; /* owned; NULL: not begun */
};

struct muster_tuning {
    uint32_t count;
    struct muster_size_class kinds[MUSTER_TUNED_MAX];
};

/* Accepts zeroed storage, and leaves it so. */
void muster_tuning_clear(struct muster_tuning *tuning);

/* Calls of this plan can be tuned. */
bool muster_tuning_suits(const struct muster_plan *plan);

/* NULL: none such has been added. */
struct muster_size_class *muster_tuning_find(struct muster_tuning *tuning,
                                             const struct muster_plan *plan,
                                             size_t element_size_bytes);

/* No kind can be added any more. */
bool muster_tuning_is_full(const struct muster_tuning *tuning);

/* That of a call that has succeeded; it is not there, and there is room. */
void muster_tuning_add(struct muster_tuning *tuning, const struct muster_plan *plan,
                       size_t element_size_bytes);

/* Ends the trial, if there is one. */
void muster_tuning_settle(struct muster_size_class *kind, size_t algorithm);

void muster_tuning_export(const struct muster_tuning *tuning, struct muster_tuned_list *ret_list);
/* In place of what there was. They have passed muster_tuned_check(). */
void muster_tuning_import(struct muster_tuning *tuning, const struct muster_tuned_list *list);

/* MUSTER_INVALID: what cannot be a verdict. Whether an algorithm fits the calls of a group is seen
 * when they are made. */
MUSTER_CHECKED muster_status muster_tuned_check(const struct muster_tuned_list *list);

#endif
