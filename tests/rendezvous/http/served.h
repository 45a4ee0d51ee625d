/*
 * A service behind HTTP for one test, and connections to it. Header only: each test program here
 * includes it.
 */
#ifndef MUSTER_TESTS_RENDEZVOUS_HTTP_SERVED_H
#define MUSTER_TESTS_RENDEZVOUS_HTTP_SERVED_H

#include "rendezvous/http/http.h"
#include "rendezvous/http/listen.h"
#include "tests/support/caller.h"
#include "tests/support/part.h"
#include "tests/support/web.h"
#include "worker/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { CROWD = 256, SLOW_MS = 400 };
#define PATH "/muster.v1.Rendezvous/"
#define HEAD " HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n"
#define TYPE "Content-Type: application/json\r\n"
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define IMPATIENT(name) cmocka_unit_test_setup_teardown(name, set_up_impatient, tear_down)

struct fixture {
    struct muster_store *store;
    struct muster_service *service;
    struct muster_http *http;
    uint16_t port;
    int fds[CROWD];
};

static inline void start(struct fixture *fixture, uint32_t transfer_timeout_ms)
{
    struct muster_service_config config;
    char address[MUSTER_LISTEN_ADDRESS_SIZE];
    struct muster_http_config http = {.transfer_timeout_ms = transfer_timeout_ms};
    muster_service_config_init(&config);
    config.hold_ms = 15000;
    config.settings.lease_ms = 30000;
    config.settings.suspect_ms = 30000;
    assert_int_equal(muster_listen_open("127.0.0.1:0", &http.listen_fd), MUSTER_OK);
    assert_int_equal(muster_listen_describe(http.listen_fd, address, &fixture->port), MUSTER_OK);
    assert_int_equal(muster_store_memory_open(&fixture->store), MUSTER_OK);
    assert_int_equal(muster_service_create(&config, fixture->store, &fixture->service), MUSTER_OK);
    assert_int_equal(muster_http_start(&http, fixture->service, &fixture->http), MUSTER_OK);
}

static inline int set_up(void **state)
{
    *state = calloc(1, sizeof(struct fixture));
    start(*state, 30000);
    return 0;
}

static inline int set_up_impatient(void **state)
{
    *state = calloc(1, sizeof(struct fixture));
    start(*state, SLOW_MS);
    return 0;
}

static inline void stop(struct fixture *fixture)
{
    muster_http_stop(fixture->http);
    muster_service_destroy(fixture->service);
    muster_store_close(fixture->store);
}

static inline int tear_down(void **state)
{
    stop(*state);
    free(*state);
    return 0;
}

static inline int open_connection(const struct fixture *fixture)
{
    int fd = web_open(fixture->port);
    assert_true(fd >= 0);
    return fd;
}

/* One request on a connection of its own. */
static inline struct web_response post(const struct fixture *fixture, const char *method,
                                       const char *body)
{
    int fd = open_connection(fixture);
    assert_true(web_post(fd, method, "", body));
    struct web_response response = web_read(fd);
    (void)close(fd);
    return response;
}

static inline void expect(struct web_response response, int status, const char *code)
{
    if (response.status != status || strcmp(test_part_text(response.json, "code"), code) != 0) {
        fail_msg("status %d, code %s: %s", response.status, test_part_text(response.json, "code"),
                 test_part_text(response.json, "message"));
    }
    if (code[0] != '\0') {
        assert_true(strlen(test_part_text(response.json, "message")) > 0);
    }
    assert_non_null(strcasestr(response.head, "content-type: application/json"));
    web_response_finish(&response);
}

static inline void send_join(const struct fixture *fixture, unsigned member, unsigned generation,
                             unsigned size)
{
    char body[512];
    (void)snprintf(body, sizeof body,
                   "{'job':'j','member':'%s','host':'h%u','addresses':['tcp://a:%u'],"
                   "'generation':'%u','order':%u,'minSize':2,'maxSize':%u,'targetSize':%u}",
                   test_member(member), member / 2, member, generation, member, CROWD, size);
    assert_true(web_post(fixture->fds[member], "Join", "", body));
}

static inline void send_watch(const struct fixture *fixture, unsigned member, unsigned generation)
{
    char body[256];
    (void)snprintf(body, sizeof body, "{'job':'j','member':'%s','generation':%u}",
                   test_member(member), generation);
    assert_true(web_post(fixture->fds[member], "Watch", "", body));
}

static inline void form(struct fixture *fixture, unsigned size)
{
    for (unsigned i = 0; i < size; i++) {
        fixture->fds[i] = open_connection(fixture);
        send_join(fixture, i, 0, size);
    }
    for (unsigned i = 0; i < size; i++) {
        struct web_response response = web_read(fixture->fds[i]);
        assert_int_equal(response.status, 200);
        assert_int_equal(test_part_number(response.json, "formed.size"), size);
        assert_int_equal(test_part_number(response.json, "formed.rank"), i);
        assert_int_equal(json_array_size(test_part(response.json, "formed.peers")), size);
        web_response_finish(&response);
    }
}

static inline void close_all(struct fixture *fixture, unsigned size)
{
    for (unsigned i = 0; i < size; i++) {
        (void)close(fixture->fds[i]);
    }
}

#endif
