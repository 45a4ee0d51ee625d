/* Finding a name in a table of names. Private to the folder. */
#ifndef MUSTER_COLLECTIVES_CALL_NAMES_H
#define MUSTER_COLLECTIVES_CALL_NAMES_H

#include "worker/base/status.h"

/* The index of `name` in `names`. MUSTER_INVALID lists the names; `what` says what they are names
 * of. */
MUSTER_CHECKED muster_status muster_name_parse(const char *what, const char *name,
                                               const char *const *names, unsigned count,
                                               unsigned *ret_index);

#endif
