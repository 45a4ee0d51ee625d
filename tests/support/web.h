/* HTTP/1.1 by hand, for what no client library would send. */
#ifndef MUSTER_TESTS_SUPPORT_WEB_H
#define MUSTER_TESTS_SUPPORT_WEB_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct web_response {
    int status; /* 0: the connection closed without an answer */
    char head[2048];
    json_t *json; /* NULL: the body is none */
};

/* -1: it cannot connect. Reads give up after 20 s. */
int web_open(uint16_t port);
bool web_send(int fd, const char *text, size_t size_bytes);
/* POST of a body to the method; more: header lines, each with its end, or "". ' stands for ". */
bool web_post(int fd, const char *method, const char *more, const char *body);
struct web_response web_read(int fd);
/* True if the other end closes before anything comes. */
bool web_closed(int fd);
void web_response_finish(struct web_response *response);

#endif
