/* `muster job`: lists, shows, resizes and ends the jobs of a rendezvous server. */
#include "worker/base/cleanup.h"
#include "worker/base/epoch.h"
#include "worker/base/option_parse.h"
#include "worker/cli/cli.h"
#include "worker/cli/print.h"
#include "worker/cli/report.h"
#include "worker/cli/service.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { KEY_RENDEZVOUS = 256, KEY_TOKEN_FILE, KEY_SERVER_TOKEN_FILE, KEY_JSON, KEY_WHY, KEY_WATCH };

enum { CALL_TIMEOUT_MS = 5000, WATCH_PERIOD_MS = 1000 };

enum { ARGUMENTS_MAX = 3 };

struct job_options {
    const char *rendezvous, *token_file, *server_token_file, *why;
    bool json, watch;
    int count;
    const char *arguments[ARGUMENTS_MAX]; /* the action, the job, a number */
};

struct action {
    const char *name;
    int arguments; /* how many it needs, with its own name */
    const char *usage;
    muster_status (*run)(struct muster_client *client, const struct job_options *options);
};

static const char doc[] =
    "Lists, shows, resizes and ends the jobs of a rendezvous server."
    "\v"
    "  muster job ls              list all jobs\n"
    "  muster job show JOB        show a job: members, generations, departures,\n"
    "                             link figures; --watch follows it\n"
    "  muster job resize JOB N    set the target size to N workers: the launcher\n"
    "                             starts new ones, or the workers with the highest\n"
    "                             ranks are asked to leave\n"
    "  muster job end JOB         end a job: its workers are asked to stop\n"
    "\n"
    "Example:\n"
    "  muster job resize train 6 --rendezvous http://127.0.0.1:7070\n"
    "\n"
    "`muster run' prints the address and the token file of its job when it starts.\n"
    "\n"
    "Environment: MUSTER_RENDEZVOUS is the default of --rendezvous, MUSTER_TOKEN is the token if "
    "there is no --token-file, MUSTER_SERVER_TOKEN that of the server if there is no "
    "--server-token-file; MUSTER_RENDEZVOUS_AUTHORITY, _CERTIFICATE and _KEY are for https "
    "servers.";

static const struct argp_option options_table[] = {
    {"rendezvous", KEY_RENDEZVOUS, "URL", 0, "The server, http://HOST:PORT", 1},
    {"token-file", KEY_TOKEN_FILE, "PATH", 0,
     "The first line of this file is the secret token of the job", 1},
    {"server-token-file", KEY_SERVER_TOKEN_FILE, "PATH", 0,
     "The first line of this file is one of the server's tokens: a viewer's to list and show, an "
     "admin's to change jobs whose token is not known",
     1},
    {"why", KEY_WHY, "TEXT", 0, "With `end': the reason that the workers see", 1},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object a line", 1},
    {"watch", KEY_WATCH, NULL, 0,
     "With `show': show the job again whenever it changes, until it has ended; on a terminal, "
     "every "
     "second in place",
     1},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct job_options *options = state->input;
    switch (key) {
    case KEY_RENDEZVOUS:
        options->rendezvous = argument;
        return 0;
    case KEY_TOKEN_FILE:
        options->token_file = argument;
        return 0;
    case KEY_SERVER_TOKEN_FILE:
        options->server_token_file = argument;
        return 0;
    case KEY_WHY:
        options->why = argument;
        return 0;
    case KEY_JSON:
        options->json = true;
        return 0;
    case KEY_WATCH:
        options->watch = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->count == ARGUMENTS_MAX) {
            argp_error(state, "\"%.80s\" is one argument too many", argument);
            return EINVAL;
        }
        options->arguments[options->count++] = argument;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "an action is missing: ls, show JOB, resize JOB N or end JOB");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static json_t *summary_json(const struct muster_job_summary *job)
{
    return json_pack("{s:s, s:s, s:o, s:I, s:I}", "job", job->name, "phase",
                     muster_report_phase(job->phase), "generation",
                     muster_report_number_json(job->generation), "size", (json_int_t)job->size,
                     "members", (json_int_t)job->members);
}

static muster_status print_jobs(const struct muster_jobs_response *jobs, bool json)
{
    if (!json) {
        (void)printf("%-32s %-8s %10s %8s %8s\n", "job", "phase", "generation", "workers",
                     "members");
    }
    for (uint32_t i = 0; i < jobs->count; i++) {
        const struct muster_job_summary *job = &jobs->jobs[i];
        if (json) {
            TRY(muster_cli_print_json(summary_json(job), MUSTER_CLI_ALL_DIGITS));
        } else {
            (void)printf("%-32s %-8s %10" PRIu64 " %8u %8u\n", job->name,
                         muster_report_phase(job->phase), muster_epoch_shown(job->generation),
                         job->size, job->members);
        }
    }
    return MUSTER_OK;
}

static muster_status list(struct muster_client *client, const struct job_options *options)
{
    struct muster_jobs_response jobs = {0};
    TRY(muster_service_list_jobs(client, CALL_TIMEOUT_MS, &jobs));
    muster_status status = print_jobs(&jobs, options->json);
    muster_jobs_response_finish(&jobs);
    return status;
}

static json_t *job_json(const struct muster_job_response *job, const struct muster_figures *figures)
{
    return json_pack(
        "{s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:b, s:o, s:o, s:o, s:o*}", "job", job->name, "phase",
        muster_report_phase(job->phase), "why", job->why, "generation",
        muster_report_number_json(job->generation), "min_size", (json_int_t)job->min_size,
        "max_size", (json_int_t)job->max_size, "target_size", (json_int_t)job->target_size,
        "pending", (int)job->pending, "members", muster_report_members_json(job), "generations",
        muster_report_generations_json(job), "departures", muster_report_departures_json(job),
        "figures", figures->levels != 0 ? muster_figures_encode(figures) : NULL);
}

static void format_rank(int32_t rank, char ret_text[16])
{
    (void)snprintf(ret_text, 16, rank >= 0 ? "%d" : "-", rank);
}

static void print_members(const struct muster_job_response *job)
{
    (void)printf("%6s %5s %5s %4s  %-24s %8s  %-8s %10s %10s\n", "rank", "local", "cross", "slot",
                 "host", "pid", "phase", "operations", "silent");
    for (uint32_t i = 0; i < job->member_count; i++) {
        const struct muster_job_member *member = &job->members[i];
        char ranks[3][16];
        format_rank(member->rank, ranks[0]);
        format_rank(member->local_rank, ranks[1]);
        format_rank(member->cross_rank, ranks[2]);
        (void)printf("%6s %5s %5s %4u  %-24s %8u  %-8s %10" PRIu64 " %7" PRIu64 " ms%s%s\n",
                     ranks[0], ranks[1], ranks[2], member->info.slot, member->info.host,
                     member->info.pid, muster_report_member_phase(member->phase), member->progress,
                     member->silent_ms, member->suspected ? " suspected" : "",
                     member->leave_asked ? " asked to leave" : "");
    }
}

/* A line for each set of capabilities that members have, with how many have it: as a rule one. */
static void print_capabilities(const struct muster_job_response *job)
{
    for (uint32_t i = 0; i < job->member_count; i++) {
        const char *own = job->members[i].info.capabilities;
        uint32_t alike = 0;
        bool printed = own[0] == '\0';
        for (uint32_t j = 0; j < job->member_count; j++) {
            bool same = strcmp(job->members[j].info.capabilities, own) == 0;
            printed = printed || (same && j < i);
            alike += same ? 1 : 0;
        }
        if (!printed) {
            (void)printf("capabilities of %u members: ", alike);
            for (const char *c = own; *c != '\0'; c++) { /* the last character is a line end */
                (void)fputs(*c != '\n' ? (char[]){*c, '\0'} : c[1] != '\0' ? ", " : "\n", stdout);
            }
        }
    }
}

/* For people: the state of the job in one line, then a table of each kind that has rows. */
static void print_job(const struct muster_job_response *job)
{
    char line[MUSTER_REPORT_LINE_SIZE];
    (void)printf("job %s: %s%s%s; min %u, max %u, target ", job->name,
                 muster_report_phase(job->phase), job->why[0] != '\0' ? ": " : "", job->why,
                 job->min_size, job->max_size);
    if (job->target_size > 0) {
        (void)printf("%u%s\n", job->target_size, job->pending ? "; a change is pending" : "");
    } else {
        (void)printf("none%s\n", job->pending ? "; a change is pending" : "");
    }
    if (job->member_count > 0) {
        print_members(job);
        print_capabilities(job);
    }
    if (job->generation_count > 0) {
        (void)printf("%s\n", muster_report_generation_head());
    }
    for (uint32_t i = 0; i < job->generation_count; i++) {
        (void)printf("%s\n", muster_report_generation(job, i, line, sizeof line));
    }
    for (uint32_t i = 0; i < job->departure_count; i++) {
        (void)printf("%s\n", muster_report_departure(&job->departures[i], line, sizeof line));
    }
}

/* The link figures that were measured last; without levels: none were measured. */
static void find_figures(struct muster_client *client, const char *job,
                         struct muster_figures *ret_figures)
{
    muster_figures_init(ret_figures);
    muster_status status =
        muster_figures_get(client, job, MUSTER_FIGURES_NEWEST, CALL_TIMEOUT_MS, ret_figures);
    (void)status; /* a job may have no figures */
}

static muster_status show_job(struct muster_client *client, const struct job_options *options,
                              const struct muster_job_response *job)
{
    struct muster_figures figures;
    find_figures(client, options->arguments[1], &figures);
    if (options->json) {
        return muster_cli_print_json(job_json(job, &figures), MUSTER_CLI_ALL_DIGITS);
    }
    print_job(job);
    if (figures.levels != 0) {
        muster_report_figures(&figures);
    }
    return MUSTER_OK;
}

/* The job without what only counts time and operations, as a text to compare; NULL: no memory. */
static char *state_of(struct muster_job_response *job)
{
    struct muster_figures none;
    muster_figures_init(&none);
    for (uint32_t i = 0; i < job->member_count; i++) {
        job->members[i].silent_ms = 0;
        job->members[i].progress = 0;
    }
    json_t *json = job_json(job, &none);
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

/* Shows the job once, if it is not as *last, which then becomes its state. */
static muster_status show_change(struct muster_client *client, const struct job_options *options,
                                 char **last, bool *ret_ended)
{
    static const char clear[] = "\033[H\033[2J";
    struct muster_job_response job = {0};
    bool in_place = !options->json && isatty(STDOUT_FILENO) != 0;
    TRY(muster_service_get_job(client, options->arguments[1], CALL_TIMEOUT_MS, &job, NULL));
    struct muster_job_response shown = job;
    AUTO_FREE struct muster_job_member *members = calloc(job.member_count + 1U, sizeof *members);
    AUTO_FREE char *before = *last;
    *last = NULL;
    muster_status status = MUSTER_OK;
    if (members == NULL) {
        status = muster_error_set(MUSTER_FATAL, "no memory");
    } else {
        memcpy(members, job.members, job.member_count * sizeof *members);
        shown.members = members;
        *last = state_of(&job);
        if (in_place || before == NULL || *last == NULL || strcmp(before, *last) != 0) {
            (void)fputs(in_place ? clear : "", stdout);
            status = show_job(client, options, &shown);
        }
    }
    *ret_ended = job.phase == MUSTER_JOB_ENDED;
    muster_job_response_finish(&job);
    return status;
}

/* Until the job has ended; Ctrl-C ends the process. */
static muster_status watch(struct muster_client *client, const struct job_options *options)
{
    const struct timespec period = {.tv_sec = WATCH_PERIOD_MS / 1000};
    char *last = NULL;
    bool ended = false;
    muster_status status = MUSTER_OK;
    while (status == MUSTER_OK && !ended) {
        status = show_change(client, options, &last, &ended);
        if (status == MUSTER_OK) {
            status = muster_cli_flush();
        }
        if (status == MUSTER_OK && !ended) {
            (void)nanosleep(&period, NULL);
        }
    }
    free(last);
    return status;
}

static muster_status show(struct muster_client *client, const struct job_options *options)
{
    if (options->watch) {
        return watch(client, options);
    }
    struct muster_job_response job = {0};
    TRY(muster_service_get_job(client, options->arguments[1], CALL_TIMEOUT_MS, &job, NULL));
    muster_status status = show_job(client, options, &job);
    muster_job_response_finish(&job);
    return status;
}

static muster_status resize(struct muster_client *client, const struct job_options *options)
{
    uint32_t target = 0;
    TRY(muster_option_parse_number("the number of workers", options->arguments[2], 1,
                                   MUSTER_MEMBERS_MAX, &target));
    TRY(muster_service_resize(client, options->arguments[1], target, CALL_TIMEOUT_MS));
    if (options->json) {
        return muster_cli_print_json(json_pack("{s:s, s:I}", "job", options->arguments[1],
                                               "target_size", (json_int_t)target),
                                     MUSTER_CLI_ALL_DIGITS);
    }
    (void)printf("job %s: the target size is now %u worker%s\n", options->arguments[1], target,
                 muster_cli_plural(target));
    return MUSTER_OK;
}

static muster_status end(struct muster_client *client, const struct job_options *options)
{
    const char *why = options->why != NULL ? options->why : "ended by muster job end";
    TRY(muster_service_end_job(client, options->arguments[1], why, CALL_TIMEOUT_MS));
    if (options->json) {
        return muster_cli_print_json(json_pack("{s:s, s:s, s:s}", "job", options->arguments[1],
                                               "phase", "ended", "why", why),
                                     MUSTER_CLI_ALL_DIGITS);
    }
    (void)printf("job %s has ended\n", options->arguments[1]);
    return MUSTER_OK;
}

static const struct action *find_action(const struct job_options *options)
{
    static const struct action actions[] = {
        {"ls", 1, "muster job ls", list},
        {"show", 2, "muster job show JOB", show},
        {"resize", 3, "muster job resize JOB N", resize},
        {"end", 2, "muster job end JOB", end},
    };
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strcmp(options->arguments[0], actions[i].name) != 0) {
            continue;
        }
        if (options->count != actions[i].arguments) {
            (void)muster_error_set(MUSTER_INVALID, "usage: %s", actions[i].usage);
            return NULL;
        }
        return &actions[i];
    }
    (void)muster_error_set(MUSTER_INVALID,
                           "there is no \"muster job %.64s\": use ls, show, resize or end",
                           options->arguments[0]);
    return NULL;
}

static muster_status check(const struct job_options *options)
{
    if (options->count > 1 && !muster_job_name_valid(options->arguments[1])) {
        return muster_error_set(MUSTER_INVALID,
                                "\"%.80s\" cannot be the name of a job: a name has 1 to %d "
                                "letters, digits, '.', '_' or '-'",
                                options->arguments[1], MUSTER_JOB_NAME_SIZE - 1);
    }
    if (options->rendezvous == NULL || options->rendezvous[0] == '\0') {
        return muster_error_set(MUSTER_INVALID,
                                "a server is missing: --rendezvous http://HOST:PORT or "
                                "MUSTER_RENDEZVOUS");
    }
    if (options->why != NULL && strlen(options->why) >= MUSTER_WHY_SIZE) {
        return muster_error_set(MUSTER_INVALID, "--why: longer than %d bytes", MUSTER_WHY_SIZE - 1);
    }
    if (options->watch && strcmp(options->arguments[0], "show") != 0) {
        return muster_error_set(MUSTER_INVALID, "--watch goes with `show', not with `%.64s'",
                                options->arguments[0]);
    }
    return muster_client_check_url(options->rendezvous);
}

static muster_status connect_to(const struct job_options *options,
                                struct muster_client **ret_client)
{
    char token[MUSTER_TOKEN_MAX_BYTES + 1];
    const char *given = getenv("MUSTER_TOKEN");
    if (options->token_file != NULL) {
        TRY(muster_service_read_token(options->token_file, token));
        given = token;
    }
    if (options->server_token_file != NULL) {
        TRY(muster_service_use_server_token(options->server_token_file));
    }
    return muster_service_connect(options->rendezvous, given, ret_client);
}

int muster_cli_job(int argc, char **argv)
{
    static const struct argp argp = {
        options_table, parse, "ls\nshow JOB\nresize JOB N\nend JOB", doc, NULL, NULL, NULL};
    struct job_options options = {.rendezvous = getenv("MUSTER_RENDEZVOUS")};
    if (argp_parse(&argp, argc, argv, 0, NULL, &options) != 0) {
        return MUSTER_CLI_USAGE;
    }
    const struct action *action = find_action(&options);
    if (action == NULL || check(&options) != MUSTER_OK) {
        return muster_cli_misuse("job");
    }
    struct muster_client *client = NULL;
    muster_status status = connect_to(&options, &client);
    if (status == MUSTER_OK) {
        status = action->run(client, &options);
    }
    muster_client_destroy(client);
    if (status == MUSTER_OK) {
        status = muster_cli_flush();
    }
    return status == MUSTER_OK ? MUSTER_CLI_DONE : muster_cli_fail(MUSTER_CLI_FAILED);
}
