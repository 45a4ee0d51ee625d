/* A program under test, with its output in pipes, which are read until a text appears or the
 * program ends, always with a deadline. Its signals have their default actions. */
#ifndef MUSTER_TESTS_SUPPORT_COMMAND_H
#define MUSTER_TESTS_SUPPORT_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { COMMAND_TIMEOUT_MS = 30000, COMMAND_KEPT_BYTES = 1 << 20 };

struct command_text {
    int fd; /* -1: at its end */
    size_t used;
    char
        *bytes; /* owned, NUL-terminated: the end of what was printed, COMMAND_KEPT_BYTES at most */
    size_t searched; /* bytes that were searched for the awaited text */
};

struct command {
    pid_t pid;
    struct command_text output, error;
};

/* $MUSTER_BIN/name, or the build's bin folder if it is not set. The text is static. */
const char *command_path(const char *name);

/* argv ends with NULL; argv[0] is a path or is found in PATH. */
void command_start(struct command *command, char *const argv[]);

/* Reads until the text is in the output or the error stream. False: the program ended without it,
 * or the time is up. */
bool command_await(struct command *command, const char *text);

/* Reads to the end and waits. Returns the exit status, 128 + N if signal N killed it, -1 if it was
 * not over in time (it is killed then). The texts stay until command_finish(). */
int command_wait(struct command *command);

void command_finish(struct command *command);

/* True once no process has this number any more, a zombie excepted; false after the deadline. */
bool command_gone(pid_t pid);

/* How often `part` is in `text`. */
size_t command_count(const char *text, const char *part);

#endif
