/* Tables of names, and how a name is found in one. Private to the folder. */
#ifndef MUSTER_COLLECTIVES_CALL_NAMES_H
#define MUSTER_COLLECTIVES_CALL_NAMES_H

#include "worker/base/status.h"

/* The index of name among names. MUSTER_INVALID lists them; `what` is what they are names of. */
MUSTER_CHECKED muster_status muster_name_parse(const char *what, const char *name,
                                               const char *const *names, unsigned count,
                                               unsigned *ret_index);

#endif
