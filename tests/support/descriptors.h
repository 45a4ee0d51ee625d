/* A process that can open no more descriptors. */
#ifndef MUSTER_TESTS_SUPPORT_DESCRIPTORS_H
#define MUSTER_TESTS_SUPPORT_DESCRIPTORS_H

#include <sys/resource.h>

/* From now on opening a descriptor fails with EMFILE. ret_before is the limit that
 * descriptors_restore() sets again. No other thread may open descriptors during the call. */
void descriptors_exhaust(struct rlimit *ret_before);
void descriptors_restore(const struct rlimit *before);

#endif
