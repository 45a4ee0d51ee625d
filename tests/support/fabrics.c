#include "tests/support/fabrics.h"

#include "worker/fabric/tcp/tcp_settings.h"
#include "worker/fabric/transports.h"

muster_status fabrics_make(const struct fabric_wish *wish, struct muster_fabric **ret_fabric)
{
    muster_options options = wish->options;
    options.listen = options.listen != NULL ? options.listen : "127.0.0.1";
    options.tcp_connections += options.tcp_connections == 0;
    struct muster_transport_settings *settings = NULL;
    TRY(muster_transports_parse(&options, wish->transports, &settings));
    struct muster_tcp_settings *tcp = muster_transport_settings_find(settings, "tcp");
    if (tcp != NULL) {
        tcp->silence_ms = wish->silence_ms;
    }
    struct muster_fabric_options with = wish->fabric;
    with.transports = settings;
    muster_status status = muster_fabric_create(&with, ret_fabric);
    muster_transport_settings_destroy(settings);
    return status;
}
