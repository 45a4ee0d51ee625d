/* Peers that publish addresses at which nobody listens, or somebody else: the link opens over the
 * right address, whatever happens at the others. */
#include "tests/conformance/rig.h"
#include "tests/support/descriptors.h"
#include "worker/fabric/address/address.h"
#include "worker/fabric/wire/hello.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { LATE_ROUNDS = 10, LATE_MS = 60 };

static const struct rig_transport tcp = {.name = "tcp", .transports = "tcp"};

/* Somebody else ------------------------------------------------------------------------------ */

/* A socket that listens and never answers, or one that does not listen, so that connections are
 * refused. */
static int make_socket(bool listening, char ret_address[MUSTER_ADDRESS_SIZE])
{
    struct muster_socket_address address;
    assert_int_equal(muster_address_parse_host("127.0.0.1", &address), MUSTER_OK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address.storage, address.size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address.storage, &address.size), 0);
    assert_true(!listening || listen(fd, 16) == 0);
    muster_address_print(&address, ret_address);
    return fd;
}

/* Accepts, answers with some bytes or with none, and closes. */
struct service {
    int fd;
    const char *answer;
    atomic_bool over;
    pthread_t thread;
};

static void *serve(void *argument)
{
    struct service *service = argument;
    while (!atomic_load(&service->over)) {
        struct pollfd look = {.fd = service->fd, .events = POLLIN};
        if (poll(&look, 1, 10) != 1) {
            continue;
        }
        int fd = accept(service->fd, NULL, NULL);
        if (fd >= 0) {
            char hello[MUSTER_HELLO_SIZE];
            (void)recv(fd, hello, sizeof hello, MSG_WAITALL);
            (void)send(fd, service->answer, strlen(service->answer), MSG_NOSIGNAL);
            close(fd);
        }
    }
    return NULL;
}

static void begin_service(struct service *service, const char *answer,
                          char ret_address[MUSTER_ADDRESS_SIZE])
{
    memset(service, 0, sizeof *service);
    service->answer = answer;
    service->fd = make_socket(true, ret_address);
    assert_int_equal(pthread_create(&service->thread, NULL, serve, service), 0);
}

static void end_service(struct service *service)
{
    atomic_store(&service->over, true);
    (void)pthread_join(service->thread, NULL);
    close(service->fd);
}

/* Two members -------------------------------------------------------------------------------- */

/* Adds an address to what every member publishes, before its own address or after it. */
static void publish_too(struct rig *rig, const char *address, bool ahead)
{
    for (uint32_t i = 0; i < rig->count; i++) {
        struct muster_peer *peer = &rig->peers[i];
        uint32_t at = ahead ? 0 : peer->address_count;
        memmove(peer->addresses[at + 1], peer->addresses[at],
                (peer->address_count - at) * sizeof peer->addresses[0]);
        (void)snprintf(peer->addresses[at], sizeof peer->addresses[0], "%s", address);
        peer->address_count++;
    }
}

static void expect_link_beside(const char *address)
{
    for (int ahead = 0; ahead < 2; ahead++) {
        struct rig rig;
        rig_init(&rig, &tcp, 2);
        publish_too(&rig, address, ahead);
        rig_begin(&rig);
        rig_run(&rig, rig_exchange, NULL);
        assert_int_equal(muster_fabric_figures(rig.fabrics[0]).links_lost, 0);
        assert_int_equal(muster_fabric_figures(rig.fabrics[0]).links_opened, 1);
        rig_finish(&rig);
    }
}

static void an_address_where_nobody_listens_is_followed_by_the_next(void **state)
{
    (void)state;
    char address[MUSTER_ADDRESS_SIZE];
    int fd = make_socket(false, address);
    expect_link_beside(address);
    close(fd);
}

static void a_silent_host_does_not_delay_the_link(void **state)
{
    (void)state;
    char address[MUSTER_ADDRESS_SIZE];
    int fd = make_socket(true, address);
    expect_link_beside(address);
    close(fd);
}

static void an_address_of_another_service_is_skipped(void **state)
{
    (void)state;
    static const char *const answers[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", ""};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        char address[MUSTER_ADDRESS_SIZE];
        struct service service;
        begin_service(&service, answers[i], address);
        expect_link_beside(address);
        end_service(&service);
    }
}

static void an_address_that_cannot_be_parsed_is_skipped(void **state)
{
    (void)state;
    expect_link_beside("tcp://nonsense");
}

static char *look_until_over(struct rig *rig, uint32_t rank, void *user)
{
    atomic_bool *over = user;
    bool never = false;
    while (!atomic_load(over)) {
        (void)!muster_fabric_wait(rig->fabrics[rank], rig->generation, &never,
                                  muster_clock_after_ms(5));
    }
    return NULL;
}

struct others {
    struct rig rig;
    atomic_bool over;
    pthread_t thread;
};

static void *run_others(void *argument)
{
    struct others *others = argument;
    rig_run(&others->rig, look_until_over, &others->over);
    return NULL;
}

/* Drives members of another job, or of this one. */
static void link_comes_up_beside_members(const char *token)
{
    struct others *others = test_calloc(1, sizeof *others);
    rig_init(&others->rig, &tcp, 2);
    for (uint32_t i = 0; token != NULL && i < 2; i++) {
        muster_fabric_set_token(others->rig.fabrics[i], token);
    }
    assert_int_equal(pthread_create(&others->thread, NULL, run_others, others), 0);
    expect_link_beside(others->rig.peers[0].addresses[0]);
    atomic_store(&others->over, true);
    (void)pthread_join(others->thread, NULL);
    assert_true(muster_fabric_figures(others->rig.fabrics[0]).connections_rejected > 0);
    rig_finish(&others->rig);
    test_free(others);
}

static void an_address_of_another_member_is_skipped(void **state)
{
    (void)state;
    link_comes_up_beside_members(NULL);
}

static void an_address_of_another_job_is_skipped(void **state)
{
    (void)state;
    link_comes_up_beside_members("a token of another job");
}

/* Failures ----------------------------------------------------------------------------------- */

static char *expect_lost(struct rig *rig, uint32_t rank, void *user)
{
    char byte = 0;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer send = rig_send(rig, 1 - rank, 1, &byte, 1);
    (void)user;
    if (rank == 1) {
        return NULL;
    }
    rig_post(rig, rank, &counter, &send);
    RIG_EXPECT(rig_wait(rig, rank, &counter) == MUSTER_REJOIN);
    for (uint32_t i = 0; i < rig->peers[1].address_count; i++) {
        RIG_EXPECT(strstr(counter.reason, rig->peers[1].addresses[i]) != NULL);
    }
    RIG_EXPECT(strstr(counter.reason, "Connection refused") != NULL);
    return NULL;
}

static void an_unreachable_peer_is_lost_with_all_reasons(void **state)
{
    (void)state;
    char addresses[2][MUSTER_ADDRESS_SIZE];
    int fds[2] = {make_socket(false, addresses[0]), make_socket(false, addresses[1])};
    struct rig rig;
    rig_init(&rig, &tcp, 2);
    rig.peers[1].address_count = 2;
    memcpy(rig.peers[1].addresses, addresses, sizeof addresses);
    rig_begin(&rig);
    rig_run(&rig, expect_lost, NULL);
    rig_finish(&rig);
    close(fds[0]);
    close(fds[1]);
}

static char *expect_exhausted(struct rig *rig, uint32_t rank, void *user)
{
    char byte = 0;
    char reason[MUSTER_REASON_SIZE] = "";
    struct rig_counter counter = {.left = 1};
    struct muster_transfer send = rig_send(rig, 1 - rank, 1, &byte, 1);
    (void)user;
    if (rank == 1) {
        return NULL;
    }
    rig_post(rig, rank, &counter, &send);
    RIG_EXPECT(rig_wait(rig, rank, &counter) == MUSTER_REJOIN);
    RIG_EXPECT(muster_fabric_out_of_descriptors(rig->fabrics[rank], rig->generation, reason));
    RIG_EXPECT(strstr(reason, "no descriptor left") != NULL);
    RIG_EXPECT(strstr(reason, rig->peers[1].addresses[0]) != NULL);
    return NULL;
}

static void a_process_without_descriptors_blames_itself(void **state)
{
    (void)state;
    struct rig rig;
    struct rlimit before;
    char reason[MUSTER_REASON_SIZE];
    rig_init(&rig, &tcp, 2);
    rig_begin(&rig);
    descriptors_exhaust(&before);
    rig_run(&rig, expect_exhausted, NULL);
    descriptors_restore(&before);
    rig_begin(&rig);
    assert_false(muster_fabric_out_of_descriptors(rig.fabrics[0], rig.generation, reason));
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

/* Several addresses of one member ------------------------------------------------------------ */

static void listen_on_loopback(uint32_t rank, struct fabric_wish *wish)
{
    (void)rank;
    if (wish != NULL) {
        wish->options.interface = "lo";
    }
}

static const struct rig_transport everywhere = {
    .name = "tcp", .transports = "tcp", .options.listen = "*", .prepare = listen_on_loopback};

/* The same address many times: all attempts reach the same member, which accepts one. */
static void multiply_addresses(struct rig *rig)
{
    for (uint32_t i = 0; i < rig->count; i++) {
        struct muster_peer *peer = &rig->peers[i];
        for (uint32_t k = 1; k < MUSTER_ADDRESSES_MAX; k++) {
            memcpy(peer->addresses[k], peer->addresses[k % peer->address_count],
                   sizeof peer->addresses[0]);
        }
        peer->address_count = MUSTER_ADDRESSES_MAX;
    }
}

/* Rank 1 starts to progress when rank 0 has dialled some of its addresses, or has been answered
 * "wait". */
static char *exchange_late(struct rig *rig, uint32_t rank, void *user)
{
    const bool *begins = user;
    if (rank == 1) {
        for (int i = 0; i < LATE_ROUNDS; i++) {
            bool never = false;
            if (!*begins) {
                (void)!muster_fabric_wait(rig->fabrics[1], rig->generation, &never,
                                          muster_clock_after_ms(1));
            }
            (void)poll(NULL, 0, LATE_MS);
        }
        if (!*begins) {
            rig_begin_one(rig, 1);
        }
    }
    return rig_exchange(rig, rank, NULL);
}

static void many_attempts_at_one_member_open_one_link(void **state)
{
    (void)state;
    struct rig rig;
    bool begins = true;
    rig_init(&rig, &everywhere, 2);
    multiply_addresses(&rig);
    rig_begin(&rig);
    rig_run(&rig, exchange_late, &begins);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(muster_fabric_figures(rig.fabrics[i]).links_opened, 1);
        assert_int_equal(muster_fabric_figures(rig.fabrics[i]).links_lost, 0);
    }
    rig_finish(&rig);
}

static void an_attempt_that_is_told_to_wait_opens_the_link_later(void **state)
{
    (void)state;
    struct rig rig;
    bool begins = false;
    rig_init(&rig, &everywhere, 2);
    multiply_addresses(&rig);
    rig.generation++;
    rig_begin_one(&rig, 0);
    rig_run(&rig, exchange_late, &begins);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(muster_fabric_figures(rig.fabrics[i]).links_opened, 1);
        assert_int_equal(muster_fabric_figures(rig.fabrics[i]).links_lost, 0);
    }
    rig_finish(&rig);
}

static void every_address_is_listened_at(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, &everywhere, 2);
    assert_true(rig.peers[0].address_count >= 1);
    for (uint32_t i = 0; i < rig.peers[0].address_count; i++) {
        struct muster_peer whole = rig.peers[0];
        rig.peers[0].address_count = 1;
        memcpy(rig.peers[0].addresses[0], whole.addresses[i], sizeof whole.addresses[0]);
        rig_begin(&rig);
        rig_run(&rig, rig_exchange, NULL);
        rig.peers[0] = whole;
        rig_replace(&rig, 1); /* so that there is no link yet */
    }
    rig_finish(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_where_nobody_listens_is_followed_by_the_next),
        cmocka_unit_test(a_silent_host_does_not_delay_the_link),
        cmocka_unit_test(an_address_of_another_service_is_skipped),
        cmocka_unit_test(an_address_that_cannot_be_parsed_is_skipped),
        cmocka_unit_test(an_address_of_another_member_is_skipped),
        cmocka_unit_test(an_address_of_another_job_is_skipped),
        cmocka_unit_test(an_unreachable_peer_is_lost_with_all_reasons),
        cmocka_unit_test(a_process_without_descriptors_blames_itself),
        cmocka_unit_test(many_attempts_at_one_member_open_one_link),
        cmocka_unit_test(an_attempt_that_is_told_to_wait_opens_the_link_later),
        cmocka_unit_test(every_address_is_listened_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
