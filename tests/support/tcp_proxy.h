/* A proxy between workers and the service, as a child process: passes bytes on and knows no HTTP.
 */
#ifndef MUSTER_TESTS_SUPPORT_TCP_PROXY_H
#define MUSTER_TESTS_SUPPORT_TCP_PROXY_H

#include <stdbool.h>
#include <sys/types.h>

struct test_tcp_proxy {
    pid_t pid;
    int listen_fd; /* stays open here, so that the port stays the same */
    unsigned port; /* of the loopback */
    unsigned to_port;
};

/* Passes connections on to that port of the loopback. */
bool test_tcp_proxy_start(struct test_tcp_proxy *proxy, unsigned to_port);
/* Kills it, which closes all its connections, and starts it again on the same port. */
bool test_tcp_proxy_restart(struct test_tcp_proxy *proxy);
void test_tcp_proxy_stop(struct test_tcp_proxy *proxy);

#endif
