/*
 * muster bench step: what its files share.
 *
 * A step is what one training step gives to the network: the gradients of a model, summed over all
 * ranks. There are several ways to do that, called sides (step_sides.c), which are measured in
 * turns. Each rank has a session of its own, without a service, and uses muster.h only.
 *
 * The phases (bench_ranks.h): the first ends when the sessions' blobs are in the shared memory, the
 * second when all results are checked and the calls are warm, the third when all is measured and
 * checked again.
 */
#ifndef MUSTER_WORKER_CLI_BENCH_STEP_STEP_PARTS_H
#define MUSTER_WORKER_CLI_BENCH_STEP_STEP_PARTS_H

#include "worker/cli/bench/bench_network.h"
#include "worker/cli/bench/bench_ranks.h"
#include "worker/cli/bench/step/models.h"
#include "worker/muster.h"

#include <stdbool.h>

enum {
    MUSTER_BENCH_STEP_SIDES_MAX = 8,
    MUSTER_BENCH_STEP_ITERATIONS_MAX = 10000,
    MUSTER_BENCH_STEP_BLOB_BYTES = 8192, /* of a session, at the most */
};

/* The order in which a rank submits its tensors. */
enum muster_bench_step_order {
    MUSTER_BENCH_STEP_RANDOM,   /* each rank's own, the same in every step */
    MUSTER_BENCH_STEP_SHUFFLED, /* each rank's own, another one in every step */
    MUSTER_BENCH_STEP_READY,    /* the model's, on all ranks */
};

struct muster_bench_step_options {
    const char *model;
    const char *transport; /* "tcp", "shm" or "verbs" */
    const char *shape;     /* the rate of the hosts' links; NULL: one host, or pretended ones */
    const char *trace;     /* the prefix of the files in which tensors are recorded, or NULL */
    uint32_t ranks, hosts;
    size_t side_count;
    size_t sides[MUSTER_BENCH_STEP_SIDES_MAX]; /* rows of muster_bench_step_sides */
    enum muster_bench_step_order order;
    uint32_t seed;
    uint32_t backward_ms; /* 0: all tensors are ready at once */
    uint32_t iterations;  /* 0: as many as fit into `seconds` */
    uint32_t seconds;
    uint32_t idle_seconds; /* how long the idle engine's processor time is measured; 0: not */
    bool in_place, json, list;
};

/* What one rank measures in one step of one side. */
struct muster_bench_step_times {
    double step_us;         /* from the first submission to the last result */
    double exposed_us;      /* from the last submission to the last result */
    double first_needed_us; /* from the first submission to the result of the model's last tensor */
};

/* The part of the shared memory that one rank writes. */
struct muster_bench_step_slot {
    unsigned char blob[MUSTER_BENCH_STEP_BLOB_BYTES]; /* of its session */
    double warm_us;                                   /* mean time of a turn of all sides */
    /* What the engine did in the measured steps of its sides. */
    muster_engine_counters engine;
    uint64_t idle_wake_ups; /* while it was idle; and the processor time of the process then */
    double idle_cpu_share;
    struct muster_bench_step_times times[MUSTER_BENCH_STEP_SIDES_MAX]
                                        [MUSTER_BENCH_STEP_ITERATIONS_MAX];
};

struct muster_bench_step_shared {
    struct muster_bench_step_options options;
    const struct muster_model *model;           /* borrowed; made before the ranks start */
    const struct muster_bench_network *network; /* of the hosts; NULL: no --shape */
    uint32_t iterations;                        /* written by the leader */
    struct muster_bench_outcome outcomes[MUSTER_BENCH_RANKS_MAX];
    struct muster_bench_step_slot slots[]; /* [ranks] */
};

/* The state of one rank. */
struct muster_bench_step_rank {
    struct muster_bench_step_shared *shared;
    struct muster_bench_step_slot *slot;
    uint32_t rank;
    int channel;
    muster_session *session;
    size_t room;                  /* elements of each buffer: those of the model, and gaps */
    float *in, *out;              /* [room] the same memory in place */
    size_t *offsets;              /* [tensors] of the tensors in the buffers */
    size_t *order;                /* [tensors] in which this rank submits them */
    muster_operation *operations; /* [tensors] in flight */
    unsigned short random[3];     /* of nrand48() */
    int64_t begin_ns;             /* of the step */
};

/* A way to do a step. */
struct muster_bench_step_side {
    const char *name;
    bool engine; /* it needs the engine */
    MUSTER_CHECKED muster_status (*run)(struct muster_bench_step_rank *rank,
                                        struct muster_bench_step_times *ret_times);
};
extern const struct muster_bench_step_side muster_bench_step_sides[];
extern const size_t muster_bench_step_side_count;

/* How many of the sides use the engine. */
size_t muster_bench_step_engine_sides(const struct muster_bench_step_options *options);

/* --sides: names with commas between. */
MUSTER_CHECKED muster_status
muster_bench_step_parse_sides(const char *text, struct muster_bench_step_options *options);

/* Buffers, offsets and order. muster_bench_step_data_finish() accepts what is half made. */
MUSTER_CHECKED muster_status muster_bench_step_data_init(struct muster_bench_step_rank *rank);
void muster_bench_step_data_finish(struct muster_bench_step_rank *rank);
/* Bytes of the buffers of one rank. */
double muster_bench_step_data_bytes(const struct muster_bench_step_options *options,
                                    const struct muster_model *model);
/* Fills the input, and poisons the output. */
void muster_bench_step_data_fill(struct muster_bench_step_rank *rank);
/* Zeroes in place, so that sums stay finite however often they are computed. */
void muster_bench_step_data_settle(struct muster_bench_step_rank *rank);
/* After a step of a side on all ranks' filled input. MUSTER_FATAL names the side, the tensor and
 * the element. */
MUSTER_CHECKED muster_status muster_bench_step_data_check(const struct muster_bench_step_rank *rank,
                                                          const char *side);
/* Draws a new order, if every step has one of its own. */
void muster_bench_step_data_next_order(struct muster_bench_step_rank *rank);

/* Runs all phases of one rank; a function for struct muster_bench_ranks_options, whose argument is
 * the shared memory. */
muster_status muster_bench_step_rank_run(void *argument, uint32_t number, int channel);

/* Starts the ranks, measures, and prints. Returns the exit status of the program. */
int muster_bench_step_lead(struct muster_bench_step_shared *shared);

MUSTER_CHECKED muster_status muster_bench_step_print(const struct muster_bench_step_shared *shared);

/* --order, and its name. */
MUSTER_CHECKED muster_status muster_bench_step_parse_order(const char *text,
                                                           enum muster_bench_step_order *ret_order);
const char *muster_bench_step_order_name(enum muster_bench_step_order order);

#endif
