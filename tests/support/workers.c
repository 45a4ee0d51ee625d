/* Starts worker programs, and waits for their ends and for lines of their output. */
#include "tests/support/workers.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "worker/base/clock.h"

enum { POLL_MS = 5, LINE_MAX_BYTES = 256 };

static void poll_pause(void)
{
    struct timespec wait = {.tv_nsec = POLL_MS * 1000000L};
    (void)nanosleep(&wait, NULL);
}

void test_workers_init(struct test_workers *workers, struct test_service *service, const char *job,
                       const char *program)
{
    *workers =
        (struct test_workers){.service = service, .job = job, .program = program, .min_size = 1};
    (void)snprintf(workers->stop_file, sizeof workers->stop_file, "%s/stop", service->folder);
    (void)unlink(workers->stop_file);
}

bool test_workers_set_up(struct test_workers *workers, struct test_service *service,
                         const char *const *extra, const char *job, const char *program)
{
    if (!test_service_start(service, extra)) {
        return false;
    }
    test_workers_init(workers, service, job, program);
    return true;
}

int test_workers_tear_down(struct test_workers *workers)
{
    test_workers_end(workers);
    return test_service_stop(workers->service) == 0 ? 0 : -1;
}

static void set_number(const char *name, uint32_t number)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%u", number);
    (void)setenv(name, text, 1);
}

/* In the child: sets the environment and executes the worker program. */
static void execute_worker(const struct test_workers *workers, uint32_t index, const char *host)
{
    const char *bin = getenv("MUSTER_BIN");
    char program[512];
    (void)snprintf(program, sizeof program, "%s/../tests/%s",
                   bin != NULL ? bin : "build/release/bin", workers->program);
    (void)setenv("MUSTER_RENDEZVOUS", workers->service->url, 1);
    (void)setenv("MUSTER_JOB", workers->job, 1);
    (void)setenv("MUSTER_HOST", host, 1);
    set_number("MUSTER_MIN", workers->min_size);
    set_number("MUSTER_TARGET", workers->target_size);
    set_number("MUSTER_ORDER", index);
    int fd = open(workers->workers[index].output, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0) {
        perror(workers->workers[index].output);
        _exit(126);
    }
    (void)execl(program, workers->program, workers->stop_file, (char *)NULL);
    perror(program);
    _exit(127);
}

int test_workers_start(struct test_workers *workers, const char *host)
{
    if (workers->count == WORKERS_MAX) {
        return -1;
    }
    uint32_t index = workers->count;
    struct test_worker *worker = &workers->workers[index];
    (void)snprintf(worker->output, sizeof worker->output, "%s/%s.%u", workers->service->folder,
                   workers->job, index);
    worker->pid = fork();
    if (worker->pid == 0) {
        execute_worker(workers, index, host);
    }
    if (worker->pid < 0) {
        worker->pid = 0;
        return -1;
    }
    workers->count++;
    return (int)index;
}

void test_workers_signal(struct test_workers *workers, uint32_t index, int number)
{
    if (workers->workers[index].pid > 0) {
        (void)kill(workers->workers[index].pid, number);
    }
}

void test_workers_finish(struct test_workers *workers)
{
    int fd = open(workers->stop_file, O_WRONLY | O_CREAT, 0600);
    if (fd >= 0) {
        (void)close(fd);
    }
}

static int end_status(int how)
{
    return WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how);
}

int test_workers_wait(struct test_workers *workers, uint32_t index, unsigned timeout_ms)
{
    struct test_worker *worker = &workers->workers[index];
    int64_t deadline_ns = muster_clock_after_ms(timeout_ms);
    while (worker->pid > 0) {
        if (waitpid(worker->pid, &worker->how, WNOHANG) == worker->pid) {
            worker->pid = 0;
        } else if (muster_clock_left_ms(deadline_ns) == 0) {
            (void)fprintf(stderr, "worker %u (pid %d) does not end\n", index, (int)worker->pid);
            return -1;
        } else {
            poll_pause();
        }
    }
    return end_status(worker->how);
}

bool test_workers_agree(struct test_workers *workers, const uint32_t *indices, size_t count,
                        unsigned timeout_ms)
{
    char first[LINE_MAX_BYTES] = "";
    for (size_t i = 0; i < count; i++) {
        char line[LINE_MAX_BYTES] = "";
        int status = test_workers_wait(workers, indices[i], timeout_ms);
        if (status != 0 ||
            !test_workers_line(workers, indices[i], "done ", 0, timeout_ms, line, sizeof line)) {
            (void)fprintf(stderr, "worker %u ended with %d\n", indices[i], status);
            return false;
        }
        if (i == 0) {
            memcpy(first, line, sizeof first);
        } else if (strcmp(line, first) != 0) {
            (void)fprintf(stderr, "worker %u printed %sworker %u printed %s", indices[0], first,
                          indices[i], line);
            return false;
        }
    }
    return true;
}

void test_workers_end(struct test_workers *workers)
{
    for (uint32_t i = 0; i < workers->count; i++) {
        struct test_worker *worker = &workers->workers[i];
        if (worker->pid > 0) {
            (void)kill(worker->pid, SIGKILL);
            (void)kill(worker->pid, SIGCONT);
            (void)waitpid(worker->pid, &worker->how, 0);
            worker->pid = 0;
        }
    }
}

/* Counts the lines that begin with this; ret_line gets the one after the first `skip` of them. */
static unsigned scan(const char *path, const char *begin, unsigned skip, char *ret_line,
                     size_t size)
{
    char line[LINE_MAX_BYTES];
    unsigned seen = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return 0;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, begin, strlen(begin)) != 0 || strchr(line, '\n') == NULL) {
            continue;
        }
        if (seen == skip && ret_line != NULL) {
            (void)snprintf(ret_line, size, "%s", line);
        }
        seen++;
    }
    (void)fclose(file);
    return seen;
}

bool test_workers_line(const struct test_workers *workers, uint32_t index, const char *begin,
                       unsigned skip, unsigned timeout_ms, char *ret_line, size_t size)
{
    int64_t deadline_ns = muster_clock_after_ms(timeout_ms);
    while (scan(workers->workers[index].output, begin, skip, ret_line, size) <= skip) {
        if (muster_clock_left_ms(deadline_ns) == 0) {
            (void)fprintf(stderr, "worker %u does not print \"%s\"\n", index, begin);
            return false;
        }
        poll_pause();
    }
    return true;
}

unsigned test_workers_lines(const struct test_workers *workers, uint32_t index, const char *begin)
{
    return scan(workers->workers[index].output, begin, 0, NULL, 0);
}

bool test_workers_progress(const struct test_workers *workers, uint32_t index, unsigned lines,
                           unsigned timeout_ms)
{
    char line[LINE_MAX_BYTES];
    unsigned seen = test_workers_lines(workers, index, "step ");
    return test_workers_line(workers, index, "step ", seen + lines - 1, timeout_ms, line,
                             sizeof line);
}

struct expected_size {
    uint32_t size;
    uint64_t after;
    uint64_t *ret_generation;
};

static bool has_size(const struct muster_job_response *job, const void *user)
{
    const struct expected_size *expected = user;
    if (job->phase != MUSTER_JOB_RUNNING || job->generation <= expected->after ||
        job->generation_count == 0 ||
        job->generations[job->generation_count - 1].size != expected->size) {
        return false;
    }
    *expected->ret_generation = job->generation;
    return true;
}

uint64_t test_workers_wait_size(const struct test_workers *workers, uint32_t size, uint64_t after,
                                unsigned timeout_ms)
{
    uint64_t generation = 0;
    struct expected_size expected = {.size = size, .after = after, .ret_generation = &generation};
    if (!test_service_wait(workers->service, workers->job, has_size, &expected, timeout_ms)) {
        (void)fprintf(stderr, "job %s has no generation of %u after generation %llu\n",
                      workers->job, size, (unsigned long long)after);
        return 0;
    }
    return generation;
}
