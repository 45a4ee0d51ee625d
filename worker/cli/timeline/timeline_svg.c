/* muster timeline --svg: the spans of all members during one call, a line for each stage and peer;
 * or during a step, a line for each named tensor. */
#include "worker/cli/svg.h"
#include "worker/cli/timeline/parsed_timeline.h"

#include <inttypes.h>

enum {
    WIDTH = 1240,
    LEFT = 210, /* of the time axis; the names of the tracks are left of it */
    RIGHT = 1200,
    TOP = 70,
    LINE_HEIGHT = 18,
    BOX_HEIGHT = 14,
    GAP = 14,   /* between members */
    STEPS = 10, /* of the axis, at most */
    DRAWN_MAX = 20000,
};

/* Colours as in muster bench --svg. */
static const char style_sheet[] =
    ".title{font-size:16px;font-weight:bold}.member{font-weight:bold}\n"
    ".span{fill-opacity:.8;stroke:#fff;stroke-width:.4}\n"
    ".s0{fill:#8c6d46}.s1{fill:#b3589a}.s2{fill:#0072b2}.s3{fill:#3a9bd0}.s4{fill:#a67c00}\n"
    ".s5{fill:#009e73}.s6{fill:#66c2a5}.s7{fill:#d55e00}.s8{fill:#777}.s9{fill:#c9a227}\n"
    ".s10{fill:#b3589a}.s11{fill:#ccc}.s12{fill:#c9a227}.s13{fill:#0072b2}\n"
    ".now{stroke:#d55e00;stroke-width:1.5;stroke-dasharray:4 3}\n";

static const char dark_style_sheet[] = ".span{stroke:#0d1117}\n";

struct timeline_picture {
    const struct muster_parsed_timeline *timelines; /* [count] */
    size_t count;
    enum muster_timeline_subject subject;
    uint64_t bytes;                       /* of the first member's call, or step */
    struct muster_parsed_interval window; /* the time that is drawn */
    int64_t submitted_ns;                 /* when the first member's last tensor was; or 0 */
    FILE *out;
    int height;
};

/* What is drawn -------------------------------------------------------------------------------- */

/* The last of the largest calls; NULL: there is no call. */
static const struct muster_parsed_event *find_call(const struct muster_parsed_timeline *timeline)
{
    const struct muster_parsed_event *call = NULL;
    for (size_t i = 0; i < timeline->event_count; i++) {
        const struct muster_parsed_event *event = &timeline->events[i];
        if (event->stage == MUSTER_TIMELINE_CALL && (call == NULL || event->bytes >= call->bytes)) {
            call = event;
        }
    }
    return call;
}

static bool overlaps(const struct muster_parsed_interval *span,
                     const struct muster_parsed_interval *window)
{
    return span->start_ns < window->end_ns && span->end_ns > window->start_ns;
}

/* What a member shows: a call, or a step. */
struct shown {
    struct muster_parsed_interval span;
    uint64_t bytes;
    int64_t submitted_ns;
};

/* The last submissions of all tensors: from the end back to a tensor that comes once more. Events
 * are in the order in which they ended. */
static bool find_step(const struct muster_parsed_timeline *timeline, struct shown *ret_shown)
{
    struct shown shown = {.bytes = 0};
    size_t last = timeline->event_count;
    for (size_t i = timeline->event_count; i-- > 0;) {
        const struct muster_parsed_event *event = &timeline->events[i];
        if (event->stage != MUSTER_TIMELINE_TENSOR) {
            continue;
        }
        for (size_t j = i + 1; j < last; j++) {
            if (timeline->events[j].track == event->track &&
                timeline->events[j].stage == MUSTER_TIMELINE_TENSOR) {
                *ret_shown = shown;
                return true;
            }
        }
        bool first = shown.span.end_ns == 0;
        int64_t start_ns = event->span.start_ns;
        shown.bytes += event->bytes;
        shown.span.start_ns =
            first || start_ns < shown.span.start_ns ? start_ns : shown.span.start_ns;
        shown.span.end_ns = first || event->span.end_ns > shown.span.end_ns ? event->span.end_ns
                                                                            : shown.span.end_ns;
        shown.submitted_ns = start_ns > shown.submitted_ns ? start_ns : shown.submitted_ns;
    }
    *ret_shown = shown;
    return shown.span.end_ns != 0;
}

static muster_status find_shown(const struct timeline_picture *picture, size_t index,
                                struct shown *ret_shown)
{
    const struct muster_parsed_timeline *timeline = &picture->timelines[index];
    if (picture->subject == MUSTER_TIMELINE_LAST_STEP) {
        return find_step(timeline, ret_shown)
                   ? MUSTER_OK
                   : muster_error_set(MUSTER_INVALID, "rank %" PRIu32 " has no tensors",
                                      timeline->rank);
    }
    const struct muster_parsed_event *call = find_call(timeline);
    if (call == NULL) {
        return muster_error_set(MUSTER_INVALID, "rank %" PRIu32 " has made no call",
                                timeline->rank);
    }
    *ret_shown = (struct shown){.span = call->span, .bytes = call->bytes};
    return MUSTER_OK;
}

/* The window runs from the first start to the last end of the members' largest calls. A call that
 * does not overlap the window of the members before it belongs to another host or job, because the
 * calls of one collective overlap. */
static muster_status choose_window(struct timeline_picture *picture)
{
    for (size_t i = 0; i < picture->count; i++) {
        struct shown shown = {.bytes = 0};
        TRY(find_shown(picture, i, &shown));
        struct muster_parsed_interval *window = &picture->window;
        if (i == 0) {
            picture->bytes = shown.bytes;
            picture->submitted_ns = shown.submitted_ns;
            *window = shown.span;
        } else if (!overlaps(&shown.span, window)) {
            return muster_error_set(MUSTER_INVALID,
                                    "the calls of rank %" PRIu32
                                    " were at another time than those of rank %" PRIu32
                                    ": are the files of one host and one job?",
                                    picture->timelines[i].rank, picture->timelines[0].rank);
        }
        window->start_ns =
            shown.span.start_ns < window->start_ns ? shown.span.start_ns : window->start_ns;
        window->end_ns = shown.span.end_ns > window->end_ns ? shown.span.end_ns : window->end_ns;
    }
    if (picture->window.end_ns == picture->window.start_ns) {
        picture->window.end_ns++; /* an axis needs a length */
    }
    return MUSTER_OK;
}

/* A step is drawn without messages: these have pictures of their own. */
static bool is_drawn(const struct timeline_picture *picture,
                     const struct muster_parsed_event *event)
{
    bool tensor = event->stage == MUSTER_TIMELINE_TENSOR ||
                  event->stage == MUSTER_TIMELINE_TENSOR_PENDING ||
                  event->stage == MUSTER_TIMELINE_TENSOR_ON_WIRE;
    return tensor == (picture->subject == MUSTER_TIMELINE_LAST_STEP) &&
           overlaps(&event->span, &picture->window);
}

static bool has_spans(const struct timeline_picture *picture,
                      const struct muster_parsed_timeline *timeline, uint32_t track)
{
    for (size_t i = 0; i < timeline->event_count; i++) {
        if (timeline->events[i].track == track && is_drawn(picture, &timeline->events[i])) {
            return true;
        }
    }
    return false;
}

static muster_status count_spans(const struct timeline_picture *picture)
{
    size_t count = 0;
    for (size_t i = 0; i < picture->count; i++) {
        const struct muster_parsed_timeline *timeline = &picture->timelines[i];
        for (size_t j = 0; j < timeline->event_count; j++) {
            count += is_drawn(picture, &timeline->events[j]);
        }
    }
    return count <= DRAWN_MAX
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID,
                                  "the call has %zu spans: a picture shows at most %d", count,
                                  DRAWN_MAX);
}

/* Drawing -------------------------------------------------------------------------------------- */

static double place(const struct timeline_picture *picture, int64_t at_ns)
{
    const struct muster_parsed_interval *window = &picture->window;
    double share = (double)(at_ns - window->start_ns) / (double)(window->end_ns - window->start_ns);
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return LEFT + (RIGHT - LEFT) * share;
}

static double us(int64_t ns)
{
    return (double)ns / 1000;
}

static void draw_span(const struct timeline_picture *picture,
                      const struct muster_parsed_event *event, int top)
{
    double left = place(picture, event->span.start_ns);
    (void)fprintf(
        picture->out,
        "<rect class=\"span s%d\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"><title>%s, "
        "%" PRIu64 " bytes: %.1f us from %.1f us</title></rect>\n",
        (int)event->stage, left, top, place(picture, event->span.end_ns) - left, (int)BOX_HEIGHT,
        muster_timeline_stage_name(event->stage), event->bytes,
        us(event->span.end_ns - event->span.start_ns),
        us(event->span.start_ns - picture->window.start_ns));
}

static void draw_track(const struct timeline_picture *picture,
                       const struct muster_parsed_timeline *timeline,
                       const struct muster_parsed_track *track, int top)
{
    muster_svg_text(picture->out, LEFT - 8, top + BOX_HEIGHT - 3, "right", track->name);
    for (size_t i = 0; i < timeline->event_count; i++) {
        const struct muster_parsed_event *event = &timeline->events[i];
        if (event->track == track->number && is_drawn(picture, event)) {
            draw_span(picture, event, top);
        }
    }
}

/* Returns the top of the next member. */
static int draw_member(const struct timeline_picture *picture,
                       const struct muster_parsed_timeline *timeline, int top)
{
    (void)fprintf(picture->out,
                  "<text class=\"member\" x=\"16\" y=\"%d\">rank %" PRIu32 "</text>\n",
                  top + BOX_HEIGHT - 3, timeline->rank);
    for (size_t i = 0; i < timeline->track_count; i++) {
        if (has_spans(picture, timeline, timeline->tracks[i].number)) {
            draw_track(picture, timeline, &timeline->tracks[i], top);
            top += LINE_HEIGHT;
        }
    }
    return top + GAP;
}

static int find_height(const struct timeline_picture *picture)
{
    int height = TOP;
    for (size_t i = 0; i < picture->count; i++) {
        const struct muster_parsed_timeline *timeline = &picture->timelines[i];
        for (size_t j = 0; j < timeline->track_count; j++) {
            height += has_spans(picture, timeline, timeline->tracks[j].number) ? LINE_HEIGHT : 0;
        }
        height += GAP;
    }
    return height;
}

static void draw_times(const struct timeline_picture *picture)
{
    double lasted_us = us(picture->window.end_ns - picture->window.start_ns);
    double step_us = muster_svg_axis_step(lasted_us, STEPS);
    for (int i = 0; i * step_us <= lasted_us; i++) {
        double x = LEFT + (RIGHT - LEFT) * (i * step_us / lasted_us);
        char text[32];
        (void)snprintf(text, sizeof text, "%g us", i * step_us);
        (void)fprintf(picture->out, "<path class=\"rule\" d=\"M%.1f %dV%d\"/>\n", x, TOP - 8,
                      picture->height - GAP);
        muster_svg_text(picture->out, x, TOP - 12, "middle", text);
    }
}

/* Tensors that are on the wire left of this line are summed behind the backward pass. */
static void draw_last_submission(const struct timeline_picture *picture)
{
    if (picture->submitted_ns == 0) {
        return;
    }
    double x = place(picture, picture->submitted_ns);
    (void)fprintf(picture->out, "<path class=\"now\" d=\"M%.1f %dV%d\"/>\n", x, TOP - 8,
                  picture->height - GAP);
    muster_svg_text(picture->out, x, picture->height - 2, "middle",
                    "the first rank's last tensor is submitted");
}

/* Prints the whole document: first what it shows is chosen and counted, because the height of the
 * picture follows from that. */
static muster_status draw(FILE *out, const void *argument)
{
    struct timeline_picture picture = *(const struct timeline_picture *)argument;
    picture.out = out;
    TRY(choose_window(&picture));
    TRY(count_spans(&picture));
    picture.height = find_height(&picture);
    const struct muster_svg_document document = {.width = WIDTH,
                                                 .height = picture.height,
                                                 .style = style_sheet,
                                                 .dark_style = dark_style_sheet};
    muster_svg_begin(out, &document);
    char title[96];
    (void)snprintf(title, sizeof title, "A %s of %" PRIu64 " bytes: %.1f us",
                   picture.subject == MUSTER_TIMELINE_LAST_STEP ? "step" : "call", picture.bytes,
                   us(picture.window.end_ns - picture.window.start_ns));
    muster_svg_text(out, 16, 30, "title", title);
    draw_times(&picture);
    draw_last_submission(&picture);
    int top = TOP;
    for (size_t i = 0; i < picture.count; i++) {
        top = draw_member(&picture, &picture.timelines[i], top);
    }
    (void)fprintf(out, "</svg>\n");
    return MUSTER_OK;
}

muster_status muster_timeline_write_svg(const char *path, enum muster_timeline_subject subject,
                                        const struct muster_parsed_timeline *timelines,
                                        size_t count)
{
    const struct timeline_picture picture = {
        .timelines = timelines, .count = count, .subject = subject};
    return muster_svg_write(path, draw, &picture);
}
