/* muster bench --svg: times and bus bandwidths over the sizes, a line for each algorithm. */
#include "worker/cli/bench/bench_parts.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

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
    LABELS_MAX = 10, /* along the sizes */
    COLOURS = 8,
    TEXT_SIZE = 32,
};

/* Colours that differ for the colour-blind as well (Okabe and Ito), darker where they were too
 * light for a white ground. After eight lines they come again, dashed, and then dotted. */
static const char style_sheet[] =
    "<style>\n"
    "text{font:12px 'DejaVu Sans',Verdana,Helvetica,sans-serif;fill:#24292f}\n"
    ".title{font-size:18px;font-weight:bold}\n"
    ".axis{font-size:13px;font-weight:bold}\n"
    ".right{text-anchor:end}.middle{text-anchor:middle}\n"
    ".paper{fill:#fff}.frame{fill:none;stroke:#57606a}\n"
    ".grid{stroke:#57606a;stroke-opacity:.35}.fine{stroke:#57606a;stroke-opacity:.12}\n"
    ".line{fill:none;stroke-width:2}.dash{stroke-dasharray:7 4}.dot{stroke-dasharray:2 4}\n"
    ".c0{stroke:#0072b2}.c1{stroke:#d55e00}.c2{stroke:#009e73}.c3{stroke:#b3589a}\n"
    ".c4{stroke:#a67c00}.c5{stroke:#3a9bd0}.c6{stroke:#333}.c7{stroke:#8c6d46}\n"
    ".f0{fill:#0072b2}.f1{fill:#d55e00}.f2{fill:#009e73}.f3{fill:#b3589a}\n"
    ".f4{fill:#a67c00}.f5{fill:#3a9bd0}.f6{fill:#333}.f7{fill:#8c6d46}\n"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117}\n"
    ".frame,.grid,.fine{stroke:#9198a1}.c6{stroke:#ddd}.f6{fill:#ddd}}\n"
    "</style>\n";

/* One of the two diagrams, and what stands along its axes. */
struct panel {
    double left;
    bool logarithmic;   /* upward */
    double low, high;   /* of what goes upward */
    double first, last; /* sizes in bytes; first < last */
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

/* Whole decades around the times; from 0 to above the fastest of the bandwidths. */
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
    if (!(panel->last > panel->first)) { /* one size: in the middle */
        panel->first /= 2;
        panel->last *= 2;
    }
}

static void format_bytes(double bytes, char ret_text[TEXT_SIZE])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    size_t unit = 0;
    for (; bytes >= 1024 && unit < 3; unit++) {
        bytes /= 1024;
    }
    (void)snprintf(ret_text, TEXT_SIZE, "%.3g %s", bytes, units[unit]);
}

static void format_us(double us, char ret_text[TEXT_SIZE])
{
    const char *unit = us >= 1e6 ? "s" : us >= 1e3 ? "ms" : "us";
    double scaled = us >= 1e6 ? us / 1e6 : us >= 1e3 ? us / 1e3 : us;
    (void)snprintf(ret_text, TEXT_SIZE, "%.3g %s", scaled, unit);
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
    print_rule(picture, panel, "grid", value);
    (void)fprintf(picture->out, "<text class=\"right\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                  panel->left - 8, place_y(panel, value) + 4, text);
}

static void print_decades(const struct bench_picture *picture, const struct panel *panel)
{
    char text[TEXT_SIZE];
    int decades = (int)lround(log10(panel->high / panel->low));
    for (int i = 0; i <= decades; i++) {
        double decade = panel->low * pow(10, i);
        format_us(decade, text);
        print_y_label(picture, panel, decade, text);
        for (int j = 2; i < decades && j < 10; j++) {
            print_rule(picture, panel, "fine", j * decade);
        }
    }
}

/* Steps of 1, 2 or 5 times a power of ten, some five of them. */
static void print_steps(const struct bench_picture *picture, const struct panel *panel)
{
    char text[TEXT_SIZE];
    double rough = panel->high / 5;
    double power = pow(10, floor(log10(rough)));
    double step = rough / power < 2 ? 2 * power : rough / power < 5 ? 5 * power : 10 * power;
    for (int i = 0; i * step <= panel->high; i++) {
        (void)snprintf(text, sizeof text, "%.4g", i * step);
        print_y_label(picture, panel, i * step, text);
    }
}

static void print_sizes(const struct bench_picture *picture, const struct panel *panel)
{
    size_t count = picture->options->size_count;
    size_t every = (count + LABELS_MAX - 1) / LABELS_MAX;
    char text[TEXT_SIZE];
    for (size_t i = 0; i < count; i++) {
        double bytes = (double)result_at(picture, i, 0)->bytes;
        double x = place_x(panel, bytes);
        (void)fprintf(picture->out, "<path class=\"fine\" d=\"M%.1f %dv%d\"/>\n", x, PANEL_TOP,
                      PANEL_HEIGHT);
        if (i % every == 0) {
            format_bytes(bytes, text);
            (void)fprintf(picture->out, "<text class=\"middle\" x=\"%.1f\" y=\"%d\">%s</text>\n", x,
                          PANEL_TOP + PANEL_HEIGHT + 18, text);
        }
    }
}

static void print_axes(const struct bench_picture *picture, const struct panel *panel)
{
    const char *title = panel->logarithmic ? "time of one call, the median (p50)"
                                           : "bus bandwidth at the median, GB/s";
    (void)fprintf(picture->out, "<text class=\"axis\" x=\"%.1f\" y=\"%d\">%s</text>\n", panel->left,
                  PANEL_TOP - 12, title);
    print_sizes(picture, panel);
    (panel->logarithmic ? print_decades : print_steps)(picture, panel);
    (void)fprintf(picture->out,
                  "<path class=\"frame\" d=\"M%.1f %dv%dh%d\"/>\n<text class=\"middle axis\" "
                  "x=\"%.1f\" y=\"%d\">size</text>\n",
                  panel->left, PANEL_TOP, PANEL_HEIGHT, PANEL_WIDTH,
                  panel->left + PANEL_WIDTH / 2.0, PANEL_TOP + PANEL_HEIGHT + 40);
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

/* In the order in which sizes were asked for; sizes that it does not fit are left out. */
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
                          "cx=\"%d\" cy=\"%d\" r=\"3.2\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
                          i % COLOURS, dash_style(i), x, y, i % COLOURS, x + 17, y, x + 42, y + 4,
                          line_name(picture->options, i));
            shown++;
        }
    }
}

static void print_picture(const struct bench_picture *picture)
{
    const struct muster_bench_options *options = picture->options;
    struct panel time = {.left = TIME_LEFT, .logarithmic = true};
    struct panel bus = {.left = BUS_LEFT};
    char text[256];
    size_t lines = (options->algorithm_count + LEGEND_COLUMNS - 1) / LEGEND_COLUMNS;
    int height = LEGEND_TOP + (int)lines * LEGEND_LINE;
    muster_bench_describe(options, text, sizeof text);
    (void)fprintf(picture->out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "viewBox=\"0 0 %d %d\">\n%s<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n"
                  "<text class=\"title\" x=\"%d\" y=\"36\">%s</text>\n",
                  WIDTH, height, WIDTH, height, style_sheet, WIDTH, height, TIME_LEFT, text);
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
    if (path == NULL) {
        return MUSTER_OK;
    }
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    return fd >= 0 ? MUSTER_OK : muster_error_errno(MUSTER_FATAL, "--svg %s", path);
}

muster_status muster_bench_draw(const struct muster_bench_options *options,
                                const struct muster_bench_result *results)
{
    const struct bench_picture picture = {
        .options = options, .results = results, .out = fopen(options->svg, "we")};
    if (picture.out == NULL) {
        return muster_error_errno(MUSTER_FATAL, "--svg %s", options->svg);
    }
    print_picture(&picture);
    bool written = ferror(picture.out) == 0;
    return fclose(picture.out) == 0 && written
               ? MUSTER_OK
               : muster_error_errno(MUSTER_FATAL, "--svg %s", options->svg);
}
