/* Raw HTTP/1.1 over a socket. */
#include "tests/support/web.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { READ_TIMEOUT_S = 20 };

int web_open(uint16_t port)
{
    const struct timeval read_timeout = {.tv_sec = READ_TIMEOUT_S};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        perror("connect");
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &read_timeout, sizeof read_timeout);
    return fd;
}

bool web_send(int fd, const char *text, size_t size_bytes)
{
    while (size_bytes > 0) {
        ssize_t sent = send(fd, text, size_bytes, MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
        text += sent;
        size_bytes -= (size_t)sent;
    }
    return true;
}

bool web_post(int fd, const char *method, const char *more, const char *body)
{
    char text[8192];
    int head = snprintf(text, sizeof text,
                        "POST /muster.v1.Rendezvous/%s HTTP/1.1\r\nHost: test\r\n"
                        "Content-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n",
                        method, strlen(body), more);
    int whole = head + snprintf(text + head, sizeof text - (size_t)head, "%s", body);
    for (char *c = text + head; *c != '\0'; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
    return whole < (int)sizeof text && web_send(fd, text, (size_t)whole);
}

/* Up to the empty line, including it; false: the connection closed before. */
static bool read_head(int fd, struct web_response *response)
{
    size_t used = 0;
    while (used + 1 < sizeof response->head) {
        if (recv(fd, response->head + used, 1, 0) != 1) {
            return false;
        }
        response->head[++used] = '\0';
        if (used >= 4 && strcmp(response->head + used - 4, "\r\n\r\n") == 0) {
            return true;
        }
    }
    return false;
}

struct web_response web_read(int fd)
{
    struct web_response response = {0};
    if (!read_head(fd, &response)) {
        return response;
    }
    const char *length = strcasestr(response.head, "content-length:");
    size_t size_bytes = length != NULL ? strtoul(length + 15, NULL, 10) : 0;
    char *body = calloc(1, size_bytes + 1);
    size_t used = 0;
    while (body != NULL && used < size_bytes) {
        ssize_t got = recv(fd, body + used, size_bytes - used, 0);
        if (got <= 0) {
            break;
        }
        used += (size_t)got;
    }
    response.status = atoi(response.head + sizeof "HTTP/1.1");
    response.json = body != NULL && used == size_bytes ? json_loadb(body, used, 0, NULL) : NULL;
    free(body);
    return response;
}

bool web_closed(int fd)
{
    char byte;
    return recv(fd, &byte, 1, 0) <= 0;
}

void web_response_finish(struct web_response *response)
{
    json_decref(response->json);
    response->json = NULL;
}
