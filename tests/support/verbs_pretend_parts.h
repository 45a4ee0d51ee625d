/* Between the parts of verbs_pretend.h. */
#ifndef MUSTER_TESTS_SUPPORT_VERBS_PRETEND_PARTS_H
#define MUSTER_TESTS_SUPPORT_VERBS_PRETEND_PARTS_H

#include "worker/fabric/verbs/verbs_library.h"

#include <stdbool.h>

enum { VERBS_PRETEND_ENTRIES = 8192 }; /* of a completion queue */

/* Called by inline functions of libibverbs' header. */
extern const struct ibv_context_ops verbs_pretend_ops;

/* Fills the table's entries for passive objects. */
void verbs_pretend_objects(struct muster_verbs_library *table);

/* Fills the table's entries for memory. */
void verbs_pretend_memory(struct muster_verbs_library *table);

/* Of all of them. */
void verbs_pretend_lock(void);
void verbs_pretend_unlock(void);

/* Where the devices find these bytes. NULL: not registered under that key; with remote: not for the
 * peer to write. Under the lock. */
unsigned char *verbs_pretend_touch(uint64_t address, uint64_t size, uint32_t key, bool remote);

#endif
