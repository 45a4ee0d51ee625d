/* Worker programs of a test, as processes: each with its output in a file of its own. */
#ifndef MUSTER_TESTS_SUPPORT_WORKERS_H
#define MUSTER_TESTS_SUPPORT_WORKERS_H

#include "tests/support/service.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { WORKERS_MAX = 32 };

struct test_worker {
    pid_t pid; /* 0: it has been waited for */
    int how;   /* waitpid()'s status */
    char output[128];
};

struct test_workers {
    struct test_service *service;
    const char *job;
    const char *program; /* in $MUSTER_BIN/../tests */
    uint32_t min_size, target_size;
    char stop_file[96];
    uint32_t count;
    struct test_worker workers[WORKERS_MAX];
};

void test_workers_init(struct test_workers *workers, struct test_service *service, const char *job,
                       const char *program);

/* Starts one more on this pretended host; its index, or -1. */
int test_workers_start(struct test_workers *workers, const char *host);

void test_workers_signal(struct test_workers *workers, uint32_t index, int number);

/* Tells all to finish: the stop file appears. */
void test_workers_finish(struct test_workers *workers);

/* Waits for the end of one; its exit status, or -1 and a line on stderr if it takes more than
 * timeout_ms, and -signal if it died of one. */
int test_workers_wait(struct test_workers *workers, uint32_t index, unsigned timeout_ms);

/* Kills and waits for those that are still there: the end of a test that may have failed. */
void test_workers_end(struct test_workers *workers);

/* Waits until the worker's output has a line that begins with this, after skipping that many such
 * lines; ret_line (size bytes) gets it. False after timeout_ms. */
bool test_workers_line(const struct test_workers *workers, uint32_t index, const char *begin,
                       unsigned skip, unsigned timeout_ms, char *ret_line, size_t size);

/* How many lines begin with this so far. */
unsigned test_workers_lines(const struct test_workers *workers, uint32_t index, const char *begin);

/* Waits until the running generation has this size and is newer than `after`; its number, or 0
 * after timeout_ms. */
uint64_t test_workers_wait_size(const struct test_workers *workers, uint32_t size, uint64_t after,
                                unsigned timeout_ms);

#endif
