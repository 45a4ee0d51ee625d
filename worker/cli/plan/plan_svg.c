/* muster plan --svg: the steps, and the arrows between them. */
#include "worker/cli/plan/plan_svg_parts.h"
#include "worker/cli/svg.h"

#include <inttypes.h>

enum { ARROW_GAP = 2 }; /* pixels between a box and its arrow */

/* The style of an arrow: within a host, between hosts or between racks. */
static const char *link_style(const struct muster_topology *topology, uint32_t one, uint32_t other)
{
    struct muster_position left = muster_topology_locate(topology, one);
    struct muster_position right = muster_topology_locate(topology, other);
    if (left.host == right.host) {
        return "near";
    }
    return left.rack == right.rack ? "far" : "world";
}

static void print_arrow(const struct muster_plan_svg *svg, size_t send)
{
    const struct muster_drawn_step *drawn = &svg->scene->drawing->steps[send];
    if (drawn->step->kind != MUSTER_STEP_SEND) {
        return;
    }
    struct muster_plan_svg_box from = muster_plan_svg_step_box(svg, send);
    struct muster_plan_svg_box to = muster_plan_svg_step_box(svg, drawn->other);
    bool timed = svg->us_width > 0;
    const char *style = link_style(&svg->scene->request->topology, drawn->rank, drawn->step->peer);
    double x1 = timed ? from.x : from.x + from.width + ARROW_GAP;
    double x2 = timed ? to.x + to.width : to.x - ARROW_GAP;
    (void)fprintf(svg->out,
                  "<path class=\"%s\" marker-end=\"url(#%s)\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n",
                  style, style, x1, from.y + MUSTER_PLAN_SVG_BOX_HEIGHT / 2.0, x2,
                  to.y + MUSTER_PLAN_SVG_BOX_HEIGHT / 2.0);
}

static void print_tip(const struct muster_plan_svg *svg, size_t number, const char *label)
{
    static const char *const verbs[] = {[MUSTER_STEP_SEND] = "sends",
                                        [MUSTER_STEP_RECV] = "receives",
                                        [MUSTER_STEP_RECV_REDUCE] = "receives and adds",
                                        [MUSTER_STEP_COPY] = "copies",
                                        [MUSTER_STEP_REDUCE] = "adds",
                                        [MUSTER_STEP_GROUP_ALLREDUCE] = "gets the group's sum",
                                        [MUSTER_STEP_GROUP_REDUCE_SCATTER] =
                                            "gets its share of the group's sum",
                                        [MUSTER_STEP_GROUP_ALLGATHER] = "gets the group's shares",
                                        [MUSTER_STEP_GROUP_REDUCE] = "gives for the group's sum",
                                        [MUSTER_STEP_GROUP_BROADCAST] = "gets the root's",
                                        [MUSTER_STEP_GROUP_BARRIER] = "waits for its group with"};
    const struct muster_drawn_step *drawn = &svg->scene->drawing->steps[number];
    const struct muster_step *step = drawn->step;
    (void)fprintf(svg->out, "<title>time %" PRIu32 ": rank %" PRIu32 " %s ", drawn->column,
                  drawn->rank, verbs[step->kind]);
    muster_svg_escape(svg->out, label[0] == '\0' ? "an empty message" : label);
    if (drawn->other != SIZE_MAX) {
        (void)fprintf(svg->out, " %s rank %" PRIu32, step->kind == MUSTER_STEP_SEND ? "to" : "from",
                      step->peer);
    }
    (void)fprintf(svg->out, "</title>");
}

static void print_box(const struct muster_plan_svg *svg, size_t number)
{
    const struct muster_drawing *drawing = svg->scene->drawing;
    const struct muster_drawn_step *drawn = &drawing->steps[number];
    char label[MUSTER_DRAWING_LABEL_MAX];
    muster_drawing_label(drawing, &drawn->data, label, sizeof label);
    (void)fprintf(svg->out, "<g>");
    print_tip(svg, number, label);
    bool reduces = muster_collective_reduces(drawing->shapes[0].collective);
    muster_plan_svg_box(svg, muster_plan_svg_kind_style(drawn->step->kind),
                        muster_plan_svg_step_box(svg, number),
                        reduces ? (double)drawn->data.members / drawing->ranks : 0);
    (void)fprintf(svg->out, "</g>\n");
}

static void print_label(const struct muster_plan_svg *svg, size_t number)
{
    char label[MUSTER_PLAN_SVG_LABEL_SIZE];
    muster_drawing_label(svg->scene->drawing, &svg->scene->drawing->steps[number].data, label,
                         sizeof label);
    muster_plan_svg_label(svg, muster_plan_svg_step_box(svg, number), label);
}

/* One layer of the picture; later layers are drawn above it. */
static void print_layer(const struct muster_plan_svg *svg,
                        void (*print)(const struct muster_plan_svg *svg, size_t number))
{
    const struct muster_drawing *drawing = svg->scene->drawing;
    for (size_t i = 0; i < drawing->first_step[drawing->ranks]; i++) {
        if (muster_plan_svg_shows(svg->scene, i)) {
            print(svg, i);
        }
    }
}

muster_status muster_plan_draw(FILE *out, const struct muster_plan_scene *scene)
{
    struct muster_plan_svg svg;
    TRY(muster_plan_svg_init(scene, out, &svg));
    muster_plan_svg_print_head(&svg);
    muster_plan_svg_print_rows(&svg);
    print_layer(&svg, print_box);
    (void)fprintf(out, "<g%s>\n", svg.us_width > 0 ? " class=\"timed\"" : "");
    print_layer(&svg, print_arrow);
    (void)fprintf(out, "</g>\n");
    print_layer(&svg, print_label);
    muster_plan_svg_print_legend(&svg);
    (void)fprintf(out, "</svg>\n");
    muster_plan_svg_finish(&svg);
    return MUSTER_OK;
}
