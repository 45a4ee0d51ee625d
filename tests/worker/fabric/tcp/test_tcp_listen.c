/* Where a fabric listens: addresses, ports and ranges of ports. */
#include "tests/support/fabrics.h"
#include "worker/base/status.h"
#include "worker/fabric/address/address.h"
#include "worker/fabric/fabric.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANGE = 50 };

static muster_status listen_at(const char *where, struct muster_fabric **ret_fabric)
{
    const struct fabric_wish wish = {.transports = "tcp",
                                     .options.listen = where,
                                     .fabric.member = "00000000-0000-4000-8000-000000000001"};
    return fabrics_make(&wish, ret_fabric);
}

static void expect_refusal(const char *where, const char *why)
{
    struct muster_fabric *fabric = NULL;
    assert_int_equal(listen_at(where, &fabric), MUSTER_INVALID);
    assert_null(fabric);
    assert_non_null(strstr(muster_last_error(), where));
    assert_non_null(strstr(muster_last_error(), why));
}

static unsigned long port_of(const struct muster_fabric *fabric)
{
    return strtoul(strrchr(muster_fabric_address(fabric, 0), ':') + 1, NULL, 10);
}

/* A port in use, with room for a range after it. */
static uint16_t take_port(int *ret_fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = -1;
    do {
        if (fd >= 0) {
            close(fd);
        }
        address.sin_port = 0;
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fd >= 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    } while (ntohs(address.sin_port) > UINT16_MAX - RANGE);
    assert_int_equal(listen(fd, 1), 0);
    *ret_fd = fd;
    return ntohs(address.sin_port);
}

static void the_first_free_port_of_a_range_is_taken(void **state)
{
    (void)state;
    int fd = -1;
    char where[64];
    struct muster_fabric *fabric = NULL;
    uint16_t taken = take_port(&fd);
    (void)snprintf(where, sizeof where, "127.0.0.1:%d", taken);
    expect_refusal(where, "Address already in use");
    (void)snprintf(where, sizeof where, "127.0.0.1:%d-%d", taken, taken);
    expect_refusal(where, "Address already in use");
    (void)snprintf(where, sizeof where, "127.0.0.1:%d-%d", taken, taken + RANGE);
    assert_int_equal(listen_at(where, &fabric), MUSTER_OK);
    assert_in_range(port_of(fabric), (unsigned)taken + 1, (unsigned)taken + RANGE);
    muster_fabric_destroy(fabric, 0);
    close(fd);
}

static void a_wrong_listen_address_is_named(void **state)
{
    (void)state;
    expect_refusal("127.0.0.1:", "a port is 1 to 65535");
    expect_refusal("127.0.0.1:0", "a port is 1 to 65535");
    expect_refusal("127.0.0.1:65536", "a port is 1 to 65535");
    expect_refusal("127.0.0.1:9-7", "a port is 1 to 65535");
    expect_refusal("127.0.0.1:7-", "a port is 1 to 65535");
    expect_refusal("127.0.0.1:7-9x", "a port is 1 to 65535");
    expect_refusal("[::1]:+7", "a port is 1 to 65535");
    expect_refusal("0.0.0.0:7000", "peers need a real address");
    expect_refusal("nowhere", "address");
}

static void addresses_of_both_families_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *printed;
        uint16_t first, last;
    } cases[] = {
        {"10.0.0.1", "tcp://10.0.0.1:9", 0, 0},
        {"10.0.0.1:7000", "tcp://10.0.0.1:9", 7000, 7000},
        {"10.0.0.1:7000-7015", "tcp://10.0.0.1:9", 7000, 7015},
        {"::1", "tcp://[::1]:9", 0, 0},
        {"[::1]", "tcp://[::1]:9", 0, 0},
        {"[fd00::1]:65535", "tcp://[fd00::1]:9", 65535, 65535},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct muster_socket_address address;
        char printed[MUSTER_ADDRESS_SIZE];
        uint16_t first = 1;
        uint16_t last = 1;
        assert_int_equal(muster_address_parse_listen(cases[i].text, &address, &first, &last),
                         MUSTER_OK);
        assert_int_equal(first, cases[i].first);
        assert_int_equal(last, cases[i].last);
        muster_address_set_port(&address, 9);
        muster_address_print(&address, printed);
        assert_string_equal(printed, cases[i].printed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_free_port_of_a_range_is_taken),
        cmocka_unit_test(a_wrong_listen_address_is_named),
        cmocka_unit_test(addresses_of_both_families_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
