/* How musterd shows itself to other servers with https, and whom it believes. */
#ifndef MUSTER_RENDEZVOUS_CALLS_CALL_FILES_H
#define MUSTER_RENDEZVOUS_CALLS_CALL_FILES_H

/* PEM files; each may be NULL. Borrowed. */
struct muster_call_files {
    const char *authority, *certificate, *key;
};

#endif
