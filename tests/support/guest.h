/* For tests that need an RDMA device. */
#ifndef MUSTER_TESTS_SUPPORT_GUEST_H
#define MUSTER_TESTS_SUPPORT_GUEST_H

/* Where this machine has no device that links could use, the program runs again in a guest that has
 * one (tests/verbs/run), and this does not come back. In the guest it always does. */
void guest_need_rdma(const char *program);

#endif
