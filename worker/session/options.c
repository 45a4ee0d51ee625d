#include "worker/session/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/select/algorithm_override.h"
#include "worker/base/cleanup.h"
#include "worker/fabric/fabric.h"
#include "worker/session/rendezvous_client.h"

enum {
    DEFAULT_MAX_SIZE = 1024,
    DEFAULT_TIMEOUT_MS = 60000,
    TIMEOUT_MAX_MS = 7 * 24 * 3600 * 1000,
};

/* muster_options_init() cannot fail: a variable that is no number becomes this value, which no
 * option may have, and muster_open() then says what is wrong with the variable. */
#define BAD_NUMBER UINT32_MAX

static bool parse_number(const char *text, uint32_t *ret_number)
{
    if (text[0] < '0' || text[0] > '9') {
        return false; /* strtoul takes signs and spaces */
    }
    char *end = NULL;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    if (errno != 0 || *end != '\0' || number >= BAD_NUMBER) {
        return false;
    }
    *ret_number = (uint32_t)number;
    return true;
}

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

static uint32_t number_variable(const char *name, uint32_t fallback)
{
    const char *text = variable(name);
    uint32_t number = fallback;
    if (text != NULL && !parse_number(text, &number)) {
        return BAD_NUMBER;
    }
    return number;
}

static int switch_variable(const char *name, uint32_t fallback)
{
    uint32_t number = number_variable(name, fallback);
    return number == BAD_NUMBER ? -1 : (int)(number & INT32_MAX);
}

void muster_options_init(muster_options *options)
{
    *options = (muster_options){
        .rendezvous = variable("MUSTER_RENDEZVOUS"),
        .job = variable("MUSTER_JOB"),
        .token = variable("MUSTER_TOKEN"),
        .host = variable("MUSTER_HOST"),
        .rack = variable("MUSTER_RACK"),
        .listen = variable("MUSTER_LISTEN"),
        .interface = variable("MUSTER_INTERFACE"),
        .tls_certificate = variable("MUSTER_TLS_CERTIFICATE"),
        .tls_key = variable("MUSTER_TLS_KEY"),
        .tls_authority = variable("MUSTER_TLS_AUTHORITY"),
        .tls_name = variable("MUSTER_TLS_NAME"),
        .tcp_connections = number_variable("MUSTER_TCP_CONNECTIONS", 1),
        .min_size = number_variable("MUSTER_MIN", 1),
        .max_size = number_variable("MUSTER_MAX", DEFAULT_MAX_SIZE),
        .target_size = number_variable("MUSTER_TARGET", 0),
        .order = number_variable("MUSTER_ORDER", 0),
        .verbs_device = variable("MUSTER_VERBS_DEVICE"),
        .verbs_connections = number_variable("MUSTER_VERBS_CONNECTIONS", 0),
        .verbs_port = number_variable("MUSTER_VERBS_PORT", 0),
        .verbs_gid = variable("MUSTER_VERBS_GID"),
        .algorithm = variable("MUSTER_ALGORITHM"),
        .timeline = variable("MUSTER_TIMELINE"),
        .join_timeout_ms = number_variable("MUSTER_JOIN_TIMEOUT_MS", DEFAULT_TIMEOUT_MS),
        .call_timeout_ms = number_variable("MUSTER_CALL_TIMEOUT_MS", DEFAULT_TIMEOUT_MS),
    };
    options->leave_on_sigterm = switch_variable("MUSTER_LEAVE_ON_SIGTERM", 1);
    options->measure = switch_variable("MUSTER_MEASURE", 1);
    options->tune = switch_variable("MUSTER_TUNE", 1);
    options->reproducible = switch_variable("MUSTER_REPRODUCIBLE", 0);
    options->shared_memory = switch_variable("MUSTER_SHARED_MEMORY", 1);
    options->verbs = switch_variable("MUSTER_VERBS", 0);
}

/* One number and where it may lie. */
struct range {
    const char *option, *variable;
    uint32_t least, most;
};

static muster_status check_number(uint32_t number, struct range range)
{
    if (number >= range.least && number <= range.most) {
        return MUSTER_OK;
    }
    const char *text = variable(range.variable);
    uint32_t parsed = 0;
    if (number == BAD_NUMBER && text != NULL && !parse_number(text, &parsed)) {
        return muster_error_set(MUSTER_INVALID, "%s=\"%.64s\": must be a number from %u to %u",
                                range.variable, text, range.least, range.most);
    }
    return muster_error_set(MUSTER_INVALID, "%s (%s) %u: must be from %u to %u", range.option,
                            range.variable, number, range.least, range.most);
}

static muster_status check_switch(int value, const char *option, const char *variable_name)
{
    uint32_t number = value < 0 ? BAD_NUMBER : (uint32_t)value;
    return check_number(number, (struct range){option, variable_name, 0, 1});
}

static muster_status check_numbers(const muster_options *options)
{
    TRY(check_number(options->min_size,
                     (struct range){"min_size", "MUSTER_MIN", 1, MUSTER_MEMBERS_MAX}));
    TRY(check_number(options->max_size, (struct range){"max_size", "MUSTER_MAX", options->min_size,
                                                       MUSTER_MEMBERS_MAX}));
    if (options->target_size != 0) {
        TRY(check_number(
            options->target_size,
            (struct range){"target_size", "MUSTER_TARGET", options->min_size, options->max_size}));
    }
    TRY(check_number(options->order, (struct range){"order", "MUSTER_ORDER", 0, BAD_NUMBER - 1}));
    TRY(check_number(
        options->join_timeout_ms,
        (struct range){"join_timeout_ms", "MUSTER_JOIN_TIMEOUT_MS", 1, TIMEOUT_MAX_MS}));
    TRY(check_number(
        options->call_timeout_ms,
        (struct range){"call_timeout_ms", "MUSTER_CALL_TIMEOUT_MS", 1, TIMEOUT_MAX_MS}));
    TRY(check_number(options->tcp_connections,
                     (struct range){"tcp_connections", "MUSTER_TCP_CONNECTIONS", 1,
                                    MUSTER_TCP_CONNECTIONS_MAX}));
    TRY(check_switch(options->measure, "measure", "MUSTER_MEASURE"));
    TRY(check_switch(options->tune, "tune", "MUSTER_TUNE"));
    TRY(check_switch(options->reproducible, "reproducible", "MUSTER_REPRODUCIBLE"));
    TRY(check_switch(options->verbs, "verbs", "MUSTER_VERBS"));
    TRY(check_number(options->verbs_port,
                     (struct range){"verbs_port", "MUSTER_VERBS_PORT", 0, UINT8_MAX}));
    TRY(check_number(options->verbs_connections,
                     (struct range){"verbs_connections", "MUSTER_VERBS_CONNECTIONS", 0,
                                    MUSTER_VERBS_CONNECTIONS_MAX}));
    TRY(check_switch(options->shared_memory, "shared_memory", "MUSTER_SHARED_MEMORY"));
    return check_switch(options->leave_on_sigterm, "leave_on_sigterm", "MUSTER_LEAVE_ON_SIGTERM");
}

/* what: "host (MUSTER_HOST)". */
static muster_status check_name(const char *what, const char *name, size_t size_bytes)
{
    size_t length = strlen(name);
    bool good = length > 0 && length < size_bytes;
    for (size_t i = 0; good && i < length; i++) {
        good = name[i] > ' ' && name[i] <= '~';
    }
    return good ? MUSTER_OK
                : muster_error_set(MUSTER_INVALID,
                                   "%s \"%.80s\": must be 1 to %zu printable characters without "
                                   "spaces",
                                   what, name, size_bytes - 1);
}

static muster_status copy(const char *text, char **ret_copy)
{
    char *copied = strdup(text);
    if (copied == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    *ret_copy = copied;
    return MUSTER_OK;
}

/* NULL stays NULL. */
static muster_status copy_given(const char *text, char **ret_copy)
{
    return text != NULL ? copy(text, ret_copy) : MUSTER_OK;
}

static muster_status copy_tls(const muster_options *options, struct muster_settings *settings)
{
    TRY(copy_given(options->tls_certificate, &settings->tls_certificate));
    TRY(copy_given(options->tls_key, &settings->tls_key));
    TRY(copy_given(options->tls_authority, &settings->tls_authority));
    return copy_given(options->tls_name, &settings->tls_name);
}

static muster_status copy_host(const char *host, char **ret_copy)
{
    char name[MUSTER_HOST_SIZE] = "";
    if (host == NULL) {
        /* A longer host name is cut: any name will do that is the same for the whole host. */
        if (gethostname(name, sizeof name) != 0 && errno != ENAMETOOLONG) {
            return muster_error_errno(MUSTER_FATAL, "host name");
        }
        name[sizeof name - 1] = '\0';
        host = name;
    }
    TRY(check_name("host (MUSTER_HOST)", host, MUSTER_HOST_SIZE));
    return copy(host, ret_copy);
}

static muster_status copy_rack(const char *rack, char **ret_copy)
{
    if (rack == NULL || rack[0] == '\0') {
        return copy("", ret_copy);
    }
    TRY(check_name("rack (MUSTER_RACK)", rack, MUSTER_RACK_SIZE));
    return copy(rack, ret_copy);
}

static muster_status check_algorithm(const char *text)
{
    struct muster_algorithm_override unused;
    muster_status status = muster_algorithm_override_parse(text, &unused);
    return status == MUSTER_OK ? MUSTER_OK
                               : muster_error_prefix(status, "algorithm (MUSTER_ALGORITHM)");
}

static muster_status check_interface(const muster_options *options)
{
    if (options->interface == NULL) {
        return MUSTER_OK;
    }
    if (options->listen != NULL && options->listen[0] != '*') {
        return muster_error_set(
            MUSTER_INVALID,
            "interface (MUSTER_INTERFACE) \"%.80s\": there is nothing to choose, "
            "listen (MUSTER_LISTEN) is the address \"%.80s\"",
            options->interface, options->listen);
    }
    muster_status status = muster_interfaces_check(options->interface);
    return status == MUSTER_OK ? MUSTER_OK
                               : muster_error_prefix(status, "interface (MUSTER_INTERFACE)");
}

static muster_status copy_verbs(const muster_options *options, struct muster_settings *settings)
{
    uint32_t gid = 0;
    settings->verbs_gid = -1;
    if (options->verbs_gid != NULL) {
        if (!parse_number(options->verbs_gid, &gid) || gid > UINT8_MAX) {
            return muster_error_set(
                MUSTER_INVALID,
                "verbs_gid (MUSTER_VERBS_GID) \"%.32s\": must be an index, 0 to "
                "%d",
                options->verbs_gid, UINT8_MAX);
        }
        settings->verbs_gid = (int32_t)gid;
    }
    return copy_given(options->verbs_device, &settings->verbs_device);
}

static muster_status copy_strings(const muster_options *options, struct muster_settings *settings)
{
    const char *job = options->job != NULL ? options->job : "default";
    if (options->rendezvous == NULL) {
        return muster_error_set(
            MUSTER_INVALID, "rendezvous (MUSTER_RENDEZVOUS) is not set: it is http://HOST:PORT");
    }
    TRY(muster_client_check_url(options->rendezvous));
    if (!muster_job_name_valid(job)) {
        return muster_error_set(MUSTER_INVALID,
                                "job (MUSTER_JOB) \"%.80s\": must be 1 to %d letters, digits, "
                                "'.', '_', '-'",
                                job, MUSTER_JOB_NAME_SIZE - 1);
    }
    TRY(copy(options->rendezvous, &settings->rendezvous));
    TRY(copy(job, &settings->job));
    TRY(copy(options->token != NULL ? options->token : "", &settings->token));
    TRY(copy_host(options->host, &settings->host));
    TRY(copy_rack(options->rack, &settings->rack));
    TRY(check_interface(options));
    TRY(copy_given(options->listen, &settings->listen));
    TRY(copy_given(options->interface, &settings->interface));
    TRY(copy_given(options->timeline, &settings->timeline));
    TRY(copy_tls(options, settings));
    TRY(copy_verbs(options, settings));
    if (options->algorithm != NULL) {
        TRY(check_algorithm(options->algorithm));
        TRY(copy(options->algorithm, &settings->algorithm));
    }
    return MUSTER_OK;
}

muster_status muster_settings_init(const muster_options *options,
                                   struct muster_settings *ret_settings)
{
    muster_options environment;
    if (options == NULL) {
        muster_options_init(&environment);
        options = &environment;
    }
    TRY(check_numbers(options));
    struct muster_settings settings = {
        .tcp_connections = options->tcp_connections,
        .min_size = options->min_size,
        .max_size = options->max_size,
        .target_size = options->target_size,
        .order = options->order,
        .join_timeout_ms = options->join_timeout_ms,
        .call_timeout_ms = options->call_timeout_ms,
        .leave_on_sigterm = options->leave_on_sigterm != 0,
        .measure = options->measure != 0,
        .tune = options->tune != 0,
        .reproducible = options->reproducible != 0,
        .shared_memory = options->shared_memory != 0,
        .verbs = options->verbs != 0,
        .verbs_port = options->verbs_port,
        .verbs_connections = options->verbs_connections,
    };
    muster_status status = copy_strings(options, &settings);
    if (status != MUSTER_OK) {
        muster_settings_finish(&settings);
        return status;
    }
    *ret_settings = settings;
    return MUSTER_OK;
}

void muster_settings_finish(struct muster_settings *settings)
{
    free(settings->rendezvous);
    free(settings->job);
    free(settings->token);
    free(settings->host);
    free(settings->verbs_device);
    free(settings->rack);
    free(settings->listen);
    free(settings->interface);
    free(settings->tls_certificate);
    free(settings->tls_key);
    free(settings->tls_authority);
    free(settings->tls_name);
    free(settings->algorithm);
    free(settings->timeline);
    *settings = (struct muster_settings){0};
}
