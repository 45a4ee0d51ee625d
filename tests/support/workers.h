/* Worker programs of a test, as processes, each with its output in a file of its own. Functions
 * that wait return false or -1 after timeout_ms, and print a line on stderr. */
#ifndef MUSTER_TESTS_SUPPORT_WORKERS_H
#define MUSTER_TESTS_SUPPORT_WORKERS_H

#include "tests/support/service.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { WORKERS_MAX = 32 };

struct test_worker {
    pid_t pid; /* 0: it was waited for */
    int how;   /* status of waitpid() */
    char output[128];
};

struct test_workers {
    struct test_service *service;
    const char *job;
    const char *program;            /* in $MUSTER_BIN/../tests */
    uint32_t min_size, target_size; /* of the job */
    char stop_file[96];
    uint32_t count;
    struct test_worker workers[WORKERS_MAX];
};

void test_workers_init(struct test_workers *workers, struct test_service *service, const char *job,
                       const char *program);

/* Setup and teardown of a test: a service with these arguments (`extra` as in test_service_start())
 * and no workers; then no workers and no service. False or -1: the service does not serve, or did
 * not exit with status 0. */
bool test_workers_set_up(struct test_workers *workers, struct test_service *service,
                         const char *const *extra, const char *job, const char *program);
int test_workers_tear_down(struct test_workers *workers);

/* Starts one more worker, with this host name. Returns its index, or -1. */
int test_workers_start(struct test_workers *workers, const char *host);

void test_workers_signal(struct test_workers *workers, uint32_t index, int number);

/* Creates the stop file: all workers finish. */
void test_workers_finish(struct test_workers *workers);

/* Waits for the end of one. Returns its exit status, or -N if signal N killed it; -1: it has not
 * ended. */
int test_workers_wait(struct test_workers *workers, uint32_t index, unsigned timeout_ms);

/* Waits for the ends of these workers. True if all exit with status 0 and the same "done" line. */
bool test_workers_agree(struct test_workers *workers, const uint32_t *indices, size_t count,
                        unsigned timeout_ms);

/* Kills the workers that are left and waits for them. */
void test_workers_end(struct test_workers *workers);

/* Waits until the worker's output has more than `skip` lines that begin with this; ret_line (size
 * bytes) gets the next one after these. */
bool test_workers_line(const struct test_workers *workers, uint32_t index, const char *begin,
                       unsigned skip, unsigned timeout_ms, char *ret_line, size_t size);

/* The number of lines so far that begin with this. */
unsigned test_workers_lines(const struct test_workers *workers, uint32_t index, const char *begin);

/* Waits for this many more "step" lines of the worker: the job makes progress. */
bool test_workers_progress(const struct test_workers *workers, uint32_t index, unsigned lines,
                           unsigned timeout_ms);

/* Waits until the running generation has this size and is newer than `after`. Returns its number;
 * 0: there is none. */
uint64_t test_workers_wait_size(const struct test_workers *workers, uint32_t size, uint64_t after,
                                unsigned timeout_ms);

#endif
