/* Connections that were refused: counted, and logged at a bounded rate. */
#ifndef MUSTER_WORKER_FABRIC_WIRE_REJECTED_CONNECTIONS_H
#define MUSTER_WORKER_FABRIC_WIRE_REJECTED_CONNECTIONS_H

#include <stdint.h>

enum muster_stranger {
    MUSTER_STRANGER_SILENT = 0, /* hung up before its hello */
    MUSTER_STRANGER_SLOW = 1,   /* no hello in time */
    MUSTER_STRANGER_PUSHED = 2, /* too many without a hello at once */
    MUSTER_STRANGER_GARBAGE = 3,
    MUSTER_STRANGER_VERSION = 4,
    MUSTER_STRANGER_TOKEN = 5,
    MUSTER_STRANGER_UNKNOWN = 6, /* no member, or wants somebody else */
    MUSTER_STRANGER_EARLY = 7,   /* its generation never began here */
    MUSTER_STRANGER_PLAIN = 8,   /* has no TLS, which this member uses */
    MUSTER_STRANGER_TLS = 9,     /* has TLS, which this member does not use */
    MUSTER_STRANGER_HANDSHAKE = 10,
    MUSTER_STRANGER_KINDS = 11,
};

/* Zeroed at first. */
struct muster_strangers {
    struct {
        uint64_t unsaid; /* refused since the last line */
        int64_t quiet_until_ns;
    } kinds[MUSTER_STRANGER_KINDS];
};

/* Notes one; at most one line a kind and minute. `from` is its address; `why` says more, or is
 * NULL. */
void muster_strangers_note(struct muster_strangers *strangers, enum muster_stranger kind,
                           const char *from, const char *why, int64_t now_ns);

#endif
