/* muster timeline --svg: what members did in the time of one call, a line for each kind and peer.
 */
#include "worker/cli/timeline/timeline_reading.h"

#include <inttypes.h>

enum {
    WIDTH = 1240,
    LEFT = 210, /* of the times; the names stand there */
    RIGHT = 1200,
    TOP = 70,
    LINE_HEIGHT = 18,
    BOX_HEIGHT = 14,
    GAP = 14, /* between members */
    TICKS = 10,
    DRAWN_MAX = 20000,
};

/* Colours as in muster bench --svg. */
static const char style_sheet[] =
    "<style>\n"
    "text{font:12px 'DejaVu Sans',Verdana,Helvetica,sans-serif;fill:#24292f}\n"
    ".title{font-size:16px;font-weight:bold}.member{font-weight:bold}\n"
    ".right{text-anchor:end}.middle{text-anchor:middle}.paper{fill:#fff}\n"
    ".grid{stroke:#57606a;stroke-opacity:.25}\n"
    "rect{fill-opacity:.8;stroke:#fff;stroke-width:.4}\n"
    ".s0{fill:#8c6d46}.s1{fill:#b3589a}.s2{fill:#0072b2}.s3{fill:#3a9bd0}.s4{fill:#a67c00}\n"
    ".s5{fill:#009e73}.s6{fill:#66c2a5}.s7{fill:#d55e00}.s8{fill:#777}.s9{fill:#c9a227}.s10{fill:#"
    "b3589a}\n"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117}\n"
    "rect{stroke:#0d1117}.grid{stroke:#9198a1}}\n"
    "</style>\n";

struct picture {
    const struct muster_reading *readings; /* [count] */
    size_t count;
    uint64_t call_bytes;               /* of the first */
    struct muster_reading_span window; /* of time */
    FILE *out;
    int height;
};

/* What is drawn -------------------------------------------------------------------------------- */

/* The last one of the largest; NULL: there is none. */
static const struct muster_reading_event *find_call(const struct muster_reading *reading)
{
    const struct muster_reading_event *call = NULL;
    for (size_t i = 0; i < reading->event_count; i++) {
        const struct muster_reading_event *event = &reading->events[i];
        if (event->stage == MUSTER_TIMELINE_CALL && (call == NULL || event->bytes >= call->bytes)) {
            call = event;
        }
    }
    return call;
}

static bool is_within(const struct muster_reading_span *span,
                      const struct muster_reading_span *window)
{
    return span->start_ns < window->end_ns && span->end_ns > window->start_ns;
}

static muster_status choose_window(struct picture *picture)
{
    for (size_t i = 0; i < picture->count; i++) {
        const struct muster_reading_event *call = find_call(&picture->readings[i]);
        if (call == NULL) {
            return muster_error_set(MUSTER_INVALID, "rank %" PRIu32 " has made no call",
                                    picture->readings[i].rank);
        }
        struct muster_reading_span *window = &picture->window;
        if (i == 0) {
            picture->call_bytes = call->bytes;
            *window = call->span;
        } else if (!is_within(&call->span, window)) {
            return muster_error_set(MUSTER_INVALID,
                                    "the calls of rank %" PRIu32
                                    " were at another time than those "
                                    "of rank %" PRIu32 ": are they of one host and job?",
                                    picture->readings[i].rank, picture->readings[0].rank);
        }
        window->start_ns =
            call->span.start_ns < window->start_ns ? call->span.start_ns : window->start_ns;
        window->end_ns = call->span.end_ns > window->end_ns ? call->span.end_ns : window->end_ns;
    }
    return MUSTER_OK;
}

static bool has_spans(const struct picture *picture, const struct muster_reading *reading,
                      uint32_t line)
{
    for (size_t i = 0; i < reading->event_count; i++) {
        if (reading->events[i].line == line &&
            is_within(&reading->events[i].span, &picture->window)) {
            return true;
        }
    }
    return false;
}

static muster_status count_spans(const struct picture *picture)
{
    size_t count = 0;
    for (size_t i = 0; i < picture->count; i++) {
        const struct muster_reading *reading = &picture->readings[i];
        for (size_t j = 0; j < reading->event_count; j++) {
            count += is_within(&reading->events[j].span, &picture->window);
        }
    }
    return count <= DRAWN_MAX
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID,
                                  "the call has %zu spans: no more than %d are drawn", count,
                                  DRAWN_MAX);
}

/* Drawing -------------------------------------------------------------------------------------- */

static double place(const struct picture *picture, int64_t at_ns)
{
    const struct muster_reading_span *window = &picture->window;
    double share = (double)(at_ns - window->start_ns) / (double)(window->end_ns - window->start_ns);
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return LEFT + (RIGHT - LEFT) * share;
}

static double us(int64_t ns)
{
    return (double)ns / 1000;
}

static void draw_span(const struct picture *picture, const struct muster_reading_event *event,
                      int top)
{
    double left = place(picture, event->span.start_ns);
    (void)fprintf(picture->out,
                  "<rect class=\"s%d\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"><title>%s, "
                  "%" PRIu64 " bytes: %.1f us from %.1f us</title></rect>\n",
                  (int)event->stage, left, top, place(picture, event->span.end_ns) - left,
                  (int)BOX_HEIGHT, muster_timeline_stage_name(event->stage), event->bytes,
                  us(event->span.end_ns - event->span.start_ns),
                  us(event->span.start_ns - picture->window.start_ns));
}

static void draw_line(const struct picture *picture, const struct muster_reading *reading,
                      const struct muster_reading_line *line, int top)
{
    (void)fprintf(picture->out, "<text class=\"right\" x=\"%d\" y=\"%d\">%s</text>\n", LEFT - 8,
                  top + BOX_HEIGHT - 3, line->name);
    for (size_t i = 0; i < reading->event_count; i++) {
        const struct muster_reading_event *event = &reading->events[i];
        if (event->line == line->number && is_within(&event->span, &picture->window)) {
            draw_span(picture, event, top);
        }
    }
}

/* Returns where the next one begins. */
static int draw_member(const struct picture *picture, const struct muster_reading *reading, int top)
{
    (void)fprintf(picture->out,
                  "<text class=\"member\" x=\"16\" y=\"%d\">rank %" PRIu32 "</text>\n",
                  top + BOX_HEIGHT - 3, reading->rank);
    for (size_t i = 0; i < reading->line_count; i++) {
        if (has_spans(picture, reading, reading->lines[i].number)) {
            draw_line(picture, reading, &reading->lines[i], top);
            top += LINE_HEIGHT;
        }
    }
    return top + GAP;
}

static int find_height(const struct picture *picture)
{
    int height = TOP;
    for (size_t i = 0; i < picture->count; i++) {
        const struct muster_reading *reading = &picture->readings[i];
        for (size_t j = 0; j < reading->line_count; j++) {
            height += has_spans(picture, reading, reading->lines[j].number) ? LINE_HEIGHT : 0;
        }
        height += GAP;
    }
    return height;
}

static void draw_times(const struct picture *picture)
{
    int64_t lasted_ns = picture->window.end_ns - picture->window.start_ns;
    for (int i = 0; i <= TICKS; i++) {
        int64_t after_ns = lasted_ns * i / TICKS;
        double x = place(picture, picture->window.start_ns + after_ns);
        (void)fprintf(picture->out,
                      "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text class=\"middle\" x=\"%.1f\" "
                      "y=\"%d\">%.0f us</text>\n",
                      x, TOP - 8, picture->height - GAP, x, TOP - 12, us(after_ns));
    }
}

muster_status muster_timeline_draw(const struct muster_reading *readings, size_t count, FILE *out)
{
    struct picture picture = {.readings = readings, .count = count, .out = out};
    TRY(choose_window(&picture));
    TRY(count_spans(&picture));
    picture.height = find_height(&picture);
    (void)fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "viewBox=\"0 0 %d %d\">\n%s<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n"
        "<text class=\"title\" x=\"16\" y=\"30\">A call of %" PRIu64 " bytes: %.1f us</text>\n",
        (int)WIDTH, picture.height, (int)WIDTH, picture.height, style_sheet, (int)WIDTH,
        picture.height, picture.call_bytes, us(picture.window.end_ns - picture.window.start_ns));
    draw_times(&picture);
    int top = TOP;
    for (size_t i = 0; i < count; i++) {
        top = draw_member(&picture, &readings[i], top);
    }
    (void)fprintf(out, "</svg>\n");
    return MUSTER_OK;
}
