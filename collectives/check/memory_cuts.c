/* Cuts one rank's elements into cells, and finds the cells of each step. */
#include "collectives/check/check_parts.h"

#include <stdlib.h>

#include "collectives/schedule/group_step.h"
#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* The cuts in the order in which they are found; and, afterwards, the cell that begins at each. */
struct cuts {
    uint64_t *at;
    uint32_t *cells;
    size_t used;
};

static void cut(struct cuts *cuts, uint64_t begin, uint64_t count)
{
    cuts->at[cuts->used++] = begin;
    cuts->at[cuts->used++] = begin + count;
}

/* Cuts where the buffers begin and end, and then where the steps' spans do. */
static void cut_all(const struct muster_layout *layout, const struct muster_shape *shape,
                    const struct muster_schedule *schedule, struct cuts *cuts)
{
    for (unsigned buffer = MUSTER_INPUT; buffer <= MUSTER_SCRATCH; buffer++) {
        cut(cuts, layout->base[buffer], muster_buffer_count(schedule, buffer));
    }
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        const struct muster_step_ranges ranges = muster_step_ranges(shape, schedule, step);
        if (ranges.reads) {
            cut(cuts, layout->base[step->source] + ranges.source.offset, ranges.source.count);
        }
        if (ranges.writes) {
            cut(cuts, layout->base[step->target] + ranges.target.offset, ranges.target.count);
        }
    }
}

/* Reads the cells' numbers in the order in which cut_all() made the cuts. */
static void find_places(const struct muster_shape *shape, const struct muster_schedule *schedule,
                        const struct cuts *cuts, struct muster_rank_cells *memory)
{
    const uint32_t *cells = cuts->cells;
    memory->input = cells[2 * MUSTER_INPUT];
    memory->output = cells[2 * MUSTER_OUTPUT];
    cells += 2 * (MUSTER_SCRATCH + 1);
    for (size_t i = 0; i < schedule->step_count; i++) {
        struct muster_step_cells *places = &memory->places[i];
        const struct muster_step_ranges ranges =
            muster_step_ranges(shape, schedule, &schedule->steps[i]);
        *places = (struct muster_step_cells){0};
        if (ranges.reads) {
            places->source = *cells;
            cells += 2;
        }
        if (ranges.writes) {
            places->target = *cells;
            cells += 2;
        }
    }
}

muster_status muster_rank_cells_init(const struct muster_shape *shape,
                                     const struct muster_schedule *schedule,
                                     struct muster_rank_cells *ret_memory)
{
    const struct muster_layout layout = muster_layout_of(shape, schedule, true);
    size_t most = 2 * (MUSTER_SCRATCH + 1) + 4 * schedule->step_count;
    AUTO_FREE uint64_t *at = malloc(most * sizeof *at);
    AUTO_FREE uint32_t *cells = malloc(most * sizeof *cells);
    AUTO_FREE struct muster_step_cells *places =
        malloc((schedule->step_count + 1) * sizeof *places);
    if (at == NULL || cells == NULL || places == NULL) {
        return muster_error_set(MUSTER_FATAL, "check: no memory for %zu steps",
                                schedule->step_count);
    }
    struct cuts cuts = {.at = at, .cells = cells};
    cut_all(&layout, shape, schedule, &cuts);
    struct muster_rank_cells memory = {.places = places};
    TRY(muster_cells_init(cuts.at, cuts.used, cuts.cells, &memory.cells));
    find_places(shape, schedule, &cuts, &memory);
    (void)TAKE(places);
    *ret_memory = memory;
    return MUSTER_OK;
}

void muster_rank_cells_finish(struct muster_rank_cells *memory)
{
    muster_cells_finish(&memory->cells);
    free(memory->places);
    *memory = (struct muster_rank_cells){0};
}
