/* A connection that the server accepts is probed by the kernel while it is idle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "rendezvous/http/listen.h"
#include "worker/base/cleanup.h"
#include "worker/base/keepalive.h"

static int option_of(int fd, int level, int name)
{
    int value = 0;
    socklen_t size = sizeof value;
    assert_int_equal(getsockopt(fd, level, name, &value, &size), 0);
    return value;
}

static void an_accepted_connection_inherits_keepalive(void **state)
{
    (void)state;
    struct sockaddr_in address = {0};
    socklen_t size = sizeof address;
    int listening = -1;
    assert_int_equal(muster_listen_open("127.0.0.1:0", &listening), MUSTER_OK);
    AUTO_CLOSE int listen_fd = listening;
    assert_int_equal(getsockname(listen_fd, (struct sockaddr *)&address, &size), 0);
    AUTO_CLOSE int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof address), 0);
    AUTO_CLOSE int accepted = accept(listen_fd, NULL, NULL);
    assert_true(accepted >= 0);
    assert_int_equal(option_of(accepted, SOL_SOCKET, SO_KEEPALIVE), 1);
    assert_int_equal(option_of(accepted, IPPROTO_TCP, TCP_KEEPIDLE), MUSTER_KEEPALIVE_IDLE_S);
    assert_int_equal(option_of(accepted, IPPROTO_TCP, TCP_KEEPINTVL), MUSTER_KEEPALIVE_INTERVAL_S);
    assert_int_equal(option_of(accepted, IPPROTO_TCP, TCP_KEEPCNT), MUSTER_KEEPALIVE_PROBES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_accepted_connection_inherits_keepalive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
