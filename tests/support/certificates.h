/* Authorities, certificates and keys for tests, made on the spot. */
#ifndef MUSTER_TESTS_SUPPORT_CERTIFICATES_H
#define MUSTER_TESTS_SUPPORT_CERTIFICATES_H

#include "worker/fabric/tls/tls.h"

enum { CERTIFICATES_PATH_SIZE = 128, CERTIFICATES_PATHS_MAX = 64 };

/* A folder of its own, removed with all that is in it by certificates_finish(). */
struct certificates {
    char folder[CERTIFICATES_PATH_SIZE / 2];
    char paths[CERTIFICATES_PATHS_MAX][CERTIFICATES_PATH_SIZE]; /* of certificates_path() */
};

struct certificate_wish {
    const char *name;    /* makes NAME.pem and NAME.key */
    const char *issuer;  /* a name made before; NULL: it signs itself, and may sign others */
    const char *dns;     /* NULL: none */
    const char *usages;  /* extended key usage; NULL: none */
    long from_s, till_s; /* from now; both 0: an hour on both sides */
};

void certificates_init(struct certificates *certificates);
void certificates_finish(const struct certificates *certificates);
void certificates_make(struct certificates *certificates, struct certificate_wish wish);

/* FOLDER/NAME.KIND, valid as long as the certificates. Not for two threads at once. */
const char *certificates_path(struct certificates *certificates, const char *name,
                              const char *kind);

/* The files that a member with that certificate uses. */
struct muster_tls_files certificates_files(struct certificates *certificates, const char *name,
                                           const char *authority);
/* The same, as options. */
void certificates_choose(struct certificates *certificates, const char *name, const char *authority,
                         muster_options *options);

#endif
