/* Starts a program with pipes, reads what it prints, and waits for its end. */
#include "tests/support/command.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

const char *command_path(const char *name)
{
    static char path[PATH_MAX];
    const char *folder = getenv("MUSTER_BIN");
    (void)snprintf(path, sizeof path, "%s/%s", folder != NULL ? folder : "build/release/bin", name);
    return path;
}

static void text_init(struct command_text *text, int fd)
{
    *text = (struct command_text){.fd = fd, .bytes = malloc(COMMAND_KEPT_BYTES + 1)};
    assert(text->bytes != NULL);
    text->bytes[0] = '\0';
}

static void text_finish(struct command_text *text)
{
    if (text->fd >= 0) {
        close(text->fd);
    }
    free(text->bytes);
    *text = (struct command_text){.fd = -1};
}

static void text_drop_half(struct command_text *text)
{
    size_t pending = text->used / 2;
    text->used -= pending;
    memmove(text->bytes, text->bytes + pending, text->used);
    text->searched = text->searched > pending ? text->searched - pending : 0;
}

static void text_read(struct command_text *text)
{
    if (text->used == COMMAND_KEPT_BYTES) {
        text_drop_half(text);
    }
    ssize_t got = read(text->fd, text->bytes + text->used, COMMAND_KEPT_BYTES - text->used);
    if (got > 0) {
        text->used += (size_t)got;
        text->bytes[text->used] = '\0';
    } else if (got == 0) {
        close(text->fd);
        text->fd = -1;
    }
}

void command_start(struct command *command, char *const argv[])
{
    int output[2];
    int error[2];
    int failed = pipe2(output, O_CLOEXEC);
    failed |= pipe2(error, O_CLOEXEC);
    assert(failed == 0);
    pid_t pid = fork();
    assert(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(output[1], STDOUT_FILENO);
        (void)dup2(error[1], STDERR_FILENO);
        for (int number = 1; number < SIGRTMIN; number++) {
            (void)signal(number, SIG_DFL);
        }
        (void)execvp(argv[0], argv);
        perror(argv[0]);
        _exit(127);
    }
    close(output[1]);
    close(error[1]);
    command->pid = pid;
    text_init(&command->output, output[0]);
    text_init(&command->error, error[0]);
}

/* Waits for output and reads it once. False: both streams have ended, or the time is up. */
static bool read_once(struct command *command, int64_t deadline_ms)
{
    struct pollfd fds[] = {{.fd = command->output.fd, .events = POLLIN},
                           {.fd = command->error.fd, .events = POLLIN}};
    int64_t left_ms = deadline_ms - now_ms();
    if (left_ms <= 0 || (command->output.fd < 0 && command->error.fd < 0)) {
        return false;
    }
    if (poll(fds, 2, (int)left_ms) > 0) {
        if (fds[0].revents != 0) {
            text_read(&command->output);
        }
        if (fds[1].revents != 0) {
            text_read(&command->error);
        }
    }
    return true;
}

/* Searches only the new bytes: a program may print faster than all of them can be searched again.
 */
static bool text_has(struct command_text *text, const char *part)
{
    size_t length = strlen(part);
    bool found = memmem(text->bytes + text->searched, text->used - text->searched, part, length);
    text->searched = text->used < length ? 0 : text->used - length + 1;
    return found;
}

bool command_await(struct command *command, const char *text)
{
    int64_t deadline_ms = now_ms() + COMMAND_TIMEOUT_MS;
    command->output.searched = command->error.searched = 0;
    while (!text_has(&command->output, text) && !text_has(&command->error, text)) {
        if (!read_once(command, deadline_ms)) {
            return false;
        }
    }
    return true;
}

int command_wait(struct command *command)
{
    int64_t deadline_ms = now_ms() + COMMAND_TIMEOUT_MS;
    while (read_once(command, deadline_ms)) {
    }
    bool late = now_ms() >= deadline_ms;
    if (late) {
        (void)kill(command->pid, SIGKILL);
    }
    int status = 0;
    while (waitpid(command->pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (late) {
        return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void command_finish(struct command *command)
{
    text_finish(&command->output);
    text_finish(&command->error);
}

/* Its state in /proc, 'R' for example; 0: there is no such process. */
static char state_of(pid_t pid)
{
    char path[64];
    char line[512] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    const char *got = fgets(line, sizeof line, file);
    (void)fclose(file);
    const char *name_end = got != NULL ? strrchr(line, ')') : NULL;
    return name_end != NULL && name_end[1] != '\0' ? name_end[2] : 0;
}

bool command_gone(pid_t pid)
{
    int64_t deadline_ms = now_ms() + COMMAND_TIMEOUT_MS;
    for (char state = state_of(pid); state != 0 && state != 'Z' && state != 'X';
         state = state_of(pid)) {
        if (now_ms() > deadline_ms) {
            return false;
        }
        (void)poll(NULL, 0, 2); /* there is no event for the end of another process's child */
    }
    return true;
}

size_t command_count(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + strlen(part), part)) {
        count++;
    }
    return count;
}
