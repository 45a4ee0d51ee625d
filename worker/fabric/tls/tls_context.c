/* The files of TLS: read, checked, and made to what channels are made of. */
#include "worker/base/cleanup.h"
#include "worker/base/log.h"
#include "worker/base/status.h"
#include "worker/fabric/tls/tls_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_BYTES_MAX = 1024 * 1024, CHAIN_MAX = 16, AUTHORITIES_MAX = 1024, NAME_MAX_BYTES = 253 };

/* The smaller AES first: it is good enough for this purpose, and takes less time. */
static const char ciphers[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

/* AES-GCM is not to be used for more than 2^24.5 records with one key (RFC 8446, section 5.5). */
static const uint64_t records_a_key = UINT64_C(1) << 23;

/* A file, and what it is: "TLS key (MUSTER_TLS_KEY) /etc/job/tls.key". */
struct source {
    const char *what, *path;
};

static muster_status wrong(struct source source, const char *reason)
{
    return muster_error_set(MUSTER_INVALID, "TLS %s %s: %s", source.what, source.path, reason);
}

/* What OpenSSL says of its last failure. */
static const char *last_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason != NULL ? reason : "no memory";
}

/* Reading ------------------------------------------------------------------------------------ */

static muster_status read_bytes(struct source source, int fd, BIO *into)
{
    char bytes[4096];
    size_t total = 0;
    ssize_t got = 0;
    while ((got = read(fd, bytes, sizeof bytes)) > 0) {
        total += (size_t)got;
        if (total > FILE_BYTES_MAX) {
            return wrong(source, "longer than 1 MiB");
        }
        if (BIO_write(into, bytes, (int)got) != (int)got) {
            return wrong(source, "no memory");
        }
    }
    OPENSSL_cleanse(bytes, sizeof bytes); /* it may be the key */
    return got < 0 ? wrong(source, strerror(errno)) : MUSTER_OK;
}

/* The whole file in memory. */
static muster_status open_source(struct source source, BIO **ret_bytes)
{
    AUTO_CLOSE int fd = open(source.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return wrong(source, strerror(errno));
    }
    BIO *bytes = BIO_new(BIO_s_secmem());
    if (bytes == NULL) {
        return wrong(source, "no memory");
    }
    muster_status status = read_bytes(source, fd, bytes);
    if (status != MUSTER_OK) {
        BIO_free(bytes);
        return status;
    }
    *ret_bytes = bytes;
    return MUSTER_OK;
}

static void free_certificates(STACK_OF(X509) * certificates)
{
    sk_X509_pop_free(certificates, X509_free);
}

/* All certificates of the file, one at least. */
static muster_status read_certificates(struct source source, int most,
                                       STACK_OF(X509) * *ret_certificates)
{
    BIO *bytes = NULL;
    TRY(open_source(source, &bytes));
    STACK_OF(X509) *certificates = sk_X509_new_null();
    X509 *certificate = NULL;
    while (certificates != NULL && sk_X509_num(certificates) <= most &&
           (certificate = PEM_read_bio_X509(bytes, NULL, NULL, NULL)) != NULL) {
        if (sk_X509_push(certificates, certificate) == 0) {
            X509_free(certificate);
        }
    }
    BIO_free(bytes);
    int count = certificates == NULL ? 0 : sk_X509_num(certificates);
    bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    if (count > 0 && count <= most && ended) {
        ERR_clear_error();
        *ret_certificates = certificates;
        return MUSTER_OK;
    }
    muster_status status = count > most ? wrong(source, "too many certificates")
                           : ended      ? wrong(source, "no certificate in PEM form")
                                        : wrong(source, last_reason());
    ERR_clear_error();
    free_certificates(certificates);
    return status;
}

/* Nobody is asked for a pass phrase. */
static int refuse_phrase(char *phrase, int size, int writing, void *asked)
{
    (void)writing;
    if (size > 0) {
        phrase[0] = '\0';
    }
    *(bool *)asked = true;
    return -1;
}

static muster_status read_key(struct source source, EVP_PKEY **ret_key)
{
    BIO *bytes = NULL;
    bool asked = false;
    TRY(open_source(source, &bytes));
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bytes, NULL, refuse_phrase, &asked);
    BIO_free(bytes);
    if (key == NULL) {
        muster_status status = wrong(source, asked ? "it is encrypted, and a worker asks nobody "
                                                     "for the pass phrase"
                                                   : "no private key in PEM form");
        ERR_clear_error();
        return status;
    }
    *ret_key = key;
    return MUSTER_OK;
}

/* Checking ----------------------------------------------------------------------------------- */

/* "expired on Nov 21 18:00:00 2025 GMT" */
static muster_status wrong_time(struct source source, const char *what, const ASN1_TIME *time)
{
    char text[64] = "";
    char reason[128];
    BIO *printed = BIO_new(BIO_s_mem());
    if (printed != NULL && ASN1_TIME_print(printed, time) == 1) {
        int length = BIO_read(printed, text, (int)sizeof text - 1);
        text[length > 0 ? length : 0] = '\0';
    }
    BIO_free(printed);
    (void)snprintf(reason, sizeof reason, "%s %s", what, text);
    return wrong(source, reason);
}

static muster_status wrong_chain(struct source source, const X509_STORE_CTX *check,
                                 const char *authority)
{
    int error = X509_STORE_CTX_get_error(check);
    X509 *at = X509_STORE_CTX_get_current_cert(check);
    char reason[512];
    if (error == X509_V_ERR_CERT_HAS_EXPIRED && at != NULL) {
        return wrong_time(source, "expired on", X509_get0_notAfter(at));
    }
    if (error == X509_V_ERR_CERT_NOT_YET_VALID && at != NULL) {
        return wrong_time(source, "not valid before", X509_get0_notBefore(at));
    }
    (void)snprintf(reason, sizeof reason, "not good under the authority %.300s: %s", authority,
                   X509_verify_cert_error_string(error));
    return wrong(source, reason);
}

/* The others will look at it like this: better to be told now. */
static muster_status check_chain(const struct muster_tls_files *files, SSL_CTX *context,
                                 STACK_OF(X509) * chain)
{
    struct source source = {"certificate (MUSTER_TLS_CERTIFICATE)", files->certificate};
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    if (check == NULL ||
        X509_STORE_CTX_init(check, SSL_CTX_get_cert_store(context), sk_X509_value(chain, 0),
                            chain) != 1 ||
        X509_VERIFY_PARAM_set1(X509_STORE_CTX_get0_param(check), SSL_CTX_get0_param(context)) !=
            1) {
        X509_STORE_CTX_free(check);
        return wrong(source, "no memory");
    }
    muster_status status =
        X509_verify_cert(check) == 1 ? MUSTER_OK : wrong_chain(source, check, files->authority);
    X509_STORE_CTX_free(check);
    return status;
}

/* A member dials some peers and is dialled by others. */
static muster_status check_purposes(const struct muster_tls_files *files, X509 *certificate)
{
    if (X509_check_purpose(certificate, X509_PURPOSE_SSL_SERVER, 0) == 1 &&
        X509_check_purpose(certificate, X509_PURPOSE_SSL_CLIENT, 0) == 1) {
        return MUSTER_OK;
    }
    return wrong((struct source){"certificate (MUSTER_TLS_CERTIFICATE)", files->certificate},
                 "its usages do not allow both ends of a connection: it needs serverAuth and "
                 "clientAuth, or no extended key usage");
}

static muster_status check_name(const char *name)
{
    size_t length = strlen(name);
    bool good = length > 0 && length <= NAME_MAX_BYTES;
    for (size_t i = 0; good && i < length; i++) {
        good = strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_",
                      name[i]) != NULL;
    }
    return good
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID,
                                  "TLS name (MUSTER_TLS_NAME) \"%.80s\": must be a DNS name", name);
}

/* The context -------------------------------------------------------------------------------- */

static muster_status trust(SSL_CTX *context, const struct muster_tls_files *files)
{
    struct source source = {"authority (MUSTER_TLS_AUTHORITY)", files->authority};
    STACK_OF(X509) *authorities = NULL;
    TRY(read_certificates(source, AUTHORITIES_MAX, &authorities));
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    bool added = true;
    for (int i = 0; added && i < sk_X509_num(authorities); i++) {
        added = X509_STORE_add_cert(store, sk_X509_value(authorities, i)) == 1;
    }
    free_certificates(authorities);
    /* An authority that is itself signed by another one needs nobody above it. */
    (void)X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);
    return added ? MUSTER_OK : wrong(source, last_reason());
}

static muster_status show(SSL_CTX *context, const struct muster_tls_files *files)
{
    struct source source = {"certificate (MUSTER_TLS_CERTIFICATE)", files->certificate};
    STACK_OF(X509) *chain = NULL;
    TRY(read_certificates(source, CHAIN_MAX, &chain));
    muster_status status = check_purposes(files, sk_X509_value(chain, 0));
    if (status == MUSTER_OK) {
        status = check_chain(files, context, chain);
    }
    bool used =
        status == MUSTER_OK && SSL_CTX_use_certificate(context, sk_X509_value(chain, 0)) == 1;
    for (int i = 1; used && i < sk_X509_num(chain); i++) {
        used = SSL_CTX_add1_chain_cert(context, sk_X509_value(chain, i)) == 1;
    }
    free_certificates(chain);
    return status != MUSTER_OK ? status : used ? MUSTER_OK : wrong(source, last_reason());
}

static muster_status prove(SSL_CTX *context, const struct muster_tls_files *files)
{
    struct source source = {"key (MUSTER_TLS_KEY)", files->key};
    char reason[512];
    EVP_PKEY *key = NULL;
    TRY(read_key(source, &key));
    bool matches = X509_check_private_key(SSL_CTX_get0_certificate(context), key) == 1;
    bool used = matches && SSL_CTX_use_PrivateKey(context, key) == 1;
    EVP_PKEY_free(key);
    if (used) {
        return MUSTER_OK;
    }
    (void)snprintf(reason, sizeof reason, "it does not belong to the certificate %.300s",
                   files->certificate);
    return wrong(source, matches ? last_reason() : reason);
}

/* TLS 1.3 has no renegotiation; sessions are not resumed, so nothing is sent before the handshake
 * is over, and there are no keys of earlier connections to keep. */
static muster_status set_rules(SSL_CTX *context, const char *name)
{
    X509_VERIFY_PARAM *verify = SSL_CTX_get0_param(context);
    (void)SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_mode(context, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    X509_VERIFY_PARAM_set_hostflags(verify, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
                                                X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    bool good = SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                SSL_CTX_set_num_tickets(context, 0) == 1 &&
                SSL_CTX_set_max_early_data(context, 0) == 1 &&
                SSL_CTX_set_ciphersuites(context, ciphers) == 1 &&
                (name == NULL || X509_VERIFY_PARAM_set1_host(verify, name, 0) == 1);
    return good ? MUSTER_OK : muster_error_set(MUSTER_FATAL, "TLS: %s", last_reason());
}

static muster_status check_all_are_there(const struct muster_tls_files *files)
{
    const char *missing = files->certificate == NULL ? "certificate (MUSTER_TLS_CERTIFICATE)"
                          : files->key == NULL       ? "key (MUSTER_TLS_KEY)"
                          : files->authority == NULL ? "authority (MUSTER_TLS_AUTHORITY)"
                                                     : NULL;
    return missing == NULL ? MUSTER_OK
                           : muster_error_set(MUSTER_INVALID,
                                              "TLS %s is not given: certificate, key and authority "
                                              "are given all three or none",
                                              missing);
}

static void stamp(const struct muster_tls *tls, struct tls_stamp ret_stamps[TLS_FILES])
{
    memset(ret_stamps, 0, TLS_FILES * sizeof ret_stamps[0]);
    for (int i = 0; i < TLS_FILES; i++) {
        struct stat file;
        if (stat(tls->names[i], &file) == 0) { /* else reading says so */
            ret_stamps[i].device = file.st_dev;
            ret_stamps[i].inode = file.st_ino;
            ret_stamps[i].changed = file.st_mtim;
        }
    }
}

/* For muster_tls_renew(): stamps first, so that what changes meanwhile is noticed later. */
static muster_status remember(struct muster_tls *tls, const struct muster_tls_files *files)
{
    const char *const names[] = {files->certificate, files->key, files->authority, files->name};
    for (int i = 0; i <= TLS_FILES; i++) {
        tls->names[i] = names[i] != NULL ? strdup(names[i]) : NULL;
        if (names[i] != NULL && tls->names[i] == NULL) {
            return muster_error_set(MUSTER_FATAL, "out of memory");
        }
    }
    stamp(tls, tls->stamps);
    return MUSTER_OK;
}

static muster_status fill(struct muster_tls *tls, const struct muster_tls_files *files)
{
    TRY(check_all_are_there(files));
    TRY(remember(tls, files));
    tls->context = SSL_CTX_new(TLS_method());
    if (tls->context == NULL) {
        return muster_error_set(MUSTER_FATAL, "TLS: %s", last_reason());
    }
    if (files->name != NULL) {
        TRY(check_name(files->name));
    }
    TRY(set_rules(tls->context, files->name));
    TRY(trust(tls->context, files));
    TRY(show(tls->context, files));
    TRY(prove(tls->context, files));
    return muster_tls_make_socket_method(&tls->socket);
}

muster_status muster_tls_create(const struct muster_tls_files *files, struct muster_tls **ret_tls)
{
    struct muster_tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    tls->holders = 1;
    tls->records_a_key = records_a_key;
    ERR_clear_error();
    muster_status status = fill(tls, files);
    ERR_clear_error();
    if (status != MUSTER_OK) {
        muster_tls_release(tls);
        return status;
    }
    *ret_tls = tls;
    return MUSTER_OK;
}

void muster_tls_renew(struct muster_tls **tls)
{
    struct tls_stamp stamps[TLS_FILES];
    struct muster_tls *renewed = NULL;
    if (*tls == NULL) {
        return;
    }
    stamp(*tls, stamps);
    if (memcmp(stamps, (*tls)->stamps, sizeof stamps) == 0) {
        return;
    }
    const struct muster_tls_files files = {.certificate = (*tls)->names[0],
                                           .key = (*tls)->names[1],
                                           .authority = (*tls)->names[2],
                                           .name = (*tls)->names[3]};
    if (muster_tls_create(&files, &renewed) != MUSTER_OK) {
        muster_log(MUSTER_LOG_WARN, "what TLS had before stays in use: %s", muster_last_error());
        memcpy((*tls)->stamps, stamps, sizeof stamps);
        return;
    }
    muster_log(MUSTER_LOG_INFO, "new files of TLS are in use: %s", files.certificate);
    muster_tls_release(*tls);
    *tls = renewed;
}

void muster_tls_hold(struct muster_tls *tls)
{
    if (tls != NULL) {
        tls->holders++;
    }
}

void muster_tls_release(struct muster_tls *tls)
{
    if (tls == NULL || --tls->holders > 0) {
        return;
    }
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->socket);
    for (int i = 0; i <= TLS_FILES; i++) {
        free(tls->names[i]);
    }
    free(tls->spare);
    free(tls);
}
