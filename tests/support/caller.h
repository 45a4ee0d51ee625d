/* A service of musterd's without a socket: its methods are called, and those that are held waited
 * for. */
#ifndef MUSTER_TESTS_SUPPORT_CALLER_H
#define MUSTER_TESTS_SUPPORT_CALLER_H

#include "rendezvous/routes/rpc.h"

#include <pthread.h>

/* Makes the service on the SQLite store at this path; NULL: on a store in memory. Fails the test if
 * it cannot. */
struct muster_service *test_local_service_open(const struct muster_service_config *config,
                                               const char *path, struct muster_store **ret_store);
/* Ends what is held, and closes both. */
void test_local_service_close(struct muster_service *service, struct muster_store *store);

struct test_call {
    struct muster_held_request request; /* first */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool held, answered;
    enum muster_rpc_code code;
    json_t *json; /* the response */
};

/* request: JSON, in which ' stands for ". The sender may what everybody may on a server without
 * tokens. */
void test_call_start(struct test_call *call, struct muster_service *service,
                     enum muster_rpc_method method, const char *token, const char *request, ...)
    MUSTER_PRINTF(5, 6);
/* The same with a body of bytes. */
void test_call_start_bytes(struct test_call *call, struct muster_service *service,
                           enum muster_rpc_method method, const char *token, const char *body,
                           size_t size_bytes);
/* False: not answered within 20 s. */
bool test_call_wait(struct test_call *call);
/* Whether a response has come, without waiting. */
bool test_call_is_answered(struct test_call *call);
/* Waits for the response, which must have this code and, if it is an error, this part in its
 * message; then frees it. */
void test_call_expect(struct test_call *call, enum muster_rpc_code code, const char *part);
/* Waits, and frees the response. */
void test_call_finish(struct test_call *call);

/* The id of member number i. */
const char *test_member(unsigned index);

#endif
