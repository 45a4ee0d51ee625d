/* muster plan: the schedules as text. */
#include "worker/cli/plan/plan.h"
#include "worker/cli/print.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH_MAX = 200, /* of the grid, in characters */
    ROUNDS_MAX = 256,
    CELL_SIZE = 40, /* bytes of one cell's text */
    MARGIN = 20,    /* characters left of the column of rank 0 */
};

/* The steps, sorted by time, lane, kind and rank. */
struct grid {
    const struct muster_drawing *drawing;
    const struct muster_drawn_step **steps; /* owned [count] */
    size_t count;
    int width; /* of a rank's column */
};

/* Sends come first, because they carry what a rank had before the round. */
static const char *const kind_names[] = {[MUSTER_STEP_SEND] = "sends",
                                         [MUSTER_STEP_RECV] = "receives",
                                         [MUSTER_STEP_RECV_REDUCE] = "adds",
                                         [MUSTER_STEP_COPY] = "copies",
                                         [MUSTER_STEP_REDUCE] = "reduces",
                                         [MUSTER_STEP_GROUP_ALLREDUCE] = "group allreduce",
                                         [MUSTER_STEP_GROUP_REDUCE_SCATTER] = "group red_scatter",
                                         [MUSTER_STEP_GROUP_ALLGATHER] = "group allgather",
                                         [MUSTER_STEP_GROUP_REDUCE] = "group reduce",
                                         [MUSTER_STEP_GROUP_BROADCAST] = "group broadcast",
                                         [MUSTER_STEP_GROUP_BARRIER] = "group barrier"};

static int compare_steps(const void *left_step, const void *right_step)
{
    const struct muster_drawn_step *left = *(const struct muster_drawn_step *const *)left_step;
    const struct muster_drawn_step *right = *(const struct muster_drawn_step *const *)right_step;
    const uint64_t keys[][2] = {{left->column, right->column},
                                {left->step->lane, right->step->lane},
                                {left->step->kind, right->step->kind},
                                {left->rank, right->rank},
                                {(uint64_t)(uintptr_t)left, (uint64_t)(uintptr_t)right}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (keys[i][0] != keys[i][1]) {
            return keys[i][0] < keys[i][1] ? -1 : 1;
        }
    }
    return 0;
}

static void write_cell(const struct muster_drawing *drawing, const struct muster_drawn_step *drawn,
                       char *ret_cell)
{
    enum { LABEL_SIZE = 24 };
    char label[LABEL_SIZE];
    muster_drawing_label(drawing, &drawn->data, label, sizeof label);
    const char *what = label[0] == '\0' ? "()" : label;
    switch (drawn->step->kind) {
    case MUSTER_STEP_SEND:
        (void)snprintf(ret_cell, CELL_SIZE, "%s->%" PRIu32, what, drawn->step->peer);
        break;
    case MUSTER_STEP_RECV:
    case MUSTER_STEP_RECV_REDUCE:
        (void)snprintf(ret_cell, CELL_SIZE, "%s<-%" PRIu32, what, drawn->step->peer);
        break;
    default:
        (void)snprintf(ret_cell, CELL_SIZE, "%s", what);
        break;
    }
}

static bool same_row(const struct muster_drawn_step *left, const struct muster_drawn_step *right)
{
    return left->column == right->column && left->step->lane == right->step->lane &&
           left->step->kind == right->step->kind;
}

static int column_width(const struct grid *grid)
{
    int width = (int)sizeof "rank 0" - 1;
    char cell[CELL_SIZE];
    for (size_t i = 0; i < grid->count; i++) {
        write_cell(grid->drawing, grid->steps[i], cell);
        width = (int)strlen(cell) > width ? (int)strlen(cell) : width;
    }
    for (uint32_t rank = 0; rank < grid->drawing->ranks; rank++) {
        char label[CELL_SIZE];
        muster_drawing_label(grid->drawing, &grid->drawing->end[rank], label, sizeof label);
        width = (int)strlen(label) > width ? (int)strlen(label) : width;
    }
    return width + 2;
}

static bool sort_steps(const struct muster_drawing *drawing, struct grid *ret_grid)
{
    struct grid grid = {.drawing = drawing, .count = drawing->first_step[drawing->ranks]};
    grid.steps = calloc(grid.count + 1, sizeof(const struct muster_drawn_step *));
    if (grid.steps == NULL) {
        return false;
    }
    for (size_t i = 0; i < grid.count; i++) {
        grid.steps[i] = &drawing->steps[i];
    }
    qsort(grid.steps, grid.count, sizeof(const struct muster_drawn_step *), compare_steps);
    grid.width = column_width(&grid);
    *ret_grid = grid;
    return true;
}

static void end_line(int *blanks)
{
    *blanks = 0;
    (void)putchar('\n');
}

/* Blanks are printed only before a text, so that no line ends with blanks. */
static void put(int width, const char *text, int *blanks)
{
    if (text[0] != '\0') {
        (void)printf("%*s%s", *blanks, "", text);
        *blanks = 0;
    }
    *blanks += width > (int)strlen(text) ? width - (int)strlen(text) : 0;
}

static void print_head(const struct grid *grid, const struct muster_topology *topology)
{
    int blanks = 0;
    char text[CELL_SIZE];
    for (uint32_t host = 0; topology->hosts > 1 && host < topology->hosts; host++) {
        put(host == 0 ? MARGIN : 0, "", &blanks);
        (void)snprintf(text, sizeof text, "| host %" PRIu32, host);
        put(grid->width * (int)topology->host_sizes[host], text, &blanks);
    }
    if (topology->hosts > 1) {
        end_line(&blanks);
    }
    put(MARGIN, "", &blanks);
    for (uint32_t rank = 0; rank < topology->ranks; rank++) {
        (void)snprintf(text, sizeof text, "rank %" PRIu32, rank);
        put(grid->width, text, &blanks);
    }
    end_line(&blanks);
}

static void print_step_data(const struct grid *grid, const char *name,
                            const struct muster_step_data *data)
{
    int blanks = 0;
    put(MARGIN, name, &blanks);
    for (uint32_t rank = 0; rank < grid->drawing->ranks; rank++) {
        char label[CELL_SIZE];
        muster_drawing_label(grid->drawing, &data[rank], label, sizeof label);
        put(grid->width, label[0] == '\0' ? "-" : label, &blanks);
    }
    end_line(&blanks);
}

/* Prints a line with the nth step of each rank among the steps of one row. False: no rank has so
 * many. */
static bool print_cells(const struct grid *grid, size_t first, size_t end, uint32_t nth,
                        const char *name)
{
    bool any = false;
    int blanks = 0;
    size_t i = first;
    for (uint32_t rank = 0; rank < grid->drawing->ranks; rank++) {
        char cell[CELL_SIZE] = "";
        for (uint32_t n = 0; i < end && grid->steps[i]->rank == rank; i++, n++) {
            if (n == nth) {
                write_cell(grid->drawing, grid->steps[i], cell);
                if (!any) {
                    put(MARGIN, name, &blanks);
                    put((int)rank * grid->width, "", &blanks);
                }
                any = true;
            }
        }
        if (any) {
            put(grid->width, cell, &blanks);
        }
    }
    if (any) {
        end_line(&blanks);
    }
    return any;
}

static double end_us(const struct muster_plan_scene *scene, uint32_t column)
{
    double end = 0;
    const struct muster_drawing *drawing = scene->drawing;
    for (size_t i = 0; i < drawing->first_step[drawing->ranks]; i++) {
        if (drawing->steps[i].column == column) {
            double step_us = muster_plan_times_of(scene->times, drawing, i).end_us;
            end = step_us > end ? step_us : end;
        }
    }
    return end;
}

/* One unit of time: a row for each lane and kind of step, with more lines if a rank has several. */
static void print_round(const struct muster_plan_scene *scene, const struct grid *grid,
                        size_t first, size_t end)
{
    uint32_t column = grid->steps[first]->column;
    (void)printf("time %" PRIu32, column);
    if (scene->times != NULL) {
        (void)printf(", until %.2f us", end_us(scene, column));
    }
    (void)putchar('\n');
    for (size_t i = first; i < end;) {
        const struct muster_step *step = grid->steps[i]->step;
        size_t next = i;
        while (next < end && same_row(grid->steps[i], grid->steps[next])) {
            next++;
        }
        char name[MARGIN + 1];
        if (grid->drawing->lanes > 1) {
            (void)snprintf(name, sizeof name, "  %-8s lane %u", kind_names[step->kind],
                           step->lane % 1000U);
        } else {
            (void)snprintf(name, sizeof name, "  %s", kind_names[step->kind]);
        }
        for (uint32_t nth = 0; print_cells(grid, i, next, nth, nth == 0 ? name : ""); nth++) {
        }
        i = next;
    }
}

static void print_key(const struct muster_drawing *drawing)
{
    bool reduces = muster_collective_reduces(drawing->shapes[0].collective);
    bool own = !reduces && !muster_collective_has_root(drawing->shapes[0].collective);
    if (drawing->chunks == 0) {
        (void)printf("()->1 sends an empty message to rank 1.\n");
    } else if (muster_collective_in_place_counts(drawing->shapes[0].collective)) {
        (void)printf(
            "2>5 is the block of rank 2 for rank 5; 2>5->3 sends it to rank 3, 2>5<-3 receives it "
            "from rank 3.\n");
    } else {
        (void)printf(
            "a->1 sends chunk a to rank 1, a<-0 receives it from rank 0%s. The data are %" PRIu64
            " chunk%s%s.\n",
            reduces ? "; adds: receives it and reduces it with its own" : "", drawing->chunks,
            muster_cli_plural(drawing->chunks), own ? ", rank 0's first" : "");
    }
    (void)printf(
        "A unit of time is one message. A rank without a cell waits for others or has finished.\n");
}

static void print_grid(const struct muster_plan_scene *scene, const struct grid *grid)
{
    const struct muster_drawing *drawing = scene->drawing;
    (void)putchar('\n');
    print_head(grid, &scene->request->topology);
    if (drawing->chunks > 0) {
        print_step_data(grid, "begins with", drawing->begin);
    }
    for (size_t i = 0; i < grid->count;) {
        size_t end = i;
        while (end < grid->count && grid->steps[end]->column == grid->steps[i]->column) {
            end++;
        }
        print_round(scene, grid, i, end);
        i = end;
    }
    if (drawing->chunks > 0) {
        bool reduces = muster_collective_reduces(drawing->shapes[0].collective);
        print_step_data(grid, reduces ? "ends with sums of" : "ends with", drawing->end);
    }
    (void)putchar('\n');
    print_key(drawing);
}

bool muster_plan_print_grid(const struct muster_plan_scene *scene)
{
    const struct muster_drawing *drawing = scene->drawing;
    struct grid grid = {0};
    if (drawing->columns > ROUNDS_MAX || drawing->ranks > WIDTH_MAX ||
        !sort_steps(drawing, &grid)) {
        return false;
    }
    bool fits = MARGIN + (int64_t)grid.width * drawing->ranks <= WIDTH_MAX;
    if (fits) {
        print_grid(scene, &grid);
    }
    free(grid.steps);
    return fits;
}

static void print_step(const struct muster_plan_scene *scene, size_t number)
{
    const struct muster_drawing *drawing = scene->drawing;
    const struct muster_drawn_step *drawn = &drawing->steps[number];
    char label[CELL_SIZE];
    muster_drawing_label(drawing, &drawn->data, label, sizeof label);
    char sum[32] = "";
    if (muster_collective_reduces(drawing->shapes[0].collective) && drawn->data.members > 0) {
        (void)snprintf(sum, sizeof sum, "of %" PRIu32 " rank%s", drawn->data.members,
                       muster_cli_plural(drawn->data.members));
    }
    (void)printf("%-10s %-10s  ", label[0] == '\0' ? "()" : label, sum);
    if (scene->times != NULL) {
        struct muster_step_times times = muster_plan_times_of(scene->times, drawing, number);
        (void)printf("%10.2f ..%10.2f us  ", times.start_us, times.end_us);
    }
    muster_step_print(drawn->step, stdout);
}

void muster_plan_print_rank(const struct muster_plan_scene *scene, uint32_t rank)
{
    const struct muster_schedule *schedule = &scene->set->schedules[rank];
    struct muster_position position = muster_topology_locate(&scene->request->topology, rank);
    struct muster_schedule_totals totals = muster_schedule_total(schedule);
    (void)printf("\nrank %" PRIu32 ": host %" PRIu32 ", local rank %" PRIu32 "; %" PRIu32
                 " rounds; sends %" PRIu64 " elements in %" PRIu64 " messages, reduces %" PRIu64
                 ", scratch %" PRIu64 "\n",
                 rank, position.host, position.local_rank, totals.rounds, totals.elements_sent,
                 totals.messages_sent, totals.elements_reduced, schedule->scratch_count);
    for (size_t i = 0; i < schedule->step_count; i++) {
        if (scene->drawing == NULL) {
            muster_step_print(&schedule->steps[i], stdout);
        } else {
            print_step(scene, scene->drawing->first_step[rank] + i);
        }
    }
}
