/* How the job went: the exit status, some lines for people, and JSON for programs. */
#include "worker/base/clock.h"
#include "worker/cli/cli.h"
#include "worker/cli/print.h"
#include "worker/cli/report.h"
#include "worker/cli/run/run_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIGNAL_BASE = 128 };

/* The outcome --------------------------------------------------------------------------------- */

/* The worker that failed first; NULL: all of them ended with status 0. */
static const struct muster_worker *first_failed(const struct muster_supervisor *supervisor)
{
    const struct muster_worker *first = NULL;
    for (uint32_t i = 0; i < supervisor->worker_count; i++) {
        const struct muster_worker *worker = supervisor->workers[i];
        if (muster_worker_failed(worker) &&
            (first == NULL || worker->end_number < first->end_number)) {
            first = worker;
        }
    }
    return first;
}

/* True if the job continued without this worker: it was a member of earlier generations only, or
 * never a member. */
static bool was_survived(const struct muster_supervisor *supervisor,
                         const struct muster_worker *worker)
{
    const struct muster_job_response *job = &supervisor->snapshot.job;
    bool known = false;
    for (uint32_t i = 0; i < supervisor->member_count; i++) {
        const struct muster_own_member *member = &supervisor->members[i];
        if (member->worker == worker->index) {
            known = true;
            if (!member->gone || member->generation >= job->generation) {
                return false;
            }
        }
    }
    /* A worker without a known member may still have been one: a member that was not matched with
     * its worker, or one that the server no longer lists. */
    return known || (!supervisor->unmatched_members && job->departure_count < MUSTER_HISTORY_MAX);
}

/* True if the job has finished: members of its last generation have left as finished, and no worker
 * of this launcher that counts has failed. */
static bool job_finished(const struct muster_supervisor *supervisor)
{
    const struct muster_job_response *job = &supervisor->snapshot.job;
    bool finished = false;
    for (uint32_t i = 0; i < job->departure_count; i++) {
        const struct muster_departure_record *record = &job->departures[i];
        finished = finished || (record->reason == MUSTER_LEAVE_FINISHED &&
                                record->generation == job->generation);
    }
    for (uint32_t i = 0; i < supervisor->worker_count; i++) {
        const struct muster_worker *worker = supervisor->workers[i];
        if (muster_worker_failed(worker) && !was_survived(supervisor, worker)) {
            return false;
        }
    }
    return finished && job->phase == MUSTER_JOB_ENDED;
}

struct outcome {
    const char *word;
    int exit_status;
};

static struct outcome find_outcome(const struct muster_supervisor *supervisor)
{
    const struct muster_worker *failed = first_failed(supervisor);
    bool known = supervisor->snapshot.known;
    if (known && job_finished(supervisor)) {
        return (struct outcome){"finished", MUSTER_CLI_DONE};
    }
    if (supervisor->stop_signal != 0) {
        return (struct outcome){"interrupted", SIGNAL_BASE + supervisor->stop_signal};
    }
    if (failed != NULL) {
        int status = failed->signal != 0 ? SIGNAL_BASE + failed->signal : failed->status;
        return (struct outcome){"failed", status};
    }
    return (struct outcome){"ended", MUSTER_CLI_DONE};
}

/* For people ---------------------------------------------------------------------------------- */

static void print_generations(struct muster_supervisor *supervisor)
{
    const struct muster_job_response *job = &supervisor->snapshot.job;
    char line[MUSTER_REPORT_LINE_SIZE];
    MUSTER_PRINT(supervisor, "%s", muster_report_generation_head());
    for (uint32_t i = 0; i < job->generation_count; i++) {
        MUSTER_PRINT(supervisor, "%s", muster_report_generation(job, i, line, sizeof line));
    }
}

static void print_departures(struct muster_supervisor *supervisor)
{
    const struct muster_job_response *job = &supervisor->snapshot.job;
    char line[MUSTER_REPORT_LINE_SIZE];
    uint32_t finished = 0;
    for (uint32_t i = 0; i < job->departure_count; i++) {
        if (job->departures[i].reason == MUSTER_LEAVE_FINISHED) {
            finished++;
        } else {
            MUSTER_PRINT(supervisor, "%s",
                         muster_report_departure(&job->departures[i], line, sizeof line));
        }
    }
    if (finished > 0) {
        MUSTER_PRINT(supervisor, "%u worker%s finished", finished, muster_cli_plural(finished));
    }
}

static void print_outcome(struct muster_supervisor *supervisor, struct outcome outcome,
                          int64_t lasted_ms)
{
    MUSTER_PRINT(supervisor, "job %s: %s after %.2f s; exit status %d", supervisor->options->job,
                 outcome.word, muster_cli_seconds(lasted_ms), outcome.exit_status);
}

/* For programs -------------------------------------------------------------------------------- */

static json_t *workers_json(const struct muster_supervisor *supervisor)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < supervisor->worker_count; i++) {
        const struct muster_worker *worker = supervisor->workers[i];
        json_t *item =
            json_pack("{s:I, s:s, s:I, s:I, s:I}", "worker", (json_int_t)worker->index, "label",
                      worker->label, "pid", (json_int_t)worker->pid, "exit_status",
                      (json_int_t)worker->status, "signal", (json_int_t)worker->signal);
        (void)json_object_set_new(
            item, "host", worker->host != NULL ? json_string(worker->host->name) : json_null());
        (void)json_array_append_new(list, item);
    }
    return list;
}

static json_t *summary_json(const struct muster_supervisor *supervisor, struct outcome outcome,
                            int64_t lasted_ms)
{
    const struct muster_job_response *job = &supervisor->snapshot.job;
    return json_pack("{s:s, s:s, s:I, s:I, s:s, s:o, s:o, s:o}", "job", supervisor->options->job,
                     "outcome", outcome.word, "exit_status", (json_int_t)outcome.exit_status,
                     "lasted_ms", (json_int_t)lasted_ms, "why", job->why, "generations",
                     muster_report_generations_json(job), "departures",
                     muster_report_departures_json(job), "workers", workers_json(supervisor));
}

/* False: the summary could not be written; errno says why. */
static bool write_json(const char *path, const json_t *json)
{
    bool to_output = strcmp(path, "-") == 0;
    FILE *file = to_output ? stdout : fopen(path, "we");
    if (file == NULL) {
        return false;
    }
    bool written = muster_cli_write_json(json, MUSTER_CLI_ALL_DIGITS, file);
    written = (to_output ? fflush(file) : fclose(file)) == 0 && written;
    return written;
}

int muster_summary_print(struct muster_supervisor *supervisor)
{
    const struct muster_run_options *options = supervisor->options;
    struct outcome outcome = find_outcome(supervisor);
    int64_t lasted_ms = (muster_clock_ns() - supervisor->started_ns) / 1000000;
    if (supervisor->snapshot.known && supervisor->snapshot.job.generation_count > 0) {
        print_generations(supervisor);
        print_departures(supervisor);
    } else if (supervisor->snapshot.known) {
        MUSTER_PRINT(supervisor, "the job never started: %s", supervisor->snapshot.job.why);
    }
    print_outcome(supervisor, outcome, lasted_ms);
    if (options->json == NULL) {
        return outcome.exit_status;
    }
    json_t *json = summary_json(supervisor, outcome, lasted_ms);
    bool written = write_json(options->json, json);
    if (!written) {
        MUSTER_PRINT(supervisor, "--json %s: %s", options->json, strerror(errno));
    }
    json_decref(json);
    return written || outcome.exit_status != 0 ? outcome.exit_status : MUSTER_CLI_FAILED;
}
