/* Makes fabrics of the transports that a test names. */
#include "tests/support/fabrics.h"

#include "worker/fabric/tcp/tcp_settings.h"
#include "worker/fabric/transports.h"

/* Transports that only tests have, in addition to the registry's. */
#define TRANSPORTS(ROW) ROW(unix)

#define DECLARE(name) extern const struct muster_transport muster_##name##_transport;
#define POINT_TO(name) &muster_##name##_transport,

TRANSPORTS(DECLARE)

static const struct muster_transport *const transports[] = {TRANSPORTS(POINT_TO) NULL};

/* All of the registry, and the tests' own that are named. */
static muster_status parse(const muster_options *options, const char *only,
                           struct muster_transport_settings **ret_settings)
{
    TRY(muster_transports_parse(options, only, ret_settings));
    for (size_t i = 0; transports[i] != NULL; i++) {
        if (only != NULL && muster_transport_is_named(only, transports[i]->name)) {
            TRY(muster_transport_settings_add(*ret_settings, transports[i], options, true));
        }
    }
    return MUSTER_OK;
}

muster_status fabrics_make(const struct fabric_wish *wish, struct muster_fabric **ret_fabric)
{
    muster_options options = wish->options;
    options.listen = options.listen != NULL ? options.listen : "127.0.0.1";
    options.tcp_connections += options.tcp_connections == 0;
    struct muster_transport_settings *settings = NULL;
    muster_status status = parse(&options, wish->transports, &settings);
    if (status == MUSTER_OK) {
        struct muster_tcp_settings *tcp = muster_transport_settings_find(settings, "tcp");
        if (tcp != NULL) {
            tcp->silence_ms = wish->silence_ms;
        }
        struct muster_fabric_options with = wish->fabric;
        with.transports = settings;
        status = muster_fabric_create(&with, ret_fabric);
    }
    muster_transport_settings_destroy(settings);
    return status;
}
