/* musterd's options: the command line, then the environment, then defaults. */
#ifndef MUSTER_RENDEZVOUS_MUSTERD_OPTIONS_H
#define MUSTER_RENDEZVOUS_MUSTERD_OPTIONS_H

#include "rendezvous/service/musterd_service.h"

struct muster_musterd_options {
    const char *listen;
    const char *store;                                /* "memory", "etcd://...", or a path */
    const char *advertise;                            /* NULL: the address that it listens on */
    const char *port_file;                            /* NULL: none */
    const char *tokens;                               /* a file; NULL: none */
    const char *certificate, *key, *client_authority; /* files; NULL: none */
    const char *etcd_authority, *etcd_certificate, *etcd_key; /* files; NULL: none */
    bool only_server; /* that its workers ever know: a new store does not wait out the second */
    bool insecure;    /* off loopback, too, without tokens and without TLS */
    const char *log;  /* NULL: MUSTER_LOG, or "warn" */
    bool log_json;
    uint32_t connections_max;
    uint32_t connections_per_address; /* 0: not given */
    uint32_t requests_per_address;    /* a second; 0: not given */
    struct muster_service_config service;
};

/* Prints help, version and errors itself and then ends the process (wrong options: status 2). The
 * strings belong to argv and the environment. */
void muster_musterd_options_parse(int argc, char **argv,
                                  struct muster_musterd_options *ret_options);

#endif
