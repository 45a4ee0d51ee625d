/* The parts of an agreement. Private to this folder. */
#ifndef MUSTER_WORKER_ENGINE_AGREE_AGREEMENT_PARTS_H
#define MUSTER_WORKER_ENGINE_AGREE_AGREEMENT_PARTS_H

#include <sys/queue.h>

#include <uthash.h>

#include "worker/engine/agree/agreement.h"
#include "worker/engine/agree/fusion.h"

#define MUSTER_AGREEMENT_NONE UINT32_MAX

/* What a rank has described differently from what was known. */
struct muster_alternative {
    uint32_t rank;
    struct muster_description description;
};

struct muster_agree_tensor {
    char *name; /* owned */
    UT_hash_handle by_name;

    /* Replicated, if it has a number. */
    uint32_t number; /* MUSTER_AGREEMENT_NONE: not all ranks know the name */
    struct muster_description described;
    struct muster_alternative *alternatives; /* owned [alternative_count] */
    uint32_t alternative_count;
    uint64_t numbered;  /* the DESCRIBE that gave it its number */
    uint64_t last_use;  /* for eviction: the count of agreed tensors then */
    uint64_t last_step; /* of the learner, in which it was performed */
    uint64_t pass;      /* of the order, in which it was performed */
    uint32_t operation; /* of the order; MUSTER_AGREEMENT_NONE: it is not in it */

    /* This rank's. */
    bool pending;
    bool waits_to_describe; /* in the list of those */
    bool covered;           /* pending, and the agreed order will perform it */
    bool held;              /* it may not, for the sake of another tensor of the group */
    uint64_t token;
    struct muster_description own; /* while it is pending */
    TAILQ_ENTRY(muster_agree_tensor) order;
};

TAILQ_HEAD(muster_agree_tensors, muster_agree_tensor);

/* Finds out whether steps of the program are equal: in which set of tensors each step has
 * performed, and in which order they were ready. Replicated. */
struct muster_learner {
    uint64_t step;      /* from 2, so that a tensor's 0 is none of them */
    uint32_t *sequence; /* owned [room] the numbers that this step has performed */
    uint32_t count, room;
    uint32_t repeated;                /* of them: performed in the step before, too */
    uint32_t before;                  /* how many that one had; 0: there is none */
    uint32_t equal;                   /* steps in a row */
    uint64_t first_round, last_round; /* of this step */
};

struct muster_agreed_order {
    /* Replicated. */
    bool exists, active;
    struct muster_fusion_plan plan;
    uint32_t position; /* active: the next operation */
    uint64_t pass;     /* counts how often it has begun */
    uint32_t *done;    /* owned [plan.operations] suspended: tensors performed in this pass */
    uint32_t rare;     /* tensors outside it that were performed since the last one inside */
    /* This rank's. */
    uint32_t *missing; /* owned [plan.operations] its tensors that are not pending */
};

struct muster_ended_tensor {
    uint64_t token;
    char *text; /* owned */
};

struct muster_agreement {
    struct muster_agreement_options options;
    struct muster_agree_tensor *names;     /* hash */
    struct muster_agree_tensor **numbered; /* owned [number_room]; NULL: a free number */
    uint32_t number_count, number_room;    /* replicated */
    uint64_t uses;                         /* replicated: agreed tensors so far */
    uint64_t *ready;                       /* owned [number_room / 64] this rank's bits */
    uint64_t *words;                       /* owned [number_room / 64 + 1] of a ROUND */

    struct muster_learner learner;
    struct muster_agreed_order order;
    struct muster_fusion_plan queue; /* replicated: agreed operations, and the next of them */
    uint32_t queue_next;
    bool describing; /* replicated: the next step is a DESCRIBE */

    enum muster_agreement_action begun; /* the step whose result is due */
    struct muster_agree_tensors to_describe;
    uint32_t pending;         /* tensors */
    uint32_t covered;         /* of them */
    uint32_t uncovered_fresh; /* neither covered nor offered in a ROUND yet */
    bool fresh;               /* something was submitted since the last ROUND began */
    bool forced;              /* a ROUND is due on all ranks */
    int64_t submitted_ns;     /* the last submission */
    int64_t retry_ns, retry_after_ns;
    int64_t patience_ns; /* from a resumption until a tensor outside the order suspends it again */

    unsigned char *blob; /* owned [blob_room] */
    size_t blob_room;
    uint32_t *common;                               /* owned [number_room] scratch of a ROUND */
    const struct muster_description **descriptions; /* owned [number_room] likewise */
    struct muster_ended_tensor *ended;              /* owned [ended_room] */
    size_t ended_count, ended_room;
    char *ended_text; /* owned: of the one that was taken last */
    struct muster_agreement_counts counts;
};

/* agreement_names.c ---------------------------------------------------------------------------- */

/* The tensor of this name, which is made if there is none; NULL: no memory. */
struct muster_agree_tensor *muster_agreement_name_tensor(struct muster_agreement *agreement,
                                                         const char *name);
void muster_agreement_forget_tensor(struct muster_agreement *agreement,
                                    struct muster_agree_tensor *tensor);
/* The tensor, which is ready everywhere, has one description on all ranks; else it has ended, if it
 * was pending here. */
MUSTER_CHECKED muster_status muster_agreement_settle(struct muster_agreement *agreement,
                                                     struct muster_agree_tensor *tensor,
                                                     bool *ret_agreed);
/* Ends it, pending or not, with this text. */
MUSTER_CHECKED muster_status muster_agreement_end_tensor(struct muster_agreement *agreement,
                                                         struct muster_agree_tensor *tensor,
                                                         const char *text);

/* pending_tensors.c ---------------------------------------------------------------------------- */

/* How the rank has described the tensor, if not like the known description; else NULL. */
const struct muster_alternative *
muster_agreement_alternative(const struct muster_agree_tensor *tensor, uint32_t rank);
/* What a tensor that is pending waits for follows from its description and the known one. */
void muster_agreement_place(struct muster_agreement *agreement, struct muster_agree_tensor *tensor);
/* It is no longer pending. */
void muster_agreement_release(struct muster_agreement *agreement,
                              struct muster_agree_tensor *tensor);
/* Clears the bits of tensors of whose group some are not described yet. */
void muster_agreement_hide_groups(const struct muster_agreement *agreement, uint64_t *words);

/* agreed_order.c ------------------------------------------------------------------------------- */

void muster_agreed_order_finish(struct muster_agreed_order *order);

/* The tensor has been agreed on, and will be performed after those before it. */
MUSTER_CHECKED muster_status muster_agreement_note(struct muster_agreement *agreement,
                                                   struct muster_agree_tensor *tensor);
/* No agreed operation is left: resumes the order if what was performed is its beginning. */
void muster_agreement_try_resume(struct muster_agreement *agreement, int64_t now_ns);
/* An active order stops at its position. */
void muster_agreement_suspend(struct muster_agreement *agreement);
/* There is no order any more, and the learner begins again. */
void muster_agreement_drop_order(struct muster_agreement *agreement);

static inline bool muster_agreement_get_bit(const uint64_t *words, uint32_t number)
{
    return (words[number / 64] >> (number % 64) & 1) != 0;
}

#endif
