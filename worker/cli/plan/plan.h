/*
 * The parts of `muster plan`: what was asked, understood; and the ways to show it. All of them
 * print to a stream that plan.c opened, closes, and asks for errors.
 */
#ifndef MUSTER_WORKER_CLI_PLAN_PLAN_H
#define MUSTER_WORKER_CLI_PLAN_PLAN_H

#include "collectives/check/check.h"
#include "collectives/draw/drawing.h"
#include "collectives/simulate/simulate.h"
#include "worker/base/status.h"

#include <stdio.h>

enum {
    MUSTER_PLAN_RANKS_MAX = 1024,       /* whose schedules are all held at once */
    MUSTER_PLAN_ELEMENT_SIZE_BYTES = 4, /* float32, where bytes and times are told */
};

/* The command line; NULL and false where nothing was said. */
struct muster_plan_options {
    const char *collective, *ranks, *hosts, *racks, *algorithm, *count, *blocks, *root, *rank, *svg;
    bool check, list, formulas, steps, simulate, table, json, in_place;
};

struct muster_plan_request {
    struct muster_topology topology;
    struct muster_plan plan; /* without blocks: muster_plan_request_of() adds them */
    size_t algorithm;
    bool chosen;             /* by predicted time: nobody named one */
    bool one_rank;           /* plan.rank only */
    uint64_t *bounds;        /* owned [ranks + 1], or NULL: all blocks are alike */
    uint64_t *output_bounds; /* owned [ranks x (ranks + 1)], in an alltoallv */
};

/* plan_request.c. MUSTER_INVALID says what would be possible. The request is the caller's to
 * finish, also on failure; it must be zeroed. */
MUSTER_CHECKED muster_status muster_plan_request_read(const struct muster_plan_options *options,
                                                      struct muster_plan_request *request);
/* Blocks out of options->blocks, where the collective has or needs them. */
MUSTER_CHECKED muster_status muster_plan_request_block(const struct muster_plan_options *options,
                                                       struct muster_plan_request *request);
void muster_plan_request_finish(struct muster_plan_request *request);
/* The plan of one rank, its blocks borrowed from the request. */
struct muster_plan muster_plan_request_of(const struct muster_plan_request *request, uint32_t rank);
/* The collective, algorithm and shape, without an end of line. */
void muster_plan_request_print(const struct muster_plan_request *request, FILE *out);

/* The schedules of all ranks. */
struct muster_plan_set {
    uint32_t ranks;
    struct muster_shape *shapes;       /* owned [ranks] */
    struct muster_schedule *schedules; /* owned [ranks] */
    struct muster_check_result verdict;
};
/* Generates and checks. MUSTER_INVALID: more than MUSTER_PLAN_RANKS_MAX ranks. */
MUSTER_CHECKED muster_status muster_plan_set_create(const struct muster_plan_request *request,
                                                    struct muster_plan_set *ret_set);
void muster_plan_set_finish(struct muster_plan_set *set);

/* plan_simulate.c: predicted times, by the default figures. */
struct muster_plan_times {
    struct muster_simulation *simulation; /* owned */
    struct muster_simulation_result result;
};
MUSTER_CHECKED muster_status muster_plan_times_create(const struct muster_plan_request *request,
                                                      const struct muster_plan_set *set,
                                                      struct muster_plan_times *ret_times);
void muster_plan_times_finish(struct muster_plan_times *times);
/* The times of a drawn step. */
struct muster_step_times muster_plan_times_of(const struct muster_plan_times *times,
                                              const struct muster_drawing *drawing, size_t number);

/* What a picture is made of. */
struct muster_plan_scene {
    const struct muster_plan_request *request;
    const struct muster_plan_set *set;
    const struct muster_drawing *drawing;
    const struct muster_plan_times *times; /* NULL: none are shown */
    const char *command;                   /* that draws it again */
};

/* plan_text.c: rounds from top to bottom, a column for each rank. False: it would be too wide or
 * too long, and nothing was printed. */
bool muster_plan_print_grid(const struct muster_plan_scene *scene);
/* Every step of one rank, a line each, with the chunks that it moves. */
void muster_plan_print_rank(const struct muster_plan_scene *scene, uint32_t rank);

/* plan_svg.c. MUSTER_INVALID: too large for a picture. */
MUSTER_CHECKED muster_status muster_plan_draw(FILE *out, const struct muster_plan_scene *scene);

/* plan_table.c. All algorithms of the collective over sizes of the count, the fastest marked. */
MUSTER_CHECKED muster_status muster_plan_print_table(const struct muster_plan_request *request,
                                                     bool json);
/* Predicted times: of the algorithm that was named, or of all that fit. */
MUSTER_CHECKED muster_status muster_plan_print_times(const struct muster_plan_request *request,
                                                     bool json);
/* For collectives/algorithms/CATALOGUE.md: formulas, and what schedules come to for some P. */
MUSTER_CHECKED muster_status muster_plan_print_formulas(void);

/* plan_json.c. All collectives and algorithms, a line each. */
MUSTER_CHECKED muster_status muster_plan_print_list(bool json);
/* One line of JSON. */
MUSTER_CHECKED muster_status muster_plan_print_verdict_json(
    const struct muster_plan_request *request, const struct muster_check_result *verdict);
MUSTER_CHECKED muster_status muster_plan_print_time_json(const struct muster_plan_request *request,
                                                         size_t algorithm, double time_us,
                                                         bool chosen);
/* A line for each step; of one rank, if one was asked for. */
MUSTER_CHECKED muster_status muster_plan_print_steps_json(const struct muster_plan_scene *scene);

#endif
