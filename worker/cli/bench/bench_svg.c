/* muster bench --svg: time and bus bandwidth over the sizes, a line for each algorithm. */
#include "worker/cli/bench/bench_parts.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"
#include "worker/cli/print.h"
#include "worker/cli/svg.h"

enum {
    WIDTH = 1240,
    PANEL_TOP = 84,
    PANEL_WIDTH = 500,
    PANEL_HEIGHT = 340,
    TIME_LEFT = 80,
    BUS_LEFT = 690,
    LEGEND_TOP = PANEL_TOP + PANEL_HEIGHT + 74,
    LEGEND_LINE = 22,
    LEGEND_COLUMN = 380,
    LEGEND_COLUMNS = 3,
    LABELS_MAX = 10, /* on the axis of sizes */
    COLOURS = 8,
    BANDWIDTH_STEPS = 5, /* up the axis of bandwidths */
};

/* The colours of Okabe and Ito, which colour-blind readers can tell apart, darker where they were
 * too light for a white background. After eight lines they repeat, first dashed, then dotted. */
static const char style_sheet[] =
    ".title{font-size:18px;font-weight:bold}\n"
    ".axis{font-size:13px;font-weight:bold}\n"
    ".frame{fill:none;stroke:#57606a}.fine{stroke:#57606a;stroke-opacity:.12}\n"
    ".line{fill:none;stroke-width:2}.dash{stroke-dasharray:7 4}.dot{stroke-dasharray:2 4}\n"
    ".c0{stroke:#0072b2}.c1{stroke:#d55e00}.c2{stroke:#009e73}.c3{stroke:#b3589a}\n"
    ".c4{stroke:#a67c00}.c5{stroke:#3a9bd0}.c6{stroke:#333}.c7{stroke:#8c6d46}\n"
    ".f0{fill:#0072b2}.f1{fill:#d55e00}.f2{fill:#009e73}.f3{fill:#b3589a}\n"
    ".f4{fill:#a67c00}.f5{fill:#3a9bd0}.f6{fill:#333}.f7{fill:#8c6d46}\n";

static const char dark_style_sheet[] =
    ".frame,.fine{stroke:#9198a1}.c6{stroke:#ddd}.f6{fill:#ddd}\n";

/* One of the two diagrams, and the ranges of its axes. */
struct panel {
    double left;
    bool logarithmic;   /* the vertical axis */
    double low, high;   /* values on the vertical axis */
    double first, last; /* sizes in bytes on the horizontal axis; first < last */
};

struct bench_picture {
    const struct muster_bench_options *options;
    const struct muster_bench_result *results; /* [size_count][algorithm_count] */
    FILE *out;
};

static const struct muster_bench_result *result_at(const struct bench_picture *picture, size_t size,
                                                   size_t algorithm)
{
    return &picture->results[size * picture->options->algorithm_count + algorithm];
}

static double value_of(const struct panel *panel, const struct muster_bench_result *result)
{
    return panel->logarithmic ? result->p50_us : result->busbw_GBps;
}

static double place_x(const struct panel *panel, double bytes)
{
    return panel->left + PANEL_WIDTH * log(bytes / panel->first) / log(panel->last / panel->first);
}

static double place_y(const struct panel *panel, double value)
{
    double share = panel->logarithmic ? log(value / panel->low) / log(panel->high / panel->low)
                                      : (value - panel->low) / (panel->high - panel->low);
    return PANEL_TOP + PANEL_HEIGHT * (1 - share);
}

/* Axes ----------------------------------------------------------------------------------------- */

/* Times: whole decades around all of them. Bandwidths: from 0 to above the highest. */
static void set_scale(const struct bench_picture *picture, struct panel *panel)
{
    double least = INFINITY;
    double most = 0;
    const struct muster_bench_options *options = picture->options;
    for (size_t i = 0; i < options->size_count * options->algorithm_count; i++) {
        const struct muster_bench_result *result = &picture->results[i];
        if (result->iterations > 0) {
            least = fmin(least, value_of(panel, result));
            most = fmax(most, value_of(panel, result));
        }
    }
    panel->low = panel->logarithmic ? pow(10, floor(log10(least))) : 0;
    panel->high = panel->logarithmic ? pow(10, ceil(log10(most))) : most * 1.05;
    if (!(panel->high > panel->low)) {
        panel->high = panel->logarithmic ? panel->low * 10 : 1;
    }
    panel->first = (double)picture->results[0].bytes;
    panel->last = panel->first;
    for (size_t i = 0; i < options->size_count; i++) {
        double bytes = (double)result_at(picture, i, 0)->bytes;
        panel->first = fmin(panel->first, bytes);
        panel->last = fmax(panel->last, bytes);
    }
    if (!(panel->last > panel->first)) { /* a single size is shown in the middle */
        panel->first /= 2;
        panel->last *= 2;
    }
}

static void print_rule(const struct bench_picture *picture, const struct panel *panel,
                       const char *style, double value)
{
    (void)fprintf(picture->out, "<path class=\"%s\" d=\"M%.1f %.1fh%d\"/>\n", style, panel->left,
                  place_y(panel, value), PANEL_WIDTH);
}

static void print_y_label(const struct bench_picture *picture, const struct panel *panel,
                          double value, const char *text)
{
    print_rule(picture, panel, "rule", value);
    muster_svg_text(picture->out, panel->left - 8, place_y(panel, value) + 4, "right", text);
}

static void print_decades(const struct bench_picture *picture, const struct panel *panel)
{
    char text[MUSTER_CLI_UNIT_TEXT_SIZE];
    int decades = (int)lround(log10(panel->high / panel->low));
    for (int i = 0; i <= decades; i++) {
        double decade = panel->low * pow(10, i);
        print_y_label(picture, panel, decade, muster_cli_format_us(decade, text));
        for (int j = 2; i < decades && j < 10; j++) {
            print_rule(picture, panel, "fine", j * decade);
        }
    }
}

static void print_steps(const struct bench_picture *picture, const struct panel *panel)
{
    char text[MUSTER_CLI_UNIT_TEXT_SIZE];
    double step = muster_svg_axis_step(panel->high, BANDWIDTH_STEPS);
    for (int i = 0; i * step <= panel->high; i++) {
        (void)snprintf(text, sizeof text, "%.4g", i * step);
        print_y_label(picture, panel, i * step, text);
    }
}

static void print_sizes(const struct bench_picture *picture, const struct panel *panel)
{
    size_t count = picture->options->size_count;
    size_t every = (count + LABELS_MAX - 1) / LABELS_MAX;
    char text[MUSTER_CLI_UNIT_TEXT_SIZE];
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = result_at(picture, i, 0)->bytes;
        double x = place_x(panel, (double)bytes);
        (void)fprintf(picture->out, "<path class=\"fine\" d=\"M%.1f %dv%d\"/>\n", x, PANEL_TOP,
                      PANEL_HEIGHT);
        if (i % every == 0) {
            muster_svg_text(picture->out, x, PANEL_TOP + PANEL_HEIGHT + 18, "middle",
                            muster_cli_format_bytes(bytes, text));
        }
    }
}

static void print_axes(const struct bench_picture *picture, const struct panel *panel)
{
    const char *title = panel->logarithmic ? "time of one call, the median (p50)"
                                           : "bus bandwidth at the median, GB/s";
    muster_svg_text(picture->out, panel->left, PANEL_TOP - 12, "axis", title);
    print_sizes(picture, panel);
    (panel->logarithmic ? print_decades : print_steps)(picture, panel);
    (void)fprintf(picture->out, "<path class=\"frame\" d=\"M%.1f %dv%dh%d\"/>\n", panel->left,
                  PANEL_TOP, PANEL_HEIGHT, PANEL_WIDTH);
    muster_svg_text(picture->out, panel->left + PANEL_WIDTH / 2.0, PANEL_TOP + PANEL_HEIGHT + 40,
                    "middle axis", "size");
}

/* Lines ---------------------------------------------------------------------------------------- */

static const char *dash_style(size_t algorithm)
{
    return algorithm < COLOURS ? "" : algorithm < (size_t)2 * COLOURS ? " dash" : " dot";
}

static const char *line_name(const struct muster_bench_options *options, size_t algorithm)
{
    const char *name = options->algorithms[algorithm];
    return name[0] != '\0' ? name : "chosen by cost";
}

static void print_points(const struct bench_picture *picture, const struct panel *panel,
                         size_t algorithm)
{
    for (size_t i = 0; i < picture->options->size_count; i++) {
        const struct muster_bench_result *result = result_at(picture, i, algorithm);
        if (result->iterations > 0) {
            (void)fprintf(
                picture->out,
                "<circle class=\"f%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"><title>%s, %" PRIu64
                " bytes: p50 %.1f us, p99 %.1f us, busbw %.3f GB/s</title></circle>\n",
                algorithm % COLOURS, place_x(panel, (double)result->bytes),
                place_y(panel, value_of(panel, result)), result->algorithm, result->bytes,
                result->p50_us, result->p99_us, result->busbw_GBps);
        }
    }
}

/* In the order of the sizes in the options. Sizes that the algorithm does not fit are left out. */
static void print_line(const struct bench_picture *picture, const struct panel *panel,
                       size_t algorithm)
{
    bool begun = false;
    for (size_t i = 0; i < picture->options->size_count; i++) {
        const struct muster_bench_result *result = result_at(picture, i, algorithm);
        if (result->iterations == 0) {
            continue;
        }
        if (!begun) {
            (void)fprintf(picture->out, "<path class=\"line c%zu%s\" d=\"M", algorithm % COLOURS,
                          dash_style(algorithm));
        }
        (void)fprintf(picture->out, "%s%.1f %.1f", begun ? "L" : "",
                      place_x(panel, (double)result->bytes),
                      place_y(panel, value_of(panel, result)));
        begun = true;
    }
    if (begun) {
        (void)fprintf(picture->out, "\"/>\n");
        print_points(picture, panel, algorithm);
    }
}

static bool has_line(const struct bench_picture *picture, size_t algorithm)
{
    for (size_t i = 0; i < picture->options->size_count; i++) {
        if (result_at(picture, i, algorithm)->iterations > 0) {
            return true;
        }
    }
    return false;
}

static void print_legend(const struct bench_picture *picture)
{
    size_t shown = 0;
    for (size_t i = 0; i < picture->options->algorithm_count; i++) {
        if (has_line(picture, i)) {
            int x = TIME_LEFT + (int)(shown % LEGEND_COLUMNS) * LEGEND_COLUMN;
            int y = LEGEND_TOP + (int)(shown / LEGEND_COLUMNS) * LEGEND_LINE;
            (void)fprintf(picture->out,
                          "<path class=\"line c%zu%s\" d=\"M%d %dh34\"/><circle class=\"f%zu\" "
                          "cx=\"%d\" cy=\"%d\" r=\"3.2\"/>",
                          i % COLOURS, dash_style(i), x, y, i % COLOURS, x + 17, y);
            muster_svg_text(picture->out, x + 42, y + 4, "name", line_name(picture->options, i));
            shown++;
        }
    }
}

/* Axes come before lines, so that lines are drawn above them. */
static void print_picture(const struct bench_picture *picture)
{
    const struct muster_bench_options *options = picture->options;
    struct panel time = {.left = TIME_LEFT, .logarithmic = true};
    struct panel bus = {.left = BUS_LEFT};
    char text[256];
    size_t lines = (options->algorithm_count + LEGEND_COLUMNS - 1) / LEGEND_COLUMNS;
    int height = LEGEND_TOP + (int)lines * LEGEND_LINE;
    muster_bench_describe(options, text, sizeof text);
    const struct muster_svg_document document = {
        .width = WIDTH, .height = height, .style = style_sheet, .dark_style = dark_style_sheet};
    muster_svg_begin(picture->out, &document);
    muster_svg_text(picture->out, TIME_LEFT, 36, "title", text);
    set_scale(picture, &time);
    set_scale(picture, &bus);
    print_axes(picture, &time);
    print_axes(picture, &bus);
    for (size_t i = 0; i < options->algorithm_count; i++) {
        print_line(picture, &time, i);
        print_line(picture, &bus, i);
    }
    print_legend(picture);
    (void)fprintf(picture->out, "</svg>\n");
}

muster_status muster_bench_check_svg(const char *path)
{
    if (path == NULL || strcmp(path, "-") == 0) {
        return MUSTER_OK;
    }
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    return fd >= 0 ? MUSTER_OK : muster_error_errno(MUSTER_FATAL, "--svg %s", path);
}

static muster_status draw(FILE *out, const void *argument)
{
    struct bench_picture picture = *(const struct bench_picture *)argument;
    picture.out = out;
    print_picture(&picture);
    return MUSTER_OK;
}

muster_status muster_bench_draw(const struct muster_bench_options *options,
                                const struct muster_bench_result *results)
{
    const struct bench_picture picture = {.options = options, .results = results};
    return muster_svg_write(options->svg, draw, &picture);
}
