/* Between the parts of verbs_pretend.h. */
#ifndef MUSTER_TESTS_SUPPORT_VERBS_PRETEND_PARTS_H
#define MUSTER_TESTS_SUPPORT_VERBS_PRETEND_PARTS_H

#include "worker/fabric/verbs_library.h"

enum { VERBS_PRETEND_ENTRIES = 8192 }; /* of a completion queue */

/* What is inline in libibverbs' header calls these. */
extern const struct ibv_context_ops verbs_pretend_ops;

/* Puts into the table what makes objects that do nothing by themselves. */
void verbs_pretend_objects(struct muster_verbs_library *table);

#endif
