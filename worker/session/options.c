/* The settings of a session: options and environment variables, checked and copied. */
#include "worker/session/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/select/algorithm_override.h"
#include "worker/base/option_parse.h"
#include "worker/fabric/fabric.h"
#include "worker/session/rendezvous_client.h"
#include "worker/session/spill_file.h"

enum {
    DEFAULT_MAX_SIZE = 1024,
    DEFAULT_JOIN_TIMEOUT_MS = 60000,
    DEFAULT_CALL_TIMEOUT_MS = 600000,
    DEFAULT_SPILL_KEEP = 3,
    DEFAULT_SPILL_EVERY_MS = 10000,
    TIMEOUT_MAX_MS = 7 * 24 * 3600 * 1000,
};

static void read_environment(muster_options *options)
{
    *options = (muster_options){
        .size = sizeof *options,
        .rendezvous = muster_option_variable("MUSTER_RENDEZVOUS"),
        .job = muster_option_variable("MUSTER_JOB"),
        .token = muster_option_variable("MUSTER_TOKEN"),
        .host = muster_option_variable("MUSTER_HOST"),
        .rack = muster_option_variable("MUSTER_RACK"),
        .min_size = muster_option_read_number("MUSTER_MIN", 1),
        .max_size = muster_option_read_number("MUSTER_MAX", DEFAULT_MAX_SIZE),
        .target_size = muster_option_read_number("MUSTER_TARGET", 0),
        .order = muster_option_read_number("MUSTER_ORDER", 0),
        .algorithm = muster_option_variable("MUSTER_ALGORITHM"),
        .timeline = muster_option_variable("MUSTER_TIMELINE"),
        .compression = muster_option_variable("MUSTER_COMPRESSION"),
        .spill = muster_option_variable("MUSTER_SPILL"),
        .spill_keep = muster_option_read_number("MUSTER_SPILL_KEEP", DEFAULT_SPILL_KEEP),
        .spill_every_ms =
            muster_option_read_number("MUSTER_SPILL_EVERY_MS", DEFAULT_SPILL_EVERY_MS),
        .server_token = muster_option_variable("MUSTER_SERVER_TOKEN"),
        .rendezvous_authority = muster_option_variable("MUSTER_RENDEZVOUS_AUTHORITY"),
        .rendezvous_certificate = muster_option_variable("MUSTER_RENDEZVOUS_CERTIFICATE"),
        .rendezvous_key = muster_option_variable("MUSTER_RENDEZVOUS_KEY"),
        .join_timeout_ms =
            muster_option_read_number("MUSTER_JOIN_TIMEOUT_MS", DEFAULT_JOIN_TIMEOUT_MS),
        .call_timeout_ms =
            muster_option_read_number("MUSTER_CALL_TIMEOUT_MS", DEFAULT_CALL_TIMEOUT_MS),
    };
    options->leave_on_sigterm = muster_option_read_switch("MUSTER_LEAVE_ON_SIGTERM", 1);
    options->measure = muster_option_read_switch("MUSTER_MEASURE", 1);
    options->tune = muster_option_read_switch("MUSTER_TUNE", 1);
    options->reproducible = muster_option_read_switch("MUSTER_REPRODUCIBLE", 0);
    muster_transports_read_environment(options);
}

/* Padding at the end would become the place of the next field that is appended: older programs
 * would give it values. */
_Static_assert(offsetof(muster_options, spill_every_ms) + sizeof(uint32_t) ==
                   sizeof(muster_options),
               "muster_options ends with padding");
_Static_assert(offsetof(muster_call_options, stream) + sizeof(void *) ==
                   sizeof(muster_call_options),
               "muster_call_options ends with padding");

/* A field that only the caller's header has is 0. */
void muster_options_init_sized(muster_options *options, size_t size)
{
    muster_options known;
    read_environment(&known);
    known.size = size;
    memset(options, 0, size);
    memcpy(options, &known, size < sizeof known ? size : sizeof known);
}

void muster_call_options_init_sized(muster_call_options *options, size_t size)
{
    memset(options, 0, size);
    memcpy(options, &size, sizeof size);
}

static muster_status check_numbers(const muster_options *options)
{
    uint32_t target_least = options->target_size != 0 ? options->min_size : 0; /* 0: none */
    const struct {
        uint32_t number;
        struct muster_option_range range;
    } numbers[] = {
        {options->min_size, {"min_size", "MUSTER_MIN", 1, MUSTER_MEMBERS_MAX}},
        {options->max_size, {"max_size", "MUSTER_MAX", options->min_size, MUSTER_MEMBERS_MAX}},
        {options->target_size, {"target_size", "MUSTER_TARGET", target_least, options->max_size}},
        {options->order, {"order", "MUSTER_ORDER", 0, MUSTER_OPTION_BAD - 1}},
        {options->join_timeout_ms,
         {"join_timeout_ms", "MUSTER_JOIN_TIMEOUT_MS", 1, TIMEOUT_MAX_MS}},
        {options->call_timeout_ms,
         {"call_timeout_ms", "MUSTER_CALL_TIMEOUT_MS", 1, TIMEOUT_MAX_MS}},
        {options->spill_keep, {"spill_keep", "MUSTER_SPILL_KEEP", 1, MUSTER_SPILL_FILES_MAX}},
        {options->spill_every_ms, {"spill_every_ms", "MUSTER_SPILL_EVERY_MS", 0, TIMEOUT_MAX_MS}},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        TRY(muster_option_check_number(numbers[i].number, numbers[i].range));
    }
    TRY(muster_option_check_switch(options->measure, "measure", "MUSTER_MEASURE"));
    TRY(muster_option_check_switch(options->tune, "tune", "MUSTER_TUNE"));
    TRY(muster_option_check_switch(options->reproducible, "reproducible", "MUSTER_REPRODUCIBLE"));
    return muster_option_check_switch(options->leave_on_sigterm, "leave_on_sigterm",
                                      "MUSTER_LEAVE_ON_SIGTERM");
}

/* what: the option for the error text, "host (MUSTER_HOST)". */
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
    if (!muster_host_name_valid(host)) {
        return muster_error_set(MUSTER_INVALID,
                                "host (MUSTER_HOST) \"%s\": use letters, digits, '.', '_', '-' "
                                "and ':'",
                                host);
    }
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

static muster_status parse_compression(const char *name, muster_compression *ret_compression)
{
    *ret_compression = MUSTER_COMPRESSION_NONE;
    return name == NULL || muster_compression_parse(name, ret_compression) == MUSTER_OK
               ? MUSTER_OK
               : muster_error_prefix(MUSTER_INVALID, "compression (MUSTER_COMPRESSION)");
}

/* Where the service is, and what it is to know. */
static muster_status copy_service(const muster_options *options, struct muster_settings *settings)
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
    TRY(muster_option_copy(options->server_token, &settings->server_token));
    TRY(muster_option_copy(options->rendezvous_authority, &settings->rendezvous_authority));
    TRY(muster_option_copy(options->rendezvous_certificate, &settings->rendezvous_certificate));
    TRY(muster_option_copy(options->rendezvous_key, &settings->rendezvous_key));
    return muster_option_copy(options->token != NULL ? options->token : "", &settings->token);
}

static muster_status copy_no_service(struct muster_settings *settings)
{
    TRY(muster_option_copy("", &settings->rendezvous));
    TRY(muster_option_copy("", &settings->job));
    return muster_option_copy("", &settings->token);
}

static muster_status copy_strings(const muster_options *options, struct muster_settings *settings)
{
    TRY(copy_host(options->host, &settings->host));
    TRY(copy_rack(options->rack, &settings->rack));
    TRY(muster_option_copy(options->timeline, &settings->timeline));
    TRY(muster_option_copy(options->spill, &settings->spill));
    TRY(parse_compression(options->compression, &settings->compression));
    if (options->algorithm != NULL) {
        TRY(check_algorithm(options->algorithm));
        TRY(muster_option_copy(options->algorithm, &settings->algorithm));
    }
    return MUSTER_OK;
}

/* It has no field: whoever starts a worker knows its slot, the worker asks muster_slot(). */
static muster_status read_slot(uint32_t *ret_slot)
{
    *ret_slot = MUSTER_NO_SLOT;
    const char *text = muster_option_variable("MUSTER_SLOT");
    return text == NULL ? MUSTER_OK
                        : muster_option_parse_number("slot (MUSTER_SLOT)", text, 0,
                                                     MUSTER_MEMBERS_MAX - 1, ret_slot);
}

/* It has no field: programs need not know of it. */
static muster_status read_neighbours(uint32_t *ret_above)
{
    uint32_t above = muster_option_read_number("MUSTER_NEIGHBOURS_ABOVE", MUSTER_PEERS_INLINE_MAX);
    TRY(muster_option_check_number(above, (struct muster_option_range){"neighbours above",
                                                                       "MUSTER_NEIGHBOURS_ABOVE", 1,
                                                                       MUSTER_OPTION_BAD - 1}));
    *ret_above = above;
    return MUSTER_OK;
}

static muster_status init(const muster_options *options, bool service,
                          struct muster_settings *ret_settings)
{
    muster_options complete;
    read_environment(&complete);
    if (options != NULL) {
        TRY(muster_option_copy_struct("muster_options", options, &complete, sizeof complete));
    }
    TRY(check_numbers(&complete));
    struct muster_settings settings = {
        .min_size = complete.min_size,
        .max_size = complete.max_size,
        .target_size = complete.target_size,
        .order = complete.order,
        .spill_keep = complete.spill_keep,
        .spill_every_ms = complete.spill_every_ms,
        .join_timeout_ms = complete.join_timeout_ms,
        .call_timeout_ms = complete.call_timeout_ms,
        .leave_on_sigterm = complete.leave_on_sigterm != 0,
        .measure = complete.measure != 0,
        .tune = complete.tune != 0,
        .reproducible = complete.reproducible != 0,
        .encrypted = complete.tls_certificate != NULL,
    };
    muster_status status =
        service ? copy_service(&complete, &settings) : copy_no_service(&settings);
    if (status == MUSTER_OK) {
        status = copy_strings(&complete, &settings);
    }
    if (status == MUSTER_OK) {
        status = read_neighbours(&settings.neighbours_above);
    }
    if (status == MUSTER_OK) {
        status = read_slot(&settings.slot);
    }
    if (status == MUSTER_OK) {
        status = muster_transports_parse(&complete, NULL, &settings.transports);
    }
    if (status != MUSTER_OK) {
        muster_settings_finish(&settings);
        return status;
    }
    *ret_settings = settings;
    return MUSTER_OK;
}

muster_status muster_settings_init(const muster_options *options,
                                   struct muster_settings *ret_settings)
{
    return init(options, true, ret_settings);
}

muster_status muster_settings_init_without_service(const muster_options *options,
                                                   struct muster_settings *ret_settings)
{
    return init(options, false, ret_settings);
}

void muster_settings_finish(struct muster_settings *settings)
{
    free(settings->rendezvous);
    free(settings->job);
    free(settings->token);
    free(settings->server_token);
    free(settings->rendezvous_authority);
    free(settings->rendezvous_certificate);
    free(settings->rendezvous_key);
    free(settings->host);
    free(settings->rack);
    free(settings->algorithm);
    free(settings->timeline);
    free(settings->spill);
    muster_transport_settings_destroy(settings->transports);
    *settings = (struct muster_settings){0};
}
