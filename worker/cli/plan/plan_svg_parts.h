/* The picture of `muster plan --svg`: the layout in pixels, and what the files of the drawing
 * share. */
#ifndef MUSTER_WORKER_CLI_PLAN_PLAN_SVG_PARTS_H
#define MUSTER_WORKER_CLI_PLAN_PLAN_SVG_PARTS_H

#include "worker/cli/plan/plan.h"

enum {
    MUSTER_PLAN_SVG_BOX_HEIGHT = 21,
    MUSTER_PLAN_SVG_TRACK_HEIGHT = 25, /* a box and the gap below it */
    MUSTER_PLAN_SVG_LABEL_SIZE = 12,   /* bytes of a chunk name in a box */
};

struct muster_plan_svg {
    const struct muster_plan_scene *scene;
    FILE *out;
    double width, height;
    double begin_x, begin_width; /* of the boxes with the chunks before the collective */
    double body_x, body_width;   /* of the rounds, or of the time axis */
    double end_x, end_width;     /* of the boxes with the chunks after the collective */
    double body_y, body_end;
    double column_width, box_width; /* without times */
    double us_width;                /* pixels of a microsecond; 0: without times */
    double *rank_y;                 /* owned [ranks + 1] */
    double *lane_y;                 /* owned [ranks x lanes] */
    uint32_t *sends;                /* owned [ranks x lanes]: how many tracks the sends need */
    uint32_t *tracks;               /* owned [steps]: the track of each step, from 0 */
};

/* plan_svg_layout.c. MUSTER_INVALID: the schedules are too large for a picture. */
MUSTER_CHECKED muster_status muster_plan_svg_init(const struct muster_plan_scene *scene, FILE *out,
                                                  struct muster_plan_svg *ret_svg);
void muster_plan_svg_finish(struct muster_plan_svg *svg);

struct muster_plan_svg_box {
    double x, y, width;
};
struct muster_plan_svg_box muster_plan_svg_step_box(const struct muster_plan_svg *svg,
                                                    size_t number);

/* False: --rank shows only the messages of another rank. */
bool muster_plan_svg_shows(const struct muster_plan_scene *scene, size_t number);

/* plan_svg_frame.c: everything around the steps. */
/* How many pixels the title needs. */
double muster_plan_svg_head_width(const struct muster_plan_request *request);
void muster_plan_svg_print_head(const struct muster_plan_svg *svg);
void muster_plan_svg_print_rows(const struct muster_plan_svg *svg);
void muster_plan_svg_print_legend(const struct muster_plan_svg *svg);

/* A box, and at its bottom a bar: the share of the ranks whose elements the sum has. */
void muster_plan_svg_box(const struct muster_plan_svg *svg, const char *style,
                         struct muster_plan_svg_box box, double share);
/* Writes the label into a box, if it fits. */
void muster_plan_svg_label(const struct muster_plan_svg *svg, struct muster_plan_svg_box box,
                           const char *label);
/* The style of the boxes of a step's kind: "send", ... */
const char *muster_plan_svg_kind_style(unsigned kind);

#endif
