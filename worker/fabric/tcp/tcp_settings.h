/* The options of the TCP transport: muster_options has what each is. */
#ifndef MUSTER_WORKER_FABRIC_TCP_TCP_SETTINGS_H
#define MUSTER_WORKER_FABRIC_TCP_TCP_SETTINGS_H

#include "worker/fabric/address/listen_settings.h"
#include "worker/fabric/tls/tls.h"

struct muster_tcp_settings {
    struct muster_listen_settings listen;
    uint32_t connections;                            /* of each link that this member dials */
    char *certificate, *key, *authority, *peer_name; /* of TLS; NULL: not given */
    uint32_t silence_ms; /* a connection is lost when the peer's kernel owes an acknowledgement for
                            so long; 0: TCP_SILENCE_MS. For tests */
};

/* Slots: link.h says what each does. */
void muster_tcp_read_environment(muster_options *options);
muster_status muster_tcp_parse(const muster_options *options, bool *used, void **ret_settings);
void muster_tcp_free_settings(void *settings);

/* Borrowed. */
struct muster_tls_files muster_tcp_tls_files(const struct muster_tcp_settings *settings);

#endif
