#include "collectives/schedule.h"

#include <inttypes.h>
#include <stdlib.h>

uint64_t muster_buffer_count(const struct muster_schedule *schedule, unsigned buffer)
{
    switch (buffer) {
    case MUSTER_INPUT:
        return schedule->input_count;
    case MUSTER_OUTPUT:
        return schedule->output_count;
    case MUSTER_SCRATCH:
        return schedule->scratch_count;
    default:
        return 0;
    }
}

void muster_schedule_finish(struct muster_schedule *schedule)
{
    if (schedule != NULL) {
        free(schedule->steps);
        *schedule = (struct muster_schedule){0};
    }
}

struct muster_schedule_totals muster_schedule_total(const struct muster_schedule *schedule)
{
    struct muster_schedule_totals totals = {0};
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        if (step->round >= totals.rounds) {
            totals.rounds = step->round + 1;
        }
        switch (step->kind) {
        case MUSTER_STEP_SEND:
            totals.messages_sent++;
            totals.elements_sent += step->span.count;
            break;
        case MUSTER_STEP_RECV_REDUCE:
            totals.elements_reduced += step->span.count;
            totals.messages_received++;
            totals.elements_received += step->span.count;
            break;
        case MUSTER_STEP_RECV:
            totals.messages_received++;
            totals.elements_received += step->span.count;
            break;
        case MUSTER_STEP_REDUCE:
            totals.elements_reduced += step->span.count;
            break;
        default: /* a copy counts nowhere */
            break;
        }
    }
    return totals;
}

const char *muster_buffer_name(unsigned buffer)
{
    static const char *const names[] = {"input", "output", "scratch"};
    return buffer < sizeof names / sizeof names[0] ? names[buffer] : "unknown";
}

static void print_range(FILE *out, uint8_t buffer, uint64_t offset, uint64_t count)
{
    (void)fprintf(out, "%s[%" PRIu64 "..%" PRIu64 ")", muster_buffer_name(buffer), offset,
                  offset + count);
}

static void print_source(FILE *out, const struct muster_step *step)
{
    print_range(out, step->source, step->span.offset, step->span.count);
}

static void print_target(FILE *out, const struct muster_step *step)
{
    print_range(out, step->target, step->at, step->span.count);
}

void muster_step_print(const struct muster_step *step, FILE *out)
{
    (void)fprintf(out, "lane %u round %-3" PRIu32 " ", step->lane, step->round);
    switch (step->kind) {
    case MUSTER_STEP_SEND:
        (void)fprintf(out, "send         to   %-4" PRIu32 " ", step->peer);
        print_source(out, step);
        break;
    case MUSTER_STEP_RECV:
        (void)fprintf(out, "recv         from %-4" PRIu32 " ", step->peer);
        print_target(out, step);
        break;
    case MUSTER_STEP_RECV_REDUCE:
        (void)fprintf(out, "recv_reduce  from %-4" PRIu32 " ", step->peer);
        print_target(out, step);
        if (step->source != step->target || step->span.offset != step->at) {
            (void)fprintf(out, " with ");
            print_source(out, step);
        }
        break;
    case MUSTER_STEP_COPY:
    case MUSTER_STEP_REDUCE:
        (void)fprintf(out, "%-12s           ", step->kind == MUSTER_STEP_COPY ? "copy" : "reduce");
        print_target(out, step);
        (void)fprintf(out, " with ");
        print_source(out, step);
        break;
    default:
        (void)fprintf(out, "unknown step %u", step->kind);
        break;
    }
    (void)fputc('\n', out);
}

void muster_schedule_print(const struct muster_schedule *schedule, FILE *out)
{
    for (size_t i = 0; i < schedule->step_count; i++) {
        muster_step_print(&schedule->steps[i], out);
    }
}
