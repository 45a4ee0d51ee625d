/*
 * Starts and ends processes so that none is left behind. Each process leads a process group of its
 * own and is killed by the kernel when the launcher dies. Its group is registered with the guard, a
 * small process that kills all registered groups when the launcher has died without doing so.
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
    int fd; /* a pipe from which the guard reads groups; its end means that the launcher has died */
};

/* The guard calls cleanup (may be NULL) last, in its own process, with a copy of what argument
 * points to at this moment. To be called before any thread is started. MUSTER_FATAL: there are no
 * more processes or descriptors. */
MUSTER_CHECKED muster_status muster_guard_open(void (*cleanup)(void *argument), void *argument,
                                               struct muster_guard *ret_guard);
/* Kills every group that is still registered, and waits until the guard has ended. */
void muster_guard_close(struct muster_guard *guard);
/* The group has ended: its number may be given to another process. */
void muster_guard_unregister(struct muster_guard *guard, pid_t group);

struct muster_command {
    char *const *argv;
    char *const *environment;
    const sigset_t *signals; /* the signal mask to start with */
    bool quiet;              /* standard output goes to /dev/null */
};

struct muster_process {
    pid_t pid;         /* also the number of its group */
    int output, error; /* non-blocking pipes, owned by the caller; output is -1 if quiet */
};

/* Starts argv[0], which is looked up in PATH. MUSTER_INVALID: it cannot be executed, and
 * *ret_exit_status is 127 (not found) or 126. MUSTER_FATAL: there are no more processes or
 * descriptors. */
MUSTER_CHECKED muster_status muster_process_start(struct muster_guard *guard,
                                                  const struct muster_command *command,
                                                  struct muster_process *ret_process,
                                                  int *ret_exit_status);

/* Sends the signal to every process of the group. A group that has ended is no error. */
void muster_process_signal(pid_t group, int signal);

/* True if the process has ended. It stays a zombie until muster_process_reap(), so that its number
 * is not used again before. */
bool muster_process_ended(pid_t pid, siginfo_t *ret_info);

/* Blocks until the process has ended (it stays a zombie). False: the deadline (muster_clock_ns())
 * has passed. */
bool muster_process_wait(pid_t pid, int64_t deadline_ns);

/* Kills what is left of the group, and releases the process number. */
void muster_process_reap(struct muster_guard *guard, pid_t pid);

#endif
