/* The options of the TCP transport, from the user's options and their variables. */
#include "worker/fabric/tcp/tcp_settings.h"

#include "worker/base/option_parse.h"

#include <stdlib.h>

void muster_tcp_read_environment(muster_options *options)
{
    muster_listen_read_environment(options);
    options->tcp_connections = muster_option_read_number("MUSTER_TCP_CONNECTIONS", 1);
    options->tls_certificate = muster_option_variable("MUSTER_TLS_CERTIFICATE");
    options->tls_key = muster_option_variable("MUSTER_TLS_KEY");
    options->tls_authority = muster_option_variable("MUSTER_TLS_AUTHORITY");
    options->tls_name = muster_option_variable("MUSTER_TLS_NAME");
}

static muster_status copy_options(const muster_options *options,
                                  struct muster_tcp_settings *settings)
{
    TRY(muster_option_check_number(options->tcp_connections,
                                   (struct muster_option_range){"tcp_connections",
                                                                "MUSTER_TCP_CONNECTIONS", 1,
                                                                MUSTER_CONNECTIONS_MAX}));
    settings->connections = options->tcp_connections;
    TRY(muster_listen_parse(options, &settings->listen));
    TRY(muster_option_copy(options->tls_certificate, &settings->certificate));
    TRY(muster_option_copy(options->tls_key, &settings->key));
    TRY(muster_option_copy(options->tls_authority, &settings->authority));
    return muster_option_copy(options->tls_name, &settings->peer_name);
}

muster_status muster_tcp_parse(const muster_options *options, bool *used, void **ret_settings)
{
    struct muster_tcp_settings *settings = calloc(1, sizeof *settings);
    if (settings == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    muster_status status = copy_options(options, settings);
    if (status != MUSTER_OK) {
        muster_tcp_free_settings(settings);
        return status;
    }
    *used = true; /* links fall back to TCP, whatever the options are */
    *ret_settings = settings;
    return MUSTER_OK;
}

void muster_tcp_free_settings(void *settings)
{
    struct muster_tcp_settings *own = settings;
    muster_listen_finish(&own->listen);
    free(own->certificate);
    free(own->key);
    free(own->authority);
    free(own->peer_name);
    free(own);
}

struct muster_tls_files muster_tcp_tls_files(const struct muster_tcp_settings *settings)
{
    return (struct muster_tls_files){.certificate = settings->certificate,
                                     .key = settings->key,
                                     .authority = settings->authority,
                                     .name = settings->peer_name};
}
