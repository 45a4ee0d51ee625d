/* musterd's options with argp: one row an option, and what contradicts each other. */
#include "rendezvous/musterd_options.h"

#include "rendezvous/http/http.h"
#include "worker/base/log.h"
#include "worker/base/option_parse.h"

#include <argp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    USAGE_STATUS = 2,
    DAY_MS = 24 * 60 * 60 * 1000,
    REQUESTS_MAX = 1000000, /* a second, of one address */
    KEY_HOLD = 0x100,       /* above the characters: these have no short form */
    KEY_WATCH,
    KEY_LEASE,
    KEY_SETTLE,
    KEY_ARRIVE,
    KEY_SUSPECT,
    KEY_KEEP,
    KEY_JOBS,
    KEY_ADDRESS_JOBS,
    KEY_CONNECTIONS,
    KEY_ADDRESS_CONNECTIONS,
    KEY_ADDRESS_REQUESTS,
    KEY_PORT_FILE,
    KEY_ONLY_SERVER,
    KEY_TOKENS,
    KEY_INSECURE,
    KEY_CERTIFICATE,
    KEY_KEY,
    KEY_CLIENT_AUTHORITY,
    KEY_LOG,
    KEY_LOG_FORMAT,
    KEY_ADVERTISE,
    KEY_ETCD_AUTHORITY,
    KEY_ETCD_CERTIFICATE,
    KEY_ETCD_KEY,
    KEY_SERVER_LEASE,
};

static const char doc[] =
    "The rendezvous service of Muster: decides who is in a job, and with which rank."
    "\vEvery option is also an environment variable: MUSTERD_LISTEN for --listen, MUSTERD_HOLD_MS "
    "for --hold-ms, and so on; MUSTER_LOG for --log. The command line takes precedence.\n\n"
    "SIGTERM and Ctrl-C end the server after it has answered every held request. SIGHUP makes it "
    "read tokens and certificates again.\n";

static const struct argp_option rows[] = {
    {"listen", 'l', "ADDRESS:PORT", 0,
     "Address to listen on; port 0 is any free port [default: 127.0.0.1:7070]", 1},
    {"store", 's', "PATH", 0,
     "Where jobs are stored: a file, `memory', which is lost when the process ends, or "
     "`etcd://HOST:PORT,HOST:PORT/PREFIX', which several servers share [default: musterd.db]",
     1},
    {"advertise", KEY_ADVERTISE, "URL", 0,
     "With etcd: http://HOST:PORT or https://HOST:PORT where workers and other servers reach this "
     "one [default: where it listens]",
     1},
    {"etcd-authority", KEY_ETCD_AUTHORITY, "FILE", 0,
     "Call etcd by https, and only members whose certificate is of one of these authorities, a PEM "
     "file",
     1},
    {"etcd-certificate", KEY_ETCD_CERTIFICATE, "FILE", 0,
     "The certificate that etcd is shown, a PEM file", 1},
    {"etcd-key", KEY_ETCD_KEY, "FILE", 0, "Its key, a PEM file", 1},
    {"port-file", KEY_PORT_FILE, "FILE", 0, "Write the port into this file once the server listens",
     1},
    {"tokens", KEY_TOKENS, "FILE", 0,
     "Serve only those who have a token of this file: lines of `worker TOKEN', `viewer TOKEN' or "
     "`admin TOKEN'. MUSTERD_WORKER_TOKEN, MUSTERD_VIEWER_TOKEN and MUSTERD_ADMIN_TOKEN add one "
     "each",
     1},
    {"certificate", KEY_CERTIFICATE, "FILE", 0,
     "Serve https with this certificate, a PEM file with those that lead to its root", 1},
    {"key", KEY_KEY, "FILE", 0, "The key of the certificate, a PEM file", 1},
    {"client-authority", KEY_CLIENT_AUTHORITY, "FILE", 0,
     "Serve only those who have a certificate of one of these authorities, a PEM file", 1},
    {"insecure", KEY_INSECURE, NULL, 0,
     "Start although other machines reach the address, and anybody there may do anything", 1},
    {"only-server", KEY_ONLY_SERVER, NULL, 0,
     "No other server serves the same workers before or after this one, as where `muster run' "
     "starts it: it serves at once. Else, with a new store, it serves from the next second on, so "
     "that numbers of generations never repeat",
     1},
    {"log", KEY_LOG, "LEVEL", 0, "error, warn, info or debug [default: warn]", 1},
    {"log-format", KEY_LOG_FORMAT, "FORMAT", 0,
     "text, or json: one object a line, with its time [default: text]", 1},
    {"hold-ms", KEY_HOLD, "MS", 0, "How long a Join is held [default: 1000]", 2},
    {"watch-ms", KEY_WATCH, "MS", 0, "How long a Watch is held in quiet times [default: 30000]", 2},
    {"lease-ms", KEY_LEASE, "MS", 0,
     "A member without a sign of life, and without a held Watch, for so long is dead [default: "
     "5000]",
     2},
    {"settle-ms", KEY_SETTLE, "MS", 0,
     "How long a generation waits for more newcomers after the last one [default: 200]", 2},
    {"arrive-ms", KEY_ARRIVE, "MS", 0,
     "How long a member may take to join again after a revocation [default: 30000]", 2},
    {"suspect-ms", KEY_SUSPECT, "MS", 0,
     "How long a suspected member has to give a sign of life [default: 2000]", 2},
    {"server-lease-ms", KEY_SERVER_LEASE, "MS", 0,
     "With etcd: a server that is cut off for so long loses its jobs to others; whole seconds "
     "[default: 5000]",
     2},
    {"keep-ended-ms", KEY_KEEP, "MS", 0, "How long an ended job is still shown [default: 3600000]",
     2},
    {"max-jobs", KEY_JOBS, "N", 0, "Jobs at a time [default: 1024]", 3},
    {"max-jobs-per-address", KEY_ADDRESS_JOBS, "N", 0,
     "Jobs that callers at one address may make without a token of the server [default: 256]", 3},
    {"max-connections", KEY_CONNECTIONS, "N", 0,
     "Connections at a time; fewer if the process may not open so many files [default: 16384]", 3},
    {"max-connections-per-address", KEY_ADDRESS_CONNECTIONS, "N", 0,
     "Connections of one address without a request in progress and without a token of the server; "
     "a new one closes the oldest [default: 1024, and no limit for this machine]",
     3},
    {"max-requests-per-address", KEY_ADDRESS_REQUESTS, "N", 0,
     "Requests a second of one address without a token of the server, after ten times as many at "
     "once [default: 1000, and no limit for this machine]",
     3},
    {0},
};

/* The options that are numbers. */
static const struct {
    int key;
    uint32_t least, most;
    size_t offset;
} numbers[] = {
#define NUMBER(key, least, most, member)                                  \
    {                                                                     \
        key, least, most, offsetof(struct muster_musterd_options, member) \
    }
    NUMBER(KEY_HOLD, 1, MUSTER_HOLD_MAX_MS, service.hold_ms),
    NUMBER(KEY_WATCH, 1, MUSTER_HOLD_MAX_MS, service.watch_ms),
    NUMBER(KEY_LEASE, 1, DAY_MS, service.settings.lease_ms),
    NUMBER(KEY_SETTLE, 0, DAY_MS, service.settings.settle_ms),
    NUMBER(KEY_ARRIVE, 1, DAY_MS, service.settings.arrive_ms),
    NUMBER(KEY_SUSPECT, 1, DAY_MS, service.settings.suspect_ms),
    NUMBER(KEY_SERVER_LEASE, 2000, DAY_MS, service.server_lease_ms),
    NUMBER(KEY_KEEP, 0, DAY_MS, service.keep_ended_ms),
    NUMBER(KEY_JOBS, 1, MUSTER_JOBS_MAX, service.jobs_max),
    NUMBER(KEY_ADDRESS_JOBS, 1, MUSTER_JOBS_MAX, service.jobs_per_address),
    NUMBER(KEY_CONNECTIONS, 64, MUSTER_HTTP_CONNECTIONS_MAX, connections_max),
    NUMBER(KEY_ADDRESS_CONNECTIONS, 1, MUSTER_HTTP_CONNECTIONS_MAX, connections_per_address),
    NUMBER(KEY_ADDRESS_REQUESTS, 1, REQUESTS_MAX, requests_per_address),
#undef NUMBER
};

static const struct argp_option *row_of(int key)
{
    const struct argp_option *row = rows;
    while (row->key != key) {
        row++;
    }
    return row;
}

static void set_number(struct argp_state *state, size_t index, const char *text)
{
    char what[64];
    uint32_t number = 0;
    (void)snprintf(what, sizeof what, "--%s", row_of(numbers[index].key)->name);
    if (muster_option_parse_number(what, text, numbers[index].least, numbers[index].most,
                                   &number) != MUSTER_OK) {
        argp_error(state, "%s", muster_last_error());
        return;
    }
    *(uint32_t *)((char *)state->input + numbers[index].offset) = number;
}

/* One option, from the command line or the environment. */
static error_t set_option(int key, char *text, struct argp_state *state)
{
    struct muster_musterd_options *options = state->input;
    switch (key) {
    case 'l':
        options->listen = text;
        return 0;
    case 's':
        options->store = text;
        return 0;
    case KEY_ADVERTISE:
        options->advertise = text;
        return 0;
    case KEY_ETCD_AUTHORITY:
        options->etcd_authority = text;
        return 0;
    case KEY_ETCD_CERTIFICATE:
        options->etcd_certificate = text;
        return 0;
    case KEY_ETCD_KEY:
        options->etcd_key = text;
        return 0;
    case KEY_PORT_FILE:
        options->port_file = text;
        return 0;
    case KEY_TOKENS:
        options->tokens = text;
        return 0;
    case KEY_CERTIFICATE:
        options->certificate = text;
        return 0;
    case KEY_KEY:
        options->key = text;
        return 0;
    case KEY_CLIENT_AUTHORITY:
        options->client_authority = text;
        return 0;
    case KEY_ONLY_SERVER:
        options->only_server = true;
        return 0;
    case KEY_INSECURE:
        options->insecure = true;
        return 0;
    case KEY_LOG:
        options->log = text;
        return 0;
    case KEY_LOG_FORMAT:
        options->log_json = strcmp(text, "json") == 0;
        if (!options->log_json && strcmp(text, "text") != 0) {
            argp_error(state, "--log-format \"%s\": use text or json", text);
        }
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "\"%s\": musterd takes options only", text);
        return 0;
    default:
        break;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i].key == key) {
            set_number(state, i, text);
            return 0;
        }
    }
    return ARGP_ERR_UNKNOWN;
}

/* The value of MUSTERD_HOLD_MS for "hold-ms". */
static char *from_environment(const struct argp_option *row)
{
    char name[64] = "MUSTERD_";
    size_t used = strlen(name);
    if (row->key == KEY_LOG) {
        return getenv("MUSTER_LOG");
    }
    for (const char *c = row->name; *c != '\0' && used + 1 < sizeof name; c++) {
        name[used++] = (char)(*c == '-' ? '_' : *c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    }
    name[used] = '\0';
    return getenv(name);
}

/* A healthy member sends a request, its sign of life, only when the one before was answered: at
 * most
 * --hold-ms later. Every limit on silence must be above that. */
static void refuse_contradictions(struct argp_state *state,
                                  const struct muster_service_config *config)
{
    const struct muster_job_settings *settings = &config->settings;
    if (settings->lease_ms <= 2 * config->hold_ms) {
        argp_error(state,
                   "--lease-ms %u must be more than twice --hold-ms %u: a healthy member sends "
                   "no sign of life while its request is held",
                   settings->lease_ms, config->hold_ms);
    }
    if (settings->suspect_ms <= config->hold_ms) {
        argp_error(state,
                   "--suspect-ms %u must be more than --hold-ms %u: a healthy member sends no "
                   "sign of life while its request is held",
                   settings->suspect_ms, config->hold_ms);
    }
    if (settings->suspect_ms > settings->lease_ms) {
        argp_error(state,
                   "--suspect-ms %u must not be more than --lease-ms %u: a suspected member "
                   "would live longer than others",
                   settings->suspect_ms, settings->lease_ms);
    }
    if (settings->arrive_ms <= config->hold_ms) {
        argp_error(state,
                   "--arrive-ms %u must be more than --hold-ms %u: a healthy member may need "
                   "so long until its next request",
                   settings->arrive_ms, config->hold_ms);
    }
}

static void refuse_half_tls(struct argp_state *state, const struct muster_musterd_options *options)
{
    if ((options->certificate == NULL) != (options->key == NULL)) {
        argp_error(state, "--certificate and --key are given both or not at all, and only --%s is",
                   options->key != NULL ? "key" : "certificate");
    }
    if ((options->etcd_certificate == NULL) != (options->etcd_key == NULL)) {
        argp_error(state,
                   "--etcd-certificate and --etcd-key are given both or not at all, and only "
                   "--etcd-%s is",
                   options->etcd_key != NULL ? "key" : "certificate");
    }
    if (options->etcd_certificate != NULL && options->etcd_authority == NULL) {
        argp_error(state,
                   "--etcd-certificate needs --etcd-authority, too: it is shown to members "
                   "of the cluster that are called by https only");
    }
    if (options->client_authority != NULL && options->certificate == NULL) {
        argp_error(state,
                   "--client-authority needs --certificate and --key, too: a caller shows "
                   "its certificate to https servers only");
    }
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct muster_musterd_options *options = state->input;
    enum muster_log_level level;
    switch (key) {
    case ARGP_KEY_INIT: /* the command line comes later and takes precedence */
        for (const struct argp_option *row = rows; row->name != NULL; row++) {
            char *value = from_environment(row);
            bool off = row->arg == NULL && value != NULL && strcmp(value, "0") == 0;
            if (value != NULL && value[0] != '\0' && !off) {
                (void)set_option(row->key, value, state);
            }
        }
        return 0;
    case ARGP_KEY_END:
        if (options->log != NULL && muster_log_parse_level(options->log, &level) != MUSTER_OK) {
            argp_error(state, "--log: %s", muster_last_error());
        }
        refuse_contradictions(state, &options->service);
        refuse_half_tls(state, options);
        return 0;
    default:
        return set_option(key, text, state);
    }
}

void muster_musterd_options_parse(int argc, char **argv, struct muster_musterd_options *ret_options)
{
    static const struct argp argp = {rows, parse, NULL, doc, NULL, NULL, NULL};
    argp_program_version = "musterd " MUSTER_VERSION;
    argp_err_exit_status = USAGE_STATUS;
    *ret_options = (struct muster_musterd_options){.listen = "127.0.0.1:7070",
                                                   .store = "musterd.db",
                                                   .connections_max = MUSTER_HTTP_CONNECTIONS_MAX};
    muster_service_config_init(&ret_options->service);
    (void)argp_parse(&argp, argc, argv, 0, NULL, ret_options);
}
