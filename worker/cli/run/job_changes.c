/* What has changed in the job since the last poll: members are matched with workers, changes are
 * reported, and the decisions of the launch policy are carried out. */
#include "worker/base/clock.h"
#include "worker/base/epoch.h"
#include "worker/cli/print.h"
#include "worker/cli/run/run_parts.h"
#include "worker/cli/service.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UNREACHABLE_MS = 5000, NONE = -1, MEMBERS_STEP = 64, MEMBERS_REMEMBERED_MAX = 65536 };

/* Matching members with workers --------------------------------------------------------------- */

static struct muster_own_member *find_member(const struct muster_supervisor *supervisor,
                                             const char *id)
{
    for (uint32_t i = supervisor->member_count; i > 0; i--) {
        if (strcmp(supervisor->members[i - 1].id, id) == 0) {
            return &supervisor->members[i - 1];
        }
    }
    return NULL;
}

/* A job at a shared server has members on other machines, where a pid means another process. */
static bool is_local_host(const struct muster_supervisor *supervisor,
                          const struct muster_worker *worker, const char *host)
{
    char name[MUSTER_HOST_SIZE];
    return (worker->host == NULL && supervisor->private_server) ||
           strcmp(muster_worker_host_name(worker->host, name, sizeof name), host) == 0;
}

/* The index of the worker that this process belongs to; NONE: it belongs to none. All processes of
 * a worker are in its process group, whose number is the worker's pid. The search starts with the
 * newest worker, because process numbers are used again. */
static int find_worker(const struct muster_supervisor *supervisor, const char *host, uint32_t pid)
{
    pid_t group = getpgid((pid_t)pid);
    for (uint32_t i = supervisor->worker_count; i > 0; i--) {
        const struct muster_worker *worker = supervisor->workers[i - 1];
        bool same = (pid_t)pid == worker->pid ||
                    (worker->phase != MUSTER_WORKER_ENDED && group == worker->pid);
        if (same && is_local_host(supervisor, worker, host)) {
            return (int)(i - 1);
        }
    }
    return NONE;
}

static struct muster_own_member *register_member(struct muster_supervisor *supervisor,
                                                 const char *id, const char *host, uint32_t pid)
{
    struct muster_own_member *member = find_member(supervisor, id);
    int worker = member == NULL ? find_worker(supervisor, host, pid) : NONE;
    if (worker == NONE || supervisor->member_count == MEMBERS_REMEMBERED_MAX) {
        return member;
    }
    if (supervisor->member_count == supervisor->member_capacity) {
        uint32_t capacity = supervisor->member_capacity + MEMBERS_STEP;
        member = realloc(supervisor->members, capacity * sizeof *member);
        if (member == NULL) {
            return NULL;
        }
        supervisor->members = member;
        supervisor->member_capacity = capacity;
    }
    member = &supervisor->members[supervisor->member_count++];
    *member = (struct muster_own_member){.worker = (uint32_t)worker};
    (void)snprintf(member->id, sizeof member->id, "%s", id);
    return member;
}

/* The member has ended before its process group could be looked up. */
static void note_unmatched_member(struct muster_supervisor *supervisor, const char *host)
{
    for (uint32_t i = 0; i < supervisor->worker_count && !supervisor->unmatched_members; i++) {
        supervisor->unmatched_members = is_local_host(supervisor, supervisor->workers[i], host);
    }
}

static void read_members(struct muster_supervisor *supervisor)
{
    const struct muster_job_response *job = &supervisor->snapshot.job;
    for (uint32_t i = 0; i < job->member_count; i++) {
        const struct muster_member_info *info = &job->members[i].info;
        (void)register_member(supervisor, info->id, info->host, info->pid);
    }
    for (uint32_t i = 0; i < job->departure_count; i++) {
        const struct muster_departure_record *record = &job->departures[i];
        struct muster_own_member *member =
            register_member(supervisor, record->member, record->host, record->pid);
        if (member != NULL) {
            member->gone = true;
            member->generation = record->generation;
        } else {
            note_unmatched_member(supervisor, record->host);
        }
    }
}

/* Reporting ----------------------------------------------------------------------------------- */

static void print_leaves(struct muster_supervisor *supervisor)
{
    const struct muster_job_response *job = &supervisor->snapshot.job;
    for (uint32_t i = 0; i < job->departure_count; i++) {
        const struct muster_departure_record *record = &job->departures[i];
        const struct muster_own_member *member = find_member(supervisor, record->member);
        if (record->reason != MUSTER_LEAVE_PLANNED || member == NULL) {
            continue;
        }
        struct muster_worker *worker = supervisor->workers[member->worker];
        if (worker->phase == MUSTER_WORKER_ENDED && !worker->leave_reported) {
            char who[128];
            worker->leave_reported = true;
            MUSTER_PRINT(supervisor, "%s left as asked, with exit status %d",
                         muster_worker_describe(worker, who, sizeof who), worker->status);
        }
    }
}

static void print_generation(struct muster_supervisor *supervisor)
{
    const struct muster_job_response *job = &supervisor->snapshot.job;
    if (job->generation <= supervisor->generation || job->generation_count == 0) {
        return;
    }
    const struct muster_generation_record *record = &job->generations[job->generation_count - 1];
    supervisor->generation = job->generation;
    MUSTER_PRINT(supervisor, "generation %" PRIu64 ": %u worker%s on %u host%s",
                 muster_epoch_shown(record->number), record->size, muster_cli_plural(record->size),
                 record->hosts, muster_cli_plural(record->hosts));
}

/* A server that does not answer is reported once, after UNREACHABLE_MS. The end of the job's own
 * server has been reported already. */
static void report_reachability(struct muster_supervisor *supervisor,
                                const struct muster_job_snapshot *snapshot)
{
    bool own_server_ended = supervisor->private_server && !supervisor->server.running;
    if (snapshot->reached || own_server_ended) {
        if (supervisor->unreachable_reported && snapshot->reached) {
            MUSTER_PRINT(supervisor, "the server at %s answers again", supervisor->url);
        }
        supervisor->unreachable_since_ns = 0;
        supervisor->unreachable_reported = false;
    } else if (supervisor->unreachable_since_ns == 0) {
        supervisor->unreachable_since_ns = snapshot->requested_ns;
    } else if (!supervisor->unreachable_reported &&
               muster_clock_ns() - supervisor->unreachable_since_ns >
                   UNREACHABLE_MS * INT64_C(1000000)) {
        supervisor->unreachable_reported = true;
        MUSTER_PRINT(supervisor,
                     "%s; the workers continue, but the job cannot grow until the server answers",
                     snapshot->error);
    }
}

/* Carrying decisions out ---------------------------------------------------------------------- */

static void grow(struct muster_supervisor *supervisor, uint32_t count)
{
    uint32_t before = supervisor->worker_count;
    muster_status status = muster_workers_start(supervisor, count);
    if (status != MUSTER_OK) {
        MUSTER_PRINT(supervisor, "%s", muster_last_error());
    }
    char who[128];
    for (uint32_t i = before; i < supervisor->worker_count; i++) {
        MUSTER_PRINT(supervisor, "started %s",
                     muster_worker_describe(supervisor->workers[i], who, sizeof who));
    }
}

uint32_t muster_job_changes_others(const struct muster_supervisor *supervisor)
{
    const struct muster_job_response *job = &supervisor->snapshot.job;
    uint32_t others = 0;
    for (uint32_t i = 0; i < job->member_count; i++) {
        others += find_member(supervisor, job->members[i].info.id) == NULL ? 1 : 0;
    }
    return others;
}

static void end_job(struct muster_supervisor *supervisor, const char *why)
{
    struct muster_client *client = NULL;
    muster_status status = muster_service_connect(supervisor->url, supervisor->token, &client);
    if (status == MUSTER_OK) {
        status = muster_service_end_job(client, supervisor->options->job, why,
                                        MUSTER_JOB_POLL_TIMEOUT_MS);
    }
    muster_client_destroy(client);
    if (status != MUSTER_OK) {
        MUSTER_PRINT(supervisor, "%s", muster_last_error());
    }
}

static void print_target(struct muster_supervisor *supervisor,
                         const struct muster_launch_decision *decision)
{
    uint32_t target_size = supervisor->snapshot.job.target_size;
    char growth[64] = "";
    if (decision->start > 0) {
        (void)snprintf(growth, sizeof growth, "; it has %u: starting %u", decision->present,
                       decision->start);
    }
    MUSTER_PRINT(supervisor, "the job's target size is now %u worker%s%s", target_size,
                 muster_cli_plural(target_size), growth);
}

static void handle_shortage(struct muster_supervisor *supervisor)
{
    char why[MUSTER_WHY_SIZE];
    (void)snprintf(why, sizeof why, "only %u of at least %u workers are left",
                   supervisor->running + muster_job_changes_others(supervisor),
                   supervisor->snapshot.job.min_size);
    if (supervisor->options->timeout_s > 0) {
        MUSTER_PRINT(supervisor, "%s (--min): the job waits %u s for more", why,
                     supervisor->options->timeout_s);
    } else {
        MUSTER_PRINT(supervisor, "%s (--min), and no others will join: ending the job", why);
        end_job(supervisor, why);
    }
}

static struct muster_launch_view view_job(const struct muster_supervisor *supervisor)
{
    const struct muster_job_snapshot *snapshot = &supervisor->snapshot;
    return (struct muster_launch_view){
        .only_launcher = supervisor->private_server,
        .may_grow = supervisor->options->grow,
        .stopping = supervisor->stop_signal != 0,
        .running = supervisor->running,
        .running_max = MUSTER_RUN_SIZE_MAX,
        .others = muster_job_changes_others(supervisor),
        .last_end_ns = supervisor->last_end_ns,
        .polled_ns = snapshot->requested_ns,
        .phase = snapshot->job.phase,
        .min_size = snapshot->job.min_size,
        .target_size = snapshot->job.target_size,
        .resizes = snapshot->job.resizes,
    };
}

static void follow_policy(struct muster_supervisor *supervisor)
{
    const struct muster_launch_view view = view_job(supervisor);
    struct muster_launch_decision decision =
        muster_launch_policy_decide(&supervisor->policy, &view);
    if (decision.resized) {
        print_target(supervisor, &decision);
        grow(supervisor, decision.start);
    }
    if (decision.shortage) {
        handle_shortage(supervisor);
    }
}

void muster_job_changes_apply(struct muster_supervisor *supervisor,
                              struct muster_job_snapshot *snapshot)
{
    report_reachability(supervisor, snapshot);
    supervisor->polled_ns = snapshot->reached ? snapshot->requested_ns : supervisor->polled_ns;
    if (!snapshot->known) {
        return;
    }
    muster_job_response_finish(&supervisor->snapshot.job);
    supervisor->snapshot = *snapshot;
    snapshot->job = (struct muster_job_response){0};
    read_members(supervisor);
    print_generation(supervisor);
    print_leaves(supervisor);
    follow_policy(supervisor);
}

void muster_job_changes_handle(struct muster_supervisor *supervisor)
{
    struct muster_job_snapshot snapshot;
    if (muster_job_poller_take(supervisor->poller, &snapshot)) {
        muster_job_changes_apply(supervisor, &snapshot);
    }
}
