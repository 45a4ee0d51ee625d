/* URLs of servers, split by libcurl. */
#include "worker/session/server_list.h"

#include <curl/curl.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker/base/cleanup.h"

static void cleanup_curl_url(CURLU **url)
{
    curl_url_cleanup(*url);
}

static void cleanup_curl_text(char **text)
{
    curl_free(*text);
}

#define AUTO_CURLU __attribute__((cleanup(cleanup_curl_url)))
#define AUTO_CURL_TEXT __attribute__((cleanup(cleanup_curl_text)))

static muster_status url_error(const char *url, const char *what)
{
    return muster_error_set(MUSTER_INVALID, "rendezvous \"%.200s\": %s; it is http://HOST:PORT",
                            url, what);
}

/* Splits a valid URL; the results are freed with curl_free(). */
static muster_status split_url(const char *url, char **ret_host, char **ret_port)
{
    AUTO_CURLU CURLU *parts = curl_url();
    if (parts == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    if (strlen(url) >= MUSTER_LISTED_URL_SIZE) {
        return url_error(url, "is too long");
    }
    if (curl_url_set(parts, CURLUPART_URL, url, 0) != CURLUE_OK) {
        return url_error(url, "is no URL");
    }
    AUTO_CURL_TEXT char *scheme = NULL;
    AUTO_CURL_TEXT char *path = NULL;
    AUTO_CURL_TEXT char *extra = NULL;
    AUTO_CURL_TEXT char *host = NULL;
    AUTO_CURL_TEXT char *port = NULL;
    if (curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)) {
        return url_error(url, "does not begin with http:// or https://");
    }
    if (curl_url_get(parts, CURLUPART_PORT, &port, 0) != CURLUE_OK) {
        return url_error(url, "has no port");
    }
    if (curl_url_get(parts, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_PATH, &path, 0) != CURLUE_OK || strcmp(path, "/") != 0 ||
        curl_url_get(parts, CURLUPART_QUERY, &extra, 0) == CURLUE_OK ||
        curl_url_get(parts, CURLUPART_USER, &extra, 0) == CURLUE_OK) {
        return url_error(url, "has more than a host and a port");
    }
    *ret_host = TAKE(host);
    *ret_port = TAKE(port);
    return MUSTER_OK;
}

/* One URL, without a slash at the end. */
static muster_status add(struct muster_server_list *list, const char *urls, const char *url,
                         size_t length)
{
    AUTO_CURL_TEXT char *host = NULL;
    AUTO_CURL_TEXT char *port = NULL;
    if (list->count == MUSTER_SERVERS_MAX) {
        return muster_error_set(MUSTER_INVALID, "rendezvous \"%.200s\": more than %d servers", urls,
                                MUSTER_SERVERS_MAX);
    }
    if (length >= MUSTER_LISTED_URL_SIZE) {
        return url_error(urls, "is too long");
    }
    char *server = list->servers[list->count];
    (void)snprintf(server, MUSTER_LISTED_URL_SIZE, "%.*s", (int)length, url);
    TRY(split_url(server, &host, &port));
    if (server[length - 1] == '/') {
        server[length - 1] = '\0';
    }
    list->count++;
    return MUSTER_OK;
}

muster_status muster_server_list_init(struct muster_server_list *list, const char *urls)
{
    const char *url = urls;
    *list = (struct muster_server_list){.count = 0};
    for (;;) {
        size_t length = strcspn(url, ",");
        TRY(add(list, urls, url, length));
        if (url[length] == '\0') {
            memcpy(list->url, list->servers[0], sizeof list->url);
            return MUSTER_OK;
        }
        url += length + 1;
    }
}

muster_status muster_server_list_check(const char *urls)
{
    AUTO_FREE struct muster_server_list *list = malloc(sizeof *list);
    return list != NULL ? muster_server_list_init(list, urls)
                        : muster_error_set(MUSTER_FATAL, "no memory");
}

void muster_server_list_next(struct muster_server_list *list)
{
    list->at = (list->at + 1) % list->count;
    memcpy(list->url, list->servers[list->at], sizeof list->url);
}

/* A server that is reached by https names no other one. */
void muster_server_list_follow(struct muster_server_list *list, const char *owner)
{
    AUTO_CURL_TEXT char *host = NULL;
    AUTO_CURL_TEXT char *port = NULL;
    bool https = strncmp(list->url, "https:", strlen("https:")) == 0;
    if (owner[0] != '\0' && strlen(owner) < sizeof list->url &&
        split_url(owner, &host, &port) == MUSTER_OK &&
        (!https || strncmp(owner, "https:", strlen("https:")) == 0)) {
        (void)snprintf(list->url, sizeof list->url, "%s", owner);
    }
}

static void cleanup_addresses(struct addrinfo **list)
{
    if (*list != NULL) {
        freeaddrinfo(*list);
    }
}

/* connect() of a datagram socket sends nothing; it makes the kernel choose a route and a source
 * address. */
static bool source_address(const struct addrinfo *there, char *ret_address, size_t size)
{
    struct sockaddr_storage here;
    socklen_t length = sizeof here;
    AUTO_CLOSE int fd = socket(there->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && connect(fd, there->ai_addr, there->ai_addrlen) == 0 &&
           getsockname(fd, (struct sockaddr *)&here, &length) == 0 &&
           getnameinfo((struct sockaddr *)&here, length, ret_address, (socklen_t)size, NULL, 0,
                       NI_NUMERICHOST) == 0;
}

static muster_status address_towards(const char *url, char *ret_address, size_t size)
{
    AUTO_CURL_TEXT char *host = NULL;
    AUTO_CURL_TEXT char *port = NULL;
    muster_status status = split_url(url, &host, &port);
    if (status != MUSTER_OK || host == NULL) {
        return status;
    }
    size_t length = strlen(host);
    char *name = host;
    if (name[0] == '[' && name[length - 1] == ']') { /* IPv6, as URLs write it */
        name[length - 1] = '\0';
        name++;
    }
    __attribute__((cleanup(cleanup_addresses))) struct addrinfo *list = NULL;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
    int failed = getaddrinfo(name, port, &hints, &list);
    if (failed != 0) {
        list = NULL;
        return muster_error_set(MUSTER_RETRY, "rendezvous %s: %s", url, gai_strerror(failed));
    }
    for (const struct addrinfo *there = list; there != NULL; there = there->ai_next) {
        if (source_address(there, ret_address, size)) {
            return MUSTER_OK;
        }
    }
    return muster_error_errno(MUSTER_RETRY, "rendezvous %s: no route", url);
}

/* The first server whose name is known and to which there is a route. */
muster_status muster_server_list_local_address(const struct muster_server_list *list,
                                               char *ret_address, size_t size)
{
    muster_status status = MUSTER_RETRY;
    for (unsigned i = 0; i < list->count && status != MUSTER_OK; i++) {
        status = address_towards(list->servers[i], ret_address, size);
    }
    return status;
}
