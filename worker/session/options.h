/*
 * Settings of a session: muster_options, checked and copied.
 *
 * May use: rendezvous_client (to check the URL), elastic/messages (bounds), collectives/select,
 * fabric.h (transports parse their options), base.
 */
#ifndef MUSTER_WORKER_SESSION_OPTIONS_H
#define MUSTER_WORKER_SESSION_OPTIONS_H

#include "collectives/call/compression.h"
#include "elastic/messages/messages.h"
#include "worker/fabric/fabric.h"

#include <stdbool.h>

#define MUSTER_NO_SLOT UINT32_MAX

/* All strings are owned and never NULL, unless noted otherwise. */
struct muster_settings {
    char *rendezvous; /* "" without a service; so are the next two */
    char *job;
    char *token;        /* "": none */
    char *server_token; /* NULL: none; so are the next three */
    char *rendezvous_authority, *rendezvous_certificate, *rendezvous_key; /* files */
    char *host;                                   /* the name of the host that this member is on */
    char *rack;                                   /* "": the one without a name */
    char *algorithm;                              /* MUSTER_ALGORITHM; NULL: chosen by cost */
    struct muster_transport_settings *transports; /* of the links */
    uint32_t min_size, max_size, target_size;
    uint32_t order;
    uint32_t slot; /* MUSTER_NO_SLOT: none was given */
    uint32_t
        neighbours_above; /* members of the largest job of which all are known from the start */
    uint32_t join_timeout_ms, call_timeout_ms;
    bool leave_on_sigterm;
    bool measure; /* the links, when there is reason to */
    bool tune;    /* find out what is fast */
    bool reproducible;
    bool encrypted; /* the links use TLS */
    char *spill;    /* the folder of spilled states; NULL: none */
    uint32_t spill_keep, spill_every_ms;
    char *timeline;                 /* the prefix of its file; NULL: none */
    muster_compression compression; /* of the calls that can be compressed */
};

/* options may be NULL: all settings then come from the environment, as do those that an older
 * header lacks. MUSTER_INVALID names the option, its variable and the bad value. */
MUSTER_CHECKED muster_status muster_settings_init(const muster_options *options,
                                                  struct muster_settings *ret_settings);

/* The same for a session without a service: what concerns the service is not read. */
MUSTER_CHECKED muster_status muster_settings_init_without_service(
    const muster_options *options, struct muster_settings *ret_settings);

/* Accepts zeroed storage. */
void muster_settings_finish(struct muster_settings *settings);

#endif
