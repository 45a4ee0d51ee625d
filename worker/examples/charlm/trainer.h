/*
 * Training with the members of a job, or alone: each member computes the gradient of its share of a
 * step's samples, the gradients are added up while the backward pass goes on, and every member
 * applies the same step.
 *
 * Without a session (NULL) this process trains alone, without collectives.
 */
#ifndef CHARLM_TRAINER_H
#define CHARLM_TRAINER_H

#include <muster.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/examples/charlm/adam.h"
#include "worker/examples/charlm/charlm_options.h"
#include "worker/examples/charlm/data.h"
#include "worker/examples/charlm/model.h"

/* What the job must not lose, besides the weights and Adam's moments. */
struct charlm_progress {
    uint64_t steps_done;
    double loss; /* moving average, in nats a character */
    struct charlm_adam_powers powers;
    uint64_t recipe; /* a digest of the data and of the options that change the result */
};

struct charlm_trainer {
    const struct charlm_options *options; /* borrowed */
    const struct charlm_data *data;       /* borrowed */
    muster_session *session;              /* borrowed; NULL: alone */
    struct charlm_model model;
    struct charlm_adam adam;
    struct charlm_progress progress;
    uint64_t own_recipe;
    float *gradient; /* parameter_count + 1: the last is the loss */
    uint8_t *contexts, *targets;
};

/* False: no memory, after printing one line; nothing is allocated. */
bool charlm_trainer_init(struct charlm_trainer *trainer, const struct charlm_options *options,
                         const struct charlm_data *data);
void charlm_trainer_finish(struct charlm_trainer *trainer);

/* Registers the state with the session, and uses the session from now on. */
MUSTER_CHECKED muster_status charlm_trainer_register(struct charlm_trainer *trainer,
                                                     muster_session *session);

uint32_t charlm_trainer_rank(const struct charlm_trainer *trainer);
uint32_t charlm_trainer_size(const struct charlm_trainer *trainer);

/* True if this member was started with the data and options that the job trains with. */
bool charlm_trainer_agrees(const struct charlm_trainer *trainer);

/* One step of training. The average loss of its samples is in progress.loss's moving average. */
MUSTER_CHECKED muster_status charlm_trainer_step(struct charlm_trainer *trainer);

/* The loss a character over the held-out lines, computed by all members together. */
MUSTER_CHECKED muster_status charlm_trainer_held_out(struct charlm_trainer *trainer,
                                                     double *ret_loss);

/* The digest of this member's weights; *ret_same: all members have the same. */
MUSTER_CHECKED muster_status charlm_trainer_digest(struct charlm_trainer *trainer,
                                                   uint64_t *ret_digest, bool *ret_same);

#endif
