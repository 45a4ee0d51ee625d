/* muster plan --svg: the layout, which rows, columns and tracks the steps have. */
#include "worker/cli/plan/plan_svg_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    RANKS_MAX = 64,
    COLUMNS_MAX = 256,
    STEPS_MAX = 8192,
    MARGIN = 24,
    HEAD_HEIGHT = 154,   /* above the first row */
    RANK_WIDTH = 62,     /* of "rank 12" */
    LANE_WIDTH = 44,     /* of "lane 1" */
    ROW_GAP = 7,         /* between ranks */
    LANE_GAP = 2,        /* between lanes */
    HOST_GAP = 30,       /* between hosts, with a name in it */
    ARROW_WIDTH = 46,    /* between the two boxes of a message */
    COLUMN_GAP = 14,     /* between two rounds */
    CHARACTER_WIDTH = 7, /* of a label */
    TIMED_WIDTH = 1120,
    CLOCK_MARGIN = 16, /* for "0 us" */
    LEGEND_HEIGHT = 74,
};

bool muster_plan_svg_shows(const struct muster_plan_scene *scene, size_t number)
{
    if (!scene->request->one_rank) {
        return true;
    }
    const struct muster_drawn_step *drawn = &scene->drawing->steps[number];
    uint32_t rank = scene->request->plan.rank;
    return drawn->rank == rank ||
           (drawn->other != SIZE_MAX && scene->drawing->steps[drawn->other].rank == rank);
}

static muster_status check_size(const struct muster_plan_scene *scene)
{
    const struct muster_drawing *drawing = scene->drawing;
    size_t steps = 0;
    for (size_t i = 0; i < drawing->first_step[drawing->ranks]; i++) {
        steps += muster_plan_svg_shows(scene, i) ? 1 : 0;
    }
    if (drawing->ranks > RANKS_MAX || drawing->columns > COLUMNS_MAX || steps > STEPS_MAX) {
        return muster_error_set(MUSTER_INVALID,
                                "--svg: %" PRIu32 " ranks, %" PRIu32
                                " rounds and %zu steps are too many for a picture: at most %d, %d "
                                "and %d fit; --rank R shows only the messages of one rank",
                                drawing->ranks, drawing->columns, steps, RANKS_MAX, COLUMNS_MAX,
                                STEPS_MAX);
    }
    return MUSTER_OK;
}

static double label_width(const struct muster_drawing *drawing, const struct muster_step_data *data)
{
    char label[MUSTER_PLAN_SVG_LABEL_SIZE];
    muster_drawing_label(drawing, data, label, sizeof label);
    double width = (double)strlen(label) * CHARACTER_WIDTH + 10;
    return width < MUSTER_PLAN_SVG_TRACK_HEIGHT ? MUSTER_PLAN_SVG_TRACK_HEIGHT : width;
}

static void grow_to(double *width, double wanted)
{
    *width = wanted > *width ? wanted : *width;
}

/* All boxes of a kind are as wide as the longest label among them. */
static void measure_boxes(struct muster_plan_svg *svg)
{
    const struct muster_drawing *drawing = svg->scene->drawing;
    for (size_t i = 0; i < drawing->first_step[drawing->ranks]; i++) {
        if (muster_plan_svg_shows(svg->scene, i)) {
            grow_to(&svg->box_width, label_width(drawing, &drawing->steps[i].data));
        }
    }
    for (uint32_t rank = 0; drawing->chunks > 0 && rank < drawing->ranks; rank++) {
        grow_to(&svg->begin_width, label_width(drawing, &drawing->begin[rank]));
        grow_to(&svg->end_width, label_width(drawing, &drawing->end[rank]));
    }
}

static size_t lane_index(const struct muster_drawing *drawing, size_t number)
{
    const struct muster_drawn_step *drawn = &drawing->steps[number];
    return (size_t)drawn->rank * drawing->lanes + drawn->step->lane;
}

/* True if two steps would be drawn over each other: they need two tracks. */
static bool share_place(const struct muster_drawn_step *left, const struct muster_drawn_step *right)
{
    return left->rank == right->rank && left->step->lane == right->step->lane &&
           left->step->round == right->step->round &&
           (left->step->kind == MUSTER_STEP_SEND) == (right->step->kind == MUSTER_STEP_SEND);
}

static void find_tracks(struct muster_plan_svg *svg, uint32_t *others)
{
    const struct muster_drawing *drawing = svg->scene->drawing;
    for (size_t i = 0; i < drawing->first_step[drawing->ranks]; i++) {
        const struct muster_drawn_step *drawn = &drawing->steps[i];
        if (!muster_plan_svg_shows(svg->scene, i)) {
            continue;
        }
        for (size_t j = i; j > 0 && drawing->steps[j - 1].rank == drawn->rank &&
                           drawing->steps[j - 1].step->lane == drawn->step->lane &&
                           drawing->steps[j - 1].step->round == drawn->step->round;
             j--) {
            svg->tracks[i] += share_place(&drawing->steps[j - 1], drawn) &&
                                      muster_plan_svg_shows(svg->scene, j - 1)
                                  ? 1
                                  : 0;
        }
        bool sends = drawn->step->kind == MUSTER_STEP_SEND;
        uint32_t *tracks = &(sends ? svg->sends : others)[lane_index(drawing, i)];
        *tracks = svg->tracks[i] + 1 > *tracks ? svg->tracks[i] + 1 : *tracks;
    }
}

/* Without times, sends are left of receives on the same tracks. With times, sends have the tracks
 * above. */
static uint32_t lane_tracks(const struct muster_plan_svg *svg, const uint32_t *others, size_t lane)
{
    uint32_t sends = svg->sends[lane];
    uint32_t most = sends > others[lane] ? sends : others[lane];
    uint32_t tracks = svg->scene->times != NULL ? sends + others[lane] : most;
    return tracks == 0 ? 1 : tracks;
}

static void place_rows(struct muster_plan_svg *svg, const uint32_t *others)
{
    const struct muster_drawing *drawing = svg->scene->drawing;
    const struct muster_topology *topology = &svg->scene->request->topology;
    double y = HEAD_HEIGHT;
    svg->body_y = y;
    for (uint32_t rank = 0; rank < drawing->ranks; rank++) {
        struct muster_position position = muster_topology_locate(topology, rank);
        if (position.local_rank == 0 && topology->hosts > 1) {
            y += rank == 0 ? HOST_GAP - 12 : HOST_GAP;
        }
        svg->rank_y[rank] = y;
        for (uint32_t lane = 0; lane < drawing->lanes; lane++) {
            size_t index = (size_t)rank * drawing->lanes + lane;
            svg->lane_y[index] = y;
            y += lane_tracks(svg, others, index) * (double)MUSTER_PLAN_SVG_TRACK_HEIGHT + LANE_GAP;
        }
        y += ROW_GAP;
    }
    svg->rank_y[drawing->ranks] = y;
    svg->body_end = y + 2;
    svg->height = svg->body_end + LEGEND_HEIGHT;
}

static void place_columns(struct muster_plan_svg *svg)
{
    const struct muster_drawing *drawing = svg->scene->drawing;
    double total_us = svg->scene->times == NULL ? 0 : svg->scene->times->result.total_us;
    svg->column_width = 2 * svg->box_width + ARROW_WIDTH + COLUMN_GAP;
    svg->begin_x = MARGIN + RANK_WIDTH + (drawing->lanes > 1 ? LANE_WIDTH : 0);
    svg->body_x = svg->begin_x + svg->begin_width + (svg->begin_width > 0 ? 16 : 0);
    if (svg->scene->times != NULL && total_us > 0) {
        svg->body_x += CLOCK_MARGIN;
        svg->body_width = TIMED_WIDTH;
        svg->us_width = TIMED_WIDTH / total_us;
    } else {
        svg->body_width = drawing->columns * svg->column_width;
    }
    svg->end_x = svg->body_x + svg->body_width + 16;
    grow_to(&svg->width, svg->end_x + svg->end_width + MARGIN);
    grow_to(&svg->width, muster_plan_svg_head_width(svg->scene->request) + 2 * MARGIN);
}

/* The order matters: labels give the width of boxes, tracks the height of rows, and both the size
 * of the picture. */
muster_status muster_plan_svg_init(const struct muster_plan_scene *scene, FILE *out,
                                   struct muster_plan_svg *ret_svg)
{
    TRY(check_size(scene));
    const struct muster_drawing *drawing = scene->drawing;
    struct muster_plan_svg svg = {.scene = scene, .out = out};
    size_t lanes = (size_t)drawing->ranks * drawing->lanes + 1;
    svg.rank_y = calloc((size_t)drawing->ranks + 1, sizeof *svg.rank_y);
    svg.lane_y = calloc(lanes, sizeof *svg.lane_y);
    svg.sends = calloc(lanes, sizeof *svg.sends);
    svg.tracks = calloc(drawing->first_step[drawing->ranks] + 1, sizeof *svg.tracks);
    uint32_t *others = calloc(lanes, sizeof *others);
    if (svg.rank_y == NULL || svg.lane_y == NULL || svg.sends == NULL || svg.tracks == NULL ||
        others == NULL) {
        free(others);
        muster_plan_svg_finish(&svg);
        return muster_error_set(MUSTER_FATAL, "--svg: no memory");
    }
    measure_boxes(&svg);
    find_tracks(&svg, others);
    place_rows(&svg, others);
    place_columns(&svg);
    free(others);
    *ret_svg = svg;
    return MUSTER_OK;
}

void muster_plan_svg_finish(struct muster_plan_svg *svg)
{
    free(svg->rank_y);
    free(svg->lane_y);
    free(svg->sends);
    free(svg->tracks);
    *svg = (struct muster_plan_svg){0};
}

struct muster_plan_svg_box muster_plan_svg_step_box(const struct muster_plan_svg *svg,
                                                    size_t number)
{
    const struct muster_drawing *drawing = svg->scene->drawing;
    const struct muster_drawn_step *drawn = &drawing->steps[number];
    size_t lane = lane_index(drawing, number);
    bool sends = drawn->step->kind == MUSTER_STEP_SEND;
    double y = svg->lane_y[lane] + svg->tracks[number] * (double)MUSTER_PLAN_SVG_TRACK_HEIGHT;
    if (svg->us_width > 0) {
        struct muster_step_times times = muster_plan_times_of(svg->scene->times, drawing, number);
        y += sends ? 0 : svg->sends[lane] * (double)MUSTER_PLAN_SVG_TRACK_HEIGHT;
        return (struct muster_plan_svg_box){.x = svg->body_x + times.start_us * svg->us_width,
                                            .y = y,
                                            .width =
                                                (times.end_us - times.start_us) * svg->us_width};
    }
    double x = svg->body_x + drawn->column * svg->column_width + COLUMN_GAP / 2.0;
    return (struct muster_plan_svg_box){
        .x = sends ? x : x + svg->box_width + ARROW_WIDTH, .y = y, .width = svg->box_width};
}
