/* Certificates with GnuTLS, as libmicrohttpd uses it: read, checked, and given to each handshake.
 */
#include "rendezvous/http/https.h"

#include "worker/base/cleanup.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"

#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { CHAIN_MAX = 16, FILE_BYTES_MAX = 1024 * 1024, FILES = 3, KEY_ID_BYTES = 64 };

/* What was read from the files. */
struct https_identity {
    gnutls_x509_crt_t chain[CHAIN_MAX];
    unsigned chain_count;
    gnutls_x509_privkey_t key;
    gnutls_x509_trust_list_t authorities; /* NULL: callers need no certificate */
};

struct https_stamp {
    dev_t device;
    ino_t inode;
    struct timespec changed;
};

struct muster_https {
    struct muster_https_files files;
    struct https_stamp stamps[FILES];
    _Atomic uint64_t http2_only; /* handshakes of clients that speak nothing else */
    pthread_mutex_t mutex;
    struct https_identity identity; /* under the lock */
};

static struct muster_https *only; /* set before libmicrohttpd starts, cleared after it has ended */

static muster_status file_error(const char *what, const char *path, const char *reason)
{
    return muster_error_set(MUSTER_INVALID, "%s %s: %s", what, path, reason);
}

static void finish_identity(struct https_identity *identity)
{
    for (unsigned i = 0; i < identity->chain_count; i++) {
        gnutls_x509_crt_deinit(identity->chain[i]);
    }
    if (identity->key != NULL) {
        gnutls_x509_privkey_deinit(identity->key);
    }
    if (identity->authorities != NULL) {
        gnutls_x509_trust_list_deinit(identity->authorities, 1);
    }
    *identity = (struct https_identity){0};
}

/* Reading ------------------------------------------------------------------------------------- */

static void free_file(gnutls_datum_t *bytes)
{
    if (bytes->data != NULL) {
        gnutls_memset(bytes->data, 0, bytes->size); /* it may be the key */
    }
    gnutls_free(bytes->data);
}

static muster_status load_file(const char *what, const char *path, gnutls_datum_t *ret_bytes)
{
    struct stat file;
    if (stat(path, &file) != 0) {
        return file_error(what, path, strerror(errno));
    }
    if (!S_ISREG(file.st_mode) || file.st_size > FILE_BYTES_MAX) {
        return file_error(what, path, "no file of at most 1 MiB");
    }
    int failed = gnutls_load_file(path, ret_bytes);
    return failed < 0 ? file_error(what, path, strerror(errno)) : MUSTER_OK;
}

static muster_status check_time(const char *path, gnutls_x509_crt_t certificate)
{
    time_t now = time(NULL);
    if (gnutls_x509_crt_get_expiration_time(certificate) <= now) {
        return file_error("certificate", path, "it has expired");
    }
    if (gnutls_x509_crt_get_activation_time(certificate) > now) {
        return file_error("certificate", path, "it is not valid yet");
    }
    return MUSTER_OK;
}

static muster_status load_chain(const char *path, struct https_identity *identity)
{
    gnutls_datum_t bytes = {0};
    TRY(load_file("certificate", path, &bytes));
    unsigned count = CHAIN_MAX;
    int failed = gnutls_x509_crt_list_import(identity->chain, &count, &bytes, GNUTLS_X509_FMT_PEM,
                                             GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED);
    free_file(&bytes);
    if (failed < 0) {
        return file_error("certificate", path, gnutls_strerror(failed));
    }
    identity->chain_count = count;
    return check_time(path, identity->chain[0]);
}

static muster_status load_key(const struct muster_https_files *files,
                              struct https_identity *identity)
{
    unsigned char of_key[KEY_ID_BYTES];
    unsigned char of_certificate[KEY_ID_BYTES];
    size_t key_size = sizeof of_key;
    size_t certificate_size = sizeof of_certificate;
    gnutls_datum_t bytes = {0};
    TRY(load_file("key", files->key, &bytes));
    int failed = gnutls_x509_privkey_init(&identity->key);
    if (failed == 0) { /* no pass phrase: nobody is there to type it */
        failed = gnutls_x509_privkey_import2(identity->key, &bytes, GNUTLS_X509_FMT_PEM, NULL, 0);
    }
    free_file(&bytes);
    if (failed < 0) {
        return file_error("key", files->key, gnutls_strerror(failed));
    }
    if (gnutls_x509_privkey_get_key_id(identity->key, 0, of_key, &key_size) < 0 ||
        gnutls_x509_crt_get_key_id(identity->chain[0], 0, of_certificate, &certificate_size) < 0 ||
        key_size != certificate_size || memcmp(of_key, of_certificate, key_size) != 0) {
        return muster_error_set(MUSTER_INVALID, "key %s: it does not belong to the certificate %s",
                                files->key, files->certificate);
    }
    return MUSTER_OK;
}

static muster_status load_authorities(const char *path, struct https_identity *identity)
{
    gnutls_datum_t bytes = {0};
    TRY(load_file("client authority", path, &bytes));
    int added = gnutls_x509_trust_list_init(&identity->authorities, 0);
    if (added == 0) {
        added = gnutls_x509_trust_list_add_trust_mem(identity->authorities, &bytes, NULL,
                                                     GNUTLS_X509_FMT_PEM, 0, 0);
    }
    free_file(&bytes);
    if (added > 0) {
        return MUSTER_OK;
    }
    return file_error("client authority", path,
                      added < 0 ? gnutls_strerror(added) : "no certificate in PEM form");
}

static muster_status load(const struct muster_https_files *files,
                          struct https_identity *ret_identity)
{
    struct https_identity identity = {0};
    muster_status status = load_chain(files->certificate, &identity);
    if (status == MUSTER_OK) {
        status = load_key(files, &identity);
    }
    if (status == MUSTER_OK && files->client_authority != NULL) {
        status = load_authorities(files->client_authority, &identity);
    }
    if (status != MUSTER_OK) {
        finish_identity(&identity);
        return status;
    }
    *ret_identity = identity;
    return MUSTER_OK;
}

/* A handshake --------------------------------------------------------------------------------- */

static bool verify_chain(gnutls_x509_crt_t *chain, unsigned count)
{
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                     .data = (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT};
    unsigned problems = 0;
    AUTO_LOCK(&only->mutex);
    return only->identity.authorities != NULL &&
           gnutls_x509_trust_list_verify_crt2(only->identity.authorities, chain, count, &purpose, 1,
                                              0, &problems, NULL) == 0 &&
           problems == 0;
}

/* GnuTLS calls this with the certificate of a caller; other than 0 ends the handshake. */
static int verify_caller(gnutls_session_t session)
{
    gnutls_x509_crt_t chain[CHAIN_MAX];
    unsigned sent = 0;
    unsigned count = 0;
    const gnutls_datum_t *certificates = gnutls_certificate_get_peers(session, &sent);
    bool good = certificates != NULL && sent > 0 && sent <= CHAIN_MAX;
    while (good && count < sent) {
        good = gnutls_x509_crt_init(&chain[count]) == 0;
        count += good;
        good = good && gnutls_x509_crt_import(chain[count - 1], &certificates[count - 1],
                                              GNUTLS_X509_FMT_DER) == 0;
    }
    good = good && verify_chain(chain, count);
    while (count > 0) {
        gnutls_x509_crt_deinit(chain[--count]);
    }
    if (!good) {
        muster_log(MUSTER_LOG_INFO,
                   "a caller was refused: its certificate is not of the client "
                   "authority");
    }
    return good ? 0 : GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR;
}

/* Copies, because GnuTLS uses them until the handshake ends, and a reload may come before. */
static int copy_identity(const struct https_identity *identity, gnutls_pcert_st *certificates,
                         gnutls_privkey_t *ret_key)
{
    gnutls_privkey_t key = NULL;
    int failed = gnutls_privkey_init(&key);
    if (failed == 0) {
        failed = gnutls_privkey_import_x509(key, identity->key, GNUTLS_PRIVKEY_IMPORT_COPY);
    }
    unsigned count = 0;
    while (failed == 0 && count < identity->chain_count) {
        failed = gnutls_pcert_import_x509(&certificates[count], identity->chain[count], 0);
        count += failed == 0;
    }
    if (failed == 0) {
        *ret_key = key;
        return 0;
    }
    while (count > 0) {
        gnutls_pcert_deinit(&certificates[--count]);
    }
    if (key != NULL) {
        gnutls_privkey_deinit(key);
    }
    return failed;
}

/* GnuTLS calls this in each handshake, before it writes what it asks of the caller. */
static int give_identity(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                         gnutls_pcert_st **certificates, unsigned *count,
                         gnutls_ocsp_data_st **ocsp, unsigned *ocsp_count, gnutls_privkey_t *key,
                         unsigned *flags)
{
    (void)info;
    gnutls_pcert_st *list = gnutls_calloc(CHAIN_MAX, sizeof *list);
    if (list == NULL) {
        return GNUTLS_E_MEMORY_ERROR;
    }
    AUTO_LOCK(&only->mutex);
    int failed = copy_identity(&only->identity, list, key);
    if (failed != 0) {
        gnutls_free(list);
        return failed;
    }
    if (only->identity.authorities != NULL) {
        gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
        gnutls_session_set_verify_function(session, verify_caller);
    }
    *certificates = list;
    *count = only->identity.chain_count;
    *ocsp = NULL;
    *ocsp_count = 0;
    *flags = GNUTLS_CERT_RETR_DEINIT_ALL;
    return 0;
}

void *muster_https_callback(void)
{
    gnutls_certificate_retrieve_function3 *function = give_identity;
    void *pointer = NULL;
    memcpy(&pointer, &function, sizeof pointer); /* ISO C converts no function to a void pointer */
    return pointer;
}

enum { ALPN_EXTENSION = 16 };

/* What a client says of the protocols that it speaks: a list of names with their lengths. */
static int look_for_http1(void *user, unsigned extension, const unsigned char *data, unsigned size)
{
    static const char name[] = "http/1.";
    bool *ret_other = user;
    if (extension == ALPN_EXTENSION) {
        *ret_other = memmem(data, size, name, sizeof name - 1) == NULL;
    }
    return 0;
}

/* GnuTLS calls this after a client's first message; other than 0 ends the handshake. libmicrohttpd
 * would close it without a word. */
static int check_protocols(gnutls_session_t session, unsigned type, unsigned when,
                           unsigned incoming, const gnutls_datum_t *message)
{
    bool other = false;
    (void)type;
    (void)when;
    if (incoming != 0) {
        (void)gnutls_ext_raw_parse(&other, look_for_http1, message,
                                   GNUTLS_EXT_RAW_FLAG_TLS_CLIENT_HELLO);
    }
    if (!other) {
        return 0;
    }
    (void)atomic_fetch_add(&only->http2_only, 1);
    (void)gnutls_alert_send(session, GNUTLS_AL_FATAL, GNUTLS_A_NO_APPLICATION_PROTOCOL);
    return GNUTLS_E_NO_APPLICATION_PROTOCOL;
}

void muster_https_require_http1(void *session)
{
    gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_CLIENT_HELLO, GNUTLS_HOOK_POST,
                                       check_protocols);
}

uint64_t muster_https_count_http2_only(const struct muster_https *https)
{
    return atomic_load(&https->http2_only);
}

/* Life ---------------------------------------------------------------------------------------- */

static void read_stamps(const struct muster_https_files *files,
                        struct https_stamp ret_stamps[FILES])
{
    const char *const names[FILES] = {files->certificate, files->key, files->client_authority};
    memset(ret_stamps, 0, FILES * sizeof ret_stamps[0]);
    for (int i = 0; i < FILES; i++) {
        struct stat file;
        if (names[i] != NULL && stat(names[i], &file) == 0) {
            ret_stamps[i].device = file.st_dev;
            ret_stamps[i].inode = file.st_ino;
            ret_stamps[i].changed = file.st_mtim;
        }
    }
}

muster_status muster_https_create(const struct muster_https_files *files,
                                  struct muster_https **ret_https)
{
    struct muster_https *https = calloc(1, sizeof *https);
    if (https == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    https->files = *files;
    muster_mutex_init(&https->mutex);
    read_stamps(files, https->stamps);
    muster_status status = load(files, &https->identity);
    if (status != MUSTER_OK) {
        muster_https_destroy(https);
        return status;
    }
    only = https;
    *ret_https = https;
    return MUSTER_OK;
}

void muster_https_destroy(struct muster_https *https)
{
    if (https != NULL) {
        only = only == https ? NULL : only;
        finish_identity(&https->identity);
        (void)pthread_mutex_destroy(&https->mutex);
        free(https);
    }
}

bool muster_https_changed(struct muster_https *https)
{
    struct https_stamp stamps[FILES];
    read_stamps(&https->files, stamps);
    bool changed = memcmp(stamps, https->stamps, sizeof stamps) != 0;
    memcpy(https->stamps, stamps, sizeof stamps);
    return changed;
}

muster_status muster_https_reload(struct muster_https *https)
{
    struct https_identity identity = {0};
    TRY(load(&https->files, &identity));
    muster_mutex_lock(&https->mutex);
    struct https_identity before = https->identity;
    https->identity = identity;
    muster_mutex_unlock(&https->mutex);
    finish_identity(&before);
    return MUSTER_OK;
}
