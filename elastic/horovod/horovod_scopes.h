/*
 * The scopes of one round of a Horovod job: each has keys, each key a value of raw bytes. What a
 * rank does in a scope: PUT `rank_<r>` and `<r>` (its addresses), GET those of the others, connect,
 * DELETE `<r>`.
 *
 * A rank that has connected DELETEs its key while slower ranks may still have to read it, so DELETE
 * only marks a rank's key (a decimal number) as finished. Nobody finishes before every rank has put
 * its key, because it must read all of them; so the scope is cleared, with its `rank_*` keys, when
 * every rank's key that it holds is finished. That needs no size of the scope, counts a repeated
 * DELETE once, and touches no other scope. Other keys are removed at once.
 */
#ifndef MUSTER_ELASTIC_HOROVOD_HOROVOD_SCOPES_H
#define MUSTER_ELASTIC_HOROVOD_HOROVOD_SCOPES_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MUSTER_HOROVOD_SCOPE_MAX_BYTES = 319, /* "local_", a host name, "_process_set_hash_", a hash */
    MUSTER_HOROVOD_KEY_MAX_BYTES = 319,   /* a host name, ':', a local rank */
    MUSTER_HOROVOD_KEYS_MAX = 16384,      /* of a round */
    MUSTER_HOROVOD_ROUND_MAX_BYTES = 64 * 1024 * 1024, /* values of a round */
    MUSTER_HOROVOD_KEY_COST_BYTES = 512,               /* counted for each key beside its value */
};

struct muster_horovod_scope; /* defined in horovod_scopes.c */

/* Zeroed storage is empty. */
struct muster_horovod_scopes {
    struct muster_horovod_scope *first;
    uint32_t key_count;
    size_t size_bytes; /* of all values, and MUSTER_HOROVOD_KEY_COST_BYTES for each key */
};

/* Adds a copy of the value or replaces the one that is there; a finished key is not finished any
 * more. MUSTER_RETRY names the bound that it would exceed; MUSTER_FATAL: no memory. Nothing is
 * changed then. */
MUSTER_CHECKED muster_status muster_horovod_scopes_put(struct muster_horovod_scopes *scopes,
                                                       const char *scope, const char *key,
                                                       const void *value, size_t size_bytes);
/* False: there is none. The bytes are borrowed until the next change. */
bool muster_horovod_scopes_get(const struct muster_horovod_scopes *scopes, const char *scope,
                               const char *key, const void **ret_value, size_t *ret_size_bytes);
/* What is not there is no error. */
void muster_horovod_scopes_delete(struct muster_horovod_scopes *scopes, const char *scope,
                                  const char *key);
void muster_horovod_scopes_finish(struct muster_horovod_scopes *scopes);

/* "0" to "4294967295" without leading zeros. */
bool muster_horovod_parse_rank(const char *text, uint32_t *ret_rank);

#endif
