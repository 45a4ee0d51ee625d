/* Between the parts of verbs_pretend.h. */
#ifndef MUSTER_TESTS_SUPPORT_VERBS_PRETEND_PARTS_H
#define MUSTER_TESTS_SUPPORT_VERBS_PRETEND_PARTS_H

#include "worker/fabric/verbs/verbs_library.h"

#include <stdbool.h>

enum { VERBS_PRETEND_ENTRIES = 8192 }; /* of a completion queue */

/* What is inline in libibverbs' header calls these. */
extern const struct ibv_context_ops verbs_pretend_ops;

/* Puts into the table what makes objects that do nothing by themselves. */
void verbs_pretend_objects(struct muster_verbs_library *table);

/* Puts into the table what registers memory. */
void verbs_pretend_memory(struct muster_verbs_library *table);

/* Of all of them. */
void verbs_pretend_lock(void);
void verbs_pretend_unlock(void);

/* Where the devices find these bytes. NULL: they are not registered under that key; remote: not for
 * the peer to write into. Under the lock. */
unsigned char *verbs_pretend_touch(uint64_t address, uint64_t size, uint32_t key, bool remote);

#endif
