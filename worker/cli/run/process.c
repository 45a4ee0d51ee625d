/* Starts and ends processes so that none is left behind. */
#include "worker/cli/run/process.h"

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GROUPS_MAX = 8192 };

/* The guard ----------------------------------------------------------------------------------- */

/* A positive message registers a group, a negative one unregisters it. */
static void guard_update(pid_t *groups, size_t *count, pid_t message)
{
    if (message > 0) {
        if (*count < GROUPS_MAX) {
            groups[(*count)++] = message;
        }
        return;
    }
    for (size_t i = 0; i < *count; i++) {
        if (groups[i] == -message) {
            groups[i] = groups[--*count];
            return;
        }
    }
}

/* The guard has a session of its own and blocks all signals, so that what ends the launcher does
 * not end the guard. It ends when the pipe ends. */
static void guard_run(int fd)
{
    (void)setsid();
    (void)prctl(PR_SET_NAME, "muster-guard");
    sigset_t all;
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    static pid_t groups[GROUPS_MAX];
    size_t count = 0;
    pid_t message;
    ssize_t got;
    do {
        got = read(fd, &message, sizeof message);
        if (got == (ssize_t)sizeof message) {
            guard_update(groups, &count, message);
        }
    } while (got == (ssize_t)sizeof message || (got < 0 && errno == EINTR));
    for (size_t i = 0; i < count; i++) {
        (void)kill(-groups[i], SIGKILL);
    }
}

/* The launcher's standard files must not stay open in the guard: a reader of them would wait for
 * the guard's end too. */
static void close_all_except(int fd)
{
    if (fd > 0) {
        (void)close_range(0, (unsigned)fd - 1, 0);
    }
    (void)close_range((unsigned)fd + 1, ~0U, 0);
}

muster_status muster_guard_open(void (*cleanup)(void *argument), void *argument,
                                struct muster_guard *ret_guard)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return muster_error_errno(MUSTER_FATAL, "the guard's pipe");
    }
    pid_t pid = fork();
    if (pid == 0) {
        close_all_except(ends[0]);
        guard_run(ends[0]);
        if (cleanup != NULL) {
            cleanup(argument);
        }
        _exit(0);
    }
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return muster_error_errno(MUSTER_FATAL, "cannot start the guard process");
    }
    *ret_guard = (struct muster_guard){.pid = pid, .fd = ends[1]};
    return MUSTER_OK;
}

void muster_guard_close(struct muster_guard *guard)
{
    if (guard->pid <= 0) {
        return;
    }
    close(guard->fd);
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    *guard = (struct muster_guard){.fd = -1};
}

void muster_guard_unregister(struct muster_guard *guard, pid_t group)
{
    pid_t message = -group;
    ssize_t written = write(guard->fd, &message, sizeof message);
    (void)written; /* fails only if the guard was killed: then there is nothing to unregister */
}

/* Starting ------------------------------------------------------------------------------------ */

struct start_pipes {
    int output[2], error[2], exec_error[2];
};

static void close_pair(int ends[2])
{
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) {
            close(ends[i]);
            ends[i] = -1;
        }
    }
}

static void close_pipes(struct start_pipes *pipes)
{
    close_pair(pipes->output);
    close_pair(pipes->error);
    close_pair(pipes->exec_error);
}

static muster_status open_pipes(struct start_pipes *pipes)
{
    *pipes = (struct start_pipes){{-1, -1}, {-1, -1}, {-1, -1}};
    if (pipe2(pipes->output, O_CLOEXEC) != 0 || pipe2(pipes->error, O_CLOEXEC) != 0 ||
        pipe2(pipes->exec_error, O_CLOEXEC) != 0) {
        muster_status status = muster_error_errno(MUSTER_FATAL, "a worker's pipes");
        close_pipes(pipes);
        return status;
    }
    return MUSTER_OK;
}

/* The child registers its own group with the guard, so that there is no moment in which a group is
 * not registered. Only async-signal-safe calls: the launcher has other threads. */
static _Noreturn void child_run(const struct muster_command *command, int guard_fd,
                                struct start_pipes *pipes, pid_t launcher)
{
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    pid_t group = getpid();
    if (getppid() != launcher || write(guard_fd, &group, sizeof group) < 0) {
        _exit(MUSTER_CLI_NOT_EXECUTABLE);
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)dup2(null, STDIN_FILENO);
    (void)dup2(command->quiet ? null : pipes->output[1], STDOUT_FILENO);
    (void)dup2(pipes->error[1], STDERR_FILENO);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGXFSZ, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, command->signals, NULL);
    (void)execvpe(command->argv[0], command->argv, command->environment);
    int number = errno;
    ssize_t written = write(pipes->exec_error[1], &number, sizeof number);
    (void)written;
    _exit(MUSTER_CLI_NOT_EXECUTABLE);
}

/* The errno of the child's exec; 0: the command runs. */
static int wait_for_exec(int fd)
{
    int number = 0;
    ssize_t got;
    do {
        got = read(fd, &number, sizeof number);
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof number ? number : 0;
}

static muster_status report_exec_failure(struct muster_guard *guard, pid_t pid, const char *name,
                                         int number, int *ret_exit_status)
{
    muster_process_reap(guard, pid);
    *ret_exit_status = number == ENOENT ? MUSTER_CLI_NOT_FOUND : MUSTER_CLI_NOT_EXECUTABLE;
    errno = number;
    return muster_error_errno(MUSTER_INVALID, "cannot execute \"%.256s\"", name);
}

/* Forks, and waits until the child runs the command or has reported why it cannot: the pipe for
 * that closes in exec. So the caller learns of a wrong command before it goes on. */
muster_status muster_process_start(struct muster_guard *guard, const struct muster_command *command,
                                   struct muster_process *ret_process, int *ret_exit_status)
{
    struct start_pipes pipes;
    TRY(open_pipes(&pipes));
    pid_t launcher = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        child_run(command, guard->fd, &pipes, launcher);
    }
    if (pid < 0) {
        muster_status status = muster_error_errno(MUSTER_FATAL, "cannot start a process");
        close_pipes(&pipes);
        return status;
    }
    (void)setpgid(pid, pid); /* parent or child, whichever comes first */
    close(pipes.exec_error[1]);
    pipes.exec_error[1] = -1;
    int number = wait_for_exec(pipes.exec_error[0]);
    if (number != 0) {
        close_pipes(&pipes);
        return report_exec_failure(guard, pid, command->argv[0], number, ret_exit_status);
    }
    if (command->quiet) {
        close_pair(pipes.output);
    } else {
        (void)fcntl(pipes.output[0], F_SETFL, O_NONBLOCK);
    }
    (void)fcntl(pipes.error[0], F_SETFL, O_NONBLOCK);
    ret_process->pid = pid;
    ret_process->output = TAKE_FD(pipes.output[0]);
    ret_process->error = TAKE_FD(pipes.error[0]);
    close_pipes(&pipes);
    return MUSTER_OK;
}

/* Ending -------------------------------------------------------------------------------------- */

void muster_process_signal(pid_t group, int signal)
{
    if (kill(-group, signal) != 0) {
        (void)kill(group, signal);
    }
}

bool muster_process_ended(pid_t pid, siginfo_t *ret_info)
{
    *ret_info = (siginfo_t){0};
    return waitid(P_PID, (id_t)pid, ret_info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ret_info->si_pid == pid;
}

bool muster_process_wait(pid_t pid, int64_t deadline_ns)
{
    AUTO_CLOSE int fd = pidfd_open(pid, 0);
    struct pollfd one = {.fd = fd, .events = POLLIN};
    siginfo_t info;
    while (!muster_process_ended(pid, &info)) {
        int left_ms = muster_clock_left_ms(deadline_ns);
        if (fd < 0 || left_ms == 0) {
            return false;
        }
        (void)poll(&one, 1, left_ms);
    }
    return true;
}

void muster_process_reap(struct muster_guard *guard, pid_t pid)
{
    (void)kill(-pid, SIGKILL);
    muster_guard_unregister(guard, pid);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}
