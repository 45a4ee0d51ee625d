/* What the files of the pretended RDMA devices (verbs_pretend.h) share. */
#ifndef MUSTER_TESTS_SUPPORT_VERBS_PRETEND_PARTS_H
#define MUSTER_TESTS_SUPPORT_VERBS_PRETEND_PARTS_H

#include "worker/fabric/verbs/verbs_library.h"

#include <stdbool.h>

enum {
    VERBS_PRETEND_ENTRIES = 8192, /* of a completion queue */
    VERBS_PRETEND_GATHERS = 5,    /* of a send's list: fewer than the library wants */
};

/* The inline functions of libibverbs' header (ibv_post_send() and so on) call these. */
extern const struct ibv_context_ops verbs_pretend_ops;

/* Sets the table's functions for passive objects: devices, contexts, domains, channels. */
void verbs_pretend_objects(struct muster_verbs_library *table);

/* Sets the table's functions that register and deregister memory. */
void verbs_pretend_memory(struct muster_verbs_library *table);

/* One lock for all of this state. */
void verbs_pretend_lock(void);
void verbs_pretend_unlock(void);

/* The address at which the devices access these bytes. NULL: they are not registered under that
 * key, or, if `remote`, not for writes by the peer. Under the lock. */
unsigned char *verbs_pretend_touch(uint64_t address, uint64_t size, uint32_t key, bool remote);

#endif
