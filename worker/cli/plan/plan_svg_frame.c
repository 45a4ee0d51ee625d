/* muster plan --svg: the title, the rows of ranks and hosts, and the legend. */
#include "worker/cli/plan/plan_svg_parts.h"
#include "worker/cli/print.h"
#include "worker/cli/svg.h"

#include <inttypes.h>
#include <string.h>

/* In addition to the rules of all pictures (svg.c). */
static const char style_sheet[] =
    ".title{font-size:20px;font-weight:bold}\n"
    ".small{font-size:11px;fill:#57606a}\n"
    ".chunk{font:12px 'DejaVu Sans Mono',Menlo,Consolas,monospace;text-anchor:middle}\n"
    ".host{fill:#f6f8fa;stroke:#d0d7de}\n"
    ".stripe{fill:#57606a;fill-opacity:.07}\n"
    ".send{fill:#ddf0ff;stroke:#2f81f7}\n"
    ".add{fill:#ffe8cf;stroke:#d9730d}\n"
    ".take{fill:#dcf5e0;stroke:#2da44e}\n"
    ".copy{fill:#eceef1;stroke:#8c959f}\n"
    ".reduce{fill:#eee1ff;stroke:#8250df}\n"
    ".own{fill:#ffffff;stroke:#8c959f}\n"
    ".bar{fill:#24292f;fill-opacity:.55;stroke:none}\n"
    ".near{stroke:#6e7781;stroke-width:1.3;fill:none}\n"
    ".far{stroke:#cf222e;stroke-width:1.5;fill:none}\n"
    ".world{stroke:#8250df;stroke-width:1.8;stroke-dasharray:6 3;fill:none}\n"
    ".timed{opacity:.55}\n"
    ".h-near{fill:#6e7781}.h-far{fill:#cf222e}.h-world{fill:#8250df}\n";

static const char dark_style_sheet[] =
    ".small{fill:#9198a1}.host{fill:#151b23;stroke:#3d444d}.stripe{fill:#9198a1}\n"
    ".send{fill:#0c2d6b;stroke:#58a6ff}.add{fill:#5a2f00;stroke:#f0883e}\n"
    ".take{fill:#04431f;stroke:#3fb950}.copy{fill:#2a313c;stroke:#9198a1}\n"
    ".reduce{fill:#3c1e70;stroke:#a371f7}.own{fill:#0d1117;stroke:#9198a1}\n"
    ".bar{fill:#e6edf3;fill-opacity:.65}\n"
    ".near{stroke:#9198a1}.far{stroke:#ff7b72}.world{stroke:#bc8cff}\n"
    ".h-near{fill:#9198a1}.h-far{fill:#ff7b72}.h-world{fill:#bc8cff}\n";

/* What the collective does, for readers who do not know it. */
static const char *const meanings[MUSTER_COLLECTIVE_END] = {
    [MUSTER_ALLREDUCE] =
        "Every rank begins with numbers of its own and ends with the sums over all "
        "ranks.",
    [MUSTER_REDUCE_SCATTER] =
        "Every rank begins with numbers of its own and ends with its part of "
        "the sums over all ranks.",
    [MUSTER_ALLGATHER] =
        "Every rank begins with a block of its own and ends with the blocks of all "
        "ranks.",
    [MUSTER_BROADCAST] = "Every rank ends with the data of the root.",
    [MUSTER_BARRIER] = "No rank continues before all ranks have arrived.",
    [MUSTER_ALLGATHERV] =
        "Every rank begins with a block of its own, of any size, and ends with the "
        "blocks of all ranks.",
    [MUSTER_REDUCE] =
        "Every rank begins with numbers of its own; the root ends with the sums over "
        "all ranks.",
    [MUSTER_GATHER] = "Every rank begins with a block of its own; the root ends with all blocks.",
    [MUSTER_GATHERV] =
        "Every rank begins with a block of its own, of any size; the root ends with "
        "all blocks.",
    [MUSTER_SCATTER] = "The root begins with a block for each rank; each rank ends with its own.",
    [MUSTER_ALLTOALL] =
        "Every rank begins with a block for each rank and ends with the blocks for "
        "itself; 2>5 is the block of rank 2 for rank 5.",
    [MUSTER_ALLTOALLV] =
        "Every rank begins with a block, of any size, for each rank and ends with "
        "the blocks for itself; 2>5 is the block of rank 2 for rank 5.",
    [MUSTER_PAIRWISE_EXCHANGE] =
        "Every rank exchanges a part of its data with each rank whose number differs in one bit; "
        "0>2 is the part of rank 0 for rank 2.",
};

void muster_plan_svg_box(const struct muster_plan_svg *svg, const char *style,
                         struct muster_plan_svg_box box, double share)
{
    enum { BAR_HEIGHT = 3 };
    (void)fprintf(svg->out,
                  "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" "
                  "rx=\"3\"/>",
                  style, box.x, box.y, box.width, MUSTER_PLAN_SVG_BOX_HEIGHT);
    if (share > 0) {
        (void)fprintf(svg->out, "<path class=\"bar\" d=\"M%.1f %.1fh%.1fv%dh%.1fz\"/>", box.x + 1,
                      box.y + MUSTER_PLAN_SVG_BOX_HEIGHT - BAR_HEIGHT - 1, share * (box.width - 2),
                      BAR_HEIGHT, -share * (box.width - 2));
    }
}

void muster_plan_svg_label(const struct muster_plan_svg *svg, struct muster_plan_svg_box box,
                           const char *label)
{
    enum { CHARACTER_WIDTH = 7, BASELINE = 13 };
    if (label[0] != '\0' && (double)strlen(label) * CHARACTER_WIDTH <= box.width + 2) {
        muster_svg_text(svg->out, box.x + box.width / 2, box.y + BASELINE, "chunk", label);
    }
}

/* Head ----------------------------------------------------------------------------------------- */

static void print_markers(const struct muster_plan_svg *svg)
{
    static const char *const styles[] = {"near", "far", "world"};
    (void)fprintf(svg->out, "<defs>\n");
    for (size_t i = 0; i < sizeof styles / sizeof styles[0]; i++) {
        (void)fprintf(svg->out,
                      "<marker id=\"%s\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" "
                      "markerWidth=\"8\" markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" "
                      "orient=\"auto\"><path class=\"h-%s\" d=\"M0 .8L8 4L0 7.2z\"/></marker>\n",
                      styles[i], styles[i]);
    }
    (void)fprintf(svg->out, "</defs>\n");
}

/* From the general to the particular: name, request, counts, what the collective does, and how. */
static void print_title(const struct muster_plan_svg *svg)
{
    const struct muster_plan_request *request = svg->scene->request;
    const struct muster_check_result *verdict = &svg->scene->set->verdict;
    char name[MUSTER_ALGORITHM_NAME_SIZE];
    char text[MUSTER_ALGORITHM_NAME_SIZE + 32];
    muster_algorithm_print(request->algorithm, name, sizeof name);
    (void)snprintf(text, sizeof text, "%s: %s", muster_collective_name(request->plan.collective),
                   name);
    muster_svg_text(svg->out, 24, 36, "title", text);
    (void)fprintf(svg->out, "<text class=\"small\" x=\"24\" y=\"57\">");
    muster_plan_request_print(request, svg->out);
    (void)fprintf(svg->out,
                  "</text>\n<text class=\"small\" x=\"24\" y=\"74\">Rounds: at most %" PRIu32
                  " a rank; the busiest sends %" PRIu64 " message%s, %" PRIu64
                  " element%s, %" PRIu64 " bytes of float32",
                  verdict->rounds, verdict->messages_sent_max,
                  muster_cli_plural(verdict->messages_sent_max), verdict->elements_sent_max,
                  muster_cli_plural(verdict->elements_sent_max),
                  verdict->elements_sent_max * MUSTER_PLAN_ELEMENT_SIZE_BYTES);
    if (svg->us_width > 0) {
        (void)fprintf(svg->out, "; predicted time %.1f us", svg->scene->times->result.total_us);
    }
    (void)fprintf(svg->out, "</text>\n");
    muster_svg_text(svg->out, 24, 96, "plain", meanings[request->plan.collective]);
    (void)fprintf(svg->out, "<text class=\"plain\" x=\"24\" y=\"113\">How: ");
    muster_svg_escape(svg->out,
                      muster_algorithms[request->algorithm % MUSTER_ALGORITHM_ROWS_MAX].what);
    (void)fprintf(svg->out, "</text>\n");
}

double muster_plan_svg_head_width(const struct muster_plan_request *request)
{
    enum { CHARACTER_WIDTH = 7, LINE_MIN = 84 }; /* the line of figures, and "How: " */
    size_t longest = LINE_MIN;
    const char *texts[] = {meanings[request->plan.collective],
                           muster_algorithms[request->algorithm % MUSTER_ALGORITHM_ROWS_MAX].what};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        size_t length = strlen(texts[i]) + sizeof "How: ";
        longest = length > longest ? length : longest;
    }
    return (double)longest * CHARACTER_WIDTH;
}

void muster_plan_svg_print_head(const struct muster_plan_svg *svg)
{
    const struct muster_svg_document document = {.width = svg->width,
                                                 .height = svg->height,
                                                 .style = style_sheet,
                                                 .dark_style = dark_style_sheet};
    muster_svg_begin(svg->out, &document);
    (void)fprintf(svg->out, "<desc>");
    muster_svg_escape(svg->out, svg->scene->command);
    (void)fprintf(svg->out, "</desc>\n");
    print_markers(svg);
    print_title(svg);
}

/* Rows ----------------------------------------------------------------------------------------- */

/* A frame around the ranks of each host, with a name if there are several. */
static void print_hosts(const struct muster_plan_svg *svg)
{
    const struct muster_topology *topology = &svg->scene->request->topology;
    char text[64];
    for (uint32_t host = 0; host < topology->hosts; host++) {
        uint32_t first = topology->host_first[host];
        uint32_t next = first + topology->host_sizes[host];
        double gap = topology->hosts > 1 ? 20 : 6;
        double top = svg->rank_y[first] - gap;
        double bottom = next == topology->ranks ? svg->rank_y[next] : svg->rank_y[next] - 30;
        (void)fprintf(svg->out,
                      "<rect class=\"host\" x=\"12\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                      "rx=\"6\"/>\n",
                      top, svg->width - 24, bottom - top);
        if (topology->racks > 1) {
            (void)snprintf(text, sizeof text, "host %" PRIu32 ", rack %" PRIu32, host,
                           muster_topology_rack(topology, host));
        } else {
            (void)snprintf(text, sizeof text, "host %" PRIu32, host);
        }
        if (topology->hosts > 1) {
            muster_svg_text(svg->out, 24, top + 14, "small", text);
        }
    }
}

static void print_rounds(const struct muster_plan_svg *svg)
{
    char text[32];
    for (uint32_t column = 0; column < svg->scene->drawing->columns; column++) {
        double x = svg->body_x + column * svg->column_width;
        if (column % 2 == 0) {
            (void)fprintf(svg->out,
                          "<rect class=\"stripe\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                          "height=\"%.1f\"/>\n",
                          x, svg->body_y - 24, svg->column_width, svg->body_end - svg->body_y + 24);
        }
        (void)snprintf(text, sizeof text, "time %" PRIu32, column);
        muster_svg_text(svg->out, x + svg->column_width / 2, svg->body_y - 10, "small middle",
                        text);
    }
}

static void print_clock(const struct muster_plan_svg *svg)
{
    enum { CLOCK_TICKS = 10 };
    double total_us = svg->scene->times->result.total_us;
    double tick = muster_svg_axis_step(total_us, CLOCK_TICKS);
    char text[32];
    for (int i = 0; i * tick <= total_us; i++) {
        double x = svg->body_x + i * tick * svg->us_width;
        (void)fprintf(svg->out, "<path class=\"rule\" d=\"M%.1f %.1fV%.1f\"/>\n", x,
                      svg->body_y - 6, svg->body_end);
        (void)snprintf(text, sizeof text, "%g%s", i * tick, i == 0 ? " us" : "");
        muster_svg_text(svg->out, x, svg->body_y - 10, "small middle", text);
    }
}

static void print_step_data(const struct muster_plan_svg *svg, const struct muster_step_data *data,
                            double x, double width, double y)
{
    const struct muster_drawing *drawing = svg->scene->drawing;
    if (data->run_count == 0) {
        return;
    }
    char label[MUSTER_PLAN_SVG_LABEL_SIZE];
    muster_drawing_label(drawing, data, label, sizeof label);
    bool reduces = muster_collective_reduces(drawing->shapes[0].collective);
    struct muster_plan_svg_box box = {.x = x, .y = y, .width = width};
    muster_plan_svg_box(svg, "own", box, reduces ? (double)data->members / drawing->ranks : 0);
    muster_plan_svg_label(svg, box, label);
}

static void print_rank(const struct muster_plan_svg *svg, uint32_t rank)
{
    const struct muster_drawing *drawing = svg->scene->drawing;
    char text[32];
    bool is_root = muster_collective_has_root(drawing->shapes[0].collective) &&
                   rank == drawing->shapes[0].root;
    (void)snprintf(text, sizeof text, "%s %" PRIu32, is_root ? "root" : "rank", rank);
    muster_svg_text(svg->out, 24, svg->rank_y[rank] + 15, "plain", text);
    for (uint32_t lane = 0; drawing->lanes > 1 && lane < drawing->lanes; lane++) {
        (void)snprintf(text, sizeof text, "lane %" PRIu32, lane);
        muster_svg_text(svg->out, 86, svg->lane_y[(size_t)rank * drawing->lanes + lane] + 14,
                        "small", text);
    }
    print_step_data(svg, &drawing->begin[rank], svg->begin_x, svg->begin_width, svg->rank_y[rank]);
    print_step_data(svg, &drawing->end[rank], svg->end_x, svg->end_width, svg->rank_y[rank]);
    if (rank > 0 && muster_topology_locate(&svg->scene->request->topology, rank).local_rank > 0) {
        (void)fprintf(svg->out, "<path class=\"rule\" d=\"M24 %.1fH%.1f\"/>\n",
                      svg->rank_y[rank] - 5, svg->width - 24);
    }
}

void muster_plan_svg_print_rows(const struct muster_plan_svg *svg)
{
    print_hosts(svg);
    if (svg->us_width > 0) {
        print_clock(svg);
    } else {
        print_rounds(svg);
    }
    if (svg->begin_width > 0) {
        muster_svg_text(svg->out, svg->begin_x + svg->begin_width / 2, svg->body_y - 10,
                        "small middle", "begin");
        muster_svg_text(svg->out, svg->end_x + svg->end_width / 2, svg->body_y - 10, "small middle",
                        "end");
    }
    for (uint32_t rank = 0; rank < svg->scene->drawing->ranks; rank++) {
        print_rank(svg, rank);
    }
}

/* Legend --------------------------------------------------------------------------------------- */

static bool kind_occurs(const struct muster_drawing *drawing, unsigned kind)
{
    for (size_t i = 0; i < drawing->first_step[drawing->ranks]; i++) {
        if (drawing->steps[i].step->kind == kind) {
            return true;
        }
    }
    return false;
}

const char *muster_plan_svg_kind_style(unsigned kind)
{
    static const char *const styles[] = {[MUSTER_STEP_SEND] = "send",
                                         [MUSTER_STEP_RECV] = "take",
                                         [MUSTER_STEP_RECV_REDUCE] = "add",
                                         [MUSTER_STEP_COPY] = "copy",
                                         [MUSTER_STEP_REDUCE] = "reduce",
                                         [MUSTER_STEP_GROUP_ALLREDUCE] = "add",
                                         [MUSTER_STEP_GROUP_REDUCE_SCATTER] = "add",
                                         [MUSTER_STEP_GROUP_ALLGATHER] = "take",
                                         [MUSTER_STEP_GROUP_REDUCE] = "add",
                                         [MUSTER_STEP_GROUP_BROADCAST] = "take"};
    return kind < sizeof styles / sizeof styles[0] && styles[kind] != NULL ? styles[kind] : "copy";
}

/* Returns the left end of the next entry. */
static double print_entry(const struct muster_plan_svg *svg, double x, double y, const char *style,
                          bool arrow, const char *text)
{
    if (arrow) {
        (void)fprintf(svg->out,
                      "<path class=\"%s\" marker-end=\"url(#%s)\" d=\"M%.1f %.1fh26\"/>\n", style,
                      style, x, y + MUSTER_PLAN_SVG_BOX_HEIGHT / 2.0);
    } else {
        struct muster_plan_svg_box box = {.x = x, .y = y, .width = 26};
        muster_plan_svg_box(svg, style, box, 0);
        muster_plan_svg_label(svg, box, svg->scene->drawing->chunks > 0 ? "a" : "");
    }
    muster_svg_text(svg->out, x + 32, y + 14, "small", text);
    return x + 32 + 6.2 * (double)strlen(text) + 20;
}

/* First line: the kinds of steps that occur. Second line: the arrows, and the bar of sums. */
void muster_plan_svg_print_legend(const struct muster_plan_svg *svg)
{
    static const char *const texts[] = {
        [MUSTER_STEP_SEND] = "sends chunk a",
        [MUSTER_STEP_RECV] = "receives it",
        [MUSTER_STEP_RECV_REDUCE] = "receives it and adds it to its own",
        [MUSTER_STEP_COPY] = "copies it",
        [MUSTER_STEP_REDUCE] = "adds two of its own",
        [MUSTER_STEP_GROUP_ALLREDUCE] = "gets the sum of its group (allreduce)",
        [MUSTER_STEP_GROUP_REDUCE_SCATTER] = "gets its share of the group's sum",
        [MUSTER_STEP_GROUP_ALLGATHER] = "gets the shares of its group",
        [MUSTER_STEP_GROUP_REDUCE] = "the root gets the group's sum",
        [MUSTER_STEP_GROUP_BROADCAST] = "gets the root's data",
        [MUSTER_STEP_GROUP_BARRIER] = "waits for its group"};
    const struct muster_topology *topology = &svg->scene->request->topology;
    double x = 24;
    double y = svg->body_end + 12;
    for (unsigned kind = MUSTER_STEP_SEND; kind <= MUSTER_STEP_GROUP_BARRIER; kind++) {
        if (kind_occurs(svg->scene->drawing, kind)) {
            bool empty = kind == MUSTER_STEP_SEND && svg->scene->drawing->chunks == 0;
            x = print_entry(svg, x, y, muster_plan_svg_kind_style(kind), false,
                            empty ? "sends an empty message" : texts[kind]);
        }
    }
    x = 24;
    y += 28;
    x = print_entry(svg, x, y, "near", true, topology->hosts > 1 ? "within a host" : "a message");
    if (topology->hosts > 1) {
        x = print_entry(svg, x, y, "far", true, "between hosts");
    }
    if (topology->racks > 1) {
        x = print_entry(svg, x, y, "world", true, "between racks");
    }
    if (muster_collective_reduces(svg->scene->drawing->shapes[0].collective)) {
        struct muster_plan_svg_box box = {.x = x, .y = y, .width = 26};
        muster_plan_svg_box(svg, "own", box, 0.5);
        muster_plan_svg_label(svg, box, "a");
        muster_svg_text(svg->out, x + 32, y + 14, "small",
                        "the bar: the share of the ranks whose numbers are in the sum");
    }
}
