/* The proxy: a thread for each connection. */
#include "tests/support/tcp_proxy.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned target_port; /* of the child */

static struct sockaddr_in loopback(unsigned port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* False: the end of one direction. */
static bool pass(int from, int to)
{
    char bytes[16384];
    ssize_t size = recv(from, bytes, sizeof bytes, 0);
    for (ssize_t sent = 0; sent < size;) {
        ssize_t now = send(to, bytes + sent, (size_t)(size - sent), MSG_NOSIGNAL);
        if (now <= 0) {
            return false;
        }
        sent += now;
    }
    return size > 0;
}

static void *serve_one(void *user)
{
    int client = (int)(intptr_t)user;
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = loopback(target_port);
    bool open = server >= 0 && connect(server, (struct sockaddr *)&address, sizeof address) == 0;
    while (open) {
        struct pollfd ends[] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
        open = poll(ends, 2, -1) > 0 && (ends[0].revents == 0 || pass(client, server)) &&
               (ends[1].revents == 0 || pass(server, client));
    }
    (void)close(client);
    (void)close(server);
    return NULL;
}

static void serve(int listen_fd)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        pthread_t thread;
        int client = accept(listen_fd, NULL, NULL);
        if (client >= 0 &&
            pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)client) == 0) {
            (void)pthread_detach(thread);
        }
    }
}

static bool spawn(struct test_tcp_proxy *proxy)
{
    target_port = proxy->to_port;
    proxy->pid = fork();
    if (proxy->pid == 0) {
        serve(proxy->listen_fd);
    }
    return proxy->pid > 0;
}

static void end(struct test_tcp_proxy *proxy)
{
    if (proxy->pid > 0) {
        (void)kill(proxy->pid, SIGKILL);
        (void)waitpid(proxy->pid, NULL, 0);
        proxy->pid = 0;
    }
}

bool test_tcp_proxy_start(struct test_tcp_proxy *proxy, unsigned to_port)
{
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    *proxy = (struct test_tcp_proxy){.to_port = to_port};
    proxy->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (proxy->listen_fd < 0 ||
        bind(proxy->listen_fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(proxy->listen_fd, 64) != 0 ||
        getsockname(proxy->listen_fd, (struct sockaddr *)&address, &size) != 0) {
        return false;
    }
    proxy->port = ntohs(address.sin_port);
    return spawn(proxy);
}

bool test_tcp_proxy_restart(struct test_tcp_proxy *proxy)
{
    end(proxy);
    return spawn(proxy);
}

void test_tcp_proxy_stop(struct test_tcp_proxy *proxy)
{
    end(proxy);
    (void)close(proxy->listen_fd);
}
