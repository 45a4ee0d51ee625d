/* Where a member listens: the options that all transports have which listen at network addresses.
 */
#ifndef MUSTER_WORKER_FABRIC_ADDRESS_LISTEN_SETTINGS_H
#define MUSTER_WORKER_FABRIC_ADDRESS_LISTEN_SETTINGS_H

#include "worker/base/status.h"

/* Zeroed storage is empty. */
struct muster_listen_settings {
    char *listen;     /* see muster_address_parse_listen(); NULL: not said */
    char *interfaces; /* see muster_interfaces_check(); NULL: all but loopback */
};

/* MUSTER_LISTEN and MUSTER_INTERFACE. */
void muster_listen_read_environment(muster_options *options);
/* Finishes nothing that is in ret_settings; on failure it is empty. */
MUSTER_CHECKED muster_status muster_listen_parse(const muster_options *options,
                                                 struct muster_listen_settings *ret_settings);
void muster_listen_finish(struct muster_listen_settings *settings);

/* What to listen at, as muster_address_parse_listen() takes it. Without word from the user: all
 * addresses; or the first one alone if that is of loopback, since then all peers are on this host.
 * first_address: "" for none. Borrowed from one of the two. */
const char *muster_listen_at(const struct muster_listen_settings *settings,
                             const char *first_address);

#endif
