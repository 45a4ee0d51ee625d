#include "worker/session/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/select/algorithm_override.h"
#include "worker/base/option_parse.h"
#include "worker/fabric/fabric.h"
#include "worker/session/rendezvous_client.h"

enum {
    DEFAULT_MAX_SIZE = 1024,
    DEFAULT_TIMEOUT_MS = 60000,
    TIMEOUT_MAX_MS = 7 * 24 * 3600 * 1000,
};

void muster_options_init(muster_options *options)
{
    *options = (muster_options){
        .rendezvous = muster_option_variable("MUSTER_RENDEZVOUS"),
        .job = muster_option_variable("MUSTER_JOB"),
        .token = muster_option_variable("MUSTER_TOKEN"),
        .host = muster_option_variable("MUSTER_HOST"),
        .rack = muster_option_variable("MUSTER_RACK"),
        .listen = muster_option_variable("MUSTER_LISTEN"),
        .interface = muster_option_variable("MUSTER_INTERFACE"),
        .tls_certificate = muster_option_variable("MUSTER_TLS_CERTIFICATE"),
        .tls_key = muster_option_variable("MUSTER_TLS_KEY"),
        .tls_authority = muster_option_variable("MUSTER_TLS_AUTHORITY"),
        .tls_name = muster_option_variable("MUSTER_TLS_NAME"),
        .tcp_connections = muster_option_read_number("MUSTER_TCP_CONNECTIONS", 1),
        .min_size = muster_option_read_number("MUSTER_MIN", 1),
        .max_size = muster_option_read_number("MUSTER_MAX", DEFAULT_MAX_SIZE),
        .target_size = muster_option_read_number("MUSTER_TARGET", 0),
        .order = muster_option_read_number("MUSTER_ORDER", 0),
        .verbs_device = muster_option_variable("MUSTER_VERBS_DEVICE"),
        .verbs_connections = muster_option_read_number("MUSTER_VERBS_CONNECTIONS", 0),
        .verbs_port = muster_option_read_number("MUSTER_VERBS_PORT", 0),
        .verbs_gid = muster_option_variable("MUSTER_VERBS_GID"),
        .algorithm = muster_option_variable("MUSTER_ALGORITHM"),
        .timeline = muster_option_variable("MUSTER_TIMELINE"),
        .join_timeout_ms = muster_option_read_number("MUSTER_JOIN_TIMEOUT_MS", DEFAULT_TIMEOUT_MS),
        .call_timeout_ms = muster_option_read_number("MUSTER_CALL_TIMEOUT_MS", DEFAULT_TIMEOUT_MS),
    };
    options->leave_on_sigterm = muster_option_read_switch("MUSTER_LEAVE_ON_SIGTERM", 1);
    options->measure = muster_option_read_switch("MUSTER_MEASURE", 1);
    options->tune = muster_option_read_switch("MUSTER_TUNE", 1);
    options->reproducible = muster_option_read_switch("MUSTER_REPRODUCIBLE", 0);
    options->shared_memory = muster_option_read_switch("MUSTER_SHARED_MEMORY", 1);
    options->verbs = muster_option_read_switch("MUSTER_VERBS", 0);
}

static muster_status check_numbers(const muster_options *options)
{
    TRY(muster_option_check_number(
        options->min_size,
        (struct muster_option_range){"min_size", "MUSTER_MIN", 1, MUSTER_MEMBERS_MAX}));
    TRY(muster_option_check_number(
        options->max_size, (struct muster_option_range){"max_size", "MUSTER_MAX", options->min_size,
                                                        MUSTER_MEMBERS_MAX}));
    if (options->target_size != 0) {
        TRY(muster_option_check_number(options->target_size,
                                       (struct muster_option_range){"target_size", "MUSTER_TARGET",
                                                                    options->min_size,
                                                                    options->max_size}));
    }
    TRY(muster_option_check_number(
        options->order,
        (struct muster_option_range){"order", "MUSTER_ORDER", 0, MUSTER_OPTION_BAD - 1}));
    TRY(muster_option_check_number(options->join_timeout_ms,
                                   (struct muster_option_range){"join_timeout_ms",
                                                                "MUSTER_JOIN_TIMEOUT_MS", 1,
                                                                TIMEOUT_MAX_MS}));
    TRY(muster_option_check_number(options->call_timeout_ms,
                                   (struct muster_option_range){"call_timeout_ms",
                                                                "MUSTER_CALL_TIMEOUT_MS", 1,
                                                                TIMEOUT_MAX_MS}));
    TRY(muster_option_check_number(options->tcp_connections,
                                   (struct muster_option_range){"tcp_connections",
                                                                "MUSTER_TCP_CONNECTIONS", 1,
                                                                MUSTER_TCP_CONNECTIONS_MAX}));
    TRY(muster_option_check_switch(options->measure, "measure", "MUSTER_MEASURE"));
    TRY(muster_option_check_switch(options->tune, "tune", "MUSTER_TUNE"));
    TRY(muster_option_check_switch(options->reproducible, "reproducible", "MUSTER_REPRODUCIBLE"));
    TRY(muster_option_check_switch(options->verbs, "verbs", "MUSTER_VERBS"));
    TRY(muster_option_check_number(
        options->verbs_port,
        (struct muster_option_range){"verbs_port", "MUSTER_VERBS_PORT", 0, UINT8_MAX}));
    TRY(muster_option_check_number(options->verbs_connections,
                                   (struct muster_option_range){"verbs_connections",
                                                                "MUSTER_VERBS_CONNECTIONS", 0,
                                                                MUSTER_VERBS_CONNECTIONS_MAX}));
    TRY(muster_option_check_switch(options->shared_memory, "shared_memory",
                                   "MUSTER_SHARED_MEMORY"));
    return muster_option_check_switch(options->leave_on_sigterm, "leave_on_sigterm",
                                      "MUSTER_LEAVE_ON_SIGTERM");
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

static muster_status copy_tls(const muster_options *options, struct muster_settings *settings)
{
    TRY(muster_option_copy(options->tls_certificate, &settings->tls_certificate));
    TRY(muster_option_copy(options->tls_key, &settings->tls_key));
    TRY(muster_option_copy(options->tls_authority, &settings->tls_authority));
    return muster_option_copy(options->tls_name, &settings->tls_name);
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
    return muster_option_copy(host, ret_copy);
}

static muster_status copy_rack(const char *rack, char **ret_copy)
{
    if (rack == NULL || rack[0] == '\0') {
        return muster_option_copy("", ret_copy);
    }
    TRY(check_name("rack (MUSTER_RACK)", rack, MUSTER_RACK_SIZE));
    return muster_option_copy(rack, ret_copy);
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
        TRY(muster_option_parse_number("verbs_gid (MUSTER_VERBS_GID)", options->verbs_gid, 0,
                                       UINT8_MAX, &gid));
        settings->verbs_gid = (int32_t)gid;
    }
    return muster_option_copy(options->verbs_device, &settings->verbs_device);
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
    TRY(muster_option_copy(options->rendezvous, &settings->rendezvous));
    TRY(muster_option_copy(job, &settings->job));
    TRY(muster_option_copy(options->token != NULL ? options->token : "", &settings->token));
    TRY(copy_host(options->host, &settings->host));
    TRY(copy_rack(options->rack, &settings->rack));
    TRY(check_interface(options));
    TRY(muster_option_copy(options->listen, &settings->listen));
    TRY(muster_option_copy(options->interface, &settings->interface));
    TRY(muster_option_copy(options->timeline, &settings->timeline));
    TRY(copy_tls(options, settings));
    TRY(copy_verbs(options, settings));
    if (options->algorithm != NULL) {
        TRY(check_algorithm(options->algorithm));
        TRY(muster_option_copy(options->algorithm, &settings->algorithm));
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
