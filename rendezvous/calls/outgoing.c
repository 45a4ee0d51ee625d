/* Settings of libcurl that every call of musterd has. */
#include "rendezvous/calls/outgoing.h"

#include "worker/base/keepalive.h"

#include <stdlib.h>
#include <string.h>

size_t muster_outgoing_append(char *data, size_t size, size_t count, void *user)
{
    struct muster_outgoing_body *body = user;
    size_t added = size * count;
    if (added > body->max_bytes - body->size) {
        return 0;
    }
    if (body->size + added > body->capacity) {
        size_t capacity = 2 * (body->size + added);
        char *grown = realloc(body->text, capacity);
        if (grown == NULL) {
            return 0;
        }
        body->text = grown;
        body->capacity = capacity;
    }
    memcpy(body->text + body->size, data, added);
    body->size += added;
    return added;
}

static int set_keepalive(void *user, curl_socket_t fd, curlsocktype purpose)
{
    (void)user;
    (void)purpose;
    (void)muster_keepalive_set(fd);
    return CURL_SOCKOPT_OK;
}

static bool use_files(CURL *easy, const struct muster_call_files *files)
{
    return (files->authority == NULL ||
            curl_easy_setopt(easy, CURLOPT_CAINFO, files->authority) == CURLE_OK) &&
           (files->certificate == NULL ||
            (curl_easy_setopt(easy, CURLOPT_SSLCERT, files->certificate) == CURLE_OK &&
             curl_easy_setopt(easy, CURLOPT_SSLKEY, files->key) == CURLE_OK));
}

bool muster_outgoing_configure(CURL *easy, const struct muster_outgoing_settings *settings)
{
    return curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, settings->protocols) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HTTPHEADER, settings->headers) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, settings->connect_ms) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, settings->problem) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, set_keepalive) == CURLE_OK &&
           use_files(easy, settings->files);
}
