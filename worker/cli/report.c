/* The history of a job: its generations, departures and members, and the figures of its links. */
#include "worker/cli/report.h"

#include "worker/base/epoch.h"
#include "worker/cli/print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Generations --------------------------------------------------------------------------------- */

/* Milliseconds from the end of a generation to the start of the next one; -1: there is none. */
static int64_t next_after_ms(const struct muster_job_response *job, uint32_t index)
{
    const struct muster_generation_record *this = &job->generations[index];
    if (this->revoked_ms == 0 || index + 1 >= job->generation_count) {
        return -1;
    }
    return this[1].formed_ms - this->revoked_ms;
}

/* How long a generation lasted; -1: it is running. A generation that was not revoked ended when its
 * last member departed. */
static int64_t lasted_ms(const struct muster_job_response *job, uint32_t index)
{
    const struct muster_generation_record *record = &job->generations[index];
    int64_t end_ms = record->revoked_ms;
    if (end_ms == 0 && job->phase != MUSTER_JOB_ENDED) {
        return -1;
    }
    for (uint32_t i = 0; record->revoked_ms == 0 && i < job->departure_count; i++) {
        const struct muster_departure_record *departure = &job->departures[i];
        if (departure->generation == record->number && departure->at_ms > end_ms) {
            end_ms = departure->at_ms;
        }
    }
    return end_ms > record->formed_ms ? end_ms - record->formed_ms : 0;
}

const char *muster_report_generation_head(void)
{
    return "generation  workers  hosts      lasted gap to next  ended because";
}

const char *muster_report_generation(const struct muster_job_response *job, uint32_t index,
                                     char *line, size_t size)
{
    const struct muster_generation_record *record = &job->generations[index];
    char next[32] = "-";
    char lasted[32] = "runs";
    if (next_after_ms(job, index) >= 0) {
        (void)snprintf(next, sizeof next, "%" PRId64 " ms", next_after_ms(job, index));
    }
    if (lasted_ms(job, index) >= 0) {
        (void)snprintf(lasted, sizeof lasted, "%.2f s", muster_cli_seconds(lasted_ms(job, index)));
    }
    const char *why = record->why;
    if (record->revoked_ms == 0) {
        why = job->phase == MUSTER_JOB_ENDED ? job->why : "";
    }
    (void)snprintf(line, size, "%10" PRIu64 " %8u %6u %11s %11s  %s",
                   muster_epoch_shown(record->number), record->size, record->hosts, lasted, next,
                   why);
    return line;
}

json_t *muster_report_number_json(uint64_t generation)
{
    return json_sprintf("%" PRIu64, generation);
}

json_t *muster_report_generations_json(const struct muster_job_response *job)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < job->generation_count; i++) {
        const struct muster_generation_record *record = &job->generations[i];
        json_t *item = json_pack("{s:o, s:I, s:I, s:I, s:s}", "number",
                                 muster_report_number_json(record->number), "size",
                                 (json_int_t)record->size, "hosts", (json_int_t)record->hosts,
                                 "formed_ms", (json_int_t)record->formed_ms, "why", record->why);
        int64_t ms = lasted_ms(job, i);
        (void)json_object_set_new(item, "lasted_ms", ms >= 0 ? json_integer(ms) : json_null());
        ms = next_after_ms(job, i);
        (void)json_object_set_new(item, "next_after_ms", ms >= 0 ? json_integer(ms) : json_null());
        (void)json_array_append_new(list, item);
    }
    return list;
}

/* Departures ---------------------------------------------------------------------------------- */

static const char *departure_word(enum muster_leave_reason reason)
{
    switch (reason) {
    case MUSTER_LEAVE_FINISHED:
        return "finished";
    case MUSTER_LEAVE_PLANNED:
        return "left as asked";
    case MUSTER_LEAVE_FAILED:
        return "gave up";
    default:
        return "died";
    }
}

/* The server's reasons are whole sentences, "rank 2 (host a, pid 4711) died: ...". The line printed
 * here already begins with the member: only the text after the colon is added. */
static const char *strip_repeated_subject(const struct muster_departure_record *record,
                                          const char *who)
{
    const char *why = record->why;
    if (strncmp(why, who, strlen(who)) == 0) {
        const char *colon = strstr(why + strlen(who), ": ");
        why = colon != NULL ? colon + 2 : "";
    }
    return strcmp(why, departure_word(record->reason)) == 0 ? "" : why;
}

const char *muster_report_departure(const struct muster_departure_record *record, char *line,
                                    size_t size)
{
    char who[MUSTER_HOST_SIZE + 64];
    if (record->rank != UINT32_MAX) {
        (void)snprintf(who, sizeof who, "rank %u (host %s, pid %u)", record->rank, record->host,
                       record->pid);
    } else {
        (void)snprintf(who, sizeof who, "a newcomer (host %s, pid %u)", record->host, record->pid);
    }
    const char *why = strip_repeated_subject(record, who);
    (void)snprintf(line, size, "%s %s after %.2f s, in generation %" PRIu64 "%s%s", who,
                   departure_word(record->reason), muster_cli_seconds(record->at_ms),
                   muster_epoch_shown(record->generation), why[0] != '\0' ? ": " : "", why);
    return line;
}

json_t *muster_report_departures_json(const struct muster_job_response *job)
{
    static const char *const words[] = {"died", "finished", "planned", "failed"};
    json_t *list = json_array();
    for (uint32_t i = 0; i < job->departure_count; i++) {
        const struct muster_departure_record *record = &job->departures[i];
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:I, s:I, s:o, s:s, s:I, s:s}", "member", record->member,
                            "host", record->host, "pid", (json_int_t)record->pid, "rank",
                            record->rank == UINT32_MAX ? (json_int_t)-1 : (json_int_t)record->rank,
                            "generation", muster_report_number_json(record->generation), "reason",
                            words[(unsigned)record->reason % 4], "at_ms", (json_int_t)record->at_ms,
                            "why", record->why));
    }
    return list;
}

/* Members and phases -------------------------------------------------------------------------- */

const char *muster_report_phase(enum muster_job_phase phase)
{
    switch (phase) {
    case MUSTER_JOB_FORMING:
        return "forming";
    case MUSTER_JOB_RUNNING:
        return "running";
    case MUSTER_JOB_ENDED:
        return "ended";
    }
    return "unknown";
}

const char *muster_report_member_phase(enum muster_member_phase phase)
{
    switch (phase) {
    case MUSTER_MEMBER_ARRIVED:
        return "arrived";
    case MUSTER_MEMBER_ACTIVE:
        return "active";
    case MUSTER_MEMBER_AWAITED:
        return "awaited";
    }
    return "unknown";
}

json_t *muster_report_members_json(const struct muster_job_response *job)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < job->member_count; i++) {
        const struct muster_job_member *member = &job->members[i];
        (void)json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:o}",
                      "member", member->info.id, "host", member->info.host, "pid",
                      (json_int_t)member->info.pid, "phase",
                      muster_report_member_phase(member->phase), "rank", (json_int_t)member->rank,
                      "local_rank", (json_int_t)member->local_rank, "cross_rank",
                      (json_int_t)member->cross_rank, "slot", (json_int_t)member->info.slot,
                      "joined_ms", (json_int_t)member->joined_ms, "state_version",
                      (json_int_t)member->info.state_version, "progress",
                      (json_int_t)member->progress, "silent_ms", (json_int_t)member->silent_ms,
                      "suspected", (int)member->suspected, "leave_asked", (int)member->leave_asked,
                      "capabilities", muster_pairs_encode(member->info.capabilities)));
    }
    return list;
}

/* Figures -------------------------------------------------------------------------------------- */

void muster_report_figures(const struct muster_figures *figures)
{
    const struct muster_cost_model *model = &figures->model;
    (void)printf("links       latency us   posting us  port GB/s  shared GB/s\n");
    for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        const struct muster_link_figures *link = &model->links[level];
        if ((figures->levels & 1U << level) != 0) {
            (void)printf("%-10s %11.1f %12.1f %10.3f %12.3f\n", muster_level_name(level),
                         link->latency_us, link->posting_us, link->bandwidth_GBps,
                         link->shared_GBps);
        }
    }
    (void)printf("a core reduces %.1f GB/s and copies %.1f GB/s", model->core.reduce_GBps,
                 model->core.copy_GBps);
    if (model->core.cores > 0) {
        (void)printf("; %s share %u",
                     model->core.one_machine != 0 ? "all ranks" : "the ranks of a host",
                     model->core.cores);
    }
    (void)printf("\n");
}
