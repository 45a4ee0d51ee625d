/* The metrics in Prometheus' text format 0.0.4. No label has a value that a client chose. */
#include "rendezvous/routes/status_paths.h"
#include "rendezvous/service/damaged_jobs.h"
#include "rendezvous/service/transactions.h"
#include "worker/base/clock.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { US_PER_S = 1000000, MEMBER_PHASES = MUSTER_MEMBER_AWAITED, JOB_PHASES = MUSTER_JOB_ENDED };

static void declare(FILE *text, const char *name, const char *type, const char *help)
{
    (void)fprintf(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_one(FILE *text, const char *name, const char *type, const char *help,
                      double value)
{
    declare(text, name, type, help);
    (void)fprintf(text, "%s %.15g\n", name, value);
}

static double seconds(int64_t us)
{
    return (double)us / US_PER_S;
}

/* The sum is read first: a value that is observed meanwhile is rather in the buckets alone. */
static void write_histogram(FILE *text, const char *name, const char *help,
                            const struct muster_histogram *histogram)
{
    double sum = seconds(atomic_load(&histogram->sum_us));
    uint64_t count = 0;
    declare(text, name, "histogram", help);
    for (int i = 0; i < MUSTER_METRICS_BOUNDS; i++) {
        count += atomic_load(&histogram->buckets[i]);
        (void)fprintf(text, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name,
                      seconds(histogram->bounds_us[i]), count);
    }
    count += atomic_load(&histogram->buckets[MUSTER_METRICS_BOUNDS]);
    (void)fprintf(text, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.15g\n%s_count %" PRIu64 "\n",
                  name, count, name, sum, name, count);
}

/* Requests ------------------------------------------------------------------------------------ */

static const char *code_name(int code)
{
    return code == MUSTER_RPC_OK ? "ok" : muster_rpc_code_name((enum muster_rpc_code)code);
}

/* Only what has occurred, but each method with "ok": a rate needs a beginning. */
static void write_requests(FILE *text, const struct muster_metrics *metrics)
{
    declare(text, "musterd_requests_total", "counter", "Requests that a method has answered.");
    for (int method = 0; method < MUSTER_RPC_METHOD_COUNT; method++) {
        for (int code = 0; code < MUSTER_METRICS_CODES; code++) {
            uint64_t count = atomic_load(&metrics->responses[method][code]);
            if (count > 0 || code == MUSTER_RPC_OK) {
                (void)fprintf(
                    text, "musterd_requests_total{method=\"%s\",code=\"%s\"} %" PRIu64 "\n",
                    muster_rpc_method_name((enum muster_rpc_method)method), code_name(code), count);
            }
        }
    }
    declare(text, "musterd_refused_requests_total", "counter",
            "Requests that HTTP refused before a method was called.");
    for (int code = 1; code < MUSTER_METRICS_CODES; code++) {
        uint64_t count = atomic_load(&metrics->refusals[code]);
        if (count > 0 || code == MUSTER_RPC_INVALID_ARGUMENT) {
            (void)fprintf(text, "musterd_refused_requests_total{code=\"%s\"} %" PRIu64 "\n",
                          code_name(code), count);
        }
    }
    declare(
        text, "musterd_rate_limited_requests_total", "counter",
        "Requests of strangers that came too often, by limit: of all requests of an address, or "
        "of those without a good token.");
    for (int failures = 0; failures < 2; failures++) {
        (void)fprintf(text, "musterd_rate_limited_requests_total{limit=\"%s\"} %" PRIu64 "\n",
                      failures == 1 ? "failures" : "requests",
                      atomic_load(&metrics->limited[failures]));
    }
    write_one(text, "musterd_held_requests", "gauge", "Joins, Watches and Waits that are held now.",
              (double)atomic_load(&metrics->held));
}

/* Jobs ---------------------------------------------------------------------------------------- */

struct job_counts {
    uint32_t jobs[JOB_PHASES + 1];
    uint32_t members[MEMBER_PHASES + 1];
    uint32_t suspected;
};

static void count_job(struct muster_transaction *transaction, void *user)
{
    struct job_counts *counts = user;
    const struct muster_membership *membership = transaction->job->membership;
    struct muster_member_view view;
    if (transaction->job->event_count == 0) {
        return;
    }
    counts->jobs[muster_membership_phase(membership)]++;
    for (uint32_t i = 0; muster_membership_member(membership, i, &view); i++) {
        counts->members[view.phase]++;
        counts->suspected += view.suspected;
    }
}

static void write_jobs(FILE *text, struct muster_service *service)
{
    static const char *const job_phases[] = {NULL, "forming", "running", "ended"};
    static const char *const member_phases[] = {NULL, "arrived", "active", "awaited"};
    struct job_counts counts = {0};
    (void)muster_transaction_each(service, MUSTER_NEVER, count_job, &counts);
    declare(text, "musterd_jobs", "gauge", "Jobs by phase.");
    for (int i = 1; i <= JOB_PHASES; i++) {
        (void)fprintf(text, "musterd_jobs{phase=\"%s\"} %u\n", job_phases[i], counts.jobs[i]);
    }
    declare(text, "musterd_members", "gauge",
            "Members by phase: arrived waits for a generation, active is in the running one, "
            "awaited has not joined again yet.");
    for (int i = 1; i <= MEMBER_PHASES; i++) {
        (void)fprintf(text, "musterd_members{phase=\"%s\"} %u\n", member_phases[i],
                      counts.members[i]);
    }
    write_one(text, "musterd_suspected_members", "gauge",
              "Members whose connection closed or that were reported, and that have not been heard "
              "since.",
              counts.suspected);
}

static void write_store(FILE *text, struct muster_service *service)
{
    const struct muster_metrics *metrics = &service->metrics;
    write_histogram(text, "musterd_store_append_seconds",
                    "Time to append an event to the store, or to fail.", &metrics->appends);
    write_one(text, "musterd_store_append_failures_total", "counter",
              "Events that could not be appended to the store.",
              (double)atomic_load(&metrics->append_failures));
    write_histogram(text, "musterd_store_sync_seconds",
                    "Time to sync the store, once for all that was written meanwhile, or to fail.",
                    &metrics->syncs);
    write_one(text, "musterd_store_sync_failures_total", "counter",
              "Syncs of the store that failed. After one nothing is stored until a new start.",
              (double)atomic_load(&metrics->sync_failures));
    write_one(text, "musterd_damaged_jobs", "gauge",
              "Jobs that are not served because a row of them in the store is damaged.",
              (double)muster_damaged_jobs_count(service));
}

static void write_events(FILE *text, const struct muster_metrics *metrics)
{
    static const char *const reasons[] = {"died", "finished", "planned", "failed"};
    write_one(text, "musterd_generations_formed_total", "counter", "Generations that have formed.",
              (double)atomic_load(&metrics->generations));
    declare(text, "musterd_departures_total", "counter", "Members that are gone, by reason.");
    for (int i = 0; i < MUSTER_METRICS_REASONS; i++) {
        (void)fprintf(text, "musterd_departures_total{reason=\"%s\"} %" PRIu64 "\n", reasons[i],
                      atomic_load(&metrics->departures[i]));
    }
    declare(text, "musterd_deaths_total", "counter",
            "Members that were declared dead, by verdict.");
    for (int i = 0; i < MUSTER_LIVENESS_VERDICTS; i++) {
        (void)fprintf(text, "musterd_deaths_total{verdict=\"%s\"} %" PRIu64 "\n",
                      muster_liveness_verdict_name((enum muster_liveness_verdict_kind)i),
                      atomic_load(&metrics->deaths[i]));
    }
    write_histogram(text, "musterd_recovery_seconds",
                    "Time from the revocation of a generation, for any reason, to the next one.",
                    &metrics->recovery);
}

/* The process --------------------------------------------------------------------------------- */

static unsigned count_open_files(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL) {
        count++;
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return count > 3 ? count - 3 : 0; /* ".", ".." and the folder itself */
}

/* The first two numbers of statm are the pages of virtual and of resident memory. */
static void write_memory(FILE *text)
{
    char line[128] = "";
    char *rest = line;
    double page_bytes = (double)sysconf(_SC_PAGESIZE);
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL) {
        return;
    }
    if (fgets(line, sizeof line, file) != NULL) {
        unsigned long virtual_pages = strtoul(line, &rest, 10);
        unsigned long resident_pages = strtoul(rest, &rest, 10);
        write_one(text, "process_virtual_memory_bytes", "gauge", "Virtual memory.",
                  (double)virtual_pages * page_bytes);
        write_one(text, "process_resident_memory_bytes", "gauge", "Resident memory.",
                  (double)resident_pages * page_bytes);
    }
    (void)fclose(file);
}

/* The names are those of Prometheus' own client libraries. */
static void write_process(FILE *text, const struct muster_service *service)
{
    struct timespec cpu = {0};
    struct rlimit files = {0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    write_one(text, "process_cpu_seconds_total", "counter", "User and system time.",
              (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9);
    write_memory(text);
    write_one(text, "process_open_fds", "gauge", "Open file descriptors.", count_open_files());
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        write_one(text, "process_max_fds", "gauge", "The limit of open file descriptors.",
                  (double)files.rlim_cur);
    }
    write_one(text, "process_start_time_seconds", "gauge",
              "When the service started, in seconds since 1970.",
              (double)service->metrics.started_s);
    declare(text, "musterd_build_info", "gauge", "1; the labels say what runs.");
    (void)fprintf(text, "musterd_build_info{version=\"%s\",store=\"%s\"} 1\n", MUSTER_VERSION,
                  service->store->ops->kind);
}

char *muster_metrics_format(struct muster_service *service,
                            const struct muster_status_sockets *sockets)
{
    char *bytes = NULL;
    size_t size_bytes = 0;
    FILE *text = open_memstream(&bytes, &size_bytes);
    if (text == NULL) {
        return NULL;
    }
    write_requests(text, &service->metrics);
    write_jobs(text, service);
    write_events(text, &service->metrics);
    write_store(text, service);
    write_one(text, "musterd_connections", "gauge", "Open connections.", (double)sockets->open);
    write_one(text, "musterd_connections_accepted_total", "counter",
              "Connections that were accepted.", (double)sockets->accepted);
    write_one(text, "musterd_refused_handshakes_total", "counter",
              "TLS handshakes that were refused, as the client offered HTTP/2 only.",
              (double)sockets->http2_only);
    write_process(text, service);
    if (fclose(text) != 0) {
        free(bytes);
        return NULL;
    }
    return bytes;
}
