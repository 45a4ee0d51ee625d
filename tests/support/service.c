/* A musterd as a child process: started, killed, restarted, stopped and polled. */
#include "tests/support/service.h"

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "worker/base/clock.h"
#include "worker/session/rendezvous_client.h"

enum { START_MS = 20000, STOP_MS = 20000, POLL_MS = 5, ARGUMENTS_MAX = 32 };

static void sleep_between_polls(void)
{
    struct timespec wait = {.tv_nsec = POLL_MS * 1000000L};
    (void)nanosleep(&wait, NULL);
}

static void find_program(char *ret_program, size_t size)
{
    const char *bin = getenv("MUSTER_BIN");
    (void)snprintf(ret_program, size, "%s/musterd", bin != NULL ? bin : "build/release/bin");
}

bool test_service_built(void)
{
    char program[512];
    find_program(program, sizeof program);
    if (access(program, X_OK) == 0) {
        return true;
    }
    (void)printf("SKIP: %s is not built (it needs libmicrohttpd and SQLite)\n", program);
    return false;
}

/* With another store each start may be one with a new store. */
static bool has_own_store(const char *const *extra)
{
    for (size_t i = 0; extra != NULL && extra[i] != NULL; i++) {
        if (strncmp(extra[i], "--store", strlen("--store")) == 0) {
            return false;
        }
    }
    return true;
}

/* A server with the test's own store need not wait for the next second: the servers that follow it
 * find that store, and the epoch in it. */
static void spawn(struct test_service *service, const char *listen, const char *const *extra)
{
    char program[512];
    char port_file[128];
    char store[128];
    const char *arguments[ARGUMENTS_MAX] = {program,       "--listen",        listen,
                                            "--port-file", port_file,         "--store",
                                            store,         "--settle-ms=150", "--lease-ms=3000"};
    size_t count = 9;
    find_program(program, sizeof program);
    (void)snprintf(port_file, sizeof port_file, "%s/port", service->folder);
    (void)snprintf(store, sizeof store, "%s/jobs.db", service->folder);
    if (has_own_store(extra)) {
        arguments[count++] = "--only-server";
    }
    for (size_t i = 0; extra != NULL && extra[i] != NULL && count + 1 < ARGUMENTS_MAX; i++) {
        arguments[count++] = extra[i];
    }
    (void)unlink(port_file);
    /* It ends with the test, also with one that a sanitizer has ended: it has the test's output
     * open, for which ctest waits. The kernel counts the thread that forks as the parent. */
    bool ends_with_parent = gettid() == getpid();
    service->pid = fork();
    if (service->pid == 0) {
        (void)(ends_with_parent && prctl(PR_SET_PDEATHSIG, SIGKILL));
        (void)execv(program, (char *const *)arguments);
        perror(program);
        _exit(127);
    }
}

static bool has_ended(struct test_service *service)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)service->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
}

static bool read_port(struct test_service *service)
{
    char path[128];
    char text[32] = "";
    (void)snprintf(path, sizeof path, "%s/port", service->folder);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    bool read = fgets(text, sizeof text, file) != NULL && strchr(text, '\n') != NULL;
    (void)fclose(file);
    service->port = read ? (unsigned)strtoul(text, NULL, 10) : 0;
    return service->port != 0;
}

static bool wait_until_it_serves(struct test_service *service)
{
    int64_t deadline_ns = muster_clock_after_ms(START_MS);
    while (!read_port(service)) {
        if (has_ended(service) || muster_clock_left_ms(deadline_ns) == 0) {
            (void)fprintf(stderr, "musterd does not serve\n");
            (void)test_service_stop(service);
            return false;
        }
        sleep_between_polls();
    }
    (void)snprintf(service->url, sizeof service->url, "http://127.0.0.1:%u", service->port);
    return true;
}

bool test_service_start(struct test_service *service, const char *const *extra)
{
    *service = (struct test_service){.folder = "/tmp/muster-test-XXXXXX"};
    if (mkdtemp(service->folder) == NULL) {
        perror(service->folder);
        return false;
    }
    spawn(service, "127.0.0.1:0", extra);
    return wait_until_it_serves(service);
}

void test_service_kill(struct test_service *service)
{
    (void)kill(service->pid, SIGKILL);
    (void)waitpid(service->pid, NULL, 0);
    service->pid = 0;
}

bool test_service_restart(struct test_service *service, const char *const *extra)
{
    char listen[64];
    (void)snprintf(listen, sizeof listen, "127.0.0.1:%u", service->port);
    spawn(service, listen, extra);
    return wait_until_it_serves(service);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

static int reap(pid_t pid)
{
    int64_t deadline_ns = muster_clock_after_ms(STOP_MS);
    int how = 0;
    while (waitpid(pid, &how, WNOHANG) == 0) {
        if (muster_clock_left_ms(deadline_ns) == 0) {
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, NULL, 0);
            return -1;
        }
        sleep_between_polls();
    }
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

int test_service_stop(struct test_service *service)
{
    int status = 0;
    if (service->pid > 0) {
        (void)kill(service->pid, SIGTERM);
        status = reap(service->pid);
    }
    if (service->folder[0] != '\0') {
        (void)nftw(service->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    }
    *service = (struct test_service){0};
    return status;
}

struct test_service group_service;

int test_service_setup(void **state)
{
    (void)state;
    return test_service_start(&group_service, NULL) ? 0 : -1;
}

int test_service_setup_patient(void **state)
{
    static const char *const patient[] = {"--settle-ms=60000", NULL};
    (void)state;
    return test_service_start(&group_service, patient) ? 0 : -1;
}

int test_service_teardown(void **state)
{
    (void)state;
    return test_service_stop(&group_service) == 0 ? 0 : -1;
}

bool test_service_job(const struct test_service *service, const char *job,
                      struct muster_job_response *ret_job)
{
    struct muster_client *client = NULL;
    struct muster_job_request request = {0};
    struct muster_retry_policy retry_policy = {
        .attempt_ms = 5000, .deadline_ns = muster_clock_after_ms(5000), .attempts = 1};
    json_t *answer = NULL;
    (void)snprintf(request.job, sizeof request.job, "%s", job);
    if (muster_client_create(service->url, NULL, &client) != MUSTER_OK) {
        return false;
    }
    muster_status status =
        muster_client_call(client, MUSTER_RPC_GET_JOB, muster_job_request_encode(&request),
                           &retry_policy, &answer, NULL);
    if (status == MUSTER_OK) {
        status = muster_job_response_decode(answer, ret_job);
        json_decref(answer);
    }
    muster_client_destroy(client);
    return status == MUSTER_OK;
}

bool test_service_wait(const struct test_service *service, const char *job,
                       test_job_predicate ready, const void *user, unsigned timeout_ms)
{
    int64_t deadline_ns = muster_clock_after_ms(timeout_ms);
    while (muster_clock_left_ms(deadline_ns) > 0) {
        struct muster_job_response response = {0};
        if (test_service_job(service, job, &response)) {
            bool is = ready(&response, user);
            muster_job_response_finish(&response);
            if (is) {
                return true;
            }
        }
        sleep_between_polls();
    }
    return false;
}
