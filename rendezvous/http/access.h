/*
 * The tokens of a server, and what each role may do. A token comes from a file, or from the
 * environment, and never from the command line, which every user of the machine can read.
 *
 * Locks: its own, a leaf. Tokens are compared in constant time.
 */
#ifndef MUSTER_RENDEZVOUS_HTTP_ACCESS_H
#define MUSTER_RENDEZVOUS_HTTP_ACCESS_H

#include "worker/base/status.h"

#include <stdbool.h>

enum {
    MUSTER_SERVER_TOKEN_MIN_BYTES = 16,
    MUSTER_SERVER_TOKENS_MAX = 256,
};

struct muster_access;

/* Reads the tokens of the file, if there is one (path is not NULL), and of MUSTERD_WORKER_TOKEN,
 * MUSTERD_VIEWER_TOKEN and MUSTERD_ADMIN_TOKEN. A line of the file is "ROLE TOKEN"; empty lines and
 * those that begin with # are skipped. MUSTER_INVALID names the variable, or the file and the line;
 * no error text has a token. */
MUSTER_CHECKED muster_status muster_access_create(const char *path,
                                                  struct muster_access **ret_access);
/* Accepts NULL. */
void muster_access_destroy(struct muster_access *access);

/* Reads both again. If that fails, the tokens stay as they are. */
MUSTER_CHECKED muster_status muster_access_reload(struct muster_access *access);

/* Whether there is any token: without one, everybody is let in. */
bool muster_access_guards(struct muster_access *access);

/* The rights of a token (enum muster_right); 0: it is none of this server's. */
unsigned muster_access_rights(struct muster_access *access, const char *token);

#endif
