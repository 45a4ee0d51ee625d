/*
 * The paths of Horovod's workers. A worker asks for http://ADDR:PORT/SCOPE/KEY. With
 * ADDR = HOST:7070/horovod/JOB.SECRET/WORKER the path is
 *
 *     /horovod/JOB.SECRET/WORKER:PORT/SCOPE/KEY
 *
 * WORKER may be absent. PORT says nothing, and may be absent, too.
 */
#ifndef MUSTER_RENDEZVOUS_HOROVOD_HOROVOD_PATH_H
#define MUSTER_RENDEZVOUS_HOROVOD_HOROVOD_PATH_H

#include "elastic/horovod/horovod_scopes.h"
#include "elastic/membership/membership.h"

enum { MUSTER_HOROVOD_SECRET_SIZE = 129, MUSTER_HOROVOD_WORKER_SIZE = 65 };

struct muster_horovod_path {
    char job[MUSTER_JOB_NAME_SIZE];
    char secret[MUSTER_HOROVOD_SECRET_SIZE]; /* letters, digits, '-' and '_' */
    char worker[MUSTER_HOROVOD_WORKER_SIZE]; /* the same; "": none */
    char scope[MUSTER_HOROVOD_SCOPE_MAX_BYTES + 1];
    char key[MUSTER_HOROVOD_KEY_MAX_BYTES + 1];
};

/* Whether a path is one of Horovod's workers. */
bool muster_horovod_path_is(const char *path);

/* MUSTER_INVALID names the part that is wrong; the secret is not repeated. */
MUSTER_CHECKED muster_status muster_horovod_path_parse(const char *path,
                                                       struct muster_horovod_path *ret_path);

#endif
