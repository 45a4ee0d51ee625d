/*
 * What the HTTP calls have in common that musterd makes itself: to etcd, and to the server that has
 * a job. libcurl does the work.
 */
#ifndef MUSTER_RENDEZVOUS_CALLS_OUTGOING_H
#define MUSTER_RENDEZVOUS_CALLS_OUTGOING_H

#include "rendezvous/calls/call_files.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

/* The body of an answer, as far as it has come. */
struct muster_outgoing_body {
    char *text; /* owned, not terminated */
    size_t size, capacity, max_bytes;
};

/* For CURLOPT_WRITEFUNCTION: adds to the body that is its user. 0: too large, or no memory. */
size_t muster_outgoing_append(char *data, size_t size, size_t count, void *user);

/* What does not change from call to call. Borrowed for as long as the handle is used. */
struct muster_outgoing_settings {
    const char *protocols; /* "http,https" */
    const struct muster_call_files *files;
    struct curl_slist *headers;
    char *problem; /* CURL_ERROR_SIZE bytes */
    long connect_ms;
};
/* False: no memory. */
bool muster_outgoing_configure(CURL *easy, const struct muster_outgoing_settings *settings);

#endif
