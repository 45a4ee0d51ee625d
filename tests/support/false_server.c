/* A thread for each connection of a client, with a connection of its own to the musterd. */
#include "tests/support/false_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/web.h"
#include "worker/base/cleanup.h"
#include "worker/base/thread.h"

enum { CLIENTS_MAX = 256, METHODS_MAX = 32, HEAD_MAX = 8192 };

/* One connection. */
struct false_link {
    struct false_server *server;
    unsigned place;
    int fd, upstream; /* upstream: -1 as long as there is none */
};

/* A message: its head, then its body. */
struct false_message {
    char head[HEAD_MAX];
    char *body; /* owned */
    size_t size_bytes;
};

static struct sockaddr_in loopback(unsigned port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* watched: another socket whose end also ends this; -1: none. */
static bool read_some(int fd, int watched, char *bytes, size_t size_bytes, size_t *ret_size)
{
    struct pollfd ends[] = {{.fd = fd, .events = POLLIN}, {.fd = watched, .events = POLLIN}};
    char byte;
    if (poll(ends, 2, -1) <= 0 ||
        (ends[0].revents == 0 && recv(watched, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)) {
        return false;
    }
    ssize_t got = ends[0].revents != 0 ? recv(fd, bytes, size_bytes, 0) : 0;
    *ret_size = got > 0 ? (size_t)got : 0;
    return got > 0 || ends[0].revents == 0;
}

/* False: the connection ended, or the message is longer than tests have them. */
static bool read_message(int fd, int watched, struct false_message *ret_message)
{
    size_t used = 0;
    size_t got = 0;
    ret_message->head[0] = '\0';
    while (strstr(ret_message->head, "\r\n\r\n") == NULL) {
        if (used + 1 == HEAD_MAX || !read_some(fd, watched, ret_message->head + used, 1, &got)) {
            return false;
        }
        used += got;
        ret_message->head[used] = '\0';
    }
    const char *length = strcasestr(ret_message->head, "content-length:");
    size_t size_bytes = length != NULL ? strtoul(length + 15, NULL, 10) : 0;
    ret_message->body = calloc(1, size_bytes + 1);
    ret_message->size_bytes = size_bytes;
    for (size_t at = 0; ret_message->body != NULL && at < size_bytes; at += got) {
        if (!read_some(fd, watched, ret_message->body + at, size_bytes - at, &got)) {
            free(ret_message->body);
            ret_message->body = NULL;
        }
    }
    return ret_message->body != NULL;
}

static bool send_message(int fd, const struct false_message *message)
{
    return web_send(fd, message->head, strlen(message->head)) &&
           web_send(fd, message->body, message->size_bytes);
}

static unsigned note(struct false_server *server, const char *method)
{
    AUTO_LOCK(&server->mutex);
    for (unsigned i = 0; i < METHODS_MAX; i++) {
        if (server->seen[i].count == 0 || strcmp(server->seen[i].method, method) == 0) {
            (void)snprintf(server->seen[i].method, sizeof server->seen[i].method, "%s", method);
            return server->seen[i].count++;
        }
    }
    return 0;
}

/* Asks the musterd. A connection that it has closed meanwhile is opened again. False: the client
 * has closed, or there is no musterd now. */
static bool ask_upstream(struct false_link *link, const struct false_message *request,
                         struct false_message *ret_reply)
{
    struct sockaddr_in address = loopback(link->server->to_port);
    for (int attempt = 0; attempt < 2; attempt++) {
        if (link->upstream < 0) {
            link->upstream = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (connect(link->upstream, (struct sockaddr *)&address, sizeof address) != 0) {
                return false;
            }
        }
        if (send_message(link->upstream, request) &&
            read_message(link->upstream, link->fd, ret_reply)) {
            return true;
        }
        (void)close(link->upstream);
        link->upstream = -1;
    }
    return false;
}

/* False: the connection has ended. */
static bool exchange_one(struct false_link *link)
{
    struct false_message request = {.body = NULL};
    struct false_message reply = {.body = NULL};
    struct false_exchange exchange = {.server = link->server, .fd = link->fd, .reply = ""};
    if (!read_message(link->fd, -1, &request)) {
        return false;
    }
    (void)sscanf(request.head, "POST /muster.v1.Rendezvous/%31[A-Za-z]", exchange.method);
    exchange.number = note(link->server, exchange.method);
    exchange.body = request.body;
    bool open = link->server->to_port == 0 || ask_upstream(link, &request, &reply);
    if (open && reply.body != NULL) {
        exchange.status = atoi(reply.head + strcspn(reply.head, " "));
        exchange.reply = reply.body;
    }
    open = open && !link->server->function(&exchange) && reply.body != NULL &&
           send_message(link->fd, &reply);
    free(request.body);
    free(reply.body);
    return open;
}

static void *serve_one(void *user)
{
    struct false_link *link = user;
    struct false_server *server = link->server;
    while (exchange_one(link)) {
    }
    if (link->upstream >= 0) {
        (void)close(link->upstream);
    }
    muster_mutex_lock(&server->mutex);
    server->fds[link->place] = -1;
    (void)close(link->fd);
    server->connections--;
    (void)pthread_cond_signal(&server->ended);
    muster_mutex_unlock(&server->mutex);
    free(link);
    return NULL;
}

static void serve_connection(struct false_server *server, int fd)
{
    pthread_t thread;
    struct false_link *link = calloc(1, sizeof *link);
    AUTO_LOCK(&server->mutex);
    unsigned place = 0;
    while (place < CLIENTS_MAX && server->fds[place] >= 0) {
        place++;
    }
    if (link == NULL || place == CLIENTS_MAX || server->stops) {
        free(link);
        (void)close(fd);
        return;
    }
    *link = (struct false_link){.server = server, .place = place, .fd = fd, .upstream = -1};
    if (pthread_create(&thread, NULL, serve_one, link) != 0) {
        free(link);
        (void)close(fd);
        return;
    }
    (void)pthread_detach(thread);
    server->fds[place] = fd;
    server->connections++;
}

static void *serve(void *user)
{
    struct false_server *server = user;
    while (!false_server_stops(server)) {
        int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            serve_connection(server, fd);
        }
    }
    return NULL;
}

bool false_server_start(struct false_server *server)
{
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    server->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(server->listen_fd, (struct sockaddr *)&address, size) != 0 ||
        listen(server->listen_fd, CLIENTS_MAX) != 0 ||
        getsockname(server->listen_fd, (struct sockaddr *)&address, &size) != 0) {
        perror("false server");
        return false;
    }
    server->port = ntohs(address.sin_port);
    (void)snprintf(server->url, sizeof server->url, "http://127.0.0.1:%u", server->port);
    server->connections = 0;
    server->stops = false;
    memset(server->seen, 0, sizeof server->seen);
    memset(server->fds, -1, sizeof server->fds);
    muster_mutex_init(&server->mutex);
    muster_condition_init(&server->ended);
    return pthread_create(&server->thread, NULL, serve, server) == 0;
}

void false_server_stop(struct false_server *server)
{
    muster_mutex_lock(&server->mutex);
    server->stops = true;
    for (unsigned i = 0; i < CLIENTS_MAX; i++) {
        if (server->fds[i] >= 0) {
            (void)shutdown(server->fds[i], SHUT_RDWR);
        }
    }
    while (server->connections > 0) {
        (void)pthread_cond_wait(&server->ended, &server->mutex);
    }
    muster_mutex_unlock(&server->mutex);
    (void)shutdown(server->listen_fd, SHUT_RDWR); /* ends accept() */
    (void)pthread_join(server->thread, NULL);
    (void)close(server->listen_fd);
    (void)pthread_cond_destroy(&server->ended);
    (void)pthread_mutex_destroy(&server->mutex);
}

unsigned false_server_count(struct false_server *server, const char *method)
{
    AUTO_LOCK(&server->mutex);
    for (unsigned i = 0; i < METHODS_MAX && server->seen[i].count > 0; i++) {
        if (strcmp(server->seen[i].method, method) == 0) {
            return server->seen[i].count;
        }
    }
    return 0;
}

bool false_server_stops(struct false_server *server)
{
    AUTO_LOCK(&server->mutex);
    return server->stops;
}

bool false_server_send(struct false_exchange *exchange, int status, const char *body)
{
    char head[256];
    int size = snprintf(head, sizeof head,
                        "HTTP/1.1 %d Words\r\nContent-Type: application/json\r\n"
                        "Content-Length: %zu\r\n\r\n",
                        status, strlen(body));
    return web_send(exchange->fd, head, (size_t)size) && web_send(exchange->fd, body, strlen(body));
}

bool false_server_send_json(struct false_exchange *exchange, int status, json_t *json)
{
    AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
    return text != NULL && false_server_send(exchange, status, text);
}
