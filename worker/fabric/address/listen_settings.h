/* Where a member listens: options of all transports that listen at network addresses. */
#ifndef MUSTER_WORKER_FABRIC_ADDRESS_LISTEN_SETTINGS_H
#define MUSTER_WORKER_FABRIC_ADDRESS_LISTEN_SETTINGS_H

#include "worker/base/status.h"

/* Zeroed storage is empty. */
struct muster_listen_settings {
    char *listen;     /* see muster_address_parse_listen(); NULL: not given */
    char *interfaces; /* see muster_interfaces_check(); NULL: all but loopback */
};

/* MUSTER_LISTEN and MUSTER_INTERFACE. */
void muster_listen_read_environment(muster_options *options);
/* *ret_settings must be empty, and stays so on failure. */
MUSTER_CHECKED muster_status muster_listen_parse(const muster_options *options,
                                                 struct muster_listen_settings *ret_settings);
void muster_listen_finish(struct muster_listen_settings *settings);

/* Where to listen, for muster_address_parse_listen(). If the user does not specify it: at all
 * addresses; or only at the first address, if it is a loopback address, because then all peers are
 * on this host. first_address: "" for none. The result is borrowed from one of the two. */
const char *muster_listen_at(const struct muster_listen_settings *settings,
                             const char *first_address);

#endif
