/* Raw HTTP/1.1, for requests that no client library would send. */
#ifndef MUSTER_TESTS_SUPPORT_WEB_H
#define MUSTER_TESTS_SUPPORT_WEB_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct web_response {
    int status; /* 0: the connection closed without a response */
    char head[2048];
    json_t *json; /* NULL: the body is not JSON */
};

/* -1: cannot connect. Reads time out after 20 s. */
int web_open(uint16_t port);
bool web_send(int fd, const char *text, size_t size_bytes);
/* POSTs a body to the method; ' stands for ". more: further header lines, each with its line end.
 */
bool web_post(int fd, const char *method, const char *more, const char *body);
struct web_response web_read(int fd);
/* True if the other end closes the connection without sending anything. */
bool web_closed(int fd);
void web_response_finish(struct web_response *response);

#endif
