/*
 * The agreement of one rank with the others about named tensors: which are ready everywhere, in
 * which order they are performed, and which go together. Pure: the caller carries out the steps,
 * passes their results in, and says what time it is.
 *
 * Each rank asks for its next step and makes it; steps are collectives of all ranks. What is called
 * replicated in agreement_parts.h changes only by results that all ranks get alike, so that it is
 * the same on all ranks whenever they have made equally many steps.
 *
 *   RUN        performs the tensors of one operation
 *   ROUND      the bitwise AND of every rank's bit vector: a bit for each name that all ranks know,
 *              set where the tensor is pending
 *   DESCRIBE   all ranks tell each other what they have submitted under new names, or differently
 *              from before
 *   SLEEP      nothing to do until a submission, or until a time
 *
 * After some equal steps of the program there is an agreed order. While it is active, a rank makes
 * the RUNs of the order, each as soon as all tensors of it are pending here, without any ROUND. A
 * rank that cannot go on so makes a ROUND where the others make a RUN. Such steps differ, so they
 * fail on all ranks: no rank has performed that RUN, as it needs all ranks, and every input is as
 * it was. Then the order is suspended everywhere at the same place, and the ranks negotiate by
 * ROUNDs, until whole operations of the order are what is left of the step: there the order is
 * resumed.
 *
 *   state         leaves it by                                                       to
 *   negotiating   a step of the program equal to the two before it                   ordered
 *   ordered       a ROUND of any rank                                                suspended
 *   suspended     all that was performed of the order are its first n operations     ordered
 *   suspended     a tensor of the order is performed twice, and another one not      negotiating
 */
#ifndef MUSTER_WORKER_ENGINE_AGREE_AGREEMENT_H
#define MUSTER_WORKER_ENGINE_AGREE_AGREEMENT_H

#include "worker/engine/agree/description.h"

struct muster_agreement;

struct muster_agreement_options {
    uint32_t rank, ranks;
    uint32_t names_max;   /* that are known at a time; the least recently used go first */
    uint32_t learn_after; /* equal steps after the first; 0: there is never an agreed order */
    uint64_t limit_bytes; /* of what goes together in the agreed order */
    uint64_t burst_bytes; /* the same, for tensors that are ready everywhere at once */
    uint64_t blob_bytes;  /* of a rank's descriptions in one DESCRIBE, at most */
    int64_t retry_least_ns, retry_most_ns; /* from a ROUND in vain to the next one */
    int64_t grace_ns; /* from the last submission until a tensor outside the order suspends it */
    int64_t late_ns;  /* the same, for tensors of the order that lack others */
};

/* The usual values for a group of so many ranks. */
struct muster_agreement_options muster_agreement_defaults(uint32_t rank, uint32_t ranks);

MUSTER_CHECKED muster_status muster_agreement_create(const struct muster_agreement_options *options,
                                                     struct muster_agreement **ret_agreement);
/* Accepts NULL. */
void muster_agreement_destroy(struct muster_agreement *agreement);

/* A tensor is pending from now on, until it is in a RUN that has succeeded or among those that
 * ended. token: the caller's, not 0. MUSTER_INVALID: it is pending already. MUSTER_FATAL: no
 * memory.
 */
MUSTER_CHECKED muster_status muster_agreement_submit(struct muster_agreement *agreement,
                                                     const char *name,
                                                     const struct muster_description *description,
                                                     uint64_t token, int64_t now_ns);

/* All tensors of a group have been submitted: it is performed in the agreed order only if all of
 * them are. */
void muster_agreement_close_group(struct muster_agreement *agreement, uint64_t group);

/* Takes back a tensor that was submitted after the last next(). */
void muster_agreement_withdraw(struct muster_agreement *agreement, const char *name);

enum muster_agreement_action {
    MUSTER_AGREEMENT_SLEEP = 0,
    MUSTER_AGREEMENT_ROUND = 1,
    MUSTER_AGREEMENT_DESCRIBE = 2,
    MUSTER_AGREEMENT_RUN = 3,
};

struct muster_agreement_step {
    enum muster_agreement_action action;
    int64_t until_ns; /* SLEEP: INT64_MAX: until a submission */
    /* ROUND: this rank's vector, to be replaced by the AND of all; the agreement's memory. */
    uint64_t *words;
    size_t word_count;
    /* RUN: the numbers of its tensors. */
    const uint32_t *tensors;
    uint32_t tensor_count;
    bool ordered;        /* RUN: in the agreed order; ROUND: against it */
    bool last;           /* RUN: of the agreed order's operations the last one */
    uint32_t first_rank; /* DESCRIBE: who tells first */
};

/* The next step. Anything but SLEEP has begun, and its result must be passed in. */
void muster_agreement_next(struct muster_agreement *agreement, int64_t now_ns,
                           struct muster_agreement_step *ret_step);

/* From this time on next() returns anything but SLEEP, if nothing is submitted; INT64_MAX: never.
 */
int64_t muster_agreement_due_ns(const struct muster_agreement *agreement);

/* The ROUND has succeeded: words[] has the AND. */
MUSTER_CHECKED muster_status muster_agreement_round_done(struct muster_agreement *agreement,
                                                         int64_t now_ns);

/* DESCRIBE has two parts: one rank tells all others what it has; then each rank tells all others
 * what it still has, that rank first, then those that follow it. It is another rank each time, so
 * that each one's names get their turn where there are more than names_max. The descriptions of
 * this rank, as bytes; borrowed until the next call. */
MUSTER_CHECKED muster_status muster_agreement_describe(struct muster_agreement *agreement,
                                                       const unsigned char **ret_bytes,
                                                       size_t *ret_size);
/* What `rank` has told, which may be this rank. MUSTER_FATAL: that is no list of descriptions. */
MUSTER_CHECKED muster_status muster_agreement_described(struct muster_agreement *agreement,
                                                        uint32_t rank, const unsigned char *bytes,
                                                        size_t size);
/* All ranks' descriptions have been passed in. */
void muster_agreement_describe_done(struct muster_agreement *agreement);

/* The RUN has succeeded; or has failed on all ranks alike, for a reason of its tensors. They are no
 * longer pending. */
void muster_agreement_run_done(struct muster_agreement *agreement, int64_t now_ns);

/* The step has failed, because other ranks have made another one. False: that cannot be, as there
 * was no agreed order to deviate from. */
MUSTER_CHECKED bool muster_agreement_deviated(struct muster_agreement *agreement);

/* Of the tensor of this number: what was submitted; 0: it is not pending here. */
uint64_t muster_agreement_token(const struct muster_agreement *agreement, uint32_t number);
const struct muster_description *
muster_agreement_description(const struct muster_agreement *agreement, uint32_t number);
const char *muster_agreement_name(const struct muster_agreement *agreement, uint32_t number);

/* Takes out a tensor that has ended without being performed, as the ranks' descriptions differ.
 * False: there is none. The text is the agreement's until the next call. */
bool muster_agreement_take_ended(struct muster_agreement *agreement, uint64_t *ret_token,
                                 const char **ret_text);

/* Gives up a tensor that is pending, and takes its token out; 0: none is. For the end of all. */
uint64_t muster_agreement_take_pending(struct muster_agreement *agreement);

/* Tensors pending here. */
uint32_t muster_agreement_pending(const struct muster_agreement *agreement);

struct muster_agreement_counts {
    uint64_t rounds, describes, descriptions, deviations, orders;
    bool ordered; /* now */
};
struct muster_agreement_counts muster_agreement_count(const struct muster_agreement *agreement);

#endif
