/*
 * Starting and ending processes so that none is left behind: each leads a process group of its own,
 * is killed by the kernel when the launcher dies, and its group is known to the guard, a small
 * process that kills all groups when the launcher is gone without having done so.
 *
 * One thread: the kernel ties a child to the thread that started it.
 */
#ifndef MUSTER_WORKER_CLI_RUN_PROCESS_H
#define MUSTER_WORKER_CLI_RUN_PROCESS_H

#include "worker/base/status.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct muster_guard {
    pid_t pid;
    int fd; /* the guard reads groups from it; its end is our death */
};

/* tidy (may be NULL) is the last that the guard does, in its own process, with a copy of what
 * argument points to as it is now. Before any thread is started. MUSTER_FATAL: no process or
 * descriptor left. */
MUSTER_CHECKED muster_status muster_guard_open(void (*cleanup)(void *argument), void *argument,
                                               struct muster_guard *ret_guard);
/* Kills every group that is still registered, and waits until the guard has tidied up. */
void muster_guard_close(struct muster_guard *guard);
/* The group is over: its number may come to mean another process. */
void muster_guard_unregister(struct muster_guard *guard, pid_t group);

struct muster_command {
    char *const *argv;
    char *const *environment;
    const sigset_t *signals; /* mask to start with */
    bool quiet;              /* its standard output is dropped */
};

struct muster_process {
    pid_t pid;         /* also its group */
    int output, error; /* pipes, non-blocking; the caller's; output is -1 if quiet */
};

/* Starts argv[0], found in PATH. MUSTER_INVALID: it cannot be executed; *ret_exit_status then is
 * 127 (not found) or 126. MUSTER_FATAL: no process or descriptor left. */
MUSTER_CHECKED muster_status muster_process_start(struct muster_guard *guard,
                                                  const struct muster_command *command,
                                                  struct muster_process *ret_process,
                                                  int *ret_exit_status);

/* A signal for every process of the group; fine if there is none any more. */
void muster_process_signal(pid_t group, int signal);

/* True once the process has ended; it stays a zombie, which keeps its number from being reused
 * until muster_process_reap(). */
bool muster_process_ended(pid_t pid, siginfo_t *ret_info);

/* Waits until the process has ended, as a zombie; false when the deadline (muster_clock_ns()) has
 * passed. */
bool muster_process_wait(pid_t pid, int64_t deadline_ns);

/* Kills what is left of the group and lets the number go. */
void muster_process_reap(struct muster_guard *guard, pid_t pid);

#endif
