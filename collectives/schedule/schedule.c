/* Schedules: totals, early receives, printing. */
#include "collectives/schedule/schedule.h"

#include "collectives/schedule/group_step.h"

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
        case MUSTER_STEP_COPY:
            break;
        default:
            totals.group_steps++;
            break;
        }
    }
    return totals;
}

/* True if the two ranges may be the same memory. In place INPUT and OUTPUT share memory, at the
 * same offsets if they are equally large, and else at unknown ones. */
static bool may_overlap(const struct muster_schedule *schedule, uint8_t buffer, uint64_t at,
                        uint8_t other, uint64_t other_at, const uint64_t counts[2])
{
    bool shared = buffer != other && buffer != MUSTER_SCRATCH && other != MUSTER_SCRATCH;
    if ((buffer != other && !shared) || counts[0] == 0 || counts[1] == 0) {
        return false;
    }
    return (shared && schedule->input_count != schedule->output_count) ||
           (at < other_at + counts[1] && other_at < at + counts[0]);
}

/* True if the step reads what the receive writes, or writes what the receive reads or writes. */
static bool touches(const struct muster_schedule *schedule, const struct muster_step *receive,
                    const struct muster_step *step)
{
    const uint64_t counts[2] = {receive->span.count, step->span.count};
    if (muster_step_is_group(step)) {
        return true; /* not told apart: what waits for a whole group gains little by a message */
    }
    bool reads = step->kind != MUSTER_STEP_RECV;
    bool writes = step->kind != MUSTER_STEP_SEND;
    if (reads && may_overlap(schedule, receive->target, receive->at, step->source,
                             step->span.offset, counts)) {
        return true;
    }
    if (!writes) {
        return false;
    }
    return may_overlap(schedule, receive->target, receive->at, step->target, step->at, counts) ||
           (receive->kind == MUSTER_STEP_RECV_REDUCE &&
            may_overlap(schedule, receive->source, receive->span.offset, step->target, step->at,
                        counts));
}

bool muster_schedule_receives_early(const struct muster_schedule *schedule, size_t step)
{
    const struct muster_step *receive = &schedule->steps[step];
    if ((receive->kind != MUSTER_STEP_RECV && receive->kind != MUSTER_STEP_RECV_REDUCE) ||
        receive->round == 0) {
        return false;
    }
    size_t seen = 0;
    for (size_t i = step; i-- > 0 && schedule->steps[i].lane == receive->lane;) {
        const struct muster_step *before = &schedule->steps[i];
        if (before->round + 1 < receive->round) {
            break;
        }
        bool blocks = before->round == receive->round
                          ? before->kind != MUSTER_STEP_SEND && before->peer == receive->peer
                          : touches(schedule, receive, before);
        if (blocks || ++seen > MUSTER_EARLY_STEPS_MAX) {
            return false;
        }
    }
    return true;
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

static void print_group_step(const struct muster_step *step, FILE *out)
{
    if (!muster_step_is_group(step)) {
        (void)fprintf(out, "unknown step %u", step->kind);
        return;
    }
    (void)fprintf(out, "%s over %s", muster_step_kind_name(step->kind),
                  muster_step_scope_name(step->scope));
    if (muster_step_has_root(step)) {
        (void)fprintf(out, " root %" PRIu32, step->peer);
    }
    if (step->kind != MUSTER_STEP_GROUP_BARRIER) {
        (void)fprintf(out, " of %" PRIu64 ": %s[%" PRIu64 "..) to %s[%" PRIu64 "..)",
                      step->span.count, muster_buffer_name(step->source), step->span.offset,
                      muster_buffer_name(step->target), step->at);
    }
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
        print_group_step(step, out);
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
