/*
 * The parts of `muster plan`: the request, parsed from the command line, and the ways to show it.
 * Text and JSON go to standard output; plan.c flushes it at the end and reports errors.
 */
#ifndef MUSTER_WORKER_CLI_PLAN_PLAN_H
#define MUSTER_WORKER_CLI_PLAN_PLAN_H

#include "collectives/check/check.h"
#include "collectives/draw/drawing.h"
#include "collectives/simulate/simulate.h"
#include "worker/base/status.h"

#include <stdio.h>

enum {
    MUSTER_PLAN_RANKS_MAX = 1024,       /* for schedules that are all in memory at once */
    MUSTER_PLAN_ELEMENT_SIZE_BYTES = 4, /* of float32, which bytes and times are shown for */
};

/* The command line; NULL and false: not given. */
struct muster_plan_options {
    const char *collective, *ranks, *hosts, *racks, *algorithm, *count, *blocks, *root, *rank, *svg;
    bool check, list, formulas, steps, simulate, table, json, in_place, keep_input, finish_together;
    bool shared_memory;
};

struct muster_plan_request {
    struct muster_topology topology;
    struct muster_plan plan; /* without blocks: muster_plan_for_rank() adds them */
    size_t algorithm;
    bool chosen;             /* the algorithm has the lowest predicted time; false: it was named */
    bool one_rank;           /* only plan.rank is shown */
    uint64_t *bounds;        /* owned [ranks + 1]; NULL: all blocks have the same size */
    uint64_t *output_bounds; /* owned [ranks x (ranks + 1)]; NULL: not an alltoallv */
};

/* plan_request.c. MUSTER_INVALID says what would be possible. The request must be zeroed, and the
 * caller finishes it, also on failure. */
MUSTER_CHECKED muster_status muster_plan_request_read(const struct muster_plan_options *options,
                                                      struct muster_plan_request *request);
/* Sets the blocks from options->blocks, if the collective has blocks of different sizes. */
MUSTER_CHECKED muster_status muster_plan_request_block(const struct muster_plan_options *options,
                                                       struct muster_plan_request *request);
void muster_plan_request_finish(struct muster_plan_request *request);
/* The plan of one rank; its blocks are borrowed from the request. */
struct muster_plan muster_plan_for_rank(const struct muster_plan_request *request, uint32_t rank);
/* Prints the collective, algorithm and shape, without an end of line. */
void muster_plan_request_print(const struct muster_plan_request *request, FILE *out);

/* The schedules of all ranks. */
struct muster_plan_set {
    uint32_t ranks;
    struct muster_shape *shapes;       /* owned [ranks] */
    struct muster_schedule *schedules; /* owned [ranks] */
    struct muster_check_result verdict;
};
/* Generates and checks them. MUSTER_INVALID: more than MUSTER_PLAN_RANKS_MAX ranks. */
MUSTER_CHECKED muster_status muster_plan_set_create(const struct muster_plan_request *request,
                                                    struct muster_plan_set *ret_set);
void muster_plan_set_finish(struct muster_plan_set *set);

/* plan_simulate.c: predicted times, from the default link figures. */
struct muster_plan_times {
    struct muster_simulation *simulation; /* owned */
    struct muster_simulation_result result;
};
MUSTER_CHECKED muster_status muster_plan_times_create(const struct muster_plan_request *request,
                                                      const struct muster_plan_set *set,
                                                      struct muster_plan_times *ret_times);
void muster_plan_times_finish(struct muster_plan_times *times);
/* The times of one step of the drawing. */
struct muster_step_times muster_plan_times_of(const struct muster_plan_times *times,
                                              const struct muster_drawing *drawing, size_t number);

/* What a drawing shows. */
struct muster_plan_scene {
    const struct muster_plan_request *request;
    const struct muster_plan_set *set;
    const struct muster_drawing *drawing;
    const struct muster_plan_times *times; /* NULL: no times are shown */
    const char *command;                   /* the command that makes the same picture */
};

/* plan_text.c: prints the rounds from top to bottom with a column for each rank. False: it would be
 * too wide or too long, and nothing was printed. */
bool muster_plan_print_grid(const struct muster_plan_scene *scene);
/* Prints the steps of one rank, a line each, with the chunks that they move. */
void muster_plan_print_rank(const struct muster_plan_scene *scene, uint32_t rank);

/* plan_svg.c. MUSTER_INVALID: the schedules are too large for a picture. */
MUSTER_CHECKED muster_status muster_plan_draw(FILE *out, const struct muster_plan_scene *scene);

/* plan_table.c. Predicted times of all algorithms over a range of sizes; the fastest is marked. */
MUSTER_CHECKED muster_status muster_plan_print_table(const struct muster_plan_request *request,
                                                     bool json);
/* The predicted time of the named algorithm, or, without a name, of all that fit. */
MUSTER_CHECKED muster_status muster_plan_print_times(const struct muster_plan_request *request,
                                                     bool json);
/* The table of collectives/algorithms/CATALOGUE.md: the formulas, and the counts of real schedules
 * for some P. */
MUSTER_CHECKED muster_status muster_plan_print_formulas(void);

/* plan_json.c. All collectives and algorithms, a line each, as text or JSON. */
MUSTER_CHECKED muster_status muster_plan_print_list(bool json);
/* One line of JSON. */
MUSTER_CHECKED muster_status muster_plan_print_verdict_json(
    const struct muster_plan_request *request, const struct muster_check_result *verdict);
MUSTER_CHECKED muster_status muster_plan_print_time_json(const struct muster_plan_request *request,
                                                         size_t algorithm, double time_us,
                                                         bool chosen);
/* One line for each step, of all ranks or of the requested one. */
MUSTER_CHECKED muster_status muster_plan_print_steps_json(const struct muster_plan_scene *scene);

#endif
