/*
 * SIGTERM as a request to leave: the signals that arrive while a session holds the handler are
 * counted. Process-wide; any thread.
 */
#ifndef MUSTER_WORKER_SESSION_SIGTERM_H
#define MUSTER_WORKER_SESSION_SIGTERM_H

#include <stdbool.h>

/* Installs the handler for the first holder. False, and nothing is held: SIGTERM does not have its
 * default action. */
bool muster_sigterm_hold(void);

/* The last holder's release restores the default action, unless the program has installed
 * another handler since. */
void muster_sigterm_release(void);

unsigned muster_sigterm_count(void);

#endif
