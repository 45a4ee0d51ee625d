/* A musterd for one test, as a process: $MUSTER_BIN/musterd on a free port of the loopback. */
#ifndef MUSTER_TESTS_SUPPORT_SERVICE_H
#define MUSTER_TESTS_SUPPORT_SERVICE_H

#include "elastic/messages/messages.h"

#include <stdbool.h>
#include <sys/types.h>

struct test_service {
    pid_t pid;
    unsigned port;
    char url[64];
    char folder[64]; /* of its store and port file; removed by test_service_stop() */
};

/* False if there is no musterd to start, after printing so: main() then returns 77, a skip. */
bool test_service_built(void);

/* Leases short enough for tests and long enough for a busy machine under a sanitizer. extra: more
 * arguments, up to a NULL; or NULL. False, after a line on stderr: it does not serve. */
bool test_service_start(struct test_service *service, const char *const *extra);

/* kill -9, and the same service again: same port, same store. */
void test_service_kill(struct test_service *service);
bool test_service_restart(struct test_service *service, const char *const *extra);

/* Sends SIGTERM. Returns the exit status, or -1 if it does not end or dies of a signal. */
int test_service_stop(struct test_service *service);

/* For cmocka: one service for all tests of a program. */
extern struct test_service group_service;
int test_service_setup(void **state);
/* With a settle window of a minute: a job begins with all its members, however slowly they join. */
int test_service_setup_patient(void **state);
int test_service_teardown(void **state);

/* GetJob. False: there is no such job, or no service. *ret_job is to be finished. */
bool test_service_job(const struct test_service *service, const char *job,
                      struct muster_job_response *ret_job);

/* Polls GetJob until ready(job, user) is true; false after timeout_ms. */
typedef bool (*test_job_predicate)(const struct muster_job_response *job, const void *user);
bool test_service_wait(const struct test_service *service, const char *job,
                       test_job_predicate ready, const void *user, unsigned timeout_ms);

#endif
