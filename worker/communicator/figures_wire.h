/*
 * Link figures as members send them to each other: each record has one size, numbers are
 * little-endian, and decoders check what they read. Pure.
 *
 * A cost model:                              A choice of link figures:
 *   at  bytes                                  at    bytes
 *   0   8  reduce_GBps, float64                0     136    the cost model
 *   8   8  copy_GBps, float64                  136   4      levels
 *   16  4  cores                               140   4      digest of the hosts
 *   20  4  one machine, 0 or 1                 144   4      digest of the shape
 *   24  96 host, rack, world: latency_us,      148   4      number of tuned algorithms
 *          posting_us, bandwidth_GBps,         152   96x12  each: collective (1), ordered (1), size
 *          shared_GBps, float64 each                        class (2), element size (4), algorithm
 *   120 8  burst_bytes                                      (4); then zeros
 *   128 8  eager_bytes                         1304  4      bits: measure, autotune, outdated
 *
 * The description of a member's cores: machine, core set, cores, online, float64 each.
 *
 * Whether figures are possible is not checked here, but by muster_figures_check().
 * A change of a record is a new wire version (fabric/fabric.h).
 *
 * May use: figures, measure_core, collectives, base.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_FIGURES_WIRE_H
#define MUSTER_WORKER_COMMUNICATOR_FIGURES_WIRE_H

#include "worker/communicator/figures.h"
#include "worker/communicator/measure_core.h"

enum {
    MUSTER_CORE_DESCRIPTION_SIZE = 32,
    MUSTER_COST_MODEL_SIZE = 136,
    MUSTER_FIGURES_CHOICE_SIZE = 1308,
};

void muster_core_description_encode(const struct muster_core_description *description,
                                    unsigned char ret_bytes[MUSTER_CORE_DESCRIPTION_SIZE]);
/* Any bytes are a description. */
struct muster_core_description
muster_core_description_decode(const unsigned char bytes[MUSTER_CORE_DESCRIPTION_SIZE]);

void muster_cost_model_encode(const struct muster_cost_model *model,
                              unsigned char ret_bytes[MUSTER_COST_MODEL_SIZE]);
/* MUSTER_FATAL: another size, or a value that no member encodes; the text names it. So does the
 * next decoder. */
MUSTER_CHECKED muster_status muster_cost_model_decode(const unsigned char *bytes, size_t size_bytes,
                                                      struct muster_cost_model *ret_model);

/* The choice has at most MUSTER_TUNED_MAX tuned algorithms. */
void muster_figures_choice_encode(const struct muster_figures_choice *choice,
                                  unsigned char ret_bytes[MUSTER_FIGURES_CHOICE_SIZE]);
MUSTER_CHECKED muster_status muster_figures_choice_decode(const unsigned char *bytes,
                                                          size_t size_bytes,
                                                          struct muster_figures_choice *ret_choice);

#endif
