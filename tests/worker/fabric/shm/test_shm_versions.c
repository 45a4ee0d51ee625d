/* Members of one host whose libraries have different wire versions: no link opens, and both
 * versions are named. */
#include "tests/conformance/rig.h"
#include "worker/base/bytes.h"
#include "worker/base/cleanup.h"
#include "worker/fabric/shm/shm.h"
#include "worker/memory/shared_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum { VERSION_AT = 8, OTHER_VERSION = MUSTER_WIRE_VERSION + 1 };

static const struct rig_transport memory_only = {.name = "shared memory", .transports = "shm"};

/* A socket that is connected to this name, or listens as it. */
static int make_socket(const char *name, bool listening)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path + 1, name, strlen(name));
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (listening) {
        assert_int_equal(bind(fd, (const struct sockaddr *)&address, size), 0);
        assert_int_equal(listen(fd, SOMAXCONN), 0);
    } else {
        assert_int_equal(connect(fd, (const struct sockaddr *)&address, size), 0);
    }
    return fd;
}

/* Drives rank 0 until a packet has arrived. */
static void await_packet(struct rig *rig, int fd, struct muster_shm_packet *ret_packet)
{
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    int got = 0;
    while (got == 0 && muster_clock_ns() < deadline_ns) {
        AUTO_CLOSE int descriptor = -1;
        rig_progress(rig, 0, 1);
        got = muster_shm_packet_receive(fd, ret_packet, &descriptor);
    }
    assert_int_equal(got, 1);
}

static void a_dialler_of_another_version_is_told_the_version(void **state)
{
    (void)state;
    struct rig rig;
    struct muster_shm_address address;
    struct muster_shm_packet packet = {.kind = SHM_HELLO};
    AUTO_CLOSE int memory_fd = -1;
    rig_init(&rig, &memory_only, 2);
    struct muster_hello hello = {.generation = rig.generation, .rank = 1};
    memcpy(hello.from, rig.peers[1].member, sizeof hello.from);
    memcpy(hello.to, rig.peers[0].member, sizeof hello.to);
    muster_hello_encode(&hello, packet.hello);
    muster_bytes_put(packet.hello + VERSION_AT, OTHER_VERSION, 2);
    assert_true(muster_shm_address_parse(rig.peers[0].addresses[0], &address));
    assert_int_equal(muster_shared_memory_create("test", SHM_MEMORY_BYTES, &memory_fd), MUSTER_OK);
    AUTO_CLOSE int fd = make_socket(address.name, false);
    assert_true(muster_shm_packet_send(fd, &packet, memory_fd));
    await_packet(&rig, fd, &packet);
    assert_int_equal(packet.kind, SHM_ANSWER);
    assert_int_equal(packet.word, MUSTER_REFUSED_VERSION);
    assert_int_equal(packet.generation, MUSTER_WIRE_VERSION);
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

static void a_peer_that_answers_in_another_version_is_an_error_with_both_versions(void **state)
{
    (void)state;
    struct rig rig;
    struct muster_shm_address address;
    struct muster_shm_packet packet;
    struct rig_counter counter = {.left = 1};
    unsigned char byte = 1;
    char versions[80];
    rig_init(&rig, &memory_only, 2);
    rig_replace(&rig, 1);
    assert_true(muster_shm_address_here(&address));
    (void)snprintf(address.name, sizeof address.name, "muster-test-%d", (int)getpid());
    muster_shm_address_print(&address, rig.peers[1].addresses[0]);
    rig.peers[1].address_count = 1;
    AUTO_CLOSE int listener = make_socket(address.name, true);
    rig.generation++;
    rig_begin_one(&rig, 0);
    struct muster_transfer send_byte = rig_send(&rig, 1, 1, &byte, 1);
    rig_post(&rig, 0, &counter, &send_byte);
    rig_progress(&rig, 0, 1);
    AUTO_CLOSE int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    await_packet(&rig, fd, &packet);
    packet = (struct muster_shm_packet){
        .kind = SHM_ANSWER, .generation = OTHER_VERSION, .word = MUSTER_REFUSED_VERSION};
    assert_true(muster_shm_packet_send(fd, &packet, -1));
    assert_int_equal(rig_wait(&rig, 0, &counter), MUSTER_REJOIN);
    (void)snprintf(versions, sizeof versions,
                   "refused: its wire version is %d, this member's is %d", OTHER_VERSION,
                   MUSTER_WIRE_VERSION);
    if (strstr(counter.reason, versions) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", counter.reason, versions);
    }
    rig_finish(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dialler_of_another_version_is_told_the_version),
        cmocka_unit_test(a_peer_that_answers_in_another_version_is_an_error_with_both_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
