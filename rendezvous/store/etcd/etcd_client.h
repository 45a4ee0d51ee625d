/*
 * Calls of etcd's v3 API through its JSON gateway: one blocking call at a time in each thread, any
 * number of threads. A cluster has several members; a call goes to the one that answered last, and
 * to the next one when that is away or slow, until its deadline.
 *
 * So a call that writes may have been carried out although its attempt failed, and may be carried
 * out twice: those who write compare what they replace, and look whether it is theirs already.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_ETCD_ETCD_CLIENT_H
#define MUSTER_RENDEZVOUS_STORE_ETCD_ETCD_CLIENT_H

#include "rendezvous/calls/call_files.h"
#include "worker/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    MUSTER_ETCD_ENDPOINTS_MAX = 16,
    MUSTER_ETCD_PREFIX_SIZE = 128,
    /* For one attempt: a member that is frozen, or has no leader, holds a call for longer. */
    MUSTER_ETCD_ATTEMPT_MS = 500,
};

struct muster_etcd_client;

/* place: "etcd://HOST:PORT,HOST:PORT/PREFIX". With an authority, connections are https.
 * MUSTER_INVALID says what is wrong with the place or a file. */
MUSTER_CHECKED muster_status muster_etcd_client_create(const char *place,
                                                       const struct muster_call_files *files,
                                                       struct muster_etcd_client **ret_client);
/* No call is running. Accepts NULL. */
void muster_etcd_client_destroy(struct muster_etcd_client *client);

/* The place without the prefix, for error texts and logs. */
const char *muster_etcd_client_name(const struct muster_etcd_client *client);
/* Begins every key: "PREFIX/". */
const char *muster_etcd_client_prefix(const struct muster_etcd_client *client);

/* POST /v3/METHOD. Takes the request; NULL: its maker had no memory. *ret_answer is owned by the
 * caller. Error texts begin with the name of the store.
 * MUSTER_RETRY: no member answered in time, or etcd is full. MUSTER_ENDED: etcd knows no such
 * lease. MUSTER_INVALID: etcd refuses the request. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_etcd_call(struct muster_etcd_client *client, const char *method,
                                              json_t *request, int64_t deadline_ns,
                                              json_t **ret_answer);

/* Called for each line of the answer; false ends the stream. */
typedef bool (*muster_etcd_line)(void *user, const char *line, size_t size_bytes);
/* Called now and then while a stream is open; false ends it. */
typedef bool (*muster_etcd_goes_on)(void *user);

/* POST /v3/METHOD to one member, and reads its answer line by line until it ends, or a function
 * ends it. The next stream goes to another member. MUSTER_RETRY: the stream broke. */
MUSTER_CHECKED muster_status muster_etcd_stream(struct muster_etcd_client *client,
                                                const char *method, json_t *request,
                                                muster_etcd_line line, muster_etcd_goes_on goes_on,
                                                void *user);

#endif
