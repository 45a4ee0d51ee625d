/* Connections that must be refused where links use TLS, and members that disagree about TLS: each
 * gets a reason, is counted, and does no harm. */
#include "tests/conformance/rig.h"
#include "tests/conformance/rig_child.h"
#include "tests/support/certificates.h"
#include "worker/fabric/address/address.h"
#include "worker/fabric/wire/frame.h"
#include "worker/fabric/wire/hello.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { BURST_BYTES = 4000, LIVES = 20, HALVES = 200, AWAY_MS = 5500 };

static struct certificates certificates;
static struct rig_transport with_tls = {.name = "tcp with TLS", .transports = "tcp"};
static const struct rig_transport without_tls = {.name = "tcp", .transports = "tcp"};

static int make_certificates(void **state)
{
    (void)state;
    certificates_init(&certificates);
    certificates_make(&certificates, (struct certificate_wish){.name = "authority"});
    certificates_make(&certificates, (struct certificate_wish){.name = "other"});
    certificates_make(&certificates,
                      (struct certificate_wish){.name = "member", .issuer = "authority"});
    certificates_make(&certificates, (struct certificate_wish){
                                         .name = "named", .issuer = "authority", .dns = "job.x"});
    certificates_make(&certificates,
                      (struct certificate_wish){.name = "foreign", .issuer = "other"});
    certificates_make(&certificates, (struct certificate_wish){.name = "expired",
                                                               .issuer = "authority",
                                                               .from_s = -7200,
                                                               .till_s = -60});
    certificates_choose(&certificates, "member", "authority", &with_tls.options);
    return 0;
}

static int remove_certificates(void **state)
{
    (void)state;
    certificates_finish(&certificates);
    return 0;
}

static uint64_t refused_by(struct rig *rig, uint32_t rank)
{
    return muster_fabric_figures(rig->fabrics[rank]).connections_rejected;
}

/* Rank 0 dials and waits. Rank 1 computes for longer than a hello may take. */
static char *exchange_with_one_away(struct rig *rig, uint32_t rank, void *user)
{
    if (rank == 1) {
        (void)poll(NULL, 0, AWAY_MS);
    }
    return rig_exchange(rig, rank, user);
}

static void a_member_that_computes_is_waited_for(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, &with_tls, 2);
    rig_run(&rig, exchange_with_one_away, NULL);
    assert_int_equal(muster_fabric_figures(rig.fabrics[0]).links_lost, 0);
    assert_int_equal(muster_fabric_figures(rig.fabrics[1]).links_lost, 0);
    rig_finish(&rig);
}

/* Members that do not agree ------------------------------------------------------------------- */

/* Rank 1 has these options. It sends to rank 0, which sends nothing. */
static void expect_refusal(const struct rig_transport *zero, const struct rig_transport *one,
                           const char *words)
{
    struct rig rig;
    rig_init(&rig, zero, 2);
    rig.transport = one;
    rig_replace(&rig, 1);
    rig_begin(&rig);
    struct rig_counter counter = rig_send_unexpected(&rig);
    assert_int_equal(counter.status, MUSTER_REJOIN);
    if (strstr(counter.reason, words) == NULL ||
        strstr(counter.reason, "link to rank 0 (host host-0): ") == NULL) {
        fail_msg("\"%s\" should say \"%s\"", counter.reason, words);
    }
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while (refused_by(&rig, 0) == 0 && muster_clock_ns() < deadline_ns) {
        rig_progress(&rig, 0, 2);
    }
    assert_int_equal(refused_by(&rig, 0), 1);
    rig_finish(&rig);
}

static void members_with_and_without_tls_refuse_each_other_with_a_reason(void **state)
{
    (void)state;
    expect_refusal(&with_tls, &without_tls, "refused: it uses TLS, and this member does not");
    expect_refusal(&without_tls, &with_tls, "refused: it does not use TLS, and this member does");
}

/* One file with both authorities. */
static const char *write_both(void)
{
    static const char *const names[] = {"authority", "other"};
    const char *path = certificates_path(&certificates, "both", "pem");
    FILE *to = fopen(path, "w");
    assert_non_null(to);
    for (int i = 0; i < 2; i++) {
        char text[4096];
        FILE *from = fopen(certificates_path(&certificates, names[i], "pem"), "r");
        assert_non_null(from);
        size_t size = fread(text, 1, sizeof text, from);
        assert_int_equal(fwrite(text, 1, size, to), size);
        assert_int_equal(fclose(from), 0);
    }
    assert_int_equal(fclose(to), 0);
    return path;
}

static void a_certificate_of_another_authority_is_refused(void **state)
{
    (void)state;
    struct rig_transport foreign = with_tls;
    certificates_choose(&certificates, "foreign", "other", &foreign.options);
    expect_refusal(&with_tls, &foreign, "its certificate is refused: ");
    /* Rank 1 trusts rank 0, but rank 0 does not trust rank 1. */
    foreign.options.tls_authority = write_both();
    expect_refusal(&with_tls, &foreign, "it refuses this member by the TLS alert \"unknown CA\"");
}

static void a_certificate_without_the_name_is_refused(void **state)
{
    (void)state;
    struct rig_transport named = with_tls;
    certificates_choose(&certificates, "named", "authority", &named.options);
    named.options.tls_name = "job.x";
    expect_refusal(&with_tls, &named, "its certificate is refused: hostname mismatch");
    expect_refusal(&named, &with_tls, "it refuses this member by the TLS alert");
}

/* Guests: other users of TLS ------------------------------------------------------------------ */

/* A thread with a connection of its own to rank 0, or that listens in place of rank 1; it blocks.
 */
struct guest {
    int fd;                  /* connected */
    bool accepts;            /* or listening */
    const char *certificate; /* its name; NULL: none */
    int version;             /* of TLS, at most; 0: any */
    void (*talk)(struct guest *guest, SSL *ssl);
    struct rig *rig;
    unsigned seed;

    SSL_CTX *context;
    pthread_t thread;
    atomic_bool over;
    bool shaken; /* the handshake was successful, as far as this end can tell */
    char words[256];
};

static void note_words(struct guest *guest)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    (void)snprintf(guest->words, sizeof guest->words, "%s", reason != NULL ? reason : "");
}

static void *visit(void *argument)
{
    struct guest *guest = argument;
    int fd = guest->accepts ? accept(guest->fd, NULL, NULL) : guest->fd;
    SSL *ssl = SSL_new(guest->context);
    (void)SSL_set_fd(ssl, fd);
    guest->shaken = (guest->accepts ? SSL_accept(ssl) : SSL_connect(ssl)) == 1;
    if (!guest->shaken) {
        note_words(guest);
    } else if (guest->talk != NULL) {
        guest->talk(guest, ssl);
    }
    SSL_free(ssl);
    if (guest->accepts) {
        close(fd);
    }
    ERR_clear_error();
    atomic_store(&guest->over, true);
    return NULL;
}

static void start_guest(struct guest *guest)
{
    guest->context = SSL_CTX_new(TLS_method());
    assert_non_null(guest->context);
    if (guest->version != 0) {
        assert_int_equal(SSL_CTX_set_max_proto_version(guest->context, guest->version), 1);
    }
    if (guest->certificate != NULL) {
        struct muster_tls_files files =
            certificates_files(&certificates, guest->certificate, "authority");
        assert_int_equal(SSL_CTX_use_certificate_chain_file(guest->context, files.certificate), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey_file(guest->context, files.key, SSL_FILETYPE_PEM),
                         1);
    }
    assert_int_equal(pthread_create(&guest->thread, NULL, visit, guest), 0);
}

static void end_guest(struct guest *guest)
{
    (void)pthread_join(guest->thread, NULL);
    SSL_CTX_free(guest->context);
    close(guest->fd);
}

static int connect_to(const struct rig *rig)
{
    struct muster_socket_address address;
    assert_int_equal(muster_address_parse(rig->peers[0].addresses[0], &address), MUSTER_OK);
    int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address.storage, address.size), 0);
    return fd;
}

/* Drives rank 0 until the guest is done and `refused` connections were refused. */
static void host_guest(struct rig *rig, struct guest *guest, uint64_t refused)
{
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    guest->rig = rig;
    guest->fd = connect_to(rig);
    start_guest(guest);
    while ((!atomic_load(&guest->over) || refused_by(rig, 0) < refused) &&
           muster_clock_ns() < deadline_ns) {
        rig_progress(rig, 0, 2);
    }
    assert_true(atomic_load(&guest->over));
    end_guest(guest);
    assert_int_equal(refused_by(rig, 0), refused);
}

/* In TLS 1.3 a client learns from its first read that its certificate was refused. */
static void read_alert(struct guest *guest, SSL *ssl)
{
    char byte = 0;
    guest->shaken = SSL_read(ssl, &byte, 1) == 1;
    note_words(guest);
}

static void a_dialler_with_a_wrong_certificate_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *certificate, *words;
        int version;
    } guests[] = {
        {"expired", "certificate expired", 0},
        {"foreign", "unknown ca", 0},
        {NULL, "certificate required", 0},
        {"member", "protocol version", TLS1_2_VERSION},
    };
    struct rig rig;
    rig_init(&rig, &with_tls, 2);
    for (size_t i = 0; i < sizeof guests / sizeof guests[0]; i++) {
        struct guest guest = {
            .certificate = guests[i].certificate, .version = guests[i].version, .talk = read_alert};
        host_guest(&rig, &guest, i + 1);
        assert_false(guest.shaken);
        assert_non_null(strstr(guest.words, guests[i].words));
    }
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

/* Listens in place of rank 1, with this certificate. */
static void expect_loss(const char *certificate, const char *words)
{
    struct muster_socket_address address = {.size = sizeof address.storage};
    struct guest guest = {.accepts = true, .certificate = certificate, .talk = read_alert};
    struct rig rig;
    rig_init(&rig, &with_tls, 2);
    assert_int_equal(muster_address_parse("tcp://127.0.0.1:1", &address), MUSTER_OK);
    muster_address_set_port(&address, 0);
    guest.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(guest.fd, (struct sockaddr *)&address.storage, address.size), 0);
    assert_int_equal(listen(guest.fd, 1), 0);
    assert_int_equal(getsockname(guest.fd, (struct sockaddr *)&address.storage, &address.size), 0);
    muster_address_print(&address, rig.peers[1].addresses[0]);
    rig_begin(&rig);
    start_guest(&guest);
    char byte = 0;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer send = rig_send(&rig, 1, 1, &byte, 1);
    rig_post(&rig, 0, &counter, &send);
    assert_int_equal(rig_wait(&rig, 0, &counter), MUSTER_REJOIN);
    end_guest(&guest);
    if (strstr(counter.reason, words) == NULL) {
        fail_msg("\"%s\" should say \"%s\"", counter.reason, words);
    }
    rig_finish(&rig);
}

static void an_acceptor_with_a_wrong_certificate_loses_the_link(void **state)
{
    (void)state;
    expect_loss("expired", "its certificate is refused: certificate has expired");
    expect_loss("foreign", "its certificate is refused: unable to get local issuer certificate");
}

static void plain_garbage_is_refused_at_once(void **state)
{
    (void)state;
    static const char *const bytes[] = {
        "GET / HTTP/1.1\r\n\r\n", "\x16garbage that begins like TLS", "\x16\x03\x01\x00\x05 TLS?"};
    struct rig rig;
    rig_init(&rig, &with_tls, 2);
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        int fd = connect_to(&rig);
        size_t size = strlen(bytes[i]);
        size = size < 10 ? 10 : size; /* one has zeros in it */
        assert_int_equal(send(fd, bytes[i], size, MSG_NOSIGNAL), (ssize_t)size);
        int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
        while (refused_by(&rig, 0) < i + 1 && muster_clock_ns() < deadline_ns) {
            rig_progress(&rig, 0, 2);
        }
        assert_int_equal(refused_by(&rig, 0), i + 1);
        close(fd);
    }
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

static void unfinished_handshakes_do_not_keep_members_out(void **state)
{
    (void)state;
    static int fds[HALVES];
    struct rig rig;
    rig_init(&rig, &with_tls, 2);
    for (int i = 0; i < HALVES; i++) {
        fds[i] = connect_to(&rig);
        assert_int_equal(send(fds[i], "\x16\x03\x01\x02", 4, MSG_NOSIGNAL), 4);
        if (i % 50 == 0) {
            rig_progress(&rig, 0, 2);
        }
    }
    rig_run(&rig, rig_exchange, NULL);
    for (int i = 0; i < HALVES; i++) {
        close(fds[i]);
    }
    rig_finish(&rig);
}

/* Members that break off ---------------------------------------------------------------------- */

/* Sends the hello of rank 1, and is accepted. */
static bool become_member(const struct guest *guest, SSL *ssl)
{
    unsigned char bytes[MUSTER_HELLO_SIZE];
    unsigned char answer[MUSTER_ANSWER_SIZE];
    enum muster_verdict verdict = MUSTER_REFUSED_LOST;
    struct muster_hello hello = {.generation = guest->rig->generation, .rank = 1};
    memcpy(hello.from, guest->rig->peers[1].member, sizeof hello.from);
    memcpy(hello.to, guest->rig->peers[0].member, sizeof hello.to);
    (void)snprintf(hello.token, sizeof hello.token, "a token that both ends have");
    muster_hello_encode(&hello, bytes);
    return SSL_write(ssl, bytes, sizeof bytes) == (int)sizeof bytes &&
           SSL_read(ssl, answer, sizeof answer) == (int)sizeof answer &&
           muster_answer_decode(answer, &verdict) == MUSTER_OK && verdict == MUSTER_WELCOME;
}

static void cut(struct guest *guest, SSL *ssl)
{
    guest->shaken = become_member(guest, ssl);
    const SSL_SESSION *session = SSL_get0_session(ssl);
    if (SSL_SESSION_is_resumable(session) == 1 || SSL_SESSION_get_max_early_data(session) > 0) {
        guest->shaken = false;
    }
    (void)shutdown(guest->fd, SHUT_WR); /* as the kernel does for a dead process */
}

static void end_by_rules(struct guest *guest, SSL *ssl)
{
    guest->shaken = become_member(guest, ssl);
    (void)SSL_shutdown(ssl);
}

static void send_plain(struct guest *guest, SSL *ssl)
{
    static const char bytes[] = "plain bytes in the middle of TLS";
    guest->shaken = become_member(guest, ssl) &&
                    send(guest->fd, bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes;
}

/* Some well-formed frames, then garbage. */
static void send_garbage(struct guest *guest, SSL *ssl)
{
    unsigned char bytes[BURST_BYTES];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)rand_r(&guest->seed);
    }
    size_t at = 0;
    for (int i = rand_r(&guest->seed) % 4; i > 0; i--) {
        struct muster_frame frame = {.kind = MUSTER_FRAME_EAGER,
                                     .key = {.generation = guest->rig->generation,
                                             .sequence = 1 + (uint64_t)(rand_r(&guest->seed) % 2)},
                                     .length = (uint32_t)rand_r(&guest->seed) % 600};
        frame.total = frame.length;
        muster_frame_encode(&frame, bytes + at);
        at += MUSTER_FRAME_SIZE + frame.length;
    }
    guest->shaken = become_member(guest, ssl);
    for (size_t sent = 0; sent < sizeof bytes;) {
        size_t piece = 1 + (size_t)rand_r(&guest->seed) % 1000;
        piece = piece < sizeof bytes - sent ? piece : sizeof bytes - sent;
        if (SSL_write(ssl, bytes + sent, (int)piece) <= 0) {
            break; /* rank 0 has closed the connection */
        }
        sent += piece;
    }
    (void)shutdown(guest->fd, SHUT_WR);
}

/* Rank 0 waits for a message of rank 1, whose role the guest plays. */
static void expect_death(void (*talk)(struct guest *guest, SSL *ssl), unsigned seed,
                         const char *words)
{
    struct guest guest = {.certificate = "member", .talk = talk, .seed = seed};
    struct rig rig;
    char bytes[600];
    struct rig_counter counter = {.left = 1};
    rig_init(&rig, &with_tls, 2);
    guest.rig = &rig;
    guest.fd = connect_to(&rig);
    start_guest(&guest);
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while (muster_fabric_figures(rig.fabrics[0]).links_opened == 0 &&
           muster_clock_ns() < deadline_ns) {
        rig_progress(&rig, 0, 2);
    }
    struct muster_transfer never = rig_receive(&rig, 1, 1, bytes, sizeof bytes);
    rig_post(&rig, 0, &counter, &never);
    muster_status status = rig_wait(&rig, 0, &counter);
    if (words != NULL) {
        assert_int_equal(status, MUSTER_REJOIN);
        if (strstr(counter.reason, words) == NULL) {
            fail_msg("\"%s\" should say \"%s\"", counter.reason, words);
        }
    } else {
        assert_true(status == MUSTER_REJOIN || status == MUSTER_INVALID);
    }
    muster_fabric_withdraw(rig.fabrics[0], rig.generation, 0, 1);
    rig_finish(&rig);
    end_guest(&guest);
    assert_true(guest.shaken);
}

static void an_end_without_goodbye_is_a_death(void **state)
{
    (void)state;
    expect_death(cut, 0,
                 "link to rank 1 (host host-1): it closed the connection without ending TLS");
    expect_death(end_by_rules, 0, "it closed the connection without goodbye");
}

static void plain_bytes_in_the_middle_of_tls_lose_the_link(void **state)
{
    (void)state;
    expect_death(send_plain, 0, "link to rank 1 (host host-1): TLS: ");
}

static void garbage_after_the_handshake_loses_the_link(void **state)
{
    (void)state;
    unsigned seed = (unsigned)muster_clock_ns();
    print_message("seed %u\n", seed);
    for (unsigned i = 0; i < LIVES; i++) {
        expect_death(send_garbage, seed + i, NULL);
    }
}

/* A process of its own ------------------------------------------------------------------------ */

enum { LARGE_BYTES = 64 * 1024 * 1024 };

/* Rank 1 in another process, which sends a large message as long as it lives. */
static void send_large(struct rig *rig)
{
    unsigned char *large = calloc(1, LARGE_BYTES);
    struct rig_counter counter = {.left = 1};
    struct muster_transfer send = rig_send(rig, 0, 1, large, LARGE_BYTES);
    rig_post(rig, 0, &counter, &send);
    muster_status status = rig_wait(rig, 0, &counter);
    (void)status;
    free(large);
}

/* Kills the sender once some of the message has been consumed. */
static void kill_sender(struct muster_transfer *transfer, uint64_t offset_bytes, const void *data,
                        size_t size_bytes)
{
    const struct rig_child *child = transfer->data;
    (void)data;
    (void)size_bytes;
    if (offset_bytes > 0) {
        (void)kill(child->pid, SIGKILL);
    }
}

static void a_member_killed_in_the_middle_of_a_message_is_lost(void **state)
{
    (void)state;
    struct rig rig;
    struct rig_child child = rig_child_start(&with_tls, send_large);
    rig_child_link(&child, &rig, &with_tls);
    struct rig_counter counter = {.left = 1};
    struct muster_transfer receive = rig_receive(&rig, 1, 1, &child, LARGE_BYTES);
    receive.consume = kill_sender;
    rig_post(&rig, 0, &counter, &receive);
    assert_int_equal(rig_wait(&rig, 0, &counter), MUSTER_REJOIN);
    assert_non_null(strstr(counter.reason, "link to rank 1 (host host-0): "));
    rig_child_finish(&child, &rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_killed_in_the_middle_of_a_message_is_lost),
        cmocka_unit_test(a_member_that_computes_is_waited_for),
        cmocka_unit_test(members_with_and_without_tls_refuse_each_other_with_a_reason),
        cmocka_unit_test(a_certificate_of_another_authority_is_refused),
        cmocka_unit_test(a_certificate_without_the_name_is_refused),
        cmocka_unit_test(a_dialler_with_a_wrong_certificate_is_refused),
        cmocka_unit_test(an_acceptor_with_a_wrong_certificate_loses_the_link),
        cmocka_unit_test(plain_garbage_is_refused_at_once),
        cmocka_unit_test(unfinished_handshakes_do_not_keep_members_out),
        cmocka_unit_test(an_end_without_goodbye_is_a_death),
        cmocka_unit_test(plain_bytes_in_the_middle_of_tls_lose_the_link),
        cmocka_unit_test(garbage_after_the_handshake_loses_the_link),
    };
    (void)signal(SIGPIPE, SIG_IGN); /* OpenSSL's sockets raise SIGPIPE; Muster's do not */
    return cmocka_run_group_tests(tests, make_certificates, remove_certificates);
}
