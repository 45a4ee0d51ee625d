/* Makes authorities, certificates and keys with OpenSSL. */
#include "tests/support/certificates.h"

#include <dirent.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { HOUR_S = 3600 };

void certificates_init(struct certificates *certificates)
{
    memset(certificates, 0, sizeof *certificates);
    (void)snprintf(certificates->folder, sizeof certificates->folder,
                   "/tmp/muster-certificates.XXXXXX");
    assert_non_null(mkdtemp(certificates->folder));
}

void certificates_finish(const struct certificates *certificates)
{
    DIR *folder = opendir(certificates->folder);
    const struct dirent *entry = NULL;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] != '.') {
            assert_int_equal(unlinkat(dirfd(folder), entry->d_name, 0), 0);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    (void)rmdir(certificates->folder);
}

const char *certificates_path(struct certificates *certificates, const char *name, const char *kind)
{
    char path[CERTIFICATES_PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/%.40s.%.10s", certificates->folder, name, kind);
    for (size_t i = 0; i < CERTIFICATES_PATHS_MAX; i++) {
        if (certificates->paths[i][0] == '\0' || strcmp(certificates->paths[i], path) == 0) {
            memcpy(certificates->paths[i], path, sizeof path);
            return certificates->paths[i];
        }
    }
    fail_msg("more than %d paths of certificates", CERTIFICATES_PATHS_MAX);
    return NULL;
}

struct muster_tls_files certificates_files(struct certificates *certificates, const char *name,
                                           const char *authority)
{
    return (struct muster_tls_files){
        .certificate = certificates_path(certificates, name, "pem"),
        .key = certificates_path(certificates, name, "key"),
        .authority = certificates_path(certificates, authority, "pem"),
    };
}

void certificates_choose(struct certificates *certificates, const char *name, const char *authority,
                         muster_options *options)
{
    const struct muster_tls_files files = certificates_files(certificates, name, authority);
    options->tls_certificate = files.certificate;
    options->tls_key = files.key;
    options->tls_authority = files.authority;
}

static FILE *open_file(const char *path, const char *mode)
{
    FILE *file = fopen(path, mode);
    if (file == NULL) {
        fail_msg("cannot open %s", path);
    }
    return file;
}

static void extend(X509 *certificate, X509 *issuer, int kind, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static X509 *draft(const struct certificate_wish *wish, EVP_PKEY *key)
{
    X509 *certificate = X509_new();
    uint32_t serial = 0;
    long from_s = wish->from_s == 0 && wish->till_s == 0 ? -HOUR_S : wish->from_s;
    long till_s = wish->from_s == 0 && wish->till_s == 0 ? HOUR_S : wish->till_s;
    assert_int_equal(RAND_bytes((unsigned char *)&serial, sizeof serial), 1);
    assert_non_null(certificate);
    assert_int_equal(X509_set_version(certificate, X509_VERSION_3), 1);
    assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial), 1);
    assert_non_null(X509_gmtime_adj(X509_getm_notBefore(certificate), from_s));
    assert_non_null(X509_gmtime_adj(X509_getm_notAfter(certificate), till_s));
    assert_int_equal(X509_set_pubkey(certificate, key), 1);
    assert_int_equal(X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN",
                                                MBSTRING_ASC, (const unsigned char *)wish->name, -1,
                                                -1, 0),
                     1);
    return certificate;
}

static void add_extensions(const struct certificate_wish *wish, X509 *certificate, X509 *issuer)
{
    extend(certificate, issuer, NID_basic_constraints,
           wish->issuer == NULL ? "critical,CA:TRUE" : "critical,CA:FALSE");
    if (wish->dns != NULL) {
        char value[128];
        (void)snprintf(value, sizeof value, "DNS:%s", wish->dns);
        extend(certificate, issuer, NID_subject_alt_name, value);
    }
    if (wish->usages != NULL) {
        extend(certificate, issuer, NID_ext_key_usage, wish->usages);
    }
}

static void write_files(struct certificates *certificates, const char *name, X509 *certificate,
                        EVP_PKEY *key)
{
    FILE *file = open_file(certificates_path(certificates, name, "pem"), "w");
    assert_int_equal(PEM_write_X509(file, certificate), 1);
    assert_int_equal(fclose(file), 0);
    file = open_file(certificates_path(certificates, name, "key"), "w");
    assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
    assert_int_equal(fclose(file), 0);
}

void certificates_make(struct certificates *certificates, struct certificate_wish wish)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    EVP_PKEY *signer = key;
    assert_non_null(key);
    X509 *certificate = draft(&wish, key);
    X509 *issuer = certificate;
    if (wish.issuer != NULL) {
        FILE *file = open_file(certificates_path(certificates, wish.issuer, "pem"), "r");
        issuer = PEM_read_X509(file, NULL, NULL, NULL);
        (void)fclose(file);
        file = open_file(certificates_path(certificates, wish.issuer, "key"), "r");
        signer = PEM_read_PrivateKey(file, NULL, NULL, NULL);
        (void)fclose(file);
        assert_non_null(issuer);
        assert_non_null(signer);
    }
    assert_int_equal(X509_set_issuer_name(certificate, X509_get_subject_name(issuer)), 1);
    add_extensions(&wish, certificate, issuer);
    assert_true(X509_sign(certificate, signer, EVP_sha256()) > 0);
    write_files(certificates, wish.name, certificate, key);
    if (wish.issuer != NULL) {
        X509_free(issuer);
        EVP_PKEY_free(signer);
    }
    X509_free(certificate);
    EVP_PKEY_free(key);
}
