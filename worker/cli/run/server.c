/* A `musterd` that the launcher starts for its job, and ends with it. */
#include "worker/cli/run/server.h"

#include "worker/base/clock.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    START_TIMEOUT_MS = 30000,
    STOP_TIMEOUT_MS = 3000,
    POLL_INTERVAL_MS = 5,
    EARLY_END_MS = 1000, /* it has not served then */
    EARLY_ENDS_MAX = 5,
};

/* Searches beside this program, then where an installation puts it, then in PATH. */
static void find_program(char ret_path[PATH_MAX])
{
    static const char *const candidates[] = {"musterd", "../libexec/musterd", "../sbin/musterd"};
    char folder[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(folder, '/');
    for (size_t i = 0; slash != NULL && i < sizeof candidates / sizeof candidates[0]; i++) {
        *slash = '\0';
        int used = snprintf(ret_path, PATH_MAX, "%s/%s", folder, candidates[i]);
        if (used > 0 && used < PATH_MAX && access(ret_path, X_OK) == 0) {
            return;
        }
    }
    (void)snprintf(ret_path, PATH_MAX, "musterd");
}

/* The file holds the port, or an address that ends with it. */
static bool read_port(const char *path, unsigned *ret_port)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    char line[128] = "";
    bool whole = fgets(line, sizeof line, file) != NULL && strchr(line, '\n') != NULL;
    (void)fclose(file);
    const char *colon = strrchr(line, ':');
    unsigned long port = strtoul(colon != NULL ? colon + 1 : line, NULL, 10);
    if (!whole || port == 0 || port > UINT16_MAX) {
        return false;
    }
    *ret_port = (unsigned)port;
    return true;
}

static void pump(struct muster_server *server, int timeout_ms)
{
    struct pollfd one = {.fd = server->error.fd, .events = POLLIN};
    if (poll(&one, 1, timeout_ms) == 1 && muster_stream_read(&server->error) == MUSTER_OK) {
        (void)muster_stream_pump(&server->error);
        muster_sink_flush(server->error.sink);
    }
}

static muster_status wait_for_port(struct muster_server *server, const char *path)
{
    int64_t deadline_ns = muster_clock_after_ms(START_TIMEOUT_MS);
    unsigned port = 0;
    siginfo_t info;
    while (!read_port(path, &port)) {
        bool ended = muster_process_ended(server->process.pid, &info);
        pump(server, POLL_INTERVAL_MS);
        if (ended) {
            return muster_error_set(MUSTER_INVALID,
                                    "the job's own musterd did not start; its message is above");
        }
        if (muster_clock_left_ms(deadline_ns) == 0) {
            return muster_error_set(MUSTER_INVALID,
                                    "the job's own musterd does not answer after %d s",
                                    START_TIMEOUT_MS / 1000);
        }
    }
    server->port = port;
    (void)snprintf(server->url, sizeof server->url, "http://127.0.0.1:%u", port);
    return MUSTER_OK;
}

const char *const muster_server_timings[MUSTER_SERVER_TIMINGS] = {
    "hold-ms", "lease-ms", "settle-ms", "arrive-ms", "suspect-ms",
};

/* What the command line of a server consists of. */
struct command_line {
    char program[PATH_MAX], port_file[PATH_MAX], store[PATH_MAX], listen[64];
    char timings[MUSTER_SERVER_TIMINGS][64];
};

/* The state of the job is kept in a file, so that it survives the server. */
static muster_status start_process(struct muster_guard *guard,
                                   const struct muster_server_options *options,
                                   struct muster_server *server)
{
    struct command_line line = {0};
    char port_option[] = "--port-file";
    char store_option[] = "--store";
    char only_server[] = "--only-server";
    char *argv[8 + MUSTER_SERVER_TIMINGS] = {line.program, line.listen, port_option, line.port_file,
                                             store_option, line.store,  only_server};
    size_t count = 7;
    find_program(line.program);
    (void)snprintf(line.port_file, sizeof line.port_file, "%s/port", options->folder);
    if (options->store != NULL) {
        (void)snprintf(line.store, sizeof line.store, "%s", options->store);
    } else {
        (void)snprintf(line.store, sizeof line.store, "%s/job.db", options->folder);
    }
    (void)snprintf(line.listen, sizeof line.listen, "--listen=127.0.0.1:%u", server->port);
    for (size_t i = 0; i < MUSTER_SERVER_TIMINGS; i++) {
        if (options->timings[i] != NULL) {
            (void)snprintf(line.timings[i], sizeof line.timings[i], "--%s=%s",
                           muster_server_timings[i], options->timings[i]);
            argv[count++] = line.timings[i];
        }
    }
    const struct muster_command command = {
        .argv = argv, .environment = environ, .signals = options->signals, .quiet = true};
    int exit_status = 0;
    TRY(muster_process_start(guard, &command, &server->process, &exit_status));
    server->running = true;
    server->started_ns = muster_clock_ns();
    muster_stream_init(&server->error, server->process.error, options->sink, "musterd", 0);
    return MUSTER_OK;
}

/* The server writes the port that it has got into a file: port 0 makes it choose a free one, so
 * that any number of jobs can run on one machine. */
muster_status muster_server_start(struct muster_guard *guard,
                                  const struct muster_server_options *options,
                                  struct muster_server *ret_server)
{
    char port_file[PATH_MAX];
    struct muster_server server = {0};
    (void)snprintf(port_file, sizeof port_file, "%s/port", options->folder);
    TRY(start_process(guard, options, &server));
    muster_status status = wait_for_port(&server, port_file);
    if (status != MUSTER_OK) {
        muster_server_stop(&server, guard);
        return status;
    }
    *ret_server = server;
    return MUSTER_OK;
}

muster_status muster_server_restart(struct muster_guard *guard,
                                    const struct muster_server_options *options,
                                    struct muster_server *server)
{
    bool early = muster_clock_ns() - server->started_ns < EARLY_END_MS * INT64_C(1000000);
    server->early_ends = early ? server->early_ends + 1 : 0;
    if (server->early_ends >= EARLY_ENDS_MAX) {
        return muster_error_set(MUSTER_RETRY, "it ends soon after each start");
    }
    muster_stream_finish(&server->error);
    return start_process(guard, options, server);
}

void muster_server_stop(struct muster_server *server, struct muster_guard *guard)
{
    if (server->process.pid <= 0) {
        return;
    }
    if (server->running) {
        muster_process_signal(server->process.pid, SIGTERM);
        (void)muster_process_wait(server->process.pid, muster_clock_after_ms(STOP_TIMEOUT_MS));
        muster_process_reap(guard, server->process.pid);
    }
    muster_stream_finish(&server->error);
    *server = (struct muster_server){0};
}
