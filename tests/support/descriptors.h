/* A process that can open no more descriptors. */
#ifndef MUSTER_TESTS_SUPPORT_DESCRIPTORS_H
#define MUSTER_TESTS_SUPPORT_DESCRIPTORS_H

#include <sys/resource.h>

/* From now on every descriptor that is asked for is refused with EMFILE; ret_before is the limit
 * that descriptors_give_back() restores. No other thread may be opening any. */
void descriptors_take_away(struct rlimit *ret_before);
void descriptors_give_back(const struct rlimit *before);

#endif
