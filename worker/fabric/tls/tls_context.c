/* The files of TLS: read and checked; and the OpenSSL context that all channels are made from. */
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

enum {
    FILE_BYTES_MAX = 1024 * 1024,
    CHAIN_MAX = 16, /* certificates */
    AUTHORITIES_MAX = 1024,
    NAME_MAX_BYTES = 253, /* of a DNS name */
};

/* AES-128 comes first: it is strong enough here, and faster than AES-256. */
static const char ciphers[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

/* One key of AES-GCM must not encrypt more than 2^24.5 records (RFC 8446, section 5.5). */
static const uint64_t records_per_key = UINT64_C(1) << 23;

/* A file and its label in error texts: "TLS key (MUSTER_TLS_KEY) /etc/job/tls.key". */
struct tls_file {
    const char *label, *path;
};

static muster_status file_error(struct tls_file file, const char *reason)
{
    return muster_error_set(MUSTER_INVALID, "TLS %s %s: %s", file.label, file.path, reason);
}

/* The reason of OpenSSL's last failure. */
static const char *openssl_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason != NULL ? reason : "no memory";
}

/* Reading ------------------------------------------------------------------------------------ */

static muster_status read_bytes(struct tls_file file, int fd, BIO *into)
{
    char bytes[4096];
    size_t total = 0;
    ssize_t got = 0;
    while ((got = read(fd, bytes, sizeof bytes)) > 0) {
        total += (size_t)got;
        if (total > FILE_BYTES_MAX) {
            return file_error(file, "longer than 1 MiB");
        }
        if (BIO_write(into, bytes, (int)got) != (int)got) {
            return file_error(file, "no memory");
        }
    }
    OPENSSL_cleanse(bytes, sizeof bytes); /* the file may be the key */
    return got < 0 ? file_error(file, strerror(errno)) : MUSTER_OK;
}

/* Reads the whole file into secure memory. */
static muster_status open_file(struct tls_file file, BIO **ret_bytes)
{
    AUTO_CLOSE int fd = open(file.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return file_error(file, strerror(errno));
    }
    BIO *bytes = BIO_new(BIO_s_secmem());
    if (bytes == NULL) {
        return file_error(file, "no memory");
    }
    muster_status status = read_bytes(file, fd, bytes);
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

/* Reads all certificates of the file: at least one, at most `most`. */
static muster_status read_certificates(struct tls_file file, int most,
                                       STACK_OF(X509) * *ret_certificates)
{
    BIO *bytes = NULL;
    TRY(open_file(file, &bytes));
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
    muster_status status = count > most ? file_error(file, "too many certificates")
                           : ended      ? file_error(file, "no certificate in PEM form")
                                        : file_error(file, openssl_reason());
    ERR_clear_error();
    free_certificates(certificates);
    return status;
}

/* OpenSSL calls this for an encrypted key. A worker cannot prompt for the pass phrase: this only
 * records that the key needs one. */
static int refuse_phrase(char *phrase, int size, int writing, void *needs_phrase)
{
    (void)writing;
    if (size > 0) {
        phrase[0] = '\0';
    }
    *(bool *)needs_phrase = true;
    return -1;
}

static muster_status read_key(struct tls_file file, EVP_PKEY **ret_key)
{
    BIO *bytes = NULL;
    bool needs_phrase = false;
    TRY(open_file(file, &bytes));
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bytes, NULL, refuse_phrase, &needs_phrase);
    BIO_free(bytes);
    if (key == NULL) {
        muster_status status =
            file_error(file, needs_phrase ? "it is encrypted, and a worker cannot prompt "
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
static muster_status time_error(struct tls_file file, const char *what, const ASN1_TIME *time)
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
    return file_error(file, reason);
}

static muster_status chain_error(struct tls_file file, const X509_STORE_CTX *check,
                                 const char *authority)
{
    int error = X509_STORE_CTX_get_error(check);
    X509 *at = X509_STORE_CTX_get_current_cert(check);
    char reason[512];
    if (error == X509_V_ERR_CERT_HAS_EXPIRED && at != NULL) {
        return time_error(file, "expired on", X509_get0_notAfter(at));
    }
    if (error == X509_V_ERR_CERT_NOT_YET_VALID && at != NULL) {
        return time_error(file, "not valid before", X509_get0_notBefore(at));
    }
    (void)snprintf(reason, sizeof reason, "not good under the authority %.300s: %s", authority,
                   X509_verify_cert_error_string(error));
    return file_error(file, reason);
}

/* Verifies this member's chain as the peers will, so that a mistake is reported at the start. */
static muster_status check_chain(const struct muster_tls_files *files, SSL_CTX *context,
                                 STACK_OF(X509) * chain)
{
    struct tls_file file = {"certificate (MUSTER_TLS_CERTIFICATE)", files->certificate};
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    if (check == NULL ||
        X509_STORE_CTX_init(check, SSL_CTX_get_cert_store(context), sk_X509_value(chain, 0),
                            chain) != 1 ||
        X509_VERIFY_PARAM_set1(X509_STORE_CTX_get0_param(check), SSL_CTX_get0_param(context)) !=
            1) {
        X509_STORE_CTX_free(check);
        return file_error(file, "no memory");
    }
    muster_status status =
        X509_verify_cert(check) == 1 ? MUSTER_OK : chain_error(file, check, files->authority);
    X509_STORE_CTX_free(check);
    return status;
}

/* A member is the client of some connections and the server of others. */
static muster_status check_purposes(const struct muster_tls_files *files, X509 *certificate)
{
    if (X509_check_purpose(certificate, X509_PURPOSE_SSL_SERVER, 0) == 1 &&
        X509_check_purpose(certificate, X509_PURPOSE_SSL_CLIENT, 0) == 1) {
        return MUSTER_OK;
    }
    return file_error((struct tls_file){"certificate (MUSTER_TLS_CERTIFICATE)", files->certificate},
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

static muster_status use_authorities(SSL_CTX *context, const struct muster_tls_files *files)
{
    struct tls_file file = {"authority (MUSTER_TLS_AUTHORITY)", files->authority};
    STACK_OF(X509) *authorities = NULL;
    TRY(read_certificates(file, AUTHORITIES_MAX, &authorities));
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    bool added = true;
    for (int i = 0; added && i < sk_X509_num(authorities); i++) {
        added = X509_STORE_add_cert(store, sk_X509_value(authorities, i)) == 1;
    }
    free_certificates(authorities);
    /* An intermediate authority is trusted by itself, without the one that has signed it. */
    (void)X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);
    return added ? MUSTER_OK : file_error(file, openssl_reason());
}

static muster_status use_certificate(SSL_CTX *context, const struct muster_tls_files *files)
{
    struct tls_file file = {"certificate (MUSTER_TLS_CERTIFICATE)", files->certificate};
    STACK_OF(X509) *chain = NULL;
    TRY(read_certificates(file, CHAIN_MAX, &chain));
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
    return status != MUSTER_OK ? status : used ? MUSTER_OK : file_error(file, openssl_reason());
}

static muster_status use_key(SSL_CTX *context, const struct muster_tls_files *files)
{
    struct tls_file file = {"key (MUSTER_TLS_KEY)", files->key};
    char reason[512];
    EVP_PKEY *key = NULL;
    TRY(read_key(file, &key));
    bool matches = X509_check_private_key(SSL_CTX_get0_certificate(context), key) == 1;
    bool used = matches && SSL_CTX_use_PrivateKey(context, key) == 1;
    EVP_PKEY_free(key);
    if (used) {
        return MUSTER_OK;
    }
    (void)snprintf(reason, sizeof reason, "it does not belong to the certificate %.300s",
                   files->certificate);
    return file_error(file, matches ? openssl_reason() : reason);
}

/* TLS 1.3 has no renegotiation. Sessions are not resumed, so there is no early data, and no key
 * outlives its connection. */
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
    return good ? MUSTER_OK : muster_error_set(MUSTER_FATAL, "TLS: %s", openssl_reason());
}

static muster_status check_complete(const struct muster_tls_files *files)
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

static void read_stamps(const struct muster_tls *tls, struct muster_tls_stamp ret_stamps[TLS_FILES])
{
    memset(ret_stamps, 0, TLS_FILES * sizeof ret_stamps[0]);
    for (int i = 0; i < TLS_FILES; i++) {
        struct stat file;
        if (stat(tls->names[i], &file) == 0) { /* otherwise reading reports the error */
            ret_stamps[i].device = file.st_dev;
            ret_stamps[i].inode = file.st_ino;
            ret_stamps[i].changed = file.st_mtim;
        }
    }
}

/* For muster_tls_reload(). The stamps are read before the files: a change in between is noticed at
 * the next reload. */
static muster_status copy_names(struct muster_tls *tls, const struct muster_tls_files *files)
{
    const char *const names[] = {files->certificate, files->key, files->authority, files->name};
    for (int i = 0; i <= TLS_FILES; i++) {
        tls->names[i] = names[i] != NULL ? strdup(names[i]) : NULL;
        if (names[i] != NULL && tls->names[i] == NULL) {
            return muster_error_set(MUSTER_FATAL, "out of memory");
        }
    }
    read_stamps(tls, tls->stamps);
    return MUSTER_OK;
}

static muster_status configure(struct muster_tls *tls, const struct muster_tls_files *files)
{
    TRY(check_complete(files));
    TRY(copy_names(tls, files));
    tls->context = SSL_CTX_new(TLS_method());
    if (tls->context == NULL) {
        return muster_error_set(MUSTER_FATAL, "TLS: %s", openssl_reason());
    }
    if (files->name != NULL) {
        TRY(check_name(files->name));
    }
    TRY(set_rules(tls->context, files->name));
    TRY(use_authorities(tls->context, files));
    TRY(use_certificate(tls->context, files));
    TRY(use_key(tls->context, files));
    return muster_tls_make_socket_method(&tls->socket);
}

muster_status muster_tls_create(const struct muster_tls_files *files, struct muster_tls **ret_tls)
{
    struct muster_tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    tls->holders = 1;
    tls->records_per_key = records_per_key;
    ERR_clear_error();
    muster_status status = configure(tls, files);
    ERR_clear_error();
    if (status != MUSTER_OK) {
        muster_tls_release(tls);
        return status;
    }
    *ret_tls = tls;
    return MUSTER_OK;
}

void muster_tls_reload(struct muster_tls **tls)
{
    struct muster_tls_stamp stamps[TLS_FILES];
    struct muster_tls *renewed = NULL;
    if (*tls == NULL) {
        return;
    }
    read_stamps(*tls, stamps);
    if (memcmp(stamps, (*tls)->stamps, sizeof stamps) == 0) {
        return;
    }
    const struct muster_tls_files files = {.certificate = (*tls)->names[0],
                                           .key = (*tls)->names[1],
                                           .authority = (*tls)->names[2],
                                           .name = (*tls)->names[3]};
    if (muster_tls_create(&files, &renewed) != MUSTER_OK) {
        muster_log(MUSTER_LOG_WARN, "the previous TLS files stay in use: %s", muster_last_error());
        memcpy((*tls)->stamps, stamps, sizeof stamps); /* so that this is logged once */
        return;
    }
    muster_log(MUSTER_LOG_INFO, "new TLS files are in use: %s", files.certificate);
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
