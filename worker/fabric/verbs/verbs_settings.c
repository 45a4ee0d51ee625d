/* The options of the RDMA transport, from the user's options and their variables. */
#include "worker/fabric/verbs/verbs_settings.h"

#include "worker/base/option_parse.h"

#include <stdlib.h>

void muster_verbs_read_environment(muster_options *options)
{
    muster_listen_read_environment(options);
    options->verbs = muster_option_read_switch("MUSTER_VERBS", 0);
    options->verbs_device = muster_option_variable("MUSTER_VERBS_DEVICE");
    options->verbs_connections = muster_option_read_number("MUSTER_VERBS_CONNECTIONS", 0);
    options->verbs_port = muster_option_read_number("MUSTER_VERBS_PORT", 0);
    options->verbs_gid = muster_option_variable("MUSTER_VERBS_GID");
}

static muster_status check_numbers(const muster_options *options)
{
    TRY(muster_option_check_switch(options->verbs, "verbs", "MUSTER_VERBS"));
    TRY(muster_option_check_number(
        options->verbs_port,
        (struct muster_option_range){"verbs_port", "MUSTER_VERBS_PORT", 0, UINT8_MAX}));
    return muster_option_check_number(options->verbs_connections,
                                      (struct muster_option_range){"verbs_connections",
                                                                   "MUSTER_VERBS_CONNECTIONS", 0,
                                                                   MUSTER_VERBS_CONNECTIONS_MAX});
}

static muster_status copy_options(const muster_options *options,
                                  struct muster_verbs_settings *settings)
{
    uint32_t gid = 0;
    settings->encrypted = options->tls_certificate != NULL;
    settings->port = options->verbs_port;
    settings->connections = options->verbs_connections;
    settings->gid = -1;
    if (options->verbs_gid != NULL) {
        TRY(muster_option_parse_number("verbs_gid (MUSTER_VERBS_GID)", options->verbs_gid, 0,
                                       UINT8_MAX, &gid));
        settings->gid = (int32_t)gid;
    }
    TRY(muster_listen_parse(options, &settings->listen));
    return muster_option_copy(options->verbs_device, &settings->device);
}

muster_status muster_verbs_parse(const muster_options *options, bool *used, void **ret_settings)
{
    TRY(check_numbers(options));
    struct muster_verbs_settings *settings = calloc(1, sizeof *settings);
    if (settings == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    settings->required = *used;
    muster_status status = copy_options(options, settings);
    if (status != MUSTER_OK) {
        muster_verbs_free_settings(settings);
        return status;
    }
    *used = *used || options->verbs != 0;
    *ret_settings = settings;
    return MUSTER_OK;
}

void muster_verbs_free_settings(void *settings)
{
    struct muster_verbs_settings *own = settings;
    muster_listen_finish(&own->listen);
    free(own->device);
    free(own);
}
