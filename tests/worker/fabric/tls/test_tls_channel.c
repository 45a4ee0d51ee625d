/* TLS on one connection, and its files: the error names each wrong one. */
#include "tests/conformance/rig.h"
#include "tests/support/certificates.h"
#include "worker/fabric/tls/tls_parts.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct certificates certificates;

static int make_certificates(void **state)
{
    (void)state;
    certificates_init(&certificates);
    certificates_make(&certificates, (struct certificate_wish){.name = "authority"});
    certificates_make(&certificates, (struct certificate_wish){.name = "stranger"});
    certificates_make(&certificates, (struct certificate_wish){
                                         .name = "member", .issuer = "authority", .dns = "job.x"});
    certificates_make(&certificates, (struct certificate_wish){.name = "expired",
                                                               .issuer = "authority",
                                                               .from_s = -7200,
                                                               .till_s = -60});
    certificates_make(&certificates,
                      (struct certificate_wish){
                          .name = "early", .issuer = "authority", .from_s = 3600, .till_s = 7200});
    certificates_make(
        &certificates,
        (struct certificate_wish){.name = "server", .issuer = "authority", .usages = "serverAuth"});
    certificates_make(&certificates, (struct certificate_wish){.name = "both",
                                                               .issuer = "authority",
                                                               .usages = "serverAuth,clientAuth"});
    return 0;
}

static int remove_certificates(void **state)
{
    (void)state;
    certificates_finish(&certificates);
    return 0;
}

/* Files -------------------------------------------------------------------------------------- */

static void expect_wrong(struct muster_tls_files files, const char *file, const char *reason)
{
    struct muster_tls *tls = NULL;
    assert_int_equal(muster_tls_create(&files, &tls), MUSTER_INVALID);
    assert_null(tls);
    const char *text = muster_last_error();
    if (strstr(text, file) == NULL || strstr(text, reason) == NULL || strchr(text, '\n') != NULL) {
        fail_msg("\"%s\" should name %s and say \"%s\"", text, file, reason);
    }
}

static struct muster_tls_files good_files(void)
{
    return certificates_files(&certificates, "member", "authority");
}

static const char *write_file(const char *name, const char *text, size_t size)
{
    const char *path = certificates_path(&certificates, name, "pem");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

static void a_file_that_is_missing_or_not_pem_is_named(void **state)
{
    (void)state;
    static char large[1024 * 1024 + 1];
    const char *garbage = write_file("garbage", "no certificate", 14);
    const char *empty = write_file("empty", "", 0);
    const char *too_large = write_file("large", large, sizeof large);
    const char *const missing = "/nonexistent/x.pem";
    struct muster_tls_files files = good_files();
    files.certificate = missing;
    expect_wrong(files, "TLS certificate (MUSTER_TLS_CERTIFICATE) /nonexistent/x.pem",
                 "No such file or directory");
    files = good_files();
    files.key = missing;
    expect_wrong(files, "TLS key (MUSTER_TLS_KEY) /nonexistent/x.pem", "No such file or directory");
    files = good_files();
    files.authority = missing;
    expect_wrong(files, "TLS authority (MUSTER_TLS_AUTHORITY) /nonexistent/x.pem",
                 "No such file or directory");
    files.authority = garbage;
    expect_wrong(files, garbage, "no certificate in PEM form");
    files.authority = too_large;
    expect_wrong(files, too_large, "longer than 1 MiB");
    files.authority = "/";
    expect_wrong(files, "TLS authority (MUSTER_TLS_AUTHORITY) /", "Is a directory");
    files = good_files();
    files.certificate = empty;
    expect_wrong(files, empty, "no certificate in PEM form");
    files = good_files();
    files.key = files.certificate;
    expect_wrong(files, files.key, "no private key in PEM form");
}

static void one_file_needs_the_others(void **state)
{
    (void)state;
    expect_wrong((struct muster_tls_files){.name = "job.x"},
                 "TLS certificate (MUSTER_TLS_CERTIFICATE)", "all three or none");
    struct muster_tls_files files = good_files();
    files.authority = NULL;
    expect_wrong(files, "TLS authority (MUSTER_TLS_AUTHORITY)", "all three or none");
    files.key = NULL;
    expect_wrong(files, "TLS key (MUSTER_TLS_KEY)", "all three or none");
}

static void a_file_that_may_not_be_read_is_named(void **state)
{
    (void)state;
    enum { NOBODY = 65534 };
    bool root = geteuid() == 0; /* root may read everything */
    struct muster_tls_files files = good_files();
    assert_int_equal(chmod(certificates.folder, 0), 0);
    assert_int_equal(root ? seteuid(NOBODY) : 0, 0);
    expect_wrong(files, files.authority, "Permission denied");
    assert_int_equal(root ? seteuid(0) : 0, 0);
    assert_int_equal(chmod(certificates.folder, S_IRWXU), 0);
}

static void a_key_with_a_pass_phrase_is_refused_without_asking(void **state)
{
    (void)state;
    char phrase[] = "x";
    const char *path = certificates_path(&certificates, "encrypted", "key");
    FILE *file = fopen(path, "w");
    EVP_PKEY *key = EVP_EC_gen("P-256");
    assert_non_null(file);
    assert_int_equal(PEM_write_PKCS8PrivateKey(file, key, EVP_aes_128_cbc(), phrase, 1, NULL, NULL),
                     1);
    EVP_PKEY_free(key);
    assert_int_equal(fclose(file), 0);
    struct muster_tls_files files = good_files();
    files.key = path;
    expect_wrong(files, path, "it is encrypted");
}

static void a_certificate_that_peers_would_refuse_is_refused_at_once(void **state)
{
    (void)state;
    struct muster_tls_files files = good_files();
    files.key = certificates_path(&certificates, "both", "key");
    expect_wrong(files, files.key, "it does not belong to the certificate /tmp/");
    expect_wrong(certificates_files(&certificates, "expired", "authority"),
                 "expired.pem: expired on", " GMT");
    expect_wrong(certificates_files(&certificates, "early", "authority"),
                 "early.pem: not valid before", " GMT");
    expect_wrong(certificates_files(&certificates, "member", "stranger"), "member.pem",
                 "not good under the authority");
    expect_wrong(certificates_files(&certificates, "server", "authority"), "server.pem",
                 "serverAuth and clientAuth");
    files = good_files();
    files.name = "other.x";
    expect_wrong(files, "member.pem", "ostname mismatch");
    files.name = "*";
    expect_wrong(files, "TLS name (MUSTER_TLS_NAME) \"*\"", "must be a DNS name");
}

static void correct_files_are_accepted(void **state)
{
    (void)state;
    struct muster_tls *tls = NULL;
    struct muster_tls_files files[] = {good_files(), good_files(),
                                       certificates_files(&certificates, "both", "authority"),
                                       certificates_files(&certificates, "stranger", "stranger")};
    files[1].name = "job.x";
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (muster_tls_create(&files[i], &tls) != MUSTER_OK) {
            fail_msg("%s", muster_last_error());
        }
        muster_tls_release(tls);
    }
}

static void changed_files_are_loaded_unless_they_are_wrong(void **state)
{
    (void)state;
    struct certificate_wish wish = {.name = "renewed", .issuer = "authority"};
    certificates_make(&certificates, wish);
    struct muster_tls_files files = certificates_files(&certificates, "renewed", "authority");
    struct muster_tls *tls = NULL;
    assert_int_equal(muster_tls_create(&files, &tls), MUSTER_OK);
    const struct muster_tls *first = tls;
    muster_tls_reload(&tls);
    assert_ptr_equal(tls, first);
    assert_int_equal(rename(files.key, certificates_path(&certificates, "moved", "key")), 0);
    muster_tls_reload(&tls);
    assert_ptr_equal(tls, first);
    certificates_make(&certificates, wish);
    muster_tls_hold(tls);
    muster_tls_reload(&tls);
    assert_ptr_not_equal(tls, first);
    muster_tls_release(tls);
    tls = NULL;
    muster_tls_reload(&tls);
    assert_null(tls);
    muster_tls_release((struct muster_tls *)first);
}

/* Channels ----------------------------------------------------------------------------------- */

struct pair {
    int fds[2];
    struct muster_tls *tls;
    struct muster_tls_channel *channels[2];
};

static void open_pair(struct pair *pair)
{
    struct muster_tls_files files = good_files();
    assert_int_equal(muster_tls_create(&files, &pair->tls), MUSTER_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair->fds), 0);
    bool done[2] = {false, false};
    for (int i = 0; i < 2; i++) {
        pair->channels[i] = muster_tls_channel_create(pair->tls, pair->fds[i], i == 0);
        assert_non_null(pair->channels[i]);
    }
    for (int i = 0; i < 20 && !(done[0] && done[1]); i++) {
        muster_status status = muster_tls_handshake(pair->channels[i % 2]);
        assert_int_not_equal(status, MUSTER_INVALID);
        done[i % 2] = status == MUSTER_OK;
    }
    assert_true(done[0] && done[1]);
}

static void close_pair(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        muster_tls_channel_destroy(pair->channels[i]);
        close(pair->fds[i]);
    }
    muster_tls_release(pair->tls);
}

/* Sends and receives in parts of random sizes, while the socket is full most of the time. */
static void carry(struct pair *pair, int from, size_t size, unsigned *seed)
{
    unsigned char *out = malloc(size);
    unsigned char *in = calloc(1, size);
    size_t sent = 0;
    size_t got = 0;
    assert_non_null(out);
    assert_non_null(in);
    rig_fill(out, size, *seed);
    while (got < size) {
        struct iovec parts[8];
        size_t at = sent;
        for (int i = 0; i < 8; i++) {
            size_t piece = (size_t)rand_r(seed) % (rand_r(seed) % 2 ? 50000 : 200);
            piece = piece < size - at ? piece : size - at;
            parts[i] = (struct iovec){.iov_base = out + at, .iov_len = piece};
            at += piece;
        }
        ssize_t moved = muster_tls_send(pair->channels[from], parts, 8);
        assert_true(moved >= 0 || errno == EAGAIN);
        sent += moved > 0 ? (size_t)moved : 0;
        size_t first = (size_t)rand_r(seed) % 20000;
        first = first < size - got ? first : size - got;
        parts[0] = (struct iovec){.iov_base = in + got, .iov_len = first};
        parts[1] = (struct iovec){.iov_base = in + got + first,
                                  .iov_len = size - got - first < 4096 ? size - got - first : 4096};
        moved = muster_tls_receive(pair->channels[1 - from], parts, 2, rand_r(seed) % 3 == 0);
        assert_true(moved >= 0 || errno == EAGAIN);
        got += moved > 0 ? (size_t)moved : 0;
    }
    assert_false(muster_tls_has_backlog(pair->channels[from]));
    assert_memory_equal(in, out, size);
    free(in);
    free(out);
}

static void bytes_arrive_as_they_were_sent(void **state)
{
    (void)state;
    unsigned seed = (unsigned)muster_clock_ns();
    print_message("seed %u\n", seed);
    struct pair pair;
    open_pair(&pair);
    for (int i = 0; i < 6; i++) {
        carry(&pair, i % 2, 1 + (size_t)rand_r(&seed) % 3000000, &seed);
    }
    close_pair(&pair);
}

static void keys_are_updated_while_bytes_flow(void **state)
{
    (void)state;
    unsigned seed = (unsigned)muster_clock_ns();
    print_message("seed %u\n", seed);
    struct pair pair;
    open_pair(&pair);
    pair.tls->records_per_key = 3;
    carry(&pair, 0, 1000000, &seed);
    carry(&pair, 1, 1000000, &seed);
    close_pair(&pair);
}

static ssize_t receive_byte(struct pair *pair, int at, char *ret_byte)
{
    struct iovec part = {.iov_base = ret_byte, .iov_len = 1};
    return muster_tls_receive(pair->channels[at], &part, 1, false);
}

static void send_byte(struct pair *pair, int from)
{
    char byte = 'x';
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    assert_int_equal(muster_tls_send(pair->channels[from], &part, 1), 1);
}

static void a_close_notify_is_told_from_a_closed_socket(void **state)
{
    (void)state;
    char byte = 0;
    struct pair pair;
    open_pair(&pair);
    send_byte(&pair, 0);
    muster_tls_shutdown(pair.channels[0]);
    assert_int_equal(receive_byte(&pair, 1, &byte), 1);
    assert_int_equal(byte, 'x');
    assert_int_equal(receive_byte(&pair, 1, &byte), 0);
    assert_int_equal(receive_byte(&pair, 1, &byte), 0);
    send_byte(&pair, 1);
    assert_int_equal(shutdown(pair.fds[1], SHUT_WR), 0);
    assert_int_equal(receive_byte(&pair, 0, &byte), 1);
    assert_int_equal(receive_byte(&pair, 0, &byte), -1);
    assert_int_equal(errno, EPROTO);
    assert_string_equal(muster_tls_reason(pair.channels[0]),
                        "it closed the connection without ending TLS");
    close_pair(&pair);
}

static void a_changed_byte_breaks_the_connection(void **state)
{
    (void)state;
    char byte = 0;
    char record[64];
    struct pair pair;
    open_pair(&pair);
    send_byte(&pair, 0);
    ssize_t size = read(pair.fds[1], record, sizeof record);
    assert_true(size > 5);
    record[size - 1] = (char)(record[size - 1] ^ 1);
    assert_int_equal(write(pair.fds[0], record, (size_t)size), size);
    assert_int_equal(receive_byte(&pair, 1, &byte), -1);
    assert_int_equal(errno, EPROTO);
    assert_non_null(strstr(muster_tls_reason(pair.channels[1]), "TLS: "));
    assert_true(muster_tls_has_buffered(pair.channels[1]));
    close_pair(&pair);
}

static void a_channel_accepts_no_more_than_its_bound(void **state)
{
    (void)state;
    static unsigned char bytes[4 * TLS_OUT_BYTES];
    struct iovec part = {.iov_base = bytes, .iov_len = sizeof bytes};
    struct pair pair;
    open_pair(&pair);
    ssize_t taken = 0;
    while ((taken = muster_tls_send(pair.channels[0], &part, 1)) > 0) {
    }
    assert_int_equal(taken, -1);
    assert_int_equal(errno, EAGAIN);
    assert_true(muster_tls_has_backlog(pair.channels[0]));
    assert_int_equal(muster_tls_send(pair.channels[0], &part, 1), -1);
    assert_int_equal(errno, EAGAIN);
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_is_missing_or_not_pem_is_named),
        cmocka_unit_test(one_file_needs_the_others),
        cmocka_unit_test(a_file_that_may_not_be_read_is_named),
        cmocka_unit_test(a_key_with_a_pass_phrase_is_refused_without_asking),
        cmocka_unit_test(a_certificate_that_peers_would_refuse_is_refused_at_once),
        cmocka_unit_test(correct_files_are_accepted),
        cmocka_unit_test(changed_files_are_loaded_unless_they_are_wrong),
        cmocka_unit_test(bytes_arrive_as_they_were_sent),
        cmocka_unit_test(keys_are_updated_while_bytes_flow),
        cmocka_unit_test(a_close_notify_is_told_from_a_closed_socket),
        cmocka_unit_test(a_changed_byte_breaks_the_connection),
        cmocka_unit_test(a_channel_accepts_no_more_than_its_bound),
    };
    return cmocka_run_group_tests(tests, make_certificates, remove_certificates);
}
