/* The musterd that rendezvous.c puts under load: started on chosen cores, its memory and its CPU.
 */
#ifndef MUSTER_TESTS_BENCH_LOAD_SERVER_H
#define MUSTER_TESTS_BENCH_LOAD_SERVER_H

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t load_pid;

static inline void load_stop(void)
{
    if (load_pid > 0) {
        (void)kill(load_pid, SIGKILL);
        (void)waitpid(load_pid, NULL, 0);
    }
}

__attribute__((noreturn)) static inline void load_fail(const char *what)
{
    fprintf(stderr, "rendezvous: %s\n", what);
    load_stop();
    exit(EXIT_FAILURE);
}

static inline void load_pin(const char *cpus, bool others)
{
    cpu_set_t set;
    cpu_set_t allowed;
    CPU_ZERO(&set);
    (void)sched_getaffinity(0, sizeof allowed, &allowed);
    for (const char *at = cpus; *at != '\0'; at++) {
        if (*at >= '0' && *at <= '9') {
            CPU_SET((unsigned)strtoul(at, (char **)&at, 10), &set);
            at -= *at == '\0';
        }
    }
    if (others) {
        CPU_XOR(&set, &set, &allowed);
        CPU_AND(&set, &set, &allowed);
    }
    if (CPU_COUNT(&set) > 0) {
        (void)sched_setaffinity(0, sizeof set, &set);
    }
}

static inline unsigned load_start(const char *musterd, const char *store, const char *cpus,
                                  char *const *options)
{
    char port_file[] = "/tmp/rendezvous-port-XXXXXX";
    int fd = mkstemp(port_file);
    if (fd < 0) {
        load_fail("no temporary file");
    }
    (void)close(fd);
    (void)unlink(port_file);
    load_pid = fork();
    if (load_pid == 0) {
        const char *line[64] = {musterd,       "--listen", "127.0.0.1:0", "--store", store,
                                "--port-file", port_file,  "--log",       "error"};
        int count = 9;
        for (char *const *option = options; *option != NULL && count < 63; option++) {
            line[count++] = *option;
        }
        load_pin(cpus, false);
        (void)execv(musterd, (char *const *)line);
        _exit(127);
    }
    unsigned port = 0;
    for (int i = 0; i < 500 && port == 0; i++) {
        FILE *file = fopen(port_file, "re");
        if (file != NULL) {
            if (fscanf(file, "%u", &port) != 1) {
                port = 0;
            }
            (void)fclose(file);
        }
        (void)usleep(10000);
    }
    (void)unlink(port_file);
    if (port == 0) {
        load_fail("musterd does not start");
    }
    return port;
}

static inline double load_cpu_s(void)
{
    char path[64];
    char text[1024];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)load_pid);
    FILE *file = fopen(path, "re");
    size_t size = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    text[size] = '\0';
    unsigned long user = 0;
    unsigned long kernel = 0;
    const char *rest = strrchr(text, ')');
    if (rest == NULL || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                               &user, &kernel) != 2) {
        load_fail("musterd is gone");
    }
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

static inline double load_memory_mib(const char *name)
{
    char path[64];
    char line[256];
    unsigned long kib = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)load_pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            (void)sscanf(line + strlen(name), ": %lu", &kib);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return (double)kib / 1024;
}

#endif
