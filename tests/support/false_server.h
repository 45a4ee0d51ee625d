/* A server between workers and a musterd whose answers a test may change, drop or invent. */
#ifndef MUSTER_TESTS_SUPPORT_FALSE_SERVER_H
#define MUSTER_TESTS_SUPPORT_FALSE_SERVER_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct false_server;

/* A request, and the true answer to it. */
struct false_exchange {
    struct false_server *server;
    int fd;            /* of the client */
    char method[32];   /* "Join" */
    unsigned number;   /* from 0: of the requests of this method */
    const char *body;  /* of the request */
    int status;        /* of the true answer; 0: there is none, as there is no musterd */
    const char *reply; /* the body of the true answer */
};

/* Answers in place of the musterd, by false_server_send() or as it likes, and returns true: the
 * connection is then closed. False: the true answer is passed on. Called in the connection's
 * thread, several at once. */
typedef bool (*false_server_function)(struct false_exchange *exchange);

struct false_server {
    false_server_function function;
    void *user;
    unsigned to_port; /* of the musterd; 0: none */
    unsigned port;
    char url[64];
    /* Its own: */
    int listen_fd;
    pthread_t thread;
    pthread_mutex_t mutex; /* all that follows */
    pthread_cond_t ended;
    int fds[256]; /* of clients; -1: free */
    unsigned connections;
    bool stops;
    struct {
        char method[32];
        unsigned count;
    } seen[32];
};

/* function, user and to_port are set. False: it cannot listen. */
bool false_server_start(struct false_server *server);
/* Closes all connections. No function is called afterwards. */
void false_server_stop(struct false_server *server);

/* Requests of the method so far. */
unsigned false_server_count(struct false_server *server, const char *method);
bool false_server_stops(struct false_server *server);

/* A whole answer. False: the client has closed. */
bool false_server_send(struct false_exchange *exchange, int status, const char *body);
bool false_server_send_json(struct false_exchange *exchange, int status, json_t *json);

#endif
